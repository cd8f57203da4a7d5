"""Random keys, 5 ms apart, in every view and dialog while a run trains.

The real app on a pseudo-terminal, over the real service with the tiny engine. A burst begins
where one key of one view leads, so that each dialog is reached. After it the app must answer.
"""

import argparse
import asyncio
import json
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from string import printable
from tempfile import TemporaryDirectory
from typing import Any

from textual.keys import _character_to_key

from hud_tui.keys import VIEWS, of_view
from tests.bench import terminal
from tests.campaigns.campaign import Campaign, Plan, Report
from tests.tui.typed_app import TypedApp, typed_app

PAUSE_S = 0.005
"""Between two keys."""
ESCAPE_S = 0.15
"""After Esc: what comes sooner makes it Alt."""
PATIENCE_S = 10.0
"""Without an answer, the app hangs."""
BURST = 100
"""Keys between two questions whether it answers."""
MODEL = "arith-rl"
STEPS = 100_000
"""Of the run, so that it trains as long as the campaign lasts."""
LOOK_EVERY = 20
"""Bursts between two looks at whether a run still trains: keys may have ended it."""
SENT = {
    **{_character_to_key(one): one.encode() for one in printable if one.isprintable()},
    **{f"ctrl+{letter}": bytes([number]) for number, letter in enumerate("abcdefg", 1)},
    **{f"ctrl+{letter}": bytes([number]) for number, letter in enumerate("klmnopqrstuvwx", 11)},
    **{"enter": b"\r", "tab": b"\t", "escape": b"\x1b", "backspace": b"\x7f"},
    **{"up": b"\x1b[A", "down": b"\x1b[B", "right": b"\x1b[C", "left": b"\x1b[D"},
    **{"shift+right": b"\x1b[1;2C", "shift+left": b"\x1b[1;2D"},
    **{"ctrl+right": b"\x1b[1;5C", "ctrl+left": b"\x1b[1;5D"},
    **{"home": b"\x1b[H", "end": b"\x1b[F", "shift+tab": b"\x1b[Z", "delete": b"\x1b[3~"},
    **{"pageup": b"\x1b[5~", "pagedown": b"\x1b[6~", "f1": b"\x1bOP"},
}
"""What a terminal sends for a key."""
LEAVING = ("q", "ctrl+c", "ctrl+q")
RARELY = 0.002
"""Share of the keys that leave the app: to start it again takes seconds."""
COMMON = ("enter", "escape", "tab", "down", "up", "y", "backspace", "slash", "ctrl+p", "f1")
"""Typed more often than others: they open dialogs, answer and leave them."""


@dataclass(frozen=True)
class Place:
    """Where a burst begins: one key of one view."""

    view: str
    key: str
    action: str


def places(view: str) -> Iterator[Place]:
    """Every action of a view, or of all of them, and of the app there."""
    for name in VIEWS:
        if view in (name, "all"):
            for action in (*of_view(name), *of_view("app")):
                key = action.keys.split(",")[0]
                if key not in LEAVING:
                    assert key in SENT, f"what does a terminal send for {key}?"
                    yield Place(name, key, action.name)


@dataclass
class Hands:
    """Types at random, and remembers what."""

    chance: random.Random
    typed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._usual = sorted(set(SENT) - set(LEAVING))

    def key(self) -> str:
        if self.chance.random() < RARELY:
            return self.chance.choice(LEAVING)
        return self.chance.choice(COMMON if self.chance.random() < 0.3 else self._usual)

    async def type(self, app: TypedApp, key: str) -> None:
        self.typed.append(key)
        app.type(SENT[key])
        await asyncio.sleep(ESCAPE_S if key == "escape" and len(self.typed) <= 2 else PAUSE_S)

    async def burst(self, app: TypedApp, place: Place, count: int) -> None:
        """Go there, then type so many keys."""
        self.typed.clear()
        view = next(one for one in of_view("app") if place.view in one.name)
        for key in ("escape", "escape", view.keys.split(",")[0], place.key):
            await self.type(app, key)
        for _ in range(count):
            if app.ended:
                return
            await self.type(app, self.key())


async def play(plan: Plan, report: Report) -> None:
    chance, seen = plan.random, Counter[str]()
    there = list(places(plan.options.view))
    hands, bursts = Hands(chance), 0
    with TemporaryDirectory() as directory:
        async with training(Path(directory)) as service:
            while plan.more(report):
                app_home = Path(directory)
                async with typed_app(["--local", "status"], app_home) as app:
                    while plan.more(report) and not app.ended:
                        if bursts % LOOK_EVERY == 0:
                            await service.train()
                        if bursts % len(there) == 0:
                            chance.shuffle(there)
                        place, bursts = there[bursts % len(there)], bursts + 1
                        count = BURST if plan.count is None else min(BURST, plan.count)
                        await hands.burst(app, place, count)
                        report.done += count
                        if fault := await look(app):
                            await report_fault(report, plan, hands, place, app, fault)
                            break
                    seen.update(report.screen for report in app.reports)
    print("keys came to", ", ".join(f"{name} {count}" for name, count in seen.most_common()))


async def look(app: TypedApp) -> tuple[str, str] | None:
    """What is wrong with the app, if anything: a kind of fault, and what it says."""
    try:
        await app.ping(PATIENCE_S)
    except TimeoutError:
        return "hangs", f"no answer for {PATIENCE_S:.0f} s: {await app.stacks()}"
    if app.ended:
        await asyncio.sleep(0.1)  # for the last of what it says
    return ("crashes", app.crash) if app.crash else None


async def report_fault(
    report: Report, plan: Plan, hands: Hands, place: Place, app: TypedApp, fault: tuple[str, str]
) -> None:
    kind, said = fault
    last = [f"{one.key} to {one.screen}:{one.focus}" for one in app.reports[-3:]]
    report.found(
        kind,
        f"--seed {plan.seed}, {report.done} keys, {place.action} in {place.view}, last keys "
        f"{' '.join(hands.typed[-40:])}; then {' '.join(last)}\n{said}",
    )
    for file in app.home.rglob("crash-*.txt"):
        file.unlink()


@dataclass
class Trainer:
    """The embedded service in a process of its own, and a run on it."""

    environ: dict[str, str]

    async def ask(self, *arguments: str) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "hud_tui", "--headless", "--local", *arguments,
            env=self.environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        out, _ = await process.communicate()
        document: dict[str, Any] = json.loads(out.splitlines()[-1])
        return document

    async def train(self) -> None:
        said = await self.ask("status", MODEL)
        job = said.get("data", {}).get("job") or {}
        if job.get("status") not in ("queued", "running"):
            run = ("run", "arith", "-m", MODEL, "--steps", str(STEPS), "--group-size", "4")
            said = await self.ask(*run, "--tasks-per-step", "4", "-y", "--confirm", MODEL)
            assert said["kind"] != "error", said


@asynccontextmanager
async def training(home: Path) -> AsyncIterator[Trainer]:
    """A service with a model that is trained; ended with the block."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HUD_")}
    service = Trainer({**kept, **terminal.places(str(home))})
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hud_tui", "serve", env=service.environ,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        await process.stdout.readline()  # it is ready
        base = (await service.ask("models"))["data"]["models"][0]["model_name"]
        await service.ask("fork", base, "--name", MODEL, "-y")
        await service.train()
        yield service
    finally:
        process.kill()
        await process.wait()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--view", choices=("all", *VIEWS), default="all", help="only in this one")


CAMPAIGN = Campaign("keys", "keys", 20_000, 100, play, add_arguments=add_arguments)
