"""`HudApp`: the full-screen app. Styles are in styles/, never in this module.

This module imports neither the client nor the wire's models, so that the first frame appears before
they load; they are imported where they are first used.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from asyncio import create_task, to_thread
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from time import strftime, time
from traceback import format_exception
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import RenderableType
from textual import work
from textual._compositor import ChopsUpdate
from textual.actions import ActionParseResult
from textual.app import App
from textual.await_remove import AwaitRemove
from textual.binding import BindingType
from textual.dom import DOMNode
from textual.events import Event, Key
from textual.filter import Monochrome
from textual.notifications import Notify as NotifyEvent
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.widget import AwaitMount, Widget
from textual.widgets import Input
from textual.worker import WorkerFailed

from hud_tui import __version__
from hud_tui.build import label
from hud_tui.config import Config, ReadOnly
from hud_tui.errors import UNLOGGED, HudError, HudUnreachable, HudUsage
from hud_tui.keys import VIEWS, keyed, of_view
from hud_tui.rl.text import WHOLE, clean, one_line, size
from hud_tui.storage import JsonStore, write_atomic
from hud_tui.terminal import copy_advice, has_unicode, this_terminal
from hud_tui.tui.driver import TerminalDriver
from hud_tui.tui.keys import OPENS, Doable, TypeAhead, bindings, is_typed, use_keymap
from hud_tui.tui.repaint import ThinUpdate
from hud_tui.tui.screens.connect import ConnectScreen
from hud_tui.tui.screens.dialogs import (
    HelpScreen,
    Leavable,
    Over,
    PlayRollout,
    Unlogged,
    ViewList,
    is_alarm,
    limit_time,
    make_way,
    show_error,
    show_notice,
)
from hud_tui.tui.start import Elsewhere, Start
from hud_tui.tui.theme import AsciiFilter, PlainFilter, ThemeChoice
from hud_tui.tui.wrapping import keep_numbers_whole

if TYPE_CHECKING:
    from hud_tui.audit_log import AuditEntry
    from hud_tui.client.client import HudClient
    from hud_tui.client.replay import Recorder
    from hud_tui.rl.alarms.alarm import Notify
    from hud_tui.rl.alarms.thresholds import Thresholds
    from hud_tui.tui.name_search import Place
    from hud_tui.tui.screens.base import HudScreen
    from hud_tui.tui.screens.machines import SetUps
    from hud_tui.tui.screens.palette import Palette
    from hud_tui.tui.session import RunSession, SessionOwner
    from hud_tui.tui.workspace import Workspace

Advice = Callable[[], str] | None
Connect = Callable[[str, str | None, Callable[[str], None]], Awaitable["HudClient"]]
"""(mode ``local``, ``host`` or ``hud``, a key typed in the app or None, progress) → the client."""

PACKAGE = Path(__file__).parent.parent
STYLES = next(d for d in (PACKAGE / "styles", PACKAGE.parent / "styles") if d.is_dir())
"""Inside the package in a wheel, beside it in a checkout."""
STORE_S = 1.0
"""Seconds for which changes of the layout are collected before they are written."""
UNLOGGED_S = 4.0
"""Seconds for which the notice of a change is left before one says that it is not logged."""
OPENING = "opening"
"""Mode shown while another service is opened in place of the present one."""


def view_class(name: str) -> type[HudScreen]:
    """A view's class, e.g. ``ModelsScreen`` of screens/models.py, imported when first shown."""
    module = import_module(f"hud_tui.tui.screens.{name}")
    view: type[HudScreen] = getattr(module, f"{name.capitalize()}Screen")
    return view


def load_views() -> None:
    """Import every view, and what the first chart needs, so that showing one is quick."""
    for name in VIEWS:
        view_class(name)
    import_module("plotext")


# Copying to the terminal's clipboard.


MOST_COPIED = 74_994
"""Maximum bytes of UTF-8 that are copied: in base64, with 8 bytes around it, a sequence of 100 000.

Source: 100 000 bytes for the whole sequence is hterm's limit (its osc52.sh), the smallest of the
usual terminals'; tmux drops more than 1 MiB (INPUT_BUF_DEFAULT_SIZE), kitty more than 8 MiB.
"""
COPIED_FILE = "copied.txt"
"""File in the state directory for the last text that was too large."""
SHOWN = 48
"""Maximum characters of the text that the notice repeats."""


class Clipboard:
    """Copies text with OSC 52, whole or not at all, and reports it.

    A terminal does not report whether it copied. Text that is too large for most terminals is
    written to a file instead, and a terminal that is known not to support OSC 52 is mentioned.
    """

    def __init__(
        self, store: JsonStore, show: Callable[[str, SeverityLevel, float], None], advice: Advice
    ) -> None:
        """`show` shows a notice for so many seconds; `advice` returns how to make this terminal
        accept copies, empty if it may do so already; None inspects the environment and tmux."""
        self._store, self._show = store, show
        self._advice = advice or (lambda: copy_advice(this_terminal()))
        self._advised: str | None = None

    def fits(self, text: str) -> bool:
        return len(text.encode()) <= MOST_COPIED

    async def tell(self, text: str) -> None:
        """Show that a text was copied."""
        if self._advised is None:
            self._advised = await to_thread(self._advice)
        began = one_line(text, SHOWN) if len(text) <= SHOWN else f"{one_line(text[:SHOWN])}…"
        count = size(len(text.encode()))
        if self._advised:
            notice = (
                f"copied {count} (OSC 52; the terminal may block it): {began}\n→ {self._advised}"
            )
            self._show(notice, "warning", 8)
        else:
            self._show(f"copied {count}: {began}", "information", 2)

    async def write_to_file(self, text: str) -> None:
        """Write a text too large for OSC 52 to a file, and say where."""
        notice = f"Not copied: {size(len(text.encode()))} is over the {size(MOST_COPIED)} "
        notice += "that every terminal takes."
        directory = self._store.directory
        file = None if directory is None else directory / COPIED_FILE
        try:
            if file is not None:
                await to_thread(write_atomic, file, text)
        except OSError as error:
            notice += f" Writing it to a file failed: {one_line(error, 200)}"
        else:
            where = f"The whole text is in {one_line(file, 400)}"
            notice += f"\n{where if file else keyed('{models.export} exports to a file')}"
        self._show(notice, "warning", 15)


def copying_keys() -> set[str]:
    used = (action for view in (*VIEWS, "app", "group") for action in of_view(view))
    copying = (action for action in used if action.name.startswith(("copy", "interrupt")))
    return {key for action in copying for key in action.keys.split(",")}


def is_leaving(event: Key) -> bool:
    """Whether a key ends the app."""
    leaving = (action for action in of_view("app") if action.name in ("quit", "interrupt"))
    return any(key in event.aliases for action in leaving for key in action.keys.split(","))


# The app.


class HudApp(App[None]):
    """Connects, shows views and notices, and exits; the `workspace` owns everything else."""

    CSS_PATH: ClassVar = sorted(STYLES.glob("*.tcss"))
    BINDINGS: ClassVar[list[BindingType]] = bindings("app")
    TITLE = "hud-tui"

    workspace: Workspace | None = None
    """What needs a service; None until there is one."""
    key: str | None = None
    """The key typed by the user, for this session; None if it is configured."""
    crash: Exception | None = None
    _mounted = False
    _set_ups: SetUps | None = None
    """Set-ups of machines, which continue when another service is opened."""
    _palette: Palette | None = None

    def __init__(
        self,
        connect: Connect,
        mode: str | None,
        start: Start,
        clock: Callable[[], float] = time,
        state: Callable[[], Path] | None = None,
        options: Options | None = None,
    ) -> None:
        """`connect` is called again to reconnect; `mode` is ``local``, ``host``, ``hud``,
        ``replay``, or None to ask; `state` returns the directory for the user's choices, which None
        discards at the end."""
        super().__init__(TerminalDriver)
        keep_numbers_whole()
        self.mode, self.start, self.clock = mode, start, clock
        self.store = JsonStore(state, self._flush_later, self._notice_files)
        self.options = options or Options()
        self.connect_screen = ConnectScreen(mode is None, self.options.elsewhere)
        advice = self.options.copy_advice
        self.clipboard_notices = Clipboard(self.store, partial(show_notice, self), advice)
        self._connect = connect
        for name in VIEWS:
            self.add_mode(name, partial(self._make_view, name))
        if self.no_color:  # Textual's own filter for NO_COLOR still sends greys
            others = [each for each in self._filters if not isinstance(each, Monochrome)]
            self._filters = [*others, PlainFilter()]
        encoding = sys.__stdout__.encoding if sys.__stdout__ else None
        self._filters.append(AsciiFilter(enabled=not has_unicode(os.environ, encoding)))
        self.theme_choice = ThemeChoice(self, self.store)
        self.type_ahead = TypeAhead(self, self._hand_on)
        self.type_ahead.holds = mode is not None
        self._told: set[str] = set()
        """Why changes were not logged, as was said."""

    def get_default_screen(self) -> ConnectScreen:
        return self.connect_screen

    def on_mount(self) -> None:
        self._mounted = True
        self.call_after_refresh(self._show_unread_files)
        if self.mode is not None:
            self.call_after_refresh(self.open_client, self.mode)

    async def on_unmount(self) -> None:
        self._mounted = False
        self.store.flush()
        if self.workspace is not None:
            await self.workspace.close()

    # What is shown.

    @property
    def shown_view(self) -> HudScreen | None:
        """The view on the screen, also under a dialog; None before there is one."""
        return None if self.workspace is None else self.workspace.view

    @property
    def read_only(self) -> ReadOnly | None:
        """Why writes are blocked; None if they are allowed."""
        return None if self.workspace is None else self.workspace.writes.read_only

    def is_beyond_role(self, action_id: str) -> bool:
        """Whether the role of the key does not include an action of the table of keys."""
        if self.workspace is None or self.read_only is not None:
            return False
        return self.workspace.writes.why_not_do(action_id) is not None

    def _make_view(self, name: str) -> Screen[Any]:
        assert self.workspace is not None
        return view_class(name)(self.workspace.context)

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        if isinstance(renderable, ChopsUpdate):
            renderable = ThinUpdate.of(renderable)  # type: ignore[assignment]
        super()._display(screen, renderable)

    # Connecting and reconnecting.

    def on_connect_screen_chosen(self, chosen: ConnectScreen.Chosen) -> None:
        self.open_client(chosen.mode or self.mode or "local", chosen.key or self.key)

    @work(exclusive=True, group="connect")
    async def open_client(self, mode: str, key: str | None = None) -> None:
        """Connect, then show the view that the command line requests; a failure is displayed."""
        self.mode, self.key, self.type_ahead.holds = mode, key, True
        self.connect_screen.wait("connecting…")
        views = create_task(to_thread(load_views))  # import views while the service starts
        try:
            client = self._observed(await self._connect(mode, key, self.connect_screen.wait))
            self.workspace = self._new_workspace(client, mode)
            first = await self.workspace.opening()
        except HudError as error:
            await views
            offline = self.workspace if isinstance(error, HudUnreachable) else None
            if offline is None or not await offline.begin_offline():
                self.type_ahead.drop()
                self.connect_screen.fail(error)
            self.type_ahead.release()
            return
        finally:
            await views
            self.options.settle()
        await self.workspace.begin(first)
        self.type_ahead.release()

    def _new_workspace(self, client: HudClient, mode: str) -> Workspace:
        from hud_tui.tui import session, workspace  # 250 ms, after the first frame

        options = self.options

        def session_of(owner: SessionOwner) -> RunSession:
            more = options.thresholds, options.recorder
            return session.RunSession(client, mode, owner, self.store, self.clock, *more)

        return workspace.Workspace(
            self,
            session_of,
            self.start,
            options.notify,
            options.export_dir,
            self.reopen,
            self.action_reconnect,
            self._set_ups,
            self.type_ahead.drop_unseen,
        )

    @work(exclusive=True, group="reopen")
    async def reopen(self) -> None:
        """Open the service that --local now means, with new views: another machine is in use."""
        old = self.workspace
        if old is None or self.mode != "local":
            self.show_notice("from now on hud-tui --local trains there")
            return
        view = old.view.VIEW if old.view is not None else "models"
        self.start, self.workspace = Start(view=view, again=True), None
        self.type_ahead.holds = True
        self.connect_screen = ConnectScreen(asks=False)
        if OPENING in self._modes:
            await self.remove_mode(OPENING)
        self.add_mode(OPENING, lambda: self.connect_screen)
        await self.switch_mode(OPENING)
        for name in VIEWS:
            await self.remove_mode(name)
            self.add_mode(name, partial(self._make_view, name))
        await old.end()
        self._set_ups = old.set_ups
        self.open_client(self.mode, self.key)

    @work(exclusive=True, group="connect")
    async def action_reconnect(self) -> None:
        if self.workspace is not None and self.shown_view is not None and self.mode is not None:
            client = await self._connect(self.mode, self.key, self.show_notice)
            await self.workspace.reconnect(self._observed(client))
        elif self.connect_screen.state == "failed":
            self.connect_screen.action_retry()

    # Notices.

    def _observed(self, client: HudClient) -> HudClient:
        """The client, whose changes are told if the command log lacks them."""
        if not client.is_observed:
            return client
        log = client.wire.writing.observe

        def observe(written: AuditEntry) -> None:
            if why := log(written):
                self.post_message(Unlogged(str(why)))

        return client.observed(observe)

    def on_play_rollout(self, event: PlayRollout) -> None:
        if self.workspace is not None:
            self.workspace.play_rollout(event.trace_id)

    def on_unlogged(self, event: Unlogged) -> None:
        """Say once what prevents that changes are logged, after what the change itself shows."""
        if event.why not in self._told:
            self._told.add(event.why)
            self.set_timer(UNLOGGED_S, partial(self.show_notice, f"{UNLOGGED}{event.why}"))

    def show_notice(self, text: str) -> None:
        show_notice(self, text)

    def on_notify(self, event: NotifyEvent) -> None:
        """Show one notice at a time, the newest, and limit its time."""
        limit_time(event.notification, self.size.height)
        for old in list(self._notifications):
            self._unnotify(old, refresh=False)
        self._uncover()

    def _uncover(self) -> None:
        """Keep what the cursor is on in sight while there are notices."""
        if self._notifications:
            self.call_after_refresh(lambda: make_way(self.screen))

    def _flush_later(self) -> None:
        """Schedule a write of the stored choices; without an event loop, write at once."""
        if self._mounted:
            self.set_timer(STORE_S, self.store.flush)
        else:
            self.store.flush()

    def _notice_files(self) -> None:
        if self._mounted:
            self.call_later(self._show_unread_files)

    def _show_unread_files(self) -> None:
        for line in self.store.problems():
            show_notice(self, line, "warning", 10)

    # Copying.

    @property
    def selected(self) -> str:
        """The text selected on the screen or in the focused field."""
        typed = self.focused.selected_text if isinstance(self.focused, Input) else ""
        return typed or self.screen.get_selected_text() or ""

    async def on_event(self, event: Event) -> None:
        leaves = self.type_ahead.holds and isinstance(event, Key) and is_leaving(event)
        if is_typed(event) and not leaves:
            await self.type_ahead.take(event)
        else:
            await super().on_event(event)

    async def push_screen_wait(self, screen: Screen[Any] | str, *, mode: str | None = None) -> Any:
        await self._flush_next_callbacks()  # as Textual does: input in between is for the screen
        with self.type_ahead.asking():
            return await super().push_screen_wait(screen, mode=mode)

    async def _hand_on(self, event: Event) -> None:
        """Pass an input event to the widget it is for. Any key that does not copy clears the
        selection, because the displayed text may change."""
        typed = set(event.aliases) if isinstance(event, Key) else set()
        if typed and self.screen_stack and self.screen.selections and not typed & copying_keys():
            self.screen.clear_selection()
        await super().on_event(event)
        self._uncover()

    def copy_to_clipboard(self, text: str) -> None:
        """Copy a text, made safe for a terminal, and report its size; every copy is made here."""
        text = clean(text, WHOLE)
        if text and self.clipboard_notices.fits(text):
            super().copy_to_clipboard(text)
            self.run_worker(self.clipboard_notices.tell(text), group="copied")
        elif text:
            self.run_worker(self.clipboard_notices.write_to_file(text), group="copied")

    # Keys of every view.

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Run an action of a key, the palette or the help, unless it is blocked."""
        where = default_namespace or self
        if self.workspace is not None and self.workspace.writes.blocks(action, where):
            return False
        return await super().run_action(action, default_namespace, namespaces)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Views can only be shown once there is a service."""
        shown = self.shown_view is not None
        if action == "reconnect":
            return shown or self.connect_screen.state == "failed"
        if action in ("log", "machines"):
            open_ = any(getattr(screen, "VIEW", "") == action for screen in self.screen_stack)
            return shown and not open_
        return action not in ("view", "views", "alarms", "raw", "reset_layout") or shown

    def switch_mode(self, mode: str) -> AwaitMount:
        """Show a view, without pages over it; dialogs and panels over them stay. The palette is
        closed, because there is only one of it; so are notices of alarms over the view that lists
        them."""
        if mode != self.current_mode and self._palette in self.screen_stack:
            self._palette.dismiss()
        for page in reversed(self.screen_stack[1:]):
            if isinstance(page, Leavable) and not isinstance(page, Over):
                page.dismiss()
        if mode == "alarms":  # which lists them
            for notice in filter(is_alarm, list(self._notifications)):
                self._unnotify(notice)
        return super().switch_mode(mode)

    def action_command_palette(self) -> None:
        """Open the palette, which goes to anything by its name."""
        from hud_tui.tui.screens.palette import Palette  # it imports the wire's models

        if self._palette not in self.screen_stack:
            places = None if self.workspace is None else self.workspace.places
            self._palette = Palette(self.screen, places)
            self.push_screen(self._palette, self._go_to)

    def _go_to(self, place: Place | None) -> None:
        if place is not None:
            self.run_worker(place.go(), exclusive=True, group=OPENS)

    async def action_view(self, name: str) -> None:
        if self.shown_view is not None:
            await self.switch_mode(name)

    async def action_alarms(self) -> None:
        await self.switch_mode("alarms")

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self.screen), self._do)

    def action_views(self) -> None:
        """List the views, for a key line that is too narrow for their names."""
        self.push_screen(ViewList(self.screen), self._do)

    async def _do(self, chosen: Doable | None) -> None:
        if chosen is not None:
            await self.run_action(chosen.action.name, chosen.where)

    def action_theme(self) -> None:
        show_notice(self, f"theme: {self.theme_choice.next()}", seconds=2)

    def action_wear(self, name: str) -> None:
        self.theme_choice.wear(name)

    @work(exclusive=True, group="reset")
    async def action_reset_layout(self) -> None:
        """Reset the layout of all views after confirmation."""
        if self.workspace is not None:
            await self.workspace.reset_layout()

    def action_raw(self) -> None:
        if self.workspace is not None:
            self.workspace.show_document()

    def action_machines(self) -> None:
        if self.workspace is not None:
            self.workspace.show_machines()

    def action_log(self) -> None:
        if self.workspace is not None:
            self.workspace.show_log()

    # Leaving.

    async def action_quit(self) -> None:
        """Quit; ask first if a run is training. A replayed run does not count."""
        if self.workspace is None:
            self.exit()
        else:
            self.workspace.leave()

    async def action_interrupt(self) -> None:
        """ctrl+c: copy the selection, or quit; pressed twice it quits without asking."""
        if selected := self.selected:
            self.copy_to_clipboard(selected)
        else:
            await self.action_quit()

    def _prune(self, *nodes: Widget, parent: DOMNode | None = None) -> AwaitRemove:
        """Remove widgets from the screen, and cancel their workers first: Textual cancels a worker
        only after its widget and that widget's children are gone, when it may still use them."""
        for node in nodes:
            for child in node.walk_children(with_self=True):
                self.workers.cancel_node(child)
        return super()._prune(*nodes, parent=parent)

    def _handle_exception(self, error: Exception) -> None:
        """Show a worker's `HudError` and continue; any other exception ends the app."""
        failure = error.error if isinstance(error, WorkerFailed) else error
        if isinstance(failure, HudError) and (self.is_running or self._exit):
            if self.is_running:  # else the worker was cancelled, for the app is left
                show_error(self, failure)
            return
        if self.crash is None and isinstance(failure, Exception):
            self.crash = failure
        super()._handle_exception(error)
        self._exit_renderables.clear()  # `crash` is reported once the terminal is restored

    def _fatal_error(self) -> None:
        """Exit. Textual would print the variables of every frame, which may include a key."""
        self._close_messages_no_wait()


@dataclass(frozen=True)
class Options:
    """Settings from the config file and flags."""

    thresholds: Thresholds | None = None
    """Thresholds of the alarm detectors; None for the defaults."""
    notify: Notify | None = None
    """How to announce alarms and the end of a run; None for nothing."""
    recorder: Recorder | None = None
    """Records the session's events to a file; None without ``--record``."""
    export_dir: Path = Path()
    """Directory for new files."""
    copy_advice: Advice = None
    """Advice on clipboard support of this terminal; None inspects the environment."""
    settle: Callable[[], None] = lambda: None
    """Called when every view is loaded."""
    elsewhere: Elsewhere = field(default_factory=Elsewhere)


# The app as a program: from a terminal to an exit code.


def run(
    connect: Connect,
    mode: str | None,
    start: Start,
    state: Callable[[], Path],
    config: Config,
    record: str | None = None,
    elsewhere: Elsewhere | None = None,
    clock: Callable[[], float] = time,
) -> int:
    """Run the app until the user leaves; return the exit code. Raises HudUsage: this is not a
    terminal, or the recording cannot be started.

    Args:
        state: Returns the state directory, for the user's choices and the traceback of a crash.
        record: File for the session's events.
        clock: Unix seconds, for displayed ages.
    """
    need_terminal()
    gc.disable()
    recorder = None
    if record is not None:
        from hud_tui.client.replay import Recorder

        recorder = Recorder(Path(record), lambda text: app.show_notice(text))
    options = Options(
        thresholds=config.alarms,
        notify=config.notify,
        recorder=recorder,
        export_dir=config.export_dir,
        settle=settle,
        elsewhere=elsewhere or Elsewhere(),
    )
    app = HudApp(connect, mode, start, clock, state, options)
    use_keymap(app, config.keys)
    crash: Exception | None = None
    try:
        app.run()
    except Exception as error:
        crash = error
    gc.enable()
    app.store.flush()
    if recorder is not None:
        recorder.close()
    crash = app.crash or crash
    if crash is None:
        return app.return_code or 0
    return report(crash, state(), secrets(app))


COLLECT_EVERY = 10_000
"""New objects after which garbage is collected: drawing makes many, and leaves few in cycles."""


def settle() -> None:
    """Start the garbage collector, excluding everything loaded so far: traversing that takes up to
    0.2 s, during which no key is handled, and none of it is ever freed."""
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY)
    gc.enable()


def need_terminal() -> None:
    """Raises HudUsage if stdin, stdout or stderr is not a terminal: no keys could arrive."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or not stream.isatty():
            hint = "do not redirect it, or use --headless"
            raise HudUsage(f"the app needs a terminal, and {name} is none", hint)


def secrets(app: HudApp) -> list[str]:
    """API keys of this session, for redaction."""
    used = "" if app.workspace is None else app.workspace.session.client.settings.api_key
    names = ("HUD_API_KEY", "HUD_TUI_KEY")
    return [used, app.key or "", *(os.environ.get(name, "") for name in names)]


# Reporting an unexpected exception.
#
# The message on the terminal is short. The traceback is written to a file that only its owner
# can read, without the frames' variables and with every key masked, so that it can be attached to
# a bug report.


MASK = "***"
_CREDENTIAL = re.compile(
    r"""(?ix) (bearer\s+ | api[_-]?key["']?\s*[:=]\s*b?["']?) ([^\s"',;)}\]]+)"""
)


def report(error: BaseException, state: Path, secrets: Iterable[str]) -> int:
    """Print a short message to stderr, store the traceback in `state`; return the exit code."""
    texts = [secret for secret in secrets if secret]
    what = one_line(masked(f"{type(error).__name__}: {error}", texts), 300)
    try:
        kept = f"The traceback, without keys, is in {one_line(_keep(error, state, texts), 400)}"
    except OSError as trouble:
        kept = f"Its traceback could not be written: {one_line(trouble, 300)}"
    lines = [
        f"hud-tui {__version__}: hud-tui crashed: {what}",
        kept,
        "Please report it, with that file, where you got hud-tui.",
        "A run that was training continues; start hud-tui again to see it.",
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)
    return 1


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text with these keys, and anything that looks like one, redacted."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return _CREDENTIAL.sub(rf"\1{MASK}", text)


def _keep(error: BaseException, state: Path, secrets: Iterable[str]) -> Path:
    """Write the traceback to a new file. Raises OSError."""
    text = f"{label()}\n\n{''.join(format_exception(error))}"
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = state / f"crash-{strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w", encoding="utf-8", errors="replace") as written:
        written.write(clean(masked(text, secrets), 1_000_000))
    return file
