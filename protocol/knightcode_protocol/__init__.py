"""The app server's protocol as Python values: structs, tables, limits, error codes.

Depends on msgspec alone. Nothing is imported here, so that a program which only needs the envelope
does not pay for the structs of every method.
"""
