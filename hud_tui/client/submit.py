"""Which job a reference means: an id, how one begins, or a model, whose latest run it is."""

import asyncio
from dataclasses import dataclass
from typing import Any

from hud_tui.client.client import HudClient
from hud_tui.errors import HudError, HudRefused, HudUnclear
from hud_tui.rl.names import find_job as find_among
from hud_tui.rl.tasks.legacy import fill_rows
from hud_tui.settings import every_variable
from hud_tui.wire import JobDataset, JobStatus, SubmitJob

LOOKED_THROUGH = 1000
"""Newest jobs among which the beginning of an id is looked for."""


async def find_job(client: "HudClient", ref: str) -> str:
    """The id of the job that is meant.

    Raises:
        HudUsage: None or several match; the hint lists ids.
    """
    try:
        return (await client.job(ref)).id
    except HudRefused as error:
        if error.status not in (400, 404, 405, 422):
            raise
    status = await client.known_job(ref)
    if status is not None:
        return status.id or ref
    return find_among(ref, await client.jobs(LOOKED_THROUGH)).id


# Everything that the service says of a model and its run, with nothing left out.


async def raw_status(client: "HudClient", model: str, job: str | None = None) -> dict[str, Any]:
    """The job's raw status, the model's row of the catalog, and its whole tree.

    Args:
        client: The service.
        model: Any name of the model.
        job: A job's id; None for the model's current or last.

    Raises:
        HudError: The service cannot be asked, or knows none of this name.
    """
    row = await client.model(model)
    status, tree = await asyncio.gather(client.known_job(job or row.id), client.checkpoints(row.id))
    return {
        "job": None if status is None else job_document(status),
        "model": row.model_dump(mode="json"),
        "checkpoints": [checkpoint.model_dump(mode="json") for checkpoint in tree],
    }


def job_document(job: JobStatus) -> dict[str, Any]:
    """A job's raw status, its error always as code, message and param."""
    error = {"code": None, "message": job.error, "param": None}
    dumped = job.model_dump(mode="json")
    return dumped | {"error": error} if isinstance(job.error, str) else dumped


# Submitting a run once, and finding out what became of it when no answer comes.


LOOKS, LOOK_S = 3, 1.0
"""How often a lost submission is looked for, and seconds between."""


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
    before = await client.known_job(body.model_id)
    body = _filled(body)
    try:
        return Submission((await client.submit(body)).job_id, before=before)
    except HudUnclear as error:
        failure = error
    after = await _look(client, body.model_id, Submission("", before=before), failure)
    return Submission(after.id or body.model_id, found=True, before=before)


def _filled(body: SubmitJob) -> SubmitJob:
    """With the variables of v4 rows filled in, as HUD's own client sends them: the service has
    no such environment. They are in no message and on no screen."""
    if not any("mcp_config" in row for row in body.dataset.tasks):
        return body
    rows = fill_rows(body.dataset.tasks, every_variable())
    return body.model_copy(update={"dataset": JobDataset(tasks=rows)})


async def _look(
    client: "HudClient", model_id: str, lost: Submission, failure: HudError
) -> JobStatus:
    """The new run; looked for more than once, as the service may still be at it.

    Raises:
        HudError: The failure, with what the service says of it as its hint.
    """
    for look in range(LOOKS):
        await asyncio.sleep(LOOK_S if look else 0)
        try:
            after = await client.known_job(model_id)
        except HudError:
            raise failure from None
        if after is not None and not lost.is_before(after):
            return after
    failure.hint = "the service shows no new run of this model: look once more, then submit again"
    raise failure
