"""KnightCode: a coding agent's engine with a strict cancellation model."""

__version__ = "0.1.0"
