"""Reading task rows in every form, and saying where one is wrong."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.errors import HudUsage
from hud_tui.rl.tasks.formats import read_row, read_rows
from hud_tui.rl.tasks.task import HELD_OUT, Task, default_slug
from tests.task_files import read_file

ARGS = {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "row",
    [
        {"env": "arith", "id": "add", "args": ARGS, "slug": "one"},
        {"env": {"name": "arith"}, "scenario": "arith:add", "args": ARGS, "slug": "one"},
        {"env": {"name": "arith"}, "task_id": "add", "args": ARGS, "name": "one"},
        {"env": "arith", "scenario": "add", "args": ARGS, "name": "one"},
    ],
    ids=["v6", "v5", "upload", "export"],
)
def test_every_form_reads_as_the_same_task(row: dict[str, Any]) -> None:
    assert read_row(row) == Task("arith", "add", ARGS, "one", where="row")


def test_a_slug_is_made_of_the_args_where_none_is_given() -> None:
    assert read_row({"env": "e", "id": "s"}).slug == "s"
    slug = read_row({"env": "e", "id": "s", "args": {"b": 1, "a": 2}}).slug
    assert slug == default_slug("s", {"a": 2, "b": 1})
    assert slug.startswith("s-")


def test_absent_and_null_args_are_none_at_all() -> None:
    assert read_row({"env": "e", "id": "s", "args": None, "columns": None}).args == {}


def test_a_task_is_held_out_by_its_split() -> None:
    row = {"env": "e", "id": "s", "columns": {"split": HELD_OUT}}
    assert read_row(row).heldout
    assert read_row(read_row(row).row()).heldout


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"id": "s"}, "env"),
        ({"env": {"include": []}, "id": "s"}, "env"),
        ({"env": "e"}, "id"),
        ({"env": "e", "id": 3}, "id"),
        ({"env": "e", "id": "s", "args": [1]}, "args"),
        ({"env": "e", "id": "s", "columns": "x"}, "columns"),
        ({"env": "e", "id": "s", "slug": 3}, "slug"),
    ],
)
def test_a_wrong_field_is_named_with_its_place(row: dict[str, Any], field: str) -> None:
    with pytest.raises(HudUsage, match=f"tasks 2: field {field}"):
        read_rows([{"env": "e", "id": "s"}, row], "tasks", first=1)


def test_files_with_a_list_an_object_an_export_or_lines() -> None:
    row = {"env": "e", "id": "s"}
    wanted = [("e", "s")]
    for name, body in (
        ("t.json", json.dumps([row])),
        ("t.json", json.dumps(row)),
        ("t.json", json.dumps({"name": "set", "tasks": [row]})),
        ("t.jsonl", "\n" + json.dumps(row) + "\n\n"),
        ("t.jsonl", json.dumps([row])),
        ("t.json", "\ufeff" + json.dumps([row])),
    ):
        tasks = read_file(name, body.encode())
        assert [(task.env, task.scenario) for task in tasks] == wanted


@pytest.mark.parametrize(
    ("name", "body"), [("t.json", b""), ("t.json", b"[]"), ("t.jsonl", b"\n \n")]
)
def test_a_file_may_hold_no_task_at_all(name: str, body: bytes) -> None:
    assert read_file(name, body) == []


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("t.jsonl", b'{"env":"e","id":"s"}\n{"env": }\n', "t.jsonl line 2 column 9"),
        ("t.json", b'[\n {"env" "e"}]', "t.json row 1, line 2 column 9"),
        ("t.jsonl", b'{"env":"e","id":"s"}\n\n7', "t.jsonl line 3: expected a task object"),
        ("t.json", b"7", "expected a list of tasks"),
        ("t.json", b"\xff\xfe", "expected UTF-8, found UTF-16"),
        ("t.json", b'[{"env":"e","id":"s","args":{"a":NaN}}]', "NaN is not JSON"),
    ],
)
def test_an_unreadable_file_says_where(name: str, body: bytes, message: str) -> None:
    with pytest.raises(HudUsage, match=message):
        read_file(name, body)


def test_a_file_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(HudUsage, match=r"nested more than 64 deep"):
        read_file("t.json", b"[" * 200_000)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_do_more_than_refuse(body: bytes) -> None:
    for name in ("t.json", "t.jsonl"):
        with suppress(HudUsage):
            assert all(task.env and task.slug for task in read_file(name, body))


NAMES = st.text(min_size=1, max_size=20).filter(lambda text: text.strip())


@given(env=NAMES, scenario=NAMES, args=st.dictionaries(st.text(max_size=5), st.integers()))
def test_a_submitted_row_reads_back_as_the_same_task(
    env: str, scenario: str, args: dict[str, int]
) -> None:
    task = read_row({"env": env, "id": scenario, "args": args})
    assert read_row(task.row()) == task
