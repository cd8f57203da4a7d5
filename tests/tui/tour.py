"""The first ten minutes, as a film: the app over the embedded service, which trains for real.

``python -m tests.tui.tour`` plays the keys of the README and writes screenshots/tour.svg.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from textual.pilot import Pilot

from hud_tui.client.client import HudClient
from hud_tui.config import read_table
from hud_tui.rl.alarms.monitor import usual_thresholds
from hud_tui.settings import Settings
from hud_tui.tui.app import HudApp, Options
from hud_tui.tui.start import Start
from tests.tui.conftest import run_of
from tests.tui.film import Film, Shot, shot
from tests.tui.scenes import SCREENSHOTS, settle

SIZE = (100, 30)
TITLE = "The first ten minutes with hud-tui"
GROWTH = (3, 8, 18, 40)
"""Checkpoints at which the curve is looked at while it grows."""
DRAWN_S = 0.4
BUSY = {"throughput": {"enabled": False}}
"""Steps that slow down on a busy machine are another story."""


class Tour:
    """A visitor of the app, who keeps what is seen."""

    def __init__(self, app: HudApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot
        self.shots: list[Shot] = []

    async def press(self, *keys: str, then: str) -> None:
        """Press keys, and wait until the screen has a text, and all is drawn."""
        await self.pilot.press(*keys)
        await self.sees(then)

    async def sees(self, text: str) -> None:
        await settle(self.pilot, lambda: text in self.drawn)
        await self.pilot.pause(DRAWN_S)

    @property
    def drawn(self) -> str:
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    async def steps(self, count: int) -> None:
        await settle(self.pilot, lambda: len(run_of(self.app).tree) >= count)

    def keep(self, seconds: float, keys: str, caption: str) -> None:
        """Keep the screen; `keys` as they are written, with two spaces between them."""
        self.shots.append(shot(self.app.screen, seconds, keys.split("  "), caption))


async def play(tour: Tour) -> None:
    """The keys, and what is waited for after each."""
    await tour.sees("enter  forks tiny/mixed")
    tour.keep(4, "hud-tui --local", "no key, no network: a service on this machine, and four bases")
    await tour.press("enter", then="Step 2 of 3")
    tour.keep(2.5, "Enter", "forks a base: a copy of your own to train")
    await tour.press("enter", then="Step 3 of 3")
    tour.keep(3.5, "Enter", "checks the tasks before anything is spent")
    await tour.press("enter", then="mean reward")
    for count in GROWTH:
        await tour.steps(count)
        await tour.sees("reward")
        tour.keep(2.5 if count == GROWTH[-1] else 1, "Enter", "submits the run: the reward rises")
    await tour.steps(70)
    await tour.press(*["left"] * 12, then="┊")
    tour.keep(3.5, "←  →", "a crosshair through every chart, and the groups of its step")
    await tour.press("enter", "enter", then="best first")
    tour.keep(4, "Enter  Enter", "the rollouts of one group, with reward and advantage")
    await tour.press("escape", "escape", "percent_sign", then="% of the time is")
    tour.keep(4, "%", "where the time of each step goes")
    await tour.press("escape", "4", then="tiny/mixed-0.2M")
    tour.keep(3.5, "4", "the tree of checkpoints; the head, ▶, is served")
    await tour.press("asterisk", "H", then="will be served")
    tour.keep(4, "*  H", "previews serving the most likely best one")
    await tour.press("y", then="├─╯")
    tour.keep(4, "y", "serves it; the run goes on from there, and u undoes it")
    await tour.press("colon", *"roll", then="roll")
    tour.keep(3.5, ":  roll", "goes to anything by name; ? lists the keys of a view")


@contextmanager
def service(home: Path) -> Iterator[Settings]:
    """The embedded service in a process of its own."""
    dirs = {f"HUD_TUI_{kind}_DIR": f"{home}/{kind}" for kind in ("CONFIG", "STATE", "DATA")}
    command = [sys.executable, "-m", "hud_tui", "serve"]
    with subprocess.Popen(command, env=os.environ | dirs, stdout=subprocess.PIPE) as serving:
        try:
            assert serving.stdout is not None
            ready = json.loads(serving.stdout.readline())
            url = ready["url"]
            hosts = (url, url, url, ready["telemetry_url"], url)
            yield Settings(*hosts, ready["api_key"], local=True, by="app")
        finally:
            serving.terminate()


async def film() -> Film:
    with TemporaryDirectory(prefix="hud-tui-tour-") as home, service(Path(home)) as settings:

        async def connect(mode: str, key: str | None, say: Callable[[str], None]) -> HudClient:
            return HudClient(settings)

        limits = read_table(usual_thresholds(), BUSY)
        app = HudApp(connect, "local", Start(), options=Options(limits))
        async with app.run_test(size=SIZE, notifications=True) as pilot:
            tour = Tour(app, pilot)
            await play(tour)
    return Film(tour.shots, TITLE)


if __name__ == "__main__":
    made = asyncio.run(film())
    (SCREENSHOTS / "tour.svg").write_text(made.svg())
    print(f"tour.svg: {made.seconds:g} s, {len(made.svg()) / 1e3:.0f} kB")
