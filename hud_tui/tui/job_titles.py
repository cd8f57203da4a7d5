"""The line above each level of the jobs view: where we are, and what it comes to."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from textual.content import Content

from hud_tui.rl.counts import counted
from hud_tui.rl.jobs import is_active, job_progress, job_title
from hud_tui.rl.metrics import short
from hud_tui.rl.rollouts import RolloutGroup
from hud_tui.rl.text import one_line
from hud_tui.tui.job_reader import Part
from hud_tui.tui.job_rows import advantage_text
from hud_tui.wire import Job, Trace

DOT = Content.styled("  ·  ", "$text-muted")


def jobs_title(jobs: Sequence[Job] | None, shown: int | None = None) -> Content:
    """How many jobs there are; `shown` of them, where a filter leaves some out."""
    if not jobs:
        return Content()
    running = sum(is_active(job) for job in jobs)
    some = "" if shown is None or shown == len(jobs) else f"{shown} of "
    parts = [Content.styled(f"{some}{counted(len(jobs), 'job')}", "bold")]
    if running:
        parts.append(Content.styled(f"{running} running", "$accent"))
    return DOT.join(parts)


Ranked = tuple[int, Content]
"""(rank, text): where a line is too narrow, the highest rank goes first."""


def part_title(part: Part | None, job: Job, following: bool, width: int) -> Content:
    """A job, and what the rollouts that are listed come to, `width` cells at most."""
    parts: list[Ranked] = [
        (1, Content.styled(job_title(job), "bold")),
        (4, Content(one_line(job.status or "–", 20))),
    ]
    if part is not None:
        parts += _part(part, job)
    if following:
        parts.append((0, Content.styled("following ↻", "$accent")))
    return fit(parts, width)


def rollout_title(
    group: RolloutGroup,
    trace: Trace,
    width: int,
    removed: int = 0,
    found: tuple[int, int] | None = None,
) -> Content:
    """One rollout: its task, its place in the group, how it was graded.

    Args:
        group: The one that it is in.
        trace: The rollout.
        width: Cells there are.
        removed: Characters of it that could act on a terminal.
        found: Which hit of a search is looked at, of how many; None without a search.
    """
    place = next(i for i, r in enumerate(group.rollouts) if r.trace is trace)
    parts: list[Ranked] = [(0, Content.styled(one_line(trace.task_slug or "rollout", 40), "bold"))]
    if trace.step is not None:
        parts.append((3, Content(f"step {trace.step}")))
    parts.append((2, Content(f"rollout {place + 1} of {len(group.rollouts)}")))
    parts.append((0, Content(f"reward {short(trace.reward)}")))
    if (advantage := group.rollouts[place].advantage) is not None:
        parts.append((1, Content(f"advantage {advantage_text(advantage)}")))
    if group.heldout:
        parts.append((1, Content("held out")))
    if removed:
        parts.append((1, Content.styled(f"␛ removed ×{removed}", "bold $warning")))
    if found is not None:
        said = f"{found[0]} of {found[1]} found" if found[1] else "not found"
        parts.append((0, Content.styled(said, "$accent" if found[1] else "$warning")))
    if trace.stop_reason:
        parts.append((4, Content(f"stop {one_line(trace.stop_reason, 20)}")))
    return fit(parts, width)


def fit(parts: Sequence[Ranked], width: int) -> Content:
    """The parts that fit into `width` cells, in their order."""
    kept = list(parts)
    while len(kept) > 1 and DOT.join(text for _, text in kept).cell_length > width:
        kept.remove(max(kept, key=lambda part: part[0]))
    return DOT.join(text for _, text in kept)


def _part(part: Part, job: Job) -> Iterator[Ranked]:
    where = "step" if part.by_step else "page"
    if part.by_step or part.newest > 1:
        yield 0, Content(f"{where} {part.number} of {_steps(part, job)}")
    trained = [group for group in part.counted if not group.heldout]
    rewards = [reward for group in trained for reward in group.rewards]
    count = len(part.traces) if part.total is None else part.total
    attempts = f" in {part.attempts} attempts" if part.attempts > 1 else ""
    yield 3, Content(f"{counted(count, 'rollout')}{attempts}")
    if rewards:
        yield 2, Content(f"mean {short(fmean(rewards))}")
    flat = sum(group.compared and bool(group.rewards) and not group.teaches for group in trained)
    if flat:
        yield 5, Content(f"{flat} of {len(trained)} groups teach nothing")


def _steps(part: Part, job: Job) -> str:
    planned = job_progress(job).partition("/")[2] if part.by_step else ""
    return planned or str(part.newest)
