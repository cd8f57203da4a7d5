"""Submitting a run once, and finding the outcome if the answer is lost."""

import asyncio
from dataclasses import dataclass

from hud_tui.client.client import HudClient
from hud_tui.errors import HudError, HudUnclear
from hud_tui.rl.tasks.legacy import fill_rows
from hud_tui.settings import every_variable
from hud_tui.wire import JobDataset, JobStatus, SubmitJob

LOOKS, LOOK_S = 3, 1.0
"""Attempts to find a lost submission, and seconds between them."""


@dataclass(frozen=True)
class Submission:
    """A run accepted by the service."""

    job_id: str
    found: bool = False
    """Whether its answer was lost and the run was found by asking for the model's latest."""
    before: JobStatus | None = None
    """The model's latest run before this one."""

    def is_before(self, job: JobStatus) -> bool:
        """Whether this is the run that came before, as far as can be told."""
        before = self.before
        return before is not None and (before.id, before.created_at) == (job.id, job.created_at)


async def submit(client: HudClient, body: SubmitJob) -> Submission:
    """Submit once. If the answer is lost, look for a new run of the model.

    Raises:
        HudError: Refused, or lost and no new run was found.
    """
    before = await client.known_job(body.model_id)
    body = _filled(body)
    try:
        return Submission((await client.submit(body)).job_id, before=before)
    except HudUnclear as error:
        failure = error
    after = await _look(client, body.model_id, Submission("", before=before), failure)
    return Submission(after.id or body.model_id, found=True, before=before)


def _filled(body: SubmitJob) -> SubmitJob:
    """The rows with variables substituted, as HUD's client sends them: the service does not
    have this environment. Values are never logged or shown."""
    if not any("mcp_config" in row for row in body.dataset.tasks):
        return body
    rows = fill_rows(body.dataset.tasks, every_variable())
    return body.model_copy(update={"dataset": JobDataset(tasks=rows)})


async def _look(client: HudClient, model_id: str, lost: Submission, failure: HudError) -> JobStatus:
    """Find the new run, with several attempts.

    Raises:
        HudError: `failure`, with a hint.
    """
    for look in range(LOOKS):
        await asyncio.sleep(LOOK_S if look else 0)
        try:
            after = await client.known_job(model_id)
        except HudError:
            raise failure from None
        if after is not None and not lost.is_before(after):
            return after
    failure.hint = "the service shows no new run of this model: check again before you resubmit"
    raise failure
