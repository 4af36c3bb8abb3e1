"""The protocol without its pipe: bytes go in, bytes and accepted requests come out.

Must stay free of trio, clocks, files and heavy imports: the first answer is given by this package
before the rest of the product is loaded. A peer's mistake is a value here; an exception is a mistake
of ours.
"""
