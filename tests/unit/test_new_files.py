"""New files: whole, and never in another's place."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.errors import HudUsage
from hud_tui.new_files import (
    check_new,
    write_folder,
    write_named,
    write_numbered,
)
from hud_tui.rl.export.names import LONGEST, plain_name


@given(st.text())
def test_a_name_from_any_text_is_one_plain_file(text: str) -> None:
    name = plain_name(text)
    assert Path(name).name == name
    assert name[0] not in "-."
    assert name.isascii()
    assert name.isprintable()
    assert 0 < len(name) <= LONGEST


def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    place = tmp_path / "new"
    files = [write_numbered(place, "run", ".csv", [str(n), "!"]) for n in range(3)]
    assert [file.name for file in files] == ["run.csv", "run-2.csv", "run-3.csv"]
    assert [file.read_text() for file in files] == ["0!", "1!", "2!"]
    assert sorted(os.listdir(place)) == ["run-2.csv", "run-3.csv", "run.csv"]


def test_a_link_that_points_nowhere_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run.csv").symlink_to(tmp_path / "elsewhere")
    assert write_numbered(tmp_path, "run", ".csv", ["x"]).name == "run-2.csv"
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_that_is_named_is_not_written_over(tmp_path: Path) -> None:
    file = write_named(tmp_path / "a.csv", ["one"])
    with pytest.raises(HudUsage, match="exists"):
        write_named(file, ["two"])
    with pytest.raises(HudUsage, match="exists"):
        check_new(file)
    check_new(tmp_path)
    check_new(tmp_path / "b.csv")
    assert file.read_text() == "one"
    assert os.listdir(tmp_path) == ["a.csv"]


def test_what_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    def pieces() -> Iterator[str]:
        yield "half"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_numbered(tmp_path, "run", ".csv", pieces())
    assert os.listdir(tmp_path) == []


def test_a_disk_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    files = [write_numbered(tmp_path, "run", ".csv", ["x"]) for _ in range(2)]
    assert sorted(os.listdir(tmp_path)) == ["run-2.csv", "run.csv"]
    assert [file.read_text() for file in files] == ["x", "x"]


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    folders = [write_folder(tmp_path, "run", {"a.md": "A", "b.svg": "B"}) for _ in range(2)]
    assert [folder.name for folder in folders] == ["run", "run-2"]
    assert sorted(os.listdir(folders[1])) == ["a.md", "b.svg"]
    with pytest.raises(FileNotFoundError):
        (tmp_path / "run" / "c").read_text()
    assert sorted(os.listdir(tmp_path)) == ["run", "run-2"]


def test_a_place_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HudUsage, match="file"):
        write_numbered(tmp_path / "file", "run", ".csv", ["x"])
    with pytest.raises(HudUsage, match="file"):
        write_folder(tmp_path / "file", "run", {"a": ""})
