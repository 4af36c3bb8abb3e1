"""What ends a demo early and is nobody's bug."""


class DemoError(Exception):
    """The demo cannot go on; the text says why and what to do about it."""
