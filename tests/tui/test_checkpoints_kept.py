"""Marks, comparisons, notes, forks and the head's history, by keyboard over the real service."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from platform import node
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from textual.widgets import Input

from hud_tui.audit_log import CommandLog
from hud_tui.client import feed
from hud_tui.client.rollout_calls import RolloutCalls
from hud_tui.rl.alarms.alarm import Evidence, Report
from hud_tui.rl.checkpoint_tree import free_name
from hud_tui.tui.screens.compare import ComparePanel
from hud_tui.tui.screens.dialogs import InputDialog
from hud_tui.tui.screens.models import ModelsScreen
from hud_tui.tui.screens.set_head import HistoryPanel
from hud_tui.tui.screens.ship import ShipPanel
from hud_tui.tui.screens.try_prompt import Tried, TryPanel
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.checkpoint_tree import CheckpointTree
from hud_tui.wire import Model
from hud_tui.wire_training import Chat, ChatReply
from tests.conftest import Served
from tests.service.calls import fork_from
from tests.service.headless import commands
from tests.tui import runs
from tests.tui.cockpit import Cockpit, cockpit, grow, grown, put_head
from tests.tui.conftest import Net, caller
from tests.tui.hand import Hand
from tests.tui.stage import bare
from tests.tui.still import StillClient, standing
from tests.tui.test_checkpoints import (
    details_of,
    note,
    noted,
    set_head,
    tree,
    tree_of,
    under_cursor,
)

AGENT = f"python-httpx/{httpx.__version__}"
"""Of the client that sets the head beside the app."""


def line(flown: Cockpit, number: int) -> str:
    return tree(flown).render_line(number).text


async def select(flown: Cockpit, model_id: str) -> None:
    """Select the model in Models, and go to its tree."""
    models = await flown.open(ModelsScreen, "1")
    await flown.until(lambda: any(row.key == model_id for row in models.rows.rows))
    models.rows.select(model_id)
    await flown.press("enter")
    session = flown.app.workspace.session
    await flown.until(lambda: session.run.model and session.run.model.id == model_id)
    await flown.press("4", then="checkpoints")
    await flown.until(lambda: flown.view.run.loaded)


@asynccontextmanager
async def again(served: Served, model_id: str, state: Path, **more: Any) -> AsyncIterator[Cockpit]:
    """The tree of six steps in another session, with the same state directory."""
    start = Start("checkpoints", model=model_id)
    async with cockpit(served, start, state=lambda: state, **more) as flown:
        await flown.until(lambda: len(tree(flown).checkpoints) == 6)
        yield flown


async def back(flown: Cockpit) -> None:
    await flown.press("escape", then="checkpoints")


async def test_two_are_marked_and_compared(served: Served) -> None:
    """Without marks, the head with what is under the cursor."""
    async with tree_of(served) as (flown, _):
        await noted(flown, "Mark two checkpoints", "c")
        await flown.press("G", "m")
        assert line(flown, 7).startswith("A")  # the base
        await flown.open(ComparePanel, "g", "c")
        await flown.until(lambda: "B is 6 steps after A." in flown.drawn)
        await back(flown)
        await noted(flown, "Mark two checkpoints", "T")  # the base is none
        await flown.open(ComparePanel, "G", "M", "c")
        await flown.until(lambda: "A is 6 steps after B." in flown.drawn)
        await back(flown)
        await flown.open(ComparePanel, "up", "c")
        await flown.until(lambda: "A is 5 steps after B." in flown.drawn)
        await back(flown)
        await flown.open(ComparePanel, "m", "c")
        await back(flown)
        await flown.press("M", "g", "down", "m", "down", "down", "m")
        assert line(flown, 2).startswith("A")
        assert line(flown, 4).startswith("B")
        shown = (await flown.open(ComparePanel, "c")).pane
        await flown.until(lambda: "A is 2 steps after B." in flown.drawn)
        await flown.until(lambda: "learning rate" in shown.plain)
        assert "A step-000005" in shown.plain
        await flown.press("j", "G", "g")
        await back(flown)
        await flown.press("down", "m")
        assert [line(flown, number)[0] for number in (2, 4, 5)] == ["A", "B", "C"]
        await flown.open(ShipPanel, "c")  # of more than two
        await back(flown)
        await flown.press("m")
        assert line(flown, 5).startswith(" ")
        await flown.press("M")
        assert line(flown, 4).startswith(" ")


async def test_a_note_is_written_shown_found_and_still_there_in_the_next_session(
    served: Served, tmp_path: Path
) -> None:
    async with caller(served) as http:
        model_id = str((await grown(http, "arith rl", 6))["id"])
    async with again(served, model_id, tmp_path) as flown:
        await flown.open(InputDialog, "down", "e")
        await flown.press(*"before the collapse", "enter")
        await flown.until(lambda: "✎" in line(flown, 2))
        await flown.until(lambda: "✎ before the collapse" in details_of(flown))
        await flown.agree("p")
        await flown.until(lambda: "◆✎" in line(flown, 2))
        await flown.until(lambda: "◆ pinned" in details_of(flown))
        assert "✎ before the collapse" in details_of(flown)
    async with again(served, model_id, tmp_path) as flown:
        await flown.until(lambda: "✎" in line(flown, 2))
        await flown.press("slash", *"note:collapse", "enter")
        assert under_cursor(flown) == "step-000005"
        assert "1 of 6 checkpoints" in note(flown)
        (await flown.open(InputDialog, "e")).query_one(Input).value = ""
        await flown.press("enter")
        await flown.until(lambda: "✎" not in details_of(flown))
        await noted(flown, "A note belongs to a checkpoint", "escape", "G", "e")


def history_of(panel: HistoryPanel) -> list[list[str]]:
    """The lines of the history without their age, newest first."""
    return [[cell.plain for cell in row.cells[1:]] for row in panel.rows.rows]


async def test_the_history_says_who_set_the_head_and_serves_one_again(
    served: Served, tmp_path: Path
) -> None:
    here = node()
    async with caller(served) as http:
        model_id = str((await grown(http, "arith rl", 6))["id"])
    async with again(served, model_id, tmp_path) as flown:
        history = await flown.open(HistoryPanel, "V")
        assert history.heading == "Head history · complete"
        assert history_of(history) == [["6 steps", "base", "step-000006", ""]]
        await back(flown)
        await set_head(flown, "b")
        nodes = await flown.tree(model_id)
        await put_head(flown.http, model_id, nodes[1].id)
        await flown.until_notice("The head moved: step-000005 → step-000002, by python-httpx")
        await flown.until(lambda: "verified" not in note(flown))
        await set_head(flown, "u")
        assert flown.view.session.notebook.moves == ()
    async with again(served, model_id, tmp_path / "another machine") as flown:
        history = await flown.open(HistoryPanel, "V")
        await flown.until(lambda: history.rows.rows)
        assert history_of(history) == [
            ["head set, undo", "step-000002", "step-000005", f"app on {here}"],
            ["head set", "step-000005", "step-000002", AGENT],
            ["head set", "step-000006", "step-000005", f"app on {here}"],
            ["6 steps", "base", "step-000006", ""],
        ]
        assert "step-000002" in await flown.agree("j", "enter")
        await flown.until(lambda: "head is step-000002 · verified" in note(flown))


async def test_moves_that_no_app_saw_are_undone_one_after_the_other(
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with caller(served) as http:
        model_id = str((await grown(http, "arith rl", 6))["id"])
    hud, by = commands(served, monkeypatch, capsys), f"command line on {node()}"
    for name in ("step-000004", "step-000002"):
        assert (await hud("head", model_id, "--set", name, "-y")).code == 0
    async with again(served, model_id, tmp_path) as flown:
        history = await flown.open(HistoryPanel, "V")
        assert history_of(history)[:2] == [
            ["head set", "step-000004", "step-000002", by],
            ["head set", "step-000006", "step-000004", by],
        ]
        await back(flown)
        said = await set_head(flown, "u")
        assert f"Undoes step-000004 → step-000002, by {by}." in said
        assert await flown.head(model_id) == "step-000004"
    async with again(served, model_id, tmp_path) as flown:
        assert "Undoes step-000006 → step-000004" in await set_head(flown, "u")
        assert await flown.head(model_id) == "step-000006"
        await noted(flown, "Nothing to undo. The head's history: complete.", "u")
        await flown.agree("U")
        await flown.until(lambda: "head is step-000004 · verified" in note(flown))
        assert await flown.head(model_id) == "step-000004"


class HudNet(Net):
    """A service that, as HUD, has no stream and keeps no moves."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith(("/train/events", "/head/moves")):
            return httpx.Response(404, json={"detail": "Not Found"}, request=request)
        return await super().handle_async_request(request)


async def test_where_the_service_keeps_no_moves_they_are_those_sent_or_seen(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "IDLE_S", 0.05)
    monkeypatch.setattr("tests.tui.conftest.Net", HudNet)
    async with caller(served) as http:
        model_id = str((await grown(http, "arith rl", 6))["id"])
    log, here = CommandLog(tmp_path, "app"), f"app on {node()}"
    async with again(served, model_id, tmp_path, observe=log.add) as flown:

        async def seen(key: str, name: str) -> None:
            """Move the head to it, and wait until a poll has seen that."""
            await flown.agree(key)
            await flown.until(lambda: f"head is {name} · verified" in note(flown))
            await flown.until(lambda: flown.view.session.sent_to is None)

        await seen("b", "step-000005")
        assert flown.view.session.notebook.moves == ()
        nodes = await flown.tree(model_id)
        await put_head(flown.http, model_id, nodes[1].id)
        await flown.until_notice("The head moved: step-000005 → step-000002.")
        await seen("u", "step-000005")
        await seen("u", "step-000006")
        assert await flown.head(model_id) == "step-000006"
    async with again(served, model_id, tmp_path) as flown:
        history = await flown.open(HistoryPanel, "V")
        assert history.heading.startswith("Head history · complete since 2")
        assert history_of(history) == [
            ["head set, undo", "step-000005", "step-000006", here],
            ["head set, undo", "step-000002", "step-000005", here],
            ["head set", "step-000005", "step-000002", "unknown"],
            ["head set", "step-000006", "step-000005", here],
            ["6 steps", "base", "step-000006", ""],
        ]
        await back(flown)
        await set_head(flown, "U")
        assert await flown.head(model_id) == "step-000005"


async def elsewhere(flown: Cockpit) -> dict[str, Model]:
    """The service's models by id, read beside the app."""
    items = (await flown.http.get("/v2/models")).json()["items"]
    return {item["id"]: Model.model_validate(item) for item in items}


async def test_a_fork_starts_at_any_checkpoint_and_says_so(served: Served) -> None:
    async with tree_of(served) as (flown, model_id):
        proposed = free_name("arith-rl", (await elsewhere(flown)).values())
        assert (await fork_from(flown.http, model_id, proposed, checkpoint_id="base")).is_success
        await flown.open(InputDialog, "down", "down", "F")
        assert "It starts at step-000004" in flown.dialog
        next_free = free_name("arith-rl", (await elsewhere(flown)).values())
        assert flown.screen.query_one(Input).value == next_free != proposed
        flown.screen.query_one(Input).value = "from four"
        await noted(flown, "starts at step-000004", "enter")
        items = (await flown.http.get("/v2/models")).json()["items"]
        [forked] = [model for model in items if model["name"] == "from four"]
        assert forked["forked_from"].endswith("@step-000004")
        await flown.press("G")
        await flown.open(InputDialog, "F")
        assert "It starts at base weights" in flown.dialog
        flown.screen.query_one(Input).value = "from-none"
        await noted(flown, "from-none starts at base weights", "enter")
        [fresh] = [each for each in (await elsewhere(flown)).values() if each.name == "from-none"]
        assert fresh.forked_from == "arith-rl"

        told = "forked from arith-rl step-000004"
        models = await flown.open(ModelsScreen, "1")
        await flown.until(lambda: any(row.key == forked["id"] for row in models.rows.rows))
        models.rows.select(forked["id"])
        await flown.until(lambda: told in flown.said("#note"))
        await flown.press("enter", then="launch")
        await flown.press("4", then="checkpoints")
        await flown.until(lambda: flown.view.run.loaded)
        await flown.until(lambda: f"The model is {told}." in flown.said("#tree-empty"))
        await grow(flown.http, forked["id"])
        await flown.press("r")
        await flown.until(lambda: any(told in line(flown, row) for row in range(1, 4)))
        await flown.until(lambda: flown.app.screen.focused is tree(flown))
        await flown.press("end")
        await flown.until(lambda: told in details_of(flown))


async def test_a_shorter_run_is_shown_after_a_longer_one(served: Served) -> None:
    async with tree_of(served) as (flown, long):
        short = str((await grown(flown.http, "short", 2))["id"])
        await flown.press("g")
        assert under_cursor(flown) == "step-000006"
        await select(flown, short)
        await flown.until(lambda: under_cursor(flown) == "step-000002")
        await flown.until(lambda: "step-000002" in details_of(flown))
        await select(flown, long)
        await flown.until(lambda: under_cursor(flown) == "step-000006")
        await flown.until(lambda: "step-000006" in details_of(flown))


async def test_one_prompt_is_sampled_from_two_checkpoints(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is typed takes the place of the prompt that is proposed."""
    asked = SimpleNamespace(kind="user_message", text="Larger: 1 or 2?")

    async def traces(
        self: RolloutCalls, model_id: str, checkpoint_id: str, limit: int
    ) -> list[SimpleNamespace]:
        return [SimpleNamespace(trace_id="t")]

    async def events(self: RolloutCalls, trace_id: str) -> SimpleNamespace:
        return SimpleNamespace(events=[asked])

    async with tree_of(served) as (flown, _):
        await noted(flown, "Mark two checkpoints", "T")
        monkeypatch.setattr(RolloutCalls, "checkpoint_traces", traces)
        monkeypatch.setattr(RolloutCalls, "trace_events", events)
        shown = await flown.open(TryPanel, "down", "T")
        await flown.until(lambda: shown.prompt.value == asked.text)
        await flown.press(*"2 + 2 = ?")
        assert shown.prompt.value == "2 + 2 = ?"
        await flown.press("enter")
        await flown.until(lambda: all("of 4" in pane.plain for pane in shown.panes))
        titles = [str(title.render()) for title in shown.query(".try-title")]
        assert titles == ["A step-000006  ▶ served", "B step-000005"]
        await flown.press("tab", "j")
        await back(flown)


async def test_an_answer_to_an_earlier_prompt_is_dropped() -> None:
    late, client = asyncio.Event(), StillClient()

    async def chat(asked: Chat) -> ChatReply:
        text = asked.messages[0]["content"]
        if text == "one":
            await late.wait()
        said = {"message": {"content": f"to {text}"}, "finish_reason": "stop"}
        return ChatReply.model_validate({"id": "1", "model": "m", "choices": [said]})

    async def none(model_id: str, checkpoint_id: str, limit: int) -> list[SimpleNamespace]:
        return []

    client.training = SimpleNamespace(chat=chat)
    client.rollouts = SimpleNamespace(checkpoint_traces=none)
    first, second = runs.checkpoints(2)
    sides = Tried(first, "A", True), Tried(second, "B", False)
    async with bare() as hand:
        panel = TryPanel(client, runs.MODEL, *sides)
        await hand.app.push_screen(panel)
        for text in ("one", "two"):
            panel.prompt.value = text
            await hand.press("enter")
        await hand.until(lambda: all("to two" in pane.plain for pane in panel.panes))
        late.set()
        await hand.pilot.pause()
        assert not any("to one" in pane.plain for pane in panel.panes)


async def test_the_cursor_and_the_crosshair_of_the_charts_are_on_the_same_step(
    served: Served,
) -> None:
    async with tree_of(served) as (flown, _):
        nodes = list(tree(flown).checkpoints)
        await flown.press("down", "down")
        session = flown.app.workspace.session
        assert session.checkpoint_id == nodes[3].id
        await flown.press("3", then="live")
        flown.app.workspace.session.checkpoint_id = nodes[1].id
        await flown.press("4", then="checkpoints")
        await flown.until(lambda: under_cursor(flown) == "step-000002")
        await flown.press("f")
        assert flown.app.workspace.session.checkpoint_id is None
        assert under_cursor(flown) == "step-000006"
        rows = tree(flown)
        rows.follow = False
        rows.post_message(replace(rows.cursor_moved, position=2, by_run=True))
        await flown.until(lambda: flown.app.screen.cursor.position == 2)
        assert session.checkpoint_id is None, "the tree changed, the user did nothing"


async def test_an_alarm_s_onset_is_on_its_node(served: Served) -> None:
    async with tree_of(served, 30) as (flown, _):
        tip = tree(flown).checkpoints[10]
        evidence = (Evidence("entropy", 0.1, 0.2),)
        title = "entropy collapse"
        alarm = runs.alarm(11, title=title, checkpoint_id=tip.id, evidence=evidence)
        flown.view.run = replace(flown.view.run, alarms=Report(alarms=(alarm,), steps=30))
        await flown.until(lambda: any("⚑" in line(flown, y) for y in range(40)))
        await flown.press("apostrophe")  # the best is none: all steps are of one batch
        assert under_cursor(flown) == "step-000011"
        await flown.until(lambda: "⚑ entropy collapse: entropy .100" in details_of(flown))
        await flown.press("slash", *"is:alarm", "enter")
        rows = tree(flown).rows
        assert 10 in {rows.row(number).newest for number in range(len(rows))}
        assert len(rows) < 30


async def test_a_cursor_that_goes_from_fold_to_fold_leaves_no_row_as_it_was() -> None:
    async with standing() as (app, pilot):
        hand = Hand(app, pilot)
        shown = app.screen.query_one(CheckpointTree)
        for position in (20, 10, 30, 25):
            shown.go(position)
            await hand.until(lambda: not app.screen._dirty_widgets)
            await pilot.pause()
            drawn = [line[: shown.width].rstrip() for line in hand.lines[shown.region.y :]]
            fresh = [shown.render_line(y).text.rstrip() for y in range(shown.size.height)]
            assert drawn[: len(fresh)] == fresh
