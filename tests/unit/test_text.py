"""Hostile text, made visible and harmless."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.text import clean, count_unsafe, one_line


def test_controls_and_overrides_become_visible() -> None:
    assert clean("a\x1b[31mb\x07\x7f\x9b") == "a␛[31mb␇␡⟨009B⟩"
    assert clean("user\u202etxt.exe") == "user⟨202E⟩txt.exe"
    assert count_unsafe("a\x1b\u202e\n") == 2


def test_newlines_and_tabs_stay_but_for_a_line() -> None:
    assert clean("a\tb\nc") == "a\tb\nc"
    assert one_line("a\tb\nc\r") == "a⇥b⏎c␍"


def test_long_text_is_cut_and_says_so() -> None:
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
