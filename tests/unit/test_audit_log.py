"""The command log's lines and file: nothing of a line can act, and a broken one is passed over."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui import audit_log
from hud_tui.audit_log import (
    AuditEntry,
    CommandLog,
    change_text,
    local_time,
    matching,
    read_lines,
    to_line,
)

texts = st.text(max_size=40)
entries = st.builds(
    AuditEntry,
    at=st.floats(0, 1e11),
    local=st.booleans(),
    omitted=st.lists(texts, max_size=2).map(tuple),
    left_out=st.lists(texts, max_size=2).map(tuple),
    body=texts,
    source=texts,
    **dict.fromkeys(
        ("verb", "model", "name", "subject", "before", "after", "outcome", "message", "url"), texts
    ),
)
ONE = AuditEntry(1.0, "set head", "m1", "me/arith", before="a", after="b", outcome="done")


@given(st.lists(entries, max_size=4))
def test_lines_say_what_was_written(log: list[AuditEntry]) -> None:
    lines = [to_line(one) for one in log]
    assert all(line.isascii() and line.count("\n") == 1 for line in lines)
    assert all(line[:-1].isprintable() for line in lines)
    assert read_lines(lines) == (log, 0)


@given(st.text(max_size=60))
def test_no_line_stops_the_reading(line: str) -> None:
    found, bad = read_lines([to_line(ONE), line, to_line(ONE)])
    assert found[0] == found[-1] == ONE
    assert len(found) + bad == 3 - (not line.strip())


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[]",
        "[" * 20_000,
        "null",
        '{"at": "x", "verb": "fork"}',
        '{"at": NaN, "verb": "fork"}',
        '{"at": 1}',
        '{"at": 1, "verb": 3}',
        '{"at": 1, "verb": "fork", "left_out": 3}',
        '{"at": 1, "verb": "' + "f" * 30_000 + '"}',
    ],
)
def test_a_line_that_is_none_is_counted(line: str) -> None:
    assert read_lines([line, to_line(ONE)]) == ([ONE], 1)


def test_the_file_is_ones_own_and_is_only_added_to(tmp_path: Path) -> None:
    log = CommandLog(tmp_path / "state", "app")
    assert log.read() == ([], 0)
    log.add(ONE)
    mode = stat.S_IMODE(log.file.stat().st_mode)
    assert mode == 0o600
    log.file.chmod(0o644)
    with log.file.open("a") as file:
        file.write('{"at": 1, "ve')  # a machine that went off in the middle of a line
    CommandLog(tmp_path / "state", "headless").add(ONE)
    assert stat.S_IMODE(log.file.stat().st_mode) == 0o600
    found, bad = log.read()
    assert (found, bad) == ([replace(ONE, by="app"), replace(ONE, by="headless")], 1)


def test_a_full_file_is_put_aside_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "MOST", 2000)
    log = CommandLog(tmp_path)
    for number in range(40):
        log.add(replace(ONE, at=float(number)))
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 5000
    found, bad = log.read()
    assert bad == 0
    assert 5 < len(found) < 40
    assert [one.at for one in found] == [float(n) for n in range(40 - len(found), 40)]


def test_a_place_that_cannot_be_written_to_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    log = CommandLog(tmp_path / "taken" / "state")
    log.add(ONE)
    assert log.read() == ([], 0)

    (tmp_path / audit_log.NAME).mkdir()
    log = CommandLog(tmp_path)
    log.add(ONE)
    assert log.read() == ([], 0)
    (tmp_path / "linked").mkdir()
    target = tmp_path / "elsewhere"
    (tmp_path / "linked" / audit_log.NAME).symlink_to(target)
    CommandLog(tmp_path / "linked").add(ONE)
    assert not target.exists()


def test_entries_are_found_by_any_word_and_fields_of_a_newer_version_passed_over() -> None:
    other = AuditEntry(2.0, "fork", subject="mine", outcome="refused", message="the name is taken")
    assert matching([ONE, other], "") == [ONE, other]
    assert matching([ONE, other], "HEAD arith") == [ONE]
    assert matching([ONE, other], "taken") == [other]
    assert matching([ONE, other], "head taken") == []
    line = to_line(ONE).replace("{", '{"mood":"good",', 1)
    assert read_lines([line]) == ([ONE], 0)


@pytest.mark.parametrize("at", [1e300, -1e18, 1e15])
def test_a_time_that_no_calendar_has_is_a_dash(at: float) -> None:
    [entry], _ = read_lines([to_line(replace(ONE, at=at))])
    assert local_time(entry) == "–"


def test_a_change_in_a_few_words() -> None:
    id_ = "01234567-89ab-cdef-0123-456789abcdef"
    said = {
        ("set head", "", id_, "b"): "01234567 → b",
        ("set head", "", "", "b"): "– → b",
        ("fork", "mine", "", id_): "→ mine",
        ("fork", "mine", id_, ""): "→ mine at 01234567",
        ("submit", "", "", id_): "→ job 01234567",
        ("submit", "", "", ""): "",
        ("cancel", id_, "", "cancelled"): "job 01234567 → cancelled",
        ("pin", id_, "", ""): "01234567",
        ("optim step", "", "", id_): "→ 01234567",
        ("upload", "tasks", "", id_): "tasks → 01234567",
    }
    for (verb, subject, before, after), text in said.items():
        one = AuditEntry(0.0, verb, subject=subject, before=before, after=after)
        assert change_text(one) == text
