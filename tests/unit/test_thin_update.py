"""What is written to the terminal when some cells have changed."""

import re
from io import StringIO

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate
from textual.strip import Strip

from hud_tui.tui.theme import ThinUpdate

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
