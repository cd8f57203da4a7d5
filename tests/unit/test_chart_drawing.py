"""A chart's axes, its dots and its characters; the axes that plotext draws, never as escapes."""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from math import nan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hud_tui.events import CheckpointAdded, HeadMoved, TreeRead
from hud_tui.rl.axes import Axis, Positions, Scale, at_least, axis_length, fit, marks
from hud_tui.rl.curves import Bucket, Curve
from hud_tui.rl.plot import (
    BLANK,
    CROSSHAIR,
    Flag,
    Layer,
    Plot,
    Shape,
    Sketch,
    Span,
    crossed,
    dots,
    flagged,
    level,
)
from hud_tui.rl.run import Run
from hud_tui.tui.widgets.figure import POINTER, PlotFigure, axes, figure
from hud_tui.wire import Checkpoint

finite = st.floats(allow_nan=False, allow_infinity=False)


@example(1.0, 1.638847882730981e-43, True, 1.0)
@example(1.1, 990.0, True, 1.0)
@given(finite, finite, st.booleans(), st.just(0.0) | st.floats(1, 9))
def test_a_scale_holds_its_values_and_its_ticks(
    one: float, other: float, log: bool, intervals: float
) -> None:
    low, high = min(one, other), max(one, other)
    scale = fit(low, high, log, intervals)
    assert scale.low < scale.high
    assert 0 <= scale.share(low) <= scale.share(high) <= 1
    assert all(0 <= scale.share(tick) <= 1 for tick in scale.ticks)
    assert len(set(scale.labels)) == len(scale.labels) <= 3 * max(intervals, 1) + 4


@given(st.floats(1e-290, 1e290), st.floats(2, 300), st.floats(1, 9))
def test_a_log_scale_of_decades_is_labelled_by_powers_of_ten(
    low: float, decades: float, intervals: float
) -> None:
    high = min(1e299, low * 10**decades)
    ticks = fit(low, high, True, intervals).ticks
    if high >= low * 1000:
        assert len(ticks) >= 3
        assert all(f"{tick:e}".startswith("1.000000e") for tick in ticks)


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0.31, 0.86, [".200", ".400", ".600", ".800", "1"]),
        (3e-4, 3e-4, ["0", "2e-4", "4e-4", "6e-4", "8e-4"]),
        (0.0, 0.0, ["0", ".250", ".500", ".750", "1"]),
        (-1e308, 1e308, ["-1e300", "-5e299", "0", "5e299", "1e300"]),
        (nan, nan, ["0", "1"]),
    ],
)
def test_ticks_are_round(low: float, high: float, labels: list[str]) -> None:
    assert fit(low, high, intervals=4).labels == labels


def test_a_log_scale_spaces_powers_evenly_and_what_reaches_zero_stays_linear() -> None:
    scale = fit(1.0, 1000.0, log=True, intervals=4)
    assert scale.labels == ["1", "10", "100", "1.0k"]
    assert [scale.share(tick) for tick in scale.ticks] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert not fit(0.0, 5.0, log=True).log
    assert fit(0.326, 0.872, log=True, intervals=1.7).labels == [".500", ".750"]


@pytest.mark.parametrize(
    ("length", "most", "wide"), [(5, 400, 10), (11, 400, 15), (390, 400, 400), (7, None, 7)]
)
def test_the_step_axis_grows_in_leaps(length: int, most: int | None, wide: int) -> None:
    assert axis_length(length, most) == wide


def node(step: int, parent: int | None, second: int | None, tokens: int) -> Checkpoint:
    stamp = None if second is None else f"2026-05-01T10:00:{second:02d}+00:00"
    return Checkpoint(
        id=f"c{step}",
        prev_model_checkpoint_id=None if parent is None else f"c{parent}",
        created_at=stamp,
        num_tokens=tokens,
        is_active=True,
    )


def test_time_and_tokens_add_up_along_each_lineage() -> None:
    nodes = (node(1, None, 3, 10), node(2, 1, None, 20), node(3, 2, 9, 5))
    run, positions = Run().fold(TreeRead(checkpoints=nodes)), Positions()
    assert list(positions.of(run, Axis.TIME)) == [0, 0, 6]
    assert list(positions.of(run, Axis.TOKENS)) == [10, 30, 35]
    grown = run.fold(CheckpointAdded(checkpoint=node(4, 3, 11, 7)))
    assert list(positions.of(grown, Axis.TIME)) == [0, 0, 6, 8]
    assert list(positions.of(grown, Axis.TOKENS)) == [10, 30, 35, 42]
    assert list(positions.of(grown, Axis.STEP)) == [1, 2, 3, 4]

    nodes = (node(1, None, 1, 10), node(2, 1, 2, 20), node(3, 2, 3, 30))
    run, positions = Run().fold(TreeRead(checkpoints=nodes)), Positions()
    positions.of(run, Axis.TOKENS)
    back = run.fold(HeadMoved(checkpoint_id="c1", cause="set"))
    assert list(positions.of(back, Axis.TOKENS))[:1] == [10]
    branch = back.fold(CheckpointAdded(checkpoint=node(4, 1, 5, 500)))
    assert list(positions.of(branch, Axis.TOKENS)) == [10, 510]


@pytest.mark.parametrize(
    ("axis", "low", "high", "count", "labels"),
    [
        (Axis.STEP, 1, 10_000, 7, ["1", "2.0k", "4.0k", "6.0k", "8.0k", "10k"]),
        (Axis.STEP, 9767, 9922, 7, ["9767", "9800", "9850", "9900"]),
        (Axis.TOKENS, 900, 9_495_450, 4, ["2.0M", "4.0M", "6.0M", "8.0M"]),
        (Axis.TIME, 0, 29_997, 4, ["0", "3h", "6h"]),
        (Axis.TIME, 100_000, 101_000, 4, ["1.16d", "1.163d", "1.167d"]),
    ],
)
def test_no_two_marks_of_an_axis_read_the_same(
    axis: Axis, low: float, high: float, count: int, labels: list[str]
) -> None:
    assert [text for _, text in marks(axis, low, high, count)] == labels


@given(
    st.sampled_from(list(Axis)), st.integers(0, 10**7), st.integers(1, 10**7), st.integers(1, 12)
)
def test_marks_are_few_apart_and_in_sight(axis: Axis, low: int, wide: int, count: int) -> None:
    found = marks(axis, low, low + wide, count)
    values = [value for value, _ in found]
    assert values == sorted(set(values))
    assert all(low <= value <= low + wide for value in values)
    assert len({text for _, text in found}) == len(found) <= 2 * count + 2


@pytest.mark.parametrize("intervals", [3.0, 4.0, 5.5, 6.33])
@pytest.mark.parametrize("low", [0.0, 0.15, 0.52, 0.93, -0.4])
def test_an_axis_of_values_up_to_one_goes_on_below_them_rather_than_above(
    low: float, intervals: float
) -> None:
    for high in (0.961, 0.999, 1.0):
        scale = fit(low, high, intervals=intervals, most=1.0)
        step = scale.ticks[1] - scale.ticks[0]
        assert scale.low <= low + 1e-9
        assert scale.high >= high - 1e-9
        assert scale.ticks[-1] <= 1 + 1e-9
        assert scale.high < 1 + step or scale.low <= max(0.0, low)
        assert low < 0 or scale.low >= 0


def test_a_range_is_at_least_a_share_of_its_values() -> None:
    low, high = at_least(0.05, 0.4513, 0.4518)
    assert high - low == pytest.approx(0.05 * 0.4518)
    assert (low + high) / 2 == pytest.approx(0.45155)
    assert at_least(0.05, 0.2, 0.9) == (0.2, 0.9)
    assert at_least(0.05, 0.5, 0.5) == (0.5, 0.5), "a constant has an axis of its own"
    assert at_least(0.05, nan, nan) != (0.0, 0.0)


UNIT = Scale(0.0, 1.0)
points = st.lists(st.tuples(st.integers(0, 19), st.floats(0, 1), st.floats(0, 1)), min_size=1)


def buckets(found: list[tuple[int, float, float]]) -> list[Bucket]:
    """Points as a curve: one a column, left to right."""
    columns = {column: (min(a, b), max(a, b)) for column, a, b in found}
    return [
        Bucket(column, low, high, (low + high) / 2, True)
        for column, (low, high) in sorted(columns.items())
    ]


def plot(*layers: Layer, columns: int = 20, scale: Scale = UNIT) -> Plot:
    return Plot(scale, columns, layers)


def text(rows: list[list[Span]]) -> list[str]:
    return ["".join(span.text for span in row) for row in rows]


def test_a_line_rises_is_not_drawn_over_a_gap_and_lies_over_its_range() -> None:
    rising = [Bucket(0, 0.0, 0.0, 0.0, True), Bucket(7, 1.0, 1.0, 1.0, True)]
    for shape in (Shape.LINE, Shape.RANGE):
        assert text(Sketch().cells(plot(Layer("a", rising, shape), columns=8), 2)) == [
            "  ⡠⠊",
            "⡠⠊  ",
        ]
    assert text(Sketch().cells(plot(Layer("a", rising, Shape.BARS), columns=8), 2)) == [
        "   ⠈",
        "⡀   ",
    ]
    broken = [Bucket(0, 0.0, 0.0, 0.0, True), Bucket(7, 0.0, 0.0, 0.0, False)]
    assert text(Sketch().cells(plot(Layer("a", broken, Shape.LINE), columns=8), 1)) == ["⡀  ⢀"]
    whole = [Bucket(0, 0.0, 1.0, 0.5, True)]
    drawn = plot(Layer("a", whole, Shape.LINE), Layer("b", whole, Shape.RANGE), columns=2)
    assert [row[0].name for row in Sketch().cells(drawn, 3)] == ["b", "a", "b"]


def test_a_mark_stands_on_its_value_over_all_below_it() -> None:
    found = [Bucket(2, 0.0, 1.0, 0.5, True)]
    layers = Layer("m", found, Shape.MARKS, "■"), Layer("b", found, Shape.BARS)
    rows = Sketch().cells(plot(*layers, columns=6), 3)
    assert text(rows) == [" ⡇ ", " ■ ", " ⡇ "]
    assert rows[1] == [Span(" ", BLANK), Span("■", "m"), Span(" ", BLANK)]


def test_a_level_is_dashed_and_absent_off_the_scale() -> None:
    assert text(Sketch().cells(plot(level("l", 0.0, UNIT, 8), columns=8), 1)) == ["⣀ ⣀ "]
    for off in (None, 1.1, nan):
        assert level("l", off, UNIT, 8).buckets == ()


def test_the_crosshair_leaves_curves_and_a_flag_stands_in_the_lowest_free_row() -> None:
    [top, foot] = Sketch().cells(plot(Layer("a", [Bucket(2, 0.0, 0.0, 0.0, True)], Shape.LINE)), 2)
    assert crossed(top, 1)[1] == Span("┊", CROSSHAIR)
    assert crossed(foot, 1) == foot
    flags = [Flag(2, "⚑", "alarm", "alarm"), Flag(6, "⚑", "alarm", "alarm")]
    assert [row.index("⚑") for row in text(flagged([top, foot], flags))] == [1, 3]


@given(points)
def test_every_point_is_drawn_without_a_hole_and_nothing_beyond_the_extremes(
    found: list[tuple[int, float, float]],
) -> None:
    curve = buckets(found)
    low = min(round(b.low * 15) for b in curve)
    high = max(round(b.high * 15) for b in curve)
    for shape in (Shape.LINE, Shape.RANGE, Shape.BARS):
        masks = dots(Layer("a", curve, shape), UNIT, 20, 15)
        for mask in masks:
            assert mask >> (high + 1) == 0
            assert mask & ((1 << low) - 1) == 0
        for bucket in curve:
            assert masks[bucket.column]
        if shape is Shape.BARS:
            continue
        reach = range(curve[0].column, curve[-1].column + 1)
        for column in reach:
            assert masks[column]
        for column in reach[1:]:
            grown = masks[column] | masks[column] << 1 | masks[column] >> 1
            assert grown & masks[column - 1], "neighbouring columns touch"


@given(st.lists(points, min_size=2, max_size=4), st.integers(1, 2), st.floats(1, 2))
def test_what_grows_or_changes_is_drawn_as_if_it_were_drawn_at_once(
    stages: list[list[tuple[int, float, float]]], apart: int, high: float
) -> None:
    sketch, drawn = Sketch(), list[tuple[int, float, float]]()
    for points in stages:
        drawn = [*drawn[:9], *points]
        curve = buckets(drawn)
        for few in (curve[:-1], curve):
            layers = [Layer(shape.name, few, shape, apart=apart) for shape in Shape]
            grown = plot(*layers, columns=40, scale=Scale(0.0, high if len(drawn) > 12 else 1.0))
            assert sketch.cells(grown, 3) == Sketch().cells(grown, 3)


def test_of_a_curve_that_grows_only_what_is_new_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    heights = Scale.heights

    def counted(scale: Scale, values: Sequence[float], top: int) -> list[int]:
        drawn.append(len(values))
        return heights(scale, values, top)

    monkeypatch.setattr(Scale, "heights", counted)
    curve, sketch = buckets([(column, 0.5, 0.5) for column in range(20)]), Sketch()
    for few in (curve[:-2], curve[:-1], curve):
        sketch.cells(plot(Layer("a", few, Shape.LINE)), 3)
    assert drawn == [18, 3, 3]


@given(st.lists(st.floats(), min_size=1, max_size=300), st.integers(1, 40), st.data())
def test_a_curve_that_grows_is_drawn_as_if_it_were_drawn_at_once(
    values: list[float], columns: int, data: st.DataObject
) -> None:
    column, at = array("d", values), range(1, len(values) + 1)
    part = data.draw(st.integers(0, len(values)))
    frame = 1.0, float(max(2, len(values))), columns
    curve = Curve(column, 0.8)
    curve.follow(part, 0.8)
    bridge, before = curve.bridge, curve.buckets(at, *frame, rows=(0, part))
    curve.follow(len(values), 0.8)
    whole = curve.buckets(at, *frame, rows=(0, len(values)))
    if curve.bridge == bridge:
        grown = curve.buckets(at, *frame, rows=(0, len(values)), before=before)
        assert repr(grown) == repr(whole)


Y_TICKS, X_TICKS = ((0.0, "0"), (1.0, "1")), ((0.0, "1"), (1.0, "50"))


def test_axes_have_the_size_asked_for_and_their_labels_stand_on_their_rows() -> None:
    for width in (30, 60, 150, 300):
        lines = axes(X_TICKS, Y_TICKS, width, 8)
        assert [len(one) for one in lines] == [width] * 8
        assert not any("\x1b" in one for one in lines)
    lines = axes(X_TICKS, Y_TICKS, 60, 8)
    assert lines[0].startswith("    1┤ ")
    assert lines[5].startswith("    0┤ ")
    assert lines[6].startswith("     └┬")
    assert lines[6].endswith("┬")
    assert lines[7].split() == ["1", "50"]
    assert len(axes((), Y_TICKS, 40, 6)) == 6


def drawn_figure(scale: Scale) -> PlotFigure:
    """A flat curve at the foot, with axes."""

    def flat(cells: int, rows: int) -> Plot:
        ends = [Bucket(0, *[scale.low] * 3, True), Bucket(2 * cells - 1, *[scale.low] * 3, True)]
        return Plot(scale, 2 * cells, [Layer("a", ends, Shape.LINE)], X_TICKS)

    return figure(Sketch(), flat, 60, 8)


def test_a_figure_makes_room_for_its_labels_and_is_as_wide_as_asked() -> None:
    short, long = Scale(0.0, 1.0, ticks=(0.0, 1.0)), Scale(0.0, 1.0, ticks=(0.0, 1e-8 / 3))
    assert (drawn_figure(short).left, drawn_figure(short).cells) == (6, 54)
    assert drawn_figure(long).left == 1 + max(map(len, long.labels)) > 6
    for scale in (short, long):
        assert [len(row) for row in text([*map(list, drawn_figure(scale).rows)])] == [60] * 8
    assert text([*map(list, drawn_figure(short).rows)])[5] == f"    0┤{'⣀' * 54}"


def test_a_figure_s_crosshair_stands_on_the_axis_between_the_flags() -> None:
    drawn = drawn_figure(Scale(0.0, 1.0, ticks=(0.0, 1.0)))
    drawn = replace(drawn, plot=replace(drawn.plot, flags=[Flag(8, "⚑", "alarm", "")])).flagged()
    *body, foot, axis, labels = drawn.pointed(2).rows
    assert axis[1:4] == [Span("▲", POINTER), Span("─", "axes"), Span("⚑", "alarm")]
    assert [Span("┊", CROSSHAIR) in row for row in body] == [True] * 5
    assert Span("┊", CROSSHAIR) not in foot
    assert drawn.pointed(None) == drawn
    assert [*labels] == [*drawn.rows[-1]]
