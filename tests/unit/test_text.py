"""Hostile text, made visible and harmless; and where findings are, in few words."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.cli.connect import progress
from hud_tui.cli.output import emit_error, print_notice, with_flags
from hud_tui.errors import HudError
from hud_tui.rl.tasks.task import Task, locations
from hud_tui.rl.text import age, clean, clock_text, count_unsafe, one_line


def test_controls_become_visible_newlines_stay_but_for_a_line_and_long_text_is_cut() -> None:
    assert clean("a\x1b[31mb\x07\x7f\x9b") == "a␛[31mb␇␡⟨009B⟩"
    assert clean("user\u202etxt.exe") == "user⟨202E⟩txt.exe"
    assert count_unsafe("a\x1b\u202e\n") == 2
    assert clean("a\tb\nc") == "a\tb\nc"
    assert one_line("a\tb\nc\r") == "a⇥b⏎c␍"
    assert clean("x" * 30, 10) == "x" * 10 + "… (20 more characters)"
    assert one_line("x" * 10, 10) == "x" * 10
    assert one_line("x" * 30, 10) == "x" * 10 + "…", "a count would take a cell's room"


@given(st.text(alphabet=st.characters(), max_size=100))
def test_nothing_that_acts_on_a_terminal_is_left(text: str) -> None:
    for character in one_line(text):
        assert unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(character) not in (
            *("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"),
        )


@given(st.text(alphabet=st.characters(exclude_categories=("C", "Z")), max_size=100))
def test_plain_text_is_left_alone(text: str) -> None:
    if count_unsafe(text) == 0:
        assert one_line(text) == text


@given(st.text(max_size=60))
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    assert clean(clean(text)) == clean(text)


HOSTILE = "a\x1b]0;owned\x07b\nhud-tui: all is well\u202e"


def test_no_text_and_no_progress_acts_on_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_notice(f"job {HOSTILE} is submitted")
    emit_error(HudError(HOSTILE, HOSTILE), document=True)
    err = capsys.readouterr().err
    assert all(line.isprintable() for line in err.splitlines())
    assert err.count("\n") == 2

    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    progress()(HOSTILE)
    err = capsys.readouterr().err
    assert err.startswith("\r\x1b[K")
    assert err.removeprefix("\r\x1b[K").isprintable()


def at(*wheres: str) -> list[Task]:
    return [Task("e", "s", slug="the-slug", where=where) for where in wheres]


@pytest.mark.parametrize(
    ("wheres", "said"),
    [
        ((), ""),
        (("t.json row 7",), "t.json row 7"),
        (("t.json row 7", "t.json row 7"), "t.json row 7"),
        (("t.json row 1", "t.json row 2", "t.json row 3"), "t.json rows 1-3"),
        (("t.json row 1", "t.json row 4", "t.json row 5"), "t.json rows 1, 4-5"),
        (("a.json row 1", "a.json row 2", "b.jsonl line 3"), "a.json rows 1-2, b.jsonl line 3"),
        (("t.jsonl line 9 item 1", "t.jsonl line 9 item 2"), "t.jsonl line 9 items 1-2"),
        (("my row 3 row 2", "my row 3 row 3"), "my row 3 rows 2-3"),
        (("row 1", ""), "row 1, the-slug"),
        (("a\x1b[2J row 1",), "a␛[2J row 1"),
        (tuple(f"t.json row {n}" for n in range(1, 15, 2)), "t.json rows 1, 3, 5, 7, 9 and 2 more"),
        (("a", "a", "b", "c", "d", "e"), "a, a, b, c, d and 1 more"),
    ],
)
def test_places(wheres: tuple[str, ...], said: str) -> None:
    assert locations(at(*wheres)) == said


def test_a_long_stretch_is_named_whole() -> None:
    assert locations(at(*(f"t.json row {n}" for n in range(1, 10_001)))) == "t.json rows 1-10000"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("see hud-tui log", "see hud-tui {} log"),
        ("hud-tui --local {} log; or hud-tui stop", "hud-tui --local {} log; or hud-tui {} stop"),
        ("see hud-tui --local {}2 log", "see hud-tui {} --local {}2 log"),
        (
            "hud-tui --local {}; hud-tui {} remote list",
            "hud-tui --local {}; hud-tui {} remote list",
        ),
        ("the hud-tui that runs", "the hud-tui that runs"),
    ],
)
def test_each_command_of_a_text_has_the_flags_once(text: str, wanted: str) -> None:
    flags = "--state-dir /tmp/s"
    found = with_flags(text.replace("{}", flags), flags)
    assert found == wanted.replace("{}", flags)
    assert with_flags(text, "") == text


def test_a_time_that_no_calendar_has_is_a_dash() -> None:
    """As the end of a budget in a file that somebody wrote."""
    for stamp in (1e15, 1e300, float("nan"), float("inf"), -1e15):
        assert clock_text(stamp, 0.0) == "–"
    assert {age(float(stamp), 0.0) for stamp in ("nan", "inf", "-inf")} == {"–"}
