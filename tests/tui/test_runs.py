"""The Runs view over the real service: each of its keys, and rows that move by themselves."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from math import isfinite
from pathlib import Path
from time import time
from typing import Any
from uuid import uuid4

import httpx
import pytest
from textual.widgets import Input, Static

from hud_tui.client.imported import ImportedFiles, read_folder
from hud_tui.client.run_calls import RunCalls
from hud_tui.rl.axes import Axis
from hud_tui.rl.progress import Liveness
from hud_tui.rl.work import Work
from hud_tui.service.engines.base import EngineError
from hud_tui.tui.screens.base import TopLine
from hud_tui.tui.screens.chart_settings import ColumnList
from hud_tui.tui.screens.compared_runs import MetricList, RunComparison
from hud_tui.tui.screens.runs import CANCEL, EditDialog, RunDetails, RunsScreen
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.lines import TextPane
from hud_tui.tui.widgets.run_curves import letter, shared_ends
from hud_tui.tui.widgets.run_table import RunTable
from hud_tui.wire_runs import RunPage
from tests.conftest import Served, ended, fork, submit
from tests.service.calls import optim, pass_
from tests.service.test_loops_seen import sdk_group
from tests.tui.cockpit import Cockpit, cockpit, grow, grown
from tests.tui.conftest import status, toy_of, training
from tests.unit.test_wandb_file import file_of


async def trained_ones(http: httpx.AsyncClient, *rates: float) -> list[str]:
    """Runs of a model each that have ended, oldest first: their ids."""
    found = []
    for number, rate in enumerate(rates):
        model = await fork(http, f"model-{number}")
        job_id = await submit(http, model["id"], steps=2, learning_rate=rate)
        assert (await ended(http, job_id))["status"] == "succeeded"
        found.append(job_id)
    return found


@pytest.fixture
async def three(http: httpx.AsyncClient) -> list[str]:
    return await trained_ones(http, 1e-6, 3e-6, 2e-6)


@asynccontextmanager
async def runs(
    served: Served, size: tuple[int, int] = (120, 40), **more: Any
) -> AsyncIterator[tuple[Cockpit, RunsScreen]]:
    """The app on its Runs view, once the table was read."""
    async with cockpit(served, Start("models"), size, **more) as flown:
        await flown.press("5", then="runs")
        view = flown.view
        await flown.until(lambda: view.rows is not None)
        yield flown, view


def shown(view: RunsScreen) -> list[str]:
    """Ids of the runs in the table, from above."""
    return [one.id for one in view.table.lines if isinstance(one, Work)]


def drawn(table: RunTable) -> str:
    return "\n".join(strip.text for strip in table.shown)


async def test_an_imported_run_is_opened_as_its_details_and_drawn_beside_others(
    served: Served, three: list[str], tmp_path: Path
) -> None:
    (tmp_path / "run-a.wandb").write_bytes(
        file_of(
            *({"_step": n, "_timestamp": 1.9e9 + n, "critic/score/mean": n / 9} for n in range(9)),
            config={"actor_rollout_ref": {"rollout": {"n": 5}}},
        )
    )
    [run], _ = read_folder(tmp_path)
    state = tmp_path / "state"
    async with runs(served, state=lambda: state) as (flown, view):
        ImportedFiles(state).keep(run)
        view.action_refresh()
        await flown.until(lambda: "abc" in shown(view))
        view.table.select("abc")
        assert "a run" in drawn(view.table)
        await flown.press("enter")
        await flown.until(lambda: isinstance(flown.app.screen, RunDetails))
        await flown.press("escape")
        assert not view.can("jump")
        view.table.marked |= {"abc": None, three[0]: None}
        for key, action in (("B", "before_after"), ("Q", "ship")):
            assert not view.can(action)
            await flown.until_notice("was imported from a log: it has no checkpoints", key)
            flown.app.clear_notifications()
        view.action_compare()
        await flown.until(lambda: isinstance(flown.app.screen, RunComparison))


async def test_a_large_screen_lists_all_runs_newest_first_and_all_of_the_one_under_the_cursor(
    served: Served, three: list[str]
) -> None:
    async with runs(served, (200, 60)) as (flown, view):
        assert shown(view) == three[::-1]
        text = drawn(view.table)
        for word in ("name", "reward", "trend", "lr", "2/2", "succeeded", "3e-6", "model-1"):
            assert word in text
        assert "3 runs" in flown.said("#runs-title")
        facts = view.query_one("#run-facts", Static)
        for id_ in (three[2], three[1]):
            await flown.until(lambda id_=id_: id_ in str(facts.render()))
            for word in ("tasks per step", "importance_sampling", view.table.row.model):
                assert word in str(facts.render())
            await flown.until(lambda: view.preview.curve.display and view.preview.curve.order)
            assert view.preview.curve.order == (view.table.row.id,)
            await flown.press("down")
        view.filter_field.value = "nothing"
        await flown.until(lambda: not view.preview.display)
        view.filter_field.value = ""
        await flown.until(lambda: view.preview.display)
        x = view.table.shown[0].text.index(" lr ") + 1
        await flown.pilot.click(view.table, offset=(x, 0))
        await flown.until(lambda: shown(view) == [three[1], three[2], three[0]])
        await flown.pilot.resize_terminal(120, 40)
        await flown.until(lambda: not view.preview.display)


async def test_the_cursor_is_on_a_run_of_the_selected_model_whichever_view_selects_it(
    served: Served, three: list[str]
) -> None:
    """Enter shows it in Live, the apostrophe its last step in the tree."""
    async with cockpit(served, Start("status", model="model-0")) as flown:
        await flown.until(lambda: flown.view.run.loaded)
        await flown.press("5", then="runs")
        view: Any = flown.view
        await flown.until(lambda: view.table.row is not None and view.table.row.id == three[0])
        assert re.search(r"●.*model-0", drawn(view.table))
        await flown.press("3", then="live")
        session = flown.app.workspace.session
        other = next(row.model_id for row in view.rows if row.id == three[2])
        session.choose(await session.client.model(other))
        await flown.until(lambda: session.run.loaded and session.run.model.name == "model-2")
        await flown.press("5", then="runs")
        await flown.until(lambda: view.table.row.id == three[2])
        assert re.search(r"●.*model-2", drawn(view.table))
        await flown.press("down")
        assert view.table.row.id == three[1], "it moves as before"
        await flown.press("3", then="live")
        await flown.press("5", then="runs")
        assert view.table.row.id == three[1], "and stays while the model is the same"

        await flown.press("enter", then="live")
        live: Any = flown.view
        await flown.until(lambda: live.run.model is not None and live.run.model.name == "model-1")
        await flown.until(lambda: live.cursor in (None, 1))  # the last step that the run took
        await flown.press("5", then="runs")
        await flown.press("end", "apostrophe", then="checkpoints")
        tree: Any = flown.view
        await flown.until(lambda: tree.selected is not None and tree.selected.job_id == three[0])
        assert tree.selected.step == 2


async def test_columns_are_sorted_by_shown_hidden_moved_and_reset(
    served: Served, three: list[str]
) -> None:
    async with runs(served) as (flown, view):
        usual = [column.key for column in view.table.arrangement.columns]

        def keys() -> list[str]:
            return [column.key for column in view.table.arrangement.columns]

        await flown.open(ColumnList, "a")
        await flown.press("down", "space")
        assert "state" not in keys()
        await flown.press("space")
        assert keys() == [*(key for key in usual if key != "state"), "state"]
        await flown.press("less_than_sign")
        assert keys()[-2] == "state"
        await flown.press("v")
        assert view.table.arrangement.group == "state"
        await flown.press("0", "escape", then="runs")
        assert keys() == usual
        assert view.table.arrangement.group == ""
        await flown.open(ColumnList, "o")
        flown.screen.query_one("#charts-list").select("lr")
        await flown.press("enter")
        assert shown(view) == [three[1], three[2], three[0]]
        assert "↓ descending" in flown.drawn
        await flown.press("enter")
        assert shown(view) == [three[0], three[2], three[1]], "once more: the other way"
        assert "↑ ascending" in flown.drawn
        await flown.press("escape", then="runs")
        assert "lr ↑" in drawn(view.table)
        assert view.context.layout.now.runs_sort == "lr"
        for kept in ("no-such", "name,param.", "-"):
            view.context.layout.arrange(runs_columns=kept, runs_sort=kept, runs_group=kept)
            view.lay_out()
            assert shown(view) == three[::-1], "what makes no sense is left out"


async def test_runs_are_grouped_marked_and_copied(served: Served, three: list[str]) -> None:
    async with runs(served) as (flown, view):
        await flown.until_notice(three[2][:8], "y")
        await flown.press("v")
        assert "lr 3e-6" in drawn(view.table)
        assert "grouped by what differs" in flown.said("#runs-title")
        await flown.press("v")
        [title] = [one for one in drawn(view.table).splitlines() if "no sweep" in one]
        assert title.strip().startswith("3 runs · not averaged: lr differs")
        await flown.press("home", "down")
        assert view.table.row is not None, "the cursor passes over headings"
        await flown.press("v")
        assert view.table.arrangement.group == ""
        await flown.press("home", "space", "m")
        assert list(view.table.marked) == three[:0:-1]
        assert drawn(view.table).count("✔") == 2
        assert "2 marked" in flown.said("#runs-title")
        await flown.press("up", "space")
        assert list(view.table.marked) == [three[2]]
        await flown.press("M")
        assert not view.table.marked
        assert not view.can("compare")
        await flown.until_notice("Mark the runs to compare first: space marks one.", "home", "c")
        await flown.press("space", "home")
        assert not view.can("compare"), "with itself"
        await flown.until_notice("Only this run is marked: go to the run to compare it with", "c")
        await flown.press("down")
        assert view.can("compare")
        await flown.open(RunComparison, "c")
        assert list(view.table.marked) == [three[2]], "with the run under the cursor"


async def test_the_columns_to_the_right_are_reached_with_the_arrows(
    served: Served, three: list[str]
) -> None:
    async with runs(served, (80, 24)) as (flown, view):
        assert "model-2" not in drawn(view.table).replace("arith on model-2", "")
        assert " age" not in drawn(view.table)
        await flown.press(*["right"] * 20)
        assert " age" in drawn(view.table)
        assert "arith on model-2" in drawn(view.table)
        await flown.press(*["left"] * 20)
        assert "state" in drawn(view.table)


async def test_rows_are_filtered_as_in_the_tree(served: Served, three: list[str]) -> None:
    async with runs(served) as (flown, view):
        await flown.press("slash", *"lr>1.5e-6")
        await flown.until(lambda: shown(view) == [three[2], three[1]])
        assert "2 of 3" in flown.said("#runs-title")
        view.filter_field.value = "rewrad>1"
        await flown.until(lambda: "no run has rewrad" in flown.said("#runs-title"))
        assert shown(view) == [three[2], three[1]], "they stay while it is typed"
        await flown.press("enter", "escape")
        await flown.until(lambda: len(shown(view)) == 3)
        await flown.press("slash", *"nothing", "enter")
        await flown.until(lambda: "No run matches" in flown.said("#runs-empty"))
        await flown.pilot.resize_terminal(80, 24)
        view.filter_field.value = "is:foo"
        await flown.until(lambda: "is:foo: unknown; there are " in flown.said("#runs-title"))
        assert not flown.said("#runs-empty"), "not that no run matches"
        assert len(shown(view)) == 3, "those of the last filter that left some"
        last = flown.said("#runs-title").split()[-1]
        await flown.until(lambda: last in flown.drawn)


async def test_a_wrong_filter_that_was_kept_leaves_the_runs_in_sight(
    served: Served, three: list[str], tmp_path: Path
) -> None:
    async with runs(served, state=lambda: tmp_path) as (flown, view):
        view.filter_field.value = "lr:"
        await flown.until(lambda: "no value after the operator" in flown.said("#runs-title"))
    async with runs(served, state=lambda: tmp_path) as (flown, view):
        assert "no value after the operator" in flown.said("#runs-title")
        assert shown(view) == three[::-1]
        assert not flown.said("#runs-empty")


async def test_details_say_every_parameter_and_a_name_and_a_note_are_given_in_place(
    served: Served, three: list[str], tmp_path: Path
) -> None:
    async with runs(served, state=lambda: tmp_path) as (flown, view):
        await flown.open(RunDetails, "d")
        pane: Any = flown.screen.query_one(TextPane)
        await flown.until(lambda: pane.lines)
        for word in (three[2], "learning rate", "2e-6", "tasks per step", "no gradient"):
            assert word in pane.plain
        await flown.press("escape", "e")
        await flown.until(lambda: isinstance(flown.screen, EditDialog) and flown.screen.focused)
        flown.screen.query_one("#edit-name", Input).value = "the good one"
        flown.screen.query_one("#edit-note", Input).value = "ship it"
        await flown.press("enter")
        await flown.until(lambda: view.rows is not None and view.rows[0].name == "the good one")
        assert view.rows[0].note == "ship it"
        answer = await flown.http.get(f"/v2/jobs/{three[2]}")
        assert answer.json()["name"] == "the good one"
        await flown.press("e")
        await flown.until(lambda: isinstance(flown.screen, EditDialog) and flown.screen.focused)
        await flown.press("escape", then="runs")


async def test_details_say_why_a_run_failed_and_what_to_press(
    served: Served, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*args: object) -> None:
        raise EngineError("the card is [red]gone[/]")

    monkeypatch.setattr(toy_of(served), "forward_backward", broken)
    job = await submit(http, str((await fork(http, "model"))["id"]), steps=2)
    assert (await ended(http, job))["status"] == "failed"
    async with runs(served) as (flown, view):
        await flown.open(RunDetails, "d")
        pane: Any = flown.screen.query_one(TextPane)
        await flown.until(lambda: "the card is [red]gone[/]" in pane.plain)
        assert pane.plain.startswith("failed: ")
        assert "R in Runs resumes it, from the start on." in pane.plain
        await flown.press("escape")
        await flown.until(lambda: flown.screen is view)
        listed = await flown.open(ColumnList, "o")
        listed.rows.select("reward")
        note = listed.query_one("#columns-note")
        await flown.until(lambda: "mean of its first 5 steps" in str(note.render()))


async def test_a_run_moves_by_itself_is_cancelled_and_resumed(served: Served) -> None:
    _, job_id = await training(served, 1)
    async with runs(served) as (flown, view):

        def row() -> Work:
            return view.table.row

        assert (row().id, row().status, row().step) == (job_id, "running", 1)
        kept = view.table.row
        toy_of(served).rest_after(1)
        await flown.until(lambda: row().step >= 2)
        assert view.table.row is not kept
        await flown.until_notice("is running: nothing to resume", "R")
        await flown.agree("X")
        await flown.until(lambda: row().status == "cancelled")
        await flown.agree("R")
        await flown.until(lambda: row().status == "running")
        assert await status(served, job_id) == "running"


async def test_a_refused_key_leaves_the_request_under_way_alone(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await training(served, 1)
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(*given: Any) -> str:
        begun.set()
        await go.wait()
        return "cancelled at last"

    monkeypatch.setattr("hud_tui.tui.screens.runs.CANCEL", replace(CANCEL, of_run=slow))
    async with runs(served) as (flown, _):
        await flown.press("X")
        await flown.until(begun.is_set)
        await flown.until_notice("is running: nothing to resume", "R")
        go.set()
        await flown.until(lambda: "The run is cancelled at last." in flown.notices)


async def test_a_row_is_at_the_step_of_the_top_line(served: Served) -> None:
    """Whichever of list and events is read first."""
    await training(served, 1)
    async with runs(served) as (flown, view):
        await flown.until(lambda: flown.run.job is not None and flown.run.job.step)
        view.rows = [replace(view.table.row, done=0)]
        view.show()
        assert view.table.row.done == flown.run.job.step > 0


async def test_a_loop_from_outside_is_a_run_that_only_its_client_cancels(
    served: Served, http: httpx.AsyncClient
) -> None:
    await grown(http, "looped", 3)
    async with runs(served) as (flown, view):
        assert (view.table.row.model, view.table.row.step) == ("looped", 3)
        await flown.until_notice("only its own client can cancel it", "X")
        await flown.open(EditDialog, "e")
        assert not flown.screen.query("#edit-name")


async def test_a_run_whose_name_is_taken_by_another_says_its_id_at_once(
    served: Served, http: httpx.AsyncClient
) -> None:
    model = await fork(http, "twice")
    first = await submit(http, model["id"], steps=1, learning_rate=1e-6)
    await ended(http, first)
    async with runs(served) as (flown, view):
        assert f"arith on twice {first[:8]}" not in drawn(view.table)
        second = await submit(http, model["id"], steps=1, learning_rate=1e-6)
        await flown.until(lambda: f"arith on twice {second[:8]}" in drawn(view.table))
        assert f"arith on twice {first[:8]}" in drawn(view.table)


# Several runs in one chart.


@asynccontextmanager
async def compared(
    served: Served, count: int, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[Cockpit, RunComparison]]:
    """The newest runs in one chart, once their steps were read."""
    async with runs(served, size) as (flown, _):
        screen = await flown.open(RunComparison, *["space"] * count, "c")
        await flown.until(lambda: len(screen.compared.runs) == count)
        yield flown, screen


def text_of(screen: RunComparison) -> str:
    return "\n".join(strip.text for strip in (*screen.curves.shown, *screen.legend.shown))


async def test_three_runs_are_compared_with_five_keys(served: Served, three: list[str]) -> None:
    """A curve and a line for each run, of whose names the legend has what they differ in."""
    async with cockpit(served, Start("models")) as flown:
        await flown.press("5", then="runs")
        await flown.until(lambda: flown.view.table.row)
        screen = await flown.open(RunComparison, "space", "space", "space", "c")
        await flown.until(lambda: len(screen.compared.runs) == 3)
        for size in ((80, 24), (120, 40)):
            await flown.pilot.resize_terminal(*size)
            await flown.until(lambda size=size: screen.size == size)
            await flown.pilot.pause()
            text = text_of(screen)
            assert list(screen.curves.order) == list(map(str, three[::-1])), "letters as marked"
            values = [value for _, value in screen.legend.rows]
            assert values == sorted(values, reverse=True), "best first"
            for word in (
                "mean reward",
                "by step",
                " a ",
                " b ",
                " c ",
                "lr",
                "3e-6",
                "same in all",
            ):
                assert word in text
            assert any(chr(0x2801) <= char <= chr(0x28FF) for char in text)
        begin, end = shared_ends(list(screen.names.values()))
        assert begin == "arith on model-"
        *rows, shared = text_of(screen).partition("same in all: ")
        assert begin.strip() not in rows[0]
        assert shared.startswith(f"name {begin}…{end}"[:20])
        for row, _ in screen.legend.rows:
            assert screen.names[row.id].removeprefix(begin).removesuffix(end) in rows[0]


@pytest.mark.parametrize(
    ("names", "ends"),
    [
        (["mixed on mixed-rl 1f2e", "mixed on mixed-rl 9a8b"], ("mixed on mixed-rl ", "")),
        (["arith on x-sweep-lr1e-4", "arith on x-sweep-lr3e-4"], ("arith on x-sweep-", "")),
        (["arith on arith-rl", "text on arith-rl"], ("", " on arith-rl")),
        (["arith on arith-rl", "arith on arith-rl-b 7c29"], ("arith on ", "")),
        (["mixed", "mixed on mixed-rl"], ("", "")),
        (["arith on a", "arith on b", "text on c"], ("", "")),
        (["equal names", "equal names"], ("equal ", "")),
        (["one alone"], ("", "")),
        ([], ("", "")),
    ],
)
def test_what_all_names_have_in_common_is_whole_words(
    names: list[str], ends: tuple[str, str]
) -> None:
    assert shared_ends(names) == ends


async def test_the_legend_says_that_tasks_differ_and_beneath_it_what_is_too_wide(
    served: Served, three: list[str]
) -> None:
    async with compared(served, 2) as (flown, screen):
        legend = screen.legend
        await flown.until(lambda: legend.rows)
        assert "different tasksets" not in text_of(screen)
        (first, value), (second, other) = legend.rows
        wide = replace(second, taskset="a taskset with a long name")
        legend.show([(first, value), (wide, other)], screen.names)
        await flown.pilot.pause()
        heading = legend.shown[0].text
        assert " lr " in heading
        assert "+1" in heading
        assert "taskset" not in heading
        letters = {row.id: letter(legend.curves.index_of(row.id)) for row in (first, wide)}
        beneath = " ".join(line.text.strip() for line in legend.shown[3:])
        assert f"taskset: {first.taskset} {letters[first.id]}, {wide.taskset} " in beneath
        more = {name: 1 for name in ("reward_scale", "tasks_per_step", "weight_decay", "beta1")}
        changed = replace(second, taskset="long", parameters={**second.parameters, **more})
        for size in ((80, 24), (100, 30), (200, 60)):
            await flown.pilot.resize_terminal(*size)
            await flown.until(lambda size=size: screen.size == size)
            legend.show([(first, value), (changed, other)], screen.names)
            await flown.pilot.pause()
            assert legend.differences.keys[0] == "taskset"
            heading = legend.shown[0].text
            assert "taskset" in heading
            assert "…" not in heading
            assert "⚠ different tasksets" in text_of(screen)


async def test_the_crosshair_is_on_the_same_step_in_live_the_tree_and_the_comparison(
    served: Served, three: list[str]
) -> None:
    async with compared(served, 3) as (flown, screen):
        session = flown.view.session
        await flown.press("left")
        assert session.checkpoint_id == screen.chosen.ids[1]
        await flown.press("left_square_bracket", "left")
        assert (session.checkpoint_id, screen.crosshair_step) == (screen.chosen.ids[0], 0)
        assert "┊ step 1" in text_of(screen)
        run = screen.legend.chosen
        await flown.press("enter", then="live")
        live: Any = flown.view
        await flown.until(lambda: live.cursor == 0)
        assert live.run.model.id == next(r.model_id for r, _ in screen.legend.rows if r.id == run)
        await flown.press("right")
        at = session.checkpoint_id
        await flown.press("5", then="runs")
        again = await flown.open(RunComparison, "c")
        await flown.until(lambda: again.crosshair_step == 1)
        assert (again.checkpoint_id, again.legend.chosen) == (at, run)
        await flown.press("apostrophe", then="checkpoints")
        tree: Any = flown.view
        await flown.until(lambda: tree.selected is not None and tree.selected.id == at)


async def test_how_runs_are_compared_is_chosen_with_the_keys_of_live(
    served: Served, three: list[str]
) -> None:
    async with compared(served, 2) as (flown, screen):
        first = screen.compared
        await flown.press("home", "x")
        assert (screen.compared.axis, screen.crosshair_step) == ("time", 0), "it stays on its step"
        await flown.press("x", "end")
        assert "by tokens" in text_of(screen)
        assert screen.compared.crosshair is None
        assert replace(screen.compared, axis=Axis.TIME).x_text(443.4) == "7m23s"
        await flown.press("s", "S", "S")
        assert screen.compared.smoothing == first.smoothing - 1
        await flown.press("L")
        assert "log" in text_of(screen)
        await flown.press("down")
        assert screen.legend.cursor == 1
        await flown.press("up", "space")
        assert len(screen.compared.shown) == 1
        await flown.press("space", "shift+left", "shift+right", "right", "right_square_bracket")
        assert screen.compared.crosshair is None
        await flown.press("left", "escape")
        assert screen.compared.crosshair is None, "esc removes the crosshair first"
        await flown.press("escape", then="runs")
        again = await flown.open(RunComparison, "c")
        await flown.until(lambda: again.legend.rows)
        await flown.pilot.click(again.legend, offset=(5, 1), times=2)
        await flown.until_view("live")


async def test_any_metric_can_be_compared(served: Served, three: list[str]) -> None:
    async with compared(served, 2) as (flown, screen):
        await flown.press("v")
        assert screen.compared.key == screen.metrics[1] == "heldout_reward"
        await flown.until(lambda: "●" in text_of(screen))
        note = screen.query_one("#compared-note")
        await flown.press("home")
        screen.change(crosshair=-1.0)
        assert not any(isfinite(value) for _, value in screen.legend.rows)
        assert not note.display, "it is reported, though not at the crosshair"
        await flown.press("end")
        assert "95 % intervals" in text_of(screen), "evaluations are not averaged"
        assert re.search(r"\[[.\d]+, [.\d]+\]", text_of(screen))
        await flown.open(MetricList, "a")
        flown.screen.query_one("#charts-list").select("entropy")
        await flown.press("enter")
        await flown.until(lambda: flown.screen is screen and screen.compared.key == "entropy")
        await flown.until(lambda: "entropy" in text_of(screen))
        assert "greatest" in text_of(screen), "neither more nor less of it is better"
        assert "best first" not in text_of(screen)
        await flown.until(lambda: any(isfinite(value) for _, value in screen.legend.rows))
        await flown.press("question_mark")
        await flown.until(lambda: "keys of the comparison" in flown.drawn)
        await flown.open(MetricList, "escape", "a")
        await flown.press("escape")
        await flown.until(lambda: flown.screen is screen)


async def test_a_run_that_trains_grows_in_the_comparison(served: Served, three: list[str]) -> None:
    await training(served, 1)
    async with compared(served, 2) as (flown, screen):
        [series] = [s for row, s in screen.compared.runs if row.is_active]
        assert len(series) == 1
        toy_of(served).rest_after(1)
        await flown.until(lambda: len(series) >= 2)
        await flown.until(lambda: screen.compared.steps != (1, 2))


# Loops that are driven from outside.


async def test_a_loop_has_a_name_a_model_a_reward_and_an_end_in_every_list(
    served: Served, http: httpx.AsyncClient
) -> None:
    model, job = await fork(http, "looped"), uuid4().hex
    await http.post(f"/v2/trace/job/{job}/enter", json={"name": "my loop", "steps": 10})
    for _ in range(2):
        batch = await sdk_group(http, model, job, "add-1", [1.0, 0.0])
        assert (await pass_(http, model["id"], batch, group_size=2)).status_code == 200
        assert (await optim(http, model["id"])).status_code == 200
    await http.post(f"/v2/trace/{uuid4().hex}/enter", json={"job_id": job, "task_slug": "add-1"})
    async with cockpit(served, Start("status", model="looped"), (200, 50)) as flown:
        await flown.until(lambda: "my loop running  step 2/10" in flown.said("RunStatus"))
        assert "reward .500 → .500" in flown.said("RunStatus")
        assert "left" in flown.said("RunStatus")
        await flown.press("1", then="models")
        models: Any = flown.view
        await flown.until(lambda: "looped" in str(models.rows.rows))
        await flown.until(
            lambda: any(
                re.fullmatch(r"2/10  \d+.*", cell.plain)
                for row in models.rows.rows
                for cell in row.cells
            )
        )
        top = str(models.query_one(TopLine).line)
        for word in ("my loop running", "step 2/10", "reward .5", "left"):
            assert word in top
        await flown.press("6", then="jobs")
        jobs: Any = flown.view
        await flown.until(lambda: jobs.runs)
        [row] = jobs.list.rows
        told = [cell.plain for cell in row.cells]
        for word in ("my loop", "running", "2/10", ".500 → .500", "looped"):
            assert word in told
        assert told[6] not in ("", "–"), "its ETA"
        await flown.press("5", then="runs")
        await flown.until(lambda: getattr(flown.view, "rows", None))
        text = drawn(flown.view.query_one(RunTable))
        for word in ("my loop", "running", "2/10", "looped"):
            assert word in text
        session = flown.view.session
        assert session.run.alarms.alarms == ()
        session._follower._clock = lambda: time() + 3600
        await flown.until(lambda: [alarm.name for alarm in session.run.alarms.alarms] == ["stall"])


async def test_a_loop_without_a_job_is_told_of_in_live_and_seldom_asked_for(
    served: Served, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, asked = await grown(http, "looped", 2), [0]
    read = RunCalls.run_page

    async def counted(self: RunCalls, *given: int) -> RunPage:
        asked[0] += 1
        return await read(self, *given)

    monkeypatch.setattr(RunCalls, "run_page", counted)
    async with cockpit(served, Start("status", model="looped"), (120, 40)) as flown:
        session = flown.view.session
        await flown.until(lambda: session.loop is not None)
        line = "loop on looped client loop  step 2  reward"
        await flown.until(lambda: line in flown.said("RunStatus"))
        before = asked[0]
        for _ in range(3):
            await session.find_loop()
        assert asked[0] == before
        assert session.loop is not None
        await grow(http, model["id"])
        await flown.until(lambda: len(session.run.tree) == 3)
        await flown.until(lambda: session.loop is not None and session.loop.step == 3)
        assert asked[0] > before
        before = asked[0]
        with monkeypatch.context() as lost:
            lost.setattr(Liveness, "offline", True)
            session._loop_tree = None
            await session.find_loop()
        assert asked[0] == before, "nothing is asked of a service that does not answer"
