"""SIGKILL of the service and of its engine at random moments, with a run and clients at work.

Killed in a step, a save, a head move, a fork, a thinning, a start or a migration, the next start
must have everything that was acknowledged, a whole tree, a head that is the old one or the new
one, and every file that a checkpoint needs, with its checksum.
"""

import asyncio
import os
import random
import shutil
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import httpx

from hud_tui.service_file import ServiceReady
from tests.campaigns.campaign import Campaign, Plan, Report
from tests.conftest import Process, fork, submit
from tests.service.calls import Json, leftovers, optim, pass_, payloads, saved_steps, set_head, tree
from tests.service.test_data_dir import make_older

KINDS = ("losses", "broken trees", "missing weights", "failed starts", "errors", "hangs")
LIVES = 40
"""Kills that one data directory goes through."""
DISK = 12 * 2_070_000
"""What is kept: so few checkpoints that they are thinned all the time."""
BUSY_S = 0.8
"""Longest that clients are at work before a kill."""
PATIENCE_S = 180.0
EXPECTED = (404, 409, 410, 503)
"""A checkpoint that was thinned meanwhile, a run that is over, an engine that was killed."""


class Lost(Exception):
    """Something is not as it must be: which of `KINDS`, and what."""


def must(condition: object, kind: str, what: str) -> None:
    """Raises Lost where the condition does not hold."""
    if not condition:
        raise Lost(kind, what)


class Running:
    """A service in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.http: httpx.AsyncClient

    @classmethod
    async def spawn(cls, data: Path) -> "Running":
        flags = ("--data-dir", str(data), "--max-disk", str(DISK))
        with (data.parent / f"{data.name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "hud_tui.service", *flags),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        return cls(process)

    async def ready(self) -> None:
        """Wait until it can be called. Raises Lost: it ended before."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        must(line, "failed starts", f"exit code {None if line else await self.process.wait()}")
        self.http = Process(ServiceReady.model_validate_json(line), self.process).client()

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        if hasattr(self, "http"):
            await self.http.aclose()

    async def stop(self) -> None:
        self.process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), BUSY_S)
        await self.kill()

    def kill_engine(self) -> None:
        """The engine is the service's only child."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)


class Acknowledged:
    def __init__(self) -> None:
        self.models: set[str] = set()
        self.steps: dict[str, set[str]] = {}
        """Checkpoints that were seen, by model."""
        self.pinned: set[str] = set()
        self.traces: dict[str, float] = {}
        self.heads: set[str | None] = {None}
        """Of the model that a client trains: the last head, and the one that was asked for."""


class Directory:
    """A data directory, through all its kills."""

    def __init__(self, data: Path, chance: random.Random) -> None:
        self.data = data
        self._chance = chance
        self._told = Acknowledged()
        self._running: Running | None = None
        self._job = self._trained = self._own = ""

    async def round(self) -> None:
        """One kill, and the start after it where there is one. Raises Lost."""
        ways = (self._in_work, self._engine, self._in_start, self._in_migration, self._stopped)
        [way] = self._chance.choices(ways, (6, 4, 2, 1, 1))
        await way()

    async def settle(self) -> None:
        """A last look. Raises Lost."""
        await self._up()
        await self._down()
        log = self.data.with_name(f"{self.data.name}.log").read_text("utf-8", "replace")
        must("Traceback" not in log, "errors", log[log.find("Traceback") :][-1000:])

    async def _in_work(self) -> None:
        running = await self._up()
        await self._work(running, running.kill)
        self._running = None

    async def _engine(self) -> None:
        running = await self._up()

        async def kill() -> None:
            running.kill_engine()

        await self._work(running, kill)
        await _sample(running.http, self._trained)

    async def _stopped(self) -> None:
        """Told to end, and killed where that takes too long."""
        running = await self._up()
        await self._work(running, running.stop)
        self._running = None

    async def _in_start(self) -> None:
        await self._down()
        starting = await Running.spawn(self.data)
        await asyncio.sleep(self._chance.uniform(0, 2 * BUSY_S))
        await starting.kill()

    async def _in_migration(self) -> None:
        await self._down()
        if (self.data / "service.db").exists():
            with suppress(sqlite3.OperationalError, FileNotFoundError):  # it is an older one yet
                make_older(self.data)
        await self._in_start()

    async def _up(self) -> Running:
        """The service, checked after it was started."""
        if self._running is None:
            running = self._running = await Running.spawn(self.data)
            await running.ready()
            if not self._job:
                await self._begin(running.http)
            await self._check(running.http)
            answer = await running.http.post(f"/v1/training/jobs/{self._job}/resume")
            must(answer.status_code in (200, 409), "errors", f"resume: {answer.text}")
        return self._running

    async def _down(self) -> None:
        if self._running is not None:
            await self._running.kill()
            self._running = None

    async def _begin(self, http: httpx.AsyncClient) -> None:
        self._trained = (await fork(http, "trained"))["id"]
        self._own = (await fork(http, "own"))["id"]
        self._told.models |= {self._trained, self._own}
        plan = {"steps": 100_000, "tasks_per_step": 2, "group_size": 4}
        self._job = await submit(http, self._trained, **plan)

    async def _work(self, running: Running, kill: Callable[[], Awaitable[None]]) -> None:
        """Clients at work, and in the midst of it a kill."""
        clients = [
            asyncio.create_task(self._repeat(one, running.http))
            for one in (self._train, self._look_around)
        ]
        await asyncio.sleep(self._chance.uniform(0, BUSY_S))
        await kill()
        _, late = await asyncio.wait(clients, timeout=BUSY_S)
        for client in late:
            client.cancel()
        for outcome in await asyncio.gather(*clients, return_exceptions=True):
            if isinstance(outcome, Lost):
                raise outcome

    async def _repeat(
        self, act: Callable[[httpx.AsyncClient], Awaitable[None]], http: httpx.AsyncClient
    ) -> None:
        """Until the line breaks."""
        with suppress(httpx.TransportError):
            while True:
                await act(http)

    async def _train(self, http: httpx.AsyncClient) -> None:
        """A client that trains a model by itself, and moves its head."""
        told, own = self._told, self._own
        known = told.steps.setdefault(own, set())
        if known and self._chance.random() < 0.3:
            target = self._chance.choice(sorted(known))
            told.heads.add(target)
            if _done(await set_head(http, own, target)):
                told.heads = {target}
            return
        with suppress(AssertionError):  # the helper's: refused, as the engine was killed
            rollouts = await payloads(http, own, [1.0, 0.0])
            if not _done(await pass_(http, own, rollouts)):
                return
            stepped = await optim(http, own)
            if _done(stepped):
                id_ = str(stepped.json()["checkpoint_id"])
                known.add(id_)
                told.heads = {id_}

    async def _look_around(self, http: httpx.AsyncClient) -> None:
        """A client that reads, pins, forks, reports rollouts, and moves the run's head."""
        told, run = self._told, self._trained
        rows = await tree(http, run)
        told.steps.setdefault(run, set()).update(row["id"] for row in rows)
        if not rows:
            return
        row = self._chance.choice(rows[-8:])
        match self._chance.randrange(5):
            case 0 if len(told.pinned) < 2:
                if _done(await http.put(f"/v2/models/{run}/checkpoints/{row['id']}/pin")):
                    told.pinned.add(row["id"])
            case 1 if len(told.models) < 5:
                body = {"source_model_id": run, "name": str(uuid4()), "checkpoint_id": row["id"]}
                answer = await http.post("/v2/models/fork", json=body)
                if _done(answer):
                    told.models.add(answer.json()["id"])
            case 2:
                _done(await set_head(http, run, row["id"]))
            case 3:
                await self._report(http)
            case _:
                await _sample(http, run, row["id"])

    async def _report(self, http: httpx.AsyncClient) -> None:
        trace, reward = str(uuid4()), round(self._chance.random(), 3)
        _done(await http.post(f"/v2/trace/{trace}/enter", json={"task_slug": "sum"}))
        body = {"status": "completed", "reward": reward}
        if _done(await http.post(f"/v2/trace/{trace}/exit", json=body)):
            self._told.traces[trace] = reward

    async def _check(self, http: httpx.AsyncClient) -> None:
        """Everything that must hold after a start. Raises Lost."""
        told = self._told
        for model in sorted(told.models):
            answer = await http.get(f"/v2/models/{model}")
            must(answer.status_code == 200, "losses", f"model {model}: {answer.text}")
        for model in (self._trained, self._own):
            rows = await tree(http, model)
            _check_tree(rows)
            lost = told.steps.get(model, set()) - {row["id"] for row in rows}
            must(not lost, "losses", f"checkpoints {lost}")
            told.steps[model] = {row["id"] for row in rows}
            pins = {row["id"] for row in rows if row["pinned"]}
            lost = told.pinned - pins if model == self._trained else set()
            must(not lost, "losses", f"pins of {lost}")
            await _sample(http, model)
        self._check_head(await tree(http, self._own))
        answer = await http.get(f"/v2/jobs/{self._job}/traces?limit=10000")
        rows = answer.json()["items"]
        key = ("step", "attempt", "task_slug", "rollout")  # discarded attempts are kept
        rollouts = {tuple(row[name] for name in key) for row in rows}
        must(len(rollouts) == len(rows), "errors", "rollouts of a step that was repeated")
        for trace, reward in told.traces.items():
            kept = (await http.get(f"/v2/trace/{trace}")).json()
            must(kept.get("reward") == reward, "losses", f"trace {trace}: {kept}")
        await asyncio.to_thread(check_files, self.data)
        for place in leftovers(self.data):
            shutil.rmtree(place)

    def _check_head(self, rows: list[Json]) -> None:
        """The old head, one that was asked for, or a step that was not acknowledged."""
        head = next((row["id"] for row in rows if row["is_active"]), None)
        newest = rows[-1]["id"] if rows else None
        must(head in self._told.heads | {newest}, "losses", f"the head is {head}")
        self._told.heads = {head}


def _done(answer: httpx.Response) -> bool:
    """Whether it was done. Raises Lost: an answer that nothing here excuses."""
    if answer.is_success:
        return True
    what = f"HTTP {answer.status_code}: {answer.request.url.path}: {answer.text[:300]}"
    must(answer.status_code in EXPECTED, "errors", what)
    return False


async def _sample(http: httpx.AsyncClient, model: str, checkpoint: str | None = None) -> None:
    """The weights can be loaded; an engine that was just killed is asked again."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "3 + 4 = ?"}],
        "max_tokens": 2,
        **({"checkpoint": checkpoint} if checkpoint else {}),
    }
    for _ in range(3):
        answer = await http.post("/chat/completions", json=body)
        if answer.status_code != 503:
            break
    if checkpoint and answer.status_code == 410 and "expired" in answer.text:
        return
    must(answer.status_code == 200, "missing weights", answer.text[:300])


def _check_tree(rows: list[Json]) -> None:
    """Steps from 1 without a gap, parents that came before, one head."""
    seen: set[str | None] = {None}
    for number, row in enumerate(rows, 1):
        must(row["step"] == number, "broken trees", f"step {row['step']} is number {number}")
        parent = row["prev_model_checkpoint_id"]
        must(parent in seen, "broken trees", f"{row['id']} has no parent {parent}")
        must(row["state"] != "damaged", "missing weights", f"{row['name']} is damaged")
        seen.add(row["id"])
    heads = [row["id"] for row in rows if row["is_active"]]
    must(len(heads) == bool(rows), "broken trees", f"heads: {heads}")


def check_files(data: Path) -> None:
    """Every file that a row needs is there, byte for byte. Raises Lost."""
    for id_, path, digest in _kept(data):
        try:
            found = sha256((data / path).read_bytes()).hexdigest()
        except FileNotFoundError:
            found = "none"
        if found != digest and digest is not None:  # unless it was thinned just now
            still = (id_, path, digest) in _kept(data)
            must(not still, "missing weights", f"{path}: {found}")
    known = {Path(path).parts[1] for _, path, _ in _kept(data)}
    must(known <= {path.name for path in saved_steps(data)}, "missing weights", "a directory")


def _kept(data: Path) -> list[tuple[str, str, str | None]]:
    with closing(sqlite3.connect(f"file:{data / 'service.db'}?mode=ro", uri=True)) as db:
        query = "SELECT id, state_path, sha256 FROM checkpoint WHERE state != 'expired'"
        return list(db.execute(query))


async def play(plan: Plan, report: Report) -> None:
    chance = plan.random
    with TemporaryDirectory(prefix="hud-kills-") as place:
        directory: Directory | None = None
        for number in plan.rounds(report):
            if directory is None:
                directory = Directory(Path(place) / f"data-{number}", chance)
            last = number % LIVES == LIVES - 1 or number + 1 == plan.count
            if await _safely(directory, last, number, report) or last:
                await directory._down()
                shutil.rmtree(directory.data, ignore_errors=True)
                directory = None
        if directory is not None:
            await directory._down()


async def _safely(directory: Directory, last: bool, number: int, report: Report) -> bool:
    """Whether the round found something."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            await directory.round()
            if last:
                await directory.settle()
    except Lost as lost:
        kind, what = lost.args
        report.found(kind, f"round {number}: {what}")
        return True
    except TimeoutError:
        report.found("hangs", f"round {number}")
        return True
    return False


CAMPAIGN = Campaign("kills", "kills", count=1000, small=6, play=play, kinds=KINDS)
