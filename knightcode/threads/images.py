"""Images that come with an input: what is accepted, and how one on disk is read.

Source: App Server, "Threads and turns"; App Server notes, "Queue, usage, model, warning, UI".
"""

import base64
import binascii
import os
import stat
from collections.abc import Iterable

import trio

from knightcode.messages import ImageBlock
from knightcode.threads.turn import PathImage, ThreadError

IMAGE_LIMIT = 20 * 1024 * 1024
"""Bytes of one image, decoded."""

_FILES = trio.CapacityLimiter(4)


def image_type(head: bytes) -> str | None:
    """The MIME type that the first bytes of a file say, of the four that are accepted."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return None


def bad_image(what: str) -> ThreadError:
    """The refusal of one image."""
    return ThreadError("invalidParams", what, {"reason": "badImage"})


async def read_images(images: Iterable[ImageBlock | PathImage]) -> list[ImageBlock]:
    """The images with their data, checked.

    Raises:
        ThreadError: `invalidParams`, `badImage`.
    """
    read: list[ImageBlock] = []
    for image in images:
        if isinstance(image, PathImage):
            read.append(await trio.to_thread.run_sync(_read, image.path, limiter=_FILES))
        else:
            read.append(_check_inline(image))
    return read


def _check_inline(image: ImageBlock) -> ImageBlock:
    if len(image.data) > IMAGE_LIMIT * 4 // 3 + 4:
        raise bad_image(f"An inline image is larger than {IMAGE_LIMIT} bytes; scale it down")
    try:
        data = base64.b64decode(image.data, validate=True)
    except (binascii.Error, ValueError):
        raise bad_image("An inline image is not valid base64; encode the file's bytes") from None
    kind = image_type(data)
    if kind is None:
        raise bad_image("An inline image is not PNG, JPEG, GIF or WebP; convert it first")
    return ImageBlock(data=image.data, mime_type=kind)


def _read(path: str) -> ImageBlock:
    if not os.path.isabs(path):
        raise bad_image(f"The image path {path} is relative; send an absolute path")
    try:
        # Without O_NONBLOCK the opening of a named pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise bad_image(f"The image {path} cannot be read: {reason}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise bad_image(f"{path} is not a regular file; send the path of an image file")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(IMAGE_LIMIT + 1)
    if len(data) > IMAGE_LIMIT:
        raise bad_image(f"The image {path} is larger than {IMAGE_LIMIT} bytes; scale it down")
    kind = image_type(data)
    if kind is None:
        raise bad_image(f"{path} is not a PNG, JPEG, GIF or WebP file; convert it first")
    return ImageBlock(data=base64.b64encode(data).decode(), mime_type=kind)
