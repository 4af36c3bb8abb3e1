"""A model provider on the loopback interface that is never what is waited for.

Speaks OpenAI's chat completions as a stream of server-sent events. The model's name says what comes.
Run as a process of its own: `python -m benchmarks.provider` prints its port and serves until killed.
"""

import contextlib
import socket
import sys
import threading
import time
from typing import Final

DELTAS: Final = 20_000
DELTA: Final = "twenty characters.. "
COMMAND: Final = "echo running; exec sleep 60"
TICK_SECONDS: Final = 0.002

_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_END: Final = b"0\r\n\r\n"


def chunk(event: str) -> bytes:
    """One server-sent event as one chunk of HTTP, as providers send them."""
    data = f"data: {event}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def delta(text: str) -> bytes:
    """An event that adds text to the reply."""
    return chunk(
        '{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"'
        + text
        + '"},"finish_reason":null}]}'
    )


def finish(reason: str) -> bytes:
    """The events that end a reply."""
    return (
        chunk('{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"' + reason + '"}]}')
        + chunk('{"id":"c","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":10}}')
        + chunk("[DONE]")
        + _END
    )


def call(command: str) -> bytes:
    """An event that calls the shell."""
    return chunk(
        '{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function",'
        '"function":{"name":"bash","arguments":"{\\"command\\":\\"' + command + '\\"}"}}]}}]}'
    )


REPLIES: Final = {
    b"one": _HEAD + delta(DELTA) + finish("stop"),
    b"many": _HEAD + delta(DELTA) * DELTAS + finish("stop"),
    b"shell": _HEAD + call(COMMAND) + finish("tool_calls"),
}


def serve(listener: socket.socket) -> None:
    """Serve every connection in a thread of its own, for ever."""
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_serve_connection, args=(connection,), daemon=True).start()


def _serve_connection(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        while (body := _read_request(connection)) is not None:
            model = body.partition(b'"model":"')[2].partition(b'"')[0]
            if model == b"endless":
                connection.sendall(_HEAD)
                while True:
                    connection.sendall(delta(DELTA))
                    time.sleep(TICK_SECONDS)
            connection.sendall(REPLIES[model])


def _read_request(connection: socket.socket) -> bytes | None:
    """The body of the next request; None at the end of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return body


def main() -> None:
    """Listen, say where, serve."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        serve(listener)


if __name__ == "__main__":
    main()
