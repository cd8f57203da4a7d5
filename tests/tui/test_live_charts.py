"""The crosshair, the zoom, the comparison and the choice of charts, by key and by mouse."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.strip import Strip

from hud_tui.events import CheckpointAdded, HeadMoved, MovesRead
from hud_tui.rl.alarms.alarm import Report
from hud_tui.rl.chart import Chart, ChartData
from hud_tui.rl.compare import ChartView, branch_overlay
from hud_tui.rl.history import History
from hud_tui.rl.own_numbers import HELDOUT
from hud_tui.tui.screens import chart_settings
from hud_tui.tui.screens.chart_settings import ChartLine, ChartList
from hud_tui.tui.widgets import lines
from hud_tui.tui.widgets.chart import MetricGrid, SmallChart
from hud_tui.tui.widgets.figure import axes
from hud_tui.tui.widgets.focus_chart import FocusChart
from hud_tui.tui.widgets.group_grid import GroupGrid
from hud_tui.tui.widgets.lines import on_ground
from hud_tui.tui.widgets.run_status import EventLog
from tests.conftest import until
from tests.tui import runs
from tests.tui.stage import Stage, staged
from tests.tui.still import StillClient
from tests.tui.test_live import newer, text_of

FORK = runs.MODEL.model_copy(
    update={"id": "m2", "model_name": "me/fork", "forked_from": "me/arith-rl@step-000020"}
)
BASE = runs.MODEL.model_copy(update={"id": "m3", "model_name": "a/base", "is_trainable": False})


def crossed(text: str) -> list[int]:
    """Where the crosshair stands in each line that has it."""
    return [line.index("┊") for line in text.splitlines()[1:] if "┊" in line]


async def test_the_crosshair_goes_through_every_chart_and_the_groups() -> None:
    async with staged(runs.run_of(60)) as (stage, pilot):
        chart, grid = stage.live.query_one(FocusChart), stage.live.query_one(MetricGrid)
        assert crossed(text_of(chart)) == []
        await pilot.press("left")
        assert stage.live.cursor == 59
        await pilot.press("shift+left", "shift+left", "right")
        assert stage.live.cursor == 40
        assert stage.staged.checkpoint_id == "c41"
        assert "┊ step-000041" in text_of(chart)
        assert len(set(crossed(text_of(chart)))) == 1
        assert len(crossed(text_of(grid))) > 3
        value = runs.metrics(41)["reward_mean"]
        assert f"raw {value:.3f}".replace("0.", ".") in text_of(chart)
        assert "step-000041 · 12 groups" in text_of(stage.live.query_one(GroupGrid))
        await pilot.press("home")
        assert stage.live.cursor == 0
        await pilot.press("left")
        assert stage.live.cursor == 0
        await pilot.press("end")
        assert stage.live.cursor is None
        assert stage.staged.checkpoint_id is None
        assert crossed(text_of(chart)) == []

        before = text_of(stage.live.query_one(EventLog))
        await pilot.press("left", "left")
        assert text_of(stage.live.query_one(EventLog)) == before


async def test_the_crosshair_stays_on_its_step_or_goes_with_it() -> None:
    async with staged(runs.run_of(60), size=(80, 24)) as (stage, pilot):
        await pilot.press("shift+left", "right")
        assert stage.live.cursor == 51
        stage.play(newer(stage.scene, 3))
        assert stage.live.cursor == 51
        assert stage.staged.checkpoint_id == "c52"
        await pilot.press("shift+right", "shift+right")
        assert stage.live.cursor is None

        await stage.show(runs.run_of(60))
        await pilot.press("shift+left")
        await stage.show(stage.scene.fold(HeadMoved(checkpoint_id="c30", cause="set")))
        assert stage.live.cursor is None
        await pilot.press("left", "left")
        assert stage.live.cursor == 28
        node = runs.checkpoints(61)[-1]
        branch = node.model_copy(update={"prev_model_checkpoint_id": "c30", "id": "b"})
        stage.play(stage.scene.fold(CheckpointAdded(checkpoint=branch)))
        assert stage.live.cursor == 28

        stage.play(runs.run_of(60))
        await pilot.press("end")
        await pilot.press("question_mark")
        await until(lambda: stage.screen is not stage.live)
        stage.staged.checkpoint_id = "c12"
        await pilot.press("escape")
        await until(lambda: stage.live.cursor == 11)

        await pilot.press("end")
        await pilot.press("shift+left", "enter")
        await until(lambda: stage.focused is stage.live.query_one(GroupGrid))
        assert "step-000051" in text_of(stage.live.query_one(GroupGrid))
        await pilot.press("left")
        assert "step-000050" in text_of(stage.live.query_one(GroupGrid))


async def test_a_crosshair_that_another_view_left_on_the_newest_step_follows() -> None:
    """The last step of an ended run, or the checkpoint that the head was set to."""
    async with staged(runs.run_of(60), size=(80, 24)) as (stage, pilot):
        await pilot.press("question_mark")
        await until(lambda: stage.screen is not stage.live)
        stage.staged.checkpoint_id = "c60"
        await pilot.press("escape")
        await until(lambda: stage.staged.checkpoint_id is None)
        assert stage.live.cursor is None
        stage.play(newer(stage.scene, 3))
        assert stage.live.cursor is None
        await pilot.press("left")
        assert stage.live.cursor == 62
        stage.play(newer(stage.scene, 3))
        assert stage.live.cursor == 62, "the user pinned it"


async def test_after_a_rollback_the_axis_has_the_numbers_of_the_steps() -> None:
    async with staged(runs.branched(60, 30, 40)) as (stage, _):
        labels = text_of(stage.live.query_one(FocusChart)).splitlines()[-2].split()
        assert all(int(label) <= 30 or int(label) > 60 for label in labels)
        assert any(int(label) > 60 for label in labels)


async def test_odd_metrics_have_gaps_and_outliers() -> None:
    async with staged(runs.odd_metrics()) as (stage, pilot):
        chart = stage.live.query_one(FocusChart)
        await pilot.press(*["shift+left"] * 2, *["left"])
        assert stage.live.cursor == 59
        await pilot.press("right")
        assert "raw –" in text_of(chart)

        await pilot.press("end")
        stage.live.focus_key = "one spike"
        chart = stage.live.query_one(FocusChart)
        await pilot.press("O")
        assert "outliers clipped: 1 column" in text_of(chart)
        assert "1.0M" not in text_of(chart)
        await pilot.press("O", "v")
        assert not stage.live.chart_view.envelope


async def test_zoom_and_pan_are_said_and_keep_the_crosshair_in_sight() -> None:
    async with staged(runs.run_of(80)) as (stage, pilot):
        chart = stage.live.query_one(FocusChart)
        await pilot.press("plus")
        assert "steps 41–80" in text_of(chart)
        await pilot.press("ctrl+left")
        assert "steps 21–60" in text_of(chart)
        await pilot.press("ctrl+right", "minus")
        assert "steps" not in text_of(chart).splitlines()[0]
        await pilot.press("plus", "plus", "shift+left", "shift+left", "shift+left")
        assert stage.live.cursor == 50
        start, stop = stage.live.chart_view.rows(80)
        assert start <= 50 < stop
        assert stop - start == 20
        await pilot.press("0")
        assert stage.live.chart_view.span is None


def test_a_held_out_reward_is_read_at_the_checkpoint_that_was_sampled() -> None:
    """As the large chart's legend reads it: the next step reports it."""
    run = runs.run_of(30)
    chart = Chart(ChartData(), run, ChartView(smoothing=0))
    held_out = chart.data.held_out
    held_out.follow(run)
    for row in held_out.rows[:-1]:
        assert chart.readout(HELDOUT, row).raw == held_out.scores[row].value
    newest = run.series.last(HELDOUT)
    assert chart.readout(HELDOUT, None).raw == newest


AT_THE_END = [
    (["0"], "All steps are shown."),
    (["minus"], "All steps are shown."),
    (["ctrl+left"], "All steps are shown: zoom in (+) to pan"),
    (["plus", "ctrl+right"], "The newest steps are shown."),
    (["plus", *["ctrl+left"] * 3], "The first steps are shown."),
    (["plus"] * 5, "Cannot zoom in further: at least 10 steps are shown."),
]


async def test_where_a_zoom_or_pan_has_no_other_steps_to_show_it_says_so() -> None:
    async with staged(runs.run_of(60), size=(80, 24), notifications=True) as (stage, pilot):
        for keys, said in AT_THE_END:
            await pilot.press("0", *keys[:-1])
            stage.clear_notifications()
            before = stage.live.chart_view.rows(60)
            await pilot.press(keys[-1], keys[-1])
            assert stage.live.chart_view.rows(60) == before
            await until(lambda: len(stage._notifications) == 1)
            assert said in next(iter(stage._notifications)).message


async def test_a_branch_is_laid_over_and_read_beside_the_run() -> None:
    async with staged(runs.branched(60, 30, 40)) as (stage, pilot):
        await pilot.press("c", "down", "enter")
        await until(lambda: stage.screen is stage.live)
        await pilot.press("shift+left", "shift+left", "left")
        line = text_of(stage.live.query_one(FocusChart)).splitlines()[0]
        assert "vs step-000060 .797" in line
        assert "▼ .2" in line
        await pilot.press("c", "escape")
        assert stage.live.chart_view.overlay is not None
        await pilot.press("c", "home", "enter")
        await until(lambda: stage.live.chart_view.overlay is None)


async def test_with_nothing_to_compare_with_the_list_says_so() -> None:
    async with staged(runs.run_of(60), size=(80, 24)) as (stage, pilot):
        await pilot.press("c")
        foot = stage.screen.query_one("#overlays-foot")
        await until(lambda: "No other branch" in str(foot.render()))
        await until(lambda: foot.size.height == 2)
        await pilot.press("escape")


async def test_another_model_is_laid_over_and_leaves_with_the_run() -> None:
    models = StillClient((), (FORK, runs.checkpoints(9)), (BASE, ()))
    async with staged(runs.run_of(60), client=models) as (stage, pilot):
        await pilot.press("c")
        picker = stage.screen
        await until(lambda: bool(picker.models))
        assert [model.id for model in picker.models] == ["m2"]
        await pilot.press("end", "enter")
        await until(lambda: stage.live.chart_view.overlay is not None)
        assert stage.live.chart_view.overlay.shift == 20
        await pilot.press("shift+left")
        assert "vs me/fork" in text_of(stage.live.query_one(FocusChart))
        stage.play(runs.run_of(3).__class__(model=FORK, loaded=True))
        assert stage.live.chart_view.overlay is None


async def test_charts_are_hidden_and_put_in_order_and_stay_so(tmp_path: Path) -> None:
    async with staged(runs.run_of(30), state=lambda: tmp_path) as (stage, pilot):
        await pilot.press("a")
        assert isinstance(stage.screen, ChartList)
        await pilot.press(
            "space", "down", "greater_than_sign", "shift+down", "less_than_sign", "down", "enter"
        )
        await until(lambda: stage.screen is stage.live)
        assert stage.live.charts.keys[:2] == ["reward_std", "heldout_reward"]
        assert stage.live.focus_key == "loss:sum"
        assert "1 hidden" in text_of(stage.live.metrics)
        await pilot.press("L", "s")
    again = Stage(runs.run_of(30), state=lambda: tmp_path)
    async with again.run_test(size=(120, 40)) as pilot:
        assert again.live.charts.keys[:2] == ["reward_std", "heldout_reward"]
        assert again.live.chart_view.log
        assert again.live.chart_view.smoothing == 3
        await pilot.press("a", "0", "escape")
        assert again.live.charts.keys[0] == "reward_mean"
        assert "hidden" not in text_of(again.live.metrics)


async def test_the_list_of_charts_says_what_a_metric_means() -> None:
    async with staged(runs.run_of(30), size=(80, 24)) as (stage, pilot):
        await pilot.press("a", *["down"] * 4)
        note = str(stage.screen.query_one("#charts-note").render())
        assert "kl_sample_train" in note
        assert "Healthy ≤.010." in note
        assert "mismatch_kl/all/mean" in note
        newest = chart_settings._newest(ChartLine("kl_sample_train", -3.4e-9, False))
        assert newest.plain == "0", "as in its chart"


async def test_the_readout_leaves_out_whole_numbers_and_keeps_its_place() -> None:
    run = runs.branched(100, 60, 20)
    async with staged(run, size=(120, 30)) as (stage, pilot):
        stage.live.compare(branch_overlay(run, 99))
        await pilot.press("shift+left")
        chart = stage.live.query_one(FocusChart)
        for width, said in (
            (120, ("EMA(0.8) =", "raw", "Δ10", "vs step-000100", "┊ step-000111")),
            (80, ("EMA(0.8) =", "vs step-000100", "┊ step-000111")),
            (40, ("EMA(0.8) =",)),
        ):
            await pilot.resize_terminal(width, 30)
            await until(lambda width=width: chart.width <= width)
            text = chart.heading(chart.width).text
            assert all(part in text for part in said)
            numbers = re.findall(r"\d*\.\d+", text)
            assert all(len(number.partition(".")[2]) == 3 for number in numbers if number != "0.8")


async def test_a_leap_of_the_crosshair_grows_with_what_is_in_sight() -> None:
    run = runs.with_metrics({"reward_mean": [0.5] * 10_000})
    async with staged(run, size=(80, 24)) as (stage, pilot):
        await pilot.press("shift+left")
        assert stage.live.cursor == 9900
        await pilot.press(*["plus"] * 6, "shift+left")
        assert stage.live.cursor == 9890
        await pilot.press("left", "shift+right")
        assert stage.live.cursor == 9899


async def test_the_large_chart_has_both_rewards_and_says_how_sure_they_are() -> None:
    run = runs.run_of(60)
    found = runs.evaluation(0.7, 0.6, 0.79)
    node = run.tree[39].model_copy(update={"evaluations": [found]})
    async with staged(run) as (stage, pilot):
        chart = stage.live.query_one(FocusChart)
        assert re.search(r"EMA\(0\.8\) = \.\d+ +± \.\d+", text_of(chart))
        await stage.show(run.fold(CheckpointAdded(checkpoint=node)))
        before = text_of(chart)
        await pilot.press(*["shift+left"] * 2, "left")
        assert stage.live.cursor == 39
        assert "■ held-out .700 [.600, .790]" in text_of(chart)
        assert "of step-000040, 48 tasks × 4" in text_of(chart)
        assert "━ train, 95 % CI of EMA(0.8)" in text_of(chart)
        await pilot.resize_terminal(80, 24)
        legend = "━ train, 95 % CI of EMA(0.8)   ■ held-out .700 [.600, .790], 48 tasks × 4"
        await until(lambda: text_of(chart).splitlines()[-1].strip() == legend)
        await pilot.resize_terminal(120, 40)
        await until(lambda: "of step-000040" in text_of(chart))
        await pilot.press("left")
        assert "[.600, .790]" not in text_of(chart), "not evaluated yet at that step"
        for node in run.tree:
            scored = node.model_copy(update={"evaluations": [found]})
            run = run.fold(CheckpointAdded(checkpoint=scored))
        await stage.show(run)
        assert "┅ held-out .700" in text_of(chart), "too many to be marked"
        assert "■" not in text_of(chart)
        await pilot.press("end", "v")
        assert text_of(chart) != before, "v hides the interval"


async def test_a_branch_and_a_move_of_the_head_are_marked_in_the_large_chart() -> None:
    run = replace(runs.branched(60, 30, 40), history=History())
    async with staged(run) as (stage, pilot):
        chart, grid = stage.live.query_one(FocusChart), stage.live.query_one(MetricGrid)
        assert "╥ branch" in text_of(chart).splitlines()[-1]
        assert "╥" in text_of(chart).splitlines()[-3]
        assert "╥" not in text_of(grid)
        assert "▷" not in text_of(chart)
        moved = HeadMoved(at=1.0, checkpoint_id=run.series.id_at(49), cause="set")
        await stage.show(newer(run.fold(MovesRead(moves=(moved,))), 1))
        assert "▷ head set" in text_of(chart).splitlines()[-1]
        assert "▷" not in text_of(grid)
        await pilot.press("l")
        assert "╥ branch" in text_of(chart), "of every metric"


async def test_a_small_chart_has_the_flag_of_its_own_alarm_only() -> None:
    drift = runs.alarm(40, metric="kl_sample_train", limit=0.0045)
    fall = runs.alarm(20, name="fall", metric="reward_mean")
    run = replace(runs.run_of(60), alarms=Report((drift, fall)))
    async with staged(run) as (stage, _pilot):
        grid = stage.live.query_one(MetricGrid)
        await until(
            lambda: all(grid._charts[key].lines for key in ("reward_mean", "kl_sample_train"))
        )
        columns = {}
        for key, chart in grid._charts.items():  # those in sight
            curve = [strip.text for strip in chart.lines[1:]]
            columns[key] = [row.index("⚑") for row in curve if "⚑" in row]
        [drifts], [falls] = columns.pop("kl_sample_train"), columns.pop("reward_mean")
        assert drifts > falls
        assert any(grid._charts[key].lines for key in columns)
        assert not any(columns.values())


async def test_charts_are_drawn_again_by_a_step_alone_and_their_axes_by_a_new_label() -> None:
    run = runs.run_of(45)
    async with staged(run) as (stage, pilot):
        grid, focus = stage.live.query_one(MetricGrid), stage.live.query_one(FocusChart)

        def drawn_lines() -> dict[int, Sequence[Strip]]:
            """By id; what is kept here keeps its id to itself."""
            charts: list[SmallChart] = [*grid._charts.values()]
            return {id(chart.lines): chart.lines for chart in charts if chart.lines}

        await pilot.pause()
        drawn, figure, made = drawn_lines(), focus._figure, axes.cache_info().misses
        await stage.show(runs.sampling(run, 20))
        grid.redraw()
        focus.redraw()
        assert drawn_lines().keys() == drawn.keys()
        assert focus._figure is figure
        await stage.show(runs.run_of(46))
        await until(lambda: not grid._late)
        assert not drawn_lines().keys() & drawn.keys()
        assert focus._figure is not figure
        assert axes.cache_info().misses == made


async def test_lines_that_are_drawn_as_before_are_not_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged(runs.run_of(30)) as (stage, pilot):
        await pilot.pause()
        grid, focus = stage.live.query_one(MetricGrid), stage.live.query_one(FocusChart)
        made: list[Strip] = []

        def counted(strip: Strip, *ground: Any) -> Strip:
            made.append(strip)
            return on_ground(strip, *ground)

        monkeypatch.setattr(lines, "on_ground", counted)
        for pane in (grid, focus, stage.live.groups):
            pane.redraw()
        assert made == []
        shown = grid.shown
        grid.chosen = grid.keys[1]
        assert 0 < len(made) < len(shown)
        assert grid.shown != shown
