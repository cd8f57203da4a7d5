"""Tasks as rows of text, and back."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hud_tui.errors import HudUsage
from hud_tui.legacy.dataset import V4, check_dataset, check_name, from_rows, to_rows
from hud_tui.rl.tasks.formats import read_row, read_rows
from hud_tui.rl.tasks.task import Task
from tests.unit.legacy.test_yaml import TEXT, VALUES

NAME = st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=8)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=3)
CALL = st.fixed_dictionaries({"name": NAME, "arguments": OBJECTS})
CALLS = CALL | st.lists(CALL, min_size=1, max_size=3) | CALL.map(json.dumps)
V4_ROWS = st.fixed_dictionaries(
    {
        "prompt": NAME,
        "mcp_config": st.dictionaries(NAME, st.just({"url": "https://x"}), min_size=1),
        "evaluate_tool": CALLS,
    },
    optional={
        "id": NAME,
        "setup_tool": CALLS | st.just("{}") | st.just({}),
        "metadata": OBJECTS,
        "system_prompt": NAME,
        "agent_config": OBJECTS,
    },
)
V6_ROWS = st.fixed_dictionaries(
    {"env": NAME, "id": NAME},
    optional={"args": OBJECTS, "slug": NAME, "columns": OBJECTS, "agent_config": OBJECTS},
)


def compared(task: Task) -> Any:
    row = {key: value for key, value in task.row().items() if value not in (None, {}, [], "")}
    return {**row, "slug": task.slug}


def there_and_back(tasks: list[Task]) -> list[Task]:
    columns, rows = to_rows(tasks)
    assert all(list(row) == columns for row in rows)
    assert all(value is None or isinstance(value, str) for row in rows for value in row.values())
    return read_rows(from_rows(rows))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(V4_ROWS, min_size=1, max_size=3))
def test_v4_tasks_come_back(rows: list[Any]) -> None:
    tasks = read_rows(rows)
    expected = [{**compared(task), "id": task.slug} for task in tasks]
    assert [compared(task) for task in there_and_back(tasks)] == expected
    assert to_rows(tasks)[0][: len(V4)] == list(V4)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(V6_ROWS, min_size=1, max_size=3))
def test_v6_tasks_come_back(rows: list[Any]) -> None:
    tasks = read_rows(rows)
    assert [compared(task) for task in there_and_back(tasks)] == [compared(t) for t in tasks]


def test_what_hud_itself_wrote_is_read_and_environments_that_choose_tools_come_back() -> None:
    row = {
        "id": "t",
        "prompt": "p",
        "mcp_config": '{"hud": {"url": "https://x"}}',
        "setup_tool": "{}",
        "evaluate_tool": '{"name": "evaluate", "arguments": {}}',
        "metadata": "{}",
    }
    [task] = read_rows(from_rows([row]))
    assert (task.form, task.scenario, "setup_tool" in task.more) == ("v4", "evaluate", False)
    task = read_row({"env": {"name": "e", "include": ["a"]}, "scenario": "s"})
    [again] = there_and_back([task])
    assert again.row()["env"] == {"name": "e", "include": ["a"]}
    assert to_rows([]) == ([], [])
    assert [finding.level for finding in check_dataset([], [], {})] == ["failure"]


def test_a_key_in_the_clear_and_a_known_secret_are_found_and_written_nowhere() -> None:
    servers = {"hud": {"url": "https://x", "headers": {"Authorization": "Bearer sk-0123456789"}}}
    row = {"prompt": "p", "mcp_config": servers, "evaluate_tool": {"name": "e"}}
    tasks = [read_row({**row, "id": str(n)}) for n in range(10)]
    _, rows = to_rows(tasks)
    found = [f for f in check_dataset(tasks, rows, {}) if f.check == "variables"]
    assert [finding.level for finding in found] == ["failure"]
    assert "sk-0123456789" not in repr(found)

    tasks = [read_row({"env": "e", "id": "i", "args": {"deep": ["x PASSW0RD-1 y"]}})]
    _, rows = to_rows(tasks)

    def failed(values: dict[str, str]) -> bool:
        return any(f.level == "failure" for f in check_dataset(tasks, rows, values))

    assert failed({"DB_PASSWORD": "PASSW0RD-1"})
    assert not failed({"DB_PASSWORD": "x"})
    assert not failed({"EDITOR": "PASSW0RD-1"})


@pytest.mark.parametrize("name", ["a/b", "my-org/my_tasks.v2", "b", "A1/b" + "x" * 90])
def test_names(name: str) -> None:
    check_name(name, push="/" in name)


@pytest.mark.parametrize(
    "name", ["", "/b", "a/", "-a/b", "a/b-", "a/.b", "a--b/c", "a/b..c", "a/b.git", "ä/b", "a/b\n"]
)
def test_no_names(name: str) -> None:
    with pytest.raises(HudUsage):
        check_name(name, push=False)
