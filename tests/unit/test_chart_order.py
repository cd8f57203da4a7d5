"""Which charts come first, and which need none: alarms, movement, constants."""

from math import inf, nan

from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.metrics import FEW, ChartOrder, Movement, Series, order_charts
from hud_tui.wire import Checkpoint
from tests.tui import runs


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
