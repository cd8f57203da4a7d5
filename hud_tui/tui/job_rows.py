"""Rows of the jobs view: jobs, a step's rollouts by task, and one rollout's siblings."""

from collections.abc import Iterable, Sequence

from textual.content import Content

from hud_tui.rl.ages import age, seconds
from hud_tui.rl.jobs import is_active, job_progress, job_title
from hud_tui.rl.metrics import short, signed
from hud_tui.rl.rollouts import Rollout, RolloutGroup
from hud_tui.rl.text import count_unsafe, one_line
from hud_tui.tui.widgets.palette import RAMP, eighth, ramp_index
from hud_tui.tui.widgets.row_list import Column, Row
from hud_tui.wire import Job

JOBS = (
    Column("", 1),
    Column("job"),
    Column("status", 12, rank=1),
    Column("step", 9, right=True, rank=2),
    Column("model", 18, rank=3),
    Column("age", 5, right=True, rank=4),
    Column("id", 8, rank=5),
)
TRACES = (
    Column("#", 4, right=True, rank=4),
    Column("reward", 7, right=True),
    Column("advantage", 9, right=True, rank=1),
    Column("tokens", 6, right=True, rank=3),
    Column("stop", 10, rank=2),
    Column("completion"),
)
SIBLINGS = (
    Column("", 1),
    Column("#", 2, right=True),
    Column("reward", 7, right=True),
    Column("adv", 7, right=True),
    Column("tokens", 6, right=True, rank=1),
    Column("completion"),
)


def job_rows(jobs: Iterable[Job], text: str, now: float) -> list[Row]:
    """Jobs that run first, then the newest; only those that contain `text`."""
    wanted = text.casefold().split()
    shown = [job for job in jobs if all(word in _haystack(job) for word in wanted)]
    shown.sort(key=lambda job: (not is_active(job), -(seconds(job.created_at) or 0.0)))
    return [_job(job, now) for job in shown]


def trace_rows(groups: Sequence[RolloutGroup], text: str) -> list[Row]:
    """Rollouts under a heading for each task, and for each attempt where there are several;
    only those whose task or text contain `text`."""
    rows: list[Row] = []
    wanted = text.casefold().split()
    attempts = max((group.attempt for group in groups), default=1)
    headed = 0
    for number, group in enumerate(groups):
        members = [r for r in group.rollouts if all(w in _text_of(group, r) for w in wanted)]
        if members and attempts > 1 and group.attempt != headed:
            headed = group.attempt
            heading = attempt_heading(headed, attempts)
            rows.append(Row(f"attempt {headed}", (heading,), heading=True))
        if members:
            rows.append(Row(f"heading {number}", (group_heading(group),), heading=True))
        rows += [_trace(rollout) for rollout in members]
    return rows


def attempt_heading(attempt: int, attempts: int) -> Content:
    """Which sampling of the step, e.g. ``attempt 2 of 3: no spread, sampled again``."""
    title = Content.styled(f"attempt {attempt} of {attempts}", "bold $foreground")
    if attempt == attempts:
        return title
    return title + Content.styled(": no spread, sampled again", "$text-muted")


def group_heading(group: RolloutGroup) -> Content:
    """A task and how its rollouts did, e.g. ``add-7  .62 ± .31``."""
    parts = [Content.styled(one_line(group.task_slug or "rollouts", 40), "bold $foreground")]
    if group.mean is not None:
        parts.append(Content(f"  {short(group.mean)} ± {short(group.spread)}"))
    if group.heldout:
        parts.append(Content("  held out: measured, not trained on"))
    elif group.compared and group.rewards and not group.teaches:
        parts.append(Content("  no spread: teaches nothing"))
    return Content("").join(parts)


def sibling_rows(group: RolloutGroup, trace_id: str) -> list[Row]:
    """A group's rollouts side by side, this one marked."""
    rows = []
    for place, rollout in enumerate(group.rollouts, 1):
        trace = rollout.trace
        mark = Content.styled("▸" if trace.id == trace_id else " ", "$foreground")
        cells = (mark, *_index(rollout, place), *_grade(rollout), _tokens(rollout), _said(rollout))
        rows.append(Row(trace.id, cells))
    return rows


def reward_cell(reward: float | None) -> Content:
    """A reward behind a bar in the ramp's colour; the scale is 0 to 1."""
    if reward is None or reward != reward:
        return Content.styled("–", "$text-muted")
    colour = RAMP[ramp_index(reward, 0.0, 1.0)]
    return Content.styled(eighth(max(reward, 1e-6)), colour) + Content(f"{short(reward):>6}")


def advantage_text(advantage: float | None) -> str:
    """An advantage with its sign; ``–`` where there is none."""
    return "–" if advantage is None else signed(advantage)


def _job(job: Job, now: float) -> Row:
    active = is_active(job)
    model = (job.metadata or {}).get("model")
    status = one_line(job.status or "–", 12)
    style = "bold" if active else "$error" if job.status in ("failed", "error") else "$text-muted"
    cells = (
        Content.styled("●" if active else " ", "$accent"),
        Content.styled(job_title(job), "bold" if active else ""),
        Content.styled(status, style),
        Content(job_progress(job)),
        Content.styled(one_line(model or job.taskset_name or "", 40), "$text-muted"),
        Content.styled(age(job.created_at, now), "$text-muted"),
        Content.styled(one_line(job.id[:8], 8), "$text-muted"),
    )
    return Row(job.id, cells)


def _trace(rollout: Rollout) -> Row:
    trace = rollout.trace
    stop = one_line(trace.stop_reason or ("error" if trace.error else trace.status) or "", 10)
    warm = (
        "$warning" if trace.error or trace.stop_reason in ("length", "timeout") else "$text-muted"
    )
    cells = (
        *_index(rollout, None),
        *_grade(rollout),
        _tokens(rollout),
        Content.styled(stop, warm),
        _said(rollout),
    )
    return Row(trace.id, cells)


def _index(rollout: Rollout, place: int | None) -> tuple[Content]:
    index = rollout.trace.rollout
    number = place if index is None else index + 1
    return (Content.styled("" if number is None else str(number), "$text-muted"),)


def _grade(rollout: Rollout) -> tuple[Content, Content]:
    better = rollout.advantage is not None and rollout.advantage > 0
    advantage = Content.styled(advantage_text(rollout.advantage), "" if better else "$text-muted")
    return reward_cell(rollout.trace.reward), advantage


def _tokens(rollout: Rollout) -> Content:
    tokens = rollout.trace.num_tokens
    return Content.styled("" if tokens is None else str(tokens), "$text-muted")


def _said(rollout: Rollout) -> Content:
    text = rollout.trace.completion or ""
    badge = Content.styled("␛ ", "$warning") if count_unsafe(text) else Content()
    return badge + Content(one_line(text, 200))


def _haystack(job: Job) -> str:
    model = (job.metadata or {}).get("model") or ""
    return f"{job.name} {job.status} {job.id} {model} {job.taskset_name}".casefold()


def _text_of(group: RolloutGroup, rollout: Rollout) -> str:
    trace = rollout.trace
    return f"{group.task_slug} {trace.completion} {trace.stop_reason} {trace.id}".casefold()
