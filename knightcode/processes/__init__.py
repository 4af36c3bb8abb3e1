"""Children and worker threads: everything that runs beside the event loop, bounded and ended.

Must never know what a child is run for.
"""
