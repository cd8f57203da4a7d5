"""Which rollouts a step's group was made of, what each said, and one of them to paste elsewhere.

In text and Markdown what could act on a terminal is shown as pictures; JSON has every
character that is not ASCII escaped, so that nothing is lost and nothing acts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hud_tui.errors import HudError
from hud_tui.rl.metrics import short
from hud_tui.rl.rollouts import RolloutGroup, answer_of, prompt_of, rollout_groups
from hud_tui.rl.run import job_is_active, job_step
from hud_tui.rl.text import WHOLE, clean, one_line
from hud_tui.tui.widgets.rollout import role_of
from hud_tui.wire import Checkpoint, CheckpointTrace, Group, Job, Trace, TraceEvent, TraceEvents

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient
    from hud_tui.tui.widgets.rollout import Answer


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


# Reading a job's rollouts a part at a time: a managed run by step, any other by pages.
#
# A run of 400 steps has fifty thousand rollouts, and a screen shows one step's.


PAGE = 1000
"""Rollouts shown at once of a job without steps."""


@dataclass(frozen=True)
class Part:
    """Some of a job's rollouts: those of one step, or one page."""

    job: Job
    number: int
    """The step, or the page from 1."""
    newest: int
    """The newest step or page that there is."""
    by_step: bool
    total: int | None
    """Rollouts of the whole job, where they were all read."""
    groups: tuple[RolloutGroup, ...]

    @property
    def traces(self) -> list[Trace]:
        return [rollout.trace for group in self.groups for rollout in group.rollouts]

    def group_of(self, trace: Trace) -> RolloutGroup:
        """The group that a rollout of this part is in."""
        return next(g for g in self.groups if any(r.trace is trace for r in g.rollouts))

    @property
    def attempts(self) -> int:
        """How often the step was sampled, as far as these rollouts tell."""
        return max((group.attempt for group in self.groups), default=1)

    @property
    def counted(self) -> list[RolloutGroup]:
        """The groups of the last attempt; those before had no spread, and taught nothing."""
        return [group for group in self.groups if group.attempt == self.attempts]

    @property
    def final(self) -> bool:
        """Whether nothing will be added to it."""
        return not job_is_active(self.job) or (self.by_step and self.number < self.newest)


class JobReader:
    """Reads one job's parts. All pages of a job without steps are read once, then kept."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._all: list[Trace] | None = None

    async def read(self, client: HudClient, wanted: int | None = None) -> Part:
        """A step or page; None is the newest, of a job that runs as it is now.

        Raises:
            HudError: The service refused or did not answer.
        """
        if wanted is None or job_is_active(self.job):
            self.job = await client.job(self.job.id)
        if job_step(self.job) is None:
            return await self._page(client, wanted)
        return await self._step(client, wanted)

    async def _step(self, client: HudClient, wanted: int | None) -> Part:
        """A step that is being sampled, or that a run failed at, has rollouts though it was
        never taken."""
        taken = job_step(self.job) or 0
        newest = max(1, newest_sampled(self.job))
        number = newest if wanted is None else min(max(1, wanted), newest)
        traces = await client.job_traces(self.job.id, step=number)
        if not traces and wanted is None and taken:
            number = newest = taken
            traces = await client.job_traces(self.job.id, step=number)
        return Part(self.job, number, newest, True, None, tuple(rollout_groups(traces)))

    async def _page(self, client: HudClient, wanted: int | None) -> Part:
        if self._all is None or job_is_active(self.job):
            self._all = await client.job_traces(self.job.id)
        pages = max(1, -(-len(self._all) // PAGE))
        number = pages if wanted is None else min(max(1, wanted), pages)
        traces = self._all[(number - 1) * PAGE : number * PAGE]
        groups = tuple(rollout_groups(traces))
        return Part(self.job, number, pages, False, len(self._all), groups)


def newest_sampled(job: Job) -> int:
    """The newest step that may have rollouts: told by the service, else the next one."""
    taken, told = job_step(job) or 0, (job.metadata or {}).get("sampled_step")
    sampled = told if isinstance(told, int) else taken + 1
    return max(taken + 1 if job_is_active(job) else taken, sampled)


# One rollout to paste elsewhere.

_TICKS = re.compile("`+")


def as_text(trace: Trace, events: TraceEvents | None) -> str:
    """Who said what."""
    said = [f"{role}:\n{text}" for role, text in _turns(trace, events)]
    return "\n\n".join([_title(trace), *said]) + "\n"


def as_markdown(trace: Trace, events: TraceEvents | None) -> str:
    """The same under headings, every text in a fence that it cannot close."""
    parts = [f"## {_title(trace)}"]
    for role, text in _turns(trace, events):
        longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
        fence = "`" * max(3, longest + 1)
        parts.append(f"### {role}\n\n{fence}text\n{text}\n{fence}")
    return "\n\n".join(parts) + "\n"


def as_json(trace: Trace, events: TraceEvents | None) -> str:
    """The trace and its events, as the service sent them."""
    body = {
        "trace": trace.model_dump(mode="json", exclude_none=True),
        "events": [
            event.model_dump(mode="json", exclude_none=True)
            for event in (events.events if events is not None else ())
        ],
    }
    return json.dumps(body, indent=1, ensure_ascii=True) + "\n"


FORMS: Mapping[str, tuple[str, Callable[[Trace, TraceEvents | None], str]]] = {
    "text": ("Text", as_text),
    "markdown": ("Markdown", as_markdown),
    "json": ("JSON", as_json),
}
"""What a rollout can be copied as: a name, what it is called, and what makes it."""


def _title(trace: Trace) -> str:
    where = "" if trace.step is None else f", step {trace.step}"
    return f"{one_line(trace.task_slug or 'rollout', 80)}{where}, reward {short(trace.reward)}"


def _turns(trace: Trace, events: TraceEvents | None) -> Iterator[tuple[str, str]]:
    if events is None or not events.events:
        yield "assistant", clean(trace.completion or "", WHOLE)
        return
    for event in events.events:
        yield from _said(event)


def _said(event: TraceEvent) -> Iterator[tuple[str, str]]:
    if event.reasoning:
        yield "reasoning", clean(event.reasoning, WHOLE)
    if event.kind == "tool_call":
        yield "tool call", clean(f"{event.tool_name} {event.arguments}", WHOLE)
        yield "tool result", clean(event.result_text or "", WHOLE)
    elif event.text or not event.tool_calls:
        yield role_of(event), clean(event.text or "", WHOLE)
    for call in event.tool_calls or ():
        yield "calls", clean(json.dumps(call), WHOLE)
