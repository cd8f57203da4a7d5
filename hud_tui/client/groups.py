"""A step's rewards by task, for a service whose checkpoints do not carry them.

HUD lists a checkpoint's traces with their rewards, and a job's traces with their
task: the two are joined here by the trace's id.
"""

from typing import TYPE_CHECKING

from hud_tui.errors import HudError
from hud_tui.wire import Checkpoint, Group

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient


class GroupReader:
    """Joins traces to tasks for one model, remembering which task a trace was of."""

    def __init__(self, client: "HudClient", model_id: str) -> None:
        self._client = client
        self._model_id = model_id
        self._slugs: dict[str, str] = {}

    async def groups(self, checkpoint: Checkpoint) -> list[Group]:
        """The checkpoint's own groups, else the joined ones; empty where neither is to be had."""
        if checkpoint.groups or not checkpoint.num_traces:
            return checkpoint.groups
        try:
            return await self._joined(checkpoint)
        except HudError:
            return []  # the step itself is known; its groups are an extra

    async def _joined(self, checkpoint: Checkpoint) -> list[Group]:
        traces = await self._client.checkpoint_traces(self._model_id, checkpoint.id)
        rewarded = [trace for trace in traces if trace.reward is not None]
        if rewarded and any(plain_id(trace.trace_id) not in self._slugs for trace in rewarded):
            await self._learn(rewarded[0].trace_id)
        found: dict[str, Group] = {}
        for trace in rewarded:
            slug = self._slugs.get(plain_id(trace.trace_id))
            if slug is not None and trace.reward is not None:
                group = found.setdefault(slug, Group(task_slug=slug, rewards=[]))
                group.rewards.append(trace.reward)
                group.trace_ids.append(trace.trace_id)
        return list(found.values())

    async def _learn(self, trace_id: str) -> None:
        """Note the tasks of all traces of the job that this trace belongs to."""
        job_id = (await self._client.trace(trace_id)).job_id
        if job_id is None:
            return
        for trace in await self._client.job_traces(job_id):
            if trace.task_slug is not None:
                self._slugs[plain_id(trace.id)] = trace.task_slug


def plain_id(trace_id: str) -> str:
    """The 32 hex digits of a trace id, which comes with and without dashes."""
    return trace_id.replace("-", "").lower()
