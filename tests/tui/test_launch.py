"""The Launch view: a source is checked, a run set up, confirmed, and submitted once."""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from textual.widgets import Button, Input, Static

from hud_tui.client.task_calls import TaskCalls
from hud_tui.rl.findings import RunCheck
from hud_tui.rl.text import size
from hud_tui.tui.keys import KeyLine
from hud_tui.tui.screens.base import TextPanel
from hud_tui.tui.screens.launch import LaunchScreen
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.form import CHECKS, Field, Picker, complete
from hud_tui.tui.widgets.lines import TextPane
from hud_tui.tui.widgets.table import RowList
from tests.conftest import Served, ended, fork, submit
from tests.service.headless import as_hud
from tests.tui.conftest import Connector, Opened, caller, cancel, forked, opened, status, training

JOBS = "/v1/training/jobs"
ROW = {"env": "arith", "id": "add", "args": {"a": 1, "b": 2}}


@asynccontextmanager
async def launch(
    served: Served,
    own: bool = True,
    size: tuple[int, int] = (120, 40),
    state: Callable[[], Path] | None = None,
    **start: Any,
) -> AsyncIterator[Opened]:
    """The view of a fresh model, or of none."""
    if own:
        await forked(served)
    started = Start(**{"command": "run", **start})
    async with opened(Connector(served), started, size=size, state=state) as app:
        await app.until_view("launch")
        await app.until(lambda: view(app).tasksets)
        if own:
            await app.until(lambda: view(app).query_one("#loss_fn", Picker).value)
        yield app


@asynccontextmanager
async def ready(served: Served, **how: Any) -> AsyncIterator[Opened]:
    """The view with the taskset arith, which is checked."""
    async with launch(served, **how) as app:
        await app.press("home", "enter")
        await checked(app)
        yield app


def view(app: Opened) -> LaunchScreen:
    screen = app.app.shown_view
    assert isinstance(screen, LaunchScreen)
    return screen


def said(app: Opened, selector: str) -> str:
    return str(view(app).query_one(selector).render())


async def checked(app: Opened) -> str:
    """Wait for the checks to end; what they found."""
    await app.until(lambda: view(app).draft.findings and not view(app).draft.checking)
    await app.pilot.pause()
    return said(app, "#findings")


def rows(app: Opened) -> list[list[str]]:
    return [
        [cell.plain for cell in row.cells] for row in view(app).query_one("#tasks", RowList).rows
    ]


def field(app: Opened, key: str) -> Input:
    return view(app).query_one(f"#{key}", Input)


async def give_file(app: Opened, path: str) -> None:
    """Type it where a source is asked for, all at once."""
    await app.press("ctrl+o")
    field(app, "path").value = path
    await app.press("enter")


def write(path: Path, *tasks: Any) -> str:
    path.write_text("\n".join(json.dumps(task) for task in tasks))
    return str(path)


async def test_on_forty_columns_counts_checks_and_the_button_are_whole(
    served: Served, tmp_path: Path
) -> None:
    async with ready(served, size=(40, 12)) as app:
        for taskset in (view(app).tasksets or ())[:2]:
            assert re.search(rf"{taskset.name} +{taskset.task_count} ", app.drawn)
        assert all(f"✔ {name}" in app.drawn for name in ("file", "tasks", "slugs", "model"))
        assert view(app).button.region.bottom < app.screen.size.height
        shown = " ".join(app.drawn.split())
        assert "Submit" in shown
        assert said(app, "#summary").endswith("held out")
        assert "held out" in shown, "to its end"
        await app.press("e", *["tab"] * 8)
        assert "Submit" in app.drawn, "wherever the form is"
        await app.press("escape")
        await give_file(app, str(tmp_path / "none.json"))
        await checked(app)
        assert "✘ file" in app.drawn
        assert "No such file or directory" in app.drawn, "to its end"


async def test_what_is_typed_before_the_losses_are_listed_stays(served: Served) -> None:
    async with caller(served) as http:
        await fork(http, "arith rl")
    async with opened(Connector(served), Start("models"), size=(120, 40)) as app:
        await app.until_view("models")
        await app.until(lambda: app.run.loaded)
        app.net.free = lambda: False
        await app.press("2", then="launch")
        await app.until(lambda: field(app, "steps").value)
        await app.press("e", "6", "1")
        losses = view(app).query_one("#loss_fn", Picker)
        assert (field(app, "steps").value, len(losses.options)) == ("61", 1)
        app.net.free = lambda: True
        await app.until(lambda: len(losses.options) > 1)
        assert (field(app, "steps").value, losses.value) == ("61", "importance_sampling")


async def test_enter_checks_r_checks_again_and_the_keys_go_through_tasks_and_form(
    served: Served,
) -> None:
    async with launch(served) as app:
        assert "· file" in said(app, "#findings")
        app.net.free = lambda: False
        await app.press("r", "home")
        await app.until(lambda: app.net.held)
        app.net.free = lambda: True  # what r reads leaves the cursor where it is
        await app.until(lambda: not app.net.held)
        await app.press("enter")
        found = await checked(app)
        for line in (
            "✔ file",
            "arith: 132 tasks, format export",
            "arith-rl is trainable",
            "✔ arguments",
        ):
            assert line in found
        assert found.count("✔") >= 3
        assert len(rows(app)) == 132
        assert rows(app)[0][1] == "arith:add"
        assert app.screen.focused is view(app).button
        assert "320 rollouts" in said(app, "#summary")
        assert "36 tasks held out" in said(app, "#summary")
        before = view(app).draft.findings
        await app.press("r")
        await app.until(lambda: view(app).draft.findings is not before)
        await checked(app)
        view(app).query_one("#tasks", RowList).focus()
        await app.press("down", "y")
        assert app.app.clipboard == rows(app)[1][0]
        await app.press("escape")
        assert app.screen.focused is view(app).sources
        await app.press("e", *["down"] * 11)
        assert isinstance(app.screen.focused, Button)


async def test_what_is_submitted_is_shown_first_and_sent_once(served: Served) -> None:
    async with ready(served) as app:
        for key in ("escape", "n", "enter"):
            shown = await app.ask("ctrl+s")
            assert app.screen.focused.id == "cancel"
            await app.press(key, then="launch")
        for word in ("arith-rl", "96 training tasks, 36 held out", "importance_sampling", "320"):
            assert word in shown
        assert app.net.sent == []
        await app.agree("enter")
        await app.until_view("live")
        await app.until(lambda: app.run.job is not None)
        assert app.net.sent == [f"POST {JOBS}"]
        await app.until(lambda: not app.run.training)


async def test_a_refusal_is_told_and_a_lost_answer_is_looked_up_and_never_repeated(
    served: Served,
) -> None:
    refused = httpx.Response(402, json={"detail": "no credits [/b]"})
    async with ready(served) as app:
        app.net.path = JOBS
        for count, (answer, lose, told) in enumerate(
            [(refused, "", "no credits [/b]"), (None, "request", "not done"), (None, "answer", "")],
            1,
        ):
            app.net.answer, app.net.lose = answer, lose
            await app.agree("ctrl+s")
            if told:
                await app.until_notice(told)
                assert isinstance(app.screen, LaunchScreen)
            else:
                await app.until_view("live")
                await app.until(lambda: app.run.job and not app.run.training)
            assert app.net.sent == [f"POST {JOBS}"] * count


async def test_the_disk_is_said_as_it_is_when_asked(served: Served) -> None:
    async with ready(served) as app:
        model = app.run.model
        async with caller(served) as http:
            await ended(http, await submit(http, model.id, steps=2))
            disk = (await http.get(f"/v2/models/{model.id}")).json()["disk"]
        await app.until(lambda: app.run.job and not app.run.training)
        asked = " ".join((await app.ask("ctrl+s")).split())
        assert f"(now {size(disk['used_bytes'])})" in asked


UNREADABLE = {
    "none.jsonl": (None, "none.jsonl"),
    "bad.jsonl": ('{"env": "arith", "id": "add"}\n{oops\n', "line 2"),
    "a[b]c.json": ("[", "a[b]c.json"),
}


async def test_a_file_is_typed_checked_and_its_mistakes_named(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a long path would be cut where it is shown
    unknown = {**ROW, "id": "divide", "slug": "d"}
    write(tmp_path / "mine.jsonl", ROW, unknown, {**ROW, "env": "moon", "slug": "m"})
    async with launch(served) as app:

        async def found_in(name: str) -> str:
            """Type it where a source is asked for; what its check finds."""
            before = view(app).draft.findings
            await give_file(app, name)
            await app.until(lambda: view(app).draft.findings is not before)
            return await checked(app)

        assert "did you mean mixed" in await found_in("mixd")
        for name, (body, problem) in UNREADABLE.items():
            if body is not None:
                (tmp_path / name).write_text(body)
            found = await found_in(name)
            assert "✘ file" in found
            assert problem in found.replace("\n", "")
            assert view(app).button.disabled
        found = await found_in("mine.jsonl")
        for said_of in ("✘ environments", "moon", "✘ scenarios", "divide", "→ mine.jsonl line 2"):
            assert said_of in found
        assert view(app).button.disabled
        assert "not submitted" in said(app, "#summary")
        await app.press("ctrl+s")
        await app.until(lambda: app.told)
        assert app.net.sent == []


async def test_d_shows_all_that_was_found_failures_first_in_the_order_of_the_file(
    served: Served, tmp_path: Path
) -> None:
    async def all_found() -> str:
        await app.open(TextPanel, "d")
        pane = app.app.screen.query_one(TextPane)
        await app.until(lambda: pane.lines)
        await app.press("escape")
        await app.until(lambda: app.app.screen is view(app))
        return pane.plain

    path = write(tmp_path / "bad.jsonl", *({**ROW, "env": 3} for _ in range(12)))
    async with launch(served, source=path) as app:
        found = await checked(app)
        assert "bad.jsonl line 1: field env" in found
        assert found.splitlines()[-1] == "d shows all findings"
        shown = await all_found()
        places = [int(number) for number in re.findall(r"bad.jsonl line (\d+)", shown)]
        assert places == list(range(1, 13))
        assert shown.count("a row is") == 1
        headers = {"K": "Bearer ${NOBODY_SET_IT}"}
        servers = {"hud": {"url": "https://mcp.hud.ai/x", "headers": headers}}
        row = {"prompt": "go", "mcp_config": servers, "evaluate_tool": {"name": "grade"}}
        path = write(tmp_path / "v4.jsonl", *({**row, "id": f"t{n}"} for n in range(12)))
        await give_file(app, path)
        await app.until(lambda: "v4.jsonl" in said(app, "#findings"))
        assert (await checked(app)).startswith("✘")
        shown = await all_found()
        assert "NOBODY_SET_IT" in shown
        assert shown.index("NOBODY_SET_IT") < shown.index("12 training tasks")


async def test_a_warning_is_shown_again_before_submitting_and_a_cut_check_is_made_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with launch(served) as app:
        real = TaskCalls.environment

        async def silent(self: TaskCalls, name: str) -> Any:
            config = await real(self, name)
            return config and config.model_copy(update={"scenarios": None})

        monkeypatch.setattr(TaskCalls, "environment", silent)
        await app.press("home", "enter")
        assert "⚠ scenarios" in await checked(app)
        assert "⚠ scenarios not checked: arith" in await app.ask("enter")
        await app.press("escape", then="launch")
        screen = view(app)
        screen.check("text")
        for worker in app.app.workers:
            if worker.group == "check":
                worker.cancel()
        await app.until(lambda: screen._broken_off)
        screen.on_screen_resume()
        assert "text: 96 tasks" in await checked(app)


WRONG = [
    ("steps", "x", "1 to 100000"),
    ("tasks_per_step", "", "1 to 1024"),
    ("temperature", "9", "0.01 to 5"),
]


async def test_a_wrong_value_is_said_beside_its_field(served: Served) -> None:
    async with ready(served) as app:
        for key, text, limits in WRONG:
            box = field(app, key)
            right = box.value
            box.focus()
            await app.press("ctrl+u", "end", "ctrl+u", *text)
            await app.until(lambda box=box: box.parent.has_class("wrong"))
            assert str(box.parent.query_one(".limits").render()) == f"✘ {limits}"
            assert "invalid" in said(app, "#summary")
            assert "Enter submits" not in said(app, "#lead")
            assert "beside the button" in said(app, "#lead")
            assert "^s" not in str(app.screen.query_one(KeyLine).render())
            assert view(app).button.disabled
            await app.press("ctrl+s")
            assert app.screen.focused is box
            assert app.net.sent == []
            box.value = right
            await app.until(lambda: not view(app).button.disabled)


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_what_a_taskset_is_about_is_shown_whole(
    served: Served, size: tuple[int, int]
) -> None:
    text = "Sums of numbers that a person would need a sheet of paper for, " * 2
    async with caller(served) as http:
        rows = [ROW, {**ROW, "slug": "other"}]
        for name in ("long", "short"):
            body = {"taskset_name": name, "tasks": rows}
            assert (await http.post("/v2/tasks/upload", json=body)).is_success
        await fork(http, "arith rl")
    async with opened(Connector(served), Start("run"), size=size) as app:
        await app.until_view("launch")
        await app.until(lambda: view(app).tasksets)
        screen = view(app)
        described = [
            one.model_copy(update={"description": {"long": text, "short": "Sums."}.get(one.name)})
            for one in screen.tasksets
        ]
        screen.tasksets = described
        screen._list_sources()
        screen.sources.focus()
        screen.sources.select("long")
        about = screen.query_one("#taskset-about", Static)
        await app.until(lambda: about.display and about.size.height)
        drawn = " ".join(" ".join(str(line).split()) for line in str(about.render()).split("\n"))
        assert text.strip() in drawn
        assert about.size.height * about.size.width >= len(text), "nothing of it is cut"
        pane = screen.query_one("#tasks-pane").region
        await app.until(lambda: pane.contains_region(about.region))
        screen.sources.select("short")
        await app.until(lambda: about.display is (size[0] < 200))
        screen.sources.select("long")
        await app.press("e")
        await app.until(lambda: not about.display)


async def test_tasksets_that_are_still_read_are_not_said_to_be_missing(served: Served) -> None:
    async with caller(served) as http:
        await fork(http, "arith rl")
    async with opened(Connector(served), Start()) as app:
        await app.until_view("live")
        app.net.free = lambda: False
        await app.press("2", then="launch")
        await app.until(lambda: app.net.held and said(app, "#lead"))
        assert "checks the taskset under the cursor" in said(app, "#lead")
        view(app).tasksets = []
        view(app).show_state()
        assert "lists no tasksets" in said(app, "#lead")
        app.net.free = lambda: True
        await app.until(lambda: "checks the taskset" in said(app, "#lead"))


async def test_the_whole_form_leaves_no_line_empty_and_has_room_for_what_is_allowed(
    served: Served,
) -> None:
    async with ready(served, size=(80, 24)) as app:
        screen = view(app)
        screen.query_one("#fold", Button).press()
        await app.until(lambda: screen.query_one("#eps").parent.display)
        for size in ((80, 24), (80, 30), (200, 60)):
            await app.pilot.resize_terminal(*size)
            await app.pilot.pause()
            lists, tasks = screen.query_one("#lists").region, screen.tasks
            shown = tasks if tasks.display else screen.query_one("#source")
            assert shown.region.bottom == lists.bottom
            assert screen.form.region.y - lists.bottom <= 1
            button = screen.button.region
            assert button.bottom + 1 + screen.button.parent.styles.margin.bottom >= size[1] - 1
            if size[1] >= 30:
                assert tasks.size.height > 2
            else:
                assert screen.query_one("#findings").size.height >= 5
            fields = [field for field in screen.query(Field) if field.display and field.limits]
            assert len(fields) > 12
            for field in fields:
                field.complain(True)
                [limits] = field.query(".limits")
                assert limits.size.width >= len(f"✘ {field.limits}"), field.label
                field.complain(False)
            for field in screen.query(Field).results(Field):
                label = field.children[0].region
                assert not field.display or field.field.region.x > label.x + len(field.label)


async def test_enter_is_told_on_the_buttons_and_space_and_right_unfold(served: Served) -> None:
    async with ready(served) as app:
        screen = view(app)

        def line() -> str:
            return str(app.screen.query_one(KeyLine).render())

        await app.until(lambda: line().startswith("enter submit"))
        assert "^s" not in line()
        fold = screen.query_one("#fold", Button)
        fold.focus()
        for key, told in (("space", "fold"), ("enter", "unfold"), ("right", "fold")):
            await app.press(key)
            await app.until(lambda told=told: line().startswith(f"enter {told} "))
            assert screen.form.unfolded is (told == "fold")
        screen.action_choose()  # as a click on the hint does
        await app.until(lambda: not screen.form.unfolded)
        assert not screen.draft.checking


async def test_what_is_invalid_is_told_with_an_example(served: Served) -> None:
    told = {
        "beta1": "invalid: Adam beta1: 0 to < 1, or empty, e.g. .9",
        "loss_fn_config": "invalid: loss config: KEY=NUMBER, with commas, e.g. beta=0.05",
        "steps": "invalid: steps: 1 to 100000, e.g. 10",
    }
    async with ready(served) as app:
        screen = view(app)
        screen.query_one("#fold", Button).press()
        for key in told:
            field(app, key).value = "foo"
        for key, text in told.items():
            await app.until(lambda key=key: field(app, key).parent.display)
            field(app, key).focus()
            await app.until(lambda text=text: said(app, "#summary").startswith(text))
            assert said(app, "#summary").count(";") == 2


async def test_the_form_is_filled_edited_and_sent(served: Served) -> None:
    async with launch(served) as app:
        assert field(app, "steps").value == "10"
        assert field(app, "learning_rate").value == "0.3"
        await app.press("home", "enter")
        await checked(app)
        await app.press(
            "escape", "e", "ctrl+u", "3", "down", "ctrl+u", "4", "up", "tab", "shift+tab"
        )
        assert app.screen.focused is field(app, "steps")
        await app.until(lambda: "48 rollouts" in said(app, "#summary"))
        view(app).query_one("#loss_fn", Picker).focus()
        await app.press("right", "l", "space", "left", "h")
        loss = view(app).query_one("#loss_fn", Picker).value
        view(app).query_one("#reasoning_effort", Picker).focus()
        await app.press("right")
        shown = await app.ask("ctrl+s")
        assert loss in shown
        assert "rollouts          48 training · 36 evaluation" in shown
        assert "held-out reward   " in shown
        assert "time              unknown: nothing like it was run here yet" in shown
        await app.press("y", then="live")
        await app.until(lambda: app.run.job and not app.run.training)
        sent = app.run.job.parameters
        assert (sent["steps"], sent["group_size"], sent["loss_fn"]) == (3, 4, loss)
        assert sent["reasoning_effort"] == "low"
        await app.press("2", then="launch")
        field(app, "group_size").value = "8"  # no step of this size was timed
        await app.until(lambda: " · about " in said(app, "#summary"))
        shown = await app.ask("ctrl+s")
        assert "time              about " in shown
        assert "estimated from arith on arith-rl" in shown


async def test_a_baseline_is_one_key_away_when_a_run_is_submitted(served: Served) -> None:
    async with ready(served) as app:
        baseline = view(app).query_one("#baseline", Picker)
        baseline.focus()
        await app.press("right", "ctrl+s")
        assert "36 tasks × 1 = 36 rollouts, before the first step" in await app.until_dialog()
        await app.press("E")
        assert "baseline          no" in app.dialog
        await app.press("escape", then="launch")
        baseline.focus()
        await app.press("left")
        field(app, "eval_every").focus()
        await app.press("2", "tab", "3")
        asked = await app.ask("ctrl+s")
        often = "36 tasks × 3 = 108 rollouts, at the end and every 2 steps: 5 times"
        assert f"evaluation        {often}" in asked
        assert "baseline          no · E adds one" in asked
        await app.press("E")
        assert "baseline          36 tasks × 3 = 108 rollouts, before the first step" in app.dialog
        await app.press("E", "E", "y", then="live")
        await app.until(lambda: app.run.job and not app.run.training)
        sent = app.run.job.parameters
        assert (sent["eval_every"], sent["eval_samples"], sent["baseline"]) == (2, 3, True)
        await app.until(lambda: len(app.run.evaluations) > 1)
        assert app.run.evaluations


async def test_the_command_line_fills_the_form_and_what_has_no_field_is_sent_too(
    served: Served,
) -> None:
    given = {"steps": 1, "loss_fn": "ppo", "group_size": 2, "max_tokens": 9}
    async with launch(served, source="text", parameters=given) as app:
        assert "96 tasks, format export" in await checked(app)
        await app.until(lambda: field(app, "steps").value == "1")
        assert field(app, "group_size").value == "2"
        assert view(app).query_one("#loss_fn", Picker).value == "ppo"
        assert "max tokens        9" in await app.agree("ctrl+s")
        await app.until_view("live")
        await app.until(lambda: app.run.job is not None)
        job = app.run.job
        assert job.parameters["max_tokens"] == 9
        await app.until(lambda: not app.run.training)


async def test_the_batches_are_checked_as_the_form_says_now(served: Served) -> None:
    async with ready(served, size=(80, 24)) as app:
        train = sum(not task.heldout for task in view(app).draft.chosen)
        field(app, "tasks_per_step").value = "500"
        warning = f"500 tasks per step, but only {train} training tasks"
        await app.until(lambda: [one.message for one in view(app).draft.warnings] == [warning])
        lines = (await app.ask("ctrl+s")).splitlines()
        assert lines[0] == f"⚠ {warning}"  # seen first on the smallest screen
        await app.press("escape")
        field(app, "tasks_per_step").value = f"7,{train + 1}"
        warning = f"{train + 1} tasks per step, but only {train} training tasks"
        await app.until(lambda: [one.message for one in view(app).draft.warnings] == [warning])
        field(app, "tasks_per_step").value = "7"
        await app.until(
            lambda: (
                "of each of 7 tasks per step"
                in " ".join(one.message for one in view(app).draft.found_in_all)
            )
        )
        assert not view(app).draft.warnings


async def test_without_a_model_it_says_where_to_choose_one(served: Served) -> None:
    async with launch(served, own=False, command="preflight", source="arith") as app:
        await checked(app)
        assert "1 lists them" in said(app, "#summary")
        await app.press("1", then="models")


async def test_another_model_is_checked_anew(served: Served) -> None:
    async with ready(served) as app:
        await forked(served, "second")
        await app.press("1", then="models")
        await app.until(lambda: len(app.screen.models or ()) == 3)
        await app.press("home", "enter", then="launch")
        await app.until(lambda: "second is trainable" in said(app, "#findings"))


async def test_a_run_under_way_is_mentioned(served: Served) -> None:
    model_id, job_id = await training(served)
    async with opened(Connector(served), Start("run", model=model_id, source="arith")) as app:
        await app.until_view("launch")
        await app.until(lambda: "already training" in said(app, "#summary"))
        found = " ".join((await checked(app)).split())
        assert "⚠ ready a run already trains" in found
        assert "cancel it: 3 Live, X" in found
        assert job_id not in found
        assert found.count(job_id[:8]) == 1
        await cancel(served, job_id)
        await app.until(lambda: "a run already trains" not in said(app, "#findings"))
        assert "already training" not in said(app, "#summary")
        await app.until(lambda: not view(app).draft.warnings)
    assert await status(served, job_id) in ("running", "cancelled")


def test_a_path_is_completed(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("")
    (tmp_path / "tasks.txt").write_text("")
    (tmp_path / ".hidden.json").write_text("")
    (tmp_path / "more").mkdir()
    root = f"{tmp_path}/"
    assert complete(root + "ta") == root + "tasks.jsonl"
    assert complete(root + "m") == root + "more/"
    assert complete(root + "x") is None
    assert complete("~nobody-is-called-so/") is None
    assert complete(root) == root + "more/"
    assert complete(root + ".h") == root + ".hidden.json"
    assert complete("/no/such/place/x") is None


async def test_on_hud_the_form_has_its_effort_and_warns_of_what_hud_does_not_define(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_hud(monkeypatch)
    await forked(served)
    async with launch(served, own=False, source="arith", parameters={"steps": 1}) as app:
        await checked(app)
        await app.until(lambda: view(app).query_one("#reasoning_effort", Picker).value == "medium")
        shown = await app.ask("ctrl+s")
        assert "effort            medium" in shown
        assert "HUD defines reasoning_effort only; it may refuse or ignore steps" in shown
        assert app.net.sent == []
        await app.press("y", then="live")
        await app.until(lambda: app.run.job is not None)
        job = app.run.job
        assert (job.parameters["reasoning_effort"], job.parameters["steps"]) == ("medium", 1)
        await app.until(lambda: not app.run.training)


def test_every_check_of_preflight_has_a_label() -> None:
    assert set(CHECKS) == set(get_args(RunCheck))


async def test_the_fields_of_a_run_on_an_environment_are_whole_on_a_small_screen(
    served: Served,
) -> None:
    async with launch(served, size=(80, 24)) as app:
        form = view(app).form
        form.offer_options(True)
        form.query_one("#fold", Button).press()
        await app.until(lambda: form.unfolded and form.query_one("#rollouts-runtime").size.width)
        for field in form.query(Field):
            for part in field.children if field.display else ():
                room = part.content_size.width
                text = part.value if isinstance(part, Input) else str(part.render())
                assert room >= len(text), (field.label, text, room)
                assert part.region.right <= form.region.right, field.label
        form.query_one("#rollouts-runtime", Input).value = "tcp"
        await app.until(lambda: "tcp://HOST:PORT" in "".join(form.faults))
