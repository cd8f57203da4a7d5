"""Inputs of the training client: checks of rollouts and batches, reports to the service, sampling.

An input is a trace id, a `Payload` (or a mapping with its keys), or any rollout object: one with a
reward and either samples or a trace id, such as ``hud.Run``.

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
from hud_tui.rl.text import names_text, one_line
from hud_tui.wire import first_misfit
from hud_tui.wire_rollouts import JobEnter, TraceEnter, TraceExit
from hud_tui.wire_training import Chat, ChatChoice, Payload, Sample


class Scored(Protocol):
    """Any rollout object: a reward, and ``samples``, ``trace.steps[*].sample`` or a trace id.

    ``group_id``, ``grade.is_error`` and ``trace.stop_reason`` are used if present.
    """

    @property
    def reward(self) -> float | None: ...

    @property
    def trace_id(self) -> str | None: ...


Input = str | UUID | Payload | Mapping[str, Any] | Scored


@dataclass(frozen=True)
class Item:
    """A parsed input."""

    sent: str | Payload
    reward: float | None = None
    """None if only the service knows it."""
    group_id: str | None = None


def read_input(item: Input, where: str) -> Item:
    """`where`: its place in messages, e.g. ``inputs[5]``. Raises HudBadInput: it cannot be trained
    on."""
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
    """A payload from a mapping, e.g. of a JSON file."""
    try:
        return Payload.model_validate(item)
    except ValidationError as error:
        problem = one_line(f"{where} is not a payload: {first_misfit(error)}", 200)
        raise HudBadInput(problem, "a payload has samples and a reward") from error


def _read_scored(item: Any, where: str) -> Item:
    """A rollout object: its tokens if it has them, else its trace id."""
    trace = getattr(item, "trace", None)
    stopped = {getattr(trace, "stop_reason", None), getattr(item, "stop_reason", None)}
    choice = "exclude its whole group, or send a Payload with a reward of your choice"
    if "timeout" in stopped:
        raise HudBadInput(f"{where} timed out, so its reward is not a valid grade", choice)
    if getattr(getattr(item, "grade", None), "is_error", False):
        raise HudBadInput(f"{where} has no valid grade", choice)
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


def _turns(item: Any) -> list[Any]:
    """The sampled turns in order, without empty ones."""
    samples: Iterable[Any] | None = getattr(item, "samples", None)
    if samples is None:
        steps = getattr(getattr(item, "trace", None), "steps", None) or ()
        samples = [getattr(step, "sample", None) for step in steps]
    return [turn for turn in samples if getattr(turn, "output_token_ids", None)]


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


# Batches in the wire's form, checked.
#
# A group is `group_size` consecutive inputs; advantages are relative to its mean. A missing
# rollout, or one of another task, makes every advantage of the group wrong, so groups are
# checked before anything is sent.
#
# Source: the rules are those of the ``hud`` SDK's TrainingClient, 0.6.21.


LOG = logging.getLogger(__name__)
NAMED = 5
"""Maximum groups named in a message."""


def to_inputs(
    inputs: Iterable[Input], group_size: int | None, compared: bool = True
) -> list[str | Payload]:
    """Check a batch and convert it to the wire's form.

    Args:
        inputs: N rollouts, ordered by group.
        group_size: Rollouts per group; None: the whole batch is one group.
        compared: Whether the loss uses group-relative advantages. Then a zero-variance batch
            is logged as a warning, once; it is sent and accumulates no gradient.

    Raises:
        HudBadInput: Nothing to train on, a rollout without a valid reward, or groups that
            are incomplete or not consecutive; it names the input and its group.
    """
    if isinstance(inputs, (str, bytes)):
        raise HudBadInput("the inputs are one string", "give a list of trace ids")
    rollouts = list(inputs)
    _check_sizes(len(rollouts), group_size)
    items = [
        read_input(item, _where(index, getattr(item, "group_id", None), group_size))
        for index, item in enumerate(rollouts)
    ]
    if group_size is not None:
        _check_groups(items, group_size)
        count = len(items)
        left = count % group_size
        if left:
            raise HudBadInput(
                f"{count} inputs do not divide into groups of {group_size}:"
                f" the last group, inputs[{count - left}:{count}], has {left}",
                "every group must be complete: advantages are relative to its mean",
            )
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
    """If every input has a group id, each slice must be one complete group."""
    ids = [item.group_id for item in items if item.group_id is not None]
    if len(ids) < len(items):
        return
    counts = Counter(ids).items()
    broken = [f"{_quoted(id_)} has {count}" for id_, count in counts if count != group_size]
    if broken:
        raise HudBadInput(
            f"groups without {group_size} rollouts: {names_text(broken)}",
            "exclude incomplete groups, or sample the missing rollouts",
        )
    for start in range(0, len(ids), group_size):
        mixed = list(dict.fromkeys(ids[start : start + group_size]))
        if len(mixed) > 1:
            raise HudBadInput(
                f"inputs[{start}:{start + group_size}] mixes the groups"
                f" {' and '.join(map(_quoted, mixed[:NAMED]))}",
                "keep the rollouts of a group together: groups are consecutive inputs",
            )


def _warn_flat(items: Sequence[Item], size: int) -> None:
    """Warn if every group has zero variance and all rewards are known here."""
    rewards = [item.reward for item in items if item.reward is not None]
    if len(rewards) < len(items) or len(items) < 2:
        return
    groups = [rewards[start : start + size] for start in range(0, len(rewards), size)]
    if not any(map(has_signal, groups)):
        LOG.warning(
            "every group has zero reward variance (groups: %d, rollouts in each: %d): all"
            " advantages are 0 and this batch accumulates no gradient",
            len(groups),
            size,
        )


def _where(index: int, group_id: object, group_size: int | None) -> str:
    """E.g. ``inputs[5] (group 'add-3')``, or the group's range if it has no name."""
    if group_id is not None:
        return f"inputs[{index}] (group {_quoted(group_id)})"
    if group_size is None:
        return f"inputs[{index}]"
    start = index - index % group_size
    return f"inputs[{index}] (group inputs[{start}:{start + group_size}])"


def _quoted(group_id: object) -> str:
    return f"'{one_line(group_id, 60)}'"


# Rollouts and rewards of a loop, reported to the service as HUD's SDK does.
#
# All rollouts are traces of one job, so the loop can be followed live and trained by trace id.
# A failed report does not affect training.


class Reports:
    """The loop's job, and its rollouts that are not graded yet."""

    def __init__(
        self, client: HudClient, name: str | None = None, steps: int | None = None
    ) -> None:
        """`name`: of the job; None for ``loop on MODEL``. `steps`: as far as it is known."""
        self.job_id = uuid4().hex
        self._name, self._steps = name, steps
        self._client = client
        self._entered = False
        self._open: set[str] = set()

    async def enter(self, model: str, group: list[str], task_slug: str, group_id: str) -> None:
        """Report the start of a group of rollouts, given their trace ids and its common id."""
        if not self._entered:
            self._entered = True
            name = self._name or f"loop on {model}"
            entered = JobEnter(name=name, group=len(group), steps=self._steps)
            await _quietly(self._client.rollouts.enter_job(self.job_id, entered))
        body = TraceEnter(job_id=self.job_id, group_id=group_id, task_slug=task_slug, model=model)
        await asyncio.gather(
            *(_quietly(self._client.rollouts.enter_trace(id_, body)) for id_ in group)
        )
        self._open.update(group)

    async def graded(self, inputs: Iterable[Any]) -> None:
        """Report the rewards of rollouts sampled by this loop."""
        done = {r.trace_id: r for r in inputs if getattr(r, "trace_id", None) in self._open}
        self._open -= done.keys()
        await asyncio.gather(*(_quietly(self._leave(r)) for r in done.values()))

    async def failed(self, group: list[str], error: HudError) -> None:
        """Report that sampling a group failed."""
        await self._end(group, TraceExit(status="error", error=one_line(error.message)))

    async def close(self) -> None:
        """Report ungraded rollouts as completed without a reward."""
        await self._end(list(self._open), TraceExit(status="completed"))

    async def _end(self, ids: list[str], body: TraceExit) -> None:
        self._open.difference_update(ids)
        await asyncio.gather(
            *(_quietly(self._client.rollouts.exit_trace(id_, body)) for id_ in ids)
        )

    async def _leave(self, rollout: "Rollout") -> None:
        stop = "length" if rollout.finish_reason == "length" else "done"
        body = TraceExit(status="completed", reward=rollout.reward, stop_reason=stop)
        await self._client.rollouts.exit_trace(rollout.trace_id or "", body)


async def _quietly(report: Any) -> None:
    try:
        await report
    except HudError as error:
        LOG.warning("a rollout was not reported: %s", one_line(error.message))


# Sampling rollouts: text and tokens of an answer, and its reward.


AT_ONCE = 64
"""Maximum concurrent requests per group."""
SPREAD = 1_000_003
"""Stride between the seeds of consecutive groups."""
SLUG = 60
"""Maximum characters of a task name derived from its prompt."""


@dataclass
class Rollout:
    """One answer of the policy; set `reward` before training on it."""

    text: str
    """The model's answer, not cleaned: it may contain terminal control characters."""
    samples: list[Sample]
    """Sampled turns in order; append further turns of a conversation to train on them too."""
    reward: float | None = None
    """In any unit: advantages are relative to the group."""
    group_id: str | None = None
    """Common id of the rollouts of one group."""
    finish_reason: str | None = None
    """``stop``, or ``length`` if truncated."""
    trace_id: str | None = None


def sample_of(choice: ChatChoice) -> Sample:
    """Tokens of a chat choice for training. Raises HudMalformed: no tokens: the model is not
    trainable, or ``return_token_ids`` was not requested."""
    if choice.token_ids is None or choice.prompt_token_ids is None:
        raise HudMalformed(
            "the completion has no token ids", "request return_token_ids, from a trainable model"
        )
    try:
        rows = (choice.logprobs or {}).get("content") or []
        logprobs = [float(token["logprob"]) for token in rows]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = "the completion's logprobs cannot be read"
        raise HudMalformed(problem, "update hud-tui, or the service") from error
    return Sample(
        prompt_token_ids=choice.prompt_token_ids,
        output_token_ids=choice.token_ids,
        output_logprobs=logprobs,
    )


async def sample_group(
    client: HudClient, reports: Reports, body: Chat, size: int, task_slug: str | None
) -> list[Rollout]:
    """Sample one prompt `size` times, each answer with its own trace. Raises HudBadInput: the size
    is below 1; nothing was sent; HudError: no answer, or an answer without tokens."""
    if size < 1:
        raise HudBadInput(f"group_size is {size}", "it must be at least 1")
    traces, group_id = [uuid4().hex for _ in range(size)], uuid4().hex
    await reports.enter(body.model, traces, task_slug or _slug(body), group_id)
    line = asyncio.Semaphore(AT_ONCE)

    async def ask(number: int, trace_id: str) -> Rollout:
        async with line:
            reply = await client.training.chat(_reseeded(body, number), trace_id)
        if not reply.choices:
            raise HudMalformed("the gateway returned no choice", "try again")
        choice = reply.choices[0]
        text, samples = choice.message.content or "", [sample_of(choice)]
        return Rollout(text, samples, None, group_id, choice.finish_reason, trace_id)

    try:
        async with together() as tasks:
            asked = [tasks.create_task(ask(*numbered)) for numbered in enumerate(traces)]
    except HudError as error:
        await reports.failed(traces, error)
        raise
    return [task.result() for task in asked]


def _reseeded(body: Chat, number: int) -> Chat:
    """The request with a seed of its own: equal seeds would give equal answers."""
    if body.seed is None:
        return body
    return body.model_copy(update={"seed": (body.seed * SPREAD + number) % 2**63})


def _slug(body: Chat) -> str:
    """Default task name: the beginning of the last message."""
    content = body.messages[-1].get("content") if body.messages else None
    return one_line(content if isinstance(content, str) else "prompt", SLUG)
