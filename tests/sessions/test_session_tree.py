"""Branches and trees."""

from knightcode.sessions.clock import iso
from knightcode.sessions.entries import CustomEntry, Entry, LabelEntry
from knightcode.sessions.tree import TreeNode, branch, by_id, tree
from tests.sessions.samples import START_MS


def node(entry_id: str, parent_id: str | None, at: int = 0, data: object = None) -> Entry:
    return CustomEntry(
        id=entry_id, parent_id=parent_id, timestamp=iso(START_MS + at), custom_type="x", data=data
    )


def ids(entries: list[Entry]) -> list[str]:
    return [entry.id for entry in entries]


def shape(nodes: list[TreeNode]) -> list[object]:
    return [(node.entry.id, shape(node.children)) for node in nodes]


ENTRIES = [node("a", None), node("b", "a"), node("c", "b"), node("d", "b"), node("x", "gone")]


def test_a_branch_is_the_way_from_the_root_to_the_leaf() -> None:
    """Session files: Tree and leaf."""
    assert ids(branch(by_id(ENTRIES), "d")) == ["a", "b", "d"]


def test_a_branch_is_empty_without_a_leaf_and_ends_at_a_missing_parent() -> None:
    index = by_id(ENTRIES)
    assert [branch(index, None), branch(index, "nobody"), ids(branch(index, "x"))] == [[], [], ["x"]]


def test_a_branch_through_a_circle_ends() -> None:
    index = by_id([node("a", "c"), node("b", "a"), node("c", "b"), node("self", "self")])
    assert ids(branch(index, "c")) == ["a", "b", "c"]
    assert ids(branch(index, "self")) == ["self"]


def test_of_two_entries_with_one_id_the_later_counts() -> None:
    twice = [node("a", None, data=1), node("a", None, data=2)]
    assert by_id(twice) == {"a": twice[1]}


def test_entries_without_a_present_parent_are_roots() -> None:
    entries = [*ENTRIES, node("self", "self"), node("y", None)]
    assert shape(tree(entries)) == [
        ("a", [("b", [("c", []), ("d", [])])]),
        ("x", []),
        ("self", []),
        ("y", []),
    ]


def test_siblings_stand_in_order_of_time_and_equal_times_in_file_order() -> None:
    entries = [node("a", None), node("late", "a", 9), node("one", "a", 5), node("two", "a", 5)]
    assert shape(tree(entries)) == [("a", [("one", []), ("two", []), ("late", [])])]


def test_no_entry_of_a_circle_is_lost() -> None:
    entries = [node("a", "b"), node("b", "a"), node("c", "b")]
    assert shape(tree(entries)) == [("a", [("b", [("c", [])])])]


def test_the_last_label_in_the_file_holds_and_an_empty_one_clears() -> None:
    """Session files: `label`."""
    labels: list[Entry] = [
        LabelEntry(id="l1", parent_id="a", timestamp=iso(1), target_id="a", label="first"),
        LabelEntry(id="l2", parent_id="l1", timestamp=iso(2), target_id="a", label="second"),
        LabelEntry(id="l3", parent_id="l2", timestamp=iso(3), target_id="l1", label="gone"),
        LabelEntry(id="l4", parent_id="l3", timestamp=iso(4), target_id="l1", label=""),
        LabelEntry(id="l5", parent_id="l4", timestamp=iso(5), target_id="nobody", label="x"),
    ]
    (root,) = tree([node("a", None), *labels])
    assert (root.label, root.label_timestamp) == ("second", iso(2))
    assert (root.children[0].label, root.children[0].label_timestamp) == (None, None)


def test_a_branch_of_many_thousand_entries_is_a_tree_as_well() -> None:
    entries = [node(str(at), str(at - 1) if at else None) for at in range(20_000)]
    (root,) = tree(entries)
    assert (root.entry.id, ids(branch(by_id(entries), "19999"))[-1]) == ("0", "19999")
