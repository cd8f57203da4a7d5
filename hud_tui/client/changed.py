"""Reads what is stored of two checkpoints: held-out rollouts, those of single tasks, and the
parameters of the runs that made them. Nothing is sampled."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from hud_tui.client.evaluate import Evaluations
from hud_tui.client.feed import GroupReader
from hud_tui.client.runs import RunList
from hud_tui.errors import HudError, HudUsage
from hud_tui.rl.changed import Comparison, Heldout, HeldoutRollouts, compare
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.evaluation import Scores, TaskScore, difference
from hud_tui.rl.own_numbers import REWARD
from hud_tui.rl.run_groups import Differences, differences
from hud_tui.rl.runs import run_of_job
from hud_tui.rl.sides import (
    Sampled,
    Side,
    evaluation_of,
    heldout_pairs,
    heldout_step,
    step_of_run,
    steps_around,
)
from hud_tui.rl.text import one_line
from hud_tui.rl.work import Work
from hud_tui.wire import Checkpoint, Group
from hud_tui.wire_rollouts import Trace

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

STEPS_MOST = 4
"""Most steps on either side whose groups are read, the nearest, where a tree does not have them."""


class ChangeReader:
    """Compares checkpoints by what a service has stored of them."""

    def __init__(self, client: "HudClient", evaluations: Evaluations) -> None:
        self._client, self._evaluations = client, evaluations

    async def compare(
        self, left: Side, right: Side, runs: Sequence[Work] | None = None
    ) -> Comparison:
        """What is stored of two checkpoints. What cannot be read is left out. `runs`: those that
        made them, if they are known."""
        read, (heldout, unread) = await asyncio.gather(
            self._groups(left, right), self._heldout(left, right)
        )
        both = compare(left, right, read)
        settings = differences(runs) if runs else await self._settings(both)
        both = replace(both, heldout=heldout, unread=unread, settings=settings)
        await asyncio.to_thread(both.draw)
        return both

    async def training(self, both: Comparison, slug: str) -> list[Group]:
        """The training rollouts of one task, left and right, with their trace ids. Raises
        HudError."""
        sides = zip((both.left, both.right), both.sampled, strict=True)
        return [await self._of_task(side, sampled, slug) for side, sampled in sides]

    async def _of_task(self, side: Side, sampled: Sampled, slug: str) -> Group:
        """The rollouts of a task in a sample; without trace ids if the service has none. Raises
        HudError."""
        group = Group(task_slug=slug, rewards=[])
        for step in (step for position in sampled.positions for step in side.tree.steps(position)):
            if step.groups and not any(each.task_slug == slug for each in step.groups):
                continue
            for trace in await self._client.rollouts.checkpoint_traces(side.model_id, step.id):
                if trace.task_slug == slug and trace.reward is not None:
                    group.rewards.append(trace.reward)
                    group.trace_ids.append(trace.trace_id)
        of_task = (each for each in sampled.groups if each.task_slug == slug)
        return group if group.rewards else next(of_task, group)

    async def heldout(self, both: Comparison, slug: str) -> list[Group]:
        """The held-out rollouts of one task, left and right, with their trace ids. Raises
        HudError."""
        heldout, groups = both.heldout, list[Group]()
        if heldout is None:
            return groups
        for side, rollouts in ((both.left, heldout.before), (both.right, heldout.after)):
            node, of = side.tree.node(rollouts.position), rollouts.evaluation
            if of is None:
                groups += [group for group in rollouts.groups if group.task_slug == slug]
            else:
                step = None if node is None else step_of_run(side.tree, node)
                groups.append(await self._evaluations.rollouts(of, node, slug, step))
        return groups

    async def batch(self, side: Side, step: Checkpoint) -> Sequence[Group]:
        """The groups that a step was trained on; empty if the service does not have them."""
        return await GroupReader(self._client, side.model_id).groups(step)

    async def _groups(self, left: Side, right: Side) -> dict[str, Sequence[Group]]:
        """Groups of the nearest steps, for services whose trees do not have them."""
        read: dict[str, Sequence[Group]] = {}
        for side, other in ((left, right), (right, left)):
            reader = GroupReader(self._client, side.model_id)
            steps = [step for _, steps in steps_around(side, other) for step in steps]
            for step in [step for step in steps if not step.groups][:STEPS_MOST]:
                read[step.id] = await reader.groups(step)
        return read

    async def _heldout(self, left: Side, right: Side) -> tuple[Heldout | None, str]:
        """The held-out rollouts of the nearest checkpoints on the same tasks; else why some could
        not be read, empty if all could."""
        unread = ""
        for before, after in [(left.position, right.position), *heldout_pairs(left, right)]:
            try:
                heldout = await self._pair(left, right, before, after)
            except HudError as error:
                unread = one_line(error.message)
                continue
            if heldout is not None:
                return heldout, ""
        return None, unread

    async def _pair(self, left: Side, right: Side, before: int, after: int) -> Heldout | None:
        """The held-out rollouts of two checkpoints; None if they are not of the same tasks. Raises
        HudError: they cannot be read, or are no longer stored."""
        paired = await self._evaluations.paired(
            left.evaluations_of(before), right.evaluations_of(after)
        )
        if paired is not None:
            changes = paired.difference.changes
            return Heldout(
                HeldoutRollouts(before, _by_slug(each.before for each in changes), paired.before),
                HeldoutRollouts(after, _by_slug(each.after for each in changes), paired.after),
                paired.difference,
            )
        first, second = await asyncio.gather(
            self._of_side(left, before), self._of_side(right, after)
        )
        delta = difference(Scores.of(first.groups), Scores.of(second.groups))
        return None if delta is None else Heldout(first, second, delta)

    async def _of_side(self, side: Side, position: int) -> HeldoutRollouts:
        evaluation, source = evaluation_of(side, position), heldout_step(side, position)
        if evaluation is None and source is None:
            return HeldoutRollouts(position, [])
        if evaluation is not None:
            groups: Sequence[Group] = (await self._evaluations.get(evaluation.id or "")).groups
        elif source is not None:
            groups = _by_task(await self._client.rollouts.job_traces(*source))
        if not groups:
            raise HudError(f"the service does not have those of {side.name_of(position)}")
        return HeldoutRollouts(position, groups, evaluation)

    async def _settings(self, both: Comparison) -> Differences | None:
        """In what the runs that made them differ; None if one run made both, or one is unknown."""
        nodes = [side.node for side in (both.left, both.right)]
        ids = [node.job_id for node in nodes if node is not None and node.job_id is not None]
        if len(ids) < 2 or both.is_of_one_run:
            return None
        with suppress(HudError):
            return differences([await self._run(id_) for id_ in ids])
        return None

    async def _run(self, job_id: str) -> Work:
        job, status = await asyncio.gather(self._client.job(job_id), self._client.known_job(job_id))
        return run_of_job(job, None, status)


def _by_slug(tasks: Iterable[TaskScore]) -> list[Group]:
    return [Group(task_slug=task.slug, rewards=[*task.rewards]) for task in tasks]


def _by_task(traces: Sequence[Trace]) -> list[Group]:
    """The held-out rollouts among a step's, which were sampled while it was."""
    groups: dict[str, Group] = {}
    for trace in traces:
        if trace.heldout and trace.evaluates is None and trace.reward is not None:
            slug = trace.task_slug or ""
            group = groups.setdefault(slug, Group(task_slug=slug, rewards=[]))
            group.rewards.append(trace.reward)
            group.trace_ids.append(trace.id)
    return list(groups.values())


async def sides_of_runs(
    client: "HudClient", runs: RunList, rows: tuple[Work, Work]
) -> tuple[Side, Side]:
    """The last checkpoints of two runs.

    Raises:
        HudUsage: A run has no checkpoint.
        HudError: The service does not answer.
    """
    trees: dict[str, Tree] = {}
    sides = []
    for row in rows:
        if row.why_no_checkpoint:
            raise HudUsage(row.why_no_checkpoint)
        series, model_id = await runs.series(row.id, (REWARD,)), row.model_id or ""
        if model_id not in trees:
            trees[model_id] = Tree.of(await client.checkpoints(model_id))
        position = trees[model_id].find(series.ids[-1]) if series.ids else None
        if position is None:
            raise HudUsage(f"{one_line(row.title, 60)} has taken no step yet")
        sides.append(Side(trees[model_id], position, model_id, row.model))
    left, right = sides
    if left.tree is right.tree:
        return replace(left, model=""), replace(right, model="")
    return left, right
