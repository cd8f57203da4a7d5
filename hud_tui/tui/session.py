"""RunSession: the selected model with its run, freshness, alarms, evaluations and head history.

It lives as long as the app is connected and knows no screen. Its owner runs `follow`,
`detect_alarms` and `keep_saving` as workers, calls `frame` four times per second, and is told of
what the user should see (`SessionOwner`).
"""

from __future__ import annotations

from asyncio import Lock, Task, create_task, current_task, gather, shield, sleep, to_thread, wait
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from math import floor
from pathlib import Path
from time import monotonic, time
from typing import Protocol

from hud_tui.client.client import HudClient
from hud_tui.client.evaluate import Evaluations
from hud_tui.client.history import read_moves
from hud_tui.client.records import Record
from hud_tui.client.replay import Playback, Recorder, ReplayClient
from hud_tui.config import NO_ANSWER
from hud_tui.errors import HudError, HudUsage
from hud_tui.events import (
    EvaluationsRead,
    Event,
    HeadMoved,
    RolloutDone,
    TreeRead,
    WorkChanged,
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
from hud_tui.rl.alarms.alarm import Alarm
from hud_tui.rl.alarms.thresholds import Thresholds
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.progress import Liveness, State, download_text, liveness, step_seconds
from hud_tui.rl.run import Run
from hud_tui.rl.runs import silent_s
from hud_tui.rl.sweep import Sweep
from hud_tui.rl.work import Work, has_ended
from hud_tui.rollouts.control import works_of
from hud_tui.service_file import machine_in
from hud_tui.storage import JsonStore
from hud_tui.tui.alarms import AlarmBook, AlarmWatch
from hud_tui.wire import Model, WorkState
from hud_tui.wire_time import RunTime

IDLE_S = 10
"""Resolution of the displayed age while nothing trains, seconds. Keep-alives arrive more often, so
an idle screen is not repainted."""
LOOK_S = 30.0
"""Longest time between two looks for a loop that trains the selected model, seconds."""
TURN_S = 0.002
"""Longest run of events processed without yielding to keys. A key takes several turns."""
MANY = 1000
"""Checkpoints from which a tree is folded in a thread."""
BEHIND_S = 5.0
"""Smallest delay of the events behind the service that is shown."""
LOST_S = 2.0
"""Seconds without a connection before the screen counts as offline."""
GONE = "service gone · {app.reconnect} starts it"
UNREACHABLE = "unreachable · retrying · {app.reconnect} tries now"
CONNECTING = Liveness(State.CONNECTING, "connecting", None)
SAVE_S = 5.0
"""Shortest pause between two saves of the last known state."""
SAVE_SHARE = 20
"""Saving takes at most 1/SAVE_SHARE of the time."""
DETECT_PAUSE_S = 0.01
"""Pause for keys and repaints between two slices of a long run."""
LOCAL = "local"
"""Scope name of the embedded service, whose port changes with every start."""


class SessionOwner(Protocol):
    """Is told what happens to the selected model."""

    def model_chosen(self, model: Model) -> None:
        """Another model is selected: run `RunSession.follow` anew."""

    def session_changed(self) -> None:
        """The run or its freshness changed."""

    def detection_behind(self) -> None:
        """The detectors have many steps left: run `RunSession.detect_alarms`."""

    def alarms_raised(self, alarms: list[Alarm]) -> None:
        """These alarms are new, or more severe than before."""

    def run_ended(self, job: WorkState) -> None:
        """The run that was training has ended."""

    def run_interrupted(self, job: WorkState) -> None:
        """A shutdown of the service interrupted this run; called once per run."""

    def head_moved_elsewhere(self, move: HeadMoved) -> None:
        """Another client set the head."""

    def moves_missed(self) -> None:
        """Moves of the head may be unknown: run `RunSession.read_history`."""

    def service_came_back(self) -> None:
        """The service answers again after it was offline."""

    def evaluation_begun(self, evaluation_id: str) -> None:
        """The app has to sample or watch an evaluation: run `EvaluationRunner.run`."""


@dataclass
class Spending:
    """What rollouts are sampled for."""

    record: Record
    under_way: WorkState | None = None
    """The evaluation that is being made."""
    stopped: bool = False
    """Whether the user stopped it."""


@dataclass(eq=False)
class RunSession:
    """The selected model of one connection; `choose` selects it."""

    client: HudClient
    mode: str
    """``local``, ``hud`` or ``replay``."""
    owner: SessionOwner
    store: JsonStore
    """Keeps acknowledged alarms, notes and the last known state."""
    clock: Callable[[], float] = time
    """Unix seconds."""
    thresholds: Thresholds | None = None
    """Of the alarms' detectors; None for the defaults."""
    recorder: Recorder | None = None
    """Writes the events to a file; None without ``--record``."""

    def __post_init__(self) -> None:
        self.works = works_of(self.client, self.store.directory)
        self.evaluation_runner = EvaluationRunner(self)
        self.catalog: tuple[Model, ...] = ()
        self.first_fork: str | None = None
        """Id of the model that the first start forked; its first run starts without a dialog."""
        self.sweeps: dict[str, Sweep] = {}
        """Sweeps submitted from this app and still in progress, by id."""
        self.spending: dict[str, Spending] = {}
        """What this app samples for, by the record's id."""
        self.checkpoint_id: str | None = None
        """Id of the checkpoint under the crosshair, in every view; None for the newest."""
        self.opened: Alarm | None = None
        """The alarm whose metric Live is to enlarge next."""
        self.loop: Work | None = None
        """The loop that trains the selected model from outside, as `find_loop` found it."""
        self._loop_tree: Tree | None = None
        """The tree when `find_loop` last asked."""
        self._loop_read_at = 0.0
        self._follower: Follower | None = None
        self._detecting: Follower | None = None
        """The follower whose long run `detect_alarms` is reading."""
        self.sent_to: str | None = None
        """Id of the checkpoint that the head is being set to here, until an event tells of it."""
        self._followed_from = 0.0
        """Unix seconds since when the selected model is followed."""
        self._notebooks: dict[str, Notebook] = {}
        self._training: str | None = None
        """Id of the job that was training in the last frame."""
        self._offline = False
        """Whether the service was offline in the last frame."""
        self._reconnected = False
        """Whether no event of the job has arrived since the reconnect."""
        self._offered: set[str] = set()
        """Ids of interrupted jobs that the owner was told of."""
        self._saved: tuple[Run, tuple[Model, ...]] | None = None
        """The last known state as last saved."""
        self._saving: Task[None] | None = None

    @property
    def run(self) -> Run:
        return Run() if self._follower is None else self._follower.run

    @property
    def freshness(self) -> Liveness:
        return CONNECTING if self._follower is None else self._follower.freshness

    @property
    def followed(self) -> Follower:
        """The follower of the selected model; only once a model is selected."""
        assert self._follower is not None
        return self._follower

    @property
    def replays(self) -> bool:
        return self.mode == "replay"

    @property
    def where(self) -> str:
        """Where runs go on when the app quits."""
        if self.mode == "local":
            return "in the background"
        return f"on {self.client.settings.label}" if self.mode == "host" else "on HUD"

    @property
    def machine(self) -> str:
        """Name of the machine that the open service trains on; empty: this one, or HUD."""
        data = self.client.settings.data_dir if self.mode == "local" else ""
        return machine_in(Path(data))

    @property
    def playback(self) -> Playback | None:
        """The replay's clock; None with a service."""
        return self.client.playback if isinstance(self.client, ReplayClient) else None

    def replay(self, change: Callable[[Playback], None]) -> None:
        """Change the playback; after a jump back in time, the run is read anew."""
        playback, model = self.playback, self.run.model
        if playback is None or model is None:
            return
        before = playback.now
        change(playback)
        if playback.now < before:
            self.choose(model, Run(model=model))

    @property
    def alarms(self) -> AlarmWatch:
        return self.followed.alarms

    @property
    def notebook(self) -> Notebook:
        """Notes on the selected model, and moves of its head that its service does not keep."""
        model = self.run.model
        key = "" if model is None else model.id
        if key not in self._notebooks:
            directory = self.store.directory
            file = notebook_file(directory, key) if directory is not None and key else None
            self._notebooks[key] = Notebook(file)
        return self._notebooks[key]

    @property
    def scope(self) -> str | None:
        """Name of this account's folder in the state directory; None if nothing is saved."""
        if self.store.directory is None or self.replays:
            return None
        settings = self.client.settings
        service = LOCAL if settings.local else settings.api_url
        try:
            return scope_of(self.store.directory, service, settings.api_key)
        except HudUsage as error:
            self.store.warn(f"{error.message}. Nothing is saved for this account: {error.hint}.")
            return None

    async def runs(self) -> Mapping[str, Work]:
        """The rows of all runs by id, training loops included, as last read if the service does
        not answer. Empty with HUD, where listing the runs costs one request each."""
        if self.replays or not self.client.settings.embedded:
            return {}
        runs = self.works.runs
        with suppress(HudError):
            await runs.read()
        return {run.id: run for run in map(self.at_newest, runs.rows)}

    def at_newest(self, run: Work) -> Work:
        """A run of a list; the followed one at the step of the events, which are ahead."""
        job = self.run.job
        if job is None or job.id != run.id or (job.step or 0) <= (run.done or 0):
            return run
        return replace(run, done=job.step)

    @property
    def measured_id(self) -> str | None:
        """What the time of the model's steps is known by: its run, or loop, or the model."""
        run, loop = self.run, self.loop
        if run.job is not None:
            return run.job.id
        if loop is not None:
            return loop.id
        return None if run.model is None else run.model.id

    async def run_time(self, most: int = 500) -> RunTime | None:
        """Where the time of the newest steps went; None if the service does not say."""
        run_id = self.measured_id
        with suppress(HudError):
            return None if run_id is None else await self.client.runs.run_time(run_id, most)
        return None

    async def find_loop(self) -> None:
        """Look for the loop that trains the selected model from outside, where no managed run
        does. Without an active one the service is asked where the tree has changed, else seldom:
        a loop's step changes the tree."""
        run, mine = self.run, None
        active = self.loop is not None and self.loop.is_active
        unchanged = run.tree is self._loop_tree and monotonic() - self._loop_read_at < LOOK_S
        if self.freshness.offline or (unchanged and not active):
            return
        if run.loaded and run.job is None and run.model is not None and len(run.tree):
            self._loop_tree, self._loop_read_at = run.tree, monotonic()
            rows = (await self.runs()).values()
            loops = (row for row in rows if row.is_loop)
            mine = next((loop for loop in loops if loop.model_id == run.model.id), None)
        self.loop = mine
        if self._follower is not None:
            self._follower.loop = mine

    def choose(self, model: Model, known: Run | None = None, known_at: float | None = None) -> None:
        """Select a model. `known` is its last known run from disk, if the service does not answer,
        of `known_at` in Unix seconds; without it, what is displayed keeps its date while offline.
        """
        self._follow(model, known or self.run, known_at or self.freshness.as_of)

    def _follow(self, model: Model, run: Run, known_at: float | None) -> None:
        self._followed_from = self.clock()
        if self.run.model is None or self.run.model.id != model.id:
            self.checkpoint_id = self.loop = self.sent_to = None
        alarms = AlarmWatch(self.thresholds, AlarmBook(self.store, model.id))
        self._follower = Follower(
            self.client, run, model, alarms, known_at, self.clock, self.playback
        )
        if self.recorder is not None:
            self.recorder.model(model)
        self.owner.model_chosen(model)
        self.owner.session_changed()

    def reconnect(self, client: HudClient) -> None:
        """Replace the lost client, and follow the selected model with the new one."""
        self.client, self._reconnected = client, True
        self.works = works_of(client, self.store.directory)
        if self.run.model is not None:
            self._follow(self.run.model, self.run, None)

    @property
    def evaluations(self) -> Evaluations:
        return self.works.evaluations

    async def follow(self) -> None:
        """Fold the model's events until cancelled. Raises HudUnauthorized: the key is no longer
        accepted; HudNotFound: the model was deleted."""
        await self.followed.follow(self._on_event)

    def frame(self) -> None:
        """Display the events since the last frame, and tell the owner what they mean."""
        follower = self._follower
        if follower is None or not follower.frame():
            return
        self.owner.session_changed()
        if follower.alarms.behind and self._detecting is not follower:
            self._detecting = follower
            self.owner.detection_behind()
        if news := follower.alarms.news():
            self.owner.alarms_raised(news)
        job, before = follower.run.job, self._training
        self._training = job.id if job is not None and follower.run.training else None
        if job is not None and job.id == before != self._training:
            self.owner.run_ended(job)
        self._report_offline(follower.freshness.offline)

    async def detect_alarms(self) -> None:
        """Let the detectors read a long run slice by slice, up to its newest step."""
        follower = self.followed
        while follower.alarms.behind:
            follower.detect_alarms()
            await sleep(DETECT_PAUSE_S)
        self._detecting = None

    def catch_up(self) -> Run:
        """Display at once what the next frame would; returns the run."""
        self.frame()
        return self.run

    def fold(self, event: Event) -> Run:
        if self.recorder is not None:
            self.recorder.event(event)
        run = self.followed.fold(event)
        self.frame()
        return run

    def renew_alarms(self) -> None:
        self.alarms.renew()
        self.catch_up()

    def _report_offline(self, offline: bool) -> None:
        """Refuse writes while the service is offline."""
        if offline == self._offline:
            return
        self._offline = offline
        why = replace(NO_ANSWER, cure=keyed(NO_ANSWER.cure))
        self.client.wire.guard.set_offline(why if offline else None)
        if not offline:
            self.owner.service_came_back()

    async def read_history(self) -> None:
        """Read all moves of the selected model's head; errors are ignored."""
        model = self.run.model
        if model is None or self.replays:
            return
        state, seen_from = self.store.directory, self._followed_from
        with suppress(HudError):
            moves = await read_moves(self.client, model.id, state, seen_from)
            if self.run.model is not None and self.run.model.id == model.id:
                self.fold(moves)

    def _tell_of_move(self, move: HeadMoved) -> None:
        """Announce a move that somebody else made; keep one that the service does not."""
        if move.cause != "set" or move.checkpoint_id in (None, move.previous):
            return
        if move.checkpoint_id == self.sent_to and self.client.actor.claims(move.by):
            self.sent_to = None
            return
        if move.by is None and not self.replays:
            with suppress(OSError):  # it is for the next session
                self.notebook.add(move)
        self.owner.head_moved_elsewhere(move)

    def _on_event(self, event: Event) -> None:
        """Record an event, and tell the owner of those that matter in every view."""
        if self.recorder is not None:
            self.recorder.event(event)
        if isinstance(event, TreeRead):
            self.owner.moves_missed()
        elif isinstance(event, HeadMoved):
            self._tell_of_move(event)
        elif self._reconnected and isinstance(event, WorkChanged) and event.run is not None:
            self._reconnected, job = False, event.run
            shut = self.client.wire.guard.read_only is not None
            if job.status == "interrupted" and job.id not in self._offered and not shut:
                self._offered.add(job.id or "")
                self.owner.run_interrupted(job)

    # The last known state on disk, for a start while the service does not answer.

    @property
    def _last_known_file(self) -> Path | None:
        """None if nothing is saved: the embedded service's data is on this machine already."""
        if self.client.settings.local or self.mode not in ("hud", "host"):
            return None
        directory, scope = self.store.directory, self.scope
        return None if directory is None or scope is None else file_of(directory, scope)

    async def keep_saving(self) -> None:
        """Save the last known state every few seconds until cancelled."""
        while True:
            began = monotonic()
            await self.save_last_known()
            await sleep(max(SAVE_S, SAVE_SHARE * (monotonic() - began)))

    async def save_last_known(self) -> None:
        """Save the last known state if it changed. A save that has begun ends, also if the caller
        is cancelled, before the next one begins."""
        if self._saving is not None:
            await wait([self._saving])
        file, run, settings = self._last_known_file, self.run, self.client.settings
        model, catalog = run.model, self.catalog
        if file is None or model is None or not run.loaded:
            return
        if self.freshness.offline or self._saved == (run, catalog):
            return
        read_at = self.clock() - (self.freshness.age_s or 0)

        def write() -> bool:
            state = LastKnown(read_at, catalog, model, run.tree, run.job)
            return write_last_known(file, settings.api_url, state, settings.api_key)

        async def save() -> None:
            if await to_thread(write):
                self._saved = (run, catalog)

        self._saving = create_task(save())
        await shield(self._saving)

    def read_last_known(self) -> LastKnown | None:
        file = self._last_known_file
        return None if file is None else read_last_known(file, self.client.settings.api_url)


class EvaluationRunner:
    """Evaluations of the selected model: reads and displays them, samples those that are made from
    HUD's rollouts, and watches those that a process on this machine makes."""

    def __init__(self, session: RunSession) -> None:
        self._session = session
        self._tasks: dict[str, Task[object]] = {}
        """Tasks that sample an evaluation from this app, by its id."""
        self._turn = Lock()
        """Only one evaluation is sampled at a time."""
        self._watched: set[str] = set()
        """Ids of those whose process is watched."""

    async def read(self) -> None:
        """Read the evaluations of the selected model and of its base; errors are ignored."""
        model = self._session.run.model
        if model is None or self._session.replays:
            return
        with suppress(HudError):
            read = await self._session.evaluations.of_model(model)
            evaluations = tuple(map(self._with_status, read))
            for evaluation in evaluations:
                is_apart = self._session.evaluations.is_apart(evaluation.id)
                if is_apart and not has_ended(evaluation.status):
                    self._session.owner.evaluation_begun(evaluation.id)
            selected = self._session.run.model
            if selected is not None and selected.id == model.id:
                self._session.fold(EvaluationsRead(evaluations=evaluations))

    def _with_status(self, evaluation: WorkState) -> WorkState:
        """An unfinished evaluation of this app that no task samples is interrupted."""
        id_ = evaluation.id
        here = id_ not in self._tasks and self._session.evaluations.is_made_here(id_)
        if has_ended(evaluation.status) or not here:
            return evaluation
        return evaluation.model_copy(update={"status": "interrupted"})

    def _show(self, evaluation: WorkState) -> None:
        model = self._session.run.model
        if model is not None and model.id == evaluation.model_id:
            work = evaluation.model_copy(update={"groups": []})
            self._session.fold(WorkChanged(at=self._session.clock(), work=work))

    def _known(self, evaluation_id: str) -> WorkState | None:
        """Display the events so far, and return what they say of an evaluation."""
        return self._session.catch_up().evaluations.get(evaluation_id)

    def begin(self, submitted: WorkState, before: WorkState | None = None) -> None:
        """Display a submitted evaluation, unless events about it came before the answer: then it is
        not as `before`. Have it sampled or watched if the service does not sample it."""
        if self._known(submitted.id) is before:
            self._show(submitted)
        evaluations = self._session.evaluations
        if evaluations.is_made_here(submitted.id) or evaluations.is_apart(submitted.id):
            self._session.owner.evaluation_begun(submitted.id)

    async def run(self, evaluation_id: str) -> None:
        """Sample an evaluation after those before it; it can be resumed. Raises HudError."""
        if self._session.evaluations.is_apart(evaluation_id):
            await self._watch(evaluation_id)
            return
        task = current_task()
        if task is not None:
            self._tasks[evaluation_id] = task
        try:
            async with self._turn, aclosing(self._session.works.follow(evaluation_id)) as followed:
                async for now in followed:
                    self._show(now)
        finally:
            self._tasks.pop(evaluation_id, None)
            with suppress(HudError):  # a file on this disk
                left = await self._session.evaluations.get(evaluation_id, groups=False)
                self._show(self._with_status(left))

    async def _watch(self, evaluation_id: str) -> None:
        """Display how an evaluation that another process makes goes on, as far as no event of the
        service tells; nothing if the service is lost, since the next `read` watches again."""
        if evaluation_id in self._watched:
            return
        self._watched.add(evaluation_id)
        evaluations = self._session.evaluations
        try:
            with suppress(HudError):
                async with aclosing(self._session.works.follow(evaluation_id)) as followed:
                    async for now in followed:
                        if has_ended(now.status) or not evaluations.is_told:
                            self._show(now)
        finally:
            self._watched.discard(evaluation_id)

    @property
    def running(self) -> list[WorkState]:
        """The evaluations that this app samples, which end with it."""
        evaluations = self._session.run.evaluations
        return [evaluations[id_] for id_ in evaluations if id_ in self._tasks]

    async def cancel(self, evaluation_id: str) -> str:
        """Stop after the present rollouts, which are kept; its status. Raises HudError."""
        task = self._tasks.get(evaluation_id)
        if task is not None:
            await _cancelled(task)
        await self._session.works.cancel(evaluation_id)
        before = self._known(evaluation_id)
        left = await self._session.evaluations.get(evaluation_id, groups=False)
        if self._known(evaluation_id) is before:
            self._show(left)
        return left.status

    async def resume(self, evaluation_id: str) -> None:
        """Sample the missing rollouts of an evaluation. Raises HudError."""
        before = self._known(evaluation_id)
        resumed = await self._session.works.resume(evaluation_id)
        self.begin(resumed, before)

    async def stop(self) -> None:
        await gather(*map(_cancelled, list(self._tasks.values())))


async def _cancelled(task: Task[object]) -> None:
    task.cancel()
    await wait({task})


class Follower:
    """Folds the events of one model, and says how fresh its run is."""

    def __init__(
        self,
        client: HudClient,
        run: Run,
        model: Model,
        alarms: AlarmWatch,
        known_at: float | None = None,
        clock: Callable[[], float] = time,
        playback: Playback | None = None,
    ) -> None:
        """`run` stays displayed until the first events if it is the same model's; `known_at`: its
        Unix seconds, if it was read from disk because the service does not answer; `playback`: a
        paused replay is not silent."""
        is_same = run.model is not None and run.model.id == model.id
        self.run = replace(run, model=model) if is_same else Run(model=model)
        self.freshness = CONNECTING
        self.alarms, self.playback = alarms, playback
        self._known_at, self._clock = known_at, clock
        self._dated: float | None = None
        """The feed's `heard_at` of which `_known_at` is the time."""
        self._lost_at: float | None = None
        """`time.monotonic()` when the service stopped answering; None while it answers."""
        self._advice = keyed(GONE if client.settings.local else UNREACHABLE)
        self._feed = client.feed(model.id)
        self.loop: Work | None = None
        """The loop that trains the model from outside, which can be silent too."""
        self._latest = self.run
        self._rollouts: list[RolloutDone] = []
        """Those since then."""
        self._event_at: float | None = None
        self._aside = False
        """Whether a thread is folding a large tree."""

    async def follow(self, on_event: Callable[[Event], None]) -> None:
        """Fold events until cancelled, then pass each to `on_event`; raises as the session's."""
        turn = monotonic()
        async for event in self._feed:
            if isinstance(event, HeadMoved) and not event.at:  # derived from two reads
                event = event.model_copy(update={"at": self._clock()})
            if isinstance(event, TreeRead) and len(event.checkpoints) > MANY:
                self._aside, before = True, self._with_rollouts()
                try:
                    run = await to_thread(before.fold, event)
                finally:
                    self._aside = False
                self._latest = run if self._latest is before else self._latest.fold(event)
            elif isinstance(event, RolloutDone):
                self._rollouts.append(event)
            else:
                self.fold(event)
            self._event_at = monotonic()
            on_event(event)
            if self._event_at - turn > TURN_S:  # many events at once: let a key go first
                await sleep(0)
                turn = monotonic()

    def fold(self, event: Event) -> Run:
        self._latest = self._with_rollouts().fold(event)
        return self._latest

    def _with_rollouts(self) -> Run:
        """The newest run. Rollouts are by far the most events, and are folded together."""
        rollouts, self._rollouts = self._rollouts, []
        self._latest = self._latest.with_rollouts(rollouts)
        return self._latest

    def frame(self) -> bool:
        """Display the events since the last frame. Returns whether anything changed."""
        self._with_rollouts()
        self.detect_alarms()
        run, freshness = self._latest, self._measured(monotonic())
        news = run is not self.run or freshness != self.freshness
        self.run, self.freshness = run, freshness
        return news

    def detect_alarms(self) -> None:
        """Let the detectors read the next steps; the next frame displays their report."""
        if self._aside:
            return
        silent = self._silent_s
        if silent is None and self.loop is not None:
            silent = silent_s(self.loop, self._clock())
        report = self.alarms.detect(self._latest, _whole(silent))
        if report is not self._latest.alarms:
            self._latest = replace(self._latest, alarms=report)

    @property
    def _silent_s(self) -> float | None:
        """Seconds of training without an event, up to the service's last message of any kind;
        None if nothing trains. A lost connection does not count as silence of the run."""
        if self._event_at is None or not self._latest.training:
            return None
        if self.playback is not None and self.playback.paused:
            self._event_at = monotonic()
            return None
        return max(0.0, (self._feed.heard_at or self._event_at) - self._event_at)

    def _measured(self, now: float) -> Liveness:
        """The freshness, with ages in whole seconds: the screen repaints once per second."""
        feed, silent = self._feed, self._silent_s
        heard_at = feed.heard_at
        if heard_at is not None and heard_at != self._dated:
            # dated once for each answer: the two clocks drift apart, and one of them sleeps
            self._dated, self._known_at = heard_at, floor(self._clock() - (now - heard_at))
        measured = self._heard(now, silent)
        lost = measured.state is State.RECONNECTING
        self._lost_at = (self._lost_at or now) if lost else None
        is_from_disk = self._known_at is not None and feed.heard_at is None
        if is_from_disk or (self._lost_at is not None and now - self._lost_at > LOST_S):
            trouble, read_at, advice = feed.trouble, self._known_at, self._advice
            lost_from = State.RECONNECTING, measured.source, None, trouble
            return Liveness(*lost_from, advice=advice, as_of=read_at)
        if feed.reading is not None:
            measured = replace(measured, reading=download_text(*feed.reading))
        if self.playback is not None and self.playback.ended:
            measured = replace(measured, over=True)
        if feed.behind_s >= BEHIND_S:
            measured = replace(measured, behind_s=_whole(feed.behind_s) or 0)
        if measured.state is State.STALLED:
            measured = replace(measured, age_s=_whole(silent))
        return measured

    def _heard(self, now: float, silent: float | None) -> Liveness:
        """The freshness by the feed alone."""
        feed, run, age, retry = self._feed, self._latest, None, None
        if feed.heard_at is not None:
            busy = run.training or feed.trouble or feed.reading
            age = _whole(now - feed.heard_at, 1 if busy else IDLE_S)
        if feed.retry_at is not None:
            retry = _whole(feed.retry_at - now)
        pace = step_seconds(run) if silent else None
        return liveness(feed.source, age, feed.trouble, retry, silent, pace)


def _whole(seconds: float | None, step: int = 1) -> float | None:
    """Rounded down to a multiple of `step`; None stays None."""
    return None if seconds is None else max(0, floor(seconds) // step * step)
