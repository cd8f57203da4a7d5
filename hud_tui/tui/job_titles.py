"""The line above each level of the jobs view: where we are, and what it comes to."""

from collections.abc import Sequence
from statistics import fmean

from textual.content import Content

from hud_tui.rl.metrics import short
from hud_tui.rl.rollouts import RolloutGroup
from hud_tui.rl.text import one_line
from hud_tui.tui.job_reader import Part
from hud_tui.tui.job_rows import advantage_text, is_active, job_progress, job_title
from hud_tui.wire import Job, Trace

DOT = Content.styled("  ·  ", "$text-muted")


def jobs_title(jobs: Sequence[Job] | None) -> Content:
    """How many jobs there are."""
    if not jobs:
        return Content()
    running = sum(is_active(job) for job in jobs)
    parts = [Content.styled(f"{len(jobs)} job{'s' * (len(jobs) != 1)}", "bold")]
    if running:
        parts.append(Content.styled(f"{running} running", "$accent"))
    return DOT.join(parts)


def part_title(part: Part | None, job: Job | None, following: bool) -> Content:
    """A job, and what the rollouts that are listed come to."""
    if job is None:
        return Content()
    parts = [Content.styled(job_title(job), "bold"), Content(one_line(job.status or "–", 20))]
    if part is None:
        return DOT.join(parts)
    where = "step" if part.by_step else "page"
    if part.by_step or part.newest > 1:
        parts.append(Content(f"{where} {part.number} of {_steps(part, job)}"))
    if part.by_step and following and is_active(job):
        parts.append(Content.styled("newest ↻", "$accent"))
    trained = [group for group in part.groups if not group.heldout]
    rewards = [reward for group in trained for reward in group.rewards]
    count = len(part.traces) if part.total is None else part.total
    parts.append(Content(f"{count:,} rollouts".replace(",", " ")))
    if rewards:
        parts.append(Content(f"mean {short(fmean(rewards))}"))
    flat = sum(group.compared and bool(group.rewards) and not group.teaches for group in trained)
    if flat:
        parts.append(Content(f"{flat} of {len(trained)} groups without spread"))
    return DOT.join(parts)


def rollout_title(part: Part, group: RolloutGroup, trace: Trace) -> Content:
    """One rollout: its task, its place in the group, how it was graded."""
    place = next(i for i, r in enumerate(group.rollouts) if r.trace is trace)
    parts = [Content.styled(one_line(trace.task_slug or "rollout", 40), "bold")]
    if trace.step is not None:
        parts.append(Content(f"step {trace.step}"))
    parts.append(Content(f"rollout {place + 1} of {len(group.rollouts)}"))
    parts.append(Content(f"reward {short(trace.reward)}"))
    advantage = group.rollouts[place].advantage
    if advantage is not None:
        parts.append(Content(f"advantage {advantage_text(advantage)}"))
    if group.heldout:
        parts.append(Content("held out"))
    if trace.stop_reason:
        parts.append(Content(f"stop {one_line(trace.stop_reason, 20)}"))
    return DOT.join(parts)


def _steps(part: Part, job: Job) -> str:
    return (job_progress(job).partition("/")[2] if part.by_step else "") or str(part.newest)
