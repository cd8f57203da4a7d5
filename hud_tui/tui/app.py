"""HudApp: the full-screen session. Styles are in styles/, never in here.

This module imports neither the client nor the wire models, so that something is on the
screen before they load: what needs them is imported where it is first used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual._compositor import ChopsUpdate
from textual.binding import BindingType

from hud_tui.keys import keyed
from hud_tui.start import Start
from hud_tui.tui.bindings import bindings
from hud_tui.tui.commands import ActionCommands, Palette
from hud_tui.tui.connecting import connect, connect_anew
from hud_tui.tui.helping import HelpingApp
from hud_tui.tui.screens import VIEW_SCREENS
from hud_tui.tui.screens.connect import ConnectScreen
from hud_tui.tui.shelf import Shelf
from hud_tui.tui.theming import ThemeCommands
from hud_tui.tui.thin_update import ThinUpdate
from hud_tui.tui.type_ahead import OPENS, TypeAhead, is_typed

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.events import Event
    from textual.screen import Screen
    from textual.widget import AwaitMount

    from hud_tui.client.client import HudClient
    from hud_tui.rl.alarms.thresholds import Thresholds
    from hud_tui.wire import JobStatus

Connect = Callable[[str, str | None, Callable[[str], None]], Awaitable["HudClient"]]
"""(mode ``local`` or ``hud``, a key typed in the app or None, progress) → the client."""

PACKAGE = Path(__file__).parent.parent
STYLES = next(d for d in (PACKAGE / "styles", PACKAGE.parent / "styles") if d.is_dir())
"""Inside the package in a wheel, beside it in a checkout."""


class HudApp(HelpingApp):
    CSS_PATH: ClassVar = sorted(STYLES.glob("*.tcss"))
    BINDINGS: ClassVar[list[BindingType]] = bindings("app")
    MODES = VIEW_SCREENS
    COMMANDS: ClassVar = {ActionCommands, ThemeCommands}
    TITLE = "hud-tui"

    def __init__(
        self,
        connect: Connect,
        mode: str | None,
        start: Start,
        clock: Callable[[], float] = time,
        shelf: Shelf | None = None,
        thresholds: Thresholds | None = None,
    ) -> None:
        """
        Args:
            connect: Makes the client; called again where the connection is to be renewed.
            mode: ``local``, ``hud``, or None to ask.
            start: What the command line asked for.
            clock: Unix seconds, for ages on the screen.
            shelf: Keeps what the user chose; None forgets it at the end.
            thresholds: What the detectors of alarms go by; None for the usual ones.
        """
        super().__init__()
        self.connect, self.mode, self.start, self.clock = connect, mode, start, clock
        self.connect_screen = ConnectScreen()
        self.shelf, self.thresholds = shelf or Shelf(), thresholds
        self.export_dir = Path()
        """Where new files go."""
        self.first_fork: str | None = None
        """Id of the model made by the first start's fork; its run needs no second asking."""
        self.key: str | None = None
        """The key that was typed, for this session; None where it is configured."""
        self.settle: Callable[[], None] = lambda: None
        """Called when every view is loaded."""
        self._leaving = False
        self.type_ahead = TypeAhead(self, self._hand_on)
        self.dress()  # before the styles are read, so only once

    async def on_event(self, event: Event) -> None:
        if is_typed(event):
            await self.type_ahead.take(event)
        else:
            await super().on_event(event)

    async def _hand_on(self, event: Event) -> None:
        """Give what was typed or clicked to what it is for now."""
        await super().on_event(event)

    def get_default_screen(self) -> ConnectScreen:
        return self.connect_screen

    def on_mount(self) -> None:
        if self.mode is not None:
            self.call_after_refresh(self.open_client, self.mode)

    async def on_unmount(self) -> None:
        if self.client is not None:
            await self.keep_now()
            await self.client.aclose()

    @property
    def service(self) -> str:
        """What we are connected to, e.g. ``HUD local``."""
        return self.client.settings.label if self.client is not None else ""

    def interrupted(self, job: JobStatus) -> None:
        self.ask_to_resume(job)

    @work(exclusive=True, group="resume")
    async def ask_to_resume(self, job: JobStatus) -> None:
        """Ask whether it goes on from where it was."""
        from hud_tui.tui.asking import offer_resume

        await offer_resume(self, job)

    def switch_mode(self, mode: str) -> AwaitMount:
        """Show a view. The palette does not stay behind in another: there is one of it."""
        if mode != self.current_mode and isinstance(self.screen, Palette):
            self.screen.dismiss()
        return super().switch_mode(mode)

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

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
        """Leave; ask first while a run trains, which no replayed one does."""
        job = self.run_now.job if self.run_now.training else None
        if job is None or self._leaving or self.replays:
            self.exit()
        else:
            self.ask_to_quit(job)

    async def action_interrupt(self) -> None:
        """ctrl+c: copy what is selected, or leave; twice leaves whatever is asked."""
        if selected := self.selected:
            self.copy_to_clipboard(selected)
        else:
            await self.action_quit()

    @work(exclusive=True, group="quit")
    async def ask_to_quit(self, job: JobStatus) -> None:
        from hud_tui.tui.asking import may_leave

        self._leaving = True
        leave = await may_leave(self, job)
        self._leaving = False
        if leave:
            self.exit()

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        """Write to the terminal no more than has changed."""
        if isinstance(renderable, ChopsUpdate):
            renderable = ThinUpdate.of(renderable)
        super()._display(screen, renderable)

    @work(exclusive=True, group=OPENS)
    async def action_raw(self, ref: str | None = None) -> None:
        """Show all that the service says of the followed model, or of the job that is named."""
        from hud_tui.tui.raw_status import read_document

        model = self.run_now.model
        if model is None:
            self.say(keyed("no model is followed yet: press {app.view.models} to choose one"))
            return
        title, document = await read_document(self.connected, model, ref)
        from hud_tui.tui.screens.json_screen import JsonScreen

        await self.push_screen(JsonScreen(title, document))

    def action_log(self) -> None:
        """Show what was changed from this machine."""
        from hud_tui.tui.screens.log import LogScreen

        self.push_screen(LogScreen(self.shelf.directory, time() if self.replays else self.clock()))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Views are there once there is a service."""
        if action == "reconnect":
            return self.client is not None or self.connect_screen.state == "failed"
        if action == "log":
            open_ = any(getattr(one, "VIEW", "") == "log" for one in self.screen_stack)
            return self.shown_view is not None and not open_
        after = ("view", "views", "alarms", "raw", "reset_layout")
        return action not in after or self.client is not None
