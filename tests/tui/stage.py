"""Stage: the app on its Live view, with a run put there by hand and no service behind it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from textual.pilot import Pilot
from textual.screen import Screen

from hud_tui.client.client import HudClient
from hud_tui.client.guard import Guard
from hud_tui.rl.progress import Liveness, State
from hud_tui.rl.run import Run
from hud_tui.tui.app import HudApp, Options
from hud_tui.tui.screens.base import WritePolicy
from hud_tui.tui.screens.live import LiveScreen
from hud_tui.tui.session import RunSession, SessionOwner
from hud_tui.tui.start import Start
from hud_tui.tui.workspace import Workspace
from tests.tui.hand import Hand
from tests.tui.still import StillClient

LIVE = Liveness(State.LIVE, "stream", 0.0)


async def nobody(mode: str, key: str | None, say: Callable[[str], None]) -> HudClient:
    raise AssertionError("the stage has no service")


class StagedSession(RunSession):
    """A session whose run is put there by hand."""

    scene, fresh = Run(), LIVE
    scope = None

    @property
    def run(self) -> Run:
        return self.scene

    @property
    def freshness(self) -> Liveness:
        return self.fresh


class StagedWorkspace(Workspace):
    """A workspace over such a session, in which everything may be changed."""

    def __init__(self, app: HudApp, client: HudClient, session: type[StagedSession]) -> None:
        def session_of(owner: SessionOwner) -> StagedSession:
            return session(client, "local", owner, app.store, app.clock)

        super().__init__(app, session_of, app.start, None, Path())
        writer = SimpleNamespace(wire=SimpleNamespace(guard=Guard()), identity=None)
        self.writes = WritePolicy(app, lambda: writer)
        self.context = replace(self.context, writes=self.writes)


class Stage(HudApp):
    """The Live view of a run; `play` shows a newer one."""

    SESSION: ClassVar[type[StagedSession]] = StagedSession
    pilot: Pilot[None]

    def __init__(
        self,
        run: Run,
        freshness: Liveness = LIVE,
        client: object = None,
        state: Callable[[], Path] | None = None,
        options: Options | None = None,
    ) -> None:
        super().__init__(nobody, None, Start(), lambda: 1_780_000_400.0, state, options)
        played = StagedWorkspace(self, client or StillClient(), self.SESSION)
        self.workspace, self.staged = played, played.session
        self.staged.scene, self.staged.fresh = run, freshness
        self.live = LiveScreen(played.context)

    def get_default_screen(self) -> LiveScreen:
        return self.live

    @property
    def scene(self) -> Run:
        return self.staged.scene

    async def show(self, run: Run, freshness: Liveness | None = None) -> None:
        """Play a run, and wait until it is drawn."""
        self.play(run, freshness)
        await self.pilot.pause()

    def play(self, run: Run, freshness: Liveness | None = None) -> None:
        self.staged.scene, self.staged.fresh = run, freshness or self.staged.fresh
        self.live.run, self.live.freshness = self.staged.scene, self.staged.fresh


class Bare(Stage):
    """The stage with nothing on it, for a screen that is looked at alone."""

    def get_default_screen(self) -> Screen[object]:
        return Screen()


@asynccontextmanager
async def bare(size: tuple[int, int] = (120, 40), **more: Any) -> AsyncIterator[Hand]:
    """A bare stage, and a hand over it; `more` is the stage's. Half of what a stage takes is
    drawing Live."""
    stage = Bare(Run(), **more)
    async with stage.run_test(size=size, notifications=True) as pilot:
        yield Hand(stage, pilot)


@asynccontextmanager
async def staged(
    run: Run,
    *given: Any,
    size: tuple[int, int] = (120, 40),
    notifications: bool = False,
    **more: Any,
) -> AsyncIterator[tuple[Stage, Pilot[None]]]:
    """The stage of a run, and its pilot; the rest is the stage's."""
    stage = Stage(run, *given, **more)
    async with stage.run_test(size=size, notifications=notifications) as pilot:
        stage.pilot = pilot
        yield stage, pilot
