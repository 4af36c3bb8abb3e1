"""Conversation threads: who may start what, one running turn, its items, approvals and subscribers.

Must never know JSON or a connection's transport.
"""
