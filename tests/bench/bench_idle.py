"""What the app does when nothing happens: processor time, and bytes to the terminal.

The whole app runs in a process of its own on a pseudo-terminal of 120 × 40, connected to an
embedded service whose run has just ended. Each view is shown for some seconds; Checkpoints, where
ages grow, first and longer. Its time is that of all of its threads, so it does not matter what
else the machine does.
"""

import asyncio
from time import monotonic

from tests.bench import trained
from tests.bench.terminal import Terminal
from tests.bench.timed_app import TimedApp, timed_app

STEPS, SETTLE_S = 20, 1.5
VIEWS = {
    "checkpoints": (b"4", 20.0, 2000),
    "models": (b"1", 5.0, 0),
    "live": (b"3", 5.0, 0),
    "runs": (b"5", 5.0, 0),
    "jobs": (b"6", 5.0, 0),
    "alarms": (b"7", 5.0, 0),
}
"""The key of each view, how many seconds it is shown, and how many bytes are drawn at most."""
DOWN, GOAL_PERCENT = b"j", 1.0


def settle(terminal: Terminal) -> None:
    """Read until nothing has been drawn for a while."""
    while terminal.read(SETTLE_S):
        pass


def rest(app: TimedApp, seconds: float) -> tuple[float, int]:
    """Percent of a processor, and bytes drawn, in some seconds without a key."""
    written, used, start = 0, app.used_s(), monotonic()
    while (left := start + seconds - monotonic()) > 0:
        written += len(app.terminal.read(left))
    return 100 * (app.used_s() - used) / (monotonic() - start), written


def measure(environ: dict[str, str]) -> dict[str, tuple[float, int]]:
    found = {}
    with timed_app(["--local"], environ) as app:
        app.terminal.read_until(b"bench")  # the model's name
        for view, (key, seconds, _) in VIEWS.items():
            settle(app.terminal)
            app.terminal.type(key)
            settle(app.terminal)
            app.terminal.type(DOWN)  # a view's first change after it is opened draws all of it
            settle(app.terminal)
            found[view] = rest(app, seconds)
        assert app.terminal.process.poll() is None, "the app has ended"
    return found


async def idle() -> dict[str, tuple[float, int]]:
    async with trained.service() as (client, environ):
        await trained.train(client, STEPS)
        return await asyncio.to_thread(measure, environ)


def main() -> int:
    found = asyncio.run(idle())
    missed = False
    for view, (percent, written) in found.items():
        _, seconds, most = VIEWS[view]
        print(f"idle {view}: {percent:.2f} % of a processor; goal {GOAL_PERCENT:.2f} %")
        print(f"idle {view}: {written} bytes to the terminal in {seconds:.0f} s; goal {most}")
        missed = missed or percent > GOAL_PERCENT or written > most
    return missed
