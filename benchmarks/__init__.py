"""What the product costs, measured beside a bare process that does nothing more than it must.

`python -m benchmarks`. Shares no code with the product's own client: it drives both over raw pipes.
"""
