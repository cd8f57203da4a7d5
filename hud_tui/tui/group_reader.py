"""Which rollouts a step's group was made of, and what each said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hud_tui.errors import HudError
from hud_tui.rl.conversation import answer_of, prompt_of
from hud_tui.wire import Checkpoint, CheckpointTrace, Group

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient
    from hud_tui.tui.widgets.rollout_columns import Answer


@dataclass(frozen=True)
class StepGroups:
    """The groups of one step, in the order they are gone through."""

    name: str
    """What the step is called."""
    groups: Sequence[Group]
    """While the step is sampled, with the rollouts that have come."""
    place: int
    """The one to begin with."""
    model_id: str | None = None
    node: Checkpoint | None = None
    """The step's checkpoint; None while it is sampled."""
    step: int | None = None
    """The step's number; None where the service does not say."""


class GroupReader:
    """Reads the rollouts of one step's groups; a step's list of traces is asked for once."""

    def __init__(self, client: HudClient | None, step: StepGroups) -> None:
        self._client, self._step = client, step
        self._rows: list[CheckpointTrace] | None = None

    def names(self, group: Group) -> bool:
        """Whether it is known which rollouts the group is made of."""
        return len(group.trace_ids) == len(group.rewards)

    async def known(self, group: Group) -> Group:
        """The group with its trace ids, where the service can tell them.

        Raises:
            HudError: The service refused or did not answer.
        """
        if self.names(group) or self._client is None:
            return group
        model_id, node = self._step.model_id, self._step.node
        if model_id is None or node is None:
            return group
        if self._rows is None:
            self._rows = await self._client.checkpoint_traces(model_id, node.id)
        own = [row for row in self._rows if row.task_slug == group.task_slug]
        own.sort(key=lambda row: -1 if row.rollout is None else row.rollout)
        if [row.reward for row in own] != group.rewards:
            return group  # sampled twice, or not all of them: better none than the wrong ones
        return group.model_copy(update={"trace_ids": [row.trace_id for row in own]})

    async def read(self, one: Answer) -> tuple[Answer, str]:
        """A rollout with what it said, and what it was asked; a failure stands in its place."""
        if one.trace_id is None or self._client is None:
            return one, ""
        try:
            trace = await self._client.trace(one.trace_id)
            events = (await self._client.trace_events(one.trace_id)).events
        except HudError as error:
            return replace(one, text=f"It cannot be read: {error.message}"), ""
        said = answer_of(events) or trace.completion or ""
        tokens = trace.num_tokens if one.tokens is None else one.tokens
        ended = trace.stop_reason or ""
        return replace(one, text=said, tokens=tokens, ended=ended), prompt_of(events)
