"""Jobs, their traces, and chat with a model."""

from hud_tui.client.http import TRAIN_S
from hud_tui.client.lookup import Lookup
from hud_tui.client.training import TrainingCalls
from hud_tui.errors import HudNotFound
from hud_tui.rl.job_words import has_ended
from hud_tui.rl.written import Change
from hud_tui.wire import (
    CancelJob,
    CancelJobResult,
    Chat,
    ChatReply,
    Job,
    JobEnter,
    Json,
    Page,
    SubmitRollout,
    SubmittedRollout,
    Trace,
    TraceEnter,
    TraceEvents,
    TraceExit,
)

ROLLOUT = ("args", "agent", "runtime_config", "verifier")
"""Of a rollout's body, what its task brings along."""


class JobCalls(TrainingCalls):
    async def jobs(self, limit: int = 200, taskset_id: str | None = None) -> list[Job]:
        """The newest jobs, at most `limit`; of one taskset where it is given."""
        asked = {} if taskset_id is None else {"taskset_id": taskset_id}
        return await self.pages(self.api("/v2/jobs"), Job, min(limit, 100), limit, asked)

    async def job(self, job_id: str) -> Job:
        return await self.wire.get(self.api("/v2/jobs/{}", job_id), Job)

    async def trace_page(self, job_id: str, limit: int, offset: int) -> Page[Trace]:
        """Some of a job's traces, in the order they began, and how many it has."""
        asked = {"limit": limit, "offset": offset}
        return await self.wire.get(self.api("/v2/jobs/{}/traces", job_id), Page[Trace], asked)

    async def job_traces(self, job_id: str, step: int | None = None) -> list[Trace]:
        """A job's traces, all pages; with `step`, those of one step.

        A service that cannot select by step sends all; those of other steps are left out.
        """
        url = self.api("/v2/jobs/{}/traces", job_id)
        if step is None:
            return await self.pages(url, Trace, 1000)
        traces = await self.pages(url, Trace, 1000, params={"step": step})
        return [trace for trace in traces if trace.step == step]

    async def trace(self, trace_id: str) -> Trace:
        return await self.wire.get(self.api("/v2/trace/{}", trace_id), Trace)

    async def trace_events(self, trace_id: str, since_seq: int = -1) -> TraceEvents:
        """A rollout's turns: prompt, completion, tool calls."""
        url = self.api("/v2/trace/{}/events", trace_id)
        return await self.wire.get(url, TraceEvents, {"since_seq": since_seq})

    async def cancel_job(self, job_id: str) -> CancelJobResult:
        """Stop a job between two rollouts. A finished one stays as it is. Sent once."""
        url = self.api("/v2/rollouts/cancel_job")
        change = Change("cancel", await self.guarded_model(job_id), job_id, made="status")

        async def look() -> CancelJobResult | None:
            run = await self.known_job(job_id)
            status = run.status if run is not None else (await self.job(job_id)).status or ""
            if not has_ended(status):
                return None
            return CancelJobResult(cancelled=int(status == "cancelled"), status=status)

        hint = f"look whether it goes on before you cancel it again: hud-tui jobs {job_id}"
        lookup, body = Lookup(self.settle_job_url(job_id), look, hint), CancelJob(job_id=job_id)
        return await self.wire.write("POST", url, CancelJobResult, change, body, lookup=lookup)

    async def submit_rollout(self, body: SubmitRollout) -> SubmittedRollout:
        """Have the service sample and grade one task. Sent once.

        Raises:
            HudRefused: 404 or 422: the model, the environment, the scenario or its args.
        """
        url = self.api("/v2/rollouts/submit")
        change = Change("rollout", subject=body.job_id, made="trace_id", left_out=ROLLOUT)

        async def look() -> SubmittedRollout | None:
            try:
                found = await self.trace(body.trace_id)
            except HudNotFound:
                return None
            status = found.status or ""
            return SubmittedRollout(job_id=body.job_id, trace_id=body.trace_id, status=status)

        lookup = Lookup(look=look)
        return await self.wire.write("POST", url, SubmittedRollout, change, body, lookup=lookup)

    async def chat(self, body: Chat, trace_id: str | None = None) -> ChatReply:
        """One completion of a model's head, or of the checkpoint that `body` pins. Sent once.

        Args:
            body: The request.
            trace_id: The rollout that it is a turn of; the service keeps its tokens by this.
        """
        url = f"{self.settings.gateway_url}/chat/completions"
        trace = {} if trace_id is None else {"Trace-Id": trace_id}
        return await self.wire.write("POST", url, ChatReply, None, body, TRAIN_S, trace)

    async def enter_job(self, job_id: str, body: JobEnter) -> None:
        """Report that a job of one's own begins. Saying so twice changes nothing."""
        url, change = self.api("/v2/trace/job/{}/enter", job_id), Change("enter job", "", job_id)
        await self.wire.write("POST", url, Json, change, body)

    async def enter_trace(self, trace_id: str, body: TraceEnter) -> None:
        """Report that a rollout begins. Saying so twice changes nothing."""
        url, change = self.api("/v2/trace/{}/enter", trace_id), Change("enter trace", "", trace_id)
        await self.wire.write("POST", url, Json, change, body)

    async def exit_trace(self, trace_id: str, body: TraceExit) -> None:
        """Report how a rollout ended."""
        url, change = self.api("/v2/trace/{}/exit", trace_id), Change("exit trace", "", trace_id)
        await self.wire.write("POST", url, Json, change, body)
