"""Sweeps from Launch's form, and its folded fields: typed, told of, submitted, resumed."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Button, Input

from hud_tui.client.sweep_files import SweepFiles
from hud_tui.rl.settings import FOLDED
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.form import Picker
from tests.conftest import Served
from tests.service.clients import over_socket
from tests.tui.conftest import Connector, Opened, opened, toy_of
from tests.tui.test_launch import checked, launch, said, view

FAST = {"steps": 1, "group_size": 2, "tasks_per_step": 1}


@asynccontextmanager
async def sweeping(served: Served, state: Path, **start: Any) -> AsyncIterator[Opened]:
    """Launch with a checked taskset, of a model that has no run yet."""
    begin = {"source": "arith", "parameters": FAST, **start}
    async with launch(served, state=lambda: state, **begin) as app:
        await checked(app)
        yield app


def typed(app: Opened, key: str, text: str) -> None:
    view(app).query_one(f"#{key}", Input).value = text


async def test_commas_in_the_form_are_a_sweep_whose_cost_is_said_first(
    served: Served, tmp_path: Path
) -> None:
    async with sweeping(served, tmp_path) as app:
        typed(app, "learning_rate", "1e-6, 2e-6")
        typed(app, "seed", "0,1")
        await app.until(lambda: "sweep: 4 runs, 2 at once · 8 rollouts" in said(app, "#summary"))
        typed(app, "at_once", "1")
        await app.until(lambda: "4 runs, 1 at once" in said(app, "#summary"))
        shown = await app.ask("ctrl+s")
        for word in ("arith-rl-sweep", "lr 1e-6 · seed 0", "lr 2e-6 · seed 1", "4 runs, 1 at once"):
            assert word in shown
        for label in ("start from", "evaluation", "per run", "in total", "tokens", "time"):
            assert f"\n{label}  " in shown, label
        assert "per run           1 step · 2 training rollouts" in shown
        assert "\nheld-out reward   36 rollouts per run, every 5 steps" in shown
        assert "\nbaseline          no" in shown
        await app.press("E")
        await app.until(lambda: "before the first step" in app.dialog)
        assert app.net.sent == []
        await app.press("y", then="runs")
        await app.until(lambda: len(app.view.rows or ()) == 4)
        await app.until(lambda: {row.status for row in app.view.rows or ()} == {"succeeded"})
        assert {row.sweep for row in app.view.rows or ()} == {"arith-rl-sweep"}
        assert {row.parameters["baseline"] for row in app.view.rows or ()} == {True}
        await app.press("v", "v")
        table = "".join(s.text for s in app.view.table.shown)
        assert " 4 runs · not averaged: lr differs · sweep arith-rl-sweep" in table
        await app.until(lambda: not app.view.session.sweeps)


async def test_what_is_no_sweep_is_refused_and_a_cancelled_one_is_not_sent(
    served: Served, tmp_path: Path
) -> None:
    many = ",".join(map(str, range(90)))
    async with sweeping(served, tmp_path) as app:
        for seeds, steps, wrong in (
            ("1,1", "1", "a value comes twice"),
            ("1,x", "1", "invalid: seed"),
            (many, "1,2,3", "270 combinations"),
        ):
            typed(app, "seed", seeds)
            typed(app, "steps", steps)
            await app.until(lambda wrong=wrong: wrong in said(app, "#summary"))
            assert view(app).button.has_class("blocked")
        typed(app, "seed", "0,1")
        typed(app, "steps", "1")
        await app.until(lambda: "sweep: 2 runs" in said(app, "#summary"))
        await app.ask("ctrl+s")
        await app.press("escape", then="launch")
        assert app.net.sent == []
        assert SweepFiles(tmp_path).all() == []
        await app.press("e")
        await app.until(lambda: isinstance(app.screen.focused, Input))
        await app.app.action_view("jobs")
        await app.until_view("jobs")
        await app.press("2")
        await app.until_view("launch")  # where no field takes the next key
        await app.until(lambda: app.screen.focused is view(app).button)
        typed(app, "eps", "x")
        await app.until(lambda: "invalid" in said(app, "#summary"))
        assert not view(app).form.unfolded
        await app.press("ctrl+s")
        await app.until(lambda: app.screen.focused is view(app).query_one("#eps", Input))
        assert view(app).form.unfolded


async def test_a_sweep_knows_its_tasks_from_any_directory_and_its_runs_from_the_table(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with over_socket(served) as client:
        rows = (await client.tasks.taskset("arith")).tasks
    (tmp_path / "sums.json").write_text(json.dumps(rows))
    monkeypatch.chdir(tmp_path)
    async with sweeping(served, tmp_path, source="sums.json") as app:
        typed(app, "learning_rate", "1e-6, 2e-6")
        await app.until(lambda: "sweep: 2 runs" in said(app, "#summary"))
        await app.agree("ctrl+s", then="runs")
        files = SweepFiles(tmp_path)
        await app.until(lambda: bool(files.all()))
        assert [sweep.source for sweep in files.all()] == [str(tmp_path / "sums.json")]
        await app.until(
            lambda: [row.status for row in app.view.rows or ()] == ["succeeded", "succeeded"]
        )
        await app.until(lambda: not app.view.session.sweeps)
        [kept] = files.all()  # as it is where nobody has followed the last run to its end
        started = [run.model_copy(update={"status": "queued"}) for run in kept.members]
        files.keep(kept.model_copy(update={"members": tuple(started)}))
        await app.until_notice(
            "has ended (succeeded): nothing to resume. Launch a new run with", "R"
        )
        await app.until_notice("has ended (succeeded): nothing to cancel", "X")


async def test_the_command_line_fills_in_a_sweep_whose_cost_is_in_sight_when_it_is_asked(
    served: Served, tmp_path: Path
) -> None:
    swept = {"learning_rate": (1e-6, 2e-6), "loss_fn": ("ppo", "cispo")}
    async with sweeping(served, tmp_path, size=(80, 24), swept=swept, at_once=1) as app:
        assert view(app).query_one("#learning_rate", Input).value == "1e-6, 2e-6"
        assert view(app).query_one("#loss_fn", Picker).value == "ppo, cispo"
        await app.until(lambda: "4 runs, 1 at once" in said(app, "#summary"))
        assert "loss ppo" in await app.ask("ctrl+s")
        box = app.screen.query_one("#dialog-lines").region
        lines = {str(line.render()).split()[0]: line for line in app.screen.query(".dialog-line")}
        for label in ("per", "in", "time"):
            assert lines[label].region.bottom <= box.bottom
        assert str(lines["time"].render()).split()[1] != "time"
        dialog = app.screen.query_one("#dialog").region
        assert app.screen.query_one("#confirm").region.bottom == dialog.bottom - 1, "the last line"


async def test_a_sweep_is_cancelled_and_resumed_from_its_runs(
    served: Served, tmp_path: Path
) -> None:
    toy_of(served).rest_after(0)
    async with sweeping(served, tmp_path) as app:
        typed(app, "seed", "0,1")
        typed(app, "at_once", "1")
        await app.agree("ctrl+s")
        await app.until_view("runs")
        await app.until(lambda: [row.status for row in app.view.rows or ()] == ["running"])
        await app.until(lambda: "1 running, 1 queued" in app.said("#runs-title"))
        assert "one of a sweep" in await app.ask("X")
        app.screen.query_one("#sweep", Button).press()
        await app.until(lambda: "Its runs end between two rollouts" in app.dialog)
        await app.press("y")
        toy_of(served).go_on()
        await app.until(lambda: not app.view.session.sweeps)
        await app.until(lambda: [row.status for row in app.view.rows or ()] == ["cancelled"])
        [kept] = SweepFiles(tmp_path).all()
        assert kept.cancelled
        await app.ask("R")
        app.screen.query_one("#sweep", Button).press()
        await app.until(lambda: "queued ones start" in app.dialog)
        await app.press("y")
        await app.until(
            lambda: [row.status for row in app.view.rows or ()] == ["succeeded", "succeeded"]
        )


async def test_q_asks_before_it_leaves_runs_of_a_sweep_waiting(
    served: Served, tmp_path: Path
) -> None:
    toy_of(served).rest_after(0)
    async with sweeping(served, tmp_path, swept={"seed": (0, 1)}, at_once=1) as app:
        await app.until(lambda: "sweep: 2 runs" in said(app, "#summary"))
        await app.agree("ctrl+s")
        await app.until_view("runs")
        await app.until(lambda: "1 running, 1 queued" in app.said("#runs-title"))
        assert not app.run.training, "the selected model is the one that the forks are made from"
        said_first = await app.ask("q")
        for part in ("arith-rl-sweep: 1 running, 1 queued.", "continue in the background"):
            assert part in said_first
        assert "R in Runs resumes the sweep" in said_first
        await app.press("escape", then="runs")
        assert not app.app._exit
        await app.agree("q")
        await app.until(lambda: app.app._exit)
    async with opened(Connector(served), Start("models"), state=lambda: tmp_path) as app:
        await app.until_view("models")
        await app.press("5", then="runs")
        await app.until(lambda: "1 running, 1 queued" in app.said("#runs-title"))
        assert not app.view.session.sweeps, "nothing drives it now"
    toy_of(served).go_on()


async def test_how_a_step_is_taken_is_folded_under_one_row(served: Served, tmp_path: Path) -> None:
    async with sweeping(served, tmp_path) as app:
        form = view(app).form
        fold = form.query_one("#fold", Button)
        beta = form.query_one("#beta1", Input)
        assert f"{len(FOLDED)} more:" in str(fold.label)
        assert "set" not in str(fold.label)
        assert not (beta.parent and beta.parent.display)
        fold.focus()
        await app.press("enter")
        await app.until(lambda: beta.parent and beta.parent.display)
        typed(app, "beta1", "1.5")
        await app.until(lambda: "invalid: Adam beta1" in said(app, "#summary"))
        typed(app, "beta1", ".8")
        typed(app, "reward_scale", "0")
        await app.until(lambda: "invalid: reward scale" in said(app, "#summary"))
        typed(app, "reward_scale", "")
        typed(app, "loss_fn_config", "beta")
        await app.until(lambda: "invalid: loss config" in said(app, "#summary"))
        typed(app, "loss_fn_config", "clip_high_threshold=1.3")
        form.query_one("#loss_fn", Picker).value = "ppo"
        form.query_one("#norm_adv_by_std", Picker).value = "yes"
        fold.focus()
        await app.press("enter")
        await app.until(lambda: "3 set" in str(fold.label))
        shown = await app.ask("ctrl+s")
        for word in ("0.8", "clip_high_threshold=1.3"):
            assert word in shown
        for key in ("beta1", "norm_adv_by_std", "loss_fn_config", "group_size"):
            field = form.query_one(f"#{key}").parent
            assert f"\n{field.label}  " in shown, "a parameter has one name"
        assert "\nweight decay" not in shown, "what is left to the engine has no line of its own"
        await app.press("y", then="live")
        await app.until(lambda: app.run.job)
        given = app.run.job.parameters
        assert (given["beta1"], given["norm_adv_by_std"]) == (0.8, True)
        assert given["loss_fn_config"]["clip_high_threshold"] == 1.3
