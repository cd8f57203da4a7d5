"""FollowingApp: one model is followed, and the view on the screen shows its run."""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING

from textual import work

from hud_tui.errors import HudError
from hud_tui.tui.shelf import Shelf
from hud_tui.tui.telling import TellingApp

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient
    from hud_tui.client.recorder import Recorder
    from hud_tui.events import Event
    from hud_tui.notebook import Notebook
    from hud_tui.rl.alarms.thresholds import Thresholds
    from hud_tui.rl.moves import Move
    from hud_tui.rl.progress import Liveness
    from hud_tui.rl.run import Run
    from hud_tui.tui.follow import Follower
    from hud_tui.tui.journal import Journal
    from hud_tui.tui.screens.base import HudScreen
    from hud_tui.tui.shelf import Shelf
    from hud_tui.wire import JobStatus, Model


class FollowingApp(TellingApp):
    """Holds the client and what is known of the followed model."""

    shelf: Shelf
    """Where what the user chose and wrote is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.client: HudClient | None = None
        self.shelf = Shelf()
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
        from hud_tui.tui.follow import CONNECTING

        return self._follower.freshness if self._follower is not None else CONNECTING

    def choose(self, model: Model, known: Run | None = None, known_at: float | None = None) -> None:
        """Follow this model from now on.

        Args:
            model: The model.
            known: What another session kept of it, where the service does not answer.
            known_at: Unix seconds that this is as of.
        """
        from hud_tui.tui.alarm_book import AlarmBook
        from hud_tui.tui.alarm_watch import AlarmWatch
        from hud_tui.tui.follow import Follower
        from hud_tui.tui.journal import Journal

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
