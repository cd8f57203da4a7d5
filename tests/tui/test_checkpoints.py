"""The Checkpoints view over the real service: every key, and every way a set_head can end."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import httpx
import pytest
from rich.cells import cell_len
from textual.geometry import Region

from hud_tui.service.store import checkpoints
from hud_tui.service.store.checkpoints import File
from hud_tui.tui.keys import KeyLine
from hud_tui.tui.screens.checkpoints import CheckpointsScreen
from hud_tui.tui.screens.dialogs import Dialog
from hud_tui.tui.screens.set_head import READING, HeadDialog
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.checkpoint_details import CheckpointDetails
from hud_tui.tui.widgets.checkpoint_tree import AGE, CheckpointTree
from hud_tui.wire import Checkpoint, Model
from tests.conftest import Served
from tests.tui.cockpit import Cockpit, cockpit, grow, grown, put_head
from tests.tui.conftest import caller, toy_of, training

NAMES = [f"step-{step:06}" for step in range(1, 7)]


@asynccontextmanager
async def tree_of(served: Served, steps: int = 6) -> AsyncIterator[tuple[Cockpit, str]]:
    """The view of a fresh model with a chain of steps, and the model's id."""
    async with caller(served) as http:
        model_id = str((await grown(http, "arith rl", steps))["id"])
    async with cockpit(served, Start("checkpoints", model=model_id)) as flown:
        assert isinstance(flown.view, CheckpointsScreen)
        await flown.until(lambda: flown.view.run.loaded)
        await flown.until(lambda: len(tree(flown).checkpoints) == steps)
        await flown.pilot.pause()
        yield flown, model_id


def tree(flown: Cockpit) -> CheckpointTree:
    return flown.view.query_one(CheckpointTree)


def note(flown: Cockpit) -> str:
    return flown.said("#tree-note")


async def noted(flown: Cockpit, text: str, *keys: str) -> None:
    """Press keys, and wait until the line below the tree has this text."""
    await flown.press(*keys)
    await flown.until(lambda: text in note(flown))


def details_of(flown: Cockpit) -> str:
    return flown.view.query_one(CheckpointDetails).plain


def under_cursor(flown: Cockpit) -> str | None:
    shown = tree(flown)
    return shown.checkpoints[shown.position].name if shown.position >= 0 else "base"


async def set_head(flown: Cockpit, *keys: str) -> str:
    """Press keys that open the dialog, agree, and wait for the service's word."""
    said = await flown.agree(*keys)
    await flown.until(lambda: "verified" in note(flown))
    return said


async def test_h_asks_first_and_sets_the_head_and_the_service_agrees(served: Served) -> None:
    async with tree_of(served) as (flown, model_id):
        for leave in ("enter", "escape", "n"):
            await flown.ask("G", "up", "H")
            await flown.press(leave)
            await flown.until(lambda: not isinstance(flown.app.screen, Dialog))
        assert await flown.head(model_id) == "step-000006"
        assert flown.net.sent == []

        await flown.press("g")
        said = await set_head(flown, "down", "down", "H")
        assert "step-000006" in said
        assert "step-000004" in said
        assert "Rolls back 2 steps" in said
        assert await flown.head(model_id) == "step-000004"
        assert "head is step-000004 · verified · u undo" in note(flown)
        assert flown.view.run.head.name == "step-000004"
        assert len(flown.net.sent) == 1


async def test_u_z_and_capital_z_roll_back_undo_and_redo(served: Served) -> None:
    async with tree_of(served) as (flown, model_id):
        await set_head(flown, "b")
        assert await flown.head(model_id) == "step-000005"
        await flown.press("g")
        await set_head(flown, "u")
        assert await flown.head(model_id) == "step-000006"
        assert "head is step-000006 · verified · U redo" in note(flown)
        keys = flown.view.query_one(KeyLine)
        assert "redo" in [action.name for action in keys.actions]
        assert "undo" not in [action.name for action in keys.actions]
        await flown.press("G")
        await set_head(flown, "U")
        assert await flown.head(model_id) == "step-000005"
        assert flown.net.sent == [f"PUT /v2/models/{model_id}/head"] * 3
        moves = [f"head set to step-00000{step}" for step in (5, 6, 5)]
        await flown.until(lambda: [one.text for one in flown.view.run.log][-3:] == moves)


async def test_what_was_said_of_a_model_goes_with_it(served: Served) -> None:
    async with caller(served) as http:
        other = await grown(http, "other", 1)
    async with tree_of(served) as (flown, _):
        await set_head(flown, "b")
        flown.view.session.choose(Model.model_validate(other))
        await flown.until(lambda: len(tree(flown).checkpoints) == 1)
        assert "head is" not in note(flown)


async def test_after_a_roll_back_training_goes_on_as_a_branch(served: Served) -> None:
    async with tree_of(served) as (flown, model_id):
        await set_head(flown, "down", "down", "down", "H")
        await grow(flown.http, model_id, 2)
        await flown.until(lambda: len(tree(flown).checkpoints) == 8)
        nodes = await flown.tree(model_id)
        assert nodes[6].prev_model_checkpoint_id == nodes[2].id
        assert not [text for text in flown.told if "The head moved" in text], "it was our own move"
        await flown.until(lambda: tree(flown).lanes.branches == 2)
        said = await flown.ask("u")
        assert "Training has continued since: step-000008 descends from step-000003" in said


async def test_what_cannot_be_done_says_why(served: Served) -> None:
    async with tree_of(served, 1) as (flown, model_id):
        await noted(flown, "no parent to roll back to", "b")
        await noted(flown, "Nothing to undo", "u")
        await noted(flown, "Nothing to redo", "U")
        await noted(flown, "base weights cannot be the head", "G", "H")
        await noted(flown, "is the head already", "g", "H")
        assert await flown.head(model_id) == "step-000001"
        assert flown.net.sent == []


async def test_a_head_that_moves_while_we_ask_is_shown_and_asked_again(served: Served) -> None:
    async with tree_of(served) as (flown, model_id):
        nodes = await flown.tree(model_id)
        assert "step-000006" in await flown.ask("G", "up", "H")
        await put_head(flown.http, model_id, nodes[3].id)
        moved = "The head moved .* ago: step-000006 → step-000004, by python-httpx"
        await flown.until(lambda: re.search(moved, flown.dialog))
        await noted(flown, "head is step-000001 · verified", "y")
        assert len(flown.net.sent) == 1


async def test_a_head_that_moves_unseen_before_sending_is_not_overwritten(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feed is late: only the reading just before the request finds out."""
    async with tree_of(served) as (flown, model_id):
        nodes = await flown.tree(model_id)
        await flown.ask("G", "up", "H")
        first = flown.app.screen
        monkeypatch.setattr(type(flown.app.workspace.session), "frame", lambda session: None)
        await put_head(flown.http, model_id, nodes[3].id)
        monkeypatch.undo()
        first.dismiss(True)
        await flown.until(lambda: flown.app.screen is not first)
        said = await flown.until_dialog()
        # Where it was moved is known only where the event has come by now.
        assert re.search("(step-000006 →|The head is now) step-000004", said), said
        assert flown.net.sent == []
        await flown.press("escape")
        assert await flown.head(model_id) == "step-000004"


async def test_a_refusal_is_told_and_the_head_stays(served: Served) -> None:
    async with tree_of(served) as (flown, model_id):
        flown.net.answer = httpx.Response(409, json={"detail": "the head is locked"})
        await flown.agree("b")
        await flown.until(lambda: "refused: the head is step-000006" in note(flown))
        await flown.until_notice("the head is locked")
        assert await flown.head(model_id) == "step-000006"
        assert len(flown.net.sent) == 1
        await noted(flown, "Nothing to undo", "u")


UNANSWERED = (
    ("request", False, "refused: the head is step-000006", "step-000006"),
    ("answer", False, "head is step-000005 · verified · u undo", "step-000005"),
    ("request", True, "no answer: the service says the head is still step-000006", "step-000006"),
    ("answer", True, "no answer, but head is step-000005 · verified · u undo", "step-000005"),
)
"""What is lost, whether the service keeps no keys of writes (as HUD), what is said, the head."""


async def test_without_an_answer_it_says_where_the_head_is(served: Served) -> None:
    async with tree_of(served) as (flown, model_id):
        for lose, keyless, said, head in UNANSWERED:
            flown.net.lose, flown.net.keyless = lose, keyless
            flown.net.sent.clear()
            flown.told.clear()
            await flown.agree("b")
            await flown.until(lambda said=said: said in note(flown))
            refused = "not done" in "".join(flown.told)
            assert refused is (lose == "request" and not keyless)
            assert len(flown.net.sent) == 1
            assert await flown.head(model_id) == head
            flown.net.lose = ""
            if lose == "answer":
                await flown.agree("u")
                await flown.until(lambda: "head is step-000006 · verified" in note(flown))
                assert await flown.head(model_id) == "step-000006"


async def test_somebody_else_s_move_is_announced_and_can_be_undone(served: Served) -> None:
    async with tree_of(served) as (flown, model_id):
        nodes = await flown.tree(model_id)
        await put_head(flown.http, model_id, nodes[1].id)
        moved = "step-000006 → step-000002, by python-httpx"
        await flown.until(lambda: any(moved in notice for notice in flown.told))
        await grow(flown.http, model_id)
        await flown.until(lambda: len(tree(flown).checkpoints) == 7)
        assert sum("The head moved" in notice for notice in flown.told) == 1
        said = await flown.ask("u")
        assert moved in said
        await noted(flown, "head is step-000006 · verified", "y")
        assert await flown.head(model_id) == "step-000006"


async def test_the_cursor_stays_on_its_checkpoint_while_steps_arrive(served: Served) -> None:
    async with tree_of(served) as (flown, model_id):
        assert under_cursor(flown) == "step-000006"
        await grow(flown.http, model_id)
        await flown.until(lambda: under_cursor(flown) == "step-000007")
        await flown.press("down")
        assert under_cursor(flown) == "step-000006"
        await grow(flown.http, model_id, 3)
        await flown.until(lambda: len(tree(flown).checkpoints) == 10)
        assert under_cursor(flown) == "step-000006"
        await flown.press("f")
        await flown.until(lambda: under_cursor(flown) == "step-000010")
        await grow(flown.http, model_id)
        await flown.until(lambda: under_cursor(flown) == "step-000011")
        assert "following ▶" in note(flown)


async def test_fold_keys_and_what_was_said_on_a_fold_stays_while_it_grows(served: Served) -> None:
    """What comes before the head and where alarms began stay in sight, and the base below."""
    async with tree_of(served, 20) as (flown, model_id):
        shown = tree(flown)
        await flown.until(lambda: len(shown.rows) == 21)  # there is room
        await flown.press("G", "up", "h")
        folded = len(shown.rows)
        assert folded == 13
        for opened, closed in ("lh", ("right", "left"), ["enter"] * 2, ["space"] * 2):
            await flown.press("G", "up")
            assert "9 steps, folded" in details_of(flown)
            await flown.press(opened)
            assert len(shown.rows) == 21
            await flown.press(closed)
            assert len(shown.rows) == folded
        await flown.press("a")
        assert len(shown.rows) == 21
        await flown.press("a")
        assert len(shown.rows) == folded
        for key in "mFH":
            await flown.press("G")
            assert "folds several steps" not in note(flown)
            await noted(flown, "folds several steps", "up", key)
        await grow(flown.http, model_id)
        await flown.until(lambda: len(tree(flown).checkpoints) == 21)
        assert "folds several steps" in note(flown)
        cursor = flown.view.cursor
        grown_by_one = CheckpointTree.Moved(cursor.position + 1, cursor.oldest, True)
        tree(flown).post_message(grown_by_one)
        await flown.until(lambda: flown.view.cursor is grown_by_one)
        assert "folds several steps" in note(flown)
        tree(flown).post_message(CheckpointTree.Moved(cursor.oldest, cursor.oldest, False))
        await flown.until(lambda: "folds several steps" not in note(flown))


async def rise_and_fall(http: httpx.AsyncClient, model_id: str, after: int) -> None:
    """Groups that are half solved, then solved, then half solved, of enough rollouts to tell."""
    half, solved = (0.0, 1.0) * 16, (0.0, *[1.0] * 31)
    for steps, rewards in ((3, half), (3, solved), (after, half)):
        await grow(http, model_id, steps, rewards=rewards)


async def test_the_best_is_in_sight_and_jumped_to(served: Served) -> None:
    """A step's rollouts were sampled by its parent: the best is that of the best steps."""
    async with tree_of(served, 1) as (flown, model_id):
        await rise_and_fall(flown.http, model_id, 18)
        await flown.until(lambda: len(tree(flown).checkpoints) == 25)
        best = tree(flown).checkpoints.best
        assert best in (3, 4, 5)
        named = f"step-{best + 1:06}"
        rows = tree(flown).rows
        row = rows.row(rows.row_of(best))
        assert (row.newest, row.oldest) == (best, best), "it is not folded with those beside it"
        assert "☆" in flown.drawn
        await flown.until(lambda: under_cursor(flown) == "step-000025")
        await flown.press("apostrophe")
        assert under_cursor(flown) == named
        await flown.press("slash", *"000025", "enter")
        assert under_cursor(flown) == "step-000025"
        await flown.press("asterisk")
        assert under_cursor(flown) == named, "a filter does not keep it from the best"
        assert len(tree(flown).rows) > 1
        await flown.press("slash", *"none such", "enter")
        assert not flown.view.can("open"), "there is no row"


async def test_where_nothing_stands_out_the_likeliest_best_is_gone_to_and_that_is_said(
    served: Served,
) -> None:
    async with tree_of(served, 4) as (flown, _):
        choice = tree(flown).checkpoints.choice
        assert choice is not None
        assert choice.star is None
        assert "no clear best" in flown.drawn
        if tree(flown).position == choice.position:
            await flown.press("G" if under_cursor(flown) != "base" else "g")
        await flown.press("asterisk")
        assert tree(flown).position == choice.position
        said = flown.run.tree.choice_sentences[0][:20]
        await flown.until(lambda: said.casefold() in flown.drawn.casefold())


async def test_keys_move_filter_copy_jump_and_refresh(served: Served) -> None:
    async with tree_of(served) as (flown, model_id):
        for key, name in (
            ("j", "step-000005"), ("down", "step-000004"), ("k", "step-000005"),
            ("up", "step-000006"), ("G", "base"), ("g", "step-000006"), ("end", "base"),
            ("home", "step-000006"), ("pagedown", "base"), ("pageup", "step-000006"),
            ("ctrl+d", "base"), ("ctrl+u", "step-000006"),
        ):  # fmt: skip
            await flown.press(key)
            assert under_cursor(flown) == name, key

        await flown.press("g")
        nodes = await flown.tree(model_id)
        await flown.press("slash", *"000003", "enter")
        assert len(tree(flown).rows) == 1
        assert under_cursor(flown) == "step-000003"
        assert "1 of 6 checkpoints" in note(flown)
        await flown.press("y")
        assert flown.app.clipboard == nodes[2].id
        await flown.press("escape")
        assert len(tree(flown).rows) == 7
        assert under_cursor(flown) == "step-000003"
        await flown.press("apostrophe")
        assert under_cursor(flown) == "step-000006"
        details = flown.view.query_one("#details")
        await flown.press("d")
        assert not details.display
        await flown.press("d")
        assert details.display
        await noted(flown, "tree refreshed", "r")


async def test_a_filter_that_cannot_be_read_says_why_and_keeps_the_tree(served: Served) -> None:
    async with tree_of(served) as (flown, _):
        for typed, why in (
            ("reward>>x", "reward>>x: >x is not a number"),
            ("nometric>3", "nometric>3: no checkpoint has nometric"),
            ("step>", "no value after the operator"),
        ):
            await flown.press("slash", *typed, "enter")
            assert why in note(flown)
            assert len(tree(flown).rows) >= 6
            assert flown.view.focused is flown.view.query_one("#tree-filter")
            await flown.press("escape", "escape")
            assert "⚠" not in note(flown)
        await flown.pilot.resize_terminal(80, 24)
        await flown.press("slash", *"nometric>3", "enter")
        line = flown.view.query_one("#tree-note").size
        assert line.height * line.width >= len(note(flown)) > line.width, "nothing of it is cut"
        await flown.press("escape", "escape")
        await flown.until(lambda: flown.view.query_one("#tree-note").size.height == 1)
        await flown.press("slash", *"step>x")
        assert "is not a number" in note(flown)
        await flown.press("backspace", *"4", "enter")
        assert "⚠" not in note(flown)
        assert "2 of 6 checkpoints" in note(flown)
        await flown.press("tab", "escape")
        assert "2 of 6 checkpoints" not in note(flown)
        assert flown.view.focused is flown.view.query_one(CheckpointDetails), "it was not left"
        await flown.press("slash", *"nothing", "enter")
        assert "No checkpoint matches" in tree(flown).render_line(1).text


async def test_a_pin_is_asked_for_and_shown_and_taken_off(served: Served) -> None:
    async with tree_of(served) as (flown, model_id):
        assert "step-000005 keeps its full state" in await flown.ask("down", "p")
        await flown.press("enter")
        await flown.until(lambda: not isinstance(flown.app.screen, Dialog))
        assert flown.net.sent == []
        await flown.agree("p")
        await flown.until(lambda: "◆" in tree(flown).render_line(2).text)
        assert (await flown.tree(model_id))[4].pinned
        await flown.until(lambda: "◆ pinned" in details_of(flown))
        assert "may be thinned" in await flown.agree("p")
        await flown.until(lambda: "◆" not in tree(flown).render_line(2).text)
        assert not (await flown.tree(model_id))[4].pinned
        await noted(flown, "Only a checkpoint can be pinned", "G", "p")


async def test_what_is_kept_of_a_checkpoint_is_shown_as_it_is_thinned_or_damaged(
    served: Served,
) -> None:
    async with tree_of(served) as (flown, model_id):
        store = served.service.parts.store
        await flown.press("down", "down")
        for kept, word in ((checkpoints.slimmed, "weights only"), (checkpoints.expired, "expired")):
            node = await store.read(checkpoints.find, model_id, "step-000004")
            more = (File(node.state_path, 1, None),) if kept is checkpoints.slimmed else ()
            assert await store.write(kept, model_id, node, *more)
            await flown.until(lambda word=word: word in details_of(flown))
        await flown.until(lambda: "◌" in tree(flown).render_line(3).text)
        await noted(flown, "step-000004 has expired", "H")
        await noted(flown, "no state is left to pin", "p")
        assert flown.net.sent == []

        await flown.press("down")
        node = await store.read(checkpoints.find, model_id, "step-000003")
        await store.write(checkpoints.mark, node.state_path, "its file is missing")
        await flown.until(lambda: "✘ damaged" in details_of(flown))
        await flown.until(lambda: "✘" in tree(flown).render_line(4).text)
        await noted(flown, "step-000003 is damaged", "H")
        assert flown.net.sent == []


async def test_a_checkpoint_that_expires_while_we_ask_is_refused_by_name(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tree_of(served) as (flown, model_id):
        await flown.ask("down", "down", "H")
        store = served.service.parts.store

        async def expires(model_id: str, target: str, **seen: object) -> None:
            node = await store.read(checkpoints.find, model_id, target)
            file = File(node.state_path, 1, None)
            assert await store.write(checkpoints.slimmed, model_id, node, file)
            assert await store.write(checkpoints.expired, model_id, node)
            await set_for_real(model_id, target, **seen)

        set_for_real = flown.view.client.set_head
        monkeypatch.setattr(flown.view.client, "set_head", expires)
        await noted(flown, "step-000004 has expired", "y")
        assert "The head is still step-000006" in note(flown)
        assert await flown.head(model_id) == "step-000006"


async def test_nothing_can_be_agreed_to_before_the_tree_is_read(served: Served) -> None:
    async with tree_of(served) as (flown, model_id):
        flown.net.free = lambda: False
        await flown.press("down", "H")
        await flown.until(lambda: READING in flown.dialog)
        assert "step-000006       step-000005" in flown.dialog  # what is known, at once
        await flown.press("y", "right", "enter", "y")
        await flown.until(lambda: isinstance(flown.app.screen, HeadDialog) or not flown.dialog)
        assert flown.net.sent == []
        if not isinstance(flown.app.screen, HeadDialog):  # enter was on Cancel
            await flown.press("H")
        flown.net.free = lambda: True
        await flown.until_dialog()
        assert await flown.head(model_id) == "step-000006"
        await noted(flown, "head is step-000005 · verified", "y")


async def test_a_connection_that_is_renewed_while_the_tree_is_read_ends_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tree_of(served) as (flown, model_id):
        old = flown.view.client
        asked, gate = asyncio.Event(), asyncio.Event()
        read, connections = old.checkpoints, old.wire.http

        async def slow(model_id: str) -> list[Checkpoint]:
            asked.set()
            await gate.wait()
            return await read(model_id)

        monkeypatch.setattr(old, "checkpoints", slow)
        await flown.press("r")
        await asked.wait()
        await flown.press("ctrl+r")
        await flown.until(lambda: connections.is_closed)
        gate.set()
        await flown.until(lambda: flown.view.run.loaded)
        await set_head(flown, "b")
        assert await flown.head(model_id) == "step-000005"


async def test_a_reading_that_steps_have_overtaken_takes_none_of_them_back(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tree_of(served) as (flown, _):
        read = flown.view.client.checkpoints

        async def late(model_id: str) -> list[Checkpoint]:
            found = await read(model_id)
            if len(found) == 6:
                await grow(flown.http, model_id)
                await flown.until(lambda: len(flown.view.session.catch_up().tree) == 7)
            return found

        monkeypatch.setattr(flown.view.client, "checkpoints", late)
        said = await flown.ask("down", "H")
        assert "step-000007" in said
        assert "⚠" not in said
        await noted(flown, "head is step-000005 · verified", "y")


async def test_ages_grow_each_second_and_only_they_are_drawn_again(served: Served) -> None:
    async with tree_of(served) as (flown, _):
        shown = tree(flown)
        drawn: list[Region] = []
        shown.refresh = lambda *regions, **more: drawn.extend(regions)
        now, seen = flown.app.clock(), {shown.render_line(2).text}
        for later in (20, 200):
            drawn.clear()
            shown.clock = partial(float, now + later)
            await flown.until(lambda: drawn)
            assert all(region.x in shown._look_now().cells_of(AGE) for region in drawn)
            seen.add(shown.render_line(2).text)
        assert len(seen) == 3


async def test_details_fit_and_grow_older_and_the_line_below_the_tree_fits(served: Served) -> None:
    async with tree_of(served) as (flown, _):
        assert "no clear best" in note(flown)
        await flown.pilot.resize_terminal(80, 24)
        await flown.until(lambda: cell_len(note(flown)) <= 78)
        assert "6 checkpoints" in note(flown)
        assert note(flown).endswith("▶")

        await flown.pilot.resize_terminal(120, 40)
        await flown.pilot.pause()
        await flown.pilot.click(CheckpointTree, offset=(20, 3))
        assert under_cursor(flown) == "step-000004"

        await flown.until(lambda: "training batch" in details_of(flown))
        pane = flown.view.query_one(CheckpointDetails)
        assert all(line.cell_length <= pane.width for line in pane.lines)
        now = flown.app.clock()
        ages = []
        for later in (20, 23):
            clock = partial(float, now + later)
            flown.view.context = replace(flown.view.context, clock=clock)
            flown.view.show_details(flown.view.cursor)
            ages += [int(age) for age in re.findall(r"(\d+) s ago", details_of(flown))]
        assert ages[0] + 3 == ages[-1]
        flown.view.context = replace(flown.view.context, clock=lambda: now + 7300)
        await flown.until(lambda: "2 h ago" in details_of(flown))


async def test_a_job_that_trains_is_named_and_its_next_step_branches(served: Served) -> None:
    model_id, job_id = await training(served, 3)
    async with cockpit(served, Start("checkpoints", model=model_id)) as flown:
        await flown.until(lambda: len(tree(flown).checkpoints) == 3)
        tree(flown).go(0)
        said = await flown.ask("H")
        assert f"Job {job_id[:8]} is training: its next step branches from step-0" in said
        toy_of(served).rest_after(1)
        await flown.until(lambda: len(flown.view.session.run.tree) == 4)
        await flown.press("y")  # once: the step taken meanwhile is no reason to ask again
        await flown.until(lambda: "verified" in note(flown))
        assert len(flown.net.sent) == 1
        toy_of(served).rest_after(1)
        await flown.until(lambda: tree(flown).lanes.branches == 2)
        nodes = await flown.tree(model_id)
        assert nodes[4].prev_model_checkpoint_id == nodes[0].id
