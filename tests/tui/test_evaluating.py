"""Evaluating checkpoints from their view: asked, followed, cancelled, resumed, and what is said."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.style import Style
from textual.widgets import Input

from hud_tui.client import signal as sampling
from hud_tui.client.evaluate import Evaluations
from hud_tui.rl.run import Run
from hud_tui.service.engines.base import Sampled
from hud_tui.service.routes import training
from hud_tui.service.service import Service
from hud_tui.tui.keys import OPENS
from hud_tui.tui.screens.compare import ComparePanel
from hud_tui.tui.screens.evaluate import STILL_READING, EvaluateDialog
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.checkpoint_tree import (
    ERROR_BAR,
    EVALUATION,
    HELDOUT,
    error_bar,
    evaluation_cell,
    fit,
)
from hud_tui.tui.widgets.form import Picker
from hud_tui.wire import Estimate, Evaluation, Model, WorkState
from hud_tui.wire_runs import UsualTasks
from tests.conftest import Served, caller, calling, on_socket
from tests.tui.cockpit import Cockpit, cockpit, grown
from tests.tui.conftest import toy_of, trained
from tests.tui.runs import evaluation


@asynccontextmanager
async def evaluating(served: Served, steps: int = 3) -> AsyncIterator[Cockpit]:
    """The checkpoints of a model after a run, the cursor on the head."""
    model, _ = await trained(served, steps)
    async with cockpit(served, Start("checkpoints", model=model)) as flown:
        await flown.until(lambda: len(flown.run.tree) == steps)
        yield flown


def asks(flown: Cockpit) -> str:
    """What the dialog says of its size, or of what is wrong."""
    return text(flown, "#dialog-problem")


async def dialog(flown: Cockpit) -> EvaluateDialog:
    """The dialog, once it knows what it would evaluate."""
    found = await flown.until_screen(EvaluateDialog)
    await flown.until(lambda: "rollouts" in asks(flown))
    return found


def asked_for(run: Run) -> list[WorkState]:
    """Evaluations that were asked for, not the run's own."""
    return [one for one in run.evaluations.values() if one.job_id == one.id]


async def over(flown: Cockpit, count: int = 1) -> list[WorkState]:
    """So many, once all have succeeded."""
    await flown.until(lambda: [one.status for one in asked_for(flown.run)] == ["succeeded"] * count)
    return asked_for(flown.run)


async def test_two_checkpoints_are_evaluated_in_five_keys_and_compared_by_task(
    served: Served,
) -> None:
    async with evaluating(served) as flown:
        await flown.press("m", "down", "m", "E")
        shown = await dialog(flown)
        assert "96 training tasks, 36 held out" in asks(flown)
        assert "36 tasks × 4 = 144 rollouts, 288 in all" in asks(flown)
        assert shown.query_one("#evaluate-of", Picker).value == "A step-000003 and B step-000002"
        await flown.press("enter")
        found = await over(flown, 2)
        assert [one.checkpoint for one in found] == ["step-000003", "step-000002"]
        assert {(one.samples, one.split, one.total) for one in found} == {(4, "heldout", 144)}
        await flown.until(lambda: "36 tasks × 4" in flown.said("#tree-note"))
        tree = flown.run.tree
        assert [tree.evaluation(at).num_traces for at in (1, 2)] == [144, 144]
        panel = await flown.open(ComparePanel, "M", "c")
        await flown.until(lambda: panel.tasks.has_focus)
        said = text(flown, "#compare-said")
        assert "36 tasks × 4" in said
        assert "A step-000003 (144 rollouts, evaluated on arith)" in said
        keys = [row.key for row in panel.tasks.rows if not row.heading]
        assert len([key for key in keys if key.startswith("heldout ")]) == 36
        panel.tasks.select(keys[-1])
        slug = keys[-1].removeprefix("heldout ")
        group = await flown.open(GroupScreen, "enter")
        await flown.until(lambda: "8 rollouts, A and B in turn, best first" in flown.drawn)
        said = text(flown, "#group-facts")
        assert said.startswith(f"{slug}   A step-000003  ")
        assert "(n 4)   B step-000002  " in said
        assert "advantage" not in flown.drawn
        sides = [answer.of for answer in group.columns.answers]
        assert sides == ["A step-000003", "B step-000002"] * 4


async def test_the_head_the_best_and_the_base_can_be_chosen(served: Served) -> None:
    async with evaluating(served) as flown:
        await flown.press("down", "E")
        shown = await dialog(flown)
        picker = shown.query_one("#evaluate-of", Picker)
        assert picker.options[0] == "step-000002"
        assert {"▶ step-000003", "▶ step-000003 and base", "base"} <= set(picker.options)
        picker.focus()
        await flown.until(lambda: picker.has_focus)
        while (before := picker.value) != "base":
            await flown.press("right")
            await flown.until(lambda before=before: picker.value != before)
        shown.query_one("#samples", Input).value = "1"
        await flown.press("enter")
        [found] = await over(flown)
        assert (found.checkpoint_id, found.total) == (None, 36)
        await flown.press("end", "E")
        assert (await dialog(flown)).query_one("#evaluate-of", Picker).value == "base"
        assert flown.screen.query_one("#samples", Input).value == "1"  # as last time
        assert "about" in asks(flown)


async def test_other_tasks_are_read_before_they_are_evaluated(served: Served) -> None:
    async with evaluating(served) as flown:
        await flown.press("E")
        shown = await dialog(flown)
        held_back = [one for one in flown.app.workers if one.group == OPENS and one.is_running]
        assert held_back == [], "what is typed is for this dialog"
        shown.query_one("#evaluate-source", Input).focus()
        await flown.press(*"nothing", "enter")
        await flown.until(lambda: "nothing" in asks(flown))
        await flown.press("ctrl+u", *"text", "enter")
        await flown.until(lambda: "72 training tasks, 24 held out" in asks(flown))
        shown.query_one("#samples", Input).value = "0"
        await flown.until(lambda: "samples per task: 1 to 256" in asks(flown))
        shown.query_one("#samples", Input).value = "2"
        shown.query_one("#split", Picker).focus()
        await flown.press("right", "enter")
        [found] = await over(flown)
        assert (found.name, found.split, found.total) == ("text", "train", 144)


async def start_held(served: Served, flown: Cockpit) -> None:
    """Start an evaluation of step-000003 whose rollouts wait until the engine goes on."""
    toy_of(served).rest_after(0)
    await flown.press("E")
    await dialog(flown)
    await flown.press("enter")
    await flown.until(lambda: "evaluating step-000003" in flown.said("#tree-evaluations"))


def statuses(flown: Cockpit) -> list[str]:
    """Of the evaluations that were asked for, displayed or to be with the next frame."""
    return [one.status for one in asked_for(flown.app.workspace.session.followed._latest)]


@pytest.mark.parametrize("displayed", [True, False])
async def test_events_that_come_before_the_answer_to_a_submission_are_newer(
    served: Served, displayed: bool
) -> None:
    async with evaluating(served) as flown:
        toy_of(served).rest_after(0)
        await flown.press("E")
        await dialog(flown)
        if not displayed:
            stop_frames(flown)
        flown.net.free = lambda: not flown.net.sent  # the answer to the submission is late
        await flown.press("enter")
        await flown.until(lambda: statuses(flown) == ["running"])
        if displayed:
            await flown.until(lambda: asked_for(flown.run))
        flown.net.free = lambda: True
        await flown.until_view("checkpoints")
        assert statuses(flown) == ["running"]


def stop_frames(flown: Cockpit) -> None:
    """Display nothing more of what comes by events."""
    session = flown.app.workspace.session
    [timer] = [timer for timer in flown.app._timers if timer._callback == session.frame]
    timer.pause()


async def test_events_that_come_before_the_answers_to_a_cancel_and_a_resume_are_newer(
    served: Served,
) -> None:
    async with evaluating(served) as flown:
        await start_held(served, flown)
        [asked] = asked_for(flown.run)
        net = flown.net
        net.holds, net.free = asked.id, lambda: False  # what is read after a cancel is late
        await flown.agree("X")
        await flown.until(lambda: net.held == 1)
        await flown.until(lambda: statuses(flown) == ["cancelled"])
        (await flown.http.post(f"/v1/training/jobs/{asked.id}/resume")).raise_for_status()
        await flown.until(lambda: statuses(flown) == ["running"])
        await free(flown)
        assert statuses(flown) == ["running"]
        await flown.until(lambda: "evaluating step-000003" in flown.said("#tree-evaluations"))
        await flown.agree("X")
        await flown.until(lambda: "cancelled after 0 of 144" in flown.said("#tree-evaluations"))
        net.holds, net.free = "/resume", lambda: False
        await flown.press("R")
        await flown.until(lambda: net.held == 1)
        toy_of(served).go_on()
        await flown.until(lambda: statuses(flown) == ["succeeded"])
        await free(flown)
        assert statuses(flown) == ["succeeded"]


async def free(flown: Cockpit) -> None:
    """Let the held answer come, and the app act on it."""
    flown.net.free = lambda: True
    acting = [worker for worker in flown.app.workers if worker.group == "act"]
    await flown.until(lambda: all(one.is_finished for one in acting))


async def test_an_evaluation_that_ends_before_it_is_cancelled_is_told_of(served: Served) -> None:
    async with evaluating(served) as flown:
        await start_held(served, flown)
        await flown.ask("X")
        toy_of(served).go_on()
        known = flown.run.evaluations
        await flown.until(
            lambda: {flown.run.evaluations[one].status for one in known} == {"succeeded"}
        )
        said = "The evaluation is not cancelled: it had ended (succeeded)."
        await flown.press("y")
        await flown.until(lambda: said in flown.notices)


async def test_an_evaluation_is_cancelled_and_resumed_by_the_keys_of_a_run(served: Served) -> None:
    """In Checkpoints, and on its row in Jobs, which says how far it is and what it found."""
    async with evaluating(served) as flown:
        await start_held(served, flown)
        assert "0/144" in flown.said("#tree-evaluations")
        asked = await flown.ask("X")
        assert "The evaluation of step-000003 is running after 0 of 144 rollouts." in asked
        await flown.press("y")
        await flown.until(lambda: "cancelled after 0 of 144" in flown.said("#tree-evaluations"))
        await flown.press("R")
        await flown.until(lambda: "evaluating step-000003" in flown.said("#tree-evaluations"))
        await flown.press("6")
        await flown.until(lambda: "evaluation of step-000003" in flown.drawn)
        await flown.until(lambda: "0/144" in flown.drawn)
        assert "The evaluation of step-000003 is" in await flown.agree("g", "X")
        await flown.until(lambda: "cancelled" in flown.drawn)
        toy_of(served).go_on()
        await flown.press("R")
        await flown.until(lambda: "144/144" in flown.drawn)
        await flown.until(lambda: "mean reward" in text(flown, "#jobs-reason"))
        assert "36 tasks × 4" in text(flown, "#jobs-reason")
        await over(flown)
        await flown.press("4", then="checkpoints")
        await flown.until(lambda: not flown.view.query_one("#tree-evaluations").display)


async def test_enter_while_the_tasks_are_read_says_so_and_starts_nothing_unseen(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, usual_tasks = asyncio.Event(), Evaluations.usual_tasks

    async def slow(self: Evaluations, model: Model) -> UsualTasks | None:
        await there.wait()
        return await usual_tasks(self, model)

    monkeypatch.setattr(Evaluations, "usual_tasks", slow)
    async with evaluating(served) as flown:
        await flown.press("E")
        await flown.until_screen(EvaluateDialog)
        await flown.press("enter")
        await flown.until(lambda: STILL_READING in asks(flown))
        there.set()
        await dialog(flown)
        assert "36 tasks × 4 = 144 rollouts" in asks(flown)
        assert not asked_for(flown.run)
        await flown.press("enter")
        await over(flown)


async def test_without_tasks_it_says_what_to_type(served: Served) -> None:
    """A model that a loop trained has had no run whose tasks could be taken."""
    async with caller(served) as http:
        model = await grown(http, "loop", 1)
    async with cockpit(served, Start("checkpoints", model=model["id"])) as flown:
        await flown.until(lambda: len(flown.run.tree) == 1)
        await flown.press("E")
        await flown.until(lambda: flown.screen.focused is flown.screen.query("#evaluate-source")[0])
        await flown.press("enter")
        await flown.until(lambda: "type a taskset's name" in asks(flown))
        await flown.press(*"arith", "enter")
        await dialog(flown)
        await flown.press("enter")
        [found] = await over(flown)
        assert found.name == "arith"


@pytest.mark.parametrize(
    ("mean", "drawn"),
    [
        (Estimate(value=0.5, low=0.0, high=1.0), "────●───"),
        (Estimate(value=0.0, low=0.0, high=0.3), "●──     "),
        (Estimate(value=1.0, low=0.9, high=1.0), "      ─●"),
        (Estimate(value=0.5), "    ●   "),
        (Estimate(value=0.5, low=-9, high=9), "────●───"),
    ],
)
def test_an_interval_is_drawn_on_the_scale_of_all(mean: Estimate, drawn: str) -> None:
    assert "".join(error_bar(mean, (0.0, 1.0))) == drawn
    assert len("".join(error_bar(mean, (0.5, 0.5)))) == ERROR_BAR


@pytest.mark.parametrize(
    "found", [None, evaluation(0.5), evaluation(1.0, 0.9, 1.0), evaluation(-12.5, -13, -12)]
)
def test_an_evaluation_takes_its_column_s_cells(found: Evaluation | None) -> None:
    cells = evaluation_cell(found, (0.0, 1.0), Style())
    assert sum(cell.cell_length for cell in cells) == EVALUATION.width


def test_there_is_a_column_where_anything_was_evaluated() -> None:
    """In place of the held-out reward, which it says too where there is no evaluation."""
    for width in range(20, 200):
        usual, evaluated = fit(width, 2), fit(width, 2, evaluated=True)
        assert EVALUATION not in usual
        assert EVALUATION not in evaluated or HELDOUT not in evaluated
        assert (EVALUATION in evaluated) == (width >= 70)
        assert usual[:3] == evaluated[:3]


async def test_what_was_evaluated_is_seen_in_the_tree_and_in_the_details(served: Served) -> None:
    async with evaluating(served) as flown:
        await flown.press("E")
        picker = (await dialog(flown)).query_one("#evaluate-of", Picker)
        picker.value = "▶ step-000003 and base"
        await flown.press("enter")
        await over(flown, 2)
        # The head's and the base's.
        await flown.until(lambda: len(re.findall(r"\d +36×4", flown.drawn)) == 2)
        assert "evaluation" in flown.drawn
        await flown.until(lambda: "this − base" in flown.drawn)
        assert "held-out, 36 tasks × 4" in flown.drawn
        assert "pass@4" in flown.drawn
        await flown.press("end")
        await flown.until(lambda: "this − ▶" in flown.drawn)
        await flown.press("home", "E")
        await flown.until(lambda: "fresh rollouts: seed 1" in flown.drawn)
        await flown.press("escape")
        await flown.press("slash", *"eval>=0", "enter")
        await flown.until(lambda: "1 of 3 checkpoints" in flown.said("#tree-note"))
        await flown.press("slash", "ctrl+u", *"!is:evaluated", "enter")
        await flown.until(lambda: "2 of 3 checkpoints" in flown.said("#tree-note"))


def text(flown: Cockpit, selector: str) -> str:
    return str(flown.screen.query_one(selector).render())


async def test_the_head_dialog_and_a_comparison_say_what_was_and_was_not_evaluated(
    served: Served,
) -> None:
    async with evaluating(served) as flown:
        panel = await flown.open(ComparePanel, "down", "c")
        said = text(flown, "#compare-said")
        assert "36 tasks × 1" in said, "the run sampled held-out tasks from either"
        assert "step-000002 (36 rollouts, in training)" in said
        assert "No training rollouts sampled from A are stored" in said
        await flown.until(lambda: panel.tasks.has_focus)
        await flown.press("escape")
        await flown.until(lambda: flown.screen is flown.view)
        asked = await flown.ask("down", "H")
        assert "step-000001 has no evaluation yet: E evaluates it." in asked
        await flown.press("E")
        shown = await dialog(flown)
        assert shown.query_one("#evaluate-of", Picker).value == "step-000001"
        await flown.press("enter")
        await over(flown)
        asked = await flown.ask("H")
        assert "95 % interval" in asked
        assert "36 tasks × " in asked
        assert "no evaluation" not in asked
        await flown.press("escape")
        assert not [sent for sent in flown.net.sent if sent.startswith("PUT")]


@pytest.fixture
async def elsewhere(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Served, str]]:
    """A service without evaluations of its own, as HUD, and a model there that was trained."""
    async with calling(service) as http:
        model = await grown(http, "loop", 2)
    kept = [route for route in training.ROUTES if route not in training.EVALUATION_ROUTES]
    monkeypatch.setattr(training, "ROUTES", kept)
    monkeypatch.setattr(sampling, "FAR_LOOK_S", sampling.LOOK_S)
    monkeypatch.setattr(sampling, "AT_ONCE", 8)  # who leaves has not submitted all
    async with on_socket(service) as url:
        yield Served(url, service.api_key, service), model["id"]


async def test_elsewhere_it_is_made_while_the_app_is_open_and_resumed_by_the_next(
    elsewhere: tuple[Served, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, model = elsewhere
    toy, goes_on = toy_of(served), asyncio.Event()
    sample = toy.sample

    async def held(*given: Any) -> list[Sampled]:
        await goes_on.wait()
        return await sample(*given)

    monkeypatch.setattr(toy, "sample", held)
    start = Start("checkpoints", model=model)
    async with cockpit(served, start, state=lambda: tmp_path) as flown:
        await flown.until(lambda: len(flown.run.tree) == 2)
        await flown.open(EvaluateDialog, "E")
        await flown.until(lambda: flown.screen.focused is flown.screen.query("#evaluate-source")[0])
        await flown.press(*"arith", "enter")
        await dialog(flown)
        await flown.press("enter")
        await flown.until(lambda: "evaluating step-000002" in flown.said("#tree-evaluations"))
        assert "only while hud-tui is open" in await flown.agree("q")
        await flown.until(lambda: not flown.app.is_running)
    goes_on.set()
    async with cockpit(served, start, state=lambda: tmp_path) as flown:
        await flown.until(lambda: "R samples the rest" in flown.said("#tree-evaluations"))
        await flown.press("R")
        [found] = await over(flown)
        assert (found.done, found.name, found.result is not None) == (144, "arith", True)
        await flown.until(lambda: "36×4" in flown.drawn)
        assert flown.run.tree.own(1).heldout is not None
        await flown.press("E")  # the same tasks are usual now
        assert "36 held out" in asks(flown) or await dialog(flown)
    async with cockpit(served, start, state=lambda: tmp_path) as flown:
        await flown.until(lambda: "36×4" in flown.drawn)
