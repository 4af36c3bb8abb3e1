"""Images that come with an input: what reaches the model, and what is refused before anything is asked.

Source: App Server, "Threads and turns"; App Server notes, "Queue, usage, model, warning, UI".
"""

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import trio

from knightcode.messages import ImageBlock
from knightcode.threads.images import IMAGE_LIMIT, read_images
from knightcode.threads.turn import PathImage, ThreadError
from tests.app_server.pipe import PATIENCE, Message, Pipe, open_pipe, text, write_script
from tests.app_server.provider import DIALECTS, Dialect, name_of, open_provided, reply, says

IMAGES: Final = {
    "image/png": base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    ),
    "image/jpeg": base64.b64decode(
        "/9j/2wBDAAMCAgICAgMCAgIDAwMDBAYEBAQEBAgGBgUGCQgKCgkICQkKDA8MCgsOCwkJDRENDg8QEBEQCgwSExIQEw8QEBD/yQALCAAB"
        "AAEBAREA/8wABgAQEAX/2gAIAQEAAD8A0s8g/9k="
    ),
    "image/gif": base64.b64decode("R0lGODlhAQABAIAAAAUEBAAAACwAAAAAAQABAAACAkQBADs="),
    "image/webp": base64.b64decode("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA=="),
}
"""One pixel of each kind that is taken."""

PNG: Final = IMAGES["image/png"]
BMP: Final = b"BM" + b"\0" * 12 + (40).to_bytes(4, "little") + b"\0" * 36
SEES: Final = {"input": ["text", "image"]}
both = pytest.mark.parametrize("dialect", DIALECTS, ids=name_of)

Sent = tuple[str, bytes]
"""Type and bytes of an image."""


def images_in(dialect: Dialect, body: Message) -> list[Sent]:
    """The images of a request's last message."""
    blocks = dialect.conversation(body)[-1]["content"]
    if dialect.api == "openai-completions":
        urls = [block["image_url"]["url"] for block in blocks if block["type"] == "image_url"]
        pairs = [url.removeprefix("data:").split(";base64,") for url in urls]
        return [(kind, base64.b64decode(data)) for kind, data in pairs]
    sources = [block["source"] for block in blocks if block["type"] == "image"]
    return [(source["media_type"], base64.b64decode(source["data"])) for source in sources]


def inline(data: bytes, mime_type: str = "image/png") -> Message:
    return {"mimeType": mime_type, "data": base64.b64encode(data).decode()}


def on_disk(folder: Path, data: bytes, name: str = "shot") -> Message:
    path = folder / name
    path.write_bytes(data)
    return {"path": str(path)}


@pytest.mark.proves("IMAGE-001", "IMAGE-002", "IMAGE-003", "IMAGE-007")
@both
async def test_images_of_every_kind_reach_the_model_inline_and_by_path_in_their_order(
    tmp_path: Path, dialect: Dialect
) -> None:
    inlined = [inline(data, kind) for kind, data in IMAGES.items()]
    paths = [on_disk(tmp_path, data, f"shot-{n}") for n, data in enumerate(IMAGES.values())]
    answers = [reply(dialect, says("Seen.")) for _ in range(4)]
    async with open_provided(tmp_path, dialect, *answers, model=SEES) as (pipe, provider):
        thread_id = await pipe.start_thread(tmp_path)
        for images in (inlined, paths):
            assert (await pipe.run_turn(thread_id, images=images))["turn"]["status"] == "completed"
            await pipe.call("turn/queue/add", threadId=thread_id, text="look", images=images)
            await pipe.until_idle()
    sent = [images_in(dialect, request.json()) for request in provider.requests]
    assert sent == [list(IMAGES.items())] * 4


@pytest.mark.proves("IMAGE-001", "IMAGE-002")
async def test_what_an_image_is_is_told_by_its_bytes_and_not_by_its_name_or_its_label(tmp_path: Path) -> None:
    dialect = DIALECTS[0]
    images = [on_disk(tmp_path, PNG, "notes.txt"), inline(IMAGES["image/gif"], "image/png")]
    async with open_provided(tmp_path, dialect, reply(dialect, says("Seen.")), model=SEES) as (
        pipe,
        provider,
    ):
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.run_turn(thread_id, "", images=images)
        (turn,) = (await pipe.call("thread/read", threadId=thread_id))["turns"]
    known = [("image/png", PNG), ("image/gif", IMAGES["image/gif"])]
    assert images_in(dialect, provider.requests[0].json()) == known
    shown = [(image["mimeType"], base64.b64decode(image["data"])) for image in turn["items"][0]["images"]]
    assert shown == known


# --- what is refused -----------------------------------------------------------------------------


def relative(_: Path) -> Message:
    return {"path": "a.png"}


def of_home(_: Path) -> Message:
    return {"path": "~/a.png"}


def missing(folder: Path) -> Message:
    return {"path": str(folder / "none.png")}


def under_a_file(folder: Path) -> Message:
    return {"path": on_disk(folder, PNG)["path"] + "/a.png"}


def nul_in_its_name(folder: Path) -> Message:
    return {"path": f"{folder}/a\0.png"}


def a_folder(folder: Path) -> Message:
    (folder / "folder.png").mkdir()
    return {"path": str(folder / "folder.png")}


def a_link_to_a_folder(folder: Path) -> Message:
    (folder / "link.png").symlink_to(folder)
    return {"path": str(folder / "link.png")}


def a_pipe(folder: Path) -> Message:
    os.mkfifo(folder / "pipe.png")
    return {"path": str(folder / "pipe.png")}


def a_device(_: Path) -> Message:
    return {"path": "/dev/zero"}


def a_text(folder: Path) -> Message:
    return on_disk(folder, b"not an image\n", "text.png")


def a_bitmap(folder: Path) -> Message:
    return on_disk(folder, BMP, "bitmap.png")


def nothing(folder: Path) -> Message:
    return on_disk(folder, b"", "empty.png")


def too_large(folder: Path) -> Message:
    image = on_disk(folder, PNG, "large.png")
    os.truncate(image["path"], IMAGE_LIMIT + 1)
    return image


def an_inline_text(_: Path) -> Message:
    return inline(b"not an image\n")


def an_inline_bitmap(_: Path) -> Message:
    return inline(BMP, "image/bmp")


def no_base64(_: Path) -> Message:
    return {"mimeType": "image/png", "data": "#" + base64.b64encode(PNG).decode()}


RELATIVE: Final = "The image path {path!r} is relative; send an absolute path"
NO_IMAGE: Final = "{path} is not a PNG, JPEG, GIF or WebP file; convert it first"
NOT_REGULAR: Final = "The image {path} cannot be read: It is not a regular file"
REFUSED: Final[list[tuple[Callable[[Path], Message], str]]] = [
    (relative, RELATIVE),
    (of_home, RELATIVE),
    (missing, "The image {path} cannot be read: No such file or directory"),
    (under_a_file, "The image {path} cannot be read: Not a directory"),
    (nul_in_its_name, "The image {path} cannot be read: Invalid argument"),
    (a_folder, "The image {path} cannot be read: Is a directory"),
    (a_link_to_a_folder, "The image {path} cannot be read: Is a directory"),
    (a_pipe, NOT_REGULAR),
    (a_device, NOT_REGULAR),
    (a_text, NO_IMAGE),
    (a_bitmap, NO_IMAGE),
    (nothing, NO_IMAGE),
    (too_large, f"The image {{path}} is larger than {IMAGE_LIMIT} bytes; scale it down"),
    (an_inline_text, "An inline image is not PNG, JPEG, GIF or WebP; convert it first"),
    (an_inline_bitmap, "An inline image is not PNG, JPEG, GIF or WebP; convert it first"),
    (no_base64, "An inline image is not valid base64; encode the file's bytes"),
]


async def refusal(pipe: Pipe, method: str, thread_id: str, image: Message) -> Message:
    """The error that an input gets whose second image is this one."""
    images = [inline(PNG), image]
    response = await pipe.ask(method, threadId=thread_id, text="look", images=images)
    assert "error" in response, (method, image)
    error: Message = response["error"]
    return error


@pytest.mark.proves("IMAGE-004", "IMAGE-005", "IMAGE-006", "IMAGE-007", "IMAGE-008")
async def test_a_bad_image_is_refused_with_what_is_wrong_and_nothing_of_its_input_is_kept(
    tmp_path: Path,
) -> None:
    script = write_script(tmp_path / "script.json", [text("Fine.")])
    home = tmp_path / "home"
    home.mkdir()
    (home / "a.png").write_bytes(PNG)  # in the server's own directory, and the user's
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        for make, wanted in REFUSED:
            folder = tmp_path / make.__name__
            folder.mkdir()
            image = make(folder)
            error = {
                "code": "invalidParams",
                "message": wanted.format(path=image.get("path")),
                "data": {"reason": "badImage"},
            }
            for method in ("turn/start", "turn/queue/add"):
                assert await refusal(pipe, method, thread_id, image) == error, make.__name__
        resumed = await pipe.call("thread/resume", threadId=thread_id)
        assert (resumed["turns"], resumed["queue"]) == ([], {"steering": [], "followUp": []})
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
    told = {method for method, params in pipe.notifications(thread_id)}
    assert "turn/queue/updated" not in told


@pytest.mark.proves("IMAGE-004")
@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        ({}, "An image needs `mimeType` and `data`, or `path` - at `$.images[1]`"),
        ({"data": "aGk="}, "An image needs `mimeType` and `data`, or `path` - at `$.images[1]`"),
        (
            {"path": "/a", "data": "aGk=", "mimeType": "image/png"},
            "An image has `path` or inline `data`, not both - at `$.images[1]`",
        ),
        ({"path": 7}, "Expected `str | null`, got `int` - at `$.images[1].path`"),
        ("/a.png", "Expected `object`, got `str` - at `$.images[1]`"),
    ],
)
async def test_an_image_of_the_wrong_form_is_refused_with_the_member_that_is_wrong(
    tmp_path: Path, image: object, wanted: str
) -> None:
    script = write_script(tmp_path / "script.json", [text("Fine.")])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        for method in ("turn/start", "turn/queue/add"):
            response = await pipe.ask(method, threadId=thread_id, text="x", images=[inline(PNG), image])
            assert response["error"]["code"] == "invalidParams"
            assert response["error"]["message"].removeprefix(f"{method}: ") == wanted


@pytest.mark.proves("IMAGE-008")
async def test_an_image_may_be_as_large_as_the_limit_and_not_a_byte_larger(tmp_path: Path) -> None:
    """At the domain's door: on the pipe such an image is a line of many megabytes."""
    path = on_disk(tmp_path, PNG)["path"]
    data = PNG + bytes(IMAGE_LIMIT - len(PNG))
    encoded = ImageBlock(data=base64.b64encode(data).decode(), mime_type="image/png")
    larger = ImageBlock(data=base64.b64encode(data + b"\0").decode(), mime_type="image/png")
    with trio.fail_after(PATIENCE):
        os.truncate(path, IMAGE_LIMIT)
        assert await read_images([PathImage(path)]) == await read_images([encoded]) == [encoded]
        with pytest.raises(ThreadError, match="together") as together:
            await read_images([PathImage(path), encoded])
        assert together.value.data == {"reason": "badImage"}
        os.truncate(path, IMAGE_LIMIT + 1)
        for image in (PathImage(path), larger):
            with pytest.raises(ThreadError) as refused:
                await read_images([image])
            assert (refused.value.code, refused.value.data) == ("invalidParams", {"reason": "badImage"})
            assert refused.value.message.endswith(f"is larger than {IMAGE_LIMIT} bytes; scale it down")
