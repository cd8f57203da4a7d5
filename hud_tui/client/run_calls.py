"""Calls on managed runs, on work that this client makes, and the list of runs."""

from collections.abc import Sequence

from hud_tui.change import UNNAMED, Change, TaskSource
from hud_tui.client.transport import SUBMIT_S, Connection, Lookup
from hud_tui.wire import WorkState
from hud_tui.wire_runs import (
    DriveReport,
    DriveRun,
    KeepEvaluation,
    RunPage,
    RunSteps,
    SubmitJob,
    SubmittedJob,
)
from hud_tui.wire_time import Discarded, DiscardedPage, RunTime

RUNS = 2000
"""Maximum number of runs per page."""
DISCARDED = 2000
"""Maximum number of discarded rollouts per page."""


class RunCalls:
    """Calls on runs, and on evaluations that this client makes."""

    def __init__(self, wire: Connection) -> None:
        self._wire = wire

    async def drive(self, job_id: str, body: DriveRun) -> WorkState:
        """Begin or continue a run whose steps this client takes (embedded service). Safe to repeat.
        Raises HudNotFound: the service does not have such runs."""
        url = self._wire.rl("/v1/training/jobs/{}/drive", job_id)
        return await self._wire.write("PUT", url, WorkState, None, body)

    async def report(self, work_id: str, body: DriveReport) -> WorkState:
        """Report the state of such a run, or of an evaluation that this client makes; the answer
        says whether to cancel it. Repeating it adds `wasted` again; otherwise it is safe to repeat.
        Raises HudConflict: it has ended."""
        url = self._wire.rl("/v1/training/jobs/{}/drive", work_id)
        return await self._wire.write("PATCH", url, WorkState, None, body)

    async def keep_evaluation(self, evaluation_id: str, body: KeepEvaluation) -> WorkState:
        """Store the state of an evaluation whose rollouts this client makes (embedded service).
        Safe to repeat."""
        url = self._wire.rl("/v1/evaluations/{}", evaluation_id)
        return await self._wire.write("PUT", url, WorkState, None, body)

    async def submit(self, body: SubmitJob, source: TaskSource = UNNAMED) -> SubmittedJob:
        """Start a managed run. `source`: what its tasks came from, for the command log. Raises
        HudUnclear: the outcome is unknown; see `job_status` of the model."""
        url = self._wire.rl("/v1/training/jobs")
        omitted = ("dataset",)
        change = Change("submit", body.model_id, made="job_id", omitted=omitted, source=source)
        lookup = Lookup[SubmittedJob](self._wire.settle_url(body.model_id))
        write = self._wire.write
        return await write("POST", url, SubmittedJob, change, body, SUBMIT_S, lookup=lookup)

    async def run_page(self, since: int = 0, offset: int = 0) -> RunPage:
        """Runs of all models and forks that have changed after a revision, newest first; 0 for all
        (embedded service). The first `offset` are skipped. Raises HudNotFound: the service has no
        such list (HUD)."""
        asked = {"since": since, "offset": offset, "limit": RUNS}
        return await self._wire.get(self._wire.rl("/v1/runs"), RunPage, asked)

    async def run_time(
        self, run_id: str, last: int = 20, step: int | None = None, checkpoint_id: str | None = None
    ) -> RunTime:
        """Where the time of a run's newest steps went; of one of its steps, by its number within
        the run; or of the step that made a checkpoint (embedded service). Raises HudNotFound: no
        such run, or no such endpoint (HUD)."""
        asked: dict[str, str | int] = {"last": last}
        if checkpoint_id is not None:
            asked = {"checkpoint": checkpoint_id}
        elif step is not None:
            asked = {"step": step}
        return await self._wire.get(self._wire.rl("/v1/runs/{}/time", run_id), RunTime, asked)

    async def discarded(self, run_id: str, limit: int = 1000, offset: int = 0) -> DiscardedPage:
        """Rollouts of a run that no step was trained on, newest first (embedded service). Raises
        HudNotFound: as `run_time`."""
        url = self._wire.rl("/v1/runs/{}/discarded", run_id)
        return await self._wire.get(url, DiscardedPage, {"limit": limit, "offset": offset})

    async def all_discarded(self, run_id: str) -> list[Discarded]:
        """All of them, newest first, each once: a run that goes on moves them to later pages."""
        url = self._wire.rl("/v1/runs/{}/discarded", run_id)
        rollouts = await self._wire.pages(url, Discarded, DISCARDED)
        return [*{rollout.trace_id: rollout for rollout in rollouts}.values()]

    async def run_steps(self, run_id: str, after: int, keys: Sequence[str]) -> RunSteps:
        """The steps of a run after the first `after`, in columns (embedded service). Raises
        HudNotFound: no such run, or no such endpoint (HUD)."""
        asked: dict[str, str | int] = {"after": after, "keys": ",".join(keys)}
        return await self._wire.get(self._wire.rl("/v1/runs/{}/steps", run_id), RunSteps, asked)
