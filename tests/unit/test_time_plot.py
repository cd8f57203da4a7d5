"""The timeline as a plot: lanes, rollouts stacked below, and what is told of it in documents."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.export import csv_pieces
from hud_tui.rl.plot import Sketch
from hud_tui.rl.report import FILE, LocalFacts, report_files
from hud_tui.rl.run import Run
from hud_tui.rl.time_plot import CHOSEN, DISCARDED, TRAINED_ON, Timeline
from hud_tui.rl.time_report import FILE as PICTURE
from hud_tui.rl.time_report import discarded_sheet, time_document, time_sheet
from hud_tui.rl.timeline import LOOP_PARTS, REASONS, ZERO_VARIANCE
from hud_tui.wire_time import Discarded, RunTime, StepTime, TimedRollouts, TimedSpan


def step(number: int = 1, *spans: TimedSpan, rollouts: int = 0, seconds: float = 10.0) -> StepTime:
    bars = [
        TimedRollouts(f"{number}-{n}", f"task-{n % 3}", 0.5 * n, 4.0, 1, ZERO_VARIANCE * (n % 2))
        for n in range(rollouts)
    ]
    start = 100.0 + seconds * number
    return StepTime(
        run_id="r",
        step=number,
        checkpoint_id=f"c{number}",
        start=start,
        end=start + seconds,
        spans=list(spans),
        rollouts=bars,
    )


ALL = [TimedSpan(kind, number * 0.7, 0.7) for number, kind in enumerate(LOOP_PARTS)]
FULL = [step(number, *ALL, rollouts=12) for number in range(1, 5)]
TOLD = RunTime(run_id="r", steps=FULL, total=4, discarded={ZERO_VARIANCE: 24, "failed": 1})


def drawn(timeline: Timeline, cells: int, rows: int) -> list[str]:
    spans = Sketch().cells(timeline.plot(cells, rows), rows)
    return ["".join(span.text for span in row) for row in spans]


@given(
    st.integers(1, 120),
    st.integers(1, 40),
    st.lists(st.tuples(st.sampled_from([*LOOP_PARTS]), st.floats(0, 9), st.floats(0, 9))),
    st.lists(st.tuples(st.floats(-5, 9), st.floats(0, 9), st.integers(1, 40))),
)
def test_any_steps_are_drawn_on_any_screen(
    cells: int,
    rows: int,
    spans: list[tuple[str, float, float]],
    bars: list[tuple[float, float, int]],
) -> None:
    time = step(1, *(TimedSpan(*span) for span in spans))
    rollouts = [TimedRollouts(f"{n}", "a", *bar) for n, bar in enumerate(bars)]
    timeline = Timeline((time.model_copy(update={"rollouts": rollouts}), step(2)))
    lines = drawn(timeline, cells, rows)
    assert len(lines) == rows
    assert {len(line) for line in lines} == {cells}
    plot = timeline.plot(cells, rows)
    assert len(plot.scale.labels) == len(plot.scale.ticks) <= rows


def test_each_part_has_a_lane_where_it_was_done() -> None:
    timeline = Timeline((step(1, TimedSpan("sampling", 0, 5), TimedSpan("optim_step", 5, 5)),))
    sampling, step_ = drawn(timeline, 20, 2)
    assert (sampling.rstrip(), step_.rstrip()) == ("⣶" * 10, " " * 10 + "⣶" * 10)
    assert timeline.plot(20, 2).scale.labels == ["optimizer step", "sampling"]


def test_a_moment_is_seen_and_idle_time_is_empty() -> None:
    [line] = drawn(Timeline((step(1, TimedSpan("saving", 5, 0.05)),)), 20, 1)
    assert line.strip()
    assert len(line.strip()) == 1
    assert drawn(Timeline((step(1),)), 20, 3) == [" " * 20] * 3


def test_training_and_waiting_share_a_lane_each_where_there_is_no_room() -> None:
    timeline = Timeline(tuple(FULL))
    named = [lane.title for lane in timeline.lanes(30)]
    assert len(named) == len(LOOP_PARTS)
    few = [lane.title for lane in timeline.lanes(9)]
    assert few == ["sampling", "environment", "grading", "training", "evaluating", "waiting"]
    fewer = [lane.title for lane in timeline.lanes(5)]
    assert fewer == ["sampling", "training", "waiting"]


def test_rollouts_are_stacked_while_they_are_under_way_the_discarded_apart() -> None:
    timeline = Timeline((step(rollouts=8),), chosen="1-3")
    layers = {layer.name: layer for layer in timeline.plot(40, 6).layers}
    assert layers.keys() == {TRAINED_ON, DISCARDED, CHOSEN}
    heights = {bucket.low for name in (TRAINED_ON, DISCARDED) for bucket in layers[name].buckets}
    assert len(heights) == 8  # each by itself
    columns = [bucket.column for bucket in layers[CHOSEN].buckets]
    assert columns == list(range(12, 44))  # from 1.5 s on for 4 of 10 s


def test_a_rollout_is_found_where_it_is_drawn() -> None:
    timeline = Timeline((step(rollouts=4),))
    assert timeline.at(0, 0, 40, 6) == "1-0"
    assert timeline.at(39, 5, 40, 6) is None
    crowded = Timeline((step(rollouts=200, seconds=200.0),))
    places = {crowded.at(cell, row, 40, 3) for cell in range(40) for row in range(3)}
    assert len(places) > 20


def test_more_rollouts_than_heights_share_them() -> None:
    bars = [TimedRollouts(f"{n}", "a", 0.0, 5.0, 16) for n in range(16)]
    timeline = Timeline((step().model_copy(update={"rollouts": bars}),))
    lines = drawn(timeline, 10, 4)
    assert all(line.startswith("⣿" * 5) for line in lines)


def test_the_document_adds_up_and_has_each_step() -> None:
    document = time_document(TOLD)
    json.dumps(document)
    for part in (document["all"], *document["steps"]):
        assert sum(part["shares"].values()) + part["idle"] == pytest.approx(1.0)
        assert part["sentence"].endswith(".")
    assert [one["step"] for one in document["steps"]] == [1, 2, 3, 4]
    assert document["all"]["seconds"] == pytest.approx(40.0)
    assert document["discarded"] == {ZERO_VARIANCE: 24, "failed": 1}
    assert document["all"]["no_gradient"] == pytest.approx(0.5)


def test_tables_have_a_row_per_step_and_per_rollout() -> None:
    steps = "".join(csv_pieces(time_sheet(TOLD))).splitlines()
    assert len(steps) == 5
    assert "sampling_s" in steps[0]
    rows = [Discarded(trace_id="t", reason=reason, task_slug="=1+1") for reason in REASONS]
    lines = "".join(csv_pieces(discarded_sheet("r", rows))).splitlines()
    assert len(lines) == 1 + len(REASONS)
    assert "'=1+1" in lines[1]


def test_a_report_says_where_the_time_went() -> None:
    after = step(5, *ALL).model_copy(update={"checkpoint_id": None})  # what came after the end
    told = TOLD.model_copy(update={"steps": [*FULL, after]})
    files = report_files(Run(), LocalFacts(time=told), 0.0)
    page = files[FILE]
    assert "## Time" in page
    assert "Of 4 steps: " in page
    assert f"]({PICTURE})" in page
    assert "| zero variance | 24 |" in page
    assert files[PICTURE].startswith("<svg")
    assert "optimizer step" in files[PICTURE]
    for told in (None, RunTime(run_id="r")):
        files = report_files(Run(), LocalFacts(time=told), 0.0)
        assert "## Time" not in files[FILE]
        assert PICTURE not in files
