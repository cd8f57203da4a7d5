"""Which cells of a line are repainted."""

from hypothesis import given
from hypothesis import strategies as st
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

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
    found = joined([Segment(text, style) for text, style in parts])
    assert found == [
        Segment("ab", one),
        Segment("c", other),
        Segment("de", None),
        Segment("f", one),
    ]
