"""The store: values come back, two programs share a file, and what is broken is left alone."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hud_tui.storage import MOST, JsonStore


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
