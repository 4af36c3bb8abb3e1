"""`knightcode demo`: one turn on a real project, watched from a terminal.

A client like any other: it knows the protocol and nothing of the server's inside.
"""
