"""One training input, whatever it is: what is sent of it, and what can be seen of it here.

A trace id, a `Payload` (or a mapping with its keys), or a rollout of any make: an object
with a reward and either samples or a trace id, as a ``hud.Run`` is.

Source: which rollouts are refused is as in the ``hud`` SDK's TrainingClient, 0.6.21.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from operator import index
from typing import Any, Protocol
from uuid import UUID, uuid4

from pydantic import ValidationError

from hud_tui.client.client import HudClient
from hud_tui.client.transport import together
from hud_tui.errors import HudBadInput, HudError, HudMalformed
from hud_tui.rl.groups import has_signal
from hud_tui.rl.text import one_line
from hud_tui.wire import JobEnter, TraceEnter, TraceExit
from hud_tui.wire_training import Chat, ChatChoice, Payload, Sample


class Scored(Protocol):
    """A rollout of any make: a reward, and ``samples``, ``trace.steps[*].sample`` or a trace id.

    ``group_id``, ``grade.is_error`` and ``trace.stop_reason`` are heeded where it has them.
    """

    @property
    def reward(self) -> float | None: ...

    @property
    def trace_id(self) -> str | None: ...


Input = str | UUID | Payload | Mapping[str, Any] | Scored


@dataclass(frozen=True)
class Item:
    """An input that was read."""

    sent: str | Payload
    reward: float | None = None
    """None if only the service knows it."""
    group_id: str | None = None


def read_input(item: Input, where: str) -> Item:
    """
    Args:
        item: The input.
        where: What messages call it, e.g. ``inputs[5]``.

    Raises:
        HudBadInput: It cannot be trained on.
    """
    if isinstance(item, UUID):
        return Item(item.hex)
    if isinstance(item, str):
        return Item(_trace_id(item, where))
    if isinstance(item, Mapping):
        item = _payload(item, where)
    if isinstance(item, Payload):
        return Item(item, _finite(item.reward, where))
    return _read_scored(item, where)


def _payload(item: Mapping[str, Any], where: str) -> Payload:
    """A payload as the wire has it, e.g. out of a JSON file."""
    try:
        return Payload.model_validate(item)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        problem = one_line(f"{where} is no payload: {place}: {first['msg']}", 200)
        raise HudBadInput(problem, "a payload has samples and a reward") from error


def _read_scored(item: Any, where: str) -> Item:
    """A rollout object: its tokens where it has them, else the id that the service has them by."""
    _refuse_ungraded(item, where)
    trace_id, group_id = getattr(item, "trace_id", None), getattr(item, "group_id", None)
    name = None if trace_id is None else _trace_id(str(trace_id), where)
    reward = getattr(item, "reward", None)
    seen = None if reward is None else _finite(reward, where)
    sent: str | Payload | None = name
    if turns := _turns(item):
        if seen is None:
            raise HudBadInput(f"{where} has no reward", "grade every rollout before it is trained")
        samples = [_sample(turn, where) for turn in turns]
        sent = Payload(samples=samples, reward=seen, trace_id=name)
    if sent is None:
        kind = one_line(type(item).__name__, 60)
        raise HudBadInput(
            f"{where} is a {kind} with neither samples nor a trace id",
            "sample with return_token_ids, and give trace ids, payloads or graded rollouts",
        )
    return Item(sent, seen, None if group_id is None else str(group_id))


def _refuse_ungraded(item: Any, where: str) -> None:
    """A reward that says nothing of the policy must not train it."""
    trace = getattr(item, "trace", None)
    stopped = {getattr(trace, "stop_reason", None), getattr(item, "stop_reason", None)}
    choice = "leave its whole group out, or send a Payload with the reward you choose"
    if "timeout" in stopped:
        raise HudBadInput(f"{where} timed out, so its reward is no verdict", choice)
    if getattr(getattr(item, "grade", None), "is_error", False):
        raise HudBadInput(f"{where} has no valid grade, so its reward is no verdict", choice)


def _turns(item: Any) -> list[Any]:
    """The turns that were sampled, in order; those without a token are none."""
    found: Iterable[Any] | None = getattr(item, "samples", None)
    if found is None:
        steps = getattr(getattr(item, "trace", None), "steps", None) or ()
        found = [getattr(step, "sample", None) for step in steps]
    return [turn for turn in found if getattr(turn, "output_token_ids", None)]


def _sample(turn: Any, where: str) -> Sample:
    if isinstance(turn, Sample):
        return turn
    prompt = getattr(turn, "prompt_token_ids", None) or ()
    logprobs = getattr(turn, "output_logprobs", None) or ()
    try:
        return Sample(
            prompt_token_ids=[index(token) for token in prompt] or None,
            prompt_chunks=getattr(turn, "prompt_chunks", None),
            output_token_ids=[index(token) for token in turn.output_token_ids],
            output_logprobs=[float(value) for value in logprobs],
        )
    except (ValidationError, TypeError, ValueError) as error:
        problem = f"{where}: a sample's tokens or logprobs are not lists of numbers"
        raise HudBadInput(problem, "tokens are whole numbers, logprobs are floats") from error


def _trace_id(text: str, where: str) -> str:
    try:
        usable = len(text) in (32, 36) and UUID(text) is not None
    except ValueError:
        usable = False
    if not usable:
        problem = f"{where} is not a trace id: {one_line(text, 60)!r}"
        raise HudBadInput(problem, "a trace id is 32 hex digits or a UUID")
    return text


def _finite(reward: Any, where: str) -> float:
    try:
        value = float(reward)
    except (TypeError, ValueError):
        value = float("nan")
    if not isfinite(value):
        raise HudBadInput(f"{where}: the reward is {one_line(reward, 40)}", "it must be finite")
    return value


# Batches: what a training loop has in hand, checked and given the wire's form.
#
# Groups are runs of `group_size` consecutive inputs, and each is compared with its own
# mean: one rollout too few, or one of another task, and every advantage of its group is
# wrong. So the groups are checked here, before anything is sent.
#
# Source: the rules are those of the ``hud`` SDK's TrainingClient, 0.6.21.


LOG = logging.getLogger(__name__)
NAMED = 5
"""Groups that one message names."""


def to_inputs(
    inputs: Iterable[Input], group_size: int | None, compared: bool = True
) -> list[str | Payload]:
    """Check a batch, and give it the wire's form.

    Args:
        inputs: N rollouts, each group's together.
        group_size: Rollouts in a group; None makes the whole batch one.
        compared: Whether the loss compares rollouts within their group. Then a batch without
            spread is warned of in the log, once: it is sent, and accumulates nothing.

    Raises:
        HudBadInput: Nothing to train on, a rollout without a usable reward, or groups that
            are not whole or not consecutive; it names the input and its group.
    """
    if isinstance(inputs, (str, bytes)):
        raise HudBadInput("the inputs are one string", "give a list of trace ids")
    given = list(inputs)
    _check_sizes(len(given), group_size)
    items = [
        read_input(item, _where(index, getattr(item, "group_id", None), group_size))
        for index, item in enumerate(given)
    ]
    if group_size is not None:
        _check_groups(items, group_size)
        _check_whole(len(items), group_size)
    if compared:
        _warn_flat(items, group_size or len(items))
    return [item.sent for item in items]


def _check_sizes(count: int, group_size: int | None) -> None:
    if not count:
        raise HudBadInput("no inputs: there is nothing to train on", "give at least one rollout")
    if group_size is None:
        return
    if isinstance(group_size, bool) or not isinstance(group_size, int) or group_size < 1:
        raise HudBadInput(f"group_size is {one_line(group_size, 40)}", "it must be at least 1")


def _check_groups(items: Sequence[Item], group_size: int) -> None:
    """Where every input says which group it is of, each slice must be one whole group."""
    ids = [item.group_id for item in items if item.group_id is not None]
    if len(ids) < len(items):
        return
    broken = [(id_, count) for id_, count in Counter(ids).items() if count != group_size]
    if broken:
        named = ", ".join(f"{_quoted(id_)} has {count}" for id_, count in broken[:NAMED])
        more = f" and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
        raise HudBadInput(
            f"groups that do not have {group_size} rollouts: {named}{more}",
            "leave out a group that is not whole, or sample its missing rollouts",
        )
    for start in range(0, len(ids), group_size):
        mixed = list(dict.fromkeys(ids[start : start + group_size]))
        if len(mixed) > 1:
            raise HudBadInput(
                f"inputs[{start}:{start + group_size}] mixes the groups"
                f" {' and '.join(map(_quoted, mixed[:NAMED]))}",
                "keep the rollouts of a group together: groups are consecutive inputs",
            )


def _check_whole(count: int, group_size: int) -> None:
    left = count % group_size
    if left:
        raise HudBadInput(
            f"{count} inputs do not divide into groups of {group_size}:"
            f" the last group, inputs[{count - left}:{count}], has {left}",
            "every group must be whole: its rollouts are compared with their mean",
        )


def _warn_flat(items: Sequence[Item], size: int) -> None:
    """Say that no group moves the policy, as far as every reward can be seen here."""
    rewards = [item.reward for item in items if item.reward is not None]
    if len(rewards) < len(items) or len(items) < 2:
        return
    groups = [rewards[start : start + size] for start in range(0, len(rewards), size)]
    if not any(map(has_signal, groups)):
        LOG.warning(
            "no group has reward spread (groups: %d, rollouts in each: %d), so every advantage"
            " is 0 and this batch accumulates no gradient",
            len(groups),
            size,
        )


def _where(index: int, group_id: object, group_size: int | None) -> str:
    """E.g. ``inputs[5] (group 'add-3')``, or the group's own place where it has no name."""
    if group_id is not None:
        return f"inputs[{index}] (group {_quoted(group_id)})"
    if group_size is None:
        return f"inputs[{index}]"
    start = index - index % group_size
    return f"inputs[{index}] (group inputs[{start}:{start + group_size}])"


def _quoted(group_id: object) -> str:
    return f"'{one_line(group_id, 60)}'"


# Reports: what a loop samples and how it grades that, told to the service as HUD's SDK does.
#
# Every rollout has a trace under one job, so the loop can be watched as it goes and trained
# by trace id. A report that fails costs the loop nothing but the view.


log = logging.getLogger(__name__)


class Reports:
    """One loop's job and the rollouts in it that have not been graded yet."""

    def __init__(self, client: "HudClient") -> None:
        self.job_id = uuid4().hex
        self._client = client
        self._entered = False
        self._open: set[str] = set()

    async def enter(self, model: str, group: list[str], task_slug: str, group_id: str) -> None:
        """A group of rollouts of one prompt begins.

        Args:
            model: The slug of what is sampled.
            group: Trace ids, one a rollout.
            task_slug: What the group is called.
            group_id: The same for all of them.
        """
        if not self._entered:
            self._entered = True
            entered = JobEnter(name=f"loop on {model}", group=len(group))
            await _quietly(self._client.enter_job(self.job_id, entered))
        body = TraceEnter(job_id=self.job_id, group_id=group_id, task_slug=task_slug, model=model)
        await asyncio.gather(*(_quietly(self._client.enter_trace(id_, body)) for id_ in group))
        self._open.update(group)

    async def graded(self, inputs: Iterable[Any]) -> None:
        """Report the rewards of those rollouts among a batch that this loop sampled."""
        done = {r.trace_id: r for r in inputs if getattr(r, "trace_id", None) in self._open}
        self._open -= done.keys()
        await asyncio.gather(*(_quietly(self._leave(r)) for r in done.values()))

    async def failed(self, group: list[str], error: HudError) -> None:
        """Report that the rollouts of a group did not come about."""
        await self._end(group, TraceExit(status="error", error=one_line(error.message)))

    async def close(self) -> None:
        """Report that nobody will grade what is still open."""
        await self._end(list(self._open), TraceExit(status="completed"))

    async def _end(self, ids: list[str], body: TraceExit) -> None:
        self._open.difference_update(ids)
        await asyncio.gather(*(_quietly(self._client.exit_trace(id_, body)) for id_ in ids))

    async def _leave(self, rollout: "Rollout") -> None:
        stop = "length" if rollout.finish_reason == "length" else "done"
        body = TraceExit(status="completed", reward=rollout.reward, stop_reason=stop)
        await self._client.exit_trace(rollout.trace_id or "", body)


async def _quietly(report: Any) -> None:
    try:
        await report
    except HudError as error:
        log.warning("a rollout was not reported: %s", one_line(error.message))


# Rollouts: what a model said, with the tokens to train on and a place for its reward.


AT_ONCE = 64
"""Requests of one group under way."""
SPREAD = 1_000_003
"""Keeps the seeds of one group apart from those of the next."""
SLUG = 60
"""Characters of a task's name that is taken from its prompt."""


@dataclass
class Rollout:
    """One answer of the policy. Give it a reward, and it can be trained on."""

    text: str
    """What the model said, as it said it: not safe for a terminal."""
    samples: list[Sample]
    """Its turns in order; append the next one of a conversation, and all of them train."""
    reward: float | None = None
    """In any unit: rollouts are compared within their group."""
    group_id: str | None = None
    """The same for all that answered one prompt together."""
    finish_reason: str | None = None
    """``stop``, or ``length`` where it was cut."""
    trace_id: str | None = None
    """Under which the service keeps it."""


def sample_of(choice: ChatChoice) -> Sample:
    """The tokens of a chat's choice, as training takes them.

    Raises:
        HudMalformed: It carries none: the model cannot be trained on, or
            ``return_token_ids`` was not asked for.
    """
    if choice.token_ids is None or choice.prompt_token_ids is None:
        raise HudMalformed(
            "the completion carries no token ids",
            "ask for return_token_ids, from a model that can be trained",
        )
    try:
        rows = (choice.logprobs or {}).get("content") or []
        logprobs = [float(row["logprob"]) for row in rows]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = "the completion's logprobs cannot be read"
        raise HudMalformed(problem, "update hud-tui, or the service") from error
    return Sample(
        prompt_token_ids=choice.prompt_token_ids,
        output_token_ids=choice.token_ids,
        output_logprobs=logprobs,
    )


async def sample_group(
    client: "HudClient", reports: Reports, body: Chat, size: int, task_slug: str | None
) -> list[Rollout]:
    """Ask one prompt `size` times, each answer under a trace of its own.

    Raises:
        HudBadInput: The size is below 1; nothing was sent.
        HudError: An answer did not come, or carries no tokens.
    """
    if size < 1:
        raise HudBadInput(f"group_size is {size}", "it must be at least 1")
    traces, group_id = [uuid4().hex for _ in range(size)], uuid4().hex
    await reports.enter(body.model, traces, task_slug or _slug(body), group_id)
    line = asyncio.Semaphore(AT_ONCE)

    async def ask(number: int, trace_id: str) -> Rollout:
        async with line:
            reply = await client.chat(_reseeded(body, number), trace_id)
        if not reply.choices:
            raise HudMalformed("the gateway gave no answer", "try again")
        return _rollout(reply.choices[0], group_id, trace_id)

    try:
        async with together() as tasks:
            asked = [tasks.create_task(ask(*one)) for one in enumerate(traces)]
    except HudError as error:
        await reports.failed(traces, error)
        raise
    return [task.result() for task in asked]


def _reseeded(body: Chat, number: int) -> Chat:
    """The same request with a seed of its own: equal seeds would give equal answers."""
    if body.seed is None:
        return body
    return body.model_copy(update={"seed": (body.seed * SPREAD + number) % 2**63})


def _slug(body: Chat) -> str:
    """What the group's task is called where nobody says: how its last message begins."""
    content = body.messages[-1].get("content") if body.messages else None
    return one_line(content if isinstance(content, str) else "prompt", SLUG)


def _rollout(choice: ChatChoice, group_id: str, trace_id: str) -> Rollout:
    text = choice.message.content or ""
    return Rollout(text, [sample_of(choice)], None, group_id, choice.finish_reason, trace_id)
