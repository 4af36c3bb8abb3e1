"""The tools in the box, one module each."""
