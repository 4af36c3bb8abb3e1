"""Maps of HTTP headers, whose names are equal whatever their case."""

from collections.abc import Mapping


def merge_headers(*layers: Mapping[str, str]) -> dict[str, str]:
    """One map of all layers; a later layer's value wins and keeps its own spelling of the name."""
    merged: dict[str, tuple[str, str]] = {}
    for layer in layers:
        for name, value in layer.items():
            merged[name.lower()] = (name, value)
    return dict(merged.values())


def has_header(headers: Mapping[str, str], *names: str) -> bool:
    """Whether one of the names, given in lower case, is there."""
    return any(name.lower() in names for name in headers)
