"""The agent: prompt to model requests, tool calls and their results.

Must never write a session file itself, nor ask a person itself.
"""
