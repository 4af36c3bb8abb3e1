"""The app server: lines in, lines out, and what they ask of the threads.

Must hold no conversation state, and never decide what a turn may do.
"""
