"""Which charts are shown, in which order, and what each keeps in sight."""

import json
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.events import TreeRead
from hud_tui.rl.axes import Axis
from hud_tui.rl.chart import Chart, ChartData, beyond, y_scale
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.compare import LEAST_STEPS, ChartView, branch_overlay, branches, model_overlay
from hud_tui.rl.curves import Bucket
from hud_tui.rl.metrics import FEW, ChartOrder, Movement, Series, order_charts
from hud_tui.rl.run import Run
from hud_tui.storage import JsonStore
from hud_tui.tui.layout import FILE, Choices, read_choices, write_changes
from hud_tui.tui.widgets.focus_chart import focus_heading
from hud_tui.wire import Checkpoint
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


def test_a_narrow_interval_has_the_decimals_of_the_reward_beside_it() -> None:
    step = Checkpoint(
        id="c", is_active=True, num_traces=256, metrics={"reward_mean": 0.99, "reward_std": 0.05}
    )
    run = Run(model=runs.MODEL).fold(TreeRead(checkpoints=(step,)))
    heading = focus_heading(Chart(ChartData(), run, ChartView()), "reward_mean", None, 0)
    assert ("±", ".006", "dim") in heading.numbers


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


def series_of(columns: dict[str, list[float]]) -> Series:
    return runs.with_metrics(columns).series


def test_alarms_come_first_then_what_moves_or_is_looked_at_then_what_does_not() -> None:
    keys = ["reward_mean", "reward_max", "kl", "lr", "entropy"]
    moved = {"reward_mean", "kl", "entropy"}
    found = order_charts(keys, ["entropy", "lr"], moved)
    assert found == ChartOrder(("entropy", "lr", "reward_mean", "kl"), ("reward_max",))
    assert found.keys == ["entropy", "lr", "reward_mean", "kl", "reward_max"]
    found = order_charts(["a", "b", "c"], [], {"a"}, kept="c")
    assert found == ChartOrder(("a", "c"), ("b",))
    assert order_charts(["a"], ["hidden", "a", "a"], set()) == ChartOrder(("a",), ())


@given(
    st.lists(st.sampled_from("abcdef"), unique=True),
    st.lists(st.sampled_from("abcdef")),
    st.sets(st.sampled_from("abcdef")),
)
def test_every_metric_is_there_once(keys: list[str], alarmed: list[str], moved: set[str]) -> None:
    assert sorted(order_charts(keys, alarmed, moved).keys) == sorted(keys)


def test_constant_is_what_has_had_one_value_often_enough() -> None:
    steps = 2 * FEW
    columns = {
        "still": [1e-4] * steps,
        "nearly": [0.1 + 0.2, *[0.3] * (steps - 1)],
        "moves": [0.0] * (steps - 1) + [1.0],
        "rare": [nan] * (steps - 1) + [2.0],
        "gaps": [3.0, nan] * FEW,
        "lost": [nan] * steps,
        "odd": [inf, *[5.0] * (steps - 1)],
        "num_heldout_traces": [*[nan, 48.0] * 2, *[nan] * (steps - 4)],
        "num_traces": [*[64.0] * (steps - 1), 63.0],
        "num_datums": [*[nan, 48.0] * 2, *[nan] * (steps - 4)],
    }
    moved = Movement().of(series_of(columns))
    assert {"moves", "rare", "lost", "num_traces", "num_datums"} == set(moved) & set(columns)


def test_a_constant_that_begins_to_move_is_a_chart_from_then_on() -> None:
    movement, long = Movement(), runs.checkpoints(30)
    series = Series()
    for at, node in enumerate(long):
        series = series.add(_with(node, 1.0 if at < 20 else float(at)))
        moved = movement.of(series)
        assert ("flag" in moved) == (at + 1 < FEW or at >= 20)
    assert "flag" not in Movement().of(series.truncate(15))
    assert "flag" in movement.of(series)
    assert "flag" not in movement.of(series.truncate(15))


def _with(node: Checkpoint, flag: float) -> Checkpoint:
    return node.model_copy(update={"metrics": {**node.metrics, "flag": flag}})


KEYS = ["zeta", "entropy", "reward_mean"]


def test_what_was_chosen_comes_back_but_for_the_place_and_what_makes_no_sense(
    tmp_path: Path,
) -> None:
    chosen = Choices(("zeta",), ("entropy",), 4, True, Axis.TIME, True, False)
    store = JsonStore(lambda: tmp_path / "new")
    write_changes(store, FILE, chosen)
    assert read_choices(store) == chosen
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["charts.json"]
    chart_view = ChartView(1, True, Axis.TOKENS, True, False, span=30, end=50)
    kept = Choices().seen_through(chart_view)
    assert kept.chart_view == ChartView(1, True, Axis.TOKENS, True, False)
    found = {"order": ["b", "a", "b"], "smoothing": -1, "log": True}
    (tmp_path / "charts.json").write_text(json.dumps(found))
    assert read_choices(JsonStore(lambda: tmp_path)) == Choices(order=("b", "a"), log=True)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"log": "yes"}, "log: Input should be a valid boolean"),
        ({"clip": None}, "clip: Input should be a valid boolean"),
        ({"axis": "miles"}, "axis: Input should be "),
        ({"axis": []}, "axis: Input should be "),
        ({"order": {"a": 1}}, "order: Input should be a valid "),
        ({"order": [1]}, "order.0: Input should be a valid string"),
        ({"order": 7, "hidden": [1, None]}, "order: Input should be a valid "),
        ({"smoothing": 99}, "smoothing: Input should be less than "),
        ({"smoothing": True}, "smoothing: Input should be a valid integer"),
    ],
)
def test_a_field_that_makes_no_sense_is_named_and_not_chosen_and_the_file_is_left(
    tmp_path: Path, found: dict[str, object], said: str
) -> None:
    (tmp_path / "charts.json").write_text(json.dumps(found))
    store = JsonStore(lambda: tmp_path)
    assert read_choices(store) == Choices()
    [line] = store.problems()
    assert f"charts.json: {said}" in line
    write_changes(store, FILE, Choices(log=True))
    assert json.loads((tmp_path / "charts.json").read_text()) == found


def test_known_metrics_lead_until_they_are_put_in_order_or_hidden() -> None:
    assert Choices().shown(KEYS) == ["reward_mean", "entropy", "zeta"]
    moved = Choices().moved(KEYS, "zeta", -1)
    assert moved.shown([*KEYS, "new"]) == ["reward_mean", "zeta", "entropy", "new"]
    hidden = moved.toggled("reward_mean")
    assert hidden.shown(KEYS) == ["zeta", "entropy"]
    assert hidden.toggled("reward_mean") == moved
    assert hidden.unchosen() == Choices()
    assert Choices(hidden=tuple(KEYS)).shown(KEYS) == ["reward_mean", "entropy", "zeta"]


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-3, 3))))
def test_moving_charts_loses_none(moves: list[tuple[str, int]]) -> None:
    choices = Choices()
    for key, places in moves:
        choices = choices.moved(KEYS, key, places)
    assert sorted(choices.arranged(KEYS)) == sorted(KEYS)
