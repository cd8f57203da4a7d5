"""Which turns of two rollouts stand side by side."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl import alignment
from hud_tui.rl.alignment import aligned, aligned_parts, common
from hud_tui.rl.transcript import ASSISTANT, USER, Call, EnvironmentPart, Turn


def turns(words: str) -> list[Turn]:
    """A turn per word: ``u…`` of the user, ``tool:…`` a call, else a text of the policy."""
    made = []
    for word in words.split():
        name, is_call, argument = word.partition(":")
        if is_call:
            made.append(Turn(ASSISTANT, calls=(Call(name, {"x": argument}),)))
        else:
            made.append(Turn(USER if word[0] == "u" else ASSISTANT, word))
    return made


def beside(left: str, right: str) -> str:
    """The lines, e.g. ``a|a -|b``."""
    sides = left.split(), right.split()
    lines = aligned(turns(left), turns(right))
    before, after = ({None: "-", **dict(enumerate(side))} for side in sides)
    return " ".join(f"{before[i]}|{after[j]}" for i, j in lines)


@pytest.mark.parametrize(
    ("left", "right", "lines"),
    [
        ("u1 a b", "u1 a b", "u1|u1 a|a b|b"),
        ("u1 a c", "u1 a look:1 c", "u1|u1 a|a -|look:1 c|c"),
        ("u1 look:1 a", "u1 a", "u1|u1 look:1|- a|a"),
        ("u1 a", "u1 look:1 b", "u1|u1 -|look:1 a|b"),
        ("u1 a u2 b", "u1 c u2 b", "u1|u1 a|c u2|u2 b|b"),
        ("u1 look:1 order:2 a", "u1 order:3 b", "u1|u1 look:1|- order:2|order:3 a|b"),
        ("u1 a", "u1 u2", "u1|u1 a|- -|u2"),
        ("", "u1", "-|u1"),
    ],
)
def test_what_is_alike_stands_side_by_side(left: str, right: str, lines: str) -> None:
    assert beside(left, right) == lines


def test_what_the_environments_did_stands_by_its_kind() -> None:
    def parts(words: str) -> list[EnvironmentPart]:
        return [EnvironmentPart(*word.split(".")) for word in words.split()]

    left, right = parts("reset.pool grading.count"), parts("grading.count.1")
    assert aligned_parts(left, right) == [(0, None), (1, 0)]
    assert aligned_parts(right, left) == [(None, 0), (0, 1)]
    same = parts("grading.count grading.words")
    assert aligned_parts(same, parts("grading.words grading.count"))[0] in ((0, None), (None, 0))
    assert aligned_parts(parts("setup.a"), parts("setup.b")) == [(0, 0)], "of one phase"


KEYS = st.lists(st.integers(0, 4), max_size=12)


def length(left: list[int], right: list[int]) -> int:
    """Of a longest common subsequence, by its definition."""
    if not left or not right:
        return 0
    if left[0] == right[0]:
        return 1 + length(left[1:], right[1:])
    return max(length(left[1:], right), length(left, right[1:]))


@given(left=KEYS, right=KEYS)
def test_the_longest_common_subsequence_is_found(left: list[int], right: list[int]) -> None:
    matches = common(left, right)
    assert all(left[i] == right[j] for i, j in matches)
    assert len(matches) == length(left, right)


@given(
    left=st.lists(st.integers(0, 30), max_size=40), right=st.lists(st.integers(0, 30), max_size=40)
)
def test_of_many_turns_those_that_occur_once_hold_the_others(
    left: list[int], right: list[int]
) -> None:
    most, alignment.MOST_CELLS = alignment.MOST_CELLS, 4
    try:
        matches = common(left, right)
    finally:
        alignment.MOST_CELLS = most
    assert all(left[i] == right[j] for i, j in matches)
    for (i, j), (k, m) in pairwise(matches):
        assert i < k
        assert j < m


def test_an_inserted_turn_of_thousands_is_a_gap() -> None:
    words = [f"a{n}" for n in range(3000)]
    lines = beside(" ".join(words), " ".join([*words[:1500], "new", *words[1500:]])).split()
    assert [line for line in lines if line.startswith("-") or line.endswith("-")] == ["-|new"]
    other = [f"b{n}" for n in range(3000)]
    lines = beside(" ".join(words), " ".join(other)).split()
    assert lines[0::1000] == ["a0|b0", "a1000|b1000", "a2000|b2000"]
