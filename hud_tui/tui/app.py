"""HudApp: the full-screen session. Styles are in styles/, never in here.

This module imports neither the client nor the wire models, so that something is on the
screen before they load: what needs them is imported where it is first used.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import App
from textual.binding import BindingType
from textual.filter import Monochrome
from textual.widgets import Input
from textual.worker import WorkerFailed

from hud_tui.errors import HudError
from hud_tui.rl.text import clean
from hud_tui.start import Start
from hud_tui.tui.asking import may_leave, offer_resume
from hud_tui.tui.commands import ActionCommands, Doable
from hud_tui.tui.connecting import connect, connect_anew
from hud_tui.tui.keys import bindings
from hud_tui.tui.plain import PlainFilter
from hud_tui.tui.screens import VIEW_SCREENS
from hud_tui.tui.screens.connect import ConnectScreen
from hud_tui.tui.shelf import Shelf
from hud_tui.tui.theme import DARK, LIGHT, THEMES
from hud_tui.tui.widgets.palette import ascii_filter

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient
    from hud_tui.events import Event
    from hud_tui.rl.progress import Liveness
    from hud_tui.rl.run import Run
    from hud_tui.tui.follow import Follower
    from hud_tui.tui.journal import Journal
    from hud_tui.tui.screens.base import HudScreen
    from hud_tui.wire import JobStatus, Model

Connect = Callable[[str, str | None, Callable[[str], None]], Awaitable["HudClient"]]
"""(mode ``local`` or ``hud``, a key typed in the app or None, progress) → the client."""

PACKAGE = Path(__file__).parent.parent
STYLES = next(d for d in (PACKAGE / "styles", PACKAGE.parent / "styles") if d.is_dir())
"""Inside the package in a wheel, beside it in a checkout."""


class HudApp(App[None]):
    CSS_PATH: ClassVar = sorted(STYLES.glob("*.tcss"))
    BINDINGS: ClassVar[list[BindingType]] = bindings("app")
    MODES = VIEW_SCREENS
    COMMANDS: ClassVar = {ActionCommands}
    TITLE = "hud-tui"

    def __init__(
        self,
        connect: Connect,
        mode: str | None,
        start: Start,
        clock: Callable[[], float] = time,
        shelf: Shelf | None = None,
    ) -> None:
        """
        Args:
            connect: Makes the client; called again where the connection is to be renewed.
            mode: ``local``, ``hud``, or None to ask.
            start: What the command line asked for.
            clock: Unix seconds, for ages on the screen.
            shelf: Keeps what the user chose; None forgets it at the end.
        """
        super().__init__()
        self.connect, self.mode, self.start, self.clock = connect, mode, start, clock
        self.connect_screen = ConnectScreen()
        self.shelf = shelf or Shelf()
        self.at: str | None = None
        """Id of the checkpoint under the crosshair, in every view; None for the newest."""
        self.client: HudClient | None = None
        self.first_fork: str | None = None
        """Id of the model made by the first start's fork; its run needs no second asking."""
        self.key: str | None = None
        """The key that was typed, for this session; None where it is configured."""
        self._follower: Follower | None = None
        self._journals: dict[str, Journal] = {}
        self.reconnected = False
        """Whether the followed job is yet to be heard of since; it may want to be resumed."""
        self._asked_to_resume: set[str] = set()
        """Ids of jobs; nobody is asked about the same one twice."""
        self._leaving = False
        self.crash: Exception | None = None
        """What ended the app, where nobody expected it."""
        if self.no_color:  # Textual's own filter for it sends greys
            self._filters = [one for one in self._filters if not isinstance(one, Monochrome)]
            self._filters.append(PlainFilter())
        self._filters.append(ascii_filter(sys.__stdout__.encoding if sys.__stdout__ else None))
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = DARK.name

    def get_default_screen(self) -> ConnectScreen:
        return self.connect_screen

    def on_mount(self) -> None:
        if self.mode is not None:
            self.call_after_refresh(self.open_client, self.mode)

    async def on_unmount(self) -> None:
        if self.client is not None:
            await self.client.aclose()

    @property
    def connected(self) -> HudClient:
        """The client, for code that runs only once there is one."""
        assert self.client is not None
        return self.client

    @property
    def service(self) -> str:
        """What we are connected to, e.g. ``HUD local``."""
        return self.client.settings.label if self.client is not None else ""

    @property
    def run_now(self) -> Run:
        """The followed model's run, as it is on the screen."""
        from hud_tui.rl.run import Run

        return self._follower.run if self._follower is not None else Run()

    @property
    def freshness(self) -> Liveness:
        """How fresh `run_now` is."""
        from hud_tui.tui.follow import CONNECTING

        return self._follower.freshness if self._follower is not None else CONNECTING

    def choose(self, model: Model) -> None:
        """Follow this model from now on."""
        from hud_tui.tui.follow import Follower
        from hud_tui.tui.journal import Journal

        journal = self._journals.setdefault(model.id, Journal())
        if self.run_now.model is None or self.run_now.model.id != model.id:
            self.at = None
        self._follower = Follower(self.connected, self.run_now, model, journal)
        self.follow(self._follower)
        self.show_run()

    @work(exclusive=True, group="follow")
    async def follow(self, follower: Follower) -> None:
        """Read the model's events; what they add up to is shown once a frame."""
        from hud_tui.tui.follow import FRAME_S

        frame = self.set_interval(FRAME_S, lambda: self._frame(follower))
        try:
            await follower.follow(self._hear)
        except HudError as error:
            self.tell(error)
        finally:
            frame.stop()

    def _frame(self, follower: Follower) -> None:
        if follower is self._follower and follower.frame():
            self.show_run()

    def show_run(self) -> None:
        """Hand the run to the view on the screen, under a dialog too; a hidden one waits."""
        view = self.shown_view
        if view is not None:
            view.hear(self.run_now, self.freshness)

    @property
    def shown_view(self) -> HudScreen | None:
        """The view on the screen; None before there is one."""
        from hud_tui.tui.screens.base import HudScreen

        views = (screen for screen in reversed(self.screen_stack) if isinstance(screen, HudScreen))
        return next(views, None)

    @property
    def journal(self) -> Journal:
        """Where the followed model's head was set, for undoing it."""
        assert self._follower is not None
        return self._follower.journal

    def catch_up(self) -> Run:
        """Show at once what the next frame would."""
        assert self._follower is not None
        self._frame(self._follower)
        return self._follower.run

    def fold(self, event: Event) -> Run:
        """Take in what was read outside the feed, and show it at once."""
        assert self._follower is not None
        run = self._follower.fold(event)
        self._frame(self._follower)
        return run

    def _hear(self, event: Event) -> None:
        """Tell what the user must know whatever is on the screen."""
        from hud_tui.events import HeadMoved, JobChanged

        if isinstance(event, HeadMoved) and (move := self.journal.heard(event)) is not None:
            from hud_tui.rl.head import named

            to = named(self.run_now, move.after)
            self.say(f"Somebody else set the head to {to}. z in Checkpoints undoes it.")
        elif isinstance(event, JobChanged) and self.reconnected:
            self.reconnected, job = False, event.job
            if job.status == "interrupted" and job.id not in self._asked_to_resume:
                self._asked_to_resume.add(job.id or "")
                self.ask_to_resume(job)

    @work(exclusive=True, group="resume")
    async def ask_to_resume(self, job: JobStatus) -> None:
        await offer_resume(self, job)

    async def action_view(self, name: str) -> None:
        """Show one of the five views."""
        if self.client is not None:
            await self.switch_mode(name)

    @work(exclusive=True, group="connect")
    async def open_client(self, mode: str, key: str | None = None) -> None:
        """Connect, then show the view that the command line asked for."""
        await connect(self, mode, key)

    @work(exclusive=True, group="connect")
    async def action_reconnect(self) -> None:
        """Connect anew; on the embedded service, start it where it has ended."""
        if self.client is not None and self.mode is not None:
            await connect_anew(self, self.mode)
        elif self.connect_screen.state == "failed":
            self.connect_screen.action_retry()

    async def action_quit(self) -> None:
        """Leave; ask first while a run trains."""
        job = self.run_now.job if self.run_now.training else None
        if job is None or self._leaving:
            self.exit()
        else:
            self.ask_to_quit(job)

    async def action_interrupt(self) -> None:
        """ctrl+c: copy what is selected, or leave; twice leaves whatever is asked."""
        selected = self.focused.selected_text if isinstance(self.focused, Input) else ""
        selected = selected or self.screen.get_selected_text() or ""
        if selected:
            self.copy_to_clipboard(selected)
        else:
            await self.action_quit()

    @work(exclusive=True, group="quit")
    async def ask_to_quit(self, job: JobStatus) -> None:
        self._leaving = True
        leave = await may_leave(self, job)
        self._leaving = False
        if leave:
            self.exit()

    def action_help(self) -> None:
        """All keys of the view on the screen; the one that is chosen there is done."""
        from hud_tui.tui.screens.help import HelpScreen

        self.push_screen(HelpScreen(self.screen), self._do)

    async def _do(self, chosen: Doable | None) -> None:
        if chosen is not None:
            await self.run_action(chosen.action.name, chosen.where)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Views are there once there is a service."""
        if action == "reconnect":
            return self.client is not None or self.connect_screen.state == "failed"
        return action != "view" or self.client is not None

    def action_theme(self) -> None:
        self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    def tell(self, error: HudError) -> None:
        """Show a failure with what to do next."""
        text = clean(f"{error.message}\n{error.hint}".strip(), 600)
        self.notify(text, severity="error", markup=False, timeout=10)

    def say(self, text: str) -> None:
        """Show a line for a few seconds."""
        self.notify(clean(text, 200), markup=False)

    def _handle_exception(self, error: Exception) -> None:
        """A worker's `HudError` is told, and the app goes on; anything else ends it."""
        failure = error.error if isinstance(error, WorkerFailed) else error
        if isinstance(failure, HudError) and self.is_running:
            self.tell(failure)
            return
        if self.crash is None and isinstance(failure, Exception):
            self.crash = failure
        super()._handle_exception(error)
        self._exit_renderables.clear()  # `crash` is reported once the terminal is restored

    def _fatal_error(self) -> None:
        """End. Textual would print the variables of every frame, and a key may be among them."""
        self._close_messages_no_wait()
