"""RunSession: the model that is followed, its run, how fresh that is, its alarms and its head's
history, kept up to date while screens come and go. It knows no screen.

Its owner runs `follow`, `judge` and `keep_last_known` as workers, calls `frame` ten times a second,
and is told what a person should hear of.
"""

from __future__ import annotations

from asyncio import Lock, Task, current_task, gather, sleep, to_thread, wait
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from math import floor
from pathlib import Path
from time import monotonic, time
from typing import Protocol

from hud_tui.client.client import HudClient
from hud_tui.client.evaluate import Evaluations
from hud_tui.client.replay import Playback, Recorder, ReplayClient
from hud_tui.client.runs import RunList
from hud_tui.config import NO_ANSWER
from hud_tui.errors import HudError, HudRefused, HudUsage
from hud_tui.events import (
    EvaluationChanged,
    EvaluationsRead,
    Event,
    HeadMoved,
    JobChanged,
    TreeRead,
)
from hud_tui.keys import keyed
from hud_tui.notebook import (
    LastKnown,
    Notebook,
    file_of,
    notebook_file,
    read_last_known,
    scope_of,
    write_last_known,
)
from hud_tui.rl.alarms.alarm import Alarm, Level, Report
from hud_tui.rl.alarms.monitor import AlarmMonitor
from hud_tui.rl.alarms.thresholds import Thresholds
from hud_tui.rl.checkpoint_tree import own
from hud_tui.rl.head import Journal, Move
from hud_tui.rl.names import find_model
from hud_tui.rl.progress import Liveness, State, liveness, reading_said, step_seconds
from hud_tui.rl.run import Run, has_ended, job_model_id
from hud_tui.rl.runs import RunRow
from hud_tui.rl.sweep import Sweep
from hud_tui.rl.text import one_line
from hud_tui.settings import Start
from hud_tui.storage import JsonStore
from hud_tui.tui.layout import Layout
from hud_tui.wire import EvaluationJob, Job, JobStatus, Model

FRAME_S = 0.1
"""Events are shown together, at most this often."""
IDLE_S = 10
"""While nothing trains, the age of the service's last word is told in steps of so many seconds:
a keep-alive comes sooner, so a terminal is sent nothing while nothing happens."""
TURN_S = 0.002
"""Longest work on events between two looks for keys; a key takes several turns to its answer."""
MANY = 1000
"""Checkpoints of a tree that takes longer to take in than a key may wait."""
BEHIND_S = 5.0
"""What comes later than that is said to: the line carries less than the run says."""
LOST_S = 2.0
"""A line that breaks and comes back sooner needs no key."""
GONE = "service gone · {app.reconnect} starts it"
UNREACHABLE = "unreachable · retrying · {app.reconnect} tries now"
CONNECTING = Liveness(State.CONNECTING, "connecting", None)


KEEP_S = 5.0
"""Seconds between two looks at whether there is something new to keep."""
KEEP_SHARE = 20
"""Keeping takes at most one part in so many of the time."""
JUDGE_PAUSE_S = 0.01
"""Between two slices of a long run, for keys and repaints."""
LOCAL = "local"
"""The embedded service's name in a scope: its port is another with every start."""


class SessionOwner(Protocol):
    """Receives what happens to the selected run."""

    def model_chosen(self, model: Model) -> None:
        """Another model is followed from now on: `RunSession.follow` is to be run anew."""

    def session_changed(self) -> None:
        """There is something new to show."""

    def has_to_judge(self) -> None:
        """A long run waits to be judged: `RunSession.judge` is to be run."""

    def alarms_raised(self, alarms: list[Alarm]) -> None:
        """Alarms that are new, or worse than they were."""

    def run_ended(self, job: JobStatus) -> None:
        """The run that was training has ended."""

    def run_interrupted(self, job: JobStatus) -> None:
        """The end of the service cut this run short; told once for each run."""

    def head_moved_elsewhere(self, move: Move) -> None:
        """Somebody else set the head."""

    def service_came_back(self) -> None:
        """The service answers again: what could not be read can be read now."""

    def evaluation_begun(self, evaluation_id: str) -> None:
        """An evaluation is made from here: `RunSession.make_evaluation` is to be run."""


class RunSession:
    """One connection's followed model; `choose` says which."""

    def __init__(
        self,
        client: HudClient,
        mode: str,
        owner: SessionOwner,
        store: JsonStore,
        clock: Callable[[], float] = time,
        thresholds: Thresholds | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """
        Args:
            client: The service.
            mode: ``local``, ``hud`` or ``replay``.
            owner: Is told what happens.
            store: Where acknowledged alarms, notes and the last known state are kept.
            clock: Unix seconds.
            thresholds: What the alarms' detectors go by; None for the usual ones.
            recorder: Writes what is heard to a file; None where nobody asked for it.
        """
        self.client, self.mode, self.store, self.clock = client, mode, store, clock
        self.catalog: tuple[Model, ...] = ()
        """The models as they were read last."""
        self.first_fork: str | None = None
        """Id of the model made by the first start's fork; its run needs no second asking."""
        self.sweeps: dict[str, Sweep] = {}
        """Sweeps that are driven from here, by id, as far as they have come."""
        self._runs: tuple[HudClient, RunList] | None = None
        self.at: str | None = None
        """Id of the checkpoint under the crosshair, in every view; None for the newest."""
        self._owner, self._thresholds, self._recorder = owner, thresholds, recorder
        self._follower: Follower | None = None
        self._judging: Follower | None = None
        """The follower whose long run is being evaluated."""
        self._journals: dict[str, Journal] = {}
        self._notebooks: dict[str, Notebook] = {}
        self._training: str | None = None
        """Id of the job that was training in the last frame."""
        self._offline = False
        """Whether the service did not answer in the last frame."""
        self._reconnected = False
        """Whether the followed job is yet to be heard of since."""
        self._offered: set[str] = set()
        """Ids of interrupted jobs that were told of."""
        self._kept: tuple[Run, tuple[Model, ...]] | None = None
        """The last state written to disk."""
        self._evaluations: Evaluations | None = None
        self._making: dict[str, Task[object]] = {}
        """Who makes the evaluations that go on only while somebody follows them, by id."""
        self._turn = Lock()
        """One of them is made at a time."""

    @property
    def run(self) -> Run:
        """The followed model's run, as it is on the screen."""
        return Run() if self._follower is None else self._follower.run

    @property
    def freshness(self) -> Liveness:
        """How fresh `run` is."""
        return CONNECTING if self._follower is None else self._follower.freshness

    @property
    def followed(self) -> Follower:
        """The model that is followed; for code that runs only once one is."""
        assert self._follower is not None
        return self._follower

    @property
    def replays(self) -> bool:
        """Whether a recording or a demo is played, which keeps less than a service does."""
        return self.mode == "replay"

    @property
    def playback(self) -> Playback | None:
        """The time of what is played; None where a service is followed."""
        return self.client.playback if isinstance(self.client, ReplayClient) else None

    def replay(self, change: Callable[[Playback], None]) -> None:
        """Change what is played, and how; back in time, the run is read anew."""
        playback, model = self.playback, self.run.model
        if playback is None or model is None:
            return
        before = playback.now
        change(playback)
        if playback.now < before:
            self.choose(model, Run(model=model))

    @property
    def alarms(self) -> AlarmWatch:
        """Detectors of the selected model, with acknowledgements."""
        return self.followed.alarms

    @property
    def journal(self) -> Journal:
        """Where the followed model's head was set in this session, for undoing it."""
        return self.followed.journal

    @property
    def notebook(self) -> Notebook:
        """Notes and head moves of the selected model."""
        model = self.run.model
        key = "" if model is None else model.id
        if key not in self._notebooks:
            place = self.store.directory
            kept = notebook_file(place, key) if place is not None and key else None
            self._notebooks[key] = Notebook(kept)
        return self._notebooks[key]

    @property
    def scope(self) -> str | None:
        """Names what is kept of this account of this service; None where nothing is."""
        if self.store.directory is None or self.replays:
            return None
        settings = self.client.settings
        service = LOCAL if settings.local else settings.api_url
        try:
            return scope_of(self.store.directory, service, settings.api_key)
        except HudUsage as error:
            self.store.say(f"{error.message}. Nothing is saved for this account: {error.hint}.")
            return None

    async def runs(self) -> Mapping[str, RunRow]:
        """The rows of all runs by id, loops driven from outside among them; none of a service
        that has no list of them, where each would cost requests. As they were where it does not
        answer."""
        if self.replays or not self.client.settings.local:
            return {}
        if self._runs is None or self._runs[0] is not self.client:
            self._runs = self.client, RunList(self.client)
        with suppress(HudError):
            await self._runs[1].read()
        return {row.id: row for row in self._runs[1].rows}

    def choose(self, model: Model, known: Run | None = None, known_at: float | None = None) -> None:
        """Follow this model from now on.

        Args:
            model: The model.
            known: What another session kept of it, where the service does not answer.
            known_at: Unix seconds that this is as of.
        """
        journal = self._journals.get(model.id)
        if journal is None:
            journal = self._journals[model.id] = Journal(tell=self._note_move)
        if self.run.model is None or self.run.model.id != model.id:
            self.at = None
        alarms = AlarmWatch(self._thresholds, AlarmBook(self.store, model.id))
        self._follower = Follower(
            self.client, known or self.run, model, journal, alarms, known_at, self.clock
        )
        self._follower.playback = self.playback
        if self._recorder is not None:
            self._recorder.model(model)
        self._owner.model_chosen(model)
        self._owner.session_changed()

    def reconnect(self, client: HudClient) -> None:
        """Take another client in place of the one that is lost, and follow on."""
        self.client, self._reconnected, self._evaluations = client, True, None
        if self.run.model is not None:
            self.choose(self.run.model)

    # Evaluations: the embedded service makes them itself; elsewhere they are made from here.

    @property
    def evaluations(self) -> Evaluations:
        """Those of the present client's service."""
        if self._evaluations is None:
            self._evaluations = Evaluations(self.client, self._evaluations_folder)
        return self._evaluations

    def _evaluations_folder(self) -> Path | None:
        place = self.store.directory
        return None if place is None else place / "evaluations"

    async def read_evaluations(self) -> None:
        """Read what is known of the followed model's evaluations, those of what it started from
        included; what a service does not tell is not shown."""
        model = self.run.model
        if model is None or self.replays:
            return
        with suppress(HudError):
            found = tuple(map(self._as_it_stands, await self.evaluations.of_model(model)))
            if self.run.model is not None and self.run.model.id == model.id:
                self.fold(EvaluationsRead(evaluations=found))

    def _as_it_stands(self, one: EvaluationJob) -> EvaluationJob:
        """One that is made from here, and that nobody makes at the moment, was cut short."""
        here = one.id not in self._making and self.evaluations.is_made_here(one.id)
        if has_ended(one.status) or not here:
            return one
        return one.model_copy(update={"status": "interrupted"})

    def show_evaluation(self, now: EvaluationJob) -> None:
        """Show how an evaluation stands, where its model is followed."""
        model = self.run.model
        if model is not None and model.id == now.model_id:
            self.fold(EvaluationChanged(at=self.clock(), evaluation=now))

    def begin_evaluation(self, begun: EvaluationJob) -> None:
        """Show one that was asked for; have it made, where the service does not."""
        self.show_evaluation(begun)
        if self.evaluations.is_made_here(begun.id):
            self._owner.evaluation_begun(begun.id)

    async def make_evaluation(self, evaluation_id: str) -> None:
        """Make one, in its turn, and show how far it is; cancelled, it can be resumed.

        Raises:
            HudError: It failed.
        """
        task = current_task()
        if task is not None:
            self._making[evaluation_id] = task
        try:
            async with self._turn, aclosing(self.evaluations.follow(evaluation_id)) as followed:
                async for now in followed:
                    self.show_evaluation(now.model_copy(update={"groups": []}))
        finally:
            self._making.pop(evaluation_id, None)
            with suppress(HudError):  # it is on this disk
                left = await self.evaluations.get(evaluation_id, groups=False)
                self.show_evaluation(self._as_it_stands(left).model_copy(update={"groups": []}))

    @property
    def making(self) -> list[EvaluationJob]:
        """Evaluations that end with the app."""
        return [one for id_, one in self.run.evaluations.items() if id_ in self._making]

    async def cancel_evaluation(self, evaluation_id: str) -> None:
        """Stop one between two rollouts; what is made is kept. Raises HudError."""
        task = self._making.get(evaluation_id)
        if task is not None:
            await _cancelled(task)
        await self.evaluations.cancel(evaluation_id)
        self.show_evaluation(await self.evaluations.get(evaluation_id, groups=False))

    async def resume_evaluation(self, evaluation_id: str) -> None:
        """Have what is missing of one sampled. Raises HudError."""
        self.begin_evaluation(await self.evaluations.resume(evaluation_id))

    async def stop_making(self) -> None:
        """End what is made from here, on the way out; it can be resumed."""
        await gather(*map(_cancelled, list(self._making.values())))

    async def follow(self) -> None:
        """Fold the model's events for ever.

        Raises:
            HudUnauthorized: The key is not accepted any more.
            HudNotFound: The model is gone.
        """
        await self.followed.follow(self._hear)

    def frame(self) -> None:
        """Show what has come since the last frame, and judge it."""
        follower = self._follower
        if follower is None or not follower.frame():
            return
        self._owner.session_changed()
        if follower.alarms.behind and self._judging is not follower:
            self._judging = follower
            self._owner.has_to_judge()
        if news := follower.alarms.news():
            self._owner.alarms_raised(news)
        self._tell_end(follower.run)
        self._tell_offline(follower.freshness.offline)

    async def judge(self) -> None:
        """Judge a long run slice by slice, until its newest step is judged."""
        follower = self.followed
        while follower.alarms.behind:
            follower.judge()
            await sleep(JUDGE_PAUSE_S)
        self._judging = None

    def catch_up(self) -> Run:
        """Show at once what the next frame would."""
        self.frame()
        return self.run

    def fold(self, event: Event) -> Run:
        """Take in what was read outside the feed, and show it at once."""
        if self._recorder is not None:
            self._recorder.event(event)
        run = self.followed.fold(event)
        self.frame()
        return run

    def renew_alarms(self) -> None:
        """Show an acknowledgement or a snooze at once."""
        self.alarms.renew()
        self.catch_up()

    def _tell_end(self, run: Run) -> None:
        """Tell once that the run that was training has ended."""
        job, before = run.job, self._training
        self._training = job.id if job is not None and run.training else None
        if job is not None and before is not None and job.id == before and not run.training:
            self._owner.run_ended(job)

    def _tell_offline(self, offline: bool) -> None:
        """Shut or open the client's guard, when the service stops answering or answers again."""
        if offline == self._offline:
            return
        self._offline = offline
        why = replace(NO_ANSWER, cure=keyed(NO_ANSWER.cure))
        self.client.wire.guard.set_offline(why if offline else None)
        if not offline:
            self._owner.service_came_back()

    def _note_move(self, move: Move) -> None:
        with suppress(OSError):  # undo has it all the same; the notebook is for the next session
            self.notebook.add(move)

    def _hear(self, event: Event) -> None:
        """Tell what the user must know whatever is on the screen."""
        if self._recorder is not None:
            self._recorder.event(event)
        if isinstance(event, HeadMoved) and (move := self.journal.observe(event)) is not None:
            self._owner.head_moved_elsewhere(move)
        elif isinstance(event, JobChanged) and self._reconnected:
            self._reconnected, job = False, event.job
            shut = self.client.wire.guard.read_only is not None
            if job.status == "interrupted" and job.id not in self._offered and not shut:
                self._offered.add(job.id or "")
                self._owner.run_interrupted(job)

    @property
    def kept_in(self) -> Path | None:
        """The file in which the service's state is kept; None where it is not: what the embedded
        service knows is on this machine already."""
        if self.client.settings.local or self.mode != "hud":
            return None
        directory, scope = self.store.directory, self.scope
        return None if directory is None or scope is None else file_of(directory, scope)

    async def keep_last_known(self) -> None:
        """Keep what is known, now and then, for ever."""
        while True:
            began = monotonic()
            await self.keep_now()
            await sleep(max(KEEP_S, KEEP_SHARE * (monotonic() - began)))

    async def keep_now(self) -> None:
        """Keep what is known, where it is new."""
        file, run, settings = self.kept_in, self.run, self.client.settings
        if file is None or run.model is None or not run.loaded:
            return
        if self.freshness.offline or self._kept == (run, self.catalog):
            return
        self._kept = (run, self.catalog)
        tree = tuple(run.tree[position] for position in range(len(run.tree)))
        at = self.clock() - (self.freshness.age_s or 0)
        known = LastKnown(at, self.catalog, run.model, tree, run.job)
        await to_thread(write_last_known, file, settings.api_url, known, settings.api_key)

    def read_kept(self) -> LastKnown | None:
        """What was kept of the service; None where nothing was."""
        file = self.kept_in
        return None if file is None else read_last_known(file, self.client.settings.api_url)


async def _cancelled(task: Task[object]) -> None:
    """Cancel a task, and wait for its end."""
    task.cancel()
    await wait({task})


class Follower:
    """What is known of the model that is followed, and how fresh that is."""

    def __init__(
        self,
        client: HudClient,
        run: Run,
        model: Model,
        journal: Journal,
        alarms: AlarmWatch,
        known_at: float | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        """
        Args:
            client: The service.
            run: What is known already; of the same model it stays on the screen meanwhile.
            model: The model to follow.
            journal: Where its head was set so far.
            alarms: The detectors that judge its run.
            known_at: Unix seconds that `run` is as of, where it was kept from another session
                because the service does not answer; else None.
            clock: Unix seconds.
        """
        known = run.model is not None and run.model.id == model.id
        self.run = replace(run, model=model) if known else Run(model=model)
        self.freshness = CONNECTING
        self.journal, self.alarms = journal, alarms
        self._known_at, self._clock = known_at, clock
        self._lost_at: float | None = None
        """`time.monotonic()` since when the service does not answer; None while it does."""
        self._gone = keyed(GONE if client.settings.local else UNREACHABLE)
        self._feed = client.feed(model.id)
        self.playback: Playback | None = None
        """The time of a replay: while it stands still, nothing is silent."""
        self._latest = self.run
        self._event_at: float | None = None
        self._aside = False
        """Whether a large tree is being taken in, which what was known is no part of yet."""

    async def follow(self, hear: Callable[[Event], None]) -> None:
        """Fold events for ever; tell of each.

        Raises:
            HudUnauthorized: The key is not accepted any more.
            HudNotFound: The model is gone.
        """
        turn = monotonic()
        async for event in self._feed:
            if isinstance(event, TreeRead) and len(event.checkpoints) > MANY:
                await self._fold_aside(event)
            else:
                self.fold(event)
            self._event_at = monotonic()
            hear(event)
            if self._event_at - turn > TURN_S:  # many came at once: a key goes before the next
                await sleep(0)
                turn = monotonic()

    def fold(self, event: Event) -> Run:
        """Take in an event; the next frame shows it."""
        self._latest = self._latest.fold(event)
        return self._latest

    async def _fold_aside(self, event: TreeRead) -> None:
        """Take in a large tree while keys are answered."""
        self._aside, before = True, self._latest
        try:
            run = await to_thread(before.fold, event)
        finally:
            self._aside = False
        self._latest = run if self._latest is before else self._latest.fold(event)

    def frame(self) -> bool:
        """Take what has come since the last frame; whether there is anything to repaint."""
        self.judge()
        run, freshness = self._latest, self._judge(monotonic())
        news = run is not self.run or freshness != self.freshness
        self.run, self.freshness = run, freshness
        return news

    def judge(self) -> None:
        """Let the detectors continue; the next frame shows the report."""
        if self._aside:
            return
        report = self.alarms.look(self._latest, _whole(self._silent_s))
        if report is not self._latest.alarms:
            self._latest = replace(self._latest, alarms=report)

    @property
    def _silent_s(self) -> float | None:
        """Seconds of training in which the service spoke, but of no event. A line on which
        nothing comes at all says nothing of the run."""
        if self._event_at is None or not self._latest.training:
            return None
        if self.playback is not None and self.playback.paused:
            self._event_at = monotonic()
            return None
        return max(0.0, (self._feed.heard_at or self._event_at) - self._event_at)

    def _judge(self, now: float) -> Liveness:
        """Ages in whole seconds: a screen that shows them repaints once a second at most."""
        feed, run, silent = self._feed, self._latest, self._silent_s
        judged = liveness(
            feed.source,
            _whole(
                None if feed.heard_at is None else now - feed.heard_at,
                1 if run.training or feed.trouble or feed.reading else IDLE_S,
            ),
            feed.trouble,
            _whole(None if feed.retry_at is None else feed.retry_at - now),
            silent,
            step_seconds(run) if silent else None,
        )
        self._lost_at = (self._lost_at or now) if judged.state is State.RECONNECTING else None
        if feed.reading is not None:
            judged = replace(judged, reading=reading_said(*feed.reading))
        if feed.behind_s >= BEHIND_S:
            judged = replace(judged, behind_s=_whole(feed.behind_s) or 0)
        kept = self._known_at is not None and feed.heard_at is None
        if kept or (self._lost_at is not None and now - self._lost_at > LOST_S):
            return self._offline(judged.source, now)
        return replace(judged, age_s=_whole(silent)) if judged.state is State.STALLED else judged

    def _offline(self, source: str, now: float) -> Liveness:
        heard = self._feed.heard_at
        at = self._known_at if heard is None else floor(self._clock() - (now - heard))
        at = self.freshness.as_of if self.freshness.as_of and self.freshness.offline else at
        trouble = self._feed.trouble
        return Liveness(State.RECONNECTING, source, None, trouble, advice=self._gone, as_of=at)


def _whole(seconds: float | None, step: int = 1) -> float | None:
    return None if seconds is None else max(0, floor(seconds) // step * step)


@dataclass(frozen=True)
class Opening:
    """The view the app opens on, and the model it follows."""

    view: str
    model: Model | None
    """To follow; None where there is none of one's own yet."""
    trouble: HudError | None = None
    """Why it is not the requested one."""
    models: tuple[Model, ...] = ()
    """The catalog, as it was read."""


async def opening(client: HudClient, start: Start, left: Layout) -> Opening:
    """Decide from what the command line named, then from how the app was left, then from the
    newest job, then the newest fork.

    Raises:
        HudError: The service cannot be asked.
    """
    models = await client.models()
    try:
        model = await _named(client, start, models) or _last(start, left, models)
    except (HudUsage, HudRefused) as error:
        return Opening("models", await _usual(client, models), error, tuple(models))
    model = model or await _usual(client, models)
    view = _view(start, left)
    if model is None and (start.again or view in ("live", "checkpoints")):
        view = "models"
    return Opening(view, model, models=tuple(models))


def _view(start: Start, left: Layout) -> str:
    return left.view if start.again else start.view


def _last(start: Start, left: Layout, models: list[Model]) -> Model | None:
    """The model that was followed last, unless the command is about the newest run's.

    Raises:
        HudUsage: It is gone, and the app was to open on it.
    """
    if not left.model or (start.command == "status" and not start.again):
        return None
    found = next((model for model in models if model.id == left.model), None)
    if found is None and start.again:
        name = one_line(left.model_name or left.model, 60)
        raise HudUsage(f"{name}, selected last time, no longer exists: choose another model")
    return found


def opening_offline(known: LastKnown, start: Start, left: Layout) -> Opening:
    """The same from the last known state, where the service does not answer.

    Raises:
        HudUsage: The model that the command line names is not in it.
    """
    models = list(known.models) or [known.model]
    model = known.model
    if start.model or (start.ref and start.command == "status"):
        model = find_model(start.model or start.ref or "", models)
    return Opening(_view(start, left), model, models=tuple(models))


async def _named(client: HudClient, start: Start, models: list[Model]) -> Model | None:
    """The model that was named, or that of the job that was.

    Raises:
        HudUsage: Nothing is called so.
    """
    if start.model:
        return find_model(start.model, models)
    if not start.ref:
        return None
    try:
        return find_model(start.ref, models)
    except HudUsage:
        return _model_of(await client.job(start.ref), models)


async def _usual(client: HudClient, models: list[Model]) -> Model | None:
    try:
        jobs = await client.jobs(1)
    except HudRefused:
        jobs = []  # a service without jobs still has models
    found = _model_of(jobs[0], models) if jobs else None
    return found or next(iter(own(models)), None)


def _model_of(job: Job, models: list[Model]) -> Model | None:
    """The model that a managed run trains, where it is in the catalog."""
    wanted = job_model_id(job)
    return next((model for model in models if model.id == wanted), None)


# Alarms: the detectors of the followed run, and what the user acknowledged and snoozed, kept in a
# JSON file for each model.


SNOOZE = 100
"""Steps for which a snoozed detector raises no alarm."""
MOST_ACKNOWLEDGED = 500
"""Acknowledged alarms that are remembered, the newest."""
EXPECTED = {list: "a list of alarms' ids", dict: "an object, {…}"}


class AlarmBook:
    """Acknowledged alarms and snoozed detectors of one model."""

    def __init__(self, store: JsonStore, model_id: str) -> None:
        self._store = store
        self._name = f"alarms-{sha256(model_id.encode()).hexdigest()[:16]}"
        kept = store.read(self._name)
        seen, snoozed = kept.get("acknowledged"), kept.get("snoozed")
        for name, kind in (("acknowledged", list), ("snoozed", dict)):
            if not isinstance(kept.get(name, kind()), kind):
                store.leave(self._name, f"{name}: expected {EXPECTED[kind]}")
        ids = seen if isinstance(seen, list) else []
        steps = snoozed if isinstance(snoozed, dict) else {}
        self._seen = dict.fromkeys(id_ for id_ in ids[-MOST_ACKNOWLEDGED:] if isinstance(id_, str))
        self._until = {name: n for name, n in steps.items() if type(n) is int}

    def quiet(self, report: Report) -> frozenset[str]:
        """Ids of the report's alarms that are acknowledged or snoozed now."""
        return frozenset(
            alarm.id
            for alarm in report.alarms
            if alarm.id in self._seen or self.snoozed_until(alarm.name) > report.steps
        )

    def is_acknowledged(self, alarm: Alarm) -> bool:
        return alarm.id in self._seen

    def snoozed_until(self, name: str) -> int:
        """The step count at which a detector raises alarms again; 0 where it is not snoozed."""
        return self._until.get(name, 0)

    def acknowledge(self, alarm: Alarm) -> bool:
        """Toggle whether an alarm is acknowledged; returns whether it is now."""
        if alarm.id in self._seen:
            del self._seen[alarm.id]
        else:
            self._seen[alarm.id] = None
        self._keep()
        return alarm.id in self._seen

    def snooze(self, alarm: Alarm, steps: int) -> int:
        """Snooze an alarm's detector after so many steps, or wake it; until when, 0 for awake."""
        if self.snoozed_until(alarm.name) > steps:
            del self._until[alarm.name]
        else:
            self._until[alarm.name] = steps + SNOOZE
        self._keep()
        return self.snoozed_until(alarm.name)

    def _keep(self) -> None:
        values = {"acknowledged": list(self._seen)[-MOST_ACKNOWLEDGED:], "snoozed": self._until}
        self._store.write(self._name, values)


SLICE = 100
"""Steps judged at a time: about 5 ms."""


class AlarmWatch:
    """Detectors of one model's run, with what the user acknowledged and snoozed."""

    def __init__(self, thresholds: Thresholds | None, book: AlarmBook) -> None:
        self.book = book
        self.report = Report()
        self._monitor = AlarmMonitor(thresholds)
        self._silent_s: float | None = None
        self._loaded = False
        self._told: dict[str, Level] | None = None
        """Alarms already announced; None until the run was read for the first time."""

    @property
    def behind(self) -> bool:
        """Whether there are steps left to be judged."""
        return self._monitor.behind > 0

    def look(self, run: Run, silent_s: float | None) -> Report:
        """Judge the next slice; the same report where nothing is new.

        Args:
            run: As it is now.
            silent_s: Whole seconds since its last event; None where it does not train.
        """
        self._loaded = run.loaded
        fresh = self._monitor.follow(run.tree, run.job, SLICE)
        if fresh or silent_s != self._silent_s:
            self._silent_s = silent_s
            self.renew()
        return self.report

    def renew(self) -> None:
        """Make the report anew: a step was evaluated, or the user acknowledged or snoozed."""
        report = self._monitor.report(self._silent_s)
        report = replace(report, quiet=self.book.quiet(report))
        if report != self.report:
            self.report = report

    def news(self) -> list[Alarm]:
        """Alarms raised or worse since the last call; those of the first reading are none."""
        if self.behind or not self._loaded:
            return []
        found = [alarm for alarm in self.report.loud if alarm.level is not Level.INFO]
        told, self._told = self._told, {alarm.id: alarm.level for alarm in found}
        if told is None:
            return []
        return [
            alarm
            for alarm in found
            if alarm.id not in told or alarm.level.rank > told[alarm.id].rank
        ]
