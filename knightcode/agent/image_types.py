"""What kind of image a file holds, told by its first bytes.

Source: agent loop, "read"; App Server, "Threads and turns".
"""

SNIFFED_BYTES = 32
MODEL_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What models take. Any other type that is told apart here has to be converted first."""
_BMP_HEADER_SIZES = frozenset({12, 40, 52, 56, 64, 108, 124})


def image_type(head: bytes) -> str | None:
    """The MIME type of an image that begins with `head` (`SNIFFED_BYTES` or the whole file), or None."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    # Two letters are not enough: a text may begin with them.
    if head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in _BMP_HEADER_SIZES:
        return "image/bmp"
    return None
