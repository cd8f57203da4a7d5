"""Where findings are: stretches of lines, not a name for each."""

import pytest

from hud_tui.rl.tasks.task import Task, places


def at(*wheres: str) -> list[Task]:
    return [Task("e", "s", slug="the-slug", where=where) for where in wheres]


@pytest.mark.parametrize(
    ("wheres", "said"),
    [
        ((), ""),
        (("t.json row 7",), "t.json row 7"),
        (("t.json row 7", "t.json row 7"), "t.json row 7"),
        (("t.json row 1", "t.json row 2", "t.json row 3"), "t.json rows 1-3"),
        (("t.json row 1", "t.json row 4", "t.json row 5"), "t.json rows 1, 4-5"),
        (("a.json row 1", "a.json row 2", "b.jsonl line 3"), "a.json rows 1-2, b.jsonl line 3"),
        (("t.jsonl line 9 item 1", "t.jsonl line 9 item 2"), "t.jsonl line 9 items 1-2"),
        (("my row 3 row 2", "my row 3 row 3"), "my row 3 rows 2-3"),
        (("row 1", ""), "row 1, the-slug"),
        (("a\x1b[2J row 1",), "a␛[2J row 1"),
        (tuple(f"t.json row {n}" for n in range(1, 15, 2)), "t.json rows 1, 3, 5, 7, 9 and 2 more"),
        (("a", "a", "b", "c", "d", "e"), "a, a, b, c, d and 1 more"),
    ],
)
def test_places(wheres: tuple[str, ...], said: str) -> None:
    assert places(at(*wheres)) == said


def test_a_long_stretch_is_named_whole() -> None:
    assert places(at(*(f"t.json row {n}" for n in range(1, 100_001)))) == "t.json rows 1-100000"
