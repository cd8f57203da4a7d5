"""Task files: every form that hud has had, every shape and name, and those that must be refused."""

import gc
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.errors import HudBadTasks, HudUsage
from hud_tui.rl.tasks.formats import KNOWN, detect, read_row, read_rows, try_file
from hud_tui.rl.tasks.legacy import KNOWN_V3, KNOWN_V4
from hud_tui.rl.tasks.task import HELD_OUT, Task, default_slug, form_of
from hud_tui.rl.text import has_surrogate
from tests.hostile import corpus
from tests.task_files import read_file

SERVERS = {"hud": {"url": "https://mcp.hud.ai/v3/mcp", "headers": {"Mcp-Image": "a/b:1"}}}
CALL = {"name": "evaluate", "arguments": {"name": "url_match", "arguments": {"url": "x"}}}
V4 = {"prompt": "Go.", "mcp_config": SERVERS, "evaluate_tool": CALL}
V3 = {"prompt": "Go.", "gym": "hud-browser"}
ARGS = {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("row", "form"),
    [
        ({"env": "e", "id": "s"}, "v6"),
        ({"env": "e", "id": "s", "name": "n", "prompt": "p"}, "v6"),
        ({"env": {"name": "e"}, "scenario": "e:s", "id": "b4c5", "slug": "n"}, "v5"),
        ({"env": "e", "scenario": "s"}, "v5"),
        ({"env": {"name": "e"}, "task_id": "s", "name": "n"}, "upload"),
        ({"env": "e", "scenario": "s", "name": "n"}, "export"),
        (V4, "v4"),
        ({**V4, "gym": None, "env": None}, "v4"),
        (V3, "v3"),
        ({**V3, "id": "first"}, "v3"),
    ],
)
def test_the_form_is_told_by_the_fields(row: dict[str, Any], form: str) -> None:
    assert detect(row) == form
    assert read_row(row).form == form
    assert form_of(read_rows([row, row])) == form
    other = V4 if form == "v6" else {"env": "e", "id": "s"}
    assert form_of(read_rows([row, other])) == "mixed"
    assert form_of([]) is None


SPELLINGS = [
    CALL,
    [CALL],
    {"evaluate": {"url_match": {"url": "x"}}},
    {"evaluate": CALL["arguments"]},
    {"name": "evaluate", "arguments": json.dumps(CALL["arguments"])},
    {"name": "evaluate", "args": CALL["arguments"]},
    json.dumps(CALL),
    json.dumps([CALL]),
    json.dumps({"evaluate": {"url_match": {"url": "x"}}}),
    [json.dumps(CALL)],
]


@pytest.mark.parametrize("spelling", SPELLINGS, ids=range(len(SPELLINGS)))
def test_every_spelling_of_a_call_is_the_same_call(spelling: object) -> None:
    row = {**V4, "evaluate_tool": spelling, "setup_tool": spelling}
    task = read_row(row)
    assert task.more["evaluate_tool"] == task.more["setup_tool"] == [CALL]
    assert (task.env, task.scenario) == ("hud", "evaluate")


def test_a_tool_s_own_objects_are_its_arguments_and_a_gym_of_one_s_own_its_image() -> None:
    row = {**V4, "setup_tool": {"start": {"options": {"fast": True}}, "open": None}}
    assert read_row(row).more["setup_tool"] == [
        {"name": "start", "arguments": {"options": {"fast": True}}},
        {"name": "open", "arguments": {}},
    ]
    gym = {"type": "public", "location": "local", "image_or_build_context": "my/gym:1"}
    assert read_row({**V3, "gym": gym}).env == "my/gym:1"


def test_a_row_of_json_strings_is_the_row_of_objects_and_servers_are_shared() -> None:
    row = {**V4, "metadata": {"level": 3}, "agent_config": {"system_prompt": "Be brief."}}
    quoted = {key: value if key == "prompt" else json.dumps(value) for key, value in row.items()}
    assert read_row(quoted) == read_row(row)
    quoted = json.dumps(SERVERS)
    rows = [{**V4, "id": name, "mcp_config": quoted} for name in ("a", "b")]
    first, second = read_rows([*rows])
    assert first.more["mcp_config"] == SERVERS
    assert first.more["mcp_config"] is second.more["mcp_config"]


@pytest.mark.parametrize(
    ("spelling", "calls"),
    [
        ("chrome.maximize", [("chrome.maximize", [])]),
        ("goto https://hud.ai", [("goto", ["https://hud.ai"])]),
        (["goto", "https://hud.ai"], [("goto", ["https://hud.ai"])]),
        (["chrome.maximize", "chrome.close"], [("chrome.maximize", []), ("chrome.close", [])]),
        ({"function": "goto", "args": ["x"]}, [("goto", ["x"])]),
        ([{"function": "goto"}, ["page", 3]], [("goto", []), ("page", [3])]),
        ('["chrome.maximize", "chrome.close"]', [("chrome.maximize", []), ("chrome.close", [])]),
        (None, []),
    ],
)
def test_functions_of_the_first_versions(spelling: object, calls: list[Any]) -> None:
    task = read_row({**V3, "setup": spelling, "evaluate": "page.is https://hud.ai"})
    found = task.more.get("setup", [])
    assert [(call["name"], call["arguments"]["args"]) for call in found] == calls
    assert (task.env, task.scenario) == ("hud-browser", "page.is")


def test_what_a_row_says_beside_its_args_is_sent_along_and_what_no_form_has_remembered() -> None:
    more = {"validation": [CALL], "runtime_config": {"image": "a/b"}, "agent_config": {"a": 1}}
    task = read_row({"env": "e", "id": "s", **more, "verifier": {"env": "e", "id": "v"}})
    assert task.row().items() >= more.items()
    chosen = read_row({"env": {"name": "e", "include": ["a"]}, "scenario": "s"})
    assert chosen.row()["env"] == {"name": "e", "include": ["a"]}
    assert read_row(chosen.row()) == chosen
    assert read_row({"env": "e", "id": "s", "args": None, "columns": None}).args == {}
    assert read_row({"env": "e", "id": "s", "arg": {}, "a": 1}).unknown == ("a", "arg")
    assert read_row({**V4, "evaluate": CALL}).unknown == ("evaluate",)


def test_older_rows_have_a_slug_of_their_own_and_others_one_made_of_their_args() -> None:
    assert read_row({**V4, "id": "first"}).slug == "first"
    one, other = read_row(V4), read_row({**V4, "prompt": "Stop."})
    assert one.slug.startswith("evaluate-")
    assert one.slug != other.slug
    assert read_row(one.row()) == one

    assert read_row({"env": "e", "id": "s"}).slug == "s"
    slug = read_row({"env": "e", "id": "s", "args": {"b": 1, "a": 2}}).slug
    assert slug == default_slug("s", {"a": 2, "b": 1})
    assert slug.startswith("s-")


def test_a_task_whose_slug_has_a_hash_is_called_by_its_args() -> None:
    args = {"name": "Ann", "sizes": [1, 2]}
    hashed = Task("e", "total", args, default_slug("total", args))
    assert hashed.title == 'total(name="Ann", sizes=[1, 2])'
    assert replace(hashed, slug="first").title == "first"
    assert replace(hashed, args={}).title == hashed.slug
    long = replace(hashed, args={"text": "so " * 50})
    assert len(long.title) < 45


ROW = {"env": "e", "id": "s", "args": {"text": "zwei\nZeilen"}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.json", json.dumps(ROW, indent=2)),
        ("t.json", json.dumps([ROW])),
        ("t.json", json.dumps({"name": "set", "tasks": [ROW]})),
        ("t.json", json.dumps({"taskset_name": "set", "tasks": [ROW]}, indent=2)),
        ("t.json", json.dumps({"evalset_id": "4", "tasks": {"4711": ROW}})),
        ("t.json", json.dumps([[ROW]])),
        ("t.jsonl", json.dumps(ROW)),
        ("t.jsonl", json.dumps([ROW])),
        ("t.jsonl", json.dumps([ROW], indent=2)),
        ("t.jsonl", json.dumps(ROW, indent=2)),
        ("t.JSONL", json.dumps(ROW)),
        ("t.jsonl", json.dumps({"name": "set", "tasks": [ROW]})),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_file_of_any_shape_has_its_row(name: str, text: str, ends: str, mark: str) -> None:
    body = mark + ends + text.replace("\n", ends) + ends + ends
    [task] = read_file(name, body.encode())
    assert task == read_row(ROW, task.where)


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_lines_in_a_file_called_json_and_blank_ones_between(ends: str) -> None:
    body = ends.join([json.dumps(ROW), "", " ", json.dumps(ROW)])
    tasks = read_file("t.json", body.encode())
    assert [task.where for task in tasks] == ["t.json line 1", "t.json line 4"]
    for name, empty in (("t.json", ""), ("t.json", "[]"), ("t.jsonl", f"{ends} {ends}")):
        assert read_file(name, empty.encode()) == []


@pytest.mark.parametrize("first", ["{", "[", '{"env": "e",', "}", "{ "])
def test_a_file_called_jsonl_is_lines_each_told_with_its_number(first: str) -> None:
    lines = [first, json.dumps(ROW), "", '{"env": "e"}', json.dumps(ROW), "{"]
    found = try_file("t.jsonl", "\n".join(lines).encode())
    assert [task.where for task in found.tasks] == ["t.jsonl line 2", "t.jsonl line 5"]
    assert [problem.where.partition(" column")[0] for problem in found.problems] == [
        f"t.jsonl line {number}" for number in (1, 4, 6)
    ]


def test_a_line_separator_inside_text_is_no_line_end_and_a_split_holds_a_task_out() -> None:
    row = {"env": "e", "id": "s", "args": {"text": "a\u2028b\x85c"}}
    [task] = read_file("t.jsonl", json.dumps(row, ensure_ascii=False).encode())
    assert task.args == row["args"]
    row = {"env": "e", "id": "s", "columns": {"split": HELD_OUT}}
    assert read_row(row).heldout
    assert read_row(read_row(row).row()).heldout


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    sorted(KNOWN["v6"] | KNOWN["v5"] | KNOWN["upload"] | KNOWN_V4 | KNOWN_V3 | {"verifier"})
)


@given(st.dictionaries(FIELDS, JSON, max_size=8), st.sampled_from(["t.json", "t.jsonl"]))
def test_any_row_is_a_task_or_has_problems_and_a_task_reads_back(
    row: dict[str, Any], name: str
) -> None:
    found = try_file(name, json.dumps(row).encode())
    assert len(found.tasks) + bool(found.problems) == 1
    for task in found.tasks:
        again = read_row(json.loads(json.dumps(task.row())), task.where)
        assert (again.env, again.scenario, again.args) == (task.env, task.scenario, task.args)
        assert again.slug == task.slug
    for problem in found.problems:
        assert problem.where.startswith(name)
        assert problem.message


NAMES = st.text(min_size=1, max_size=9).filter(lambda t: bool(t.strip()) and not has_surrogate(t))
ROWS = st.builds(
    lambda env, scenario, args: {"env": env, "id": scenario, "args": args},
    NAMES,
    NAMES,
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9)),
)


@given(st.lists(ROWS, min_size=1, max_size=5), st.sampled_from(["\n", "\r\n", "\n\n \n"]))
def test_a_list_and_lines_of_the_same_rows_have_the_same_tasks(
    rows: list[dict[str, Any]], ends: str
) -> None:
    rows = [row for row in rows if row["id"] != f"{row['env']}:"]
    listed = read_file("t.json", json.dumps(rows).encode())
    lines = read_file("t.jsonl", ends.join(map(json.dumps, rows)).encode())
    assert [_same(task) for task in listed] == [_same(task) for task in lines]
    assert [_same(task) for task in listed] == [_same(read_row(row)) for row in rows]
    assert [read_row(task.row(), task.where) for task in listed] == listed


def _same(task: Task) -> tuple[object, ...]:
    return task.env, task.scenario, task.args, task.slug


@pytest.mark.parametrize("body", [b'[{"env": "e", "id": "s"}]', b"[", b"\x00"])
@pytest.mark.parametrize("on", [True, False])
def test_the_garbage_collector_is_left_as_it_was(body: bytes, on: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        try_file("t.json", body)
        assert gc.isenabled() is on
    finally:
        (gc.enable if was else gc.disable)()


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


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_do_more_than_refuse(body: bytes) -> None:
    for name in ("t.json", "t.jsonl"):
        with suppress(HudUsage):
            assert all(task.env and task.slug for task in read_file(name, body))


def test_a_hostile_file_gets_its_error() -> None:
    for hostile in corpus():
        with pytest.raises(HudBadTasks) as caught:
            read_file(hostile.name, hostile.body)
        [problem] = caught.value.problems
        assert problem.where.startswith(hostile.where), (problem, hostile)
        assert problem.field == hostile.field, (problem, hostile)
        assert hostile.message in problem.message, (problem, hostile)
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
