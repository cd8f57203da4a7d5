"""Reading rollouts: each with its grading and its conversation."""

from asyncio import gather
from collections.abc import Sequence
from dataclasses import dataclass

from hud_tui.client.client import HudClient
from hud_tui.errors import HudError
from hud_tui.rl.rollouts import least_likely
from hud_tui.rl.transcript import Transcript, Turn, transcript_of
from hud_tui.rl.work import is_active
from hud_tui.wire_rollouts import Trace
from hud_tui.wire_training import Completion, CompletionChoice, TraceEvent

UNLIKELY, LIKELIEST = 8, 5
"""Tokens of a turn whose alternatives are asked for, and alternatives of each."""


@dataclass(frozen=True)
class ReadRollout:
    """A rollout as it was read."""

    trace: Trace
    """With its grading, if the service gives that."""
    events: Sequence[TraceEvent]
    transcript: Transcript

    @property
    def is_running(self) -> bool:
        return is_active(self.trace.status)


async def read_rollout(client: HudClient, trace_id: str, row: Trace | None = None) -> ReadRollout:
    """Read a rollout. `row`: its row of a list, which stands in for a trace that cannot be read.
    Raises HudError."""
    told, trace = await gather(
        client.rollouts.trace_events(trace_id), _trace(client, trace_id, row)
    )
    return ReadRollout(trace, told.events, transcript_of(told.events, trace.completion))


async def read_newer(client: HudClient, read: ReadRollout) -> ReadRollout | None:
    """A rollout that was read, again; None if nothing more was reported of it. Raises HudError."""
    last = read.events[-1].seq if read.events else -1
    told = await client.rollouts.trace_events(read.trace.id, last)
    if not told.events and told.status in (None, read.trace.status):
        return None
    return await read_rollout(client, read.trace.id, read.trace)


async def _trace(client: HudClient, trace_id: str, row: Trace | None) -> Trace:
    """The trace with its grading, else as it is known."""
    try:
        return await client.rollouts.trace(trace_id)
    except HudError:
        if row is None:
            raise
        return row


async def read_alternatives(
    client: HudClient, trace: Trace, turn: Turn
) -> list[tuple[int, list[tuple[str, float]]]]:
    """What was likeliest in place of a turn's least likely tokens: the index of each token, and the
    likeliest ones with their logprobs. Samples one token for each. Empty if the trace does not say
    what was sampled. Raises HudError: the service gives no alternatives."""
    sample = turn.sample
    if trace.model is None or sample is None or not sample.prompt_token_ids:
        return []
    indices = sorted(least_likely(sample.output_logprobs, UNLIKELY))
    if not indices:
        return []
    prompt, output = sample.prompt_token_ids, sample.output_token_ids
    asked = Completion(
        model=trace.model,
        checkpoint=trace.sampled_from,
        prompt=[[*prompt, *output[:index]] for index in indices],
        max_tokens=1,
        logprobs=LIKELIEST,
    )
    reply = await client.training.complete(asked)
    return list(zip(indices, map(_likeliest, reply.choices), strict=False))


def _likeliest(choice: CompletionChoice) -> list[tuple[str, float]]:
    """The first position's tokens, likeliest first."""
    told = (choice.logprobs or {}).get("top_logprobs") or [{}]
    first = told[0] if isinstance(told, list) and isinstance(told[0], dict) else {}
    pairs = [(str(text), float(p)) for text, p in first.items() if isinstance(p, int | float)]
    return sorted(pairs, key=lambda pair: -pair[1])
