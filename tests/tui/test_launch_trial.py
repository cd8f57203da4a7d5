"""Launch: tasks are tried, sorted, left out, and the rest submitted."""

import asyncio
import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from hud_tui.client import signal
from hud_tui.service.environments import Scenario
from hud_tui.tui.run_draft import Trial
from tests.conftest import Served, until
from tests.tui.conftest import Opened, caller
from tests.tui.test_launch import checked, field, give_file, launch, rows, said, view

EVEN, DEAD, EASY = ({"a": number, "b": 1} for number in (1, 2, 3))
ROWS = [
    {"env": "arith", "id": "add", "args": args, "slug": slug}
    for slug, args in (("dead", DEAD), ("even", EVEN), ("easy", EASY))
]


@pytest.fixture(autouse=True)
def _grades(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is said: one task is never solved, one always, one every other time."""
    turns = count()

    def grade(scenario: Scenario, args: Any, completion: str) -> float:
        return {2: 0.0, 3: 1.0}.get(args["a"], float(next(turns) % 2))

    monkeypatch.setattr(Scenario, "grade", grade)
    monkeypatch.setattr(signal, "LOOK_S", 0.01)
    monkeypatch.setattr(signal, "FAR_LOOK_S", 0.01)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(ROWS))
    return str(path)


def trial(app: Opened) -> Trial:
    return view(app).draft.trial


async def tried(app: Opened) -> None:
    await app.until(lambda: trial(app).signals and not trial(app).running)
    await app.pilot.pause()


def slugs(app: Opened) -> list[str]:
    return [row[0] for row in rows(app)]


async def test_tasks_are_tried_sorted_left_out_and_the_rest_submitted(
    served: Served, file: str
) -> None:
    async with launch(served, source=file) as app:
        await checked(app)
        assert slugs(app) == ["dead", "even", "easy"]
        await app.press("T")
        await tried(app)
        assert slugs(app) == ["even", "dead", "easy"]
        assert [row[7] for row in rows(app)] == ["signal", "too hard", "too easy"]
        assert "low signal: 1 of 3 tasks" in said(app, "#findings")
        await app.press("D")
        await app.until(lambda: slugs(app) == ["even", "✘ dead", "✘ easy"])
        assert "1 of 1 task with signal at" in said(app, "#findings")
        assert "2 left out" in said(app, "#summary")
        await app.press("o")
        await app.until(lambda: slugs(app) == ["✘ dead", "even", "✘ easy"])
        assert "1 training task" in await app.agree("ctrl+s")
        await app.until_view("live")
        async with caller(served) as http:
            jobs = (await http.get("/v2/jobs")).json()["items"]
            [run] = [job for job in jobs if (job["metadata"] or {}).get("kind") == "training"]
            await http.post("/v2/rollouts/cancel_job", json={"job_id": run["id"]})
    tasks = await served.service.parts.store.read(
        lambda db: db.execute("SELECT tasks FROM work WHERE kind = 'training'").fetchone()[0]
    )
    assert [task["slug"] for task in json.loads(tasks)] == ["even"]


async def test_one_task_is_left_out_and_taken_in_again(served: Served, file: str) -> None:
    async with launch(served) as app:
        await app.press("T", "D")
        assert not trial(app).running, "there are no tasks yet"
        assert trial(app).left_out == frozenset()
        await give_file(app, file)
        await app.until(lambda: view(app).draft.source == file)
        await checked(app)
        view(app).tasks.focus()
        await app.press("down", "space")
        await app.until(lambda: slugs(app) == ["dead", "✘ even", "easy"])
        await app.press("space")
        await app.until(lambda: slugs(app) == ["dead", "even", "easy"])
        for key in ("space", "up", "space", "down", "down", "space"):
            await app.press(key)
        await app.until(lambda: "every training task is left out" in view(app).blocked)


async def test_escape_stops_a_trial(served: Served, file: str) -> None:
    served.service.hosted._line = asyncio.Semaphore(0)
    async with launch(served, source=file) as app:
        await checked(app)
        await app.press("T")
        await app.until(lambda: "of 24 rollouts" in said(app, "#lead"))
        await app.until(lambda: len(served.service.hosted._tasks) == 24)
        await app.press("escape")
        await app.until(lambda: not trial(app).running)
        async with caller(served) as http:
            [job] = (await http.get("/v2/jobs")).json()["items"]

            async def cancelled() -> bool:
                traces = (await http.get(f"/v2/jobs/{job['id']}/traces")).json()["items"]
                return {trace["status"] for trace in traces} == {"cancelled"}

            await until(cancelled)


async def test_preflight_on_the_command_line_may_ask_for_the_trial_and_fills_the_form(
    served: Served, file: str
) -> None:
    asked = {"command": "preflight", "sample": 2, "parameters": {"steps": 7}}
    async with launch(served, source=file, model="arith rl", **asked) as app:
        await app.until(lambda: field(app, "steps").value == "7")
        await tried(app)
        assert len(trial(app).signals) == 2


async def test_elsewhere_it_is_asked_before_rollouts_are_made(served: Served, file: str) -> None:
    async with launch(served, source=file) as app:
        await checked(app)
        client = app.app.workspace.session.client
        client.settings = replace(client.settings, local=False)
        assert "3 groups of 8: 24 rollouts by the service" in await app.ask("T")
        await app.press("escape", then="launch")
        assert not trial(app).signals
        await app.agree("T")
        await tried(app)
        assert len(trial(app).signals) == 3
