"""Keys while 5 000 events a second arrive: from the key to its answer on the terminal.

An embedded service in a process of its own logs the rollouts of 64 groups of 64 and the steps
that they make, and sends them as it sends all events. The whole app follows them in its Live
view, on a pseudo-terminal of 120 × 40. The key freezes the view, or lets it go on, which draws
every pane anew. Counted is the app's own processor time, which does not depend on what else the
machine does; the time on the clock is printed beside it. The app must keep up: the end of the
run is shown soon after its last event.
"""

import asyncio
import select
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from subprocess import PIPE, Popen
from time import monotonic
from typing import IO

from hud_tui.events import CheckpointAdded, HeadMoved, RolloutDone, StepTaken, WorkChanged
from hud_tui.service.service import Service
from hud_tui.service.store import events, models
from hud_tui.service.store.db import Db
from hud_tui.service.store.events import Sent
from hud_tui.service.store.models import ModelRow
from hud_tui.wire import Checkpoint
from tests.bench.terminal import Terminal
from tests.bench.timed_app import TimedApp, timed_app
from tests.conftest import on_socket, pointed_at
from tests.toy_engine import ToyEngine
from tests.tui import runs

GROUPS, SIZE, PER_S, EVERY_S = 64, 64, 5_000, 0.02
"""Events are logged so often, all together."""
STEPS, PAUSE_S = 20, 0.3
GOAL_MS, LATE_S = 50.0, 1.0
"""For nine of ten keys; and from the run's last event to its end on the screen."""
KEY, FROZEN, FOLLOWED, ENDED = b"f", b"frozen at", b"stream", b"succeeded"


def step_events(
    number: int, model_id: str, tasks: int = GROUPS, size: int = SIZE
) -> Iterator[Sent]:
    """All that a step of so many groups sends, as the embedded service does."""
    groups = runs.groups(number, tasks, size)
    for group in groups:
        for rollout, reward in enumerate(group.rewards):
            yield RolloutDone(
                trace_id=group.trace_ids[rollout],
                step=number,
                task_slug=group.task_slug,
                rollout=rollout,
                reward=reward,
            )
    node = Checkpoint(
        id=f"c{number}",
        name=f"step-{number:06}",
        prev_model_checkpoint_id=f"c{number - 1}" if number > 1 else None,
        is_active=True,
        step=number,
        metrics=runs.metrics(number),
        groups=[group.model_copy(update={"trace_ids": []}) for group in groups],
    )
    yield CheckpointAdded(checkpoint=node)
    yield HeadMoved(checkpoint_id=node.id, previous=node.prev_model_checkpoint_id, cause="step")
    yield StepTaken(step=number, checkpoint_id=node.id, metrics=node.metrics, groups=groups)
    yield job(number, model_id)


def job(step: int, model_id: str, status: str = "running", steps: int = STEPS) -> WorkChanged:
    found = runs.job(step, steps, status)
    return WorkChanged(work=found.model_copy(update={"model_id": model_id}))


def fork(db: Db) -> ModelRow:
    return models.fork(db, models.find(db, ToyEngine().bases()[0].name), "bench")


async def serve() -> None:
    """The service: says where it is, logs the events when it is told to, says when it is done."""
    with tempfile.TemporaryDirectory() as folder:
        async with Service(Path(folder), ToyEngine()) as service, on_socket(service) as url:
            model = await service.parts.store.write(fork)
            made: list[Sent] = [job(0, model.id)]
            for number in range(1, STEPS + 1):
                made += step_events(number, model.id)
            print(url, service.api_key, flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            late = await log(service, model.id, [*made, job(STEPS, model.id, "succeeded")])
            print(f"{late:.2f}", flush=True)
            await asyncio.to_thread(sys.stdin.readline)


async def log(service: Service, model_id: str, made: list[Sent]) -> float:
    """Log them at the pace of PER_S; how many seconds later than that it ended."""
    size, start = int(PER_S * EVERY_S), monotonic()
    for first in range(0, len(made), size):
        await asyncio.sleep(start + first / PER_S - monotonic())
        await service.parts.store.write(events.append, model_id, made[first : first + size])
    return monotonic() - start - len(made) / PER_S


def drain(terminal: Terminal, seconds: float) -> bytes:
    """What is drawn meanwhile."""
    drawn, until = b"", monotonic() + seconds
    while (left := until - monotonic()) > 0:
        drawn += terminal.read(left)
    return drawn


@dataclass
class Found:
    used_ms: list[float] = field(default_factory=list)
    """Of each key: the app's processor time until its answer was drawn."""
    clock_ms: list[float] = field(default_factory=list)
    """And the time on the clock."""
    logged_s: float = 0.0
    """By how much the service logged the last event too late."""
    late_s: float = 0.0
    """From then until the app showed it."""


def follow(app: TimedApp, requests: IO[bytes], answers: IO[bytes]) -> Found:
    """Press the key again and again until all events are logged, then look for the end."""
    terminal = app.terminal
    requests.write(b"go\n")
    requests.flush()
    drawn, found = terminal.read_until(b"step 1/"), Found()
    while not select.select([answers], [], [], 0)[0]:
        drawn += drain(terminal, PAUSE_S)
        used, start = app.used_s(), monotonic()
        terminal.type(KEY)
        drawn += terminal.read_until(FOLLOWED if len(found.used_ms) % 2 else FROZEN)
        found.clock_ms.append(1000 * (monotonic() - start))
        found.used_ms.append(1000 * (app.used_s() - used))
    start, found.logged_s = monotonic(), float(answers.readline())
    if ENDED not in drawn:
        terminal.type(KEY * (len(found.used_ms) % 2))
        terminal.read_until(ENDED)
    found.late_s = monotonic() - start
    return found


@contextmanager
def live_app(name: str) -> Iterator[tuple[TimedApp, IO[bytes], IO[bytes]]]:
    """The app in its Live view, and what is told to the service that it follows, and heard of it:
    a process of a bench."""
    arguments = [sys.executable, "-m", "tests.bench", name, "--serve"]
    with Popen(arguments, stdin=PIPE, stdout=PIPE) as service:
        try:
            assert service.stdin is not None
            assert service.stdout is not None
            url, key = service.stdout.readline().decode().split()
            with timed_app(["status", "bench"], pointed_at(url, key)) as app:
                app.terminal.read_until(b"No run yet")
                yield app, service.stdin, service.stdout
        finally:
            service.kill()


def main() -> int:
    if "--serve" in sys.argv:
        asyncio.run(serve())
        return 0
    with live_app("events") as pipes:
        found = follow(*pipes)
    used = sorted(found.used_ms)[-len(found.used_ms) // 10]
    print(
        f"a key at {PER_S} events/s: nine of ten in {used:.0f} ms of the app's time"
        f" (median {median(found.used_ms):.0f} ms, on the clock {median(found.clock_ms):.0f} ms);"
        f" goal {GOAL_MS:.0f} ms"
    )
    print(
        f"the run's end at {PER_S} events/s: {found.late_s:.2f} s after its last event, which the"
        f" service logged {found.logged_s:.2f} s late; goal {LATE_S:.2f} s"
    )
    return used > GOAL_MS or found.late_s > LATE_S
