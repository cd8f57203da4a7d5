"""Keys while 5 000 events a second arrive: from the key to its answer on the terminal.

Run: python -m tests.bench.bench_events
An embedded service in a process of its own logs the rollouts of 64 groups of 64 and the steps
that they make, and sends them as it sends all events. The whole app follows them in its Live
view, on a pseudo-terminal of 120 × 40. The key freezes the view, or lets it go on, which draws
every pane anew. The app must keep up: the end of the run is shown soon after its last event.
"""

import asyncio
import select
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from subprocess import PIPE, Popen
from time import monotonic, perf_counter

from hud_tui.events import CheckpointAdded, HeadMoved, JobChanged, RolloutDone, StepTaken
from hud_tui.service.service import Service
from hud_tui.service.store import Db, events, models
from hud_tui.service.store.events import Sent
from hud_tui.service.store.models import ModelRow
from hud_tui.wire import Checkpoint
from tests.bench.terminal import Terminal, program
from tests.conftest import on_socket
from tests.toy_engine import ToyEngine
from tests.tui import runs

GROUPS, SIZE, PER_S, EVERY_S = 64, 64, 5_000, 0.02
"""Events are logged so often, all together."""
STEPS, PAUSE_S = 20, 0.3
GOAL_MS, LATE_S = 50.0, 1.0
"""For a key; and from the run's last event to its end on the screen."""
HOSTS = ("API", "RL", "GATEWAY", "TELEMETRY", "WEB")
KEY, FROZEN, FOLLOWED, ENDED = b"f", b"frozen at", b"heard", b"succeeded"


def step_events(number: int, model_id: str) -> Iterator[Sent]:
    """All that a step sends, as the embedded service does."""
    groups = runs.groups(number, GROUPS, SIZE)
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
        groups=groups,
    )
    yield CheckpointAdded(checkpoint=node)
    yield HeadMoved(checkpoint_id=node.id, previous=node.prev_model_checkpoint_id, cause="step")
    yield StepTaken(step=number, checkpoint_id=node.id, metrics=node.metrics, groups=groups)
    yield job(number, model_id)


def job(step: int, model_id: str, status: str = "running") -> JobChanged:
    found = runs.job(step, STEPS, status)
    return JobChanged(job=found.model_copy(update={"model_id": model_id}))


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


def follow(terminal: Terminal, service: Popen[bytes]) -> tuple[list[float], float, float]:
    """Press the key again and again until all events are logged, then look for the end."""
    assert service.stdin is not None
    assert service.stdout is not None
    terminal.read_until(b"No run yet")
    service.stdin.write(b"go\n")
    service.stdin.flush()
    drawn, taken = terminal.read_until(b"step 1/"), []
    while not select.select([service.stdout], [], [], 0)[0]:
        drawn += drain(terminal, PAUSE_S)
        start = perf_counter()
        terminal.type(KEY)
        drawn += terminal.read_until(FOLLOWED if len(taken) % 2 else FROZEN)
        taken.append(1000 * (perf_counter() - start))
    start, late = monotonic(), float(service.stdout.readline())
    if ENDED not in drawn:
        terminal.type(KEY * (len(taken) % 2))
        terminal.read_until(ENDED)
    return taken, late, monotonic() - start


def measure() -> tuple[list[float], float, float]:
    """Milliseconds of each key; by how many seconds the service was late, and then the app."""
    arguments = [sys.executable, "-m", "tests.bench.bench_events", "--serve"]
    with Popen(arguments, stdin=PIPE, stdout=PIPE) as service:
        try:
            assert service.stdout is not None
            url, key = service.stdout.readline().decode().split()
            environ = {f"HUD_{name}_URL": url for name in HOSTS} | {"HUD_API_KEY": key}
            with program(("-m", "hud_tui", "status", "bench"), environ) as terminal:
                return follow(terminal, service)
        finally:
            service.kill()


def main() -> int:
    if "--serve" in sys.argv:
        asyncio.run(serve())
        return 0
    taken, slow, late = measure()
    middle, tenth = median(taken), sorted(taken)[-(len(taken) // 10) - 1]
    print(
        f"a key at {PER_S} events/s: {middle:.0f} ms, nine of ten within {tenth:.0f} ms;"
        f" goal {GOAL_MS:.0f} ms"
    )
    print(
        f"the run's end at {PER_S} events/s: {late:.2f} s after its last event, which the service"
        f" logged {slow:.2f} s late; goal {LATE_S:.2f} s"
    )
    return middle > GOAL_MS or late > LATE_S


if __name__ == "__main__":
    sys.exit(main())
