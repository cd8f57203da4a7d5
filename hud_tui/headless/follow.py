"""``run --follow``: a run's events as they happen, one document a line, then its result."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import monotonic

from hud_tui.client.client import HudClient
from hud_tui.client.submission import Submission, submit
from hud_tui.errors import HudUnreachable
from hud_tui.events import Event, JobChanged, TreeRead
from hud_tui.headless.output import emit, tell
from hud_tui.rl.job_words import SUCCEEDED, has_ended
from hud_tui.wire import JobStatus, Model, SubmitJob

WATCH_S = 1.0
"""Seconds between two looks at how the feed is doing while no event comes."""
PATIENCE_S = 300.0
"""A service that has not been heard for so long is given up."""


class Follower:
    """Opens the feed, submits, and prints until the run has ended."""

    def __init__(self, client: HudClient, model: Model) -> None:
        self._client = client
        self._model = model
        self._feed = client.feed(model.id)
        self._told = ""

    async def run(self, body: SubmitJob) -> int:
        """Returns 0 where the run succeeded, else 1.

        Raises:
            HudUnreachable: The service is gone; the run may go on.
        """
        async with aclosing(aiter(self._feed)) as events:
            await self._next(events)  # the tree: from here on nothing is missed
            submission = await submit(self._client, body)
            tell(f"job {submission.job_id} is submitted; it goes on if this is interrupted")
            while True:
                event = await self._next(events)
                if not isinstance(event, TreeRead):
                    emit("event", event)
                if isinstance(event, JobChanged) and _has_ended(event.job, submission):
                    return self._finish(submission, event.job)

    async def _next(self, events: AsyncGenerator[Event, None]) -> Event:
        waiting = asyncio.ensure_future(anext(events))
        try:
            while not waiting.done():
                await asyncio.wait([waiting], timeout=WATCH_S)
                self._watch()
            return waiting.result()
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])

    def _watch(self) -> None:
        """Say on stderr that the feed is cut, and that it is back."""
        feed = self._feed
        if feed.trouble != self._told:
            self._told = feed.trouble
            tell(f"reconnecting: {feed.trouble}" if feed.trouble else "connected again")
        if feed.heard_at is not None and monotonic() - feed.heard_at > PATIENCE_S:
            raise HudUnreachable(
                f"nothing heard from the service for {PATIENCE_S:.0f} s: {feed.trouble}",
                "the run may go on: hud-tui --headless jobs",
            )

    def _finish(self, submission: Submission, job: JobStatus) -> int:
        job_id, model = submission.job_id, self._model.model_name
        emit("job", {"job_id": job_id, "model": model, "status": job})
        return 0 if job.status in SUCCEEDED else 1


def _has_ended(job: JobStatus, submission: Submission) -> bool:
    """Whether this is the submitted run, at its end; HUD does not say which run it is."""
    ours = job.id == submission.job_id if job.id else not submission.is_before(job)
    return ours and has_ended(job.status)
