"""Train on an environment in the app, by keys alone: check, submit, cancel, edit, resume, end.

usage: PYTHON-OF-HUD-TUI by_keys.py ENVIRONMENT.py MODEL

Needs a terminal, which `tests/live/run_training` gives it, and variables that say where files are.
Prints one line: what went wrong, or ``done``.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from textual.app import App
from textual.pilot import Pilot

from hud_tui.cli.main import main
from hud_tui.tui.app import HudApp

HOLD = """
import os
import random


async def hold():
    '''Those before the run pass, and twelve, which are two of its four steps; others wait.'''
    if not os.path.exists("run.begun"):
        return
    for number in range(12):
        try:
            return os.close(os.open(f"{number}.begun", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
    await asyncio.sleep(1000)
"""
"""What is taken out of the environment when it is edited. So the run goes on when it is cancelled,
however late the key is pressed."""
HELD = {
    "calls.clear()\n": "calls.clear()\n    await hold()\n",
    "reward=round(": "reward=0.1 * random.random() + round(",  # each of those steps has a gradient
}
LONGEST_S = 420.0


class Stuck(Exception):
    """What was waited for did not come."""


async def until(what: str, holds: Callable[[], bool]) -> None:
    """Wait until something holds of the app. Raises Stuck."""
    try:
        async with asyncio.timeout(LONGEST_S):
            while not holds():  # noqa: ASYNC110  (the app has no event for it)
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise Stuck(what) from None


async def type_over(pilot: Pilot[None], text: str) -> None:
    """Replace what is in the field that has the focus."""
    await pilot.press("end", *["backspace"] * 8, *text)


def hold(source: Path) -> str:
    """Have all but the first rollouts wait; returns the source as it was."""
    text = held = source.read_text()
    for place, more in HELD.items():
        assert place in held
        held = held.replace(place, more)
    source.write_text(held + HOLD)
    return text


def count_rollouts(source: Path) -> None:
    """From now on: what was rolled out before the run does not count."""
    (source.parent / "run.begun").touch()


async def by_keys(pilot: Pilot[None], source: Path) -> None:
    """From an empty form to the end of a run. Raises Stuck."""
    app = pilot.app
    assert isinstance(app, HudApp)
    original = hold(source)

    def view() -> object:
        return app.screen

    def shows(name: str) -> bool:
        return getattr(view(), "VIEW", "") == name

    await until("Launch", lambda: shows("launch"))
    launch = app.screen
    await pilot.press("ctrl+o", *str(source), "enter")
    await until("a source", lambda: launch.draft.source == str(source))
    await until("checks", lambda: not launch.draft.checking)
    said = " · ".join(one.message for one in launch.draft.found_in_all)
    if launch.draft.failed or "tool call" not in said:
        raise Stuck(f"the checks said: {said}")
    await pilot.press("e")
    for text in ("4", "3", "2"):  # steps, group size, tasks per step
        await type_over(pilot, text)
        await pilot.press("tab")
    await pilot.press("ctrl+s")
    await until("the dialog", lambda: not shows("launch"))
    count_rollouts(source)
    await pilot.press("y")
    await until("Live", lambda: shows("live"))
    run = lambda: app.workspace.session.run  # noqa: E731
    await until("a step", lambda: len(run().tree) >= 1)
    await pilot.press("X")
    await until("the question", lambda: not shows("live"))
    await pilot.press("y")
    await until("cancelled", lambda: run().job.status == "cancelled")
    taken = len(run().tree)
    await asyncio.to_thread(source.write_text, original)
    await until("Live again", lambda: shows("live"))
    await pilot.press("R")
    await until("the question", lambda: not shows("live"))
    await pilot.press("y")
    await until("more steps", lambda: len(run().tree) > taken)
    await until("the end", lambda: run().job.status in ("succeeded", "failed"))
    if (run().job.status, run().job.step) != ("succeeded", 4):
        raise Stuck(f"it ended as {run().job}")


def steer(source: Path, told: list[str]) -> None:
    """Have the app run without a screen, steered by `by_keys`."""

    async def pilot(pilot: Pilot[None]) -> None:
        try:
            await by_keys(pilot, source)
            told.append("done")
        except Stuck as stuck:
            shown = getattr(pilot.app.screen, "VIEW", type(pilot.app.screen).__name__)
            told.append(f"waited for {stuck} in {shown}")
        finally:
            pilot.app.exit()

    run = App.run
    HudApp.run = lambda self: run(self, headless=True, size=(120, 40), auto_pilot=pilot)


if __name__ == "__main__":
    said: list[str] = []
    steer(Path(sys.argv[1]).absolute(), said)
    sys.argv = ["hud-tui", "--local", "run", "--model", sys.argv[2]]
    main()
    print(said[-1] if said else "the app ended before")
