"""Calls on rollouts: their traces, this client's own, and hosted ones."""

from collections.abc import AsyncIterator, Sequence

from hud_tui.change import Change
from hud_tui.client.transport import Connection, Lookup
from hud_tui.errors import HudNotFound
from hud_tui.wire import Json, Page, Request
from hud_tui.wire_rollouts import (
    CheckpointTrace,
    JobEnter,
    Spans,
    SubmitRollout,
    SubmittedRollout,
    Trace,
    TraceEnter,
    TraceExit,
)
from hud_tui.wire_training import TraceEvents

ROLLOUT = ("args", "agent", "runtime_config", "verifier")
"""Fields of a rollout's body that the command log leaves out, because they come from its task."""


class RolloutCalls:
    def __init__(self, wire: Connection) -> None:
        self._wire = wire

    async def checkpoint_traces(
        self, model_id: str, checkpoint_id: str, limit: int = 1000
    ) -> list[CheckpointTrace]:
        """The rollouts that a step was trained on."""
        url = self._wire.api("/v2/models/{}/checkpoints/{}/traces", model_id, checkpoint_id)
        return await self._wire.get(url, list[CheckpointTrace], {"limit": limit})

    async def trace_page(self, job_id: str, limit: int, offset: int) -> Page[Trace]:
        """A page of a job's traces in the order in which they began, with the total."""
        asked = {"limit": limit, "offset": offset}
        return await self._wire.get(
            self._wire.api("/v2/jobs/{}/traces", job_id), Page[Trace], asked
        )

    async def trace_pages(
        self, job_id: str, offset: int = 0, size: int = 1000
    ) -> AsyncIterator[list[Trace]]:
        """A job's traces from an offset on, by page."""
        while True:
            page = await self.trace_page(job_id, size, offset)
            if page.items:
                yield page.items
            offset += len(page.items)
            if not page.items or offset >= page.total:
                return

    async def job_traces(self, job_id: str, step: int | None = None) -> list[Trace]:
        """All of a job's traces; with `step`, those of one step.

        If the service cannot filter by step, the others are dropped here.
        """
        url = self._wire.api("/v2/jobs/{}/traces", job_id)
        if step is None:
            return await self._wire.pages(url, Trace, 1000)
        traces = await self._wire.pages(url, Trace, 1000, params={"step": step})
        return [trace for trace in traces if trace.step == step]

    async def trace(self, trace_id: str) -> Trace:
        return await self._wire.get(self._wire.api("/v2/trace/{}", trace_id), Trace)

    async def trace_events(self, trace_id: str, since: int = -1) -> TraceEvents:
        """A rollout's turns: prompt, completion, tool calls. `since`: those after the event of this
        number."""
        url = self._wire.api("/v2/trace/{}/events", trace_id)
        return await self._wire.get(url, TraceEvents, {"since_seq": since})

    async def submit_rollout(self, body: SubmitRollout) -> SubmittedRollout:
        """Have the service sample and grade one task. Sent once. Raises HudRefused, 404 or 422:
        something is wrong with the model, the environment, the scenario or its args."""
        url = self._wire.api("/v2/rollouts/submit")
        change = Change("rollout", subject=body.job_id, made="trace_id", omitted=ROLLOUT)

        async def find() -> SubmittedRollout | None:
            try:
                trace = await self.trace(body.trace_id)
            except HudNotFound:
                return None
            status = trace.status or ""
            return SubmittedRollout(job_id=body.job_id, trace_id=body.trace_id, status=status)

        lookup = Lookup(find=find)
        return await self._wire.write("POST", url, SubmittedRollout, change, body, lookup=lookup)

    async def enter_job(self, job_id: str, body: JobEnter) -> None:
        """Report the start of an own job. Idempotent."""
        await self._tell("enter job", "/v2/trace/job/{}/enter", job_id, body)

    async def enter_trace(self, trace_id: str, body: TraceEnter) -> None:
        """Report the start of a rollout. Idempotent."""
        await self._tell("enter trace", "/v2/trace/{}/enter", trace_id, body)

    async def exit_trace(self, trace_id: str, body: TraceExit) -> None:
        """Report the end of a rollout."""
        await self._tell("exit trace", "/v2/trace/{}/exit", trace_id, body)

    async def upload_spans(self, trace_id: str, spans: Sequence[Json]) -> None:
        """Report what happened in an own rollout. Idempotent: a span replaces that of its id."""
        url = f"{self._wire.settings.telemetry_url}/trace/{trace_id}/telemetry-upload"
        await self._wire.write("POST", url, Json, None, Spans(telemetry=list(spans)))

    async def _tell(self, verb: str, path: str, id_: str, body: Request) -> None:
        await self._wire.write("POST", self._wire.api(path, id_), Json, Change(verb, "", id_), body)
