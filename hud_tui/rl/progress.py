"""Progress, ETA and freshness of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, pairwise, takewhile
from statistics import median
from typing import TYPE_CHECKING

from hud_tui.rl.text import duration, seconds
from hud_tui.wire import Checkpoint

if TYPE_CHECKING:
    from hud_tui.rl.run import Run

RECENT = 20
"""Number of newest steps in the median of seconds per step."""
ALIKE = ("group_size", "tasks_per_step")
"""Parameters that must be equal for two runs to have comparable speed."""
STALL_FACTOR = 3.0
"""A run is stalled after this multiple of its median step time without an event."""
STALL_FLOOR_S = 10.0
"""Minimum seconds without an event before a run counts as stalled."""
SILENT_S = 5.0
"""Seconds without an answer from the service after which that is shown."""
MB = 1_000_000
LARGE = 200_000
"""Bytes of a tree from which its download progress is shown."""


@dataclass(frozen=True)
class Progress:
    """Progress of a managed run."""

    step: int
    steps: int | None
    step_s: float | None
    """Median seconds per step over the last RECENT; None before two steps and while the run
    waits."""

    @property
    def fraction(self) -> float | None:
        """From 0 to 1; None if the number of steps is unknown."""
        return min(1.0, self.step / self.steps) if self.steps else None

    @property
    def percent(self) -> str:
        """E.g. ``99 %``; 100 only once every step was taken. Empty if the number of steps is
        unknown."""
        return f"{min(100, 100 * self.step // self.steps)} %" if self.steps else ""

    @property
    def eta_s(self) -> float | None:
        """Seconds until the last step, at the recent pace."""
        if self.steps is None or self.step_s is None:
            return None
        return max(0, self.steps - self.step) * self.step_s


class State(StrEnum):
    """Freshness of the display."""

    CONNECTING = "connecting"
    LIVE = "live"
    STALLED = "stalled"
    RECONNECTING = "reconnecting"


@dataclass(frozen=True)
class Liveness:
    """Freshness of the display, with the reason."""

    state: State
    source: str
    """``stream`` or ``poll``."""
    age_s: float | None
    """Seconds since the service last sent anything."""
    trouble: str = ""
    """Why it is reconnecting."""
    retry_s: float | None = None
    """Seconds until the next attempt."""
    advice: str = ""
    """What to do; set once the service has been silent for long."""
    as_of: float | None = None
    """Unix seconds of the service's last response; set once it has been silent for long."""
    reading: str = ""
    """Download progress of a large tree."""
    behind_s: float = 0.0
    """How far events lag behind the service, seconds; 0 if negligible."""
    over: bool = False
    """Whether a replay has ended: no event will come."""

    @property
    def goes_on(self) -> bool:
        """Whether events come, so that an ETA means something."""
        return self.state is State.LIVE and not self.over

    @property
    def offline(self) -> bool:
        """Whether only the last known state is displayed."""
        return bool(self.advice)

    @property
    def calm(self) -> bool:
        """Whether nothing is wrong, as far as is known."""
        return self.state in (State.CONNECTING, State.LIVE) and not self.behind_s

    @property
    def arriving(self) -> str:
        """`reading` while the download progresses; empty if it is stuck."""
        return self.reading if self.age_s is not None and self.age_s < SILENT_S else ""


def progress(run: Run) -> Progress | None:
    """The progress of the run's managed job; None without one."""
    if run.job is None or run.job.step is None:
        return None
    return Progress(run.job.step, run.job.steps, None if run.job.waits else step_seconds(run))


def awaiting(run: Run) -> str:
    """Text shown instead of charts before the first step."""
    job = run.job
    if job is None or job.step:
        return "No steps yet."
    if run.training and (job.attempt or 1) > 1:
        return (
            f"The first step is sampled again, attempt {job.attempt}: zero variance in every group."
        )
    if run.training:
        return "The first step is being sampled."
    return "No steps: the run ended before its first step."


def step_seconds(run: Run) -> float | None:
    """Pace of the run's job, as the service reports it, else by the tree; None before two steps."""
    if run.job is not None and run.job.step_s is not None:
        return run.job.step_s
    return pace([node.created_at for node in _own_steps(run)])


def comparable_step_seconds(
    run: Run, parameters: Mapping[str, object], slugs: Set[str]
) -> float | None:
    """Seconds per step of the model's last managed run, if the planned run is comparable.

    Comparable: same model (so same engine), group size and tasks per step, and the same tasks,
    judging by the last RECENT steps.

    Returns:
        The median; None if the runs are not comparable or the tasks are unknown.
    """
    job = run.job
    if job is None or any((job.parameters or {}).get(k) != parameters.get(k) for k in ALIKE):
        return None
    nodes = [node for node in _own_steps(run) if node.job_id is not None]
    sampled = [group.task_slug for node in nodes for group in node.groups]
    seen = set(sampled)
    if not seen or not seen <= slugs or 2 * len(seen) < min(len(slugs), len(sampled)):
        return None
    return pace([node.created_at for node in nodes])


def _own_steps(run: Run) -> list[Checkpoint]:
    """The last RECENT + 1 checkpoints of the head's lineage that the run's job made, oldest first;
    of the whole lineage if the service does not report the job."""
    nodes = (run.tree[position] for position in run.tree.lineage(run.tree.head))
    own = run.job.id if run.job is not None else None
    made = takewhile(lambda node: own is None or node.job_id in (None, own), nodes)
    return list(islice(made, RECENT + 1))[::-1]


def pace(created: Sequence[str | None]) -> float | None:
    """Median seconds between the newest steps of a run: what its ETA goes by, wherever it is shown.

    Args:
        created: ``created_at`` of its checkpoints, oldest first; the last RECENT + 1 count.

    Returns:
        None before two steps.
    """
    times = [stamp for text in created[-RECENT - 1 :] if (stamp := seconds(text)) is not None]
    gaps = [later - earlier for earlier, later in pairwise(times) if later > earlier]
    return median(gaps) if gaps else None


def liveness(
    source: str,
    age_s: float | None,
    trouble: str,
    retry_s: float | None,
    silent_s: float | None,
    step_s: float | None,
) -> Liveness:
    """Derive the freshness of the display.

    Args:
        source: Of the feed: connecting, stream or poll.
        age_s: Seconds since the service last sent anything, including keep-alives.
        trouble: Why the feed is reconnecting; empty if it is not.
        retry_s: Seconds until the feed's next attempt.
        silent_s: Seconds since the last event of an active run, else None.
        step_s: Its median seconds per step.
    """
    if trouble:
        state = State.RECONNECTING
    elif source == "connecting" or age_s is None:
        state = State.CONNECTING
    elif silent_s is not None and is_stalled(silent_s, step_s):
        state = State.STALLED
    else:
        state = State.LIVE
    return Liveness(state, source, age_s, trouble, retry_s)


def fresh(liveness: Liveness) -> str:
    """Freshness in a few words, e.g. ``↻ stream 3 s``."""
    age = "" if liveness.age_s is None else f" {duration(liveness.age_s)}"
    match liveness.state:
        case State.CONNECTING:
            return "… connecting"
        case State.RECONNECTING:
            wait = f"; retrying in {duration(liveness.retry_s)}" if liveness.retry_s else ""
            return f"⚠ {liveness.advice or f'no answer{age}{wait}'}"
        case State.STALLED:
            return f"⚠ stalled{age}"
        case State.LIVE if liveness.behind_s:
            return f"⚠ {liveness.source} {duration(liveness.behind_s)} behind"
        case State.LIVE:
            return f"↻ {liveness.arriving or f'{liveness.source}{age}'}"


def is_stalled(silent_s: float, step_s: float | None) -> bool:
    """Whether a run whose steps take `step_s` has been silent for too long."""
    return silent_s > max(STALL_FLOOR_S, STALL_FACTOR * (step_s or 0))


def download_text(size: int, total: int | None) -> str:
    """Download progress, e.g. ``reading the tree · 12 of 50 MB``; empty for a small tree."""
    most = size if total is None else total
    if most < LARGE:
        return ""
    digits = 0 if most >= 10 * MB else 1
    of = "" if total is None else f" of {total / MB:.{digits}f}"
    return f"reading the tree · {size / MB:.{digits}f}{of} MB"
