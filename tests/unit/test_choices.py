"""Which charts are shown, and what is kept of that, whatever is found in the file."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.axes import Axis
from hud_tui.rl.compare import ChartView
from hud_tui.storage import JsonStore
from hud_tui.tui.layout import Choices, read_choices, write_choices

KEYS = ["zeta", "entropy", "reward_mean"]


def test_what_was_chosen_comes_back_but_for_the_place_and_what_makes_no_sense(
    tmp_path: Path,
) -> None:
    chosen = Choices(("zeta",), ("entropy",), 4, True, Axis.TIME, True, False)
    store = JsonStore(lambda: tmp_path / "new")
    write_choices(store, chosen)
    assert read_choices(store) == chosen
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["charts.json"]
    chart_view = ChartView(1, True, Axis.TOKENS, True, False, span=30, end=50)
    kept = Choices().seen_through(chart_view)
    assert kept.chart_view == ChartView(1, True, Axis.TOKENS, True, False)
    found = {"order": ["b", "a", "b"], "smoothing": -1, "log": True}
    (tmp_path / "charts.json").write_text(json.dumps(found))
    assert read_choices(JsonStore(lambda: tmp_path)) == Choices(order=("b", "a"), log=True)


@pytest.mark.parametrize(
    "text",
    [
        '{"order": 7, "hidden": [1, null], "smoothing": 99, "log": "yes", "axis": "miles"}',
        '{"smoothing": true, "axis": [], "clip": null, "order": {"a": 1}}',
    ],
)
def test_a_file_that_makes_no_sense_counts_as_nothing_chosen(tmp_path: Path, text: str) -> None:
    (tmp_path / "charts.json").write_text(text, "latin-1")
    assert read_choices(JsonStore(lambda: tmp_path)) == Choices()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"log": "yes"}, "log: expected true or false"),
        ({"axis": "miles", "clip": True}, "axis: expected one of "),
        ({"order": [1]}, "order: expected a list of metrics' names"),
        ({"smoothing": 99}, "smoothing: expected a number from 0 to "),
    ],
)
def test_the_field_is_named_and_the_file_is_left(
    tmp_path: Path, found: dict[str, object], said: str
) -> None:
    (tmp_path / "charts.json").write_text(json.dumps(found))
    store = JsonStore(lambda: tmp_path)
    read_choices(store)
    [line] = store.problems()
    assert f"charts.json: {said}" in line
    write_choices(store, Choices(log=True))
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
