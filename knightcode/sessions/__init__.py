"""Session files: the entries of a conversation, their tree, and how they come back.

Must never change a line that has been written, nor know of models, threads or connections.
"""
