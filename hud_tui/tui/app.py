"""HudApp: the full-screen session. Styles are in styles/, never in here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import App
from textual.binding import BindingType
from textual.reactive import reactive

from hud_tui.errors import HudError
from hud_tui.rl.progress import Liveness, State, liveness, step_seconds
from hud_tui.rl.run import Run
from hud_tui.rl.text import clean
from hud_tui.start import Start
from hud_tui.tui.keys import bindings
from hud_tui.tui.screens import VIEW_SCREENS
from hud_tui.tui.screens.base import HudScreen

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient
    from hud_tui.client.feed import Feed
    from hud_tui.wire import Model

Connect = Callable[[str, str | None, Callable[[str], None]], Awaitable["HudClient"]]
"""(mode ``local`` or ``hud``, a key typed in the app or None, progress) → the client."""

PACKAGE = Path(__file__).parent.parent
STYLES = next(d for d in (PACKAGE / "styles", PACKAGE.parent / "styles") if d.is_dir())
"""Inside the package in a wheel, beside it in a checkout."""
FRAME_S = 0.1
"""Events are shown together, at most this often."""


class HudApp(App[None]):
    CSS_PATH: ClassVar = sorted(STYLES.glob("*.tcss"))
    BINDINGS: ClassVar[list[BindingType]] = bindings("app")
    MODES = VIEW_SCREENS

    run_now: reactive[Run] = reactive(Run, init=False)
    """The chosen model's run; the views' `run` follows it."""
    freshness: reactive[Liveness] = reactive(
        Liveness(State.CONNECTING, "connecting", None), init=False
    )

    def __init__(self, connect: Connect, mode: str | None, start: Start) -> None:
        super().__init__()
        self.connect, self.mode, self.start = connect, mode, start
        self.client: HudClient | None = None
        self._latest = Run()
        self._event_at: float | None = None

    @property
    def connected(self) -> HudClient:
        """The client, for code that runs only once there is one."""
        assert self.client is not None
        return self.client

    def choose(self, model: Model) -> None:
        """Follow this model from now on."""
        self._latest = self.run_now = Run(model=model)
        self.follow(model.id)

    def on_mount(self) -> None:
        if self.mode is not None:
            self.open_client(self.mode)

    @work(exclusive=True, group="follow")
    async def follow(self, model_id: str) -> None:
        """Fold the model's events into one snapshot; `_show` puts it on the screen."""
        feed = self.connected.feed(model_id)
        frame = self.set_interval(FRAME_S, lambda: self._show(feed))
        try:
            async for event in feed:
                self._latest = self._latest.fold(event)
                self._event_at = monotonic()
        except HudError as error:
            self.notify(clean(error.message), severity="error", markup=False)
        finally:
            frame.stop()

    def _show(self, feed: Feed) -> None:
        now = monotonic()
        run = self._latest
        silent = None if self._event_at is None or not run.training else now - self._event_at
        self.freshness = liveness(
            feed.source,
            None if feed.heard_at is None else now - feed.heard_at,
            feed.trouble,
            None if feed.retry_at is None else max(0.0, feed.retry_at - now),
            silent,
            step_seconds(run) if silent else None,
        )
        self.run_now = run

    def watch_run_now(self, run: Run) -> None:
        """Only the screen that is shown follows; a hidden one catches up when it returns."""
        if isinstance(self.screen, HudScreen):
            self.screen.run = run

    def watch_freshness(self, freshness: Liveness) -> None:
        if isinstance(self.screen, HudScreen):
            self.screen.freshness = freshness

    async def action_view(self, name: str) -> None:
        """Show one of the five views."""
        if self.client is not None:
            await self.switch_mode(name)

    @work(exclusive=True, group="connect")
    async def open_client(self, mode: str, key: str | None = None) -> None:
        """Connect, then show the view that the command line asked for."""
        try:
            self.client = await self.connect(mode, key, lambda text: None)
        except HudError as error:
            self.notify(clean(error.message), severity="error", markup=False)
            return
        await self.switch_mode("models")
