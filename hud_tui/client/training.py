"""Training: gradient passes, optimizer steps and managed runs. Writes are sent once."""

from hud_tui.client.calls import Calls
from hud_tui.client.http import SUBMIT_S, TRAIN_S
from hud_tui.client.lookup import Lookup
from hud_tui.errors import HudNotFound, HudRefused
from hud_tui.rl.job_words import has_ended
from hud_tui.rl.written import Change
from hud_tui.wire import (
    Backward,
    Forward,
    ForwardBackward,
    ForwardBackwardResult,
    ForwardResult,
    JobStatus,
    Losses,
    OptimStep,
    OptimStepResult,
    Settled,
    SubmitJob,
    SubmittedJob,
)


class TrainingCalls(Calls):
    """`key` is a write's Idempotency-Key, for who will `settle` it; else it gets a fresh one."""

    async def losses(self, model_id: str) -> list[str]:
        """The loss functions this model can be trained with."""
        url = self.rl("/v1/models/{}/train/losses", model_id)
        return (await self.wire.get(url, Losses)).losses

    async def forward_backward(
        self, model_id: str, body: ForwardBackward, key: str | None = None
    ) -> ForwardBackwardResult:
        """Add a batch's gradients to those that wait for the next optim_step."""
        url = self.rl("/v1/models/{}/train/forward-backward", model_id)
        change = Change("forward-backward", model_id, left_out=("inputs",))
        write = self.wire.write
        return await write("POST", url, ForwardBackwardResult, change, body, TRAIN_S, _keyed(key))

    async def forward(self, model_id: str, body: Forward) -> ForwardResult:
        """Current logprobs of a batch, for a loss computed here."""
        url = self.rl("/v1/models/{}/train/forward", model_id)
        return await self.wire.write("POST", url, ForwardResult, None, body, TRAIN_S)

    async def backward(
        self, model_id: str, body: Backward, key: str | None = None
    ) -> ForwardBackwardResult:
        """Add gradients from −dC/dlogprob for the batch of a `forward`."""
        url = self.rl("/v1/models/{}/train/backward", model_id)
        change = Change("backward", model_id, left_out=("weights",))
        write = self.wire.write
        return await write("POST", url, ForwardBackwardResult, change, body, TRAIN_S, _keyed(key))

    async def optim_step(
        self, model_id: str, body: OptimStep, key: str | None = None
    ) -> OptimStepResult:
        """Step on what was accumulated, save a checkpoint and make it the head."""
        url = self.rl("/v1/models/{}/train/optim-step", model_id)
        change = Change("optim step", model_id, made="checkpoint_id")
        write = self.wire.write
        return await write("POST", url, OptimStepResult, change, body, TRAIN_S, _keyed(key))

    async def settle(self, model_id: str, key: str) -> Settled:
        """What became of a training write, by its key (embedded service). May be repeated.

        Raises:
            HudNotFound: The service keeps no keys.
        """
        url = self.rl("/v1/models/{}/train/calls/{}/settle", model_id, key)
        return await self.wire.write("POST", url, Settled, None)

    async def submit(self, body: SubmitJob) -> SubmittedJob:
        """Start a managed run.

        Raises:
            HudUnclear: No answer says whether it runs; `job_status` of the model may.
        """
        url = self.rl("/v1/training/jobs")
        change = Change("submit", body.model_id, made="job_id", left_out=("dataset",))
        settle = self.rl("/v1/models/{}/train/calls/", body.model_id) + "{}/settle"
        lookup = Lookup[SubmittedJob](settle)
        write = self.wire.write
        return await write("POST", url, SubmittedJob, change, body, SUBMIT_S, lookup=lookup)

    async def job_status(self, ref: str) -> JobStatus:
        """A managed run, by its id or by its model's: then that model's latest.

        Raises:
            HudNotFound: No such run, or the model had none.
        """
        return await self.wire.get(self.rl("/v1/training/jobs/{}/raw-status", ref), JobStatus)

    async def known_job(self, ref: str) -> JobStatus | None:
        """`job_status`, or None where there is no such run. Services that look a reference up
        otherwise, or have no managed runs, say so with a 400 or 405."""
        try:
            return await self.job_status(ref)
        except HudRefused as error:
            if isinstance(error, HudNotFound) or error.status in (400, 405):
                return None
            raise

    async def resume_job(self, job_id: str) -> JobStatus:
        """Continue an interrupted run from the model's head (embedded service)."""
        url = self.rl("/v1/training/jobs/{}/resume", job_id)
        change = Change("resume", await self.guarded_model(job_id), job_id, made="status")

        async def look() -> JobStatus | None:
            run = await self.known_job(job_id)
            return None if run is None or has_ended(run.status) else run

        hint = f"look whether it goes on before you resume it again: hud-tui jobs {job_id}"
        lookup = Lookup(self.settle_job_url(job_id), look, hint)
        return await self.wire.write("POST", url, JobStatus, change, lookup=lookup)

    def settle_job_url(self, job_id: str) -> str:
        """Where a service that keeps keys says what became of a job's call (embedded)."""
        return self.rl("/v1/training/jobs/{}/calls/", job_id) + "{}/settle"

    async def guarded_model(self, job_id: str) -> str:
        """Id of the protected model that a job trains; empty where it trains none of them.

        The service is asked only where any model is protected.
        """
        protected = self.wire.guard.protected
        job = await self.known_job(job_id) if protected else None
        trained = () if job is None else (job.model, job.fine_tuned_model)
        now = self.wire.writing.names
        return next(
            (
                id_
                for id_, name in protected.items()
                if {id_, name, now.get(id_, name)} & {*filter(None, trained)}
            ),
            "",
        )


def _keyed(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}
