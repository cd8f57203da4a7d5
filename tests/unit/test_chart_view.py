"""What a chart view keeps in sight, and what a chart has there."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.axes import Axis
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.compare import LEAST_STEPS, ChartView, branch_overlay, branches, model_overlay
from hud_tui.rl.curves import Bucket
from hud_tui.tui.widgets.chart import Chart, ChartData, beyond, y_scale
from hud_tui.tui.widgets.focus_chart import focus_heading
from tests.tui import runs

moves = st.lists(
    st.tuples(st.sampled_from(["zoom", "pan", "show"]), st.integers(-3, 3), st.integers(0, 499))
)


@given(st.integers(1, 500), moves)
def test_whatever_is_done_there_are_steps_in_sight(
    length: int, done: list[tuple[str, int, int]]
) -> None:
    chart_view = ChartView()
    for what, by, row in done:
        if what == "zoom":
            chart_view = chart_view.zoomed(by, length, row % length if row % 2 else None)
        elif what == "pan":
            chart_view = chart_view.panned(by, length)
        else:
            chart_view = chart_view.showing(row % length, length)
            start, stop = chart_view.rows(length)
            assert start <= row % length < stop
        start, stop = chart_view.rows(length)
        assert 0 <= start < stop <= length
        assert stop - start >= min(LEAST_STEPS, length)


def test_a_count_that_parameters_set_is_not_smoothed() -> None:
    run = runs.with_metrics({key: [48.0] * 9 + [24.0] for key in ("num_traces", "num_datums")})
    chart = Chart(ChartData(), run, ChartView())
    traces, datums = (chart.curve(key).readout(10) for key in ("num_traces", "num_datums"))
    assert (traces.smooth, traces.raw) == (24, 24)
    assert datums.smooth > 24
    heading = focus_heading(chart.of("num_traces"), "num_traces", None, 0)
    assert "EMA" not in f"{heading.numbers}{heading.words}"


def test_zooming_follows_the_newest_until_it_is_panned_and_draws_what_is_in_sight() -> None:
    chart_view = ChartView().zoomed(2, 400, None)
    assert chart_view.rows(400) == (300, 400)
    assert chart_view.rows(410) == (310, 410)
    panned = chart_view.panned(-1, 400)
    assert panned.rows(400) == panned.rows(410) == (250, 350)
    assert panned.panned(1, 400).rows(405) == (305, 405)
    assert chart_view.zoomed(-2, 400, None).span is None

    run = runs.run_of(60)
    found = Chart(ChartData(), run, ChartView(span=10, end=30)).buckets("reward_mean", 10)
    seen = [run.series.column("reward_mean")[row] for row in range(20, 30)]
    assert [bucket.low for bucket in found] == seen


@pytest.mark.parametrize("axis", list(Axis))
@pytest.mark.parametrize("span", [None, 20])
def test_the_crosshair_stands_where_its_step_is_drawn(axis: Axis, span: int | None) -> None:
    run = runs.run_of(60, status="succeeded")
    chart = Chart(ChartData(), run, ChartView(axis=axis, span=span))
    start, stop = chart.rows
    columns = 2 * (stop - start)
    for row in range(start, stop):
        column = chart.column(row, columns)
        assert column is not None
        assert chart.row(column, columns) == row
    assert replace(chart, view=ChartView(span=20)).column(3, columns) is None


def spiked() -> list[Bucket]:
    values = [0.5 + 0.01 * (n % 7) for n in range(40)] + [900.0]
    return [Bucket(n, value, value, value, True) for n, value in enumerate(values)]


def test_the_scale_holds_the_average_and_the_envelope_but_no_outlier_where_it_clips() -> None:
    whole, clipped = y_scale(spiked(), ChartView()), y_scale(spiked(), ChartView(clip=True))
    assert whole.high >= 900
    assert clipped.high < 1
    assert beyond(spiked(), whole) == 0
    assert beyond(spiked(), clipped) == 1

    buckets = [Bucket(0, 8.0, 9.0, 3.0, True), Bucket(1, 8.0, 9.0, 4.0, True)]
    assert y_scale(buckets, ChartView()).low == 3.0
    assert y_scale(buckets, ChartView(smoothing=0)).low == 8.0
    buckets = [Bucket(n, 0.0, 9.0, 4.0 + n / 10, True) for n in range(9)]
    assert y_scale(buckets, ChartView()).high == 9.0
    assert y_scale(buckets, ChartView(envelope=False)).high == pytest.approx(4.8)
    assert y_scale(buckets, ChartView(envelope=False, smoothing=0)).high == 9.0


def test_a_branch_lies_over_the_steps_that_both_have() -> None:
    run = runs.branched(60, 30, 40)
    [left] = branches(run)
    assert (left.name, left.steps, left.common) == ("step-000060", 30, "step-000030")
    view = ChartView(overlay=branch_overlay(run, left.tip), smoothing=0)
    chart = Chart(ChartData(), run, view)
    own, other = chart.buckets("reward_mean", 80), chart.others("reward_mean", 80)
    assert [b.low for b in own[:30]] == [b.low for b in other[:30]]
    assert all(a.low != b.low for a, b in zip(own[30:60], other[30:60], strict=True))
    assert branches(runs.run_of(9)) == []


@pytest.mark.parametrize("axis", list(Axis))
def test_a_fork_begins_where_it_was_forked(axis: Axis) -> None:
    run = runs.run_of(60, status="succeeded")
    named = {"id": "m2", "model_name": "me/b", "forked_from": "me/arith-rl@step-000020"}
    fork = runs.MODEL.model_copy(update=named)
    overlay = model_overlay(run, fork, Tree.of(runs.checkpoints(10)))
    chart = Chart(ChartData(), run, ChartView(overlay=overlay, axis=axis))
    at_20 = chart.column(19, 119)
    assert at_20 is not None
    first = chart.others("reward_mean", 119)[0].column
    assert 0 <= first - at_20 <= 2


def test_the_model_it_was_forked_from_lies_before_it() -> None:
    origin = runs.MODEL.model_copy(update={"id": "m2", "model_name": "me/origin"})
    run = runs.run_of(40)
    run = replace(run, model=runs.MODEL.model_copy(update={"forked_from": "me/origin@step-000025"}))
    overlay = model_overlay(run, origin, Tree.of(runs.checkpoints(50)))
    assert overlay.shift == -25
    chart = Chart(ChartData(), run, ChartView(overlay=overlay, smoothing=0))
    [first, *_] = chart.others("reward_mean", 40)
    assert first.low == pytest.approx(runs.reward(26))
    stranger = runs.MODEL.model_copy(update={"id": "m3", "model_name": "me/stranger"})
    assert model_overlay(run, stranger, Tree.of(runs.checkpoints(3))).shift == 0


@given(
    length=st.integers(0, 5000),
    turns=st.lists(st.tuples(st.sampled_from((0.75, 4 / 3)), st.floats(0, 1)), max_size=30),
)
def test_the_wheel_keeps_the_step_under_it_in_sight(
    length: int, turns: list[tuple[float, float]]
) -> None:
    chart_view = ChartView()
    for factor, share in turns:
        start, end = chart_view.rows(length)
        row = min(max(0, length - 1), start + round(share * max(0, end - start - 1)))
        chart_view = chart_view.scaled(factor, length, row, share)
        first, last = chart_view.rows(length)
        assert 0 <= first <= last <= length
        assert not length or first <= row < last
        if factor < 1:
            assert last - first == end - start or last - first < end - start
            assert last - first >= min(10, length)
        else:
            assert last - first > end - start or chart_view.span is None


@given(length=st.integers(1, 500), ends=st.tuples(st.integers(0, 499), st.integers(0, 499)))
def test_a_span_is_shown_as_it_was_drawn(length: int, ends: tuple[int, int]) -> None:
    first, last = sorted(min(end, length - 1) for end in ends)
    start, stop = ChartView().spanning(first, last, length).rows(length)
    assert start <= first <= last < stop
    assert stop - start == max(last - first + 1, min(10, length))
