"""Reading a job's rollouts a part at a time: a managed run by step, any other by pages.

A run of 400 steps has fifty thousand rollouts, and a screen shows one step's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hud_tui.rl.rollouts import RolloutGroup, rollout_groups
from hud_tui.tui.job_rows import is_active, job_sampled, job_step
from hud_tui.wire import Job, Trace

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

PAGE = 1000
"""Rollouts shown at once of a job without steps."""


@dataclass(frozen=True)
class Part:
    """Some of a job's rollouts: those of one step, or one page."""

    job: Job
    number: int
    """The step, or the page from 1."""
    newest: int
    """The newest step or page that there is."""
    by_step: bool
    total: int | None
    """Rollouts of the whole job, where they were all read."""
    groups: tuple[RolloutGroup, ...]

    @property
    def traces(self) -> list[Trace]:
        return [rollout.trace for group in self.groups for rollout in group.rollouts]

    def group_of(self, trace: Trace) -> RolloutGroup:
        """The group that a rollout of this part is in."""
        return next(g for g in self.groups if any(r.trace is trace for r in g.rollouts))

    @property
    def final(self) -> bool:
        """Whether nothing will be added to it."""
        return not is_active(self.job) or (self.by_step and self.number < self.newest)


class JobReader:
    """Reads one job's parts. All pages of a job without steps are read once, then kept."""

    def __init__(self, client: HudClient, job: Job) -> None:
        self.job = job
        self._client = client
        self._all: list[Trace] | None = None

    async def read(self, wanted: int | None = None) -> Part:
        """A step or page; None is the newest, of a job that runs as it is now.

        Raises:
            HudError: The service refused or did not answer.
        """
        if wanted is None or is_active(self.job):
            self.job = await self._client.job(self.job.id)
        step = job_step(self.job)
        return await (self._page(wanted) if step is None else self._step(step, wanted))

    async def _step(self, taken: int, wanted: int | None) -> Part:
        """A step has rollouts before it is taken, and where it never is."""
        newest = taken + 1 if is_active(self.job) else max(taken, job_sampled(self.job))
        number = newest if wanted is None else min(max(1, wanted), max(1, newest))
        traces = await self._client.job_traces(self.job.id, step=number)
        if not traces and wanted is None and taken:
            number = newest = taken
            traces = await self._client.job_traces(self.job.id, step=number)
        return Part(self.job, number, newest, True, None, tuple(rollout_groups(traces)))

    async def _page(self, wanted: int | None) -> Part:
        if self._all is None or is_active(self.job):
            self._all = await self._client.job_traces(self.job.id)
        pages = max(1, -(-len(self._all) // PAGE))
        number = pages if wanted is None else min(max(1, wanted), pages)
        traces = self._all[(number - 1) * PAGE : number * PAGE]
        groups = tuple(rollout_groups(traces))
        return Part(self.job, number, pages, False, len(self._all), groups)
