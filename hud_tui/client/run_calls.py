"""Calls on managed runs, on work that this client makes, and the list of runs."""

from collections.abc import Sequence

from hud_tui.audit_log import UNNAMED, Change, TaskSource
from hud_tui.client.transport import SUBMIT_S, Connection, Lookup
from hud_tui.wire import EvaluationJob, JobStatus, WorkState
from hud_tui.wire_runs import (
    DriveReport,
    DriveRun,
    KeepEvaluation,
    RunPage,
    RunSteps,
    SubmitJob,
    SubmittedJob,
)

RUNS = 2000
"""Maximum number of runs per page."""


class RunCalls:
    """Calls on runs, and on evaluations that this client makes."""

    def __init__(self, wire: Connection) -> None:
        self._wire = wire

    async def drive(self, job_id: str, body: DriveRun) -> JobStatus:
        """Begin or continue a run whose steps this client takes (embedded service). Safe to repeat.

        Raises:
            HudNotFound: The service does not have such runs.
        """
        url = self._wire.rl("/v1/training/jobs/{}/drive", job_id)
        return await self._wire.write("PUT", url, JobStatus, None, body)

    async def report(self, work_id: str, body: DriveReport) -> WorkState:
        """Report the state of such a run, or of an evaluation that this client makes; the answer
        says whether to cancel it. Repeating it adds `wasted` again; otherwise it is safe to repeat.

        Raises:
            HudConflict: It has ended.
        """
        url = self._wire.rl("/v1/training/jobs/{}/drive", work_id)
        kind: type[WorkState] = WorkState  # type: ignore[assignment]
        return await self._wire.write("PATCH", url, kind, None, body)

    async def keep_evaluation(self, evaluation_id: str, body: KeepEvaluation) -> EvaluationJob:
        """Store the state of an evaluation whose rollouts this client makes (embedded service).
        Safe to repeat."""
        url = self._wire.rl("/v1/evaluations/{}", evaluation_id)
        return await self._wire.write("PUT", url, EvaluationJob, None, body)

    async def submit(self, body: SubmitJob, source: TaskSource = UNNAMED) -> SubmittedJob:
        """Start a managed run.

        Args:
            source: What its tasks came from, for the command log.

        Raises:
            HudUnclear: The outcome is unknown; see `job_status` of the model.
        """
        url = self._wire.rl("/v1/training/jobs")
        omitted = ("dataset",)
        change = Change("submit", body.model_id, made="job_id", omitted=omitted, source=source)
        lookup = Lookup[SubmittedJob](self._wire.settle_url(body.model_id))
        write = self._wire.write
        return await write("POST", url, SubmittedJob, change, body, SUBMIT_S, lookup=lookup)

    async def run_page(self, since: int = 0, offset: int = 0) -> RunPage:
        """Runs of all models and forks, newest first (embedded service).

        Args:
            since: A revision; only runs that have changed after it. 0 for all.
            offset: Number of runs to skip.

        Raises:
            HudNotFound: The service has no such list (HUD).
        """
        asked = {"since": since, "offset": offset, "limit": RUNS}
        return await self._wire.get(self._wire.rl("/v1/runs"), RunPage, asked)

    async def run_steps(self, run_id: str, after: int, keys: Sequence[str]) -> RunSteps:
        """The steps of a run after the first `after`, in columns (embedded service).

        Raises:
            HudNotFound: No such run, or no such endpoint (HUD).
        """
        asked: dict[str, str | int] = {"after": after, "keys": ",".join(keys)}
        return await self._wire.get(self._wire.rl("/v1/runs/{}/steps", run_id), RunSteps, asked)
