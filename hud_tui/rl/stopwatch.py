"""Stopwatch: measures what is done, and waited for, from one step of a run to the next."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from time import monotonic, time

from hud_tui.rl.timeline import (
    ENGINE,
    ENVIRONMENT,
    FAILURES,
    GRADING,
    OF_ENGINE,
    SAMPLING,
    SAVING,
    account_of,
    compact,
    compact_rollouts,
)
from hud_tui.wire_time import DriverTime, StepTime, TimedRollouts, TimedSpan

MOST_OPEN = 100_000
"""Most spans, or rollouts, that are held of one step; further ones are left out."""
DIGITS = 5
"""Of the seconds that are kept."""


def steady_clock() -> Callable[[], float]:
    """Unix seconds that never go back, whatever becomes of the machine's clock."""
    ahead = time() - monotonic()
    return lambda: monotonic() + ahead


RESTARTED_S = 5.0
"""Seconds by which no report is later than another."""


@dataclass(frozen=True)
class Stretch:
    """What was done, or waited for, in Unix seconds."""

    kind: str
    start: float
    end: float | None = None
    """None while it goes on."""
    number: float = 1.0

    def within(self, low: float, high: float) -> TimedSpan | None:
        """The part between two times, relative to the first; None without one."""
        start, end = max(low, self.start), min(high, high if self.end is None else self.end)
        return TimedSpan(self.kind, start - low, end - start, self.number) if end > start else None


@dataclass
class RolloutWatch:
    """A rollout, as far as it is seen."""

    trace_id: str
    task_slug: str
    start: float
    end: float | None = None
    reason: str = ""
    calls: list[tuple[float, float, float]] = field(default_factory=list)
    """When the model was asked to sample for it, began, and ended, Unix seconds."""
    wait: str = ENGINE
    """What was waited for before it began."""
    graded: tuple[float, float] | None = None


class EngineCall:
    """A call of the engine that goes on."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.saving_s = 0.0
        """How much of its end was saving, seconds."""
        self.start, self._now = now(), now
        self._began: float | None = None

    def begun(self) -> None:
        """The engine begins with it now; only the first time counts."""
        if self._began is None:
            self._began = self._now()

    @property
    def began(self) -> float:
        """When the engine began with it; an engine that does not say so began at once."""
        return self.start if self._began is None else self._began


class Stopwatch:
    """The time since the last step of one model: a loop's parts as they are measured. A step takes
    what was measured up to it, and what goes on is cut there."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self.now = now or steady_clock()
        self.run_id: str | None = None
        """The run that is measured; None: a loop outside the service, which nobody announces."""
        self.hears = True
        """Whether what is asked of the gateway may be the loop's own."""
        self.rollouts: dict[str, RolloutWatch] = {}
        """Those of the step, and those under way, by trace id."""
        self._began: float | None = None
        self._ids = count()
        self._stretches: dict[int, Stretch] = {}
        self._bars: list[tuple[float, TimedRollouts]] = []
        """Rollouts that were measured together, with the time that their start is relative to."""
        self._ahead: float | None = None
        """How far this clock is ahead of the driver's, seconds."""
        self._doing = -1
        """Number of the stretch that its driver said last is under way."""
        self._held: tuple[str, float] | None = None
        """What holds the engine up, and since when."""
        self._holds: list[Stretch] = []

    def begin(self, run_id: str, hears: bool = False) -> None:
        """Begin a run here: whatever was measured before belongs to no step of it."""
        self.run_id, self.hears, self._ahead = run_id, hears, None
        self._began = self.now()
        self._stretches.clear()
        self.rollouts.clear()
        self._forget(self._began)

    def end(self) -> None:
        """The run has ended: what comes is of another loop."""
        self.run_id, self.hears, self._began = None, True, None
        self._stretches.clear()
        self.rollouts.clear()
        self.hold(None)
        self._forget(self.now())

    @contextmanager
    def measure(self, kind: str, number: float = 1.0, wait: str = ENGINE) -> Iterator[EngineCall]:
        """Around something, or a call of the engine: until that says that it has begun, the loop
        waits for `wait`.

        Args:
            number: As in `TimedSpan`; 0 for what lies behind what is measured in it.
        """
        id_, call = next(self._ids), EngineCall(self.now)
        self._open(call.start)
        self._stretches[id_] = Stretch(kind, call.start, None, number)
        try:
            yield call
        finally:
            end = self.now()
            done = max(call.began, end - call.saving_s)
            if id_ in self._stretches:  # else another run has begun
                self._stretches[id_] = Stretch(kind, call.began, done, number)
                self.add(wait, call.start, call.began)
                self.add(SAVING, done, end)

    def add(self, kind: str, start: float, end: float, number: float = 1.0) -> None:
        """Something that was measured elsewhere, in Unix seconds."""
        self._open(start)
        if len(self._stretches) < MOST_OPEN and end > start:
            self._stretches[next(self._ids)] = Stretch(kind, start, end, number)

    def add_rollouts(self, start: float, rollouts: TimedRollouts) -> None:
        """Rollouts that were made together; `start` is what theirs is relative to."""
        if len(self._bars) < MOST_OPEN:
            self._bars.append((start, rollouts))

    def hold(self, what: str | None) -> None:
        """The engine is held up from now on: nothing that it does goes on. None: no more."""
        if self._held is not None:
            kind, since = self._held
            self._holds.append(Stretch(kind, since, self.now()))
        self._held = None if what is None else (what, self.now())

    # Rollouts that others make: where they begin and end, and what is sampled for them.

    def enter(self, trace_id: str, task_slug: str) -> None:
        self._open(self.now())
        if len(self.rollouts) < MOST_OPEN:
            self.rollouts.setdefault(trace_id, RolloutWatch(trace_id, task_slug, self.now()))

    def leave(self, trace_id: str, reason: str = "") -> None:
        rollout = self.rollouts.get(trace_id)
        if rollout is not None and rollout.end is None:
            rollout.end, rollout.reason = self.now(), reason

    def call(self, kind: str, trace_id: str | None, call: "EngineCall", wait: str) -> None:
        """The model sampled, for a rollout if it is known; before that, it waited."""
        start, began, end = call.start, call.began, self.now()
        rollout = self.rollouts.get(trace_id or "")
        if rollout is None:
            if self.hears and self.run_id is None:
                self.add(wait, start, began)
                self.add(kind, began, end)
        elif len(rollout.calls) < MOST_OPEN:
            rollout.calls.append((start, began, end))
            rollout.wait = wait

    def graded(self, times: Mapping[str, tuple[float, float]]) -> None:
        """When rollouts were graded, by trace id, Unix seconds."""
        for trace_id, stretch in times.items():
            if trace_id in self.rollouts:
                self.rollouts[trace_id].graded = stretch

    def discard(self, reason: str, trace_ids: Mapping[str, str]) -> None:
        """Why rollouts are not trained on, by trace id, each with its new id, or an empty text."""
        for trace_id in trace_ids.keys() & self.rollouts.keys():
            self.rollouts[trace_id].reason = reason
        for number, (start, bar) in enumerate(self._bars):
            if bar.trace_id in trace_ids:
                named = trace_ids[bar.trace_id] or bar.trace_id
                self._bars[number] = start, bar._replace(reason=reason, trace_id=named)

    def failed(self) -> dict[str, list[str]]:
        """Trace ids of the rollouts that failed and have ended, by reason."""
        reasons: dict[str, list[str]] = {}
        for rollout in self.rollouts.values():
            if rollout.end is not None and rollout.reason in FAILURES:
                reasons.setdefault(rollout.reason, []).append(rollout.trace_id)
        return reasons

    def hear(self, told: DriverTime) -> None:
        """What the driver of the run has measured."""
        ahead = self._clock_ahead(self.now() - told.at)
        if self._doing in self._stretches:
            self._stretches[self._doing] = replace(self._stretches[self._doing], end=self.now())
        if told.doing is not None:
            self._doing = next(self._ids)
            self._stretches[self._doing] = Stretch(told.doing, self.now(), None, 0.0)
        for span in told.spans:
            start = span.start + ahead
            self.add(span.kind, start, start + span.seconds, span.number)
        self.graded({id_: (low + ahead, high + ahead) for id_, (low, high) in told.graded.items()})
        for reason, trace_ids in told.discarded.items():
            self.discard(reason, dict.fromkeys(trace_ids, ""))

    def _clock_ahead(self, difference: float) -> float:
        """How far this clock is ahead of the driver's: the least difference, since a report takes
        its time to arrive. One that is larger by far is of a driver that was started again."""
        if self._ahead is None or not self._ahead <= difference < self._ahead + RESTARTED_S:
            self._ahead = difference
        return self._ahead

    # The step.

    def so_far(self, is_taken: bool = False) -> StepTime:
        """The time since the last step. `is_taken`: the step is taken now; rollouts that are under
        way are of a later one."""
        end = self.now()
        start = end if self._began is None else self._began
        stretches = [*self._stretches.values(), *self._of_rollouts(end)]
        held = [*self._holds]
        if self._held is not None:
            held.append(Stretch(*self._held))
        parts = [part for part in (s.within(start, end) for s in stretches) if part]
        spans = _without(parts, [hold for hold in (h.within(start, end) for h in held) if hold])
        return StepTime(
            start=start,
            end=end,
            is_outside=self.run_id is None,
            spans=[span for span in map(_rounded, compact(spans)) if span.seconds],
            rollouts=[
                _rounded_bar(bar) for bar in compact_rollouts(self._shown(start, end, is_taken))
            ],
        )

    def step(self, end: float) -> None:
        """A step was taken at a time up to which `so_far` was called: begin the next. A rollout in
        which nothing was sampled all the while is not expected to end."""
        began = end if self._began is None else self._began
        self.rollouts = {
            id_: rollout
            for id_, rollout in self.rollouts.items()
            if max([rollout.start, *(stop for *_, stop in rollout.calls)]) >= began
        }
        self._began = end
        self._forget(end)

    def _open(self, start: float) -> None:
        """The first thing that is seen of a loop begins its first step."""
        if self._began is None:
            self._began = start

    def _forget(self, end: float) -> None:
        """Forget what ended before a time."""
        stretches = self._stretches.items()
        self._stretches = {id_: s for id_, s in stretches if s.end is None or s.end > end}
        rollouts = self.rollouts.items()
        self.rollouts = {id_: r for id_, r in rollouts if r.end is None or r.end > end}
        self._holds = [hold for hold in self._holds if (hold.end or end) > end]
        self._bars = [(at, bar) for at, bar in self._bars if at + bar.start + bar.seconds > end]

    def _shown(self, start: float, end: float, is_taken: bool) -> Iterator[TimedRollouts]:
        for origin, bar in self._bars:
            yield bar._replace(start=bar.start + origin - start)
        for rollout in self.rollouts.values():
            graded = rollout.graded
            if is_taken and rollout.end is None:
                continue
            yield TimedRollouts(
                rollout.trace_id,
                rollout.task_slug,
                rollout.start - start,
                (end if rollout.end is None else rollout.end) - rollout.start,
                reason=rollout.reason,
                sampling_s=sum(stop - begin for _, begin, stop in rollout.calls),
                grading_s=None if graded is None else graded[1] - graded[0],
            )

    def _of_rollouts(self, end: float) -> Iterator[Stretch]:
        """Of each rollout when the model sampled and when it was graded; the rest of it is the
        environment's."""
        for rollout in self.rollouts.values():
            stop = end if rollout.end is None else rollout.end
            stretches = [(SAMPLING, began, stop) for _, began, stop in rollout.calls]
            stretches += [(rollout.wait, asked, began) for asked, began, _ in rollout.calls]
            if rollout.graded is not None:
                stretches.append((GRADING, *rollout.graded))
            at = rollout.start
            for kind, began, ended in sorted(stretches, key=lambda stretch: stretch[1]):
                yield Stretch(ENVIRONMENT, at, max(at, min(began, stop)))
                yield Stretch(kind, began, ended)
                at = max(at, ended)
            yield Stretch(ENVIRONMENT, at, max(at, stop))


def _without(parts: Iterable[TimedSpan], held: Iterable[TimedSpan]) -> Iterator[TimedSpan]:
    """The parts, and what held the engine up: what the engine does stands still meanwhile."""
    holds = sorted(held, key=lambda hold: hold.start)
    for part in parts:
        if part.kind not in OF_ENGINE:
            yield part
            continue
        at, end = part.start, part.start + part.seconds
        for hold in holds:
            if at < hold.start < end:
                yield part._replace(start=at, seconds=hold.start - at)
            if hold.start < end:
                at = max(at, min(end, hold.start + hold.seconds))
        if at < end:
            yield part._replace(start=at, seconds=end - at)
    yield from (hold._replace(number=0.0) for hold in holds)


def _rounded(span: TimedSpan) -> TimedSpan:
    start, seconds = round(span.start, DIGITS), round(span.seconds, DIGITS)
    return span._replace(start=start, seconds=seconds, number=round(span.number, 2))


def _rounded_bar(bar: TimedRollouts) -> TimedRollouts:
    return bar._replace(
        start=round(bar.start, DIGITS),
        seconds=round(bar.seconds, DIGITS),
        sampling_s=None if bar.sampling_s is None else round(bar.sampling_s, DIGITS),
        grading_s=None if bar.grading_s is None else round(bar.grading_s, DIGITS),
    )


# What a step's metrics say of it.


CAUSE = 0.1
"""Share of a step from which on a cause of waiting has a metric of its own."""


def time_metrics(time: StepTime) -> dict[str, float]:
    """Metrics of a step: its seconds, the share in which it waited, and for what, if for long."""
    spent = account_of(time)
    shares = {"step_s": spent.seconds, "wait_share": spent.waiting}
    causes = {f"wait/{kind.removeprefix('wait_')}": spent.share(kind) for kind in spent.waits}
    return shares | {name: share for name, share in causes.items() if share >= CAUSE}
