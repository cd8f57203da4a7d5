"""200 files that must be refused by name, and what every file of problems says."""

import json

import pytest

from hud_tui.errors import HudBadTasks, HudUsage
from tests.hostile import Hostile, corpus
from tests.task_files import read_file

CORPUS = list(corpus())


def test_there_are_two_hundred_and_they_are_the_same_again() -> None:
    assert len(CORPUS) == 200
    assert list(corpus()) == CORPUS


@pytest.mark.parametrize("hostile", CORPUS, ids=range(len(CORPUS)))
def test_a_hostile_file_gets_its_error(hostile: Hostile) -> None:
    with pytest.raises(HudBadTasks) as caught:
        read_file(hostile.name, hostile.body)
    [problem] = caught.value.problems
    assert problem.where.startswith(hostile.where), problem
    assert problem.field == hostile.field, problem
    assert hostile.message in problem.message
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_all_problems_of_a_file_come_at_once_in_its_order_the_first_ten_are_said() -> None:
    lines = ['{"env": "e", "id": "s"}', "{", '{"env": "e", "args": 3}', "[7, {}]", "NaN"]
    with pytest.raises(HudBadTasks) as caught:
        read_file("t.jsonl", "\n".join(lines).encode())
    assert [(p.where, p.field) for p in caught.value.problems] == [
        ("t.jsonl line 2 column 2", ""),
        ("t.jsonl line 3", "id"),
        ("t.jsonl line 3", "args"),
        ("t.jsonl line 4 item 1", ""),
        ("t.jsonl line 4 item 2", "env"),
        ("t.jsonl line 4 item 2", "id"),
        ("t.jsonl line 5 column 1", ""),
    ]
    assert caught.value.message.startswith("7 problems: t.jsonl line 2 column 2: not JSON")

    with pytest.raises(HudBadTasks) as caught:
        read_file("t.json", b'[{"env": 1},\n NaN,\n {"id": "s"},\n {"env": }, {"env": 3}]')
    assert [p.where for p in caught.value.problems] == [
        "t.json row 1",
        "t.json row 1",
        "t.json row 2, line 2 column 2",
        "t.json row 3",
        "t.json row 4, line 4 column 10",
    ]

    with pytest.raises(HudBadTasks) as caught:
        read_file("t.jsonl", b"7\n" * 50_000)
    assert len(caught.value.problems) == 1001
    assert caught.value.message.endswith("; and 991 more")


def test_no_problem_repeats_a_value() -> None:
    secret = "sk-very-secret"
    row = {
        "prompt": "p",
        "mcp_config": {"hud": {"headers": {"Authorization": secret}}},
        "evaluate_tool": secret,
        "agent_tools": secret,
        "metadata": secret,
        "agent_config": f'{{"a": "{secret}",',
    }
    for name, text in (("t.json", json.dumps(row)), ("t.jsonl", f'{{"a": "{secret}'.rstrip())):
        with pytest.raises(HudUsage) as caught:
            read_file(name, text.encode())
        assert secret not in f"{caught.value.message} {caught.value.hint}"


def test_a_larger_file_than_can_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hud_tui.rl.tasks.formats.MAX_BYTES", 10)
    with pytest.raises(HudBadTasks, match="larger than"):
        read_file("t.json", b"[" + b" " * 10 + b"]")


@pytest.mark.parametrize("values", [8, 9])
def test_a_row_of_too_many_values_is_refused_before_it_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, values: int
) -> None:
    """Those within lists and objects count: `env`, `id`, `args`, `x` and what `x` has."""
    monkeypatch.setattr("hud_tui.rl.tasks.formats.MAX_VALUES", 4 + 8)
    row = {"env": "e", "id": "s", "args": {"x": [1] * values}}
    for name, text in (("t.json", f"[{json.dumps(row)}]"), ("t.jsonl", json.dumps(row))):
        if values == 8:
            assert len(read_file(name, text.encode())) == 1
            continue
        monkeypatch.setattr(
            "hud_tui.rl.tasks.formats.detect", lambda row: pytest.fail("it is read")
        )
        with pytest.raises(HudBadTasks, match="1: more than 12 values in one row"):
            read_file(name, text.encode())
