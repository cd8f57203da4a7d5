"""HudApp: the full-screen session. Styles are in styles/, never in here.

This module imports neither the client nor the wire models, so that something is on the
screen before they load: what needs them is imported where it is first used.
"""

from __future__ import annotations

import gc
import os
import sys
from asyncio import create_task, sleep, to_thread
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from importlib import import_module
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import work
from textual._compositor import ChopsUpdate
from textual.actions import parse
from textual.app import App
from textual.await_remove import AwaitRemove
from textual.binding import BindingType
from textual.color import Color
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.dom import DOMNode
from textual.events import Event as ScreenEvent
from textual.events import Key
from textual.filter import LineFilter, Monochrome
from textual.notifications import Notification
from textual.notifications import Notify as NotifyEvent
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import WorkerError, WorkerFailed

from hud_tui.errors import START_AGAIN, HudError, HudUnreachable, HudUsage
from hud_tui.keys import VIEWS, WRITES, keyed, of_view
from hud_tui.rl.text import WHOLE, clean, one_line
from hud_tui.settings import Start
from hud_tui.storage import JsonStore, write_atomic
from hud_tui.tui.keys import ActionCommands, Doable, Palette, bindings
from hud_tui.tui.screens.connect import ConnectScreen
from hud_tui.tui.screens.dialogs import ChoiceDialog, ConfirmDialog
from hud_tui.tui.theme import (
    DARK,
    LOCK,
    RAMP,
    RAMPS,
    THEMES,
    TITLES,
    PlainFilter,
    ThinUpdate,
    ascii_filter,
)
from hud_tui.tui.type_ahead import OPENS, TypeAhead, is_typed

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.actions import ActionParseResult
    from textual.events import Event
    from textual.widget import AwaitMount

    from hud_tui.client.client import HudClient
    from hud_tui.client.replay import Recorder
    from hud_tui.config import Config, ReadOnly
    from hud_tui.events import Event
    from hud_tui.last_known import LastKnown
    from hud_tui.notebook import Notebook
    from hud_tui.rl.alarms.alarm import Alarm
    from hud_tui.rl.alarms.notify import Notify
    from hud_tui.rl.alarms.thresholds import Thresholds
    from hud_tui.rl.head import Journal, Move
    from hud_tui.rl.progress import Liveness
    from hud_tui.rl.run import Run
    from hud_tui.tui.alarms import AlarmWatch
    from hud_tui.tui.layout import Layout
    from hud_tui.tui.notify import Notifier
    from hud_tui.tui.screens.base import HudScreen
    from hud_tui.tui.session import Follower
    from hud_tui.wire import JobStatus, Model


# TellingApp: what failed is told, on any terminal, and a crash leaks nothing.


ALARM = "⚑"
"""How the notice of an alarm begins."""
MOST_NOTICES = 3
"""Seen at once: more would lie over what they are about."""


class TellingApp(App[None]):
    """Failures become notices; what nobody expected is kept in `crash`, and ends the app."""

    def __init__(self) -> None:
        super().__init__()
        self.crash: Exception | None = None
        """What ended the app, where nobody expected it."""
        if self.no_color:  # Textual's own filter for it sends greys
            self._filters = [one for one in self._filters if not isinstance(one, Monochrome)]
            self._filters.append(PlainFilter())
        self._filters.append(ascii_filter(sys.__stdout__.encoding if sys.__stdout__ else None))

    def tell(self, error: HudError) -> None:
        """Show a failure with what to do next."""
        message, hint = error.message, error.hint
        if hint == START_AGAIN:  # the app can do that itself
            message, hint = "The service does not answer.", keyed("{app.reconnect} starts it")
        text = clean(f"{message}\n{hint}".strip(), 600)
        self.notify(text, severity="error", markup=False, timeout=10)

    def say(self, text: str) -> None:
        """Show a line for a few seconds."""
        self.notify(clean(text, 200), markup=False)

    def on_notify(self, event: NotifyEvent) -> None:
        """Make room for a notice: what tells of the same goes, then the oldest of too many.

        Alarms go before the others, which answer a key, and stay in their own view.
        """
        subject, shown = _subject(event.notification), list(self._notifications)
        alike = [one for one in shown if _subject(one) == subject]
        others = sorted(
            (one for one in shown if one not in alike),
            key=lambda one: not one.message.startswith(ALARM),
        )
        for old in (*alike, *others[: max(0, len(others) + 1 - MOST_NOTICES)]):
            self._unnotify(old, refresh=False)

    def _prune(self, *nodes: Widget, parent: DOMNode | None = None) -> AwaitRemove:
        """Remove widgets from the screen. What they still read for themselves ends first: Textual
        cancels a worker once its widget is gone, which is after that widget's children are."""
        for node in nodes:
            for one in node.walk_children(with_self=True):
                self.workers.cancel_node(one)
        return super()._prune(*nodes, parent=parent)

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


def _subject(notice: Notification) -> tuple[str, str]:
    """What a notice is about: its first line, without the figures that follow."""
    return notice.title, notice.message.partition("\n")[0]


# FollowingApp: one model is followed, and the view on the screen shows its run.


class FollowingApp(TellingApp):
    """Holds the client and what is known of the followed model."""

    shelf: JsonStore
    """Where what the user chose and wrote is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.client: HudClient | None = None
        self.shelf = JsonStore()
        """Keeps what the user chose."""
        self.clock: Callable[[], float] = time
        """Unix seconds, for ages on the screen."""
        self.thresholds: Thresholds | None = None
        """What the detectors of alarms go by; None for the usual ones."""
        self.recorder: Recorder | None = None
        """Writes what is heard to a file, where the command line asked for it."""
        self.at: str | None = None
        """Id of the checkpoint under the crosshair, in every view; None for the newest."""
        self.reconnected = False
        """Whether the followed job is yet to be heard of since; it may want to be resumed."""
        self._asked_to_resume: set[str] = set()
        """Ids of jobs; nobody is asked about the same one twice."""
        self._follower: Follower | None = None
        self._journals: dict[str, Journal] = {}
        self._notebooks: dict[str, Notebook] = {}

    @property
    def connected(self) -> HudClient:
        """The client, for code that runs only once there is one."""
        assert self.client is not None
        return self.client

    @property
    def run_now(self) -> Run:
        """The followed model's run, as it is on the screen."""
        from hud_tui.rl.run import Run

        return self._follower.run if self._follower is not None else Run()

    @property
    def freshness(self) -> Liveness:
        """How fresh `run_now` is."""
        from hud_tui.tui.session import CONNECTING

        return self._follower.freshness if self._follower is not None else CONNECTING

    def choose(self, model: Model, known: Run | None = None, known_at: float | None = None) -> None:
        """Follow this model from now on.

        Args:
            model: The model.
            known: What another session kept of it, where the service does not answer.
            known_at: Unix seconds that this is as of.
        """
        from hud_tui.rl.head import Journal
        from hud_tui.tui.alarms import AlarmBook, AlarmWatch
        from hud_tui.tui.session import Follower

        journal = self._journals.get(model.id)
        if journal is None:
            journal = self._journals[model.id] = Journal(tell=self._note_move)
        if self.run_now.model is None or self.run_now.model.id != model.id:
            self.at = None
        alarms = AlarmWatch(self.thresholds, AlarmBook(self.shelf, model.id))
        self._follower = Follower(
            self.connected, known or self.run_now, model, journal, alarms, known_at, self.clock
        )
        if self.recorder is not None:
            self.recorder.model(model)
        self.follow(self._follower)
        self.show_run()

    @work(exclusive=True, group="follow")
    async def follow(self, follower: Follower) -> None:
        """Read the model's events; what they add up to is shown once a frame."""
        from hud_tui.tui.session import FRAME_S

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
            self.framed(follower)

    def framed(self, follower: Follower) -> None:
        """Called after each frame that had something new."""

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

    @property
    def notebook(self) -> Notebook:
        """What is noted of the followed model."""
        from hud_tui.notebook import Notebook, notebook_file

        model = self.run_now.model
        key = "" if model is None else model.id
        if key not in self._notebooks:
            place = self.shelf.directory
            kept = notebook_file(place, key) if place is not None and key else None
            self._notebooks[key] = Notebook(kept)
        return self._notebooks[key]

    def _note_move(self, move: Move) -> None:
        try:
            self.notebook.add(move)
        except OSError as error:
            self.log.error(f"the move of the head could not be noted: {error}")

    def catch_up(self) -> Run:
        """Show at once what the next frame would."""
        assert self._follower is not None
        self._frame(self._follower)
        return self._follower.run

    def fold(self, event: Event) -> Run:
        """Take in what was read outside the feed, and show it at once."""
        assert self._follower is not None
        if self.recorder is not None:
            self.recorder.event(event)
        run = self._follower.fold(event)
        self._frame(self._follower)
        return run

    def _hear(self, event: Event) -> None:
        """Tell what the user must know whatever is on the screen."""
        from hud_tui.events import HeadMoved, JobChanged

        if self.recorder is not None:
            self.recorder.event(event)
        if isinstance(event, HeadMoved) and (move := self.journal.heard(event)) is not None:
            from hud_tui.rl.head import named

            to = named(self.run_now, move.after)
            self.say(f"Somebody else set the head to {to}. z in Checkpoints undoes it.")
        elif isinstance(event, JobChanged) and self.reconnected:
            self.reconnected, job = False, event.job
            shut = self.connected.wire.guard.read_only is not None
            if job.status == "interrupted" and job.id not in self._asked_to_resume and not shut:
                self._asked_to_resume.add(job.id or "")
                self.interrupted(job)

    def interrupted(self, job: JobStatus) -> None:
        """Called once a session for a job that the end of the service cut short."""


# AlarmingApp: the followed run is judged, and new alarms are told on any view.


REST_S = 0.01
"""Between two slices of a long run, for keys and repaints."""


class AlarmingApp(FollowingApp):
    def __init__(self) -> None:
        super().__init__()
        self._judging: Follower | None = None
        """Whose long run is being judged."""
        self.make_notifier: Callable[[], Notifier] | None = None
        """Makes `notifier` when there is something to tell; None tells nobody."""
        self._trained: str | None = None
        """Id of the job that was training in the last frame."""
        self._unshown: list[tuple[Follower, Alarm]] = []
        """Raised while a dialog is open: a toast would lie over its buttons."""

    @cached_property
    def notifier(self) -> Notifier | None:
        """Tells somebody who does not look."""
        return None if self.make_notifier is None else self.make_notifier()

    @property
    def alarms(self) -> AlarmWatch:
        """The detectors of the followed model, and what was said to them."""
        assert self._follower is not None
        return self._follower.alarms

    def renew_alarms(self) -> None:
        """Show at once what the user said to an alarm."""
        self.alarms.renew()
        self.catch_up()

    def framed(self, follower: Follower) -> None:
        """Judge what a long run has left to be judged, and tell of new alarms."""
        if follower.alarms.behind and self._judging is not follower:
            self._judging = follower
            self.judge(follower)
        for alarm in follower.alarms.news():
            self._unshown.append((follower, alarm))
            if self.notifier is not None:
                self.send(self.notifier.alarm(alarm, _name(follower)))
        if self.shown_view is not None and not self.screen.is_modal:  # the app may be ending
            shown, self._unshown = self._unshown, []
            for source, alarm in shown:
                if source is follower:
                    self.show_alarm(alarm)
        self._tell_end(follower)

    def _tell_end(self, follower: Follower) -> None:
        """Tell once that the run that was training has ended."""
        run, before = follower.run, self._trained
        job = run.job
        self._trained = job.id if job is not None and run.training else None
        if job is None or before is None or job.id != before or run.training:
            return
        if self.notifier is not None:
            self.send(self.notifier.ended(job, _name(follower)))

    @work(exclusive=True, group="judge")
    async def judge(self, follower: Follower) -> None:
        """Judge a long run slice by slice, until its newest step is judged."""
        while follower.alarms.behind:
            follower.judge()
            await sleep(REST_S)
        self._judging = None

    def show_alarm(self, alarm: Alarm) -> None:
        """Show an alarm on whatever view there is."""
        from hud_tui.rl.alarms.alarm import Level

        what = keyed("{app.alarms} shows what to do")
        text = f"{ALARM} {alarm.title} since step {alarm.onset}\n{alarm.said}\n{what}"
        self.notify(
            clean(text, 400),
            severity="error" if alarm.level is Level.CRITICAL else "warning",
            markup=False,
            timeout=10,
        )

    @work(group="webhook")
    async def send(self, document: dict[str, object] | None) -> None:
        """POST a document to the webhook; a failure is said once."""
        if document is None or self.notifier is None:
            return
        from hud_tui.client.webhook import post

        why = await post(self.notifier.notify.webhook, document)
        if why and (said := self.notifier.failed(why)):
            self.say(said)

    def write_terminal(self, text: str) -> None:
        """Write to the terminal itself, past the screen."""
        if self._driver is not None:
            self._driver.write(text)

    async def action_alarms(self) -> None:
        """Show what the detectors say of the run."""
        await self.switch_mode("alarms")


def _name(follower: Follower) -> str:
    """What the followed model is called."""
    model = follower.run.model
    return "" if model is None else one_line(model.model_name, 80)


# GuardingApp: a key that would change the service says why it does not, where it may not.
#
# The client refuses such requests by itself. This is for people: they are told before a
# dialog has asked them anything.


class GuardingApp(AlarmingApp):
    @property
    def read_only(self) -> ReadOnly | None:
        """Why nothing is changed; None where everything may be."""
        return None if self.client is None else self.client.wire.guard.shut

    def may_change(self) -> bool:
        """Whether the service may be changed; where it may not, that is said."""
        said = self.read_only
        if said is not None:
            text = f"{said.kind}: {said.why}\n{said.cure}"
            self.notify(text, severity="warning", markup=False)
        return said is None

    async def confirm_name(self, model_id: str | None, what: str) -> bool:
        """Have the name of a protected model typed before it is changed.

        Args:
            model_id: The model's; None where none is known.
            what: What would be done, e.g. ``set its head``.

        Returns:
            Whether the next change of it is meant, or it is not protected.

        Raises:
            HudUsage: Nobody knows which models are protected.
        """
        guard = self.connected.wire.guard
        if model_id is None or model_id not in guard.protected:
            return True
        if not await self.type_name(guard.protected[model_id], what):
            return False
        guard.allow(model_id)
        return True

    async def type_name(self, name: str, what: str) -> bool:
        """Have a protected model's name typed; whether it was."""
        from hud_tui.tui.screens.dialogs import InputDialog

        shown = one_line(name, 100).strip()
        lines = [f"{shown} is protected on this machine.", f"To {what}, type its name."]
        wrong = f"type {shown}, or leave with esc"
        check = partial(_other, {shown, name.strip()}, wrong)
        dialog = InputDialog(f"{LOCK} {shown}", lines, "Go on", check=check)
        return await self.push_screen_wait(dialog) is not None

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Do what a key, the palette or the help says, unless it may not be done."""
        if self.read_only is not None:
            asked: tuple[str, str, tuple[Any, ...]]
            asked = parse(action) if isinstance(action, str) else action
            where = self.screen if asked[0] == "screen" else default_namespace or self
            id_ = f"{getattr(where, 'VIEW', '')}.{asked[1]}"
            if id_ in WRITES and where.check_action(*asked[1:]):
                return not self.may_change()
        return await super().run_action(action, default_namespace, namespaces)


def _other(names: Set[str], wrong: str, text: str) -> str:
    return "" if text in names else wrong


# KeepingApp: how the app is left is kept, for the next one on the same account.
#
# What the user chose is written soon after, and once more when the app ends. A recording that
# is played is nobody's account: there nothing of it is kept.


SOON_S = 1.0
"""Seconds in which changes are gathered before they are written."""
LOCAL = "local"
"""The embedded service's name in a scope: its port is another with every start."""


class KeepingApp(GuardingApp):
    def __init__(self) -> None:
        super().__init__()
        self.mode: str | None = None
        """``local``, ``hud``, ``replay``, or None while nobody has chosen."""
        self._layout: Layout | None = None
        self.layout_edition = 0
        """Grows when the layout is reset."""
        self._layout_scope: str | None = None
        """Where it is kept; None where it is not."""

    def on_mount(self) -> None:
        self.shelf.later = lambda: self.set_timer(SOON_S, self.shelf.flush)
        self.shelf.noticed = lambda: self.call_later(self._tell_left)
        self.call_after_refresh(self._tell_left)

    async def on_unmount(self) -> None:
        self.shelf.later = self.shelf.noticed = None
        self.shelf.flush()

    def _tell_left(self) -> None:
        """Say what is wrong with files that are left as they are."""
        for line in self.shelf.problems():
            self.notify(line, severity="warning", markup=False, timeout=10)

    @property
    def replays(self) -> bool:
        """Whether a recording or a demo is played, which keeps less than a service does."""
        return self.mode == "replay"

    @property
    def scope(self) -> str | None:
        """Names what is kept of this account of this service; None where nothing is."""
        if self.client is None or self.shelf.directory is None or self.replays:
            return None
        from hud_tui.last_known import scope_of

        settings = self.client.settings
        service = LOCAL if settings.local else settings.api_url
        try:
            return scope_of(self.shelf.directory, service, settings.api_key)
        except HudUsage as error:
            self.shelf.say(f"{error.message}. Nothing is kept of this account: {error.hint}.")
            return None

    @property
    def layout(self) -> Layout:
        """How the views are laid out, and what they show."""
        if self._layout is None:
            from hud_tui.tui.layout import Layout  # after the first frame

            self._layout = Layout()
        return self._layout

    def open_layout(self) -> Layout:
        """The layout as this account's last app was left."""
        from hud_tui.tui.layout import read_layout

        self._layout_scope = self.scope
        if self._layout_scope is not None:
            self._layout = read_layout(self.shelf, self._layout_scope)
        return self.layout

    def arrange(self, **changes: Any) -> None:
        """Change the layout, and keep it.

        Args:
            changes: Fields of `Layout`.
        """
        self._change(replace(self.layout, **changes))

    def _change(self, layout: Layout) -> None:
        before, self._layout = self.layout, layout
        if self._layout_scope is not None and self._layout != before:
            from hud_tui.tui.layout import write_layout

            write_layout(self.shelf, self._layout_scope, self._layout, before)

    @work(exclusive=True, group="reset")
    async def action_reset_layout(self) -> None:
        """Ask; then show every view as at first."""
        from hud_tui.tui.screens.dialogs import ConfirmDialog

        lines = [
            "Panes, folds, filters and charts are shown as at first.",
            "The theme, notes and what was said to alarms stay.",
        ]
        if await self.push_screen_wait(ConfirmDialog("Reset the layout", lines, "Reset")):
            self.reset_layout()

    def reset_layout(self) -> None:
        """Forget how the views were laid out, but for which model is followed and where."""
        from hud_tui.tui.layout import Choices, Layout, write_choices

        was = self.layout
        self._change(Layout(model=was.model, model_name=was.model_name, view=was.view))
        write_choices(self.shelf, Choices())
        self.layout_edition += 1
        if self.shown_view is not None:
            self.shown_view.follow_layout()

    def choose(self, model: Model, known: Run | None = None, known_at: float | None = None) -> None:
        super().choose(model, known, known_at)
        self.arrange(model=model.id, model_name=model.model_name[:1000])


# OfflineApp: what was known last stays in sight while the service does not answer.
#
# It is dated and dimmed, and nothing is changed meanwhile. Of a service on the network it is
# kept on this machine too, so that there is something to see where it does not answer at all;
# the embedded service's own data are on this machine already.


KEEP_S = 5.0
"""Seconds between two looks at whether there is something new to keep."""
REST = 20
"""It keeps at most one part in so many of the time."""


class OfflineApp(KeepingApp):
    def __init__(self) -> None:
        super().__init__()
        self.catalog: tuple[Model, ...] = ()
        """The models as they were read last."""
        self._offline = False
        """Whether the service did not answer in the last frame."""
        self._kept: tuple[Run, tuple[Model, ...]] | None = None
        """What is on the disk."""

    @property
    def kept_in(self) -> Path | None:
        """The file in which the service's state is kept; None where it is not."""
        if self.client is None or self.client.settings.local or self.mode != "hud":
            return None
        directory, scope = self.shelf.directory, self.scope
        if directory is None or scope is None:
            return None
        from hud_tui.last_known import file_of

        return file_of(directory, scope)

    def framed(self, follower: Follower) -> None:
        super().framed(follower)
        offline = follower.freshness.offline
        if self.client is None or offline == self._offline:
            return
        from hud_tui.config import NO_ANSWER

        self._offline = offline
        why = replace(NO_ANSWER, cure=keyed(NO_ANSWER.cure))
        self.client.wire.guard.offline = why if offline else None
        if not offline and self.shown_view is not None:
            self.shown_view.on_screen_resume()  # what it could not read it reads now

    @work(exclusive=True, group="keep")
    async def keep_last_known(self) -> None:
        """Keep what is known, now and then, for as long as the app runs."""
        while True:
            began = monotonic()
            await self.keep_now()
            await sleep(max(KEEP_S, REST * (monotonic() - began)))

    async def keep_now(self) -> None:
        """Keep what is known, where it is new."""
        file, run, client = self.kept_in, self.run_now, self.client
        if file is None or client is None or run.model is None or not run.loaded:
            return
        if self.freshness.offline or self._kept == (run, self.catalog):
            return
        from hud_tui.last_known import LastKnown, write_last_known

        self._kept = (run, self.catalog)
        tree = tuple(run.tree[position] for position in range(len(run.tree)))
        at = self.clock() - (self.freshness.age_s or 0)
        known = LastKnown(at, self.catalog, run.model, tree, run.job)
        settings = client.settings
        await to_thread(write_last_known, file, settings.api_url, known, settings.api_key)

    def read_kept(self) -> LastKnown | None:
        """What was kept of the service; None where nothing was."""
        file, client = self.kept_in, self.client
        if file is None or client is None:
            return None
        from hud_tui.last_known import read_last_known

        return read_last_known(file, client.settings.api_url)


# ThemingApp: one of four themes, chosen by a key or in the palette, and remembered.
#
# Widgets draw rewards in the colours of one ramp; where a theme has its own, they are exchanged
# just before a line is written, as glyphs are on a terminal without Unicode.


THEME_FILE = "look"
"""Where the choice is kept, on the shelf."""


class RampFilter(LineFilter):
    """Exchange the reward ramp's colours for a theme's own."""

    def __init__(self, ramp: Sequence[str]) -> None:
        super().__init__(enabled=tuple(ramp) != RAMP)
        self.ramp = tuple(ramp)

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(text, style and _exchanged(style, self.ramp), control)
            for text, style, control in segments
        ]


_PLACES = {colour: place for place, colour in enumerate(RAMP)}


@lru_cache(4096)
def _exchanged(style: Style, ramp: tuple[str, ...]) -> Style:
    ink, ground = _place(style.color), _place(style.bgcolor)
    if ink is None and ground is None:
        return style
    return style + Style(
        color=ramp[ink] if ink is not None else None,
        bgcolor=ramp[ground] if ground is not None else None,
    )


def _place(colour: object) -> int | None:
    triplet = getattr(colour, "triplet", None)
    return None if triplet is None else _PLACES.get(triplet.hex)


class ThemingApp(OfflineApp):
    shelf: JsonStore

    def dress(self) -> None:
        """Put on the theme that was last chosen; before the styles are read."""
        for theme in THEMES:
            self.register_theme(theme)
        name = self.shelf.read(THEME_FILE).get("theme", DARK.name)
        if name not in list(TITLES):
            self.shelf.leave(THEME_FILE, f"theme: expected one of {', '.join(TITLES)}")
            name = DARK.name
        self.set_reactive(App.theme, name)
        self._use_ramp(name)
        self.stylesheet.set_variables(self.get_css_variables())

    def wear(self, name: str) -> None:
        """Change to this theme, and remember it."""
        self._use_ramp(name)
        self.theme = name
        self.shelf.write(THEME_FILE, {"theme": name})

    def action_theme(self) -> None:
        """The next theme; says which."""
        names = list(TITLES)
        self.wear(names[(names.index(self.theme) + 1) % len(names)])
        self.notify(f"theme: {TITLES[self.theme]}", markup=False, timeout=2)

    def _use_ramp(self, name: str) -> None:
        others = [one for one in self._filters if not isinstance(one, RampFilter)]
        self._filters = [RampFilter(RAMPS[name]), *others]


class ThemeCommands(Provider):
    """The palette's themes, by name."""

    async def discover(self) -> Hits:
        for name, title in TITLES.items():
            yield DiscoveryHit(f"Theme: {title}", partial(self._wear, name))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, title in TITLES.items():
            text = f"Theme: {title}"
            if (score := matcher.match(text)) > 0:
                yield Hit(score, matcher.highlight(text), partial(self._wear, name), text)

    def _wear(self, name: str) -> None:
        assert isinstance(self.app, ThemingApp)
        self.app.wear(name)


# CopyingApp: what is copied goes to the terminal's clipboard by OSC 52, whole or not at all.
#
# A terminal never says whether it took it: what is too large for most of them is written to a
# file instead, and where one is known not to take any, that is said.
#
# Source: 100 000 bytes for the whole sequence are hterm's limit (its osc52.sh), and the least of
# the usual terminals'; tmux drops what is above 1 MiB (INPUT_BUF_DEFAULT_SIZE), kitty 8 MiB.


MOST_BYTES = 74_994
"""Of UTF-8: in base64, with the 8 bytes around it, a sequence of 100 000."""
COPIED_FILE = "copied.txt"
"""In the state directory: the last text that was too large."""
SHOWN = 48
"""Characters of a text that the notice repeats."""


class CopyingApp(ThemingApp):
    def __init__(self) -> None:
        super().__init__()
        self.copy_advice: Callable[[], str] = _advice
        """What to do for this terminal to take copies; empty where it may take them."""
        self._advised: str | None = None

    @property
    def selected(self) -> str:
        """The text that is selected on the screen, or in the field that has the focus."""
        typed = self.focused.selected_text if isinstance(self.focused, Input) else ""
        return typed or self.screen.get_selected_text() or ""

    async def on_event(self, event: ScreenEvent) -> None:
        """Any key but one that copies takes the selection away: what is shown may change."""
        typed = set(event.aliases) if isinstance(event, Key) else set()
        if typed and self.screen_stack and self.screen.selections and not typed & copying_keys():
            self.screen.clear_selection()
        await super().on_event(event)

    def copy_to_clipboard(self, text: str) -> None:
        """Copy a text, made safe to paste into a terminal, and say how much of it.

        All that is copied comes here, what Textual's own fields copy too.
        """
        text = clean(text, WHOLE)
        count = len(text.encode())
        if count > MOST_BYTES:
            self._keep(text, count)
        elif text:
            super().copy_to_clipboard(text)
            self._say_copied(text, count)

    @work(group="copied")
    async def _say_copied(self, text: str, count: int) -> None:
        from hud_tui.rl.disk import size  # brings the wire, after the first frame

        if self._advised is None:
            self._advised = await to_thread(self.copy_advice)
        began = one_line(text, SHOWN) if len(text) <= SHOWN else f"{one_line(text[:SHOWN])}…"
        if self._advised:
            said = f"sent {size(count)} that may not be copied: {began}\n→ {self._advised}"
            self.notify(said, severity="warning", markup=False, timeout=8)
        else:
            self.notify(f"copied {size(count)}: {began}", markup=False, timeout=2)

    @work(group="copied")
    async def _keep(self, text: str, count: int) -> None:
        """Write what no clipboard may take to a file, and name that."""
        from hud_tui.rl.disk import size

        said = f"Nothing was copied: {size(count)} are more than a terminal takes for sure "
        said += f"({size(MOST_BYTES)})."
        directory = self.shelf.directory
        file = None if directory is None else directory / COPIED_FILE
        try:
            if file is not None:
                await to_thread(write_atomic, file, text)
        except OSError as error:
            said += f" Nor could it be written: {one_line(error, 200)}"
        else:
            where = f"All of it is in {one_line(file, 400)}"
            said += f"\n{where if file else keyed('{models.export} exports to a file')}"
        self.notify(said, severity="warning", markup=False, timeout=15)


def copying_keys() -> set[str]:
    """The keys in use that copy, in any view."""
    used = (action for view in (*VIEWS, "app", "group") for action in of_view(view))
    copying = (one.keys.split(",") for one in used if one.name.startswith(("copy", "interrupt")))
    return {key for keys in copying for key in keys}


def _advice() -> str:
    from hud_tui.doctor import copy_advice, this_terminal  # asks tmux, if at all

    return copy_advice(this_terminal())


# The six views, by name. A view is imported when it is first shown.


_CLASSES = {
    "models": "ModelsScreen",
    "launch": "LaunchScreen",
    "live": "LiveScreen",
    "checkpoints": "CheckpointsScreen",
    "jobs": "JobsScreen",
    "alarms": "AlarmsScreen",
}


def view_class(name: str) -> type[Screen[Any]]:
    """The screen of a view: ``<Name>Screen`` in the module of that name."""
    found: type[Screen[Any]] = getattr(import_module(f"hud_tui.tui.screens.{name}"), _CLASSES[name])
    return found


def load_views() -> None:
    """Import every view, and what the first chart needs, so that showing one is quick."""
    for name in _CLASSES:
        view_class(name)
    import_module("plotext")


def _maker(name: str) -> Callable[[], Screen[Any]]:
    return lambda: view_class(name)()


VIEW_SCREENS: dict[str, str | Callable[[], Screen[Any]]] = {name: _maker(name) for name in _CLASSES}


# Connecting: to the service at the start, and anew where it went away.


READING = frozenset({"read", "check", "form", "start"})
"""Groups of workers that only read, and may be begun again on another client."""


async def connect(app: HudApp, mode: str, key: str | None) -> None:
    """Connect, then show the view that the command line asked for; a failure is shown."""
    app.mode, app.key = mode, key
    app.connect_screen.wait("connecting…")
    views = create_task(to_thread(load_views))  # while the service starts
    try:
        app.client = await app.connect(mode, key, app.connect_screen.wait)
        from hud_tui.tui.opening import opening

        first = await opening(app.client, app.start, app.open_layout())
    except HudError as error:
        await views
        if not (isinstance(error, HudUnreachable) and await _open_offline(app)):
            app.connect_screen.fail(error)
        return
    finally:
        await views
        app.settle()
    app.catalog = first.models
    if first.model is not None:
        app.choose(first.model)
    app.keep_last_known()
    await app.switch_mode(first.view)
    if first.trouble is not None:
        app.tell(first.trouble)
    elif app.start.verbose:
        app.action_raw(app.start.ref)


async def _open_offline(app: HudApp) -> bool:
    """Show what was known last; False where there is nothing to show."""
    known = await to_thread(app.read_kept)
    if known is None:
        return False
    from hud_tui.events import TreeRead
    from hud_tui.rl.run import Run
    from hud_tui.tui.opening import opening_offline

    try:
        first = opening_offline(known, app.start, app.layout)
    except HudError:
        return False
    assert first.model is not None
    run = Run(model=first.model)
    if first.model.id == known.model.id:
        run = replace(run.fold(TreeRead(checkpoints=known.tree)), job=known.job)
    app.catalog = first.models
    app.choose(first.model, run, known.at)
    app.catch_up()
    app.keep_last_known()
    await app.switch_mode(first.view)
    return True


async def connect_anew(app: HudApp, mode: str) -> None:
    """Take a new client in place of the old; on the embedded service, start it where it ended.

    What still reads from the old client is ended before that is closed, and read again.
    """
    try:
        client = await app.connect(mode, app.key, app.say)
    except HudError as error:
        app.tell(error)
        return
    old, app.client, app.reconnected = app.client, client, True
    if app.run_now.model is not None:
        app.choose(app.run_now.model)
    await _end_reading(app)
    if old is not None:
        await old.aclose()
    app.clear_notifications()
    app.say("connected again")
    if app.shown_view is not None:
        app.shown_view.on_screen_resume()


async def _end_reading(app: HudApp) -> None:
    readers = [worker for worker in app.workers if worker.group in READING]
    for worker in readers:
        worker.cancel()
    for worker in readers:
        with suppress(WorkerError):
            await worker.wait()


# HelpingApp: what can be done on the screen, listed; what is chosen there is done.


class HelpingApp(CopyingApp):
    def action_help(self) -> None:
        """All keys of the view on the screen; the one that is chosen there is done."""
        from hud_tui.tui.screens.dialogs import HelpScreen

        self.push_screen(HelpScreen(self.screen), self._do)

    def action_views(self) -> None:
        """The views, for who clicks where there is no room for all of their names."""
        from hud_tui.tui.screens.dialogs import ViewList

        self.push_screen(ViewList(self.screen), self._do)

    async def _do(self, chosen: Doable | None) -> None:
        if chosen is not None:
            await self.run_action(chosen.action.name, chosen.where)


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
        shelf: JsonStore | None = None,
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
        self.shelf, self.thresholds = shelf or JsonStore(), thresholds
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
        from hud_tui.tui.screens.json import read_document

        model = self.run_now.model
        if model is None:
            self.say(keyed("no model is followed yet: press {app.view.models} to choose one"))
            return
        title, document = await read_document(self.connected, model, ref)
        from hud_tui.tui.screens.json import JsonScreen

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


# What the app asks about a run: what becomes of it on the way out, and whether it goes on.


async def may_leave(app: HudApp, job: JobStatus) -> bool:
    """Ask what becomes of the run that trains: it goes on, or it is stopped.

    Returns:
        Whether to leave now.
    """
    where = "in the background" if app.mode == "local" else "on HUD"
    lines = [
        f"{_job_said(job)} is at step {job.step or 0} of {job.steps or '?'}.",
        f"It can go on training {where}; hud-tui shows it again when you come back.",
    ]
    stop = [] if app.read_only else [("stop", "End the run")]
    choices = [*stop, ("leave", "Keep training")]
    dialog = ChoiceDialog("Quit while a run trains", lines, choices, yes="leave", keep="Stay")
    answer = await app.push_screen_wait(dialog)
    if answer != "stop":
        return answer == "leave"
    try:
        if not await app.confirm_name(_followed(app), "end its run"):
            return False
        await app.connected.cancel_job(job.id or "")
    except HudError as error:
        app.tell(error)
        return False
    return True


async def offer_resume(app: HudApp, job: JobStatus) -> None:
    """Ask whether a run goes on that the end of the service cut short."""
    lines = [
        f"{_job_said(job)} stopped with the service, at step {job.step or 0} of {job.steps or '?'}.",
        "Every step taken so far is whole. It can go on from there.",
    ]
    if await app.push_screen_wait(ConfirmDialog("Resume the run", lines, "Resume")):
        try:
            if await app.confirm_name(_followed(app), "let its run go on"):
                await app.connected.resume_job(job.id or "")
        except HudError as error:
            app.tell(error)


def _followed(app: HudApp) -> str | None:
    model = app.run_now.model
    return None if model is None else model.id


def _job_said(job: JobStatus) -> str:
    return f"Job {one_line(job.name or job.id or '', 60)}"


# The app as a program: from a terminal to an exit code.


@dataclass(frozen=True)
class Session:
    """What the app has beside the service."""

    state: Callable[[], Path]
    """Finds the state directory, for what the user chose and the traceback of a crash."""
    config: Config | None = None
    """What the config file says."""
    record: str | None = None
    """The file to write the session's events to."""
    clock: Callable[[], float] = time
    """Unix seconds, for ages on the screen."""


def run(connect: Connect, mode: str | None, start: Start, session: Session) -> int:
    """Run the app until it is left; returns the exit code.

    Args:
        connect: Makes the client.
        mode: ``local``, ``hud``, ``replay``, or None to ask.
        start: What the app opens with.
        session: Its files.

    Raises:
        HudUsage: This is no terminal, or the recording cannot be begun.
    """
    need_terminal()
    gc.disable()
    from hud_tui.storage import JsonStore
    from hud_tui.tui.keys import use_keymap

    limits = None if session.config is None else session.config.alarms
    app = HudApp(
        connect, mode, start, session.clock, shelf=JsonStore(session.state), thresholds=limits
    )
    app.settle = settle
    if session.config is not None:
        use_keymap(app, session.config.keys)
        app.make_notifier = partial(_notifier, app, session.config.notify)
        app.export_dir = session.config.export_dir
    if session.record is not None:
        from hud_tui.client.replay import Recorder

        app.recorder = Recorder(Path(session.record), app.say)
    crash: Exception | None = None
    try:
        app.run()
    except Exception as error:
        crash = error
    gc.enable()
    app.shelf.flush()
    if app.recorder is not None:
        app.recorder.close()
    crash = app.crash or crash
    if crash is None:
        return app.return_code or 0
    from hud_tui.tui.crash import report

    return report(crash, session.state(), secrets(app))


def _notifier(app: HudApp, notify: Notify | None) -> Notifier:
    from hud_tui.tui.notify import Notifier  # 10 ms that the first frame need not wait

    return Notifier(notify, app.bell, app.write_terminal)


def settle() -> None:
    """Let the garbage collector begin, without what is loaded: to look through all of that takes
    it up to 0.2 s, in which no key is answered, and nothing of it ever goes."""
    gc.freeze()
    gc.enable()


def need_terminal() -> None:
    """Refuse what would leave the app waiting for keys that cannot come.

    Raises:
        HudUsage: Input, output or errors go somewhere else.
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is None or not stream.isatty():
            raise HudUsage("the app needs a terminal; use --headless")


def secrets(app: HudApp) -> list[str]:
    """The keys that this session knows."""
    used = app.client.settings.api_key if app.client is not None else ""
    return [used, app.key or "", os.environ.get("HUD_API_KEY", "")]
