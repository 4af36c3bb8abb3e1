"""Whole conversations against the stored schema, strictly: a member that it does not list is a fault.

The schema lets readers ignore what they do not know. Here that tolerance is taken out of it, since it
is to be the complete list of what is ever sent.
"""

import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.app_server.pipe import ROOT, Message

SCHEMA: Message = json.loads((ROOT / "protocol" / "app-server.schema.json").read_bytes())
METHODS: Message = SCHEMA["methods"]

Talk = Sequence[tuple[Literal["client", "server"], Message]]


def faults_of(talk: Talk) -> list[str]:
    """What is wrong in a conversation, one line each, in its order; empty when it keeps to the schema."""
    return [fault for number in range(len(talk)) for fault in _faults_of_line(talk, number)]


def strict(schema: Any) -> Any:
    """The schema with every object closed that names its members and does not say that it is open."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: strict(value) for name, value in schema.items()}
    if "properties" in closed and closed.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


def _faults_of_line(talk: Talk, number: int) -> Iterator[str]:
    side, message = talk[number]
    where = f"{side}: {json.dumps(message)[:300]}"
    row = _row(side, message)
    if side == "client" and row is None and {"id", "method"} <= set(message):
        return  # a client may ask for what there is not; its answer is looked at
    for fault in _errors(_whole(), message):
        yield f"{where}: as a line: {fault}"
    if "method" in message:
        if row is None:
            yield f"{where}: the schema has no such method"
        elif side == "server" or _answer_to(talk, number).get("error", {}).get("code") != "invalidParams":
            for fault in _errors(_part(row["params"]["$ref"]), message.get("params", {})):
                yield f"{where}: params: {fault}"
        return
    request = _question_of(talk, number)
    if request is None:
        yield f"{where}: nobody asked"
    elif "error" in message:
        yield from (
            f"{where}: error: {fault}" for fault in _errors(_part("#/$defs/ErrorObject"), message["error"])
        )
        yield from (f"{where}: {fault}" for fault in _wrong_code(request, message["error"]))
    else:
        asked = METHODS if side == "server" else SCHEMA["serverRequests"]
        result = asked[request["method"]]["result"]["$ref"]
        yield from (f"{where}: result: {fault}" for fault in _errors(_part(result), message["result"]))


def _row(side: str, message: Message) -> Message | None:
    if "method" not in message:
        return None
    if "id" in message:
        rows = METHODS if side == "client" else SCHEMA["serverRequests"]
    else:
        rows = SCHEMA["clientNotifications" if side == "client" else "notifications"]
    row: Message | None = rows.get(message["method"])
    return row


def _wrong_code(request: Message, error: Message) -> Iterator[str]:
    row = METHODS.get(request["method"])
    allowed = {"methodNotFound", "notInitialized", "shuttingDown"} if row is None else set(row["errors"])
    if error["code"] not in allowed:
        yield f"{request['method']} may not answer {error['code']}"
    if error["code"] not in SCHEMA["errors"]:
        yield f"{error['code']} is no code"


def _question_of(talk: Talk, number: int) -> Message | None:
    """The request that a response answers: the last one with its id, from the other side."""
    side, response = talk[number]
    for other, message in reversed(talk[:number]):
        if other != side and "method" in message and "id" in message and message["id"] == response["id"]:
            return message
    return None


def _answer_to(talk: Talk, number: int) -> Message:
    side, request = talk[number]
    for other, message in talk[number + 1 :]:
        if other != side and "method" not in message and message.get("id") == request.get("id", ...):
            return message
    return {}


@functools.cache
def _part(reference: str) -> Any:
    return Draft202012Validator({"$defs": strict(SCHEMA["$defs"]), "$ref": reference})


@functools.cache
def _whole() -> Any:
    return Draft202012Validator(SCHEMA)


def _errors(validator: Any, value: object) -> list[str]:
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(value)]
