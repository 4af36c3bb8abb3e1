"""Generates `app-server.schema.json`, in which every message is defined.

    python -m knightcode_protocol.schema [--check] [path]

writes the schema, or with `--check` compares the file with what would be written and exits 1 when
they differ. In a checkout the path is that of the stored file unless another one is given; an installed
package stores none, and needs the path. The output depends on the tables and structs alone.

The schema as a whole accepts every line that either side may write. `methods`, `notifications`,
`clientNotifications` and `serverRequests` name the definitions of each method's parts.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from knightcode_protocol.envelope import ErrorObject
from knightcode_protocol.errors import COMMON_ERRORS, MEANINGS
from knightcode_protocol.methods import METHODS
from knightcode_protocol.notifications import CLIENT_NOTIFICATIONS, NOTIFICATIONS
from knightcode_protocol.server_requests import SERVER_REQUESTS
from knightcode_protocol.wire import Wire

STORED: Final = Path(__file__).parent.parent / "app-server.schema.json"
"""The file in a checkout. Beside an installed package this place belongs to others."""
_CHECKOUT_MARK: Final = Path(__file__).parent.parent.parent / "pyproject.toml"
_REF: Final = "#/$defs/{name}"
_ID: Final = {"$ref": "#/$defs/RequestId"}

Schema = dict[str, Any]


def build_schema() -> Schema:
    """The schema as a JSON value."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "knightcode app-server",
        "description": "One line of the protocol, as either side writes it.",
        "anyOf": [
            {"$ref": _REF.format(name=name)}
            for name in (
                "ClientRequest",
                "ClientNotification",
                "ServerNotification",
                "ServerRequest",
                "ResultResponse",
                "ErrorResponse",
            )
        ],
        "methods": {
            row.name: {
                "params": _ref(row.params),
                "result": _ref(row.result),
                "errors": sorted(COMMON_ERRORS | row.errors),
                "subscribes": row.subscribes,
            }
            for row in METHODS.values()
        },
        "notifications": {
            row.name: {"params": _ref(row.params), "audience": row.audience} for row in NOTIFICATIONS.values()
        },
        "clientNotifications": {
            name: {"params": _ref(params)} for name, params in CLIENT_NOTIFICATIONS.items()
        },
        "serverRequests": {
            row.name: {"params": _ref(row.params), "result": _ref(row.result)}
            for row in SERVER_REQUESTS.values()
        },
        "errors": dict(MEANINGS),
        "$defs": dict(sorted((_envelopes() | _components()).items())),
    }


def render_schema() -> str:
    """The schema as the text of its file."""
    return msgspec.json.format(msgspec.json.encode(build_schema()), indent=2).decode() + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write or check the file; the exit code: 1 when it differs or cannot be used, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m knightcode_protocol.schema")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("path", nargs="?", type=Path, default=STORED if _CHECKOUT_MARK.is_file() else None)
    options = parser.parse_args(arguments)
    if options.path is None:
        parser.error("give the path of the schema's file; only a checkout has one of its own")
    problem = _checked(options.path) if options.check else _written(options.path)
    if problem is None:
        return 0
    sys.stderr.write(f"{problem}\n")
    return 1


def _written(path: Path) -> str | None:
    """Write the file; what went wrong."""
    try:
        path.write_text(render_schema(), encoding="utf-8", newline="\n")
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    return None


def _checked(path: Path) -> str | None:
    """Compare the file; what is wrong with it, and what mends it."""
    mend = f"write it anew: python -m knightcode_protocol.schema {shlex.quote(str(path))}"
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return f"{path} does not exist; {mend}"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return None if stored == render_schema().encode() else f"{path} is not what the structs say; {mend}"


def _ref(struct: type[Wire]) -> Schema:
    return {"$ref": _REF.format(name=struct.__name__)}


def _components() -> Schema:
    structs: list[type[Wire]] = [ErrorObject]
    for method in METHODS.values():
        structs += [method.params, method.result]
    structs += [row.params for row in NOTIFICATIONS.values()]
    structs += CLIENT_NOTIFICATIONS.values()
    for request in SERVER_REQUESTS.values():
        structs += [request.params, request.result]
    _, components = msgspec.json.schema_components(structs, ref_template=_REF)
    return dict(components)


def _envelopes() -> Schema:
    return {
        "RequestId": {
            "description": "Comes back unchanged in the response.",
            "type": ["string", "number"],
        },
        "ClientRequest": {
            "anyOf": [
                _message(row.name, row.params, with_id=True, optional=_may_be_empty(row.params))
                for row in METHODS.values()
            ]
        },
        "ClientNotification": {
            "anyOf": [
                _message(name, params, optional=_may_be_empty(params))
                for name, params in CLIENT_NOTIFICATIONS.items()
            ]
        },
        "ServerNotification": {"anyOf": [_message(row.name, row.params) for row in NOTIFICATIONS.values()]},
        "ServerRequest": {
            "anyOf": [_message(row.name, row.params, with_id=True) for row in SERVER_REQUESTS.values()]
        },
        "ResultResponse": {
            "description": "Answers a request; the request's method says what `result` is.",
            "type": "object",
            "properties": {"id": _ID, "result": {"type": "object"}},
            "required": ["id", "result"],
            "not": {"anyOf": [{"required": ["error"]}, {"required": ["method"]}]},
        },
        "ErrorResponse": {
            "description": "Refuses a request.",
            "type": "object",
            "properties": {"id": _ID, "error": {"$ref": _REF.format(name="ErrorObject")}},
            "required": ["id", "error"],
            "not": {"anyOf": [{"required": ["result"]}, {"required": ["method"]}]},
        },
    }


def _message(name: str, params: type[Wire], *, with_id: bool = False, optional: bool = False) -> Schema:
    properties: Schema = {"id": _ID} if with_id else {}
    properties |= {"method": {"const": name}, "params": _ref(params)}
    required = [member for member in properties if member != "params" or not optional]
    message: Schema = {"type": "object", "properties": properties, "required": required}
    if not with_id:
        message["not"] = {"required": ["id"]}
    return message


def _may_be_empty(params: type[Wire]) -> bool:
    return all(not field.required for field in msgspec.structs.fields(params))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
