"""Reading a job's rollouts in parts, and showing them as rows of a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeVar

from textual.content import Content

from hud_tui.client.client import HudClient
from hud_tui.errors import HudError
from hud_tui.rl.groups import PLAIN, Advantages
from hud_tui.rl.metrics import short, with_sign
from hud_tui.rl.outcome import CANCELLED, PLAYED, stop_text
from hud_tui.rl.rollout_search import Keep, Sought
from hud_tui.rl.rollouts import Rollout, RolloutGroup, rollout_groups
from hud_tui.rl.run_columns import COLUMNS
from hud_tui.rl.text import age, count_unsafe, counted, one_line
from hud_tui.rl.transcript import transcript_of
from hud_tui.rl.work import Work, is_active, job_mean, title_of
from hud_tui.tui.theme import reward_bar
from hud_tui.tui.widgets.rollout_columns import Answer
from hud_tui.tui.widgets.table import DIM, Column, Row, item_row
from hud_tui.wire import Checkpoint, Group, Job
from hud_tui.wire_rollouts import CheckpointTrace, Trace

T = TypeVar("T")


@dataclass(frozen=True)
class StepGroups:
    """The groups of one step, in browsing order."""

    name: str
    """Display name of the step."""
    groups: Sequence[Group]
    """While the step is sampled, with the rollouts so far."""
    index: int
    """Index of the group to open."""
    model_id: str | None = None
    node: Checkpoint | None = None
    """The step's checkpoint; None while it is sampled."""
    step: int | None = None
    """Number of the step; None if the service does not report it."""
    names: Sequence[str] = ()
    """What each group is of, if they are of evaluations: these are not trained on."""
    sides: Sequence[tuple[str, int]] = ()
    """If its one group is of two sides that are compared: the name of each, and its number of
    rollouts, in their order."""


class GroupReader:
    """Reads the rollouts of one step's groups; the step's list of traces is requested once."""

    def __init__(self, client: HudClient | None, step: StepGroups) -> None:
        self._client, self._step = client, step
        self._rows: list[CheckpointTrace] | None = None

    def names(self, group: Group) -> bool:
        return len(group.trace_ids) == len(group.rewards)

    def asks(self, group: Group) -> bool:
        """Whether `known` will request the ids of the group's rollouts."""
        can = self._client is not None and None not in (self._step.model_id, self._step.node)
        return can and self._rows is None and not self.names(group)

    async def advantages(self) -> Advantages:
        """How the run that took the step computes advantages. Raises HudError."""
        node = self._step.node
        if self._client is None or node is None or node.job_id is None:
            return PLAIN
        return await _advantages(self._client, node.job_id)

    async def known(self, group: Group) -> Group:
        """The group with its trace ids, if the service reports them. Raises HudError."""
        if self.names(group) or self._client is None:
            return group
        model_id, node = self._step.model_id, self._step.node
        if model_id is None or node is None:
            return group
        if self._rows is None:
            self._rows = await self._client.rollouts.checkpoint_traces(model_id, node.id)
        own = [row for row in self._rows if row.task_slug == group.task_slug]
        own.sort(key=lambda row: -1 if row.rollout is None else row.rollout)
        if [row.reward for row in own] != group.rewards:
            return group  # the ids are ambiguous or incomplete: rather none than wrong ones
        return group.model_copy(update={"trace_ids": [row.trace_id for row in own]})

    async def read(self, answer: Answer) -> tuple[Answer, str]:
        if answer.trace_id is None or self._client is None:
            return answer, ""
        try:
            trace = await self._client.rollouts.trace(answer.trace_id)
            events = (await self._client.rollouts.trace_events(answer.trace_id)).events
        except HudError as error:
            return replace(answer, text=f"Cannot be read: {error.message}"), ""
        transcript = transcript_of(events, trace.completion)
        tokens = trace.num_tokens if answer.tokens is None else answer.tokens
        ended = stop_text(trace.stop_reason)
        read = replace(answer, text=transcript.answer, tokens=tokens, ended=ended)
        return read, transcript.prompt


# Reading a job's rollouts in parts: of a managed run by step, of any other job by page. A run of
# 400 steps has fifty thousand rollouts, and a screen shows those of one step.


PAGE = 1000
"""Number of rollouts per page of a job without steps."""


@dataclass(frozen=True)
class Part:
    """A part of a job's rollouts: of one step, or one page."""

    job: Job
    number: int
    """The step, or the page counted from 1."""
    newest: int
    by_step: bool
    total: int | None
    """Number of rollouts of the whole job, if all were read."""
    groups: tuple[RolloutGroup, ...]

    @property
    def traces(self) -> list[Trace]:
        return [rollout.trace for group in self.groups for rollout in group.rollouts]

    def group_of(self, trace: Trace) -> RolloutGroup:
        return next(g for g in self.groups if any(r.trace is trace for r in g.rollouts))

    @property
    def attempts(self) -> int:
        """Number of times that the step was sampled, judging by these rollouts."""
        return max((group.attempt for group in self.groups), default=1)

    @property
    def counted(self) -> list[RolloutGroup]:
        """The groups of the last attempt; earlier attempts had zero variance."""
        return [group for group in self.groups if group.attempt == self.attempts]

    @property
    def final(self) -> bool:
        """Whether nothing will be added to it."""
        return not is_active(self.job.status) or (self.by_step and self.number < self.newest)


class JobReader:
    """Reads one job's parts. The pages of a job without steps are read once, then cached."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._all: list[Trace] | None = None
        """Rollouts of a job without steps; None until they were read after its end."""
        self._rule: Advantages | None = None

    async def read(self, client: HudClient, requested: int | None = None) -> Part:
        """A step or page, None for the newest; the job in its present state. Raises HudError."""
        if requested is None or is_active(self.job.status):
            self.job = await client.job(self.job.id)
        if Work.of(self.job).step is None:
            return await self._page(client, requested)
        return await self._step(client, requested)

    async def _step(self, client: HudClient, requested: int | None) -> Part:
        """Rollouts of a step. A step that is being sampled, or at which a run failed, has rollouts
        although it was never taken."""
        job = self.job
        taken = Work.of(job).step or 0
        newest = max(1, newest_sampled(job))
        number = newest if requested is None else min(max(1, requested), newest)
        traces = await client.rollouts.job_traces(job.id, step=number)
        if not traces and requested is None and taken:
            number = newest = taken
            traces = await client.rollouts.job_traces(job.id, step=number)
        if self._rule is None:  # the job's row does not have it
            self._rule = await _advantages(client, job.id)
        groups = tuple(rollout_groups(traces, self._rule))
        return Part(job, number, newest, True, None, groups)

    async def _page(self, client: HudClient, requested: int | None) -> Part:
        job, everything = self.job, self._all
        if everything is None or is_active(job.status):
            everything = await client.rollouts.job_traces(job.id)
            self._all = None if is_active(job.status) else everything
        pages = max(1, -(-len(everything) // PAGE))
        number = pages if requested is None else min(max(1, requested), pages)
        traces = everything[(number - 1) * PAGE : number * PAGE]
        rule = PLAIN if Work.of(job).is_trained_on else None
        groups = tuple(rollout_groups(traces, rule))
        return Part(job, number, pages, False, len(everything), groups)


async def _advantages(client: HudClient, job_id: str) -> Advantages:
    """How a run computes advantages. Raises HudError."""
    run = await client.known_job(job_id)
    return Advantages.of_run(None if run is None else run.parameters)


def newest_sampled(job: Job) -> int:
    """The newest step that may have rollouts: as reported by the service, else the next one."""
    taken, reported = Work.of(job).step or 0, (job.metadata or {}).get("sampled_step")
    sampled = reported if isinstance(reported, int) else taken + 1
    return max(taken + 1 if is_active(job.status) else taken, sampled)


# Rows of the jobs view: jobs, a step's rollouts by task, and one rollout's siblings.


def job_rows(
    jobs: Iterable[Job], text: str, now: float, runs: Mapping[str, Work] | None = None
) -> list[Row]:
    """Active jobs first, then the others; only those that contain `text`. `now` is in Unix seconds;
    `runs` are rows of the jobs that are runs, by id."""
    words = text.casefold().split()
    shown = [job for job in jobs if all(word in _haystack(job) for word in words)]
    shown.sort(key=lambda job: not is_active(job.status))
    names = runs or {}
    return [item_row(JOBS, job.id, JobLine(job, names.get(job.id), now)) for job in shown]


def trace_columns(groups: Iterable[RolloutGroup]) -> Sequence[Column[Rollout]]:
    """The columns of rollouts; those of evaluations have no advantage."""
    return TRACES if any(group.compared for group in groups) else _evaluated(TRACES)


def sibling_columns(group: RolloutGroup) -> Sequence[Column[Sibling]]:
    """The same for the rollouts of a group."""
    return SIBLINGS if group.compared else _evaluated(SIBLINGS)


def _evaluated(columns: Sequence[Column[T]]) -> list[Column[T]]:
    return [column for column in columns if column.title not in ("advantage", "adv")]


def trace_rows(groups: Sequence[RolloutGroup], keep: Keep) -> list[Row]:
    """Rollouts that a filter keeps under a heading per task, and per attempt if there are
    several."""
    columns = trace_columns(groups)
    rows: list[Row] = []
    attempts = max((group.attempt for group in groups), default=1)
    headed = 0
    for number, group in enumerate(groups):
        members = [rollout for rollout in group.rollouts if keep(Sought(rollout))]
        if members and attempts > 1 and group.attempt != headed:
            headed = group.attempt
            heading = Content.styled(f"attempt {headed} of {attempts}", "bold $foreground")
            if headed != attempts:
                heading += Content.styled(": zero variance, sampled again", "$text-muted")
            rows.append(Row(f"attempt {headed}", (heading,), heading=True))
        if members:
            rows.append(Row(f"heading {number}", (group_heading(group),), heading=True))
        rows += [item_row(columns, rollout.trace.id, rollout) for rollout in members]
    return rows


def group_heading(group: RolloutGroup) -> Content:
    """A task with the mean and std of its rewards, e.g. ``add-7  .62 ± .31``."""
    parts = [Content.styled(one_line(group.task_slug or "rollouts", 40), "bold $foreground")]
    if group.mean_text:
        parts.append(Content(f"  {group.mean_text}"))
    if group.is_played:
        parts.append(Content(f"  {PLAYED}"))
    elif group.heldout and group.compared:
        parts.append(Content("  held out: evaluated, not trained on"))
    elif group.compared and group.rewards and not group.has_signal:
        parts.append(Content("  zero variance: no gradient"))
    return Content("").join(parts)


def sibling_rows(group: RolloutGroup, trace_id: str, beside: str | None = None) -> list[Row]:
    """The rollouts of a group, with the shown ones marked."""
    siblings = (
        Sibling(rollout, rollout.trace.id in (trace_id, beside)) for rollout in group.rollouts
    )
    columns = sibling_columns(group)
    return [item_row(columns, sibling.rollout.trace.id, sibling) for sibling in siblings]


def reward_cell(reward: float | None) -> Content:
    """A reward after a bar in the reward ramp's colour, on a scale from 0 to 1."""
    if reward is None or reward != reward:
        return Content.styled("–", "$text-muted")
    return reward_bar(reward) + Content(f"{short(reward):>6}")


def advantage_text(advantage: float | None) -> str:
    """An advantage with its sign; ``–`` if there is none."""
    return "–" if advantage is None else with_sign(advantage)


@dataclass(frozen=True)
class JobLine:
    """A job in the list, and the run that it is, if it is one."""

    job: Job
    run: Work | None
    now: float
    """Unix seconds."""

    @property
    def is_active(self) -> bool:
        return is_active(self.job.status)

    def text(self, key: str) -> str:
        """Its text in a column of Runs; empty if it is no run."""
        return "" if self.run is None else COLUMNS[key].text(self.run, self.now)


def _name(line: JobLine) -> Content:
    title = title_of(line.job.name, line.job.id)
    return Content.styled(title, "bold" if line.is_active else "")


def _status(line: JobLine) -> Content:
    status = line.job.status
    style = "$error" if status in ("failed", "error") else DIM
    return Content.styled(one_line(status or "–", 12), "bold" if line.is_active else style)


def _mean(line: JobLine) -> str:
    mean = job_mean(line.job)
    return line.text("reward") if mean is None else short(mean.value)


def _model(line: JobLine) -> str:
    model = (line.job.metadata or {}).get("model")
    if not model and line.run is not None:
        model = line.run.model
    return one_line(model or line.job.taskset_name or "", 40)


def _taskset(line: JobLine) -> str:
    return one_line(line.job.taskset_name or line.text("taskset"), 100)


JOBS: Sequence[Column[JobLine]] = (
    Column("", 1, lambda line: "●" if line.is_active else " ", "$accent", most=1),
    Column("job", 0, _name),
    Column("status", 9, _status, rank=1, most=12),
    Column(
        "step", 7, lambda line: (line.run or Work.of(line.job)).count, right=True, rank=2, most=13
    ),
    Column("reward", 6, _mean, right=True, rank=5, most=11),
    Column("model", 0, _model, DIM, rank=4, most=22),
    Column("ETA", 6, lambda line: line.text("eta") * line.is_active, right=True, rank=6, most=6),
    Column(
        "age", 5, lambda line: age(line.job.created_at, line.now), DIM, right=True, rank=3, most=5
    ),
    Column("id", 8, lambda line: one_line(line.job.id[:8], 8), DIM, rank=7, most=8),
    Column("taskset", 0, _taskset, DIM, rank=8, most=20),
    Column("learning rate", 13, lambda line: line.text("lr"), DIM, right=True, rank=9, most=13),
    Column("group size", 10, lambda line: line.text("group"), DIM, right=True, rank=10, most=10),
    Column("trend", 12, lambda line: line.text("spark"), "$accent", rank=11, most=12),
)
"""Numbers have a width that does not change as they grow."""
NAME = 1
"""The column of the job's name, whose width is what the others leave."""


STOP = 11
"""Cells of why a rollout stopped."""


def _stop(rollout: Rollout) -> Content:
    trace = rollout.trace
    failed = trace.error and trace.status != CANCELLED
    stop = stop_text(trace.stop_reason) or ("error" if failed else trace.status) or ""
    cut = failed or trace.stop_reason in ("length", "timeout")
    return Content.styled(one_line(stop, STOP), "$warning" if cut else DIM)


def _advantage(rollout: Rollout) -> Content:
    better = rollout.advantage is not None and rollout.advantage > 0
    return Content.styled(advantage_text(rollout.advantage), "" if better else DIM)


def _tokens(rollout: Rollout) -> str:
    tokens = rollout.trace.num_tokens
    return "" if tokens is None else str(tokens)


def _completion(rollout: Rollout) -> Content:
    text = rollout.trace.completion or ""
    badge = Content.styled("␛ ", "$warning") if count_unsafe(text) else Content()
    return badge + Content(one_line(text, 200))


TRACES: Sequence[Column[Rollout]] = (
    Column("#", 4, lambda rollout: str(rollout.number), DIM, right=True, rank=4),
    Column("reward", 7, lambda rollout: reward_cell(rollout.trace.reward), right=True),
    Column("advantage", 9, _advantage, right=True, rank=1),
    Column("tokens", 6, _tokens, DIM, right=True, rank=3),
    Column("stop", STOP, _stop, rank=2),
    Column("completion", 0, _completion),
)


@dataclass(frozen=True)
class Sibling:
    """A rollout of a group."""

    rollout: Rollout
    is_shown: bool


SIBLINGS: Sequence[Column[Sibling]] = (
    Column("", 1, lambda sibling: "▸" if sibling.is_shown else " ", "$foreground"),
    Column("#", 2, lambda sibling: str(sibling.rollout.number), DIM, right=True),
    Column("reward", 7, lambda sibling: reward_cell(sibling.rollout.trace.reward), right=True),
    Column("adv", 7, lambda sibling: _advantage(sibling.rollout), right=True),
    Column("tokens", 6, lambda sibling: _tokens(sibling.rollout), DIM, right=True, rank=1),
    Column("completion", 0, lambda sibling: _completion(sibling.rollout)),
)


def _haystack(job: Job) -> str:
    model = (job.metadata or {}).get("model") or ""
    return f"{job.name} {job.status} {job.id} {model} {job.taskset_name}".casefold()


# The title above each level of the jobs view, with totals.


DOT = Content.styled("  ·  ", "$text-muted")


def jobs_title(jobs: Sequence[Job] | None, shown: int | None = None) -> Content:
    if not jobs:
        return Content()
    running = sum(is_active(job.status) for job in jobs)
    some = "" if shown is None or shown == len(jobs) else f"{shown} of "
    parts = [Content.styled(f"{some}{counted(len(jobs), 'job')}", "bold")]
    if running:
        parts.append(Content.styled(f"{running} running", "$accent"))
    return DOT.join(parts)


Ranked = tuple[int, Content]
"""(rank, text): in a narrow line, texts with the highest rank are dropped first."""


def part_title(part: Part | None, job: Job, following: bool, width: int) -> Content:
    """A job and the totals of the listed rollouts, in at most `width` cells."""
    parts: list[Ranked] = [
        (1, Content.styled(title_of(job.name, job.id), "bold")),
        (5, Content(one_line(job.status or "–", 20))),
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
    hit: tuple[int, int] | None = None,
) -> Content:
    """A rollout's task, place in the group and reward, in at most `width` cells. `removed`: control
    characters in its text; `hit`: number of the present match of a search, and of all."""
    index = next(i for i, r in enumerate(group.rollouts) if r.trace.id == trace.id)
    parts: list[Ranked] = [(0, Content.styled(one_line(trace.task_slug or "rollout", 40), "bold"))]
    if trace.step is not None:
        parts.append((3, Content(f"step {trace.step}")))
    parts.append((2, Content(f"rollout {index + 1} of {len(group.rollouts)}")))
    parts.append((0, Content(f"reward {short(trace.reward)}")))
    if (advantage := group.rollouts[index].advantage) is not None:
        parts.append((1, Content(f"advantage {advantage_text(advantage)}{group.rule.formula_end}")))
    if group.heldout:
        parts.append((1, Content("held out")))
    if removed:
        parts.append((1, Content.styled(f"␛ removed ×{removed}", "bold $warning")))
    if hit is not None:
        matches = f"{hit[0]} of {hit[1]} found" if hit[1] else "not found"
        parts.append((0, Content.styled(matches, "$accent" if hit[1] else "$warning")))
    if trace.stop_reason:
        parts.append((4, Content(f"stopped: {stop_text(trace.stop_reason)}")))
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
    trained = part.counted
    if any(group.compared for group in part.groups):  # else it is an evaluation
        trained = [group for group in trained if not (group.heldout or group.evaluated)]
    yield from _rollouts(part, [reward for group in trained for reward in group.rewards])
    flat = sum(group.compared and bool(group.rewards) and not group.has_signal for group in trained)
    if flat:
        yield 4, Content(f"no gradient: {flat} of {counted(len(trained), 'group')}")


def _rollouts(part: Part, rewards: Sequence[float]) -> Iterator[Ranked]:
    """The number of rollouts and the mean of `rewards`, which are the training rollouts'; held-out
    rollouts of a step are counted separately, because that mean does not include them."""
    held_out = sum(len(group.rollouts) for group in part.groups if group.heldout)
    apart = part.total is None and 0 < held_out < len(part.traces)
    count = len(part.traces) if part.total is None else part.total
    attempts = f" in {part.attempts} attempts" if part.attempts > 1 else ""
    mean = f"mean reward {short(fmean(rewards))}" if rewards else ""
    if apart:
        trained = f"{counted(count - held_out, 'training rollout')}{attempts}"
        yield 2, Content(f"{trained}, {mean}" if mean else trained)
        yield 3, Content(f"{held_out} held-out")
        return
    yield 3, Content(f"{counted(count, 'rollout')}{attempts}")
    if mean:
        yield 2, Content(mean)


def _steps(part: Part, job: Job) -> str:
    planned = Work.of(job).count.partition("/")[2] if part.by_step else ""
    return planned or str(part.newest)
