"""Which of a few to ship, from Checkpoints and Runs: marked, compared, sampled, served."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from textual.widgets import Input

from hud_tui.config import ReadOnly
from hud_tui.keys import keyed
from hud_tui.tui.keys import FootLine
from hud_tui.tui.screens.evaluate import BudgetDialog
from hud_tui.tui.screens.set_head import HeadDialog
from hud_tui.tui.screens.ship import ShipPanel
from hud_tui.tui.start import Start
from hud_tui.wire import BASE
from tests.conftest import Served
from tests.tui.cockpit import Cockpit, cockpit
from tests.tui.conftest import toy_of, trained
from tests.tui.test_sweeps import sweeping, typed

HELDOUT = 36


@asynccontextmanager
async def checkpoints(served: Served, state: Path, steps: int = 3) -> AsyncIterator[Cockpit]:
    """The checkpoints of a model after a run, the cursor on the head."""
    model, _ = await trained(served, steps)
    start = Start("checkpoints", model=model)
    async with cockpit(served, start, state=lambda: state) as flown:
        await flown.until(lambda: len(flown.run.tree) == steps)
        yield flown


async def panel_of(flown: Cockpit) -> ShipPanel:
    """The panel, once it has read what is known."""
    panel = await flown.open(ShipPanel, "Q")
    await flown.until(lambda: panel.ranking is not None)
    return panel


def text(panel: ShipPanel, selector: str) -> str:
    return str(panel.query_one(selector).render())


async def sample(flown: Cockpit, panel: ShipPanel, budget: int) -> None:
    dialog = await flown.open(BudgetDialog, "E")
    dialog.query_one("#budget", Input).value = str(budget)
    await flown.until(lambda: "time unknown" in text_of(dialog) or " · about" in text_of(dialog))
    await flown.press("enter")
    await flown.until_screen(ShipPanel)


def text_of(dialog: BudgetDialog) -> str:
    return str(dialog.query_one("#dialog-problem").render())


def rollouts_of(panel: ShipPanel) -> list[str]:
    return sorted(standing.rollouts for standing in panel.ranking.standings)


async def test_marked_ones_are_sampled_and_the_best_is_served(
    served: Served, tmp_path: Path
) -> None:
    async with checkpoints(served, tmp_path) as flown:
        view = flown.view
        await flown.press("m", "down", "m", "down", "m", "down", "m")
        assert view.marked[-1] == BASE
        assert [flown.run.tree.find(id_) for id_ in view.marked[:3]] == [2, 1, 0]
        assert "D◇" in flown.drawn.replace(" ", "")
        panel = await panel_of(flown)
        assert "No rollouts of step-000002, step-000001 and base" in text(panel, "#sampling-said")
        assert "E samples fresh rollouts" in text(panel, "#sampling-progress")
        await sample(flown, panel, 8 * HELDOUT)
        await flown.until(lambda: not flown.view.session.spending)
        await flown.until(lambda: "E samples others" in text(panel, "#sampling-progress"))
        await flown.until(lambda: rollouts_of(panel) == ["108", "108", "36", "36"])
        assert "4 candidates × 1 rollout of each task, then 2 × 2" in text(
            panel, "#sampling-progress"
        )
        keys = [panel.table.key]
        while panel.check_action("set_head", ()) is False or panel.standing == 0:
            await flown.press("down")  # the base cannot be served; the head is
            assert panel.table.key not in keys
            keys.append(panel.table.key)
        chosen = panel.entries[panel.standing or 0].name
        await flown.open(HeadDialog, "H")
        await flown.until(lambda: chosen in flown.dialog)


async def test_without_marks_they_are_the_usual_ones_and_another_can_be_the_reference(
    served: Served, tmp_path: Path
) -> None:
    async with checkpoints(served, tmp_path) as flown:
        panel = await panel_of(flown)
        assert [entry.name for entry in panel.entries] == ["step-000003", "base"]
        assert panel.reference == 1
        await sample(flown, panel, 2 * HELDOUT)
        await flown.until(lambda: "E samples others" in text(panel, "#sampling-progress"))
        await flown.until(lambda: panel.table.key is not None)
        panel.table.select("0")
        await flown.press("c")
        await flown.until(lambda: panel.reference == 0)
        await flown.until(lambda: panel.ranking is not None and panel.ranking.reference == 0)


async def test_sampling_is_stopped_and_goes_on_another_day(served: Served, tmp_path: Path) -> None:
    async with checkpoints(served, tmp_path) as flown:
        toy = toy_of(served)
        panel = await panel_of(flown)
        toy.rest_after(0)
        await sample(flown, panel, 2 * HELDOUT)
        await flown.until(lambda: "X stop" in text(panel, "#panel-foot"))
        assert not panel.check_action("evaluate", ())
        await flown.press("escape")
        assert "Rollouts so far are kept" in await flown.ask("q")
        await flown.press("escape")
        panel = await panel_of(flown)
        await flown.press("X")
        toy.go_on()
        await flown.until(lambda: "R goes on" in text(panel, "#sampling-progress"))
        model = flown.run.model
    async with cockpit(
        served, Start("checkpoints", model=model.id), state=lambda: tmp_path
    ) as flown:
        await flown.until(lambda: len(flown.run.tree) == 3)
        panel = await panel_of(flown)
        assert "R goes on" in text(panel, "#sampling-progress")
        await flown.press("R")
        await flown.until(lambda: "E samples others" in text(panel, "#sampling-progress"))
        selection = await panel.selector.newest(panel.entries)
        assert selection.is_complete


async def test_after_a_reconnect_it_samples_with_the_new_client(
    served: Served, tmp_path: Path
) -> None:
    async with checkpoints(served, tmp_path) as flown:
        panel = await panel_of(flown)
        lost, session = flown.view.client, flown.view.session
        await flown.press("ctrl+r")
        await flown.until(lambda: session.client is not lost)
        await sample(flown, panel, 2 * HELDOUT)
        await flown.until(lambda: "E samples others" in text(panel, "#sampling-progress"))


async def test_a_budget_that_is_too_small_or_no_number_is_told(
    served: Served, tmp_path: Path
) -> None:
    async with checkpoints(served, tmp_path) as flown:
        await panel_of(flown)
        dialog = await flown.open(BudgetDialog, "E")
        await flown.until(lambda: "held out" in text_of(dialog))
        field = dialog.query_one("#budget", Input)
        field.value = "71"
        least = "2 candidates on 36 tasks: at least 72 rollouts"
        await flown.until(lambda: least in text_of(dialog))
        await flown.press("enter")
        await flown.until(lambda: "a budget of 71 is too small" in text_of(dialog))
        field.value = "many"
        await flown.until(lambda: "a whole number" in text_of(dialog))
        assert not (tmp_path / "selections").exists()


async def test_nine_marks_and_folded_steps_are_refused_aloud(
    served: Served, tmp_path: Path
) -> None:
    async with checkpoints(served, tmp_path, steps=1) as flown:
        view = flown.view
        view.marked = tuple(f"other-{number}" for number in range(8))
        await flown.press("m")
        assert "8 are marked: M removes the marks" in flown.said("#tree-note")
        assert len(view.marked) == 8
        await flown.press("M")
        assert view.marked == ()


async def test_the_arms_of_a_sweep_are_compared_and_one_is_served(
    served: Served, tmp_path: Path
) -> None:
    async with sweeping(served, tmp_path) as app:
        typed(app, "seed", "0,1")
        await app.until(lambda: "sweep: 2 runs" in app.said("#summary"))
        await app.agree("ctrl+s")
        await app.until_view("runs")
        view = app.screen
        await app.until(lambda: [row.status for row in view.rows or ()] == ["succeeded"] * 2)
        panel = await app.open(ShipPanel, "Q")
        await app.until(lambda: panel.ranking is not None)
        assert [entry.name for entry in panel.entries][-1] == "base"
        assert len({entry.model_id for entry in panel.entries[:2]}) == 2
        assert all(entry.name.endswith(":step-000001") for entry in panel.entries[:2])
        assert {row.cells[0].plain for row in panel.table.rows} == {
            *("…seed0:step-000001", "…seed1:step-000001", "base")
        }
        panel.table.select("0")
        await app.press("H", then="checkpoints")
        await app.until(lambda: app.run.model is not None)
        assert app.run.model.id == panel.entries[0].model_id


async def test_read_only_no_key_is_offered_that_samples_or_serves(
    served: Served, tmp_path: Path
) -> None:
    async with checkpoints(served, tmp_path) as flown:
        panel = await panel_of(flown)
        assert {"evaluate", "set_head", "compare"} <= set(hinted(panel))
        panel.session.client.wire.guard.set_offline(ReadOnly("not answered", "wait"))
        panel.show_progress()
        assert hinted(panel) == ["compare"]


def hinted(panel: ShipPanel) -> list[str]:
    foot = str(panel.query_one(FootLine).render())
    return [name for name, hint in panel.HINTS.items() if keyed(hint) in foot]


async def test_in_runs_what_to_mark_is_said(served: Served, tmp_path: Path) -> None:
    async with checkpoints(served, tmp_path, steps=1) as flown:
        await flown.press("5", then="runs")
        view = flown.view
        await flown.until(lambda: view.rows is not None and view.table.row is not None)
        await flown.press("Q")
        said = "Mark two runs that have checkpoints (space), or go to a run of a sweep."
        await flown.until(lambda: said in flown.notices)
