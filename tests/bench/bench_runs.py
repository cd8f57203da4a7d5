"""The table of all runs: 10 000 rows, on the screen too, and 20 runs of 10 000 steps in one chart.

The list is read by the client from a service over its store, in one process: what the network
adds is not in it.
"""

import asyncio
import json
import tempfile
from dataclasses import replace
from math import sin
from pathlib import Path
from time import perf_counter, time

from hud_tui.client.runs import RunList
from hud_tui.rl.axes import Axis
from hud_tui.rl.compare import RunSeries, overlay_runs
from hud_tui.rl.run_columns import parse_filter, sort_rows
from hud_tui.rl.work import Work
from hud_tui.service.service import Service
from hud_tui.service.store.db import Db
from hud_tui.tui.screens.compared_runs import RunComparison
from hud_tui.tui.screens.runs import RunsScreen
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.run_curves import Compared
from hud_tui.wire_runs import RunRecord
from tests.bench.timing import KEY, REPAINT, WHOLE, Goal, best_s, missed
from tests.service.clients import fork_of, in_process
from tests.toy_engine import ToyEngine
from tests.tui.scenes import Scene, settle

RUNS, LINES, STEPS, WIDTH = 10_000, 20, 10_000, 400
CHANGE = Goal(50.0, 9.0)
"""To filter and sort, or to show that one run has changed: filtered, sorted and drawn."""


def rows() -> list[Work]:
    return [
        Work(
            id=f"{n:032x}",
            model_id=f"m{n % 300}",
            model=f"arith-rl-{n % 300}",
            name=f"mixed on arith-rl-{n % 300}",
            taskset=("mixed", "arith", "text")[n % 3],
            lr=(1e-4, 3e-4, 1e-3)[n % 3],
            group_size=(8, 16)[n % 2],
            reward=sin(n) if n % 11 else None,
            status=("running", "succeeded", "failed")[n % 3],
            created_at=float(n),
        )
        for n in range(RUNS)
    ]


def series(number: int) -> RunSeries:
    made = RunSeries()
    for step in range(STEPS):
        reward = sin(step / 999 + number)
        made.add("", 1e9 + step * (1 + number / 9), 100 + step % 7, {"reward_mean": reward})
    return made


def table(known: list[Work]) -> None:
    keep = parse_filter("lr:3e-4 reward>-.9 group:8..16 mixed", 1e9)
    sort_rows([row for row in known if keep(row)], "-reward", 1e9)
    sort_rows(known, "model,-reward", 1e9)


def seed_runs(db: Db, model_id: str) -> None:
    """So many runs that have ended, as the service keeps them."""
    rewards = {"first": [0.1] * 5, "last": [0.9] * 5, "points": [0.123456789] * 30, "stride": 8}
    parameters = {"learning_rate": 3e-4, "group_size": 8, "steps": 240, "loss_fn": "ppo", "seed": 0}
    jobs, runs = [], []
    at = time() - RUNS
    for n in range(RUNS):
        id_ = f"{n:08x}-0000-4000-8000-000000000000"
        given = json.dumps({**parameters, "seed": n})
        jobs.append(
            (id_, f"run {n}", at + n, model_id, 240, 240, 60.0, given, "[" + "0," * 999 + "0]")
        )
        runs.append((id_, model_id, "arith", 240, at + n, at + n + 60, json.dumps(rewards), n + 1))
    db.executemany(
        "INSERT INTO work (id, kind, name, status, created_at, model_id, step, steps, busy_s,"
        " parameters, tasks) VALUES (?, 'training', ?, 'succeeded', ?, ?, ?, ?, ?, ?, ?)",
        jobs,
    )
    db.executemany(
        "INSERT INTO run (id, model_id, taskset, steps, first_at, last_at, rewards, revision)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        runs,
    )


async def service() -> tuple[float, float]:
    """Seconds to read all runs, and to read that one has changed."""
    with tempfile.TemporaryDirectory() as directory:
        running = Service(Path(directory) / "data", ToyEngine())
        async with running, in_process(running) as client:
            model = await fork_of(client)
            await running.parts.store.write(seed_runs, model.id)
            whole, polls = [], []
            for _ in range(3):
                read = RunList(client)
                start = perf_counter()
                assert len(await read.read()) == RUNS
                whole.append(perf_counter() - start)
            for n in range(5):
                await client.rename_job(f"{n:08x}-0000-4000-8000-000000000000", f"name {n}")
                start = perf_counter()
                await read.read()
                polls.append(perf_counter() - start)
            return min(whole), min(polls)


def record(row: Work) -> RunRecord:
    given = {"learning_rate": row.lr, "group_size": row.group_size, "seed": 0}
    return RunRecord(
        id=row.id,
        model_id=row.model_id,
        model=row.model,
        name=row.name,
        status=row.status,
        taskset=row.taskset,
        parameters=given,
        created_at=row.created_at,
        points=[sin(n / 9) for n in range(30)],
        reward_first=row.reward,
        reward_last=row.reward,
        step=240,
        steps=240,
    )


async def in_sight(view: RunsScreen) -> None:
    """Wait until the table is full of rows, and the run under the cursor is below it."""
    table = view.table
    while not (table.lines and view.preview.display and len(table.shown) > table.body_rows > 9):  # noqa: ASYNC110
        await asyncio.sleep(0)


async def screen(known: list[Work]) -> tuple[float, float, float, float]:
    """Seconds until the view shows all runs, to scroll a page, to move the cursor, and to show that
    one run has changed."""
    app = Scene(Start("models"), nothing, runs=[record(row) for row in known]).app()
    async with app.run_test(size=(200, 60)) as pilot:
        await settle(pilot, lambda: app.shown_view is not None)
        start = perf_counter()
        await app.action_view("runs")
        view = app.shown_view
        assert isinstance(view, RunsScreen)
        await asyncio.wait_for(in_sight(view), 60)
        opened = perf_counter() - start
        table, scrolls = view.table, []
        view.rearrange(sort="-reward")
        for page in range(1, 40):
            start = perf_counter()
            table.scroll_y = float(table.body_rows * page)
            scrolls.append(perf_counter() - start)
        stepped = best_s(lambda: table.action_move(1), 20)
        moved = []
        for step in range(1, 6):
            assert view.rows is not None
            one = replace(view.rows[77], done=step)
            start = perf_counter()
            view.rows = (*view.rows[:77], one, *view.rows[78:])
            view.show()
            moved.append(perf_counter() - start)
        assert len(view.table.lines) == RUNS
        return opened, sorted(scrolls)[len(scrolls) // 2], stepped, min(moved)


async def nothing(*_: object) -> None: ...


class Read(RunList):
    """Runs whose steps were read."""

    def __init__(self, found: list[tuple[Work, RunSeries]]) -> None:
        self._read = {row.id: one for row, one in found}

    @property
    def polls(self) -> bool:
        return True

    async def series(self, run_id: str, keys: object) -> RunSeries:
        return self._read[run_id]


async def comparison(found: list[tuple[Work, RunSeries]]) -> tuple[float, float]:
    """Seconds to draw all curves anew, and to move the crosshair, at 200 × 60."""
    app = Scene(Start("models"), nothing).app()
    rows = [row for row, _ in found]
    async with app.run_test(size=(200, 60)) as pilot:
        await settle(pilot, lambda: app.shown_view is not None)
        names = {row.id: row.name for row in rows}
        session = app.workspace.session
        screen = RunComparison(lambda: rows, Read(found), session, Compared(), names)
        await app.push_screen(screen)
        await settle(pilot, lambda: screen.curves.shown and screen.compared.runs)
        drawn = []
        for axis in (*Axis, *Axis, *Axis):
            start = perf_counter()
            screen.change(axis=axis)
            drawn.append(perf_counter() - start)
        screen.point(5000)
        moved = best_s(lambda: screen.action_cursor(1), 20)
        return min(drawn[len(Axis) :]), moved


def main() -> int:
    known = rows()
    runs = [(known[n], series(n)) for n in range(LINES)]
    for _, one in runs:
        one.curve("reward_mean", 0.8)
    sorted_s = best_s(lambda: table(known), 5)
    drawn_s = max(
        best_s(lambda axis=axis: overlay_runs(runs, "reward_mean", axis, WIDTH, 0.8))  # type: ignore[misc]
        for axis in Axis
    )
    read_s, poll_s = asyncio.run(service())
    open_s, scroll_s, step_s, move_s = asyncio.run(screen(known))
    compared_s, crosshair_s = asyncio.run(comparison(runs))
    return missed(
        [
            (f"runs filter and two sorts, {RUNS} rows", sorted_s, CHANGE),
            (f"runs overlay at {WIDTH} columns of dots, {LINES} × {STEPS} steps", drawn_s, REPAINT),
            (f"runs compared, {LINES} × {STEPS} steps drawn", compared_s, REPAINT),
            ("runs compared, the crosshair a step on", crosshair_s, KEY),
            (f"runs list read whole, {RUNS} runs", read_s, WHOLE),
            (f"runs list, one of {RUNS} changed", poll_s, KEY),
            (f"runs view opened, {RUNS} runs", open_s, WHOLE),
            (f"runs view scrolled a page of {RUNS}", scroll_s, REPAINT),
            ("runs view, the cursor a row down", step_s, KEY),
            (f"runs view, one of {RUNS} moved", move_s, CHANGE),
        ]
    )
