"""Notes and moves of the head, kept in a file of this machine."""

import stat
from pathlib import Path

import pytest

from hud_tui.notebook import MOVES_MOST, NOTE_MOST, SAME_S, Notebook, notebook_file
from hud_tui.rl.head import Move

MOVE = Move("a", "b", ours=False, at=12.5)


def test_what_was_noted_is_there_again_and_the_newest_moves(tmp_path: Path) -> None:
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

    book = Notebook(None)
    for number in range(MOVES_MOST + 3):
        book.add(Move(None, str(number)))
    assert len(book.moves) == MOVES_MOST
    assert book.moves[-1].after == str(MOVES_MOST + 2)


def test_two_apps_do_not_undo_each_other_and_there_and_back_again_is_three_moves(
    tmp_path: Path,
) -> None:
    file = notebook_file(tmp_path, "m-1")
    one, other = Notebook(file), Notebook(file)
    one.write("c1", "mine")
    other.write("c2", "yours")
    one.add(MOVE)
    assert Notebook(file).notes == {"c1": "mine", "c2": "yours"}
    assert Notebook(file).moves == [MOVE]

    file = notebook_file(tmp_path, "m-2")
    one, other = Notebook(file), Notebook(file)
    moves = [Move("a", "b", at=1.0), Move("b", "a", at=2.0), Move("a", "b", at=3.0)]
    for move in moves:
        one.add(move)
    for move in moves:
        other.add(Move(move.before, move.after, ours=False, at=move.at - 0.5))
    assert Notebook(file).moves == moves


OURS, SEEN = Move("a", "b", at=12.9), Move("a", "b", ours=False, at=12.5)


@pytest.mark.parametrize(
    ("first", "then", "stored"),
    [
        (OURS, SEEN, Move("a", "b", at=12.9)),
        (SEEN, OURS, Move("a", "b", at=12.5)),
        (SEEN, SEEN, SEEN),  # two apps were told of somebody else's
        (OURS, Move("a", "b", ours=False), OURS),  # a poll does not tell when
        (Move("a", "b", ours=False), OURS, OURS),
        (OURS, Move("a2", "b", ours=False, at=12.5), Move("a2", "b", at=12.9)),  # a step between
        (Move("a2", "b", ours=False, at=12.5), OURS, Move("a2", "b", at=12.5)),
    ],
)
def test_two_apps_record_a_move_once(tmp_path: Path, first: Move, then: Move, stored: Move) -> None:
    file = notebook_file(tmp_path, "m-1")
    one, other = Notebook(file), Notebook(file)
    one.add(first)
    other.add(then)
    assert Notebook(file).moves == [stored]


@pytest.mark.parametrize(
    "later",
    [
        Move("a", "b", ours=False, at=OURS.at + SAME_S + 1),
        Move("a", "b", at=OURS.at + 1),  # made by both: two moves
        Move("b", "a", ours=False, at=OURS.at),
    ],
)
def test_another_move_is_another_line(tmp_path: Path, later: Move) -> None:
    file = notebook_file(tmp_path, "m-1")
    Notebook(file).add(OURS)
    Notebook(file).add(later)
    assert Notebook(file).moves == [OURS, later]


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
