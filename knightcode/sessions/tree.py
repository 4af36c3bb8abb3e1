"""The tree that parent ids make of a session's entries. Pure.

Source: Session files, "Tree and leaf".
"""

from collections.abc import Iterable, Mapping

import attrs

from knightcode.sessions.clock import parse_iso
from knightcode.sessions.entries import Entry, LabelEntry


@attrs.define(eq=False)
class TreeNode:
    """An entry with what continues from it, in the order of time.

    Attributes:
        label: the bookmark that holds, if any; `label_timestamp` is when it was set.
    """

    entry: Entry
    children: list["TreeNode"] = attrs.field(factory=list, repr=False)
    label: str | None = None
    label_timestamp: str | None = None


def by_id(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Entries under their ids; the later of two with one id wins."""
    return {entry.id: entry for entry in entries}


def branch(index: Mapping[str, Entry], leaf_id: str | None) -> list[Entry]:
    """The entries from a root to the leaf, root first; empty without a leaf.

    The walk up ends at a parent that is missing, and at one that it has met before.
    """
    path: list[Entry] = []
    met: set[str] = set()
    at = leaf_id
    while at is not None and at not in met and (entry := index.get(at)) is not None:
        met.add(at)
        path.append(entry)
        at = entry.parent_id
    path.reverse()
    return path


def tree(entries: Iterable[Entry]) -> list[TreeNode]:
    """The roots of a session, oldest first, each with all that is under it.

    Roots have no parent, name themselves, or name an entry that is missing. Of a circle, which only
    a damaged file holds, the entry that comes first in the file is a root.
    """
    in_order = list(entries)
    index = by_id(in_order)
    nodes = {entry_id: TreeNode(entry) for entry_id, entry in index.items()}
    roots = []
    for node in nodes.values():
        parent_id = node.entry.parent_id
        if parent_id is None or parent_id == node.entry.id or parent_id not in nodes:
            roots.append(node)
        else:
            nodes[parent_id].children.append(node)
    roots += _roots_of_circles(nodes, roots)
    for siblings in (roots, *(node.children for node in nodes.values())):
        siblings.sort(key=_time)
    _put_labels(in_order, nodes)
    return roots


def _roots_of_circles(nodes: Mapping[str, TreeNode], roots: Iterable[TreeNode]) -> list[TreeNode]:
    reached: set[str] = set()
    found = []

    def reach(node: TreeNode) -> None:
        open_nodes = [node]
        while open_nodes:
            at = open_nodes.pop()
            reached.add(at.entry.id)
            open_nodes += at.children

    for root in roots:
        reach(root)
    for entry_id, node in nodes.items():
        if entry_id not in reached:
            nodes[node.entry.parent_id or ""].children.remove(node)
            found.append(node)
            reach(node)
    return found


def _time(node: TreeNode) -> int:
    return parse_iso(node.entry.timestamp) or 0


def _put_labels(entries: Iterable[Entry], nodes: Mapping[str, TreeNode]) -> None:
    for entry in entries:
        if isinstance(entry, LabelEntry) and (node := nodes.get(entry.target_id)) is not None:
            node.label = entry.label or None
            node.label_timestamp = entry.timestamp if entry.label else None
