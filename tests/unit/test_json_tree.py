"""A JSON document as lines that fold."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl import json_tree
from hud_tui.rl.json_tree import JsonTree, path_text, shown, value_text, walk

DOCUMENT = {"job": {"status": "running", "error": None}, "list": [{"kl": 0.5}, {"KL": -1}], "e": {}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


def texts(tree: JsonTree) -> list[str]:
    return [f"{'  ' * line.depth}{line.path[-1]} {shown(line.value)}" for line in tree.lines]


def test_it_opens_at_its_top_level_and_unfolds_line_by_line_or_at_once() -> None:
    tree = JsonTree(DOCUMENT)
    assert texts(tree) == ["job {2}", "list [2]", "e {0}"]
    assert tree.toggle(1)
    assert texts(tree) == ["job {2}", "list [2]", "  0 {1}", "  1 {1}", "e {0}"]
    assert tree.toggle(2)
    assert texts(tree)[3] == "    kl 0.5"
    assert tree.parent(3) == 2
    assert tree.parent(2) == 1
    assert tree.parent(0) == 0
    assert tree.toggle(1)
    assert texts(tree) == ["job {2}", "list [2]", "e {0}"]
    assert not tree.toggle(2)

    tree = JsonTree(DOCUMENT)
    tree.toggle(1)
    assert tree.unfold_all(1)
    assert [line.path[-1] for line in tree.lines] == ["job", "list", 0, "kl", 1, "KL", "e"]
    assert all(line.is_open == line.folds for line in tree.lines[1:6])


def test_too_much_stays_folded_and_paths_and_values_are_text(monkeypatch: Any) -> None:
    monkeypatch.setattr(json_tree, "MOST_LINES", 4)
    tree = JsonTree({"a": [1, 2, 3, 4], "b": [1]})
    assert not tree.toggle(0)
    assert not tree.unfold_all(0)
    assert tree.toggle(1)
    assert len(tree.lines) == 3
    assert path_text(("checkpoints", 3, "metrics", "kl")) == "checkpoints[3].metrics.kl"
    assert path_text((0, "a key", "x")) == '[0]["a key"].x'
    assert value_text({"a": [1]}) == '{\n  "a": [\n    1\n  ]\n}'


def test_a_search_finds_keys_and_values_in_any_case_and_a_match_is_revealed() -> None:
    tree = JsonTree(DOCUMENT)
    assert tree.search("kl") == [("list", 0, "kl"), ("list", 1, "KL")]
    assert tree.search("RUN") == [("job", "status")]
    assert tree.search("null") == [("job", "error")]
    assert tree.search("-1") == [("list", 1, "KL")]
    assert tree.search(".5") == [("list", 0, "kl")]
    assert tree.search("") == tree.search("nowhere") == []

    tree = JsonTree(DOCUMENT)
    at = tree.reveal(("list", 1, "KL"))
    assert tree.lines[at].path == ("list", 1, "KL")
    assert tree.reveal(("list", 1, "KL")) == at


@given(JSON)
def test_unfolding_shows_every_entry_once_and_folding_undoes_it(document: Any) -> None:
    tree = JsonTree(document)
    before = list(tree.lines)
    for at in reversed(range(len(tree.lines))):
        tree.unfold_all(at)
    assert [(line.path, line.value) for line in tree.lines] == list(walk(document))
    for at in reversed(range(len(tree.lines))):
        if at < len(tree.lines) and tree.lines[at].depth == 0 and tree.lines[at].is_open:
            tree.toggle(at)
    assert [line.path for line in tree.lines] == [line.path for line in before]


@given(JSON, st.text(min_size=1, max_size=3))
def test_what_is_found_has_the_text_and_nothing_else_does(document: Any, text: str) -> None:
    found = JsonTree(document).search(text)
    wanted = text.casefold()
    has = [
        path
        for path, value in walk(document)
        if wanted in str(path[-1]).casefold() or wanted in _plain(value)
    ]
    assert found == has
    tree = JsonTree(document)
    for path in found:
        assert tree.lines[tree.reveal(path)].path == path


def _plain(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return ""
    return value.casefold() if isinstance(value, str) else json.dumps(value)
