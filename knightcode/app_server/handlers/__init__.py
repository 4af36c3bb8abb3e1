"""One function per method: params in, domain calls, result out.

A handler is a plain function, so that the synchronous part of one request is over before the next
one is looked at. What has to wait is returned as a coroutine function.
"""
