"""Which dots a curve sets and which characters they are; plotext's figure, never as escapes."""

from math import nan

from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style

from hud_tui.rl.axes import Scale
from hud_tui.rl.curves import Bucket
from hud_tui.tui.theme import BRAILLE
from hud_tui.tui.widgets.chart import LEFT, RIGHT, Drawing, draw, rows
from hud_tui.tui.widgets.focus_chart import Signal, area, plot, segments

UNIT = Scale(0.0, 1.0)
points = st.lists(st.tuples(st.integers(0, 19), st.floats(0, 1), st.floats(0, 1)), min_size=1)


def buckets(found: list[tuple[int, float, float]]) -> list[Bucket]:
    """Points as a curve: one a column, left to right."""
    columns = {column: (min(a, b), max(a, b)) for column, a, b in found}
    return [
        Bucket(column, low, high, (low + high) / 2, True)
        for column, (low, high) in sorted(columns.items())
    ]


def text(drawing: Drawing, height: int) -> list[str]:
    return ["".join(run.text for run in row) for row in rows(drawing, height)]


def test_the_dots_of_a_cell_are_unicode_s() -> None:
    assert chr(BRAILLE + LEFT[0b0001]) == "⡀"
    assert chr(BRAILLE + LEFT[0b1000]) == "⠁"
    assert chr(BRAILLE + RIGHT[0b0001]) == "⢀"
    assert chr(BRAILLE + RIGHT[0b1000]) == "⠈"
    assert chr(BRAILLE + (LEFT[15] | RIGHT[15])) == "⣿"


def test_a_line_rises_is_not_drawn_over_a_gap_and_lies_over_its_range() -> None:
    line = [Bucket(0, 0.0, 0.0, 0.0, True), Bucket(7, 1.0, 1.0, 1.0, True)]
    assert text(draw(line, UNIT, 8, 8, smoothed=False), 2) == ["  ⡠⠊", "⡠⠊  "]
    line = [Bucket(0, 0.0, 0.0, 0.0, True), Bucket(7, 0.0, 0.0, 0.0, False)]
    assert text(draw(line, UNIT, 8, 4, smoothed=False), 1) == ["⡀  ⢀"]
    bucket = Bucket(0, 0.0, 1.0, 0.5, True)
    drawing = draw([bucket], UNIT, 2, 12, smoothed=True)
    assert [row[0].kind for row in rows(drawing, 3)] == ["envelope", "line", "envelope"]


@given(points)
def test_every_point_is_drawn_without_a_hole_and_nothing_beyond_the_extremes(
    found: list[tuple[int, float, float]],
) -> None:
    curve = buckets(found)
    drawing = draw(curve, UNIT, 20, 16, smoothed=True)
    low = min(round(b.low * 15) for b in curve)
    high = max(round(b.high * 15) for b in curve)
    for dots in (*drawing.line, *drawing.envelope):
        assert dots >> (high + 1) == 0
        assert dots & ((1 << low) - 1) == 0
    for bucket in curve:
        assert drawing.line[bucket.column]
        assert drawing.envelope[bucket.column]

    curve = buckets(found)
    dots = draw(curve, UNIT, 20, 16, smoothed=False).line
    reach = range(curve[0].column, curve[-1].column + 1)
    for column in reach:
        assert dots[column]
    for column in reach[1:]:
        grown = dots[column] | dots[column] << 1 | dots[column] >> 1
        assert grown & dots[column - 1], "neighbouring columns touch"


@given(points, st.integers(1, 4))
def test_every_row_has_the_chart_s_width(
    found: list[tuple[int, float, float]], height: int
) -> None:
    drawn = text(draw(buckets(found), UNIT, 20, 4 * height, smoothed=True), height)
    assert [len(row) for row in drawn] == [10] * height


RED, DIM, PLAIN = Style(color="red"), Style(dim=True), Style()
Y_TICKS = [(0.0, "0"), (1.0, "1")]
X_TICKS = [(0.0, "1"), (100.0, "50")]


def figure(ys: list[float], width: int = 60, height: int = 8) -> list[str]:
    signal = Signal([8.0 * n for n in range(len(ys))], ys, RED)
    lines = plot([signal], X_TICKS, Y_TICKS, width, height, PLAIN)
    return ["".join(segment.text for segment in line) for line in lines]


def test_a_figure_has_the_size_asked_for_and_its_labels_stand_on_their_rows() -> None:
    for width in (30, 60, 150, 300):
        lines = figure([0.0, 1.0, 0.5], width)
        assert len(lines) == 8
        assert all(len(line) == width for line in lines)

    lines = figure([0.0, 1.0])
    assert lines[0].startswith("    1")
    assert lines[5].startswith("    0")
    assert lines[-1].split() == ["1", "50"]
    lines = plot([], [], Y_TICKS, 40, 6, PLAIN)
    assert len(lines) == 6
    assert area(40, ["0", "1"]) == 34


def test_only_the_curve_has_its_style_and_other_escapes_are_dropped() -> None:
    lines = plot([Signal([0.0, 90.0], [0.0, 1.0], RED)], X_TICKS, Y_TICKS, 60, 8, DIM)
    drawn = {segment.style for line in lines for segment in line if segment.text.strip(" │┤┬└─01")}
    assert RED in drawn
    assert all("\x1b" not in segment.text for line in lines for segment in line)

    built = "a\x1b[0m\x1b[38;5;1mb\x1b[0m\x1b[1mc"
    assert [(s.text, s.style) for s in segments(built, {"1": RED}, PLAIN)] == [
        ("a", PLAIN),
        ("b", RED),
        ("c", PLAIN),
    ]


def test_nan_is_a_gap() -> None:
    [bottom] = [line for line in figure([0.0, 0.0, nan, 0.0, 0.0]) if line.startswith("    0")]
    curve = bottom[6:].rstrip()
    assert " " in curve
    assert curve[0] != " " != curve[-1]
