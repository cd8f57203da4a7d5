"""Submitting a run once, and finding out what became of it when no answer comes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hud_tui.errors import HudError, HudNotFound, HudRefused, HudUnreachable
from hud_tui.wire import JobStatus, SubmitJob

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient


@dataclass(frozen=True)
class Submission:
    """A run that the service has taken."""

    job_id: str
    found: bool = False
    """Whether its answer was lost and the run was found by asking for the model's latest."""
    before: JobStatus | None = None
    """The model's latest run before this one."""

    def is_before(self, job: JobStatus) -> bool:
        """Whether this is the run that came before, as far as can be told."""
        before = self.before
        return before is not None and (before.id, before.created_at) == (job.id, job.created_at)


async def submit(client: "HudClient", body: SubmitJob) -> Submission:
    """Submit once. After a lost answer, ask whether a new run of the model has begun.

    Raises:
        HudError: It was refused, or was lost and no new run is to be seen.
    """
    before = await latest(client, body.model_id)
    try:
        return Submission((await client.submit(body)).job_id, before=before)
    except (HudUnreachable, HudRefused) as error:
        if isinstance(error, HudRefused) and (error.status or 0) < 500:
            raise
        failure = error
    try:
        after = await latest(client, body.model_id)
    except HudError:
        raise failure from None
    if after is None or Submission("", before=before).is_before(after):
        failure.hint = "the service shows no new run of this model: submit again"
        raise failure
    return Submission(after.id or body.model_id, found=True, before=before)


async def latest(client: "HudClient", model_id: str) -> JobStatus | None:
    """The model's current run, or its last one; None where it had none."""
    try:
        return await client.job_status(model_id)
    except HudNotFound:
        return None
