"""Reports: what a loop samples and how it grades that, told to the service as HUD's SDK does.

Every rollout has a trace under one job, so the loop can be watched as it goes and trained
by trace id. A report that fails costs the loop nothing but the view.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from hud_tui.errors import HudError
from hud_tui.rl.text import one_line
from hud_tui.wire import JobEnter, TraceEnter, TraceExit

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient
    from hud_tui.client.trainer_rollouts import Rollout

log = logging.getLogger(__name__)


class Reports:
    """One loop's job and the rollouts in it that have not been graded yet."""

    def __init__(self, client: "HudClient") -> None:
        self.job_id = uuid4().hex
        self._client = client
        self._entered = False
        self._open: set[str] = set()

    async def enter(self, model: str, group: list[str], task_slug: str, group_id: str) -> None:
        """A group of rollouts of one prompt begins.

        Args:
            model: The slug of what is sampled.
            group: Trace ids, one a rollout.
            task_slug: What the group is called.
            group_id: The same for all of them.
        """
        if not self._entered:
            self._entered = True
            entered = JobEnter(name=f"loop on {model}", group=len(group))
            await _quietly(self._client.enter_job(self.job_id, entered))
        body = TraceEnter(job_id=self.job_id, group_id=group_id, task_slug=task_slug, model=model)
        await asyncio.gather(*(_quietly(self._client.enter_trace(id_, body)) for id_ in group))
        self._open.update(group)

    async def graded(self, inputs: Iterable[Any]) -> None:
        """Report the rewards of those rollouts among a batch that this loop sampled."""
        done = {r.trace_id: r for r in inputs if getattr(r, "trace_id", None) in self._open}
        self._open -= done.keys()
        await asyncio.gather(*(_quietly(self._leave(r)) for r in done.values()))

    async def failed(self, group: list[str], error: HudError) -> None:
        """Report that the rollouts of a group did not come about."""
        await self._end(group, TraceExit(status="error", error=one_line(error.message)))

    async def close(self) -> None:
        """Report that nobody will grade what is still open."""
        await self._end(list(self._open), TraceExit(status="completed"))

    async def _end(self, ids: list[str], body: TraceExit) -> None:
        self._open.difference_update(ids)
        await asyncio.gather(*(_quietly(self._client.exit_trace(id_, body)) for id_ in ids))

    async def _leave(self, rollout: "Rollout") -> None:
        stop = "length" if rollout.finish_reason == "length" else "done"
        body = TraceExit(status="completed", reward=rollout.reward, stop_reason=stop)
        await self._client.exit_trace(rollout.trace_id or "", body)


async def _quietly(report: Any) -> None:
    try:
        await report
    except HudError as error:
        log.warning("a rollout was not reported: %s", one_line(error.message))
