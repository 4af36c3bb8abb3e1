"""The read tool: shows lines of a text file, or an image.

Source: agent loop, "read".
"""

import codecs
import os
import shlex
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from io import FileIO
from typing import Any, ClassVar

import attrs
import trio

from knightcode.agent.image_types import MODEL_IMAGES, SNIFFED_BYTES, image_type
from knightcode.agent.paths import existing_spelling, resolve_path
from knightcode.agent.tools.arguments import line_argument, path_argument
from knightcode.agent.tools.base import ToolContext, ToolError, ToolResult
from knightcode.agent.tools.files import FILE_THREADS, file_error, open_regular
from knightcode.agent.tools.read_window import Window, WindowReader
from knightcode.agent.truncation import MAX_BYTES, format_size
from knightcode.messages import ImageBlock, InputBlock, TextBlock

MAX_IMAGE_BASE64_BYTES = int(4.5 * 1024 * 1024)
_CHUNK_BYTES = 256 * 1024
_BINARY_BYTES = 8 * 1024
"""A NUL among the first of this many bytes makes a file binary."""
_BINARY_NOTE = "[Binary file: bytes that are no text are shown as \ufffd]\n"


@attrs.frozen
class ReadTool:
    """Reads a file in a worker thread; of a huge one only what is shown is held in memory."""

    name: ClassVar[str] = "read"
    description: ClassVar[str] = (
        "Read a text file or an image (PNG, JPEG, GIF, WebP). At most 2000 lines or 50KB of text are shown; "
        "the rest is read with offset and limit."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "File to read, relative or absolute"},
            "offset": {"type": "number", "description": "First line to show, counted from 1"},
            "limit": {"type": "number", "description": "How many lines to show at most"},
        },
        "required": ["path"],
    }
    snippet: ClassVar[str | None] = "read text files and images"
    guidelines: ClassVar[tuple[str, ...]] = ("Look at files with read, not with cat or sed.",)
    sequential: ClassVar[bool] = False
    builtin: ClassVar[bool] = True

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as they are."""
        return arguments

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Read the file. Raises ToolError when it cannot be read or ends before `offset`."""
        shown = path_argument(arguments)
        offset = max(1, line_argument(arguments, "offset") or 1)
        limit = line_argument(arguments, "limit")
        if limit is not None and limit < 1:
            raise ToolError(f"limit must be at least 1, got {limit}")
        read = partial(
            _read,
            resolve_path(shown, context.cwd),
            shown=shown,
            offset=offset,
            limit=limit,
            takes_images=context.takes_images,
        )
        # A read that nobody waits for harms nothing, and a hung network disk must not hold up an interrupt.
        return await FILE_THREADS.run(read, abandon_on_cancel=True)


def _read(path: str, *, shown: str, offset: int, limit: int | None, takes_images: bool) -> ToolResult:
    try:
        with open(open_regular(existing_spelling(path)), "rb", buffering=0) as file:
            head = file.read(_CHUNK_BYTES)
            kind = image_type(head[:SNIFFED_BYTES])
            if kind is not None:
                return _image(kind, head, file, takes_images=takes_images)
            reader = WindowReader(offset, limit)
            for text in _decoded(head, file):
                reader.feed(text)
    except OSError as error:
        raise file_error(shown, "read", error) from error
    window = reader.finish()
    if window is None:
        raise ToolError(f"offset {offset} is beyond the end of {shown}, which has {reader.file_lines} lines")
    return _text(window, shown, binary=b"\0" in head[:_BINARY_BYTES])


def _decoded(head: bytes, file: FileIO) -> Iterator[str]:
    """The text of a file in pieces; a character that a piece splits is put together."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    data = head
    while data:
        yield decoder.decode(data)
        trio.from_thread.check_cancelled()
        data = file.read(_CHUNK_BYTES)
    yield decoder.decode(b"", final=True)


def _text(window: Window, shown: str, *, binary: bool) -> ToolResult:
    cut = window.shown
    details: dict[str, Any] = {"lineCount": cut.output_lines}
    if cut.truncated:
        details["truncation"] = cut.details()
    note = _note(window, shown)
    body = "" if cut.first_line_exceeds_limit else cut.content + ("\n\n" if note else "")
    return ToolResult.of_text((_BINARY_NOTE if binary else "") + body + note, details=details)


def _note(window: Window, shown: str) -> str:
    cut, first, last = window.shown, window.first_line, window.last_line
    if cut.first_line_exceeds_limit:
        return (
            f"[Line {first} alone is {format_size(window.first_line_bytes)}, above the limit of "
            f"{format_size(MAX_BYTES)}. Read a part of it with: "
            f"sed -n {first}p {shlex.quote(shown)} | head -c {MAX_BYTES}]"
        )
    if cut.truncated:
        size = f", cut at {format_size(MAX_BYTES)}" if cut.truncated_by == "bytes" else ""
        return f"[Lines {first}-{last} of {window.file_lines} shown{size}. Continue with offset={last + 1}]"
    more = window.file_lines - last
    if more:
        return f"[{more} more {'line' if more == 1 else 'lines'}. Continue with offset={last + 1}]"
    return ""


def _image(kind: str, head: bytes, file: FileIO, *, takes_images: bool) -> ToolResult:
    size = max(os.fstat(file.fileno()).st_size, len(head))
    about = f"Image: {kind}, {format_size(size)}."
    if kind not in MODEL_IMAGES:
        return ToolResult.of_text(f"{about} This format cannot be shown; convert it to PNG first.")
    room = MAX_IMAGE_BASE64_BYTES // 4 * 3
    data = head
    while data and len(data) <= room and (more := file.read(_CHUNK_BYTES)):
        trio.from_thread.check_cancelled()
        data += more
    if len(data) > room:
        return ToolResult.of_text(
            f"{about} It is too large to be shown: at most {format_size(room)}. Make it smaller first."
        )
    if not takes_images:
        about += " The current model takes no images, so it will not see this one."
    blocks: tuple[InputBlock, ...] = (
        TextBlock(text=about),
        ImageBlock(data=b64encode(data).decode(), mime_type=kind),
    )
    return ToolResult(content=blocks)
