"""``run --follow``: a run's events as they happen, one document a line, then its result."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from hud_tui.client.client import HudClient
from hud_tui.client.submission import Submission, submit
from hud_tui.errors import HudError
from hud_tui.events import Event, JobChanged, TreeRead
from hud_tui.headless.listening import Listener
from hud_tui.headless.output import emit, tell
from hud_tui.headless.sentry import Sentry
from hud_tui.rl.job_words import SUCCEEDED, has_ended
from hud_tui.wire import JobStatus, Model, SubmitJob


class Follower:
    """Opens the feed, submits, and prints until the run has ended."""

    def __init__(self, client: HudClient, model: Model, sentry: Sentry) -> None:
        self._client, self._model, self._sentry = client, model, sentry
        self._feed = client.feed(model.id)
        self._listener = Listener(self._feed, sentry.wait)

    async def run(self, body: SubmitJob) -> int:
        """Returns 0 where the run succeeded, else 1.

        Raises:
            HudUnreachable: The service is gone; the run may go on.
            HudAlarm: The run is as bad as `sentry` fails on; it goes on.
        """
        async with aclosing(aiter(self._feed)) as events:
            first = await self._listener.next(events)  # from here on nothing is missed
            self._sentry.begin(first, news=False)
            submission = await submit(self._client, body)
            tell(f"job {submission.job_id} is submitted; it goes on if this is interrupted")
            try:
                return await self._follow(events, submission)
            except HudError as error:
                error.outcome = "done"
                error.hint = f"{error.hint}; job {submission.job_id} is submitted".lstrip("; ")
                raise

    async def _follow(self, events: AsyncGenerator[Event, None], submission: Submission) -> int:
        while True:
            event = await self._listener.next(events)
            if not isinstance(event, TreeRead):
                emit("event", event)
            self._sentry.hear(event)
            if isinstance(event, JobChanged) and _has_ended(event.job, submission):
                return self._finish(submission, event.job)

    def _finish(self, submission: Submission, job: JobStatus) -> int:
        job_id, model = submission.job_id, self._model.model_name
        emit("job", {"job_id": job_id, "model": model, "status": job})
        return 0 if job.status in SUCCEEDED else 1


def _has_ended(job: JobStatus, submission: Submission) -> bool:
    """Whether this is the submitted run, at its end; HUD does not say which run it is."""
    ours = job.id == submission.job_id if job.id else not submission.is_before(job)
    return ours and has_ended(job.status)
