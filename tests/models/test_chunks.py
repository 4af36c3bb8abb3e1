"""Chunked bodies rewritten: same payload, same messages, fewer chunks."""

from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knightcode.models.chunks import ChunkJoiner

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
Response = tuple[int, bytes]


def framed(payload: list[bytes], extension: bytes = b"", trailer: bytes = b"") -> bytes:
    body = b"".join(b"%X%s\r\n%s\r\n" % (len(part), extension, part) for part in payload if part)
    return CHUNKED + body + b"0\r\n" + trailer + b"\r\n"


def counted(body: bytes) -> bytes:
    return b"HTTP/1.1 201 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(edge, len(data)) for edge in at), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if b > a]


def read_by_h11(pieces: list[bytes], responses: int) -> list[Response]:
    """What an HTTP library makes of the bytes."""
    connection = h11.Connection(h11.CLIENT)
    found: list[Response] = []
    for piece in [b"", *pieces]:
        if piece:
            connection.receive_data(piece)
        while len(found) < responses:
            if connection.our_state is h11.IDLE:
                connection.send(
                    h11.Request(method="POST", target="/", headers=[("host", "h"), ("content-length", "0")])
                )
                connection.send(h11.EndOfMessage())
                status, body = 0, b""
            event = connection.next_event()
            if event is h11.NEED_DATA:
                break
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                found.append((status, body))
                if len(found) < responses:
                    connection.start_next_cycle()
    return found


payloads = st.lists(st.binary(max_size=40), max_size=8)


@given(
    st.lists(payloads, min_size=1, max_size=3),
    st.sampled_from([b"", b";a=b", b" "]),
    st.sampled_from([b"", b"X: y\r\n"]),
    st.lists(st.integers(0, 900), max_size=8),
)
def test_any_cut_of_chunked_responses_reads_the_same(
    bodies: list[list[bytes]], extension: bytes, trailer: bytes, at: list[int]
) -> None:
    data = b"".join(framed(body, extension, trailer) + counted(b"".join(body)) for body in bodies)
    joiner = ChunkJoiner()
    joined = [out for piece in cut(data, at) if (out := joiner.feed(piece))]
    expected = [(status, b"".join(body)) for body in bodies for status in (200, 201)]
    assert read_by_h11(joined, 2 * len(bodies)) == expected


def test_chunks_that_arrive_together_leave_as_one() -> None:
    assert ChunkJoiner().feed(CHUNKED + b"2\r\nab\r\n3\r\ncde\r\n1\r\nf\r\n") == CHUNKED + b"6\r\nabcdef\r\n"


def test_payload_does_not_wait_for_the_end_of_its_chunk() -> None:
    joiner = ChunkJoiner()
    out = [joiner.feed(piece) for piece in (CHUNKED + b"6\r\nab", b"cd", b"ef\r\n", b"0\r\n\r\n")]
    assert out == [CHUNKED + b"2\r\nab\r\n", b"2\r\ncd\r\n", b"2\r\nef\r\n", b"0\r\n\r\n"]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\n\r\nuntil the connection closes 5\r\nabcde\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n",
        b"HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n2\r\nab\r\n1\r\nc\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\ntransfer-encoding: x\r\n\r\n2\r\nab\r\n1\r\nc\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n2\r\nab\r\n1\r\nc\r\n",
        CHUNKED + b"zz\r\nnot a size\r\n1\r\nc\r\n",
    ],
)
def test_framing_that_is_not_understood_passes_untouched(data: bytes) -> None:
    assert ChunkJoiner().feed(data) == data


def test_a_chunk_with_a_wrong_end_stays_an_error_for_the_reader() -> None:
    joined = ChunkJoiner().feed(CHUNKED + b"2\r\nabXX1\r\nc\r\n")
    assert joined == CHUNKED + b"2\r\nab\r\nXX1\r\nc\r\n"
    with pytest.raises(h11.RemoteProtocolError):
        read_by_h11([joined], 1)


def test_an_endless_head_is_not_kept() -> None:
    joiner = ChunkJoiner()
    data = b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000
    assert joiner.feed(data) == data
    assert joiner.feed(b"\r\n\r\n2\r\nab\r\n") == b"\r\n\r\n2\r\nab\r\n"
