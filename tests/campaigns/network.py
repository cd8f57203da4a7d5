"""A network that lies between the client and the service, on every verb that calls it.

Each round runs one command, or one call of the TrainingClient, through a line that does one thing
wrong; what was said of it is then compared with what the service has. Said to be done, it must be
there; said not to be, it must not; and nothing is ever there twice.
"""

import asyncio
import io
import json
import logging
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any
from unittest.mock import patch

import httpx

from hud_tui.cli.commands import COMMANDS, build_parser
from hud_tui.cli.connect import run_connected
from hud_tui.cli.output import emit_error
from hud_tui.client import TrainingClient
from hud_tui.client.client import HudClient
from hud_tui.errors import HudError, HudUnclear
from hud_tui.service.service import Service
from hud_tui.settings import local_settings
from tests.campaigns.campaign import Campaign, Plan, Report
from tests.campaigns.lying import FAULTS, Lying, Request, lying
from tests.conftest import bearer, ended, fork, on_socket, submit
from tests.service.calls import Json, payloads, step, tree
from tests.toy_engine import ToyEngine

KINDS = ("doubled", "called failed though done", "called done though not", "hangs", "crashes")
ROUNDS = 60
"""Rounds that one service serves: a catalog of thousands of forks would be slow to read."""
PATIENCE_S = 0.4
"""How long the client waits for an answer here."""
LATE_S = 0.6
MOST_S = 10.0
"""Longest that a command may take beyond its waits, which are below a second here."""
ENDLESS = {"steps": 100_000, "learning_rate": 1e-6}
HASTE: dict[str, Any] = {
    "hud_tui.client.transport.READ_S": PATIENCE_S,
    "hud_tui.client.transport.CONNECT_S": 1.0,
    "hud_tui.client.training_calls.TRAIN_S": PATIENCE_S,
    "hud_tui.client.run_calls.SUBMIT_S": PATIENCE_S,
    "hud_tui.patience.OUTCOME_PAUSES_S": (0.0, 0.05, 0.1),
    "hud_tui.client.submit.LOOK_S": 0.05,
    "hud_tui.client.signal.PATIENCE_S": 1.0,
    "hud_tui.cli.watch.PATIENCE_S": 2.0,
    "hud_tui.cli.watch.WATCH_S": 0.1,
    "hud_tui.client.transport.backoff": lambda attempt, longest_s=0.0: 0.01,
    "hud_tui.client.feed.backoff": lambda attempt, longest_s=0.0: 0.01,
}
"""The client's waits, short."""


@dataclass(frozen=True)
class Said:
    """What a command or a call said became of it."""

    outcome: str
    """``done``, ``not_done`` or ``unknown``."""
    document: Json
    """Its last one; empty for a call."""


class Stage:
    """One service, the line to it, and what is on it."""

    def __init__(self, line: Lying, http: httpx.AsyncClient, chance: random.Random) -> None:
        self.line, self.http, self.chance = line, http, chance
        self.number = 0
        self.api_key = http.headers["Authorization"].removeprefix("Bearer ")

    def client(self) -> HudClient:
        return HudClient(local_settings(self.line.url, self.api_key, f"{self.line.url}/t"))

    async def command(self, *argv: str) -> Said:
        """Run a command as ``hud-tui --headless`` does, in this loop."""
        args = build_parser().parse_args(["--headless", "--local", *argv])

        async def connect(*_: object) -> HudClient:
            return self.client()

        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(io.StringIO()):
            try:
                run = COMMANDS[args.command].load()
                code = await run_connected(run, args, connect)
            except HudError as error:
                code = emit_error(error, document=True)
        document: Json = json.loads(out.getvalue().splitlines()[-1])
        if document["kind"] != "error":
            return Said("done", document)
        outcome = document["error"]["outcome"] or "not_done"
        assert (code == 7) == (outcome == "unknown"), document
        return Said(outcome, document)

    @asynccontextmanager
    async def trainer(self, model_id: str) -> AsyncIterator[TrainingClient]:
        """A loop on a model, which is found before the line begins to lie."""
        choose, self.line.choose = self.line.choose, lambda request: ""
        client = self.client()
        async with TrainingClient(model_id, client) as trainer:
            await trainer.checkpoints()
            self.line.choose = choose
            yield trainer
            self.line.choose = lambda request: ""
        await client.aclose()

    def name(self) -> str:
        self.number += 1
        return f"m{self.number}"


async def said_of(call: Awaitable[object]) -> Said:
    """What a call of the client says."""
    try:
        await call
    except HudUnclear:
        return Said("unknown", {})
    except HudError as error:
        return Said(error.outcome or "not_done", {})
    return Said("done", {})


Found = tuple[Said, int]
"""What was said, and how many times the service has it."""
Verb = Callable[[Stage], Awaitable[Found | None]]
"""Prepares, has the line lie, and compares; None for what changes nothing."""


async def fork_one(stage: Stage) -> Found:
    name = stage.name()
    said = await stage.command("fork", "toy/four", "--name", name, "-y")
    await stage.line.settled()
    rows = (await stage.http.get("/v2/models?limit=1000")).json()["items"]
    return said, sum(row["name"] == name for row in rows)


async def trained(stage: Stage, steps: int) -> tuple[Json, list[str]]:
    """A fork with some steps, made past the line; the checkpoints' ids."""
    model = await fork(stage.http, stage.name())
    return model, [(await step(stage.http, model))["checkpoint_id"] for _ in range(steps)]


async def head_of(stage: Stage, model: Json) -> str:
    rows = await tree(stage.http, model["id"])
    return next(row["id"] for row in rows if row["is_active"])


async def set_the_head(stage: Stage) -> Found:
    model, (first, *_) = await trained(stage, 2)
    said = await stage.command("head", model["model_name"], "--set", first, "-y")
    await stage.line.settled()
    return said, int(await head_of(stage, model) == first)


async def set_by_trainer(stage: Stage) -> Found:
    model, (first, *_) = await trained(stage, 2)
    async with stage.trainer(model["id"]) as trainer:
        said = await said_of(trainer.set_head(first))
    await stage.line.settled()
    return said, int(await head_of(stage, model) == first)


async def all_jobs(stage: Stage) -> list[Json]:
    return list((await stage.http.get("/v2/jobs?limit=1000")).json()["items"])


async def jobs_of(stage: Stage, model: Json) -> list[Json]:
    rows = await all_jobs(stage)
    return [row for row in rows if (row["metadata"] or {}).get("model_id") == model["id"]]


async def run_one(stage: Stage) -> Found:
    model = await fork(stage.http, stage.name())
    follow = ["--follow"] if stage.chance.random() < 0.3 else []
    asked = ("run", "arith", "-m", model["model_name"], "--steps=1", *follow, "-y")
    said = await stage.command(*asked)
    await stage.line.settled()
    jobs = await jobs_of(stage, model)
    for job in jobs:
        await ended(stage.http, job["id"])
    if said.document["kind"] == "job" and [job["id"] for job in jobs] != [_job_id(said)]:
        return said, 0
    return said, len(jobs)


def _job_id(said: Said) -> str:
    return str(said.document["data"]["job_id"])


async def stop(stage: Stage, job_id: str) -> None:
    await stage.http.post("/v2/rollouts/cancel_job", json={"job_id": job_id})
    await ended(stage.http, job_id)


async def steered(stage: Stage, flag: str, wanted: Sequence[str]) -> Found:
    """A run is cancelled, or resumed after it was."""
    model = await fork(stage.http, stage.name())
    job_id = await submit(stage.http, model["id"], **ENDLESS)
    if flag == "--resume":
        await stop(stage, job_id)
    said = await stage.command("jobs", job_id, flag, "-y")
    await stage.line.settled()
    status = (await stage.http.get(f"/v1/training/jobs/{job_id}/raw-status")).json()["status"]
    await stop(stage, job_id)
    return said, int(status in wanted)


async def pin_one(stage: Stage) -> Found:
    model, [first] = await trained(stage, 1)
    client = stage.client()
    said = await said_of(client.pin(model["id"], first, True))
    await client.aclose()
    await stage.line.settled()
    [row] = await tree(stage.http, model["id"])
    return said, int(row["pinned"])


async def upload_one(stage: Stage) -> Found:
    from hud_tui.wire_tasks import UploadTasks

    name, client = stage.name(), stage.client()
    row = {"name": "one", "env": {"name": "arith"}, "task_id": "add", "args": {"a": 1, "b": 2}}
    body = UploadTasks.model_validate({"taskset_name": name, "tasks": [row]})
    said = await said_of(client.tasks.upload(body))
    await client.aclose()
    await stage.line.settled()
    found = await stage.http.get(f"/v2/tasksets/by-name/{name}")
    if found.status_code != 200:
        return said, 0
    rows = (await stage.http.get(f"/v2/tasksets/{found.json()['taskset_id']}/export")).json()
    return said, len(rows["tasks"])


async def step_one(stage: Stage) -> Found:
    """forward_backward and optim_step; what is unclear of either, the trainer finds out."""
    model, _ = await trained(stage, stage.chance.randint(0, 1))
    before = len(await tree(stage.http, model["id"]))
    group = await payloads(stage.http, model["id"], [1.0, 0.0])
    async with stage.trainer(model["id"]) as trainer:
        passed = await said_of(trainer.forward_backward(group))
        if passed.outcome == "unknown":
            passed = await _resumed(stage, trainer)
        if passed.outcome != "done":
            await stage.line.settled()
            return passed, await _gradients(stage, model)
        said = await said_of(trainer.optim_step(learning_rate=0.1))
        if said.outcome == "unknown":
            said = await _resumed(stage, trainer)
    await stage.line.settled()
    rows = (await tree(stage.http, model["id"]))[before:]
    doubled = any(row["num_datums"] != 2 for row in rows)
    return said, 2 if doubled else len(rows)


async def _resumed(stage: Stage, trainer: TrainingClient) -> Said:
    stage.line.choose = lambda request: ""
    landed = (await trainer.resume()).landed
    return Said({True: "done", False: "not_done", None: "unknown"}[landed], {})


async def _gradients(stage: Stage, model: Json) -> int:
    """How many times a pass's gradients wait, found by stepping on them."""
    path = f"/v1/models/{model['id']}/train/optim-step"
    answer = await stage.http.post(path, json={"learning_rate": 0.1})
    if answer.status_code == 409:
        return 0
    return int((await tree(stage.http, model["id"]))[-1]["num_datums"]) // 2


async def sample_some(stage: Stage) -> Found:
    """Rollouts of a preflight: none is sampled twice, and the command ends."""
    model = await fork(stage.http, stage.name())
    before = {job["id"] for job in await all_jobs(stage)}
    size = ("--group-size=2", "--sample=3", "--fresh")
    await stage.command("preflight", "arith", "-m", model["model_name"], *size)
    await stage.line.settled()
    made = sum(job["num_traces"] for job in await all_jobs(stage) if job["id"] not in before)
    return Said("unknown", {}), 2 if made > 6 else 1


async def read_one(stage: Stage) -> None:
    """What only reads says what it read, or why it could not."""
    model, (first,) = await trained(stage, 1)
    name = model["model_name"]
    commands = (
        *(("models",), ("checkpoints", name), ("head", name), ("status", name), ("jobs",)),
        *(("preflight", "arith", "-m", name), ("watch", name, "--until", "step=1")),
    )
    await stage.command(*stage.chance.choice(commands))
    await stage.line.settled()
    assert first


VERBS: dict[str, Verb] = {
    "fork": fork_one,
    "head": set_the_head,
    "trainer.set_head": set_by_trainer,
    "run": run_one,
    "cancel": partial(steered, flag="--cancel", wanted=("cancelled",)),
    "resume": partial(steered, flag="--resume", wanted=("queued", "running")),
    "pin": pin_one,
    "upload": upload_one,
    "trainer.step": step_one,
    "preflight --sample": sample_some,
    "read": read_one,
}


def liar(chance: random.Random, fault: str, reads: bool) -> Callable[[Request], str]:
    """The fault goes to one request: of a verb that writes, to a write and what follows it now
    and then; of one that reads, to some read."""
    told = False

    def choose(request: Request) -> str:
        nonlocal told
        if request.method == "GET" or request.settles:
            lies = chance.random() < (0.4 if reads else 0.1 if told else 0.02)
            return chance.choice(FAULTS) if lies else ""
        if told and chance.random() < 0.7:
            return ""
        told = told or chance.random() < 0.8
        return fault if told else ""

    return choose


async def play_one(stage: Stage, report: Report, number: int) -> None:
    """One round: a verb, a fault, and whether what was said of it is so."""
    chance = stage.chance
    verb, fault = chance.choice(list(VERBS)), chance.choice(FAULTS)
    stage.line.keyless = chance.random() < 0.3
    if stage.line.keyless and fault.startswith("double"):
        fault = "drop"  # no client can help that where keys are not kept
    stage.line.choose = liar(chance, fault, reads=verb == "read")
    what = f"round {number}: {verb}, {fault}{', no keys' if stage.line.keyless else ''}"
    begun = monotonic()
    try:
        async with asyncio.timeout(60):
            found = await VERBS[verb](stage)
    except TimeoutError:
        report.found("hangs", what)
        return
    except Exception as error:
        report.found("crashes", f"{what}: {type(error).__name__}: {error}")
        return
    finally:
        stage.line.choose = lambda request: ""
        await stage.line.settled()
    if monotonic() - begun > 3 * MOST_S:
        report.found("hangs", f"{what}: {monotonic() - begun:.0f} s")
    if found is not None:
        judge(report, what, *found)


def judge(report: Report, what: str, said: Said, times: int) -> None:
    if times > 1:
        report.found("doubled", f"{what}: {times} times, said {said.outcome}")
    elif said.outcome == "not_done" and times:
        report.found("called failed though done", f"{what}: {said.document}")
    elif said.outcome == "done" and not times:
        report.found("called done though not", f"{what}: {said.document}")


@asynccontextmanager
async def staged(chance: random.Random) -> AsyncIterator[Stage]:
    """A service on a directory of its own, behind a line."""
    with TemporaryDirectory() as directory:
        async with (
            Service(Path(directory) / "data", ToyEngine()) as service,
            on_socket(service) as url,
            lying(url) as line,
            httpx.AsyncClient(
                base_url=url, headers=bearer(service.api_key), timeout=60, trust_env=False
            ) as http,
        ):
            line.late_s = LATE_S
            with patch.dict(os.environ, {"HUD_TUI_STATE_DIR": f"{directory}/state"}):
                yield Stage(line, http, chance)


async def play(plan: Plan, report: Report) -> None:
    chance, rounds = plan.random, plan.rounds(report)
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.NOTSET)
        logging.disable()  # what is not reported of a rollout costs the loop nothing but the view
        for name, value in HASTE.items():
            stack.enter_context(patch(name, value))
        for number in rounds:
            async with staged(chance) as stage:
                await play_one(stage, report, number)
                for _, number in zip(range(ROUNDS - 1), rounds, strict=False):
                    await play_one(stage, report, number)


CAMPAIGN = Campaign("network", "faults", count=2_000, small=25, play=play, kinds=KINDS)
