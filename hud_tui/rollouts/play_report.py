"""What a service is told of a game: a rollout, in a job of its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

from hud_tui.errors import HudError
from hud_tui.rl.text import one_line
from hud_tui.rollouts.play_link import PlayLink
from hud_tui.wire_rollouts import JobEnter, TraceEnter, TraceExit

LEAVE_S = 5.0
"""Longest that leaving a game waits for the service, seconds."""


class PlayReport:
    """Tells how the rollout begins, and how it ends if it does so early."""

    def __init__(self, link: PlayLink, job_id: str, name: str, entered: TraceEnter) -> None:
        """`name`: of the job; `entered`: what is told of the rollout when it begins."""
        self.job_id, self.trace_id = job_id.replace("-", ""), uuid4().hex
        self._link, self._name = link, one_line(name, 200)
        self._entered = entered.model_copy(update={"job_id": self.job_id})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Enter the job. If the block ends early, the rollout is told to be cancelled, or to have
        failed. Raises HudError: the service does not answer."""
        try:
            await self._enter_job()
            yield
        except asyncio.CancelledError:
            await to_its_end(self.end_early("cancelled", "the player left"))
            raise
        except HudError as error:
            await to_its_end(self.end_early("error", one_line(error.message, 300)))
            raise

    async def enter(self) -> None:
        """Tell that the rollout begins. Raises HudError: the service does not answer."""
        entered = self._entered
        await self._link.call(lambda client: client.rollouts.enter_trace(self.trace_id, entered))

    async def exit(self, told: TraceExit) -> None:
        """Tell how the rollout ended. Raises HudError: the service does not answer."""
        await self._link.call(lambda client: client.rollouts.exit_trace(self.trace_id, told))

    async def end_early(self, status: str, error: str) -> None:
        """Tell that the rollout has ended without a grade, also if nobody has told yet that it
        began. Raises HudError: the service does not answer."""
        await self._enter_job()
        await self.enter()
        await self.exit(TraceExit(status=status, error=error))

    async def _enter_job(self) -> None:
        job = JobEnter(name=self._name, group=1)
        await self._link.call(lambda client: client.rollouts.enter_job(self.job_id, job))


async def to_its_end(work: Awaitable[None]) -> None:
    """Await what an end needs: however often the caller is cancelled, but for no longer than
    LEAVE_S, and without its HudError, which would hide why it ends."""
    doing = asyncio.ensure_future(_within_limit(work))
    while not doing.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([doing])


async def _within_limit(work: Awaitable[None]) -> None:
    with suppress(HudError, TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            await work
