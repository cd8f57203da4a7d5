"""Pointers, and the journal of steps that were meant to be taken."""

from pathlib import Path

import pytest

from hud_tui.service.engines.base import EngineError
from hud_tui.service.engines.tinker.link import (
    Pointer,
    pointed_states,
    read_pointer,
    write_pointer,
)
from hud_tui.service.engines.tinker.worker import Intent, Journal

HERE = Pointer("http://t", "local/q", "/models/q", 8, "tinker://run/weights/n1", "tinker://run/n1")


def test_a_pointer_comes_back_as_it_was_written_and_what_is_none_is_no_state(
    tmp_path: Path,
) -> None:
    path = write_pointer(tmp_path, HERE)
    assert read_pointer(path) == HERE
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with pytest.raises(EngineError, match="no such state"):
        read_pointer(tmp_path / "missing.json")
    (tmp_path / "half.json").write_text('{"url": "http')
    with pytest.raises(EngineError, match="not whole"):
        read_pointer(tmp_path / "half.json")

    (tmp_path / "one").mkdir()
    write_pointer(tmp_path / "one", HERE)
    (tmp_path / "empty").mkdir()
    assert pointed_states(tmp_path) == {"tinker://run/weights/n1"}
    with pytest.raises(OSError, match="nowhere"):
        pointed_states(tmp_path / "nowhere")


def test_a_journal_keeps_intents_until_they_are_settled(tmp_path: Path) -> None:
    path, first, second = tmp_path / "intents", Intent("run", "a"), Intent("run", "b")
    journal = Journal(path)
    journal.intend(first)
    journal.intend(second)
    assert journal.take_left() == []
    with path.open("a") as file:
        file.write('{"run": "cut o')
    later = Journal(path)
    assert later.take_left() == [first, second]
    assert later.take_left() == []
    later.settle([first])
    assert Journal(path).take_left() == [second]
