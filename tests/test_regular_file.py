"""Files that are opened by name alone."""

import os
import socket
from pathlib import Path

import pytest

from knightcode.regular_file import NotRegularError, open_regular


def test_a_file_is_opened_for_reading_through_links_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("file", "link"):
        with open(open_regular(tmp_path / name), "rb") as file:
            assert file.read() == b"content"


def test_a_descriptor_does_not_reach_child_processes(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    descriptor = open_regular(str(tmp_path / "file"))
    inheritable = os.get_inheritable(descriptor)
    os.close(descriptor)
    assert not inheritable


def test_a_pipe_without_a_writer_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotRegularError, match="not a regular file"):
        open_regular(tmp_path / "pipe")


def test_a_device_is_refused() -> None:
    with pytest.raises(NotRegularError):
        open_regular("/dev/zero")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket has to be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with pytest.raises(OSError, match="socket"):
            open_regular("socket")


@pytest.mark.parametrize("name", ["missing", "missing/below", "file/below"])
def test_what_is_not_there_is_an_error_of_the_system(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises((FileNotFoundError, NotADirectoryError)):
        open_regular(tmp_path / name)


@pytest.mark.parametrize("path", ["a\0b", "half \ud83d pair"])
def test_what_can_be_no_name_is_an_error_of_the_system_and_no_other(path: str) -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        open_regular(path)


def test_a_refusal_leaves_no_descriptor_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/dev/fd"))
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(OSError, match=r"directory|regular"):
            open_regular(path)
    assert len(os.listdir("/dev/fd")) == before
