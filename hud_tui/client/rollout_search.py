"""Searching the rollouts of a step, a run or an evaluation."""

from asyncio import gather
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace

from hud_tui.client.client import HudClient
from hud_tui.client.transcripts import ReadRollout, read_rollout
from hud_tui.errors import HudError
from hud_tui.rl.groups import Advantages
from hud_tui.rl.rollout_search import Needles, Place, Sought, split_filter, where_found
from hud_tui.rl.rollouts import Rollout, RolloutGroup, rollout_groups
from hud_tui.rl.work import Work

MOST_ROLLOUTS = 5000
"""Most rollouts of a job that are searched: the newest."""
AT_ONCE = 8
"""Conversations that are read at the same time."""


@dataclass(frozen=True)
class Searched:
    """The rollouts in which a search looks."""

    groups: Sequence[RolloutGroup]
    rollouts: Sequence[Rollout]
    """The same in chronological order."""
    total: int
    """How many there are; more than are in the groups if there are very many."""
    model_id: str | None = None
    """The model that the job trains or evaluates, if the service says."""


@dataclass(frozen=True)
class Match:
    """A rollout that a filter keeps."""

    rollout: Rollout
    """With its grading, if its conversation was read."""
    place: Place | None
    """Where the first word of the filter stands; None if it has none."""


@dataclass(frozen=True)
class Progress:
    """How far a search has come, and what it found since it last said so."""

    done: int
    """Rollouts that it has looked at."""
    matches: Sequence[Match] = ()
    failed: int = 0
    """Rollouts that could not be read."""


async def read_searched(client: HudClient, job_id: str, step: int | None) -> Searched:
    """A job's rollouts, or those of one step. Raises HudError."""
    job = await client.job(job_id)
    work = Work.of(job)
    rule: Advantages | None = None
    if work.is_trained_on:
        run = await client.known_job(job_id)
        rule = Advantages.of_run(None if run is None else run.parameters)
    if step is not None:
        traces = await client.rollouts.job_traces(job_id, step)
        total = len(traces)
    else:
        total = (await client.rollouts.trace_page(job_id, 1, 0)).total
        pages = client.rollouts.trace_pages(job_id, max(0, total - MOST_ROLLOUTS))
        traces = [trace async for page in pages for trace in page]
    groups = rollout_groups(traces, rule)
    by_id = {rollout.trace.id: rollout for group in groups for rollout in group.rollouts}
    return Searched(groups, [by_id[trace.id] for trace in traces], total, work.model_id)


async def search(
    client: HudClient, rollouts: Sequence[Rollout], expression: str
) -> AsyncGenerator[Progress, None]:
    """The rollouts that a filter keeps, as they are found. A conversation is read only if the row
    alone does not decide. Raises HudUsage: the filter is invalid."""
    by_row, whole = split_filter(expression)
    needles = Needles.of(expression)
    kept = [rollout for rollout in rollouts if by_row(Sought(rollout))]
    if whole is None:
        yield Progress(len(rollouts), [Match(rollout, None) for rollout in kept])
        return
    done, failed = len(rollouts) - len(kept), 0
    for start in range(0, len(kept), AT_ONCE):
        part = kept[start : start + AT_ONCE]
        read = await gather(*(_read(client, rollout) for rollout in part))
        matches = []
        for rollout, told in zip(part, read, strict=True):
            if told is None:
                failed += 1
                continue
            rollout = replace(rollout, trace=told.trace)
            if whole(Sought(rollout, told.transcript)):
                matches.append(Match(rollout, where_found(told.transcript, needles)))
        done += len(part)
        yield Progress(done, matches, failed)
    if not kept:
        yield Progress(len(rollouts))


async def _read(client: HudClient, rollout: Rollout) -> ReadRollout | None:
    try:
        return await read_rollout(client, rollout.trace.id, rollout.trace)
    except HudError:
        return None
