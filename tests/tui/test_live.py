"""The Live view, driven by its keys: every one of them, at two sizes."""

from dataclasses import replace

import pytest
from textual.geometry import Region

from hud_tui.events import CheckpointAdded, HeadMoved, TreeRead, WorkChanged
from hud_tui.key_names import spell
from hud_tui.keys import of_view
from hud_tui.rl.alarms.alarm import Level, Report
from hud_tui.rl.axes import Axis
from hud_tui.rl.curves import WEIGHTS
from hud_tui.rl.groups import Order
from hud_tui.rl.metrics import title
from hud_tui.rl.progress import Liveness, State
from hud_tui.rl.report import picture
from hud_tui.rl.run import Run
from hud_tui.rl.tree_layout import Lanes
from hud_tui.tui.screens.live import LiveScreen
from hud_tui.tui.widgets.chart import MetricGrid, metric_title
from hud_tui.tui.widgets.checkpoint_details import details
from hud_tui.tui.widgets.focus_chart import FocusChart
from hud_tui.tui.widgets.group_grid import GroupGrid
from hud_tui.tui.widgets.lines import LinesView
from hud_tui.tui.widgets.run_status import ConstantLine, EventLog, Reason, RunStatus, constants_text
from hud_tui.wire import JobError
from tests.conftest import until
from tests.tui import runs
from tests.tui.stage import LIVE, Stage, staged

OVER = frozenset({"before_after", "charts", "compare", "details", "export", "time"})
"""Actions that open something over the view; of a run that has only improved `bisect` does not."""
SIZES = ((120, 40), (40, 12))


def text_of(pane: LinesView) -> str:
    """What the pane shows, its title included."""
    return "\n".join(pane.render_line(row).text for row in range(pane.size.height))


def status_of(stage: Stage) -> str:
    return stage.live.query_one(RunStatus).line.plain


def newer(run: Run, steps: int = 1) -> Run:
    nodes = runs.checkpoints(run.series.length + steps)[run.series.length :]
    for node in nodes:
        run = run.fold(CheckpointAdded(checkpoint=node))
    return run


@pytest.mark.parametrize("size", SIZES)
async def test_every_key_works_and_nothing_is_clipped(size: tuple[int, int]) -> None:
    async with staged(runs.sampling(runs.run_of(30), 50), size=size) as (stage, pilot):
        for action in of_view("live"):
            if action.name in ("cancel_run", "resume_run"):
                continue
            for key in action.keys.split(","):
                await pilot.press(key)
                if action.name in OVER:
                    await until(lambda: stage.screen is not stage.live and stage.screen.is_mounted)
                    await pilot.pause()
                    for rows in stage.screen.query("RowList"):
                        assert rows.region in stage.screen.region
                    await pilot.press("escape")
                    await until(lambda: stage.screen is stage.live)
                assert stage.screen is stage.live, f"{spell(key)} stays on the view"
        seen = [pane for pane in stage.live.query(LinesView) if pane.is_on_screen]
        assert seen
        for pane in seen:
            assert pane.region in stage.screen.region
            assert all(strip.cell_length == pane.size.width for strip in pane.shown)


def test_a_held_out_reward_says_of_how_many_rollouts_it_is() -> None:
    node = runs.checkpoints(1)[-1]
    sized = {**(node.metrics or {}), "heldout_reward": 0.5, "num_heldout_traces": 48.0}
    run = Run().fold(TreeRead(checkpoints=(node.model_copy(update={"metrics": sized}),)))
    assert metric_title("heldout_reward", run) == "held-out reward (of the run, n 48)"
    assert metric_title("reward_mean", run) == "mean reward"


def test_a_mean_reward_says_that_its_tasks_were_chosen() -> None:
    node = runs.checkpoints(1)[-1].model_copy(update={"draw": "signal"})
    run = Run().fold(TreeRead(checkpoints=(node,)))
    assert metric_title("reward_mean", run) == "mean reward of tasks chosen by signal"
    assert "of tasks chosen by signal" in picture(run, ["reward_mean"])
    lanes = Lanes()
    lanes.show(run.tree)
    lines = [text.plain.strip() for text in details(run, lanes, 0, 0.0, 100)]
    assert any("batch" in text and "by signal" in text for text in lines)


async def test_a_metric_is_enlarged_smoothed_and_read_on_other_axes() -> None:
    async with staged(runs.run_of(30)) as (stage, pilot):
        chart = stage.live.query_one(FocusChart)
        assert "mean reward" in text_of(chart)
        await pilot.press("l")
        assert stage.live.focus_key == "heldout_reward"
        assert "held-out reward (of the run)" in text_of(chart), "not an evaluation's"
        await pilot.press("down", "l", "h", "k")
        assert stage.live.focus_key == "heldout_reward"

        await pilot.press("h")
        assert stage.live.focus_key == "reward_mean"
        before = text_of(chart)
        await pilot.press("s")
        assert "EMA(0.9) =" in text_of(chart)
        assert text_of(chart) != before
        await pilot.press(*["s"] * 9)
        assert stage.live.chart_view.weight == WEIGHTS[-1]
        await pilot.press(*["S"] * 9)
        assert stage.live.chart_view.weight == 0
        assert "EMA" not in text_of(chart)

        await pilot.press("L", "x")
        assert "by time · log · step 30" in text_of(chart)
        assert "20s" in text_of(chart)
        await pilot.press("x")
        assert "by tokens" in text_of(chart)
        assert "20k" in text_of(chart)
        await pilot.press("x", "L")
        assert stage.live.chart_view.axis is Axis.STEP
        assert "log" not in text_of(chart)

        [title, *_] = chart.shown[0]
        await pilot.press("t")
        await until(lambda: next(iter(chart.shown[0])).style != title.style)
        light = stage.current_theme
        assert not light.dark
        [title, *_] = chart.shown[0]
        assert title.style.color.name == light.foreground


async def test_the_chosen_metric_stays_when_others_arrive() -> None:
    run = runs.with_metrics({"zebra": [1.0, 2.0], "yak": [3.0, 4.0]})
    async with staged(run) as (stage, pilot):
        await pilot.press("l")
        assert stage.live.focus_key == "yak"
        stage.play(
            runs.with_metrics({"reward_mean": [0.1] * 3, "zebra": [1.0] * 3, "yak": [3.0] * 3})
        )
        await pilot.pause()
        assert stage.live.focus_key == "yak"


async def test_the_grid_scrolls_to_the_cursor() -> None:
    async with staged(runs.run_of(30), size=(80, 24)) as (stage, pilot):
        grid = stage.live.metrics
        assert "more row" in text_of(grid)
        await pilot.press("down", "down")
        assert f"● {title(stage.live.charts.charted[4])}" in text_of(grid)
        await pilot.press(*["pagedown"] * len(stage.live.charts.charted))
        assert "more row" not in text_of(grid)
        await pilot.press("pageup")
        assert "more row" in text_of(grid)


async def test_frozen_holds_the_screen_and_says_what_is_behind() -> None:
    async with staged(runs.run_of(30)) as (stage, pilot):
        await pilot.press("f")
        before = [text_of(pane) for pane in stage.live.query(LinesView)]
        await stage.show(newer(stage.scene, 1))
        assert "⏸ frozen at step-000030 · 1 step behind" in status_of(stage)
        await stage.show(newer(stage.scene, 3))
        assert [text_of(pane) for pane in stage.live.query(LinesView)] == before
        assert "⏸ frozen at step-000030 · 4 steps behind" in status_of(stage)
        await pilot.press("f")
        assert "step 34" in text_of(stage.live.query_one(FocusChart))
        assert "⏸" not in status_of(stage)

        await stage.show(runs.run_of(30))
        chart = stage.live.query_one(FocusChart)
        assert text_of(chart).splitlines()[0].rstrip().endswith(" step 30")
        await pilot.press("f")
        node = runs.checkpoints(31)[-1]
        branch = node.model_copy(update={"prev_model_checkpoint_id": "c12", "id": "b31"})
        back = stage.scene.fold(HeadMoved(checkpoint_id="c12", cause="set"))
        stage.play(back.fold(CheckpointAdded(checkpoint=branch)))
        assert "frozen at step-000030 · now at step-000031" in status_of(stage)
        await pilot.press("f")
        assert "13 steps up to step-000031" in text_of(chart)

        branch = node.model_copy(update={"prev_model_checkpoint_id": None, "id": "b31"})
        stage.play(back.fold(CheckpointAdded(checkpoint=branch)))
        await until(lambda: "1 step up to step-000031" in text_of(chart))

        await stage.show(runs.run_of(30))
        await pilot.press("f")
        model = runs.MODEL.model_copy(update={"id": "m2", "model_name": "other"})
        stage.play(replace(runs.run_of(3), model=model))
        assert not stage.live.frozen
        assert stage.live.shown.series.length == 3


async def test_tab_goes_round_the_panes_and_shows_them_where_there_is_room_for_one() -> None:
    async with staged(runs.run_of(30), size=(40, 12)) as (stage, pilot):
        for kind in (GroupGrid, EventLog, MetricGrid):
            await pilot.press("tab")
            await until(lambda kind=kind: isinstance(stage.focused, kind))
            assert stage.live.query_one(kind).size.height > 0
        await pilot.press("shift+tab")
        await until(lambda: isinstance(stage.focused, EventLog))
        assert not stage.live.query_one(FocusChart).display
        await pilot.press("shift+tab")
        await until(lambda: isinstance(stage.focused, GroupGrid))


async def test_o_sorts_the_groups() -> None:
    async with staged(runs.run_of(30)) as (stage, pilot):
        grid = stage.live.query_one(GroupGrid)
        assert "signal first" in text_of(grid)
        assert "all failed" not in text_of(grid).splitlines()[2]
        await pilot.press("tab", *["down"] * 11)
        assert "┄ all failed" in text_of(grid)
        await pilot.press("o")
        assert grid.order is Order.TASK
        assert "by task" in text_of(grid)


async def test_groups_are_shown_as_rollouts_arrive_and_the_strip_where_there_is_room() -> None:
    run = runs.run_of(5)
    async with staged(runs.sampling(run, 5)) as (stage, pilot):
        grid = stage.live.query_one(GroupGrid)
        assert "5 of 8" in text_of(grid)
        assert "12 groups × 8" in text_of(grid)
        await stage.show(runs.sampling(run, 96))
        assert "pending" not in text_of(grid)
        assert "with signal" in text_of(grid)

        await stage.show(runs.run_of(30))
        assert "height: std" in text_of(grid)
        await pilot.resize_terminal(80, 40)
        await until(lambda: "height: std" not in text_of(grid))
        assert "so far" in text_of(grid)
        await pilot.resize_terminal(60, 40)
        await until(lambda: "so far" not in text_of(grid))


async def test_events_are_read_in_peace_while_others_arrive() -> None:
    run = runs.run_of(30)
    for node in runs.checkpoints(29)[:20]:
        run = run.fold(runs.taken(node))
    async with staged(run) as (stage, pilot):
        log = stage.live.query_one(EventLog)
        await pilot.press("tab", "tab")
        await until(lambda: isinstance(stage.focused, EventLog))
        await pilot.press("down", "down", "down")
        read = text_of(log)
        stage.play(run.fold(runs.taken(runs.checkpoints(31)[-1])))
        await until(lambda: log.scroll_offset.y == 4)
        assert text_of(log) == read


FRESHNESS = [
    (LIVE, "↻ stream 0 s"),
    (Liveness(State.STALLED, "stream", 12.0), "⚠ stalled 12 s, usual step 0.8 s"),
    (Liveness(State.RECONNECTING, "stream", 9.0, "lost", 4.0), "⚠ no answer 9 s; retrying in 4 s"),
]


async def test_the_screen_says_how_fresh_it_is_and_who_trains_or_waits() -> None:
    connecting = Liveness(State.CONNECTING, "connecting", None)
    async with staged(runs.run_of(30), connecting) as (stage, _):
        for freshness, said in FRESHNESS:
            stage.play(stage.scene, freshness)
            await until(lambda said=said: said in status_of(stage))
            assert "step 30/400" in status_of(stage)

        stage.play(replace(runs.run_of(3), job=None), LIVE)
        await until(lambda: "trained by a client loop" in status_of(stage))
        stage.play(Run(model=runs.MODEL, loaded=True))
        await until(lambda: "no run in progress" in status_of(stage))

        run = runs.run_of(30)
        held = runs.job(30, 400).model_copy(update={"waits": "paused: short of \x1b capacity"})
        stage.play(run.fold(WorkChanged(work=held, at=0.0)))
        await until(lambda: "mixed on arith-rl waiting" in status_of(stage))
        assert "⚠ paused: short of" in status_of(stage)
        assert " left" not in status_of(stage)
        assert "\x1b" not in status_of(stage)
        stage.play(stage.scene.fold(WorkChanged(work=runs.job(30, 400), at=1.0)))
        await until(lambda: "↻ stream" in status_of(stage))
        assert " left" in status_of(stage)
        stage.play(stage.scene, Liveness(State.STALLED, "stream", 50.0))
        await until(lambda: "⚠ stalled" in status_of(stage))
        assert " left" not in status_of(stage)


async def test_an_empty_view_says_what_to_press() -> None:
    unread = Run(model=runs.MODEL)
    async with staged(unread, size=(80, 24)) as (stage, pilot):
        nothing = stage.live.query_one("#nothing")
        for run, said, status in (
            (unread, "Reading the checkpoint tree …", "reading the run …"),
            (Run(), "No model yet. Press 1 to choose one.", ""),
            (unread.fold(TreeRead(checkpoints=())), "No run yet. Press 2", "no run in progress"),
        ):
            stage.play(run)
            await until(lambda said=said: said in str(nothing.render()))
            assert nothing.display
            assert status in status_of(stage)
            await pilot.press("s", "f", "enter", "left", "tab", "X", "R", "y", "v")
            assert not stage.live.frozen
            await stage.show(runs.run_of(3))
            assert not nothing.display
            assert stage.live.query_one(FocusChart).size.height > 3


async def test_odd_metrics_are_drawn_and_hostile_names_are_text() -> None:
    async with staged(runs.odd_metrics()) as (stage, pilot):
        await pilot.press("x")
        chart = text_of(stage.live.query_one(FocusChart))
        assert "by step: time not reported" in chart
        assert "80" in chart.splitlines()[-2]
        await pilot.press("x", "x", "l", "l")
        constants = str(stage.live.query_one(ConstantLine).render())
        assert "constant: constant .700 · zero 0" in constants
        await pilot.resize_terminal(120, 60)
        await until(lambda: "[bold red]not[/x] ␛[31mred" in text_of(stage.live.metrics))
        await pilot.press("h", "h")
        assert "⚠ 11 missing" in text_of(stage.live.query_one(FocusChart))
        enlarged = set()
        for _ in stage.live.shown.series.keys:
            for key in ("l", "left", "L", "O", "s", "S"):
                await pilot.press(key)
            enlarged.add(stage.live.focus_key)
        assert enlarged >= {"infinite", "never", *stage.live.charts.charted[1:]}


async def test_a_hidden_view_draws_nothing_and_catches_up() -> None:
    async with staged(runs.run_of(5)) as (stage, pilot):
        await pilot.press("question_mark")
        await until(lambda: not isinstance(stage.screen, LiveScreen))
        stage.staged.scene = newer(stage.scene, 3)
        assert stage.live.shown.series.length == 5
        await pilot.press("escape")
        await until(lambda: stage.live.shown.series.length == 8)


async def test_only_lines_that_changed_are_repainted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(runs.run_of(30)) as (stage, pilot):
        await pilot.pause()
        asked: list[tuple[LinesView, Region]] = []
        refresh = LinesView.refresh

        def counted(pane: LinesView, *cells: Region, **options: bool) -> LinesView:
            asked.extend((pane, each) for each in cells)
            return refresh(pane, *cells, **options)

        monkeypatch.setattr(LinesView, "refresh", counted)
        stage.play(stage.scene, Liveness(State.LIVE, "stream", 1.0))
        assert asked == []
        stage.play(newer(stage.scene))
        still = {id(pane) for pane, _ in asked}
        assert id(stage.live.query_one(EventLog)) not in still
        assert id(stage.live.query_one(FocusChart)) in still


LONG = (
    "the disk is \x1b[1mfull: " + " ".join(f"sector-{number:03}" for number in range(90)) + " end"
)


def failed(run: Run, why: str, step: int) -> Run:
    job = runs.job(step, 400, "failed").model_copy(update={"error": JobError(message=why)})
    return run.fold(WorkChanged(work=job, at=runs.START))


def reason_of(stage: Stage) -> str:
    return str(stage.live.query_one(Reason).render())


async def test_a_failed_run_says_why_in_full() -> None:
    why = "every group of 20 batches in a row had equal rewards, so there is nothing to train on"
    run = failed(runs.run_of(30), f"{why} \x1b[1m", 30)
    async with staged(run, size=(80, 24)) as (stage, pilot):
        reason = stage.live.query_one(Reason)
        for size in ((80, 24), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert "mixed on arith-rl failed" in status_of(stage)
            assert " ".join(reason_of(stage).split()) == f"failed: {why} ␛[1m"
            await until(lambda: reason.size.height == len(reason_of(stage).splitlines()))


async def test_why_a_run_ended_early_and_well_is_told_in_full() -> None:
    why = "solved: every rollout of the last 20 batches had reward 1; no gradient left to train on"
    job = runs.job(30, 400, "succeeded").model_copy(update={"reason": why})
    run = runs.run_of(30).fold(WorkChanged(work=job, at=runs.START))
    async with staged(run, size=(80, 24)) as (stage, _):
        reason = stage.live.query_one(Reason)
        assert " ".join(reason_of(stage).split()) == f"succeeded: {why}"
        assert reason.display
        assert reason.has_class("-caption"), "nothing is wrong"


async def test_why_a_run_stopped_or_is_not_heard_of_is_shown_in_full() -> None:
    lost = Liveness(State.RECONNECTING, "stream", 9.0, "no answer from " + "x" * 100, 4.0)
    async with staged(runs.run_of(30), lost, size=(80, 24)) as (stage, pilot):
        assert "no answer from" in reason_of(stage)
        assert reason_of(stage).count("x") == 100
        await stage.show(stage.scene, LIVE)
        assert not stage.live.query_one(Reason).display

        begun = Run(model=runs.MODEL, loaded=True).fold(WorkChanged(work=runs.job(0, 400)))
        await stage.show(begun)
        chart = stage.live.query_one(FocusChart)
        assert "The first step is being sampled." in text_of(chart)
        await stage.show(failed(begun, "disk full", 0))
        assert "No steps: the run ended before its first step." in text_of(chart)
        assert "failed: disk full" in reason_of(stage)

        await stage.show(failed(runs.run_of(30), LONG, 30))
        assert "in full under events (tab)" in reason_of(stage)
        await pilot.press("tab", "tab")
        log = stage.live.query_one(EventLog)
        await until(lambda: stage.focused is log and log.size.height > 1)
        seen = ""
        for _ in range(30):
            seen += text_of(log)
            await pilot.press("down")
        words = set(seen.split())
        assert all(f"sector-{number:03}" in words for number in range(90))
        assert "␛[1mfull:" in words


async def test_a_view_that_is_not_there_yet_or_any_more_takes_news() -> None:
    stage = Stage(runs.run_of(30))
    early = LiveScreen(stage.workspace.context)
    early.run, early.frozen, early.pane = runs.run_of(3), True, "groups"
    async with stage.run_test(size=(80, 24)):
        await stage.live.query("*").remove()
        stage.play(Run())
        stage.live.frozen = True
        stage.live.show_pane("events")


async def test_a_metric_with_an_alarm_comes_first_with_its_limit() -> None:
    run = runs.run_of(30)
    title = "off-policy drift"
    alarm = runs.alarm(4, title=title, metric="kl_sample_train", limit=0.0123)
    async with staged(run) as (stage, pilot):
        assert stage.live.charts.charted[0] == "reward_mean"
        assert stage.live.focus_key == "reward_mean"
        await stage.show(replace(run, alarms=Report((alarm,))))
        assert stage.live.charts.charted[0] == "kl_sample_train"
        assert "⚑ KL (sampler ‖ trainer)" in text_of(stage.live.metrics)
        assert "╌ .012" in text_of(stage.live.metrics)
        assert stage.live.focus_key == "reward_mean", "the chosen metric stays chosen"
        await pilot.press("h")
        chart = stage.live.query_one(FocusChart)
        await until(lambda: "⚑ off-policy drift limit .012" in text_of(chart))
        for size, rows in (((80, 24), 2), ((100, 30), 2), ((120, 40), 3)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert stage.live.metrics.curve_rows == rows, "of two rows it takes the change's"
            await until(lambda: "╌ .012" in text_of(stage.live.metrics))
        await stage.show(replace(run, alarms=Report((alarm,), quiet=frozenset({alarm.id}))))
        assert stage.live.charts.charted[0] == "reward_mean"


async def test_the_chart_of_an_alarm_that_was_opened_names_it_and_its_limit() -> None:
    """Also if a more severe one is on the same metric, or it has ended."""
    gap = runs.alarm(4, title="held-out gap", metric="entropy", level=Level.CRITICAL)
    fall = runs.alarm(9, name="fall", title="forgetting", metric="entropy", limit=0.518)
    over = runs.alarm(2, name="over", title="plateau", metric="entropy", active=False, ended=7)
    run = replace(runs.run_of(30), alarms=Report((gap, fall, over)))
    async with staged(run) as (stage, _):
        chart = stage.live.query_one(FocusChart)
        for alarm, said in (
            (fall, "⚑ forgetting limit .518"),
            (over, "⚑ plateau since step 2 until step 7"),
            (gap, "⚑ held-out gap since step 4"),
        ):
            stage.live.session.opened = alarm
            stage.live.on_screen_resume()
            await until(lambda said=said: said in " ".join(text_of(chart).split()))
        stage.live.enlarge("reward_mean")
        stage.live.enlarge("entropy")
        await until(lambda: "⚑ held-out gap" in text_of(chart))


async def test_the_small_charts_are_large_enough_to_read() -> None:
    async with staged(runs.run_of(30)) as (stage, pilot):
        for size, charts in (((120, 40), 6), ((200, 60), 15), ((100, 30), 4)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            grid = stage.live.metrics
            assert charts <= grid.per_row * (grid.body_rows // grid.tall)
            assert grid.body_rows % grid.tall == 0, "no chart is cut off"
            assert "constant: " in str(stage.live.query_one(ConstantLine).render())
            assert all(pane.size.height for pane in stage.live.query(LinesView))


@pytest.mark.parametrize("size", [(80, 24), (100, 30)])
async def test_where_there_is_no_room_for_events_the_newest_is_told_and_a_key_shows_all(
    size: tuple[int, int],
) -> None:
    run = runs.run_of(30)
    for node in runs.checkpoints(29)[20:]:
        run = run.fold(runs.taken(node))
    async with staged(run, size=size) as (stage, pilot):
        log = stage.live.query_one(EventLog)
        await until(lambda: log.size.height == 1 and "step-000029  reward" in text_of(log))
        assert "shift+tab: events" in text_of(log)
        await pilot.press("tab")
        await until(lambda: " tab: events" in text_of(log))
        await pilot.press("tab")
        await until(lambda: log.size.height > 5 and "step-000028  reward" in text_of(log))
        await pilot.press("tab", "shift+tab")
        await until(lambda: stage.focused is log)


def test_the_constants_fit_their_line() -> None:
    values = ["learning rate 1e-4", "clip fraction 0", "min reward 0"]
    whole = "constant: learning rate 1e-4 · clip fraction 0 · min reward 0"
    for width in range(0, 90, 7):
        text = constants_text(values, width)
        assert len(text) <= max(width, len("3 constant"))
        assert text == "3 constant" or text.startswith("constant: learning rate 1e-4")
        assert text == whole if width >= len(whole) else text != whole
