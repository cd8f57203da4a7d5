"""Which cells of a line are repainted, and what is written to the terminal then."""

import re
from io import StringIO

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate
from textual.strip import Strip

from hud_tui.tui.repaint import ThinUpdate
from hud_tui.tui.widgets.lines import changed_cells, joined

STYLES = (Style(), Style(bold=True), Style(color="red"))
cells = st.lists(st.tuples(st.sampled_from("ab⣿"), st.sampled_from(STYLES)), max_size=30)


def strip(found: list[tuple[str, Style]]) -> Strip:
    return Strip([Segment(char, style) for char, style in found]).simplify()


@given(cells, cells)
def test_what_differs_is_repainted_and_the_ends_differ(
    one: list[tuple[str, Style]], other: list[tuple[str, Style]]
) -> None:
    width = min(len(one), len(other))
    one, other = one[:width], other[:width]
    stretches = changed_cells(strip(one), strip(other))
    differing = {at for at in range(width) if one[at] != other[at]}
    painted = {at for start, stop in stretches for at in range(start, stop)}
    assert differing <= painted <= set(range(width))
    assert {at for start, stop in stretches for at in (start, stop - 1)} <= differing


def test_changes_are_repainted_apart_where_they_are_far_and_characters_not_wide() -> None:
    old = strip([(char, STYLES[0]) for char in "mean reward  .841"])
    new = strip([(char, STYLES[0]) for char in "mean reward  .849"])
    assert changed_cells(old, new) == [(16, 17)]
    old, new = Strip([Segment("和中文 1")]), Strip([Segment("和中文 2")])
    assert changed_cells(old, new) == [(0, 8)]

    old = strip([("a", STYLES[0])] * 60)
    cells = [("a", STYLES[0])] * 60
    for at in (2, 5, 40):
        cells[at] = ("b", STYLES[1])
    assert changed_cells(old, strip(cells)) == [(2, 6), (40, 41)]


def test_joined_cells_are_the_same_cells() -> None:
    one, other = STYLES[:2]
    parts = [("a", one), ("b", one), ("c", other), ("d", None), ("e", None), ("f", one)]
    found = joined(parts)
    assert found == [
        Segment("ab", one),
        Segment("c", other),
        Segment("de", None),
        Segment("f", one),
    ]


LEFT, RIGHT = Strip([Segment("abcde", Style(bold=True))]), Strip([Segment("01"), Segment("2345")])
WIDTH = 11
spans = st.lists(st.tuples(st.just(2), st.integers(0, WIDTH), st.integers(0, WIDTH)), min_size=1)


def written(found: list[tuple[int, int, int]]) -> str:
    """What is written of a line of two widgets, side by side, at row 2."""
    chops = [{}, {}, {0: LEFT, 5: RIGHT}]
    update = ChopsUpdate(chops, found, [[], [], [5, WIDTH]])  # type: ignore[arg-type]
    console = Console(file=StringIO(), force_terminal=True, color_system="standard")
    return ThinUpdate.of(update).render_segments(console)


def played(text: str) -> dict[int, str]:
    """What a terminal shows in row 3 after that, by column."""
    shown: dict[int, str] = {}
    for row, column, rest in re.findall(
        r"\x1b\[(\d+);(\d+)H([^\x1b]*(?:\x1b\[[0-9;]*m[^\x1b]*)*)", text
    ):
        assert row == "3"
        for at, char in enumerate(re.sub(r"\x1b\[[0-9;]*m", "", rest), start=int(column) - 1):
            shown[at] = char
    return shown


@given(spans)
def test_just_the_cells_that_changed_are_written(found: list[tuple[int, int, int]]) -> None:
    wanted = {at: "abcde012345"[at] for _, start, stop in found for at in range(start, stop)}
    assert played(written(found)) == wanted


def test_a_part_in_the_middle_begins_where_it_changed() -> None:
    assert written([(2, 3, 4)]).startswith("\x1b[3;4H")
    assert len(written([(2, 3, 4)])) < len(written([(2, 0, WIDTH)]))
