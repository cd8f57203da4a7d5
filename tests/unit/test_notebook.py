"""Notes and moves of the head, kept in a file of this machine."""

import stat
from pathlib import Path

import pytest

from hud_tui.notebook import MOVES_MOST, NOTE_MOST, Notebook, notebook_file
from hud_tui.rl.head import Move

MOVE = Move("a", "b", ours=False, at=12.5)


def test_what_was_noted_is_there_again(tmp_path: Path) -> None:
    file = notebook_file(tmp_path, "m-1")
    book = Notebook(file)
    book.write("c1", "  good \x1b[31m ✎ ")
    book.write("c2", "x" * (NOTE_MOST + 1))
    book.add(MOVE)
    again = Notebook(file)
    assert again.notes == {"c1": "good \x1b[31m ✎", "c2": "x" * NOTE_MOST}
    assert again.moves == [MOVE]
    again.write("c1", " ")
    assert "c1" not in Notebook(file).notes
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_two_apps_do_not_undo_each_other(tmp_path: Path) -> None:
    file = notebook_file(tmp_path, "m-1")
    one, other = Notebook(file), Notebook(file)
    one.write("c1", "mine")
    other.write("c2", "yours")
    one.add(MOVE)
    assert Notebook(file).notes == {"c1": "mine", "c2": "yours"}
    assert Notebook(file).moves == [MOVE]


def test_only_the_newest_moves_are_remembered() -> None:
    book = Notebook(None)
    for number in range(MOVES_MOST + 3):
        book.add(Move(None, str(number)))
    assert len(book.moves) == MOVES_MOST
    assert book.moves[-1].after == str(MOVES_MOST + 2)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"notes": 3, "moves": []}', '{"notes": {}}'])
def test_a_file_that_cannot_be_read_is_put_aside(tmp_path: Path, text: str) -> None:
    file = notebook_file(tmp_path, "m-1")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    book = Notebook(file)
    book.write("c1", "new")
    assert Notebook(file).notes == {"c1": "new"}
    assert file.with_suffix(".unreadable").read_text() == text


def test_a_model_s_id_names_no_other_place(tmp_path: Path) -> None:
    for hostile in ("../../etc/passwd", "a/b", "", "x" * 300, "\udcff"):
        file = notebook_file(tmp_path, hostile)
        assert file.parent == tmp_path / "models"
        assert len(file.name) < 80


def test_what_cannot_be_written_is_there_for_the_session(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("in the way")
    book = Notebook(notebook_file(tmp_path, "m-1"))
    with pytest.raises(OSError, match="exists"):
        book.write("c1", "kept")
    assert book.notes == {"c1": "kept"}
