"""A run in the Live view over the real service: the service's own, and one that a driver drives."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Button, Input

from hud_tui.audit_log import CommandLog, as_hud_tui
from hud_tui.rl.progress import Liveness, State
from hud_tui.rollouts import control
from hud_tui.rollouts.control import known_runs
from hud_tui.rollouts.run_files import RunFolder
from hud_tui.service.engines.base import Saved
from hud_tui.service.store.events import after
from hud_tui.tui.screens.base import TextPanel
from hud_tui.tui.screens.chart_settings import OverlayList
from hud_tui.tui.screens.launch import LaunchScreen
from hud_tui.tui.screens.runs import RunDetails
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.group_grid import GroupGrid
from hud_tui.tui.widgets.lines import TextPane
from hud_tui.tui.widgets.run_status import status_line
from hud_tui.wire import WorkState
from tests.conftest import Served, submit, until
from tests.rollouts.driving import (
    SUMS,
    begun,
    driver_of,
    make_venv,
    order_for,
    settings_of,
    write_sums,
)
from tests.service.calls import set_head, tree
from tests.service.clients import fork_of, over_socket
from tests.service.headless import point_at
from tests.tui import runs
from tests.tui.cockpit import Cockpit, cockpit, grown
from tests.tui.conftest import caller, forked, toy_of, training
from tests.tui.test_evaluating import asks


@asynccontextmanager
async def watched(served: Served, model: str) -> AsyncIterator[Cockpit]:
    """Live on a model, once its tree is read."""
    async with cockpit(served, Start("status", model=model)) as flown:
        await flown.until(lambda: flown.run.loaded)
        yield flown


def is_now(flown: Cockpit, status: str) -> bool:
    """Whether the run's status is this, and nothing lies over Live."""
    return (
        flown.screen is flown.view and flown.run.job is not None and flown.run.job.status == status
    )


async def test_x_cancels_after_asking_and_r_resumes_the_run(served: Served) -> None:
    model_id, _ = await training(served)
    async with watched(served, model_id) as flown:
        await flown.until(lambda: is_now(flown, "running"))
        await flown.press("R")
        assert flown.screen is flown.view, "a run under way cannot be resumed"
        assert "R in Live, Runs or Jobs resumes it." in await flown.ask("X")
        await flown.press("escape")
        await flown.until(lambda: is_now(flown, "running"))
        await flown.agree("X")
        await flown.until(lambda: is_now(flown, "cancelled"))
        toy_of(served).rest_after(1)
        taken = flown.run.series.length
        await flown.press("X")
        assert flown.screen is flown.view, "a run that ended cannot be cancelled"
        await flown.agree("R")
        await flown.until(lambda: is_now(flown, "running"))
        await flown.until(lambda: flown.run.series.length > taken)


async def test_a_run_is_watched_from_its_first_rollout_to_its_end(served: Served) -> None:
    model_id = await forked(served)
    async with watched(served, model_id) as flown:
        live: Any = flown.view
        assert live.query_one("#nothing").display
        await submit(flown.http, model_id, steps=6)
        await flown.until(lambda: is_now(flown, "succeeded"))
        await flown.until(lambda: live.shown.series.length == 6)
        assert live.focus_key == "reward_mean"
        assert live.shown.series.last("reward_mean") > live.shown.series.values("reward_mean")[0]
        assert len(live.query_one(GroupGrid).groups.rows) == len(live.shown.groups) > 0
        assert not live.query_one("#nothing").display


async def test_steps_that_the_head_was_set_back_from_are_named_with_the_key_that_shows_them(
    served: Served,
) -> None:
    async with caller(served) as http:
        model = await grown(http, "back", 5)
        nodes = await tree(http, model["id"])
        assert (await set_head(http, model["id"], nodes[2]["id"])).is_success
    async with watched(served, model["id"]) as flown:
        told = "Head at step-000003. 2 steps after it are on another branch: c overlays it."
        await flown.until(lambda: flown.said("Reason") == told)
        await flown.press("c")
        await flown.until(lambda: isinstance(flown.screen, OverlayList))
        await flown.press("down", "enter")
        live: Any = flown.view
        await flown.until(lambda: live.chart_view.overlay is not None)
        assert live.chart_view.overlay.name == "step-000005"


def test_the_run_s_steps_are_told_from_the_tree_s_and_its_name_has_a_quarter_of_the_line() -> None:
    def line(width: int, **job: Any) -> str:
        run = runs.run_of(60)
        run = replace(run, job=run.job.model_copy(update=job))
        return status_line(run, Liveness(State.LIVE, "stream", 1.0), None, width).plain

    assert "step 60/400  " in line(120)
    assert "step 20/400  of this run" in line(120, step=20)
    assert "step 20/400  of this run" in line(80, step=20)
    assert "of this run" not in line(120, step=59), "its 60th step is stored, and not counted yet"
    assert "step 58/400  of this run" in line(120, step=58)
    assert "waiting  " in line(60, waits="paused: short of capacity")
    assert "⚠ paused: short of capacity" in line(60, waits="paused: short of capacity")
    name = "A running job sends nothing any more"
    assert line(200, name=name).startswith(f" {name} running  step 60")
    assert line(120, name=name).startswith(f" {name[:30].rstrip()}")


async def test_d_says_what_the_run_was_started_with(served: Served) -> None:
    model_id, _ = await training(served)
    async with watched(served, model_id) as flown:
        await flown.until(lambda: is_now(flown, "running"))
        pane = (await flown.open(TextPanel, "d")).query_one(TextPane)
        await flown.until(lambda: "starts from" in pane.plain)
        lines = [line.split() for line in pane.plain.splitlines()]
        size = str(flown.run.job.parameters["group_size"])
        assert any(line[:3] == ["group", "size", size] for line in lines)
        assert ["starts", "from", "base", "weights"] in lines
        assert ["Adam", "beta1", "0.9", "default"] in lines
        await flown.press("escape", then="live")


async def drive_here(folder: RunFolder, served: Served) -> str:
    """Drive a run in this process, which holds its lock as a driver does."""
    with folder.driving():
        return await driver_of(folder, settings_of(served.url, served.api_key)).run()


BROKEN = [*SUMS[:3], {"args": {"a": 1, "b": 1, "fault": "error"}}]


async def test_its_failures_and_log_are_read_and_it_is_cancelled_by_x(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, goes_on = tmp_path / "state", asyncio.Event()
    toy, steps = toy_of(served), count()
    step = toy.optim_step

    async def rest_after_one(*given: Any) -> Saved:
        if next(steps):
            await goes_on.wait()
        return await step(*given)

    monkeypatch.setattr(toy, "optim_step", rest_after_one)
    async with over_socket(served) as client:
        model = await fork_of(client)
        parameters = {"steps": 500, "tasks_per_step": 4, "learning_rate": 1e-6}  # never solved
        source = write_sums(tmp_path / "env", BROKEN)
        order = order_for(model, source, served.service.data_dir, parameters=parameters)
    folder = begun(state, order)
    running = asyncio.create_task(drive_here(folder, served))
    await until(lambda: folder.state().step >= 1 and bool(folder.failures()))
    folder.environment_log.write_text("hello from the garden \x1b[31m\n")
    async with cockpit(served, Start("models"), (120, 40), state=lambda: state) as flown:
        await flown.press("5", then="runs")
        view: Any = flown.view
        await flown.until(lambda: view.table.row is not None)
        await flown.open(RunDetails, "d")
        pane: Any = flown.screen.query_one(TextPane)
        await flown.until(lambda: "hello from the garden" in pane.plain)
        for word in ("failed rollouts", "sums.py:12 in add: KeyError", "lost", "steps", "500"):
            assert word in pane.plain
        assert "\x1b" not in pane.plain
        await flown.press("escape", then="runs")
        await flown.agree("X")
        goes_on.set()
        assert await asyncio.wait_for(running, 60) == "cancelled"
        await flown.until(lambda: view.table.row.status == "cancelled")
        folder.save_order(order.model_copy(update={"env": ("NO_SUCH_VARIABLE",)}))
        await flown.agree("R")
        await flown.until(lambda: any("not set here" in notice for notice in flown.notices))
        assert folder.state().status == "cancelled"


async def test_a_file_in_launch_is_checked_and_trained_on_by_keys(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_at(monkeypatch, served.url, served.api_key)
    monkeypatch.setenv("SHOP_TOKEN", "sk-4711")
    state, source = tmp_path / "state", write_sums(tmp_path / "env")
    make_venv(tmp_path / "env" / ".venv")
    async with over_socket(served) as client:
        model = await fork_of(client)
    start = Start("run", view="launch", model=model.model_name, source=str(source))
    monkeypatch.setattr(control, "mode_of", lambda client: "hud")
    log = CommandLog(state)
    async with cockpit(served, start, state=lambda: state, observe=log.add) as flown:
        await flown.until_view("launch")
        view: Any = flown.view
        await flown.until(lambda: view.draft.findings and not view.draft.checking)
        said = " ".join(finding.message for finding in view.draft.findings)
        assert "reward" in said
        assert len(view.draft.tasks) == 12
        assert [len(signal.rewards) for signal in view.draft.trial.signals.values()] == [4] * 4
        found = view.draft.findings
        await flown.press("d")
        await flown.until(lambda: "estimate      a step " in flown.drawn)
        await flown.press("escape", then="launch")
        assert "edits it;" in flown.said("#lead"), "no sweep is offered"
        seed = view.query_one("#seed", Input)
        seed.value = "1, 2"
        await flown.until(lambda: flown.said("#summary").endswith("one value each"))
        seed.value = "0"
        await type_options(flown, view)
        await flown.ask("enter")
        assert view.draft.findings is not found, "what was changed is checked first"
        shown = " ".join(str(one.render()) for one in flown.screen.query(".dialog-line"))
        for said in ("turns             4", "stop:3", "subprocess", "SHOP_TOKEN"):
            assert said in shown
        await flown.press("y", then="live")
        await flown.until(lambda: bool(known_runs(state)))
        [folder] = known_runs(state).values()
        order = folder.order()
        assert (order.turns, order.failed) == (4, "stop:3")
        assert order.env == ("SHOP_TOKEN",)
        await until(lambda: folder.state().step >= 1)
        await flown.until(lambda: len(flown.view.run.tree) >= 1)
        [logged] = [one for one in log.read()[0] if one.verb == "train"]
        words = as_hud_tui(logged).split()
        assert {"--turns=4", "--failed=stop:3", "--env=SHOP_TOKEN", str(source)} <= set(words)
        folder.ask_to_cancel()
        await until(lambda: not folder.is_driven)


async def test_e_evaluates_on_the_environment_of_the_run(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_at(monkeypatch, served.url, served.api_key)
    state, rows = tmp_path / "state", [dict(row) for row in SUMS[:6]]
    for row in rows[:2]:
        row["columns"] = {"split": "heldout"}
    source = write_sums(tmp_path / "env", rows)
    make_venv(tmp_path / "env" / ".venv")
    fewer = tmp_path / "fewer.json"  # the run's taskset
    fewer.write_text(json.dumps([{"env": "sums", "id": "add", **row} for row in rows[:5]]))
    async with over_socket(served) as client:
        model = await fork_of(client)
        parameters = {"steps": 2, "tasks_per_step": 3, "eval_every": 1}
        more = {"parameters": parameters, "tasks": str(fewer), "mode": "hud"}
        order = order_for(model, source, served.service.data_dir, **more)
        folder = begun(state, order)
        assert await asyncio.wait_for(drive_here(folder, served), 120) == "succeeded"
    read = await served.service.parts.store.read(after, model.id, 0, 10_000)
    done = [json.loads(event.body) for event in read if event.type == "rollout"]
    heldout = {event["task_slug"] for event in done if event["heldout"]}
    trained = {event["task_slug"] for event in done if not event["heldout"]}
    assert len(heldout) == 2
    assert not heldout & trained, "a rollout of an evaluation is none of the next step's"
    start = Start("checkpoints", model=model.model_name)
    async with cockpit(served, start, state=lambda: state) as flown:
        await flown.until_view("checkpoints")
        await flown.until(lambda: len(flown.view.run.tree) == 2)
        assert not flown.view.run.rollouts.keys() & heldout
        await flown.ask("E")
        await flown.until(lambda: "3 training tasks, 2 held out" in asks(flown))
        assert "fewer.json" in asks(flown)
        typed = flown.screen.query_one("#evaluate-source", Input)
        typed.focus()
        typed.value = str(source)
        await flown.press("enter")  # the file's own tasks, not those of its run
        await flown.until(lambda: "4 training tasks, 2 held out, from env/sums.py" in asks(flown))
        flown.screen.query_one("#samples").focus()
        await flown.press("end", "backspace", "3", "enter")

        def own() -> list[WorkState]:
            known = flown.view.run.evaluations.values()
            return [one for one in known if one.name == "sums" and one.status == "succeeded"]

        await flown.until(lambda: bool(own()))
        [own_one] = own()
        assert (own_one.samples, own_one.num_tasks, own_one.done, own_one.split) == (
            3,
            2,
            6,
            "heldout",
        )
        await flown.until(
            lambda: any(one.id == own_one.id for one in flown.view.run.head.evaluations or ())
        )


NO_POLICY = "on failure: stop:N, resample or drop, e.g. drop"


async def type_options(flown: Cockpit, view: LaunchScreen) -> None:
    """Unfold the form, and say how rollouts are made; a wrong word is told at its field."""
    fold = view.query_one("#fold", Button)
    fold.focus()
    await flown.press("enter")
    for key, text in (("turns", "4"), ("failed", "stop:3"), ("env", "SHOP_TOKEN")):
        typed = view.query_one(f"#rollouts-{key}", Input)
        typed.focus()
        await flown.press("end", *["backspace"] * 12)
        if key == "failed":
            await flown.press(*"some")
            await flown.until(lambda: view.form.faults == [NO_POLICY])
            assert NO_POLICY in view.blocked
            await flown.press(*["backspace"] * 4)
        await flown.press(*text)
    fold.focus()
    await flown.press("enter")
    assert "python, turns, runtime" in str(fold.label)
    assert "3 set" in str(fold.label)
    view.button.focus()
