"""What is kept on this machine: values, notes, moves, and what is known of a service."""

import json
import os
import stat
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hud_tui.events import HeadMoved
from hud_tui.notebook import (
    MOST_FILES,
    MOST_GROUPED,
    MOST_NODES,
    MOVES_MOST,
    NOTE_MOST,
    LastKnown,
    Notebook,
    file_of,
    notebook_file,
    read_last_known,
    write_last_known,
)
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.storage import MOST, JsonStore
from hud_tui.tui.screens.base import offline_text
from hud_tui.wire import Checkpoint, Group, Model, WorkState
from tests.unit.trees import chain


def store_in(directory: Path) -> JsonStore:
    return JsonStore(lambda: directory)


def test_values_come_back_in_a_file_of_their_owner(tmp_path: Path) -> None:
    store_in(tmp_path / "new").write("look", {"theme": "x"})
    assert store_in(tmp_path / "new").read("look") == {"theme": "x"}
    file = tmp_path / "new" / "look.json"
    assert json.loads(file.read_text()) == {"version": 1, "theme": "x"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(file.parent) == ["look.json"]


def test_two_programs_keep_each_others_values_and_what_is_as_it_was_is_not_written(
    tmp_path: Path,
) -> None:
    one, two = store_in(tmp_path), store_in(tmp_path)
    one.write("look", {"theme": "x", "size": 1})
    two.write("look", {"size": 2})
    one.write("look", {"theme": "y"})
    assert two.read("look") == {"theme": "y", "size": 2}

    store = store_in(tmp_path)
    store.write("look", {"n": 1})
    before = (tmp_path / "look.json").stat().st_ino
    store.write("look", {"n": 1})
    assert (tmp_path / "look.json").stat().st_ino == before


def test_changes_are_gathered_until_they_are_written_once(tmp_path: Path) -> None:
    asked: list[int] = []
    store = JsonStore(lambda: tmp_path, later=lambda: asked.append(1))
    for n in range(50):
        store.write("look", {"n": n})
    store.write("charts", {"log": True})
    assert (len(asked), os.listdir(tmp_path), store.read("look")) == (1, [], {"n": 49})
    store.write("charts", {"order": ("a", "b")})
    assert store.read("charts") == {"log": True, "order": ["a", "b"]}
    store.flush()
    assert sorted(os.listdir(tmp_path)) == ["charts.json", "look.json"]
    assert store_in(tmp_path).read("look") == {"n": 49}
    store.write("look", {"n": 0})
    assert len(asked) == 2


BROKEN: list[tuple[Any, str]] = [
    (b'{"a": 1,\n  "b" 2}', "line 2, column 7: Expecting ':' delimiter"),
    (b"", "line 1, column 1"),
    (b"[1]", "expected an object"),
    (b'{"version": 2, "a": 1}', "version: 2, and this hud-tui knows 1 only"),
    (b'{"version": "1"}', "version: expected 1"),
    (b"\xff\xfe", "line 1, column 1"),
    (b"[" * 100_000, "not JSON"),
    (b" " * (MOST + 1), "larger than 4000000 bytes"),
]


@pytest.mark.parametrize(("body", "said"), BROKEN, ids=lambda one: str(one)[:20])
def test_a_broken_or_newer_file_is_told_once_and_left(
    tmp_path: Path, body: bytes, said: str
) -> None:
    file = tmp_path / "look.json"
    file.write_bytes(body)
    store = store_in(tmp_path)
    assert store.read("look") == store.read("look") == {}
    [line] = store.problems()
    assert said in line
    assert line.startswith(str(file))
    assert "remove it" in line
    assert "\n" not in line
    assert store.problems() == []
    store.write("look", {"a": 2})
    assert file.read_bytes() == body
    file.unlink()
    store.write("look", {"a": 2})
    assert store_in(tmp_path).read("look") == {"a": 2}


def test_one_that_another_program_made_newer_meanwhile_is_left(tmp_path: Path) -> None:
    told: list[int] = []
    store = JsonStore(lambda: tmp_path, noticed=lambda: told.append(1))
    store.write("look", {"a": 1})
    newer = '{"version": 7, "a": {"b": 1}}'
    (tmp_path / "look.json").write_text(newer)
    store.write("look", {"a": 2})
    assert (tmp_path / "look.json").read_text() == newer
    assert len(told) == len(store.problems()) == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_any_bytes_are_read_without_harm(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "look.json").write_bytes(body)
    store = store_in(tmp_path)
    found = store.read("look")
    assert isinstance(found, dict)
    assert not (found and store.problems())


def test_a_place_that_cannot_be_written_to_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = store_in(tmp_path / "file")
    store.write("look", {"a": 1})
    assert (store.read("look"), store.problems()) == ({}, [])
    nowhere = JsonStore()
    nowhere.write("look", {"a": 1})
    assert (nowhere.read("look"), nowhere.problems()) == ({}, [])


URL, KEY, SCOPE = "https://api.hud.ai", "hud-secret-key-1234", "0123abcd"
MODEL = Model(id="m", model_name="mine", is_trainable=True)


def nodes(count: int, note: str = "") -> tuple[Checkpoint, ...]:
    groups = [Group(task_slug="t" + note, rewards=[0.1, 1.0])]
    taken = chain(*({"mean_reward": 0.1 + n, "groups": groups} for n in range(count)), head=False)
    return tuple(taken)


def known(count: int = 3, note: str = "") -> LastKnown:
    tree = Tree.of(nodes(count, note))
    return LastKnown(12.5, (MODEL,), MODEL, tree, WorkState(status="running"))


def is_known(state: LastKnown | None) -> bool:
    """Whether it is `known()`."""
    assert state is not None
    whole = known()
    return list(state.tree) == list(whole.tree) and replace(state, tree=whole.tree) == whole


def test_what_was_kept_is_there_again_for_its_owner_alone_and_has_no_key(tmp_path: Path) -> None:
    file = file_of(tmp_path, SCOPE)
    assert write_last_known(file, URL, known(), KEY)
    assert is_known(read_last_known(file, URL))
    assert read_last_known(file, URL + ":8443") is None
    assert read_last_known(file_of(tmp_path, "other"), URL) is None

    file = file_of(tmp_path, SCOPE)
    write_last_known(file, URL, known(note=KEY), KEY)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert KEY not in file.read_text() + file.name
    found = read_last_known(file_of(tmp_path, SCOPE), URL)
    assert found is not None
    assert found.tree[2].groups[0].task_slug == "t***"
    assert os.listdir(file.parent) == [file.name]


def test_a_long_run_is_kept_in_part_and_a_few_services_are_remembered(tmp_path: Path) -> None:
    write_last_known(file_of(tmp_path, SCOPE), URL, known(MOST_NODES + 10), KEY)
    found = read_last_known(file_of(tmp_path, SCOPE), URL)
    assert found is not None
    assert [found.tree[0].id, found.tree[len(found.tree) - 1].id] == ["c10", f"c{MOST_NODES + 9}"]
    assert sum(bool(node.groups) for node in found.tree) == MOST_GROUPED

    for n in range(MOST_FILES + 3):
        write_last_known(file_of(tmp_path, f"s{n}"), URL, known(1), KEY)
        os.utime(file_of(tmp_path, f"s{n}"), (n, n))
    assert len(os.listdir(tmp_path / "offline")) == MOST_FILES
    assert read_last_known(file_of(tmp_path, f"s{MOST_FILES + 2}"), URL) is not None
    assert read_last_known(file_of(tmp_path, "s0"), URL) is None


def test_keeping_a_long_run_takes_no_memory_of_its_length(tmp_path: Path) -> None:
    """Each checkpoint arrived as the head, so each is changed before it is written."""
    tree = Tree.of(node.model_copy(update={"is_active": True}) for node in nodes(2000))
    state = replace(known(), tree=tree)
    tracemalloc.start()
    try:
        assert write_last_known(file_of(tmp_path, SCOPE), URL, state, KEY)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < file_of(tmp_path, SCOPE).stat().st_size / 4


def damaged() -> list[Any]:
    write_of = {"format": 1, "service": URL, "at": 1.0, "models": [], "tree": [], "job": None}
    whole = {**write_of, "model": MODEL.model_dump()}
    return [
        *({**whole, "format": 0}, {**whole, "service": "https://other"}, {**whole, "at": "noon"}),
        *({**whole, "tree": [{}]}, {**whole, "models": 3}, {**whole, "job": 4}, write_of, [], 3),
    ]


@pytest.mark.parametrize("body", damaged(), ids=lambda body: str(body)[-40:])
def test_another_format_counts_as_nothing(tmp_path: Path, body: Any) -> None:
    file = file_of(tmp_path, SCOPE)
    file.parent.mkdir()
    file.write_text(json.dumps(body))
    assert read_last_known(file_of(tmp_path, SCOPE), URL) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=80))
def test_any_bytes_count_as_nothing(tmp_path: Path, body: bytes) -> None:
    file = file_of(tmp_path, SCOPE)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(body)
    assert read_last_known(file_of(tmp_path, SCOPE), URL) is None


def test_a_half_written_file_counts_as_nothing_and_is_replaced(tmp_path: Path) -> None:
    file = file_of(tmp_path, SCOPE)
    write_last_known(file, URL, known(), KEY)
    file.write_bytes(file.read_bytes()[:-20])
    assert read_last_known(file_of(tmp_path, SCOPE), URL) is None
    write_last_known(file_of(tmp_path, SCOPE), URL, known(), KEY)
    assert is_known(read_last_known(file_of(tmp_path, SCOPE), URL))


def test_where_nothing_can_be_written_what_is_known_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "offline").write_text("")
    assert not write_last_known(file_of(tmp_path, SCOPE), URL, known(), KEY)
    assert read_last_known(file_of(tmp_path, SCOPE), URL) is None


@pytest.mark.parametrize(
    ("past", "said"),
    [(5, "5 s ago"), (720, "12 m ago"), (7200, "2 h ago"), (900_000, "10 d ago"), (-9, "0 s ago")],
)
def test_how_old_it_is(past: int, said: str) -> None:
    assert said in offline_text(1.7e9 - past, 1.7e9)
    assert "nothing has been read" in offline_text(None, 1.7e9)


def moved(previous: str | None, to: str, at: float) -> HeadMoved:
    return HeadMoved(at=at, checkpoint_id=to, previous=previous, cause="set")


MOVE = moved("a", "b", 12.5)


def test_what_was_noted_is_there_again_and_the_newest_moves(tmp_path: Path) -> None:
    file = notebook_file(tmp_path, "m-1")
    book = Notebook(file)
    book.write("c1", "  good \x1b[31m ✎ ")
    book.write("c2", "x" * (NOTE_MOST + 1))
    book.add(MOVE)
    again = Notebook(file)
    assert again.notes == {"c1": "good \x1b[31m ✎", "c2": "x" * NOTE_MOST}
    assert again.moves == (MOVE,)
    again.write("c1", " ")
    assert "c1" not in Notebook(file).notes
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700

    book = Notebook(None)
    for number in range(MOVES_MOST + 3):
        book.add(moved(None, str(number), float(number)))
    assert len(book.moves) == MOVES_MOST
    assert book.moves[-1].checkpoint_id == str(MOVES_MOST + 2)


def test_two_apps_do_not_undo_each_other_and_store_a_move_once(tmp_path: Path) -> None:
    file = notebook_file(tmp_path, "m-1")
    one, other = Notebook(file), Notebook(file)
    one.write("c1", "mine")
    other.write("c2", "yours")
    one.add(MOVE)
    assert Notebook(file).notes == {"c1": "mine", "c2": "yours"}
    assert Notebook(file).moves == (MOVE,)

    file = notebook_file(tmp_path, "m-2")
    one, other = Notebook(file), Notebook(file)
    moves = (moved("a", "b", 1.0), moved("b", "a", 3.0), moved("a", "b", 5.0))
    for move in moves:
        one.add(move)
        other.add(move.model_copy(update={"at": move.at + 0.5}))
    assert Notebook(file).moves == moves


def test_moves_of_an_earlier_format_are_read(tmp_path: Path) -> None:
    file = notebook_file(tmp_path, "m-1")
    file.parent.mkdir(parents=True)
    file.write_text('{"notes": {}, "moves": [[null, "a", true, 3.0], ["a", "b", false, 12.5]]}')
    assert Notebook(file).moves == (moved(None, "a", 3.0), MOVE)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"notes": 3, "moves": []}', '{"notes": {}}'])
def test_a_file_that_cannot_be_read_is_put_aside(tmp_path: Path, text: str) -> None:
    file = notebook_file(tmp_path, "m-1")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    book = Notebook(file)
    book.write("c1", "new")
    assert Notebook(file).notes == {"c1": "new"}
    assert file.with_suffix(".unreadable").read_text() == text


def test_a_model_s_id_names_no_other_place_and_what_cannot_be_written_stays_known(
    tmp_path: Path,
) -> None:
    for hostile in ("../../etc/passwd", "a/b", "", "x" * 300, "\udcff"):
        file = notebook_file(tmp_path, hostile)
        assert file.parent == tmp_path / "models"
        assert len(file.name) < 80

    (tmp_path / "models").write_text("in the way")
    book = Notebook(notebook_file(tmp_path, "m-1"))
    with pytest.raises(OSError, match="exists"):
        book.write("c1", "kept")
    assert book.notes == {"c1": "kept"}
