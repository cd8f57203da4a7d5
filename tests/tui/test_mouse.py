"""The mouse in every view: a click selects, two do what enter does, the wheel scrolls what is
under it; keys that are shown can be clicked, and a click beside a dialog leaves it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from hud_tui.events import CheckpointAdded
from hud_tui.rl.compare import branches
from hud_tui.rl.findings import Finding
from hud_tui.tui.app import HudApp
from hud_tui.tui.screens.base import Aside, TextPanel
from hud_tui.tui.screens.chart_settings import ChartList, OverlayList
from hud_tui.tui.screens.compare import ComparePanel
from hud_tui.tui.screens.connect import ConnectScreen
from hud_tui.tui.screens.dialogs import ConfirmDialog, Dialog, HelpScreen, Over, ViewList
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.screens.jobs import Level
from hud_tui.tui.screens.json import JsonScreen, JsonView
from hud_tui.tui.screens.rollout import RolloutScreen
from hud_tui.tui.screens.set_head import HistoryPanel
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.checkpoint_details import CheckpointDetails
from hud_tui.tui.widgets.checkpoint_tree import CheckpointTree
from hud_tui.tui.widgets.focus_chart import FocusChart
from hud_tui.tui.widgets.form import Findings, Picker
from hud_tui.tui.widgets.group_grid import Face, GroupGrid
from hud_tui.tui.widgets.lines import TextPane
from hud_tui.tui.widgets.rollout_columns import RolloutColumns
from hud_tui.tui.widgets.run_status import EventLog
from hud_tui.tui.widgets.table import RowList
from tests.tui import runs
from tests.tui.hand import Hand
from tests.tui.scenes import SCENES
from tests.tui.stage import bare, nobody, staged

pytestmark = pytest.mark.usefixtures("still_time")
USUAL, SMALL = (120, 40), (80, 24)


@asynccontextmanager
async def scene(name: str, size: tuple[int, int] = USUAL) -> AsyncIterator[tuple[Any, Hand]]:
    """One of the scenes, and a hand over it."""
    app = SCENES[name].app()
    async with app.run_test(size=size, notifications=True) as pilot:
        await SCENES[name].ready(pilot)
        yield app, Hand(app, pilot)


@asynccontextmanager
async def stage(steps: int = 120, size: tuple[int, int] = USUAL) -> AsyncIterator[tuple[Any, Hand]]:
    """Live over a run, and a hand over it."""
    async with staged(runs.run_of(steps), size=size, notifications=True) as (app, pilot):
        await pilot.pause()
        yield app, Hand(app, pilot)


# Getting around


async def test_the_footer_s_views_are_clicked() -> None:
    async with scene("models", (300, 40)) as (_, hand):
        for name in ("Launch", "Live", "Checkpoints", "Runs", "Jobs", "Alarms", "Models"):
            foot = hand.lines[-1]
            await hand.click((foot.index(name) + 1, 39))
            await hand.until_view(name.lower())


async def test_where_the_views_have_no_room_a_click_lists_them() -> None:
    async with scene("models", SMALL) as (_, hand):
        for place in ((hand.lines[-1].index("views"), 23), (2, 0)):
            await hand.click(place)
            await hand.until_screen(ViewList)
            assert "Watch the run" in "".join(hand.lines)
            await hand.click("See the checkpoints; set the head")
            await hand.until_view("checkpoints")


async def test_the_top_line_s_parts_are_clicked() -> None:
    places = {"models": "mixed-rl", "checkpoints": "▶ step-", "jobs": "job 7f3a", "alarms": "⚑"}
    async with scene("alarms", (160, 40)) as (_, hand):
        for view, text in places.items():
            await hand.until(lambda text=text: text in hand.lines[0])
            await hand.click((hand.lines[0].index(text) + (len(text) > 1), 0))
            await hand.until_view(view)


async def test_a_footer_s_key_and_a_line_of_the_help_do_what_the_key_does() -> None:
    async with scene("checkpoints") as (app, hand):
        assert "set head" not in hand.lines[-1], "the head is under the cursor"
        await hand.press("down")
        await hand.until(lambda: "set head" in hand.lines[-1])
        await hand.click((hand.lines[-1].index("set head"), 39))
        await hand.until(lambda: app._notifications or isinstance(app.screen, Dialog))
    async with scene("models") as (app, hand):
        await hand.click((hand.lines[-1].index("filter"), 39))
        await hand.until(lambda: app.screen.filter_field.has_focus)
        await hand.until(lambda: "next" in hand.lines[-1])
        await hand.click((hand.lines[-1].index("next"), 39))
        await hand.until(lambda: not app.screen.filter_field.has_focus)
        await hand.click((hand.lines[-1].index("help"), 39))
        await hand.until_screen(HelpScreen)
        await hand.until(lambda: "Show only the models with this text" in hand.drawn)
        await hand.click("Show only the models with this text")
        await hand.until_view("models")
        await hand.until(lambda: app.screen.filter_field.has_focus)


async def test_a_key_that_a_view_says_to_press_can_be_clicked() -> None:
    async with staged(runs.Run(), size=SMALL) as (app, pilot):
        hand = Hand(app, pilot)
        asked: list[str] = []
        app.action_view = lambda name: asked.append(name)
        await hand.until(lambda: any("No model yet" in line for line in hand.lines))
        x, y = hand.find("Press 1")
        await hand.click((x + 6, y))
        await hand.until(lambda: asked == ["models"])


async def test_the_first_question_is_answered_by_a_click() -> None:
    asked: list[str] = []
    app = HudApp(nobody, None, Start())
    app.open_client = lambda mode, key=None: asked.append(mode)
    async with app.run_test(size=SMALL) as pilot:
        hand = Hand(app, pilot)
        assert isinstance(app.screen, ConnectScreen)
        await hand.click("the embedded service")
        await hand.until(lambda: asked == ["local"])


# Dialogs and panels

OVERS: dict[str, dict[str, tuple[str, ...]]] = {
    "models": {
        "help": ("question_mark",), "palette": ("ctrl+p",), "fork": ("home", "F"),
        "export": ("ctrl+e",),
    },
    "live": {"charts": ("a",), "overlays": ("c",), "group": ("tab", "enter")},
    "checkpoints": {"head": ("b",), "history": ("V",), "compare": ("down", "c")},
    "jobs": {"copy as": ("y",)},
}  # fmt: skip


@pytest.mark.parametrize("where", OVERS)
async def test_a_click_beside_it_leaves_what_lies_over_a_view(where: str) -> None:
    async with scene(where, (160, 44)) as (app, hand):
        view = app.screen
        for name, keys in OVERS[where].items():
            await hand.press(*keys)
            await hand.until(lambda: app.screen is not view and app.screen.is_modal)
            await hand.until(lambda: any(child.region for child in app.screen.children))
            over = app.screen
            assert isinstance(over, Over), name
            box = max((child.region for child in over.children), key=lambda region: region.area)
            await hand.click((box.x + box.width // 2, box.y))
            assert app.screen is over, f"the edge of {name} is its own"
            await hand.click((1, 22))
            await hand.until(lambda: app.screen is view)


async def test_a_dialog_s_buttons_are_clicked_and_cancel_changes_nothing() -> None:
    answers: list[bool | None] = []
    async with bare() as hand:
        for button, answer in (("Cancel", False), ("Do it", True)):
            dialog = ConfirmDialog("Really", ["Something would be done."], "Do it")
            await hand.app.push_screen(dialog, answers.append)
            await hand.click(button)
            await hand.until(lambda answer=answer: answers and answers[-1] is answer)
        assert answers == [False, True]


async def test_a_panel_s_foot_is_clicked() -> None:
    async with scene("checkpoints") as (app, hand):
        view = app.screen
        await hand.open(HistoryPanel, "V")
        await hand.click("esc back")
        await hand.until(lambda: app.screen is view)
        await hand.open(ComparePanel, "down", "c")
        pane = app.screen.query_one(TextPane)
        await hand.wheel(hand.cell(pane, 3, 3), 3)
        await hand.click("esc back")
        await hand.until(lambda: app.screen is view)


# Lists


async def test_models_are_clicked_scrolled_and_opened() -> None:
    async with scene("models") as (app, hand):
        rows = app.screen.rows
        name = next(m.model_name for m in app.screen.models if m.model_name.startswith("letters"))
        await hand.click(name)
        await hand.until(lambda: app.screen.chosen.model_name == name)
        await hand.click(hand.cell(rows, 3, 0))  # the titles
        await hand.click(hand.cell(rows, 3, 1))  # a heading
        assert app.screen.chosen.model_name == name
        assert not app.screen.get_selected_text()
        await hand.click(name, times=2)
        await hand.until_view("live")
        assert hand.run.model.model_name == name


async def test_the_wheel_scrolls_a_list_and_leaves_its_cursor() -> None:
    async with scene("launch", SMALL) as (app, hand):
        tasks = app.screen.query_one("#tasks", RowList)
        await hand.until(lambda: len(tasks.rows) > 20)
        key = tasks.key
        await hand.wheel(hand.cell(tasks, 5, 2), 3)
        await hand.until(lambda: tasks.scroll_offset.y > 0)
        assert tasks.key == key
        await hand.wheel(hand.cell(tasks, 5, 2), -9)
        await hand.until(lambda: tasks.scroll_offset.y == 0)


async def test_launch_by_the_mouse_alone() -> None:
    async with scene("launch") as (app, hand):
        screen = app.screen
        sources, tasks = screen.sources, screen.query_one("#tasks", RowList)
        await hand.until(lambda: tasks.rows and not screen.draft.checking)
        await hand.click(hand.cell(tasks, 5, 3))
        await hand.until(lambda: tasks.cursor == 2)
        await hand.click(hand.cell(tasks, 5, 0))
        await hand.until(lambda: screen.draft.trial.by_std)
        picker = screen.query_one("#reasoning_effort", Picker)
        before = picker.value
        await hand.click(hand.cell(picker, 4, 0))
        await hand.until(lambda: picker.value != before)
        await hand.click(hand.cell(picker, 0, 0))
        await hand.until(lambda: picker.value == before)
        other = next(row.key for row in sources.rows if row.key != screen.draft.source)
        at = [row.key for row in sources.rows].index(other)
        await hand.click(hand.cell(sources, 3, at + 1), times=2)
        assert app.screen.selections == {}, "two clicks on a list select no text"
        await hand.until(lambda: screen.draft.source == other and not screen.draft.checking)
        await hand.until(lambda: not screen.button.disabled)
        await hand.click(hand.cell(screen.button, 2, 0))
        await hand.until_screen(ConfirmDialog)


async def test_all_findings_are_a_click_away() -> None:
    async with scene("launch", (80, 20)) as (app, hand):
        findings = app.screen.query_one(Findings)
        trouble = Finding("args", "failure", "a fault " * 20, "mend it " * 20)
        findings.findings = (*findings.findings, *[trouble] * 9)
        await hand.until(lambda: "shows all findings" in "".join(hand.lines))
        await hand.click("d shows all findings")
        await hand.until_screen(TextPanel)


async def test_jobs_go_in_by_two_clicks_and_siblings_by_one() -> None:
    async with scene("jobs") as (app, hand):
        reader = app.screen
        ids = [rollout.trace.id for rollout in reader.group.rollouts]
        await hand.press("tab")
        await hand.click(hand.cell(reader.list, 3, 3))
        await hand.until(lambda: reader.trace_id == ids[2])
        await hand.click((8 + 3, 1))
        await hand.until(lambda: reader.trace_id == ids[3])
        await hand.press("tab", "escape", "escape")
        screen = app.screen
        await hand.until(lambda: screen.level is Level.JOBS)
        jobs = screen.list
        await hand.click(hand.cell(jobs, 5, jobs.cursor + 1), times=2)
        await hand.until(lambda: screen.level is Level.TRACES and screen.part is not None)
        traces = screen.list
        await hand.until(lambda: traces.rows)
        at = next(at for at, row in enumerate(traces.rows) if not row.heading)
        await hand.click(hand.cell(traces, 5, at + 1), times=2)
        await hand.until_screen(RolloutScreen)


async def test_a_turn_folds_by_a_click_on_its_mark_or_by_two_on_its_line() -> None:
    async with scene("jobs") as (app, hand):
        view = app.screen.view
        await hand.until(lambda: view.has_focus and all(block.is_open for block in view.blocks))
        await hand.click(hand.cell(view, 0, 0))
        await hand.until(lambda: not view.blocks[0].is_open)
        await hand.click(hand.cell(view, 9, 1), times=2)
        await hand.until(lambda: not view.blocks[1].is_open)
        await hand.click(hand.cell(view, 9, 2))
        assert view.blocks[2].is_open, "a click on the text selects only"


async def test_a_compared_run_is_chosen_by_a_click() -> None:
    async with scene("runs-compared") as (app, hand):
        screen = app.screen
        await hand.until(lambda: len(screen.legend.rows) > 1)
        second, _ = screen.legend.rows[1]
        await hand.click(hand.cell(screen.legend, 5, 2))
        await hand.until(lambda: screen.curves.chosen == second.id)


async def test_alarms_are_clicked_and_two_clicks_go_to_the_onset() -> None:
    async with scene("alarms") as (app, hand):
        rows = app.screen.list
        await hand.until(lambda: app.screen.alarm is not None)
        onset = app.screen.alarm.checkpoint_id
        await hand.click(hand.cell(rows, 5, rows.cursor + 1), times=2)
        await hand.until_view("live")
        assert app.workspace.session.checkpoint_id == onset


# Live


def chart_of(app: Any) -> FocusChart:
    return app.screen.query_one(FocusChart)


async def test_the_chart_is_clicked_opened_zoomed_and_panned() -> None:
    async with stage() as (app, hand):
        live, chart = app.live, chart_of(app)
        middle = hand.cell(chart, 60, 5)
        await hand.click(middle)
        await hand.until(lambda: live.cursor is not None)
        here = live.cursor
        assert here == chart.row_at(60)
        assert "┊ step-" in chart.render_line(0).text
        await hand.wheel(middle, -2)
        await hand.until(lambda: live.chart_view.span == 67)  # 120 → 90 → 67 steps
        assert live.cursor == here
        assert abs(chart.row_at(60) - here) <= 1, "what is under the pointer stays there"
        rows = live.chart_view.rows(120)
        await hand.wheel(middle, -1, shift=True)
        await hand.until(lambda: live.chart_view.rows(120)[0] < rows[0])
        await hand.wheel(middle, 9)
        await hand.until(lambda: live.chart_view.span is None)
        await hand.click(middle, times=2)
        await hand.until(lambda: live.pane == "groups")
        await hand.click((chart.region.x + 1, chart.region.y + 3))  # its y axis
        assert live.cursor == here

        await hand.press("escape", "escape", "escape")
        chart = chart_of(app)
        await hand.pilot.mouse_down(chart, offset=(30, 5))
        await hand.pilot.hover(chart, offset=(50, 5))
        await hand.until(lambda: chart.band == (30, 50))
        row = chart.render_line(5)
        ground = [segment.style.bgcolor for segment in row.crop(40, 41) if segment.style]
        beside = [segment.style.bgcolor for segment in row.crop(60, 61) if segment.style]
        assert ground != beside
        await hand.pilot.mouse_up(chart, offset=(50, 5))
        await hand.until(lambda: chart.band is None)


async def test_a_span_drawn_in_the_chart_fills_it() -> None:
    async with stage() as (app, hand):
        live, chart = app.live, chart_of(app)
        start, end = chart.row_at(30), chart.row_at(70)
        await hand.drag(hand.cell(chart, 70, 5), hand.cell(chart, 30, 5))
        await hand.until(lambda: live.chart_view.span is not None)
        assert live.chart_view.rows(120) == (start, end + 1)
        assert live.cursor is None, "a span is no click"
        assert chart.band is None
        await hand.drag(hand.cell(chart, 40, 5), hand.cell(chart, 41, 5))
        assert live.chart_view.rows(120) == (start, end + 1), "a shaky click is no span"
        await hand.press("0")
        await hand.drag(hand.cell(chart, 20, 5), (119, 39))
        await hand.until(lambda: live.chart_view.span is not None and live.chart_view.end is None)


async def test_metrics_are_clicked_and_the_wheel_scrolls_them() -> None:
    async with stage(size=SMALL) as (app, hand):
        live, grid = app.live, app.live.metrics
        third = grid.keys[1]
        await hand.click(hand.cell(grid, 60, 2))
        await hand.until(lambda: live.focus_key == third)
        await hand.wheel(hand.cell(grid, 10, 2), 2)
        await hand.until(lambda: grid.scroll_offset.y > 0)
        assert live.focus_key == third
        app.play(runs.run_of(121))
        await hand.until(lambda: live.shown.series.length == 121)
        assert grid.scroll_offset.y > 0, "what arrives does not scroll back"
        await hand.click(hand.cell(grid, 10, 0))  # its heading
        assert live.focus_key == third
        await hand.click(hand.cell(grid, 10, 2), times=2)
        await hand.until(lambda: live.full)


async def test_in_the_curve_of_the_chosen_metric_a_click_points_at_a_step() -> None:
    async with stage() as (app, hand):
        live, grid = app.live, app.live.metrics
        place = hand.cell(grid, 50, 3)  # in the second chart
        await hand.click(place)
        await hand.until(lambda: live.focus_key == grid.keys[1])
        assert live.cursor is None
        await hand.click((place[0], place[1] - 1))
        await hand.until(lambda: live.cursor is not None)
        step = live.cursor
        assert 0 < step < 119
        await hand.click((place[0] + 3, place[1]))
        await hand.until(lambda: live.cursor > step)
        later = live.cursor
        await hand.click((place[0], hand.cell(grid, 0, 1)[1]))  # its title
        assert live.cursor == later
        await hand.click(place, times=2)
        await hand.until(lambda: live.pane == "groups")
        assert live.cursor == step


async def test_the_strip_is_clicked_to_a_step_and_opened() -> None:
    async with stage() as (app, hand):
        await hand.press("tab", "v")
        grid = app.screen.query_one(GroupGrid)
        await hand.until(lambda: grid.face is Face.STRIP)
        await hand.click(hand.cell(grid, 20, 3))
        await hand.until(lambda: app.live.cursor is not None)
        step = app.live.cursor
        await hand.click(hand.cell(grid, 20, 3), times=2)
        await hand.until(lambda: grid.face is Face.REWARDS)
        assert app.live.cursor == step


async def test_groups_strip_and_events_are_clicked_and_scrolled() -> None:
    async with stage() as (app, hand):
        app.play(runs.sampling(app.scene, 50))
        log = app.screen.query_one(EventLog)
        await hand.until(lambda: log.count > log.body_rows)
        await hand.wheel(hand.cell(log, 5, 2), 1)
        await hand.until(lambda: log.scroll_offset.y > 0)

        app.play(runs.run_of(120))
        await hand.pilot.pause()
        grid = app.screen.query_one(GroupGrid)
        await hand.until(lambda: grid.slugs)
        await hand.click(hand.cell(grid, 5, 1 + grid.named + 2))
        await hand.until(lambda: grid.picked == grid.slugs[2])
        await hand.wheel(hand.cell(grid, 5, 3), 2)
        assert grid.picked == grid.slugs[2]
        await hand.wheel(hand.cell(grid, 5, 3), -2)
        await hand.click(hand.cell(grid, 5, 1 + grid.named + 1), times=2)
        await hand.until_screen(GroupScreen)
        columns = app.screen.query_one(RolloutColumns)
        await hand.click(hand.cell(columns, columns.cell + 4, 2))
        await hand.until(lambda: columns.picked == 1)
        await hand.wheel(hand.cell(columns, 3, 3), 1)
        await hand.click("esc back")
        await hand.until(lambda: app.screen is app.live)


async def test_charts_and_overlays_are_chosen_by_two_clicks() -> None:
    async with stage() as (app, hand):
        await hand.press("a")
        await hand.until(lambda: isinstance(app.screen, ChartList) and app.screen.rows.rows)
        rows = app.screen.rows
        key = rows.rows[3].key
        await hand.click(hand.cell(rows, 5, 4))
        await hand.click("space show or hide")
        await hand.until(lambda: key in app.live.choices.hidden)
        await hand.click("space show or hide")
        await hand.until(lambda: key not in app.live.choices.hidden)
        await hand.click(hand.cell(rows, 5, 4), times=2)
        await hand.until(lambda: app.screen is app.live and app.live.focus_key == key)
        await hand.open(OverlayList, "c")
        await hand.click("nothing", times=2)
        await hand.until(lambda: app.screen is app.live)
        assert not branches(app.scene)


# Checkpoints


async def test_the_tree_is_clicked_unfolded_and_scrolled() -> None:
    async with scene("checkpoints", SMALL) as (app, hand):
        tree = app.screen.query_one(CheckpointTree)
        await hand.click(hand.cell(tree, 10, 2))
        await hand.until(lambda: tree.cursor.number == 1)
        fold = next(y for y, line in enumerate(hand.lines) if "⋮" in line)
        count = len(tree.rows)
        await hand.click((10, fold), times=2)
        await hand.until(lambda: len(tree.rows) > count)
        position = tree.position
        await hand.wheel(hand.cell(tree, 10, 3), 4)
        await hand.until(lambda: tree.scroll_offset.y > 0)
        assert tree.position == position


async def test_details_are_scrolled_and_selected_under_the_pointer() -> None:
    async with scene("checkpoints", (120, 20)) as (app, hand):
        details = app.screen.query_one(CheckpointDetails)
        tree = app.screen.query_one(CheckpointTree)
        await hand.wheel(hand.cell(details, 3, 3), 2)
        await hand.until(lambda: details.scroll_offset.y > 0)
        assert tree.scroll_offset.y == 0
        assert app.screen.focused is tree

        pane = app.screen.query_one(CheckpointDetails)
        pane.scroll_to(y=2, animate=False)
        await hand.until(lambda: pane.scroll_offset.y == 2)
        await hand.drag(hand.cell(pane, 0, 1), hand.cell(pane, 7, 1))
        await hand.until(lambda: app.screen.get_selected_text() == pane.lines[3].plain[:8])


async def test_steps_that_arrive_do_not_scroll_back_what_the_wheel_has_left() -> None:
    async with scene("checkpoints", SMALL) as (app, hand):
        view, tree = app.screen, app.screen.query_one(CheckpointTree)
        await hand.press("a")
        await hand.until(lambda: len(tree.rows) > 60)
        await hand.press(*["f"] * (not tree.follow))
        await hand.until(lambda: tree.follow)
        await hand.wheel(hand.cell(tree, 10, 3), 10)
        await hand.until(lambda: tree.scroll_offset.y > tree._visible)
        read = [line[:30] for line in hand.lines[3:10]]
        newest = view.run.head.model_copy(
            update={"id": "new", "name": "step-009999", "parent_id": view.run.head.id}
        )
        view.run = view.run.fold(CheckpointAdded(checkpoint=newest))
        await hand.until(lambda: len(tree.checkpoints) == len(view.run.tree))
        await hand.pilot.pause()
        assert [line[:30] for line in hand.lines[3:10]] == read
        at = tree.scroll_offset.y
        tree.mark(replace(tree.marks, onsets=tree.marks.onsets | {view.run.head.id}))
        await hand.pilot.pause()
        assert tree.scroll_offset.y == at, "nor do alarms and notes"


# Selecting


async def test_text_of_a_rollout_is_selected_and_copied() -> None:
    async with scene("jobs") as (app, hand):
        view = app.screen.view
        await hand.until(lambda: view.blocks)
        lines = view.plain.split("\n")
        y = next(y for y, line in enumerate(lines) if line.startswith("  ") and len(line) > 8)
        want = lines[y]
        start, end = hand.cell(view, 0, y), hand.cell(view, 5, y)
        await hand.drag(start, end)
        await hand.until(lambda: app.screen.get_selected_text() == want[:6])
        assert view.render_line(y).text[2:].startswith(want[2:6])
        styles = {str(part.style.bgcolor) for part in view.render_line(y) if part.style}
        assert len(styles) > 1, "what is selected has colours of its own"
        await hand.press("y")
        assert app.clipboard == want[:6]
        await hand.drag(start, hand.cell(view, 3, y + 2))
        both = f"{want}\n{lines[y + 1]}\n{lines[y + 2][:4]}"
        await hand.until(lambda: app.screen.get_selected_text() == both)
        await hand.press("ctrl+c")
        assert app.clipboard == both
        assert app.is_running
        await hand.click(hand.cell(view, 0, y))
        assert not app.screen.get_selected_text()


# JSON


async def test_a_document_is_folded_by_its_marks_and_by_two_clicks() -> None:
    async with bare(SMALL) as hand:
        document = {"job": {"status": "running", "step": 3}, "tree": list(range(60))}
        await hand.app.push_screen(JsonScreen("a document", document, Aside))
        view = hand.screen.query_one(JsonView)
        await hand.until(lambda: view.has_focus)
        await hand.click("tree")
        await hand.until(lambda: view.cursor == 1)
        assert len(view.tree_of.lines) == 2, "a click on the text selects only"
        await hand.click("tree", times=2)
        await hand.until(lambda: len(view.tree_of.lines) == 62)
        await hand.wheel(hand.cell(view, 3, 3), 3)
        await hand.until(lambda: view.scroll_offset.y > 0)
        assert view.cursor == 1
        await hand.wheel(hand.cell(view, 3, 3), -3)
        await hand.until(lambda: view.scroll_offset.y == 0)
        await hand.click("▸")
        await hand.until(lambda: len(view.tree_of.lines) == 64)
        await hand.click((hand.lines[-1].index("fold"), 23))
        await hand.until(lambda: len(view.tree_of.lines) == 62)
