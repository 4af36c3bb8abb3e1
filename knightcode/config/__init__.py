"""Paths and settings.

Must never read an untrusted project's files.
"""
