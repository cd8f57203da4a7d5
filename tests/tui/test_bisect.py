"""Which step did the damage, from Checkpoints and Live: asked, evaluated, stopped, served."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hud_tui.client.bisection import Bisector
from hud_tui.rl.bisect import Bisection
from hud_tui.rl.evaluation import Scores
from hud_tui.tui.screens import bisect
from hud_tui.tui.screens.bisect import BisectPanel
from hud_tui.tui.screens.compare import ComparePanel
from hud_tui.tui.screens.evaluate import BudgetDialog
from hud_tui.tui.screens.set_head import HeadDialog
from hud_tui.tui.start import Start
from hud_tui.wire import Group
from tests.conftest import Served
from tests.tui.cockpit import Cockpit, cockpit
from tests.tui.conftest import toy_of, trained


@asynccontextmanager
async def opened(served: Served, state: Path, view: str) -> AsyncIterator[Cockpit]:
    model, _ = await trained(served, 4)
    start = Start("checkpoints" if view == "checkpoints" else "status", model=model)
    async with cockpit(served, start, state=lambda: state) as flown:
        await flown.until(lambda: len(flown.run.tree) == 4)
        yield flown


def text(panel: BisectPanel, selector: str) -> str:
    return str(panel.query_one(selector).render())


async def begin(flown: Cockpit, panel: BisectPanel) -> None:
    dialog = await flown.open(BudgetDialog, "E")
    problem = dialog.query_one("#dialog-problem")
    await flown.until(lambda: "288 rollouts for both ends, then 36" in str(problem.render()))
    await flown.press("enter")
    await flown.until_screen(BisectPanel)


async def test_the_lineage_between_two_marks_is_bisected(served: Served, tmp_path: Path) -> None:
    async with opened(served, tmp_path, "checkpoints") as flown:
        await flown.press("down", "m", "down", "down", "m")  # the newer one first
        panel = await flown.open(BisectPanel, "I")
        assert panel.names == ["step-000001", "step-000002", "step-000003"]
        await flown.until(lambda: "E evaluates checkpoints" in text(panel, "#sampling-progress"))
        await begin(flown, panel)
        await flown.until(lambda: "rollouts were made" in text(panel, "#sampling-progress"))
        said = text(panel, "#sampling-said")
        assert "step-000003 is not worse than step-000001 beyond chance" in said
        assert len(panel.table.rows) == 2
        assert not panel.check_action("set_head", ())
        assert not panel.check_action("before_after", ())


async def test_it_is_stopped_and_goes_on_another_day(served: Served, tmp_path: Path) -> None:
    async with opened(served, tmp_path, "live") as flown:
        toy = toy_of(served)
        panel = await flown.open(BisectPanel, "I")
        assert panel.names[0] == "base"
        toy.rest_after(0)
        await begin(flown, panel)
        await flown.until(lambda: panel.check_action("cancel_sampling", ()))
        await flown.press("X")
        toy.go_on()
        await flown.until(lambda: "R goes on" in text(panel, "#sampling-progress"))
        model = flown.run.model
    assert model is not None
    start = Start("status", model=model.id)
    async with cockpit(served, start, state=lambda: tmp_path) as flown:
        await flown.until(lambda: len(flown.run.tree) == 4)
        panel = await flown.open(BisectPanel, "I")
        await flown.until(lambda: "R goes on" in text(panel, "#sampling-progress"))
        await flown.press("R")
        await flown.until(lambda: "rollouts were made" in text(panel, "#sampling-progress"))


async def test_the_step_is_explained_and_the_last_good_checkpoint_served(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = {0: 15, 1: 15, 2: 4, 3: 4, 4: 4}

    async def fallen(bisector: Bisector, lineage: object) -> Bisection:
        return Bisection(5, {position: _scores(solved) for position, solved in levels.items()})

    monkeypatch.setattr(Bisector, "state", fallen)
    async with opened(served, tmp_path, "checkpoints") as flown:
        panel = await flown.open(BisectPanel, "I")
        await begin(flown, panel)
        await flown.until(lambda: "step-000002 did the damage" in text(panel, "#sampling-said"))
        assert "the last good checkpoint is step-000001" in text(panel, "#sampling-said")
        assert "H serve the last good one" in text(panel, "#panel-foot")
        await flown.open(ComparePanel, "B")
        await flown.until(lambda: "B is 1 step after A." in flown.drawn)
        await flown.press("escape")
        await flown.until_screen(BisectPanel)
        await flown.open(HeadDialog, "H")
        await flown.until(lambda: "step-000001" in flown.dialog)


def _scores(solved: int) -> Scores:
    rewards = [1.0] * solved + [0.0] * (16 - solved)
    return Scores.of([Group(task_slug=f"{n:02}", rewards=rewards) for n in range(24)])


async def test_one_checkpoint_alone_is_not_bisected(served: Served, tmp_path: Path) -> None:
    async with opened(served, tmp_path, "checkpoints") as flown:
        await flown.press("m", "I")
        assert "Move to a checkpoint after the damage" in flown.said("#tree-note")
        await flown.press("down", "m", "down", "m", "I")
        assert "Mark the good and the bad one only: M unmarks" in flown.said("#tree-note")


async def test_where_the_head_is_known_to_be_better_there_is_nothing_to_bisect(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "Nothing to bisect: the head is better than the base."
    monkeypatch.setattr(bisect, "why_nothing", lambda tree, good, bad: why)
    async with opened(served, tmp_path, "checkpoints") as flown:
        await flown.press("I")
        await flown.until(lambda: why in flown.said("#tree-note"))
        await flown.press("m", "down", "down", "m")
        await flown.open(BisectPanel, "I")  # two that were marked, whatever is known of them
