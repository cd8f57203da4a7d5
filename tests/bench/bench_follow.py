"""What following a run costs the app: processor time and memory a step.

An embedded service in a process of its own logs the events of a run of 12 groups of 8, a step in
half a second, with the rollouts on the way. The whole app follows them in its Live view, on a
pseudo-terminal of 120 × 40. Its time is that of all of its threads, so it does not matter what else
the machine does. Memory is the growth of its peak over later steps, which come faster.
"""

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import IO

from hud_tui.service.service import Service
from hud_tui.service.store import events
from tests.bench.bench_events import drain, fork, job, live_app, step_events
from tests.bench.timed_app import TimedApp
from tests.bench.timing import floor_s
from tests.conftest import on_socket
from tests.toy_engine import ToyEngine

BEFORE, STEPS, LATER = 100, 40, 2000
"""Steps before the measurement, in it, and in that of memory."""
EVERY_S = 0.5
GROUPS, SIZE = 12, 8
GOAL_MS, GOAL_FLOORS, GOAL_KB = 20.0, 3.7, 3.0
"""Of a step."""


async def serve() -> None:
    """The service: says where it is; for each line of input logs so many steps, so many seconds
    apart, and says when that is done."""
    with tempfile.TemporaryDirectory() as folder:
        async with Service(Path(folder), ToyEngine()) as service, on_socket(service) as url:
            model = await service.parts.store.write(fork)
            print(url, service.api_key, flush=True)
            last = 0
            while line := await asyncio.to_thread(sys.stdin.readline):
                count, every_s = line.split()
                for number in range(last + 1, last + int(count) + 1):
                    *rollouts, node, head, taken, _ = step_events(number, model.id, GROUPS, SIZE)
                    made = [node, head, taken, job(number, model.id, steps=2 * LATER)]
                    for part in (rollouts[::2], rollouts[1::2], made):
                        await service.parts.store.write(events.append, model.id, part)
                        await asyncio.sleep(float(every_s) / 3)
                last += int(count)
                print("logged", flush=True)


class Followed:
    """The app, and the service whose run it follows."""

    def __init__(self, app: TimedApp, requests: IO[bytes], answers: IO[bytes]) -> None:
        self.app, self._requests, self._answers, self._last = app, requests, answers, 0

    def begin(self, count: int, every_s: float) -> None:
        """Have so many more steps logged."""
        self._requests.write(f"{count} {every_s}\n".encode())
        self._requests.flush()
        self._last += count

    def log(self, count: int, every_s: float) -> None:
        """Have so many more steps logged, and wait until the app shows the newest."""
        self.begin(count, every_s)
        self.app.terminal.read_until(f"step {self._last}".encode())
        assert self._answers.readline() == b"logged\n"


@contextmanager
def followed() -> Iterator[Followed]:
    """The app in its Live view, with BEFORE steps of a run."""
    with live_app("follow") as pipes:
        found = Followed(*pipes)
        found.log(BEFORE, 0.01)
        drain(found.app.terminal, 1.0)
        yield found


def measure() -> tuple[float, float, float]:
    """Seconds and bytes a step, and a floor of the same minutes."""
    with followed() as run:
        used, before = run.app.used_s(), floor_s(process_time)
        run.log(STEPS, EVERY_S)
        spent, floor = (run.app.used_s() - used) / STEPS, (before + floor_s(process_time)) / 2
        run.log(LATER // 2, 0.01)
        held = run.app.peak_bytes()
        run.log(LATER // 2, 0.01)
        return spent, (run.app.peak_bytes() - held) / (LATER // 2), floor


def main() -> int:
    if "--serve" in sys.argv:
        asyncio.run(serve())
        return 0
    spent, held, floor = measure()
    floors = spent / floor
    print(
        f"following a run: {floors:.2f} floors ({1000 * spent:.1f} ms) of processor a step;"
        f" goal {GOAL_FLOORS:.2f} ({GOAL_MS:.0f} ms)"
    )
    print(f"following a run: {held / 1000:.1f} kB of memory a step; goal {GOAL_KB:.1f} kB")
    return floors > GOAL_FLOORS or held > 1000 * GOAL_KB
