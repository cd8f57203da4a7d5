"""Timeline: where the wall time of a step went, and what it says.

All of it works on intervals. Several things may be done at once: rollouts beside each other, and
with staleness a batch is sampled while another is trained on. Then their time is shared, so that
what the parts have adds up to the step, and never to more. Waiting is what is left: time in which
nothing of the loop's own is done.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, pairwise

from hud_tui.rl.text import percent
from hud_tui.wire_time import StepTime, TimedRollouts, TimedSpan

SAMPLING, ENVIRONMENT, GRADING = "sampling", "environment", "grading"
FORWARD_BACKWARD, OPTIM_STEP, SAVING = "forward_backward", "optim_step", "saving"
EVALUATING = "evaluating"
ENGINE, QUEUE, TUNNEL = "wait_engine", "wait_queue", "wait_tunnel"
DISK, EVALUATION = "wait_disk", "wait_evaluation"


@dataclass(frozen=True)
class Part:
    """One part of the loop."""

    title: str
    side: str
    """Kinds of one side share a lane's place: ``rollouts``, ``training``, ``evaluation`` or
    ``waiting``."""
    meaning: str


LOOP_PARTS = {
    SAMPLING: Part("sampling", "rollouts", "the engine samples rollouts"),
    ENVIRONMENT: Part("environment", "rollouts", "the environment starts, and acts"),
    GRADING: Part("grading", "rollouts", "answers are graded"),
    FORWARD_BACKWARD: Part("forward, backward", "training", "gradients of a batch"),
    OPTIM_STEP: Part("optimizer step", "training", "the weights change"),
    SAVING: Part("saving", "training", "the new weights are saved"),
    EVALUATING: Part("evaluating", "evaluation", "held-out tasks are sampled and graded"),
    ENGINE: Part("the engine", "waiting", "it starts, opens weights, or serves others"),
    QUEUE: Part("the server's queue", "waiting", "the engine's server has no room"),
    TUNNEL: Part("the tunnel", "waiting", "the service, or the engine's server, does not answer"),
    DISK: Part("the disk", "waiting", "rollouts, steps and their state are stored"),
    EVALUATION: Part("an evaluation", "waiting", "another evaluation has the engine"),
}
"""Every part of the loop by its name on the wire, in the order of their lanes."""
WAITS = tuple(name for name, kind in LOOP_PARTS.items() if kind.side == "waiting")
TRAINING = tuple(name for name, kind in LOOP_PARTS.items() if kind.side == "training")
TRAINED = frozenset({FORWARD_BACKWARD, OPTIM_STEP})
"""What a batch that is trained on takes; its weights may be saved while the next is sampled."""
OF_ENGINE = frozenset({SAMPLING, EVALUATING, FORWARD_BACKWARD, OPTIM_STEP})
"""What stands still while the engine is held up."""

ZERO_VARIANCE, FAILED, RESAMPLED = "zero variance", "failed", "resampled"
TIMEOUT, HEAD_MOVED, STALE, OVERFLOW = "timeout", "head moved", "too stale", "overflow"
REASONS = {
    ZERO_VARIANCE: "all rewards of its group are equal: no gradient",
    FAILED: "a rollout of its group failed",
    RESAMPLED: "a rollout of its group failed, and the group was sampled again",
    TIMEOUT: "it took longer than its time limit",
    HEAD_MOVED: "the head was moved while it was sampled, or waited",
    STALE: "the weights that sampled it were too old",
    OVERFLOW: "it did not fit into the context",
}
"""Why a rollout is discarded, with the meaning."""


FAILURES = frozenset({FAILED, TIMEOUT, OVERFLOW})
"""Reasons that a rollout has by itself."""


def why_failed(status: str, stop_reason: str | None, error: str | None) -> str:
    """Why a rollout that ended so is discarded; empty if it need not be."""
    if stop_reason == "timeout":
        return TIMEOUT
    if status in ("completed", "running"):
        return ""
    return OVERFLOW if "context_length_exceeded" in (error or "") else FAILED


MOST_SPANS = 160
"""Most spans that are kept of a step."""
MOST_ROLLOUTS = 96
"""Most bars of rollouts that are kept of a step."""
GRID = 24
"""Parts of a step into which a long stretch is cut when many spans become few."""
SLOWEST = 0.1
"""The share of a step's rollouts that counts as its slowest."""
LEAST_ROLLOUTS = 10
"""Rollouts from which on a slowest tenth is spoken of."""
TELLING = 0.1
"""Share of the step from which on the slowest rollouts are said to set it."""
TOLD = 0.015
"""Share of the time from which on a part is told of in a sentence."""


# The account: how long each part took.


@dataclass(frozen=True)
class Account:
    """How the time of one step, or of several, was spent."""

    seconds: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    """Seconds by kind. Where several things were done at once, each has its share: these and `idle`
    add up to `seconds`."""
    busy: Mapping[str, float] = field(default_factory=dict)
    """Seconds by kind in which it was done at all, alone or beside others."""
    idle: float = 0.0
    """Seconds of which nothing is known."""
    at_once: float = 0.0
    """Seconds in which rollouts were made while a batch was trained on."""
    tail: float = 0.0
    """Seconds in which only the slowest tenth of rollouts was under way."""
    rollouts: int = 0
    discarded: Mapping[str, int] = field(default_factory=dict)
    """Rollouts by reason."""
    is_outside: bool = False
    """Whether the loop runs outside the service."""

    def __add__(self, other: "Account") -> "Account":
        return Account(
            self.seconds + other.seconds,
            _added(self.parts, other.parts),
            _added(self.busy, other.busy),
            self.idle + other.idle,
            self.at_once + other.at_once,
            self.tail + other.tail,
            self.rollouts + other.rollouts,
            Counter(self.discarded) + Counter(other.discarded),
            self.is_outside or other.is_outside,
        )

    def share(self, *kinds: str) -> float:
        """Share of the time that these kinds had."""
        return self.of_time(sum(self.parts.get(kind, 0.0) for kind in kinds))

    def of_time(self, seconds: float) -> float:
        return seconds / self.seconds if self.seconds > 0 else 0.0

    @property
    def waiting(self) -> float:
        """Share of the time in which the loop waited."""
        return self.share(*WAITS)

    @property
    def waits(self) -> list[str]:
        """What it waited for, the longest first."""
        waits = [kind for kind in WAITS if self.parts.get(kind)]
        return sorted(waits, key=lambda kind: -self.parts[kind])

    @property
    def accounted(self) -> float:
        """Share of the time that is accounted for."""
        return 1.0 - self.of_time(self.idle)

    @property
    def no_gradient(self) -> float:
        """Share of rollouts that were discarded."""
        return sum(self.discarded.values()) / self.rollouts if self.rollouts else 0.0

    @property
    def has_slow_rollouts(self) -> bool:
        """Whether the slowest tenth of rollouts sets the step."""
        return self.rollouts >= LEAST_ROLLOUTS and self.of_time(self.tail) >= TELLING


def _added(left: Mapping[str, float], right: Mapping[str, float]) -> dict[str, float]:
    kinds = (kind for kind in LOOP_PARTS if kind in left or kind in right)
    return {kind: left.get(kind, 0.0) + right.get(kind, 0.0) for kind in kinds}


def account_of(time: StepTime) -> Account:
    """How the time of a step was spent."""
    parts: defaultdict[str, float] = defaultdict(float)
    busy: defaultdict[str, float] = defaultdict(float)
    idle = at_once = 0.0
    whole = max(0.0, time.end - time.start)
    for seconds, open_ in _stretches(time.spans, whole):
        shares = _shares(open_)
        for kind in shares:
            busy[kind] += seconds
            parts[kind] += seconds * shares[kind]
        idle += 0.0 if shares else seconds
        is_sampling = any(LOOP_PARTS[kind].side == "rollouts" for kind in shares)
        at_once += seconds if is_sampling and TRAINED & shares.keys() else 0.0
    discarded: Counter[str] = Counter()
    for rollouts in time.rollouts:
        if rollouts.reason:
            discarded[rollouts.reason] += rollouts.number
    return Account(
        whole,
        _added(parts, {}),
        _added(busy, {}),
        idle,
        at_once,
        tail(time),
        sum(rollouts.number for rollouts in time.rollouts),
        discarded,
        time.is_outside,
    )


def account_all(times: Iterable[StepTime]) -> Account:
    """How the time of several steps was spent."""
    return sum(map(account_of, times), Account())


def _stretches(spans: Sequence[TimedSpan], whole: float) -> Iterator[tuple[float, list[TimedSpan]]]:
    """The stretches of [0, whole] between which something begins or ends: the seconds of each, and
    what is open in it, by its beginning."""
    cut = [clipped for clipped in (_within(span, 0.0, whole) for span in spans) if clipped]
    edges = sorted({0.0, whole, *(s.start for s in cut), *(s.start + s.seconds for s in cut)})
    cut.sort(key=lambda span: span.start)
    waiting, open_ = iter([*cut, None]), list[TimedSpan]()
    following = next(waiting)
    for start, stop in pairwise(edges):
        open_ = [span for span in open_ if span.start + span.seconds > start]
        while following is not None and following.start <= start:
            open_.append(following)
            following = next(waiting)
        yield stop - start, open_


def _within(span: TimedSpan, low: float, high: float) -> TimedSpan | None:
    """The part of a span between two times; None without one."""
    start, stop = max(low, span.start), min(high, span.start + span.seconds)
    return span._replace(start=start, seconds=stop - start) if stop > start else None


def _shares(open_: Sequence[TimedSpan]) -> dict[str, float]:
    """The share of each kind in what is done at one time: rollouts, training and evaluation share
    equally, and rollouts among themselves by their number. Without any of these all of it is what
    lies behind: what began last."""
    done = [s for s in open_ if s.number > 0 and LOOP_PARTS.get(s.kind, OTHER).side != "waiting"]
    if not done:
        behind = [span for span in open_ if span.kind in LOOP_PARTS]
        return {behind[-1].kind: 1.0} if behind else {}
    counts: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for span in done:
        counts[LOOP_PARTS[span.kind].side][span.kind] += span.number
    return {
        kind: count / sum(side.values()) / len(counts)
        for side in counts.values()
        for kind, count in side.items()
    }


OTHER = Part("", "waiting", "")
"""Stands for a kind of a newer version, which is left out."""


def tail(time: StepTime) -> float:
    """Seconds at the end of the rollouts in which only the slowest tenth was under way."""
    ends = sorted((r.start + r.seconds, r.number) for r in time.rollouts)
    count = sum(number for _, number in ends)
    if count < LEAST_ROLLOUTS:
        return 0.0
    seen = accumulate(number for _, number in ends)
    others = next(end for (end, _), n in zip(ends, seen, strict=True) if n >= (1 - SLOWEST) * count)
    return max(0.0, ends[-1][0] - max(0.0, others))


# What it says, in one sentence.


def time_sentence(account: Account) -> str:
    """E.g. ``41 % of the time is sampling, 12 % waiting for the engine; the slowest tenth of
    rollouts sets the step; 72 % of rollouts had no gradient.``"""
    shares = {
        **{
            LOOP_PARTS[kind].title: account.share(kind) for kind in (SAMPLING, ENVIRONMENT, GRADING)
        },
        "training": account.share(*TRAINED),
        "saving": account.share(SAVING),
        "evaluating": account.share(EVALUATING),
    }
    done = sorted(shares.items(), key=lambda named: -named[1])
    told = [f"{percent(share)} {title}" for title, share in done if share >= TOLD]
    waits = [kind for kind in account.waits if account.share(kind) >= TOLD]
    told += [
        f"{percent(account.share(kind))} waiting for {LOOP_PARTS[kind].title}" for kind in waits
    ]
    if account.of_time(account.idle) >= TOLD:
        where = "spent outside the service" if account.is_outside else "unknown"
        told.append(f"{percent(account.of_time(account.idle))} {where}")
    if not told:
        return "No time was measured."
    number, _, rest = ", ".join(told).partition(" % ")
    said = [f"{number} % of the time is {rest}"]
    if account.of_time(account.at_once) >= TOLD:
        both = percent(account.of_time(account.at_once))
        said.append(f"{both} training while the next batch is sampled")
    if account.has_slow_rollouts:
        said.append("the slowest tenth of rollouts sets the step")
    if account.no_gradient:
        said.append(f"{percent(account.no_gradient)} of rollouts had no gradient")
    return "; ".join(said) + "."


# Few instead of many: what is kept of a step is bounded.


def compact(spans: Iterable[TimedSpan], most: int = MOST_SPANS) -> list[TimedSpan]:
    """The spans in order, at most so many. If there are more, those of one kind that overlap or are
    close become one with their mean number at a time: what a kind covers stays the same, but for
    the shortest gaps."""
    ordered = sorted((span for span in spans if span.seconds > 0), key=lambda s: (s.start, s))
    if len(ordered) <= most:
        return ordered
    whole = max(span.start + span.seconds for span in ordered) - ordered[0].start
    kinds = sorted(ordered, key=lambda span: (span.kind, span.number > 0))
    pieces = [
        piece
        for _, group in groupby(kinds, key=lambda span: (span.kind, span.number > 0))
        for piece in _pieces(list(group), whole / GRID)
    ]
    gap = whole / 1e4
    while len(pieces) > most:
        pieces = _bridged(pieces, gap)
        gap *= 2
    return sorted(pieces, key=lambda span: span.start)


def _pieces(spans: Sequence[TimedSpan], width: float) -> Iterator[TimedSpan]:
    """What spans of one kind cover, in pieces at most so wide, with their mean number."""
    kind, first = spans[0].kind, spans[0].start
    for start, stop in _covered(spans):
        cell = int((start - first) / width)
        low = start
        while low < stop:
            high = min(stop, first + (cell + 1) * width) if width > 0 else stop
            cell += 1
            if high > low:
                inside = (_within(span, low, high) for span in spans)
                area = sum(part.seconds * part.number for part in inside if part)
                yield TimedSpan(kind, low, high - low, area / (high - low))
                low = high


def _covered(spans: Sequence[TimedSpan]) -> list[tuple[float, float]]:
    """The union of spans as disjoint intervals, in order."""
    union: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda span: span.start):
        start, stop = span.start, span.start + span.seconds
        if union and start <= union[-1][1]:
            union[-1] = union[-1][0], max(union[-1][1], stop)
        else:
            union.append((start, stop))
    return union


def _bridged(pieces: Sequence[TimedSpan], gap: float) -> list[TimedSpan]:
    """Neighbours of one kind that are at most so far apart as one."""
    bridged: list[TimedSpan] = []
    for piece in sorted(pieces, key=lambda span: (span.kind, span.number > 0, span.start)):
        last = bridged[-1] if bridged else None
        is_next = last and (last.kind, last.number > 0) == (piece.kind, piece.number > 0)
        if last and is_next and piece.start - (last.start + last.seconds) <= gap:
            stop = max(last.start + last.seconds, piece.start + piece.seconds)
            area = last.seconds * last.number + piece.seconds * piece.number
            seconds = stop - last.start
            bridged[-1] = last._replace(seconds=seconds, number=area / seconds)
        else:
            bridged.append(piece)
    return bridged


def compact_rollouts(
    rollouts: Iterable[TimedRollouts], most: int = MOST_ROLLOUTS
) -> list[TimedRollouts]:
    """The rollouts in order, in at most so many bars: if there are more, those of one task and fate
    become one; then the last ones of one fate."""
    bars = sorted(rollouts, key=lambda bar: (bar.start, bar.trace_id))
    if len(bars) > most:
        bars = _gathered(bars, lambda bar: (bar.task_slug, bar.reason))
    if len(bars) > most:
        kept, rest = bars[: most - len(REASONS) - 1], bars[most - len(REASONS) - 1 :]
        bars = [*kept, *_gathered(rest, lambda bar: ("", bar.reason))]
    return sorted(bars, key=lambda bar: (bar.start, bar.trace_id))


def _gathered(
    bars: Sequence[TimedRollouts], key: Callable[[TimedRollouts], object]
) -> list[TimedRollouts]:
    groups: dict[object, list[TimedRollouts]] = {}
    for bar in bars:
        groups.setdefault(key(bar), []).append(bar)
    return [_joined(group) for group in groups.values()]


def _joined(bars: Sequence[TimedRollouts]) -> TimedRollouts:
    first, count = bars[0], sum(bar.number for bar in bars)
    stop = max(bar.start + bar.seconds for bar in bars)
    return first._replace(
        seconds=stop - first.start,
        number=count,
        sampling_s=_mean([(bar.sampling_s, bar.number) for bar in bars]),
        grading_s=_mean([(bar.grading_s, bar.number) for bar in bars]),
    )


def _mean(values: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, count) for value, count in values if value is not None]
    total = sum(count for _, count in known)
    return sum(value * count for value, count in known) / total if total else None
