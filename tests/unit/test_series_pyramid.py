"""The pyramid against reading every row, and what charts build on it."""

from array import array
from itertools import combinations
from math import inf, isfinite, isnan, nan, sin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.curves import FAN, SETTLED, STRETCH, WEIGHTS, Curve, Ema, Pyramid, column_edges

value = st.one_of(st.floats(), st.sampled_from([nan, inf, -inf, 0.0, 1.0]))
columns = st.lists(value, max_size=40).flatmap(
    lambda seed: st.integers(0, 40).map(lambda times: array("d", seed * times))
)


def naive(column: "array[float]", low: int, high: int) -> tuple[float, float]:
    finite = [v for v in column[low:high] if isfinite(v)]
    return (min(finite), max(finite)) if finite else (nan, nan)


def same(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one == other or (isnan(one[0]) and isnan(other[0]) and isnan(one[1]))


@given(columns, st.data())
def test_span_is_what_reading_every_row_finds(column: "array[float]", data: st.DataObject) -> None:
    pyramid = Pyramid()
    grown = data.draw(st.lists(st.integers(0, len(column)), max_size=4).map(sorted))
    for length in [*grown, len(column)]:
        pyramid.extend(column, length)
    low = data.draw(st.integers(0, len(column)))
    high = data.draw(st.integers(low, len(column)))
    assert same(pyramid.span(column, low, high), naive(column, low, high))
    assert pyramid.finite == sum(map(isfinite, column))


def test_every_span_around_the_block_borders_and_a_long_one_by_its_edges_only() -> None:
    column = array("d", [(row * 37 % 101) - 50.0 for row in range(FAN**2 + FAN + 3)])
    pyramid = Pyramid()
    pyramid.extend(column, len(column))
    borders = [0, 1, FAN - 1, FAN, FAN + 1, FAN**2 - 1, FAN**2, FAN**2 + 1, len(column)]
    for low, high in combinations(borders, 2):
        assert pyramid.span(column, low, high) == naive(column, low, high)

    column = Watched(float(row) for row in range(50_000))
    pyramid = Pyramid()
    pyramid.extend(column, len(column))
    column.read = 0
    assert pyramid.span(column, 7, 49_993) == (7.0, 49_992.0)
    assert column.read < 2 * FAN


class Watched(list[float]):
    """A column that counts how many rows are read."""

    read = 0

    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        got = super().__getitem__(key)
        self.read += len(got) if isinstance(key, slice) else 1
        return got


@given(st.lists(value, max_size=60), st.sampled_from(WEIGHTS), st.integers(0, 60))
def test_ema_grown_in_parts_equals_ema_at_once(
    column: list[float], weight: float, cut: int
) -> None:
    parts, whole = Ema(weight), Ema(weight)
    parts.extend(column, min(cut, len(column)))
    parts.extend(column, len(column))
    whole.extend(column, len(column))
    rows = range(len(column))
    assert str([parts.average(column, r) for r in rows]) == str(
        [whole.average(column, r) for r in rows]
    )


@pytest.mark.parametrize("weight", [w for w in WEIGHTS if w])
def test_a_long_stretch_is_averaged_as_step_by_step(weight: float) -> None:
    column = [sin(row / 70) + (row * 7919 % 101) / 101 for row in range(3 * STRETCH + 5)]
    quick, slow = Ema(weight), Ema(weight)
    quick.extend(column, 9, True)
    quick.extend(column, len(column), True)
    slow.extend(column, len(column))
    assert quick.length == slow.length == len(column)
    for row in (0, 8, 15, 16, SETTLED, SETTLED + 40, STRETCH, len(column) - 1):
        assert quick.average(column, row) == pytest.approx(slow.average(column, row), rel=1e-12)
    grown = [*column, 5.0, nan, 7.0]
    quick.extend(grown, len(grown))
    slow.extend(grown, len(grown))
    assert quick.average(grown, len(column)) == pytest.approx(
        slow.average(grown, len(column)), rel=1e-12
    )
    assert quick.average(grown, len(grown) - 1) == pytest.approx(
        slow.average(grown, len(grown) - 1)
    )


def test_ema_weighs_the_past_skips_what_is_missing_and_leaves_a_constant_alone() -> None:
    ema = Ema(0.5)
    column = [nan, 1.0, nan, 0.0]
    ema.extend(column, 4)
    assert isnan(ema.average(column, 0))
    means = [ema.average(column, row) for row in range(1, 4)]
    assert means == pytest.approx([1.0, 1.0, 0.25 / 0.75])

    ema = Ema(0.0)
    column = [3.0, -1.0, 8.0]
    ema.extend(column, 3)
    assert [ema.average(column, row) for row in range(3)] == column

    ema = Ema(0.9)
    column = [0.25] * 50
    ema.extend(column, 50)
    assert [ema.average(column, row) for row in range(50)] == pytest.approx([0.25] * 50)


@given(st.integers(1, 500), st.integers(1, 80))
def test_every_step_lies_in_exactly_one_chart_column(steps: int, columns: int) -> None:
    edges = column_edges(range(1, steps + 1), 1, max(2, steps), columns, 0, steps)
    assert edges[0] == 0
    assert edges[-1] == steps
    assert edges == sorted(edges)
    assert len(edges) == columns + 1


def curve(values: list[float], weight: float = 0.0) -> Curve:
    made = Curve(array("d", values), weight)
    made.follow(len(values), weight)
    return made


def test_buckets_hold_the_extremes_of_their_steps_and_of_no_others() -> None:
    made = curve([0.0, 9.0, 1.0, 2.0, -5.0, 3.0])
    buckets = made.buckets(range(1, 7), 1, 6, 2)
    assert [(b.column, b.low, b.high) for b in buckets] == [(0, 0.0, 9.0), (1, -5.0, 3.0)]
    made = curve([0.0, 1.0, 2.0, 99.0])
    assert max(b.high for b in made.buckets(range(1, 4), 1, 3, 8)) == 2.0
    assert made.readout(3).raw == 2.0

    readout = curve([float(row) for row in range(30)]).readout(30)
    assert (readout.raw, readout.smooth, readout.delta) == (29.0, 29.0, 10.0)
    assert isnan(curve([1.0, 2.0]).readout(2).delta)
    assert isnan(curve([]).readout(0).raw)


def test_a_missing_step_is_a_gap_but_a_metric_of_every_fifth_step_is_one_line() -> None:
    buckets = curve([1.0, 1.0, nan, 1.0, 1.0, 1.0, 1.0]).buckets(range(1, 8), 1, 7, 7)
    assert [b.column for b in buckets] == [0, 1, 3, 4, 5, 6]
    assert [b.joined for b in buckets] == [True, True, False, True, True, True]
    values = [float(row) if row % 5 == 4 else nan for row in range(40)]
    buckets = curve(values).buckets(range(1, 41), 1, 40, 40)
    assert len(buckets) == 8
    assert all(b.joined for b in buckets[1:])
