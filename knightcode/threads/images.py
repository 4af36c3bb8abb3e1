"""Images that come with an input: what is accepted, and how one on disk is read.

Source: App Server, "Threads and turns"; App Server notes, "Queue, usage, model, warning, UI".
"""

import base64
import binascii
import os
from collections.abc import Iterable

from knightcode.agent.image_types import MODEL_IMAGES, image_type
from knightcode.messages import ImageBlock
from knightcode.processes.worker_threads import WorkerThreads
from knightcode.regular_file import open_regular
from knightcode.threads.turn import PathImage, ThreadError

IMAGE_LIMIT = 20 * 1024 * 1024
"""Bytes of one image, decoded."""

INPUT_LIMIT = 28 * 1024 * 1024
"""Characters of one input, its images as base64: one image of the largest size fits. An item is sent in one
line, twice, and a reading client must be able to take that."""

_DISK = WorkerThreads("input images on disks", 64)
"""An interrupted read gives its place back only when the disk answers."""
_INLINE = WorkerThreads("inline input images", 4)


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
            # A disk that does not answer must not hold up an interrupt; nobody misses the result then.
            read.append(await _DISK.run(_read, image.path, abandon_on_cancel=True))
        else:
            read.append(await _INLINE.run(_check_inline, image))
        if sum(len(one.data) for one in read) > INPUT_LIMIT:
            what = f"The images together are larger than {INPUT_LIMIT} characters of base64"
            raise bad_image(f"{what}; send fewer, or smaller ones")
    return read


def _check_inline(image: ImageBlock) -> ImageBlock:
    if len(image.data) > IMAGE_LIMIT * 4 // 3 + 4:
        raise bad_image(f"An inline image is larger than {IMAGE_LIMIT} bytes; scale it down")
    try:
        data = base64.b64decode(image.data, validate=True)
    except (binascii.Error, ValueError):
        raise bad_image("An inline image is not valid base64; encode the file's bytes") from None
    if len(data) > IMAGE_LIMIT:  # padding hides up to two bytes from the check above
        raise bad_image(f"An inline image is larger than {IMAGE_LIMIT} bytes; scale it down")
    kind = image_type(data)
    if kind not in MODEL_IMAGES:
        raise bad_image("An inline image is not PNG, JPEG, GIF or WebP; convert it first")
    return ImageBlock(data=image.data, mime_type=kind)


def _read(path: str) -> ImageBlock:
    if not os.path.isabs(path):
        raise bad_image(f"The image path {path!r} is relative; send an absolute path")
    try:
        with open(open_regular(path), "rb") as file:
            data: bytes | None = file.read(IMAGE_LIMIT + 1)
    except OSError as error:
        raise bad_image(f"The image {path} cannot be read: {error.strerror or error}") from None
    if data is None:  # a device that has nothing to say now
        raise bad_image(f"The image {path} cannot be read: it is no ordinary file")
    if len(data) > IMAGE_LIMIT:
        raise bad_image(f"The image {path} is larger than {IMAGE_LIMIT} bytes; scale it down")
    kind = image_type(data)
    if kind not in MODEL_IMAGES:
        raise bad_image(f"{path} is not a PNG, JPEG, GIF or WebP file; convert it first")
    return ImageBlock(data=base64.b64encode(data).decode(), mime_type=kind)
