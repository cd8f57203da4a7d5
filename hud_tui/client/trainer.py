"""`TrainingClient`: a custom training loop on one model.

Sample, grade in Python, accumulate gradients, step: each `optim_step` makes a checkpoint and moves
the head to it. Equivalent to ``hud.TrainingClient``.

Source: semantics and defaults of every call are those of the ``hud`` SDK 0.6.21.
"""

from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from math import isfinite
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

from pydantic import ValidationError

from hud_tui.audit_log import CommandLog
from hud_tui.client.client import HudClient
from hud_tui.client.trainer_inputs import Input, Reports, Rollout, sample_group, to_inputs
from hud_tui.errors import HudBadInput, HudRefused, HudUnclear, HudUsage
from hud_tui.patience import outcome_looks
from hud_tui.rl.groups import CROSS_ENTROPY
from hud_tui.rl.names import canonical_id, find_checkpoint
from hud_tui.rl.text import one_line
from hud_tui.settings import read_paths, read_settings
from hud_tui.wire import Checkpoint, Model, Request
from hud_tui.wire_changes import Settled
from hud_tui.wire_training import (
    Backward,
    Chat,
    Forward,
    ForwardBackward,
    ForwardBackwardResult,
    ForwardDatum,
    ForwardResult,
    OptimStep,
    OptimStepResult,
)

# Requests from the caller's values; an invalid value raises HudBadInput.


R = TypeVar("R", bound=Request)


def checked(kind: type[R], **fields: Any) -> R:
    """A request with these fields. Raises HudBadInput: a field is out of its bounds; the message
    names it."""
    for name, value in fields.items():
        numbers = value.values() if isinstance(value, Mapping) else [value]
        if any(isinstance(number, float) and not isfinite(number) for number in numbers):
            raise HudBadInput(f"{name} is {one_line(value, 80)}", "it must be finite")
    try:
        return kind(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path = ".".join(map(str, first["loc"]))
        problem = f"{path} is {one_line(first['input'], 80)}"
        raise HudBadInput(problem, one_line(first["msg"])) from error


def forward_backward_body(
    inputs: Iterable[Input], group_size: int | None, loss_fn: str, **numbers: Any
) -> ForwardBackward:
    """Raises HudBadInput if the batch, its groups or a number are invalid."""
    sent = to_inputs(inputs, group_size, compared=loss_fn != CROSS_ENTROPY)
    return checked(ForwardBackward, inputs=sent, group_size=group_size, loss_fn=loss_fn, **numbers)


# Custom losses: from a forward pass to the gradients that `backward` sends.
#
# A custom loss C is any torch expression of the policy's logprobs. The service needs only
# w = −dC/dlogprob per token, the convention of Tinker's cross-entropy backward pass.
#
# Source: the ``hud`` SDK's TrainingClient.forward_backward_custom, 0.6.21.


CustomLoss = Callable[[list[ForwardDatum], list[Any]], tuple[Any, Mapping[str, float]]]
"""(N datums, N float32 tensors of their logprobs) → (a scalar tensor, metrics by name)."""


def load_torch() -> Any:
    """Import torch, which only custom losses need. Raises HudUsage: torch is not installed."""
    try:
        return import_module("torch")
    except ImportError as error:
        raise HudUsage(
            "forward_backward_custom differentiates your loss with torch, which is not installed",
            "pip install torch; or compute −dC/dlogprob yourself, between forward and backward",
        ) from error


def differentiate(
    torch: Any, data: list[ForwardDatum], loss_fn: CustomLoss
) -> tuple[list[list[float]], dict[str, float]]:
    """Run a loss over a forward pass.

    Returns:
        −dC/dlogprob, one row per datum with the shape of its logprobs; and the loss's metrics.

    Raises:
        HudBadInput: The loss does not depend on some datum's logprobs.
    """
    leaves = [
        torch.tensor(datum.logprobs, dtype=torch.float32).requires_grad_(True) for datum in data
    ]
    loss, metrics = loss_fn(data, leaves)
    loss.backward()
    for number, leaf in enumerate(leaves):
        if leaf.grad is None:
            raise HudBadInput(
                f"the loss does not depend on the logprobs of datum {number}",
                "use every datum: multiply by 0 to exclude one",
            )
    weights = [(-leaf.grad).tolist() for leaf in leaves]
    return weights, {name: float(value) for name, value in metrics.items()}


def check_weights(weights: Sequence[Sequence[float]], metrics: Mapping[str, float]) -> None:
    """Reject NaN and infinities. Raises HudBadInput: a weight or a metric is not finite; the
    message names the datum and the token."""
    for number, datum in enumerate(weights):
        bad = next((token for token, weight in enumerate(datum) if not isfinite(weight)), None)
        if bad is not None:
            raise HudBadInput(
                f"the weight of datum {number}, token {bad} is {datum[bad]}",
                "look for a division by 0 or an overflow in the loss",
            )
    for name, value in metrics.items():
        if not isfinite(value):
            raise HudBadInput(f"the metric {one_line(name, 60)} is {value}", "it must be finite")


# Outcome of a training write whose answer was lost.
#
# A service that stores Idempotency-Keys reports it for every call. Otherwise the checkpoint
# tree shows it: a completed step is a new child of the previous head. With one trainer per
# model that is certain; the step of a second trainer looks the same.


@dataclass(frozen=True)
class Seen:
    """The last known head of the tree."""

    head: str | None
    """Its id; None for the base weights."""
    below: frozenset[str] = frozenset()
    """Ids of its known children."""


@dataclass(frozen=True)
class Lost:
    """A write whose answer was lost."""

    call: str
    """E.g. ``optim_step``."""
    asked: str | None = None
    """Target of a set_head."""
    key: str = ""
    """Its Idempotency-Key."""


@dataclass(frozen=True)
class Resumed:
    """State of training, read from the service."""

    landed: bool | None
    """Whether the write took effect; for a gradient pass, whether its gradients are pending or
    were used by a step. None if nothing was lost, or if it is unknown because the service
    stores no keys: a pass is not visible in the tree, and a missing step or head move may
    still complete, so call `resume` again."""
    checkpoint: Checkpoint | None
    """The step's checkpoint if it completed, else the head; None for the base weights."""
    call: str | None
    """The write that was lost, e.g. ``optim_step``; None if none was."""


def seen_of(tree: Sequence[Checkpoint]) -> Seen:
    """State of a tree by which a later step is recognised."""
    head = head_of(tree)
    id_ = None if head is None else head.id
    return Seen(id_, frozenset(c.id for c in tree if c.prev_model_checkpoint_id == id_))


def resolve(
    lost: Lost | None,
    before: Seen | None,
    tree: Sequence[Checkpoint],
    settled: Settled | None = None,
) -> Resumed:
    """Outcome of a lost write, from the service's record, else from the tree."""
    head = head_of(tree)
    if lost is None:
        return Resumed(None, head, None)
    if settled is not None:
        made = (settled.reply or {}).get("checkpoint_id")
        step = next((checkpoint for checkpoint in tree if checkpoint.id == made), head)
        return Resumed(settled.state == "done", step, lost.call)
    if lost.call == "set_head":
        landed = head is not None and head.id == lost.asked
        return Resumed(landed or None, head, lost.call)  # it may still arrive
    step = _grown(before, tree) if lost.call == "optim_step" else None
    if step is None:
        return Resumed(None, head, lost.call)
    return Resumed(True, step, lost.call)


def _grown(before: Seen | None, tree: Sequence[Checkpoint]) -> Checkpoint | None:
    """The newest checkpoint that was made from the head since the tree was seen."""
    if before is None:
        return None
    for checkpoint in reversed(tree):
        is_below = checkpoint.prev_model_checkpoint_id == before.head
        if is_below and checkpoint.id not in before.below:
            return checkpoint
    return None


def advice(call: str) -> str:
    """Hint after a lost write."""
    if call == "optim_step":
        return "do not repeat it: `await trainer.resume()` tells whether the step completed"
    if call == "set_head":
        return "`await trainer.resume()` returns the head"
    return (
        "its gradients may be pending on the service: `await trainer.resume()` tells;"
        " if it cannot, set_head to the head drops them and the step can be repeated"
    )


def head_of(tree: Sequence[Checkpoint]) -> Checkpoint | None:
    """The checkpoint that is served; None for the base weights."""
    return next((c for c in reversed(tree) if c.is_active), None)


class TrainingClient:
    """Training of one model. Use it as an async context manager, which looks up the model first.

    Inputs are trace ids, `Payload`s, `Rollout`s or any `Scored` object, also mixed. A group is
    `group_size` consecutive inputs; without it the whole batch is one group.

    Invalid inputs raise `HudBadInput` before anything is sent. A write is sent once; if its answer
    is lost, `resume` finds the outcome.
    """

    def __init__(
        self,
        model: str,
        client: HudClient | None = None,
        *,
        name: str | None = None,
        steps: int | None = None,
    ) -> None:
        """Writes are added to this machine's command log (``hud-tui log``), unless the client
        already has an observer.

        Args:
            model: Its id, name or slug.
            client: A service, which stays open; None for HUD by its settings (HUD_API_KEY …).
            name: Name of the loop's job; None for ``loop on MODEL``.
            steps: Number of optimizer steps that the loop will take, from which the embedded
                service
                estimates its end; omit it on HUD.

        Raises:
            HudNoKey: Neither a client nor a key.
        """
        self.model = model
        self.client = client or HudClient(read_settings())
        if not self.client.is_observed:
            self.client = self.client.observed(CommandLog(read_paths().state, "python").add)
        self.reports = Reports(self.client, name, steps)
        """The loop's job and its ungraded rollouts."""
        self._is_own = client is None
        self._entry: Model | None = None
        self._seen: Seen | None = None
        self._lost: Lost | None = None

    async def __aenter__(self) -> Self:
        try:
            await self.entry()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the loop's job; close the connections unless the client was passed in."""
        await self.reports.close()
        if self._is_own:
            await self.client.aclose()

    async def entry(self) -> Model:
        """The model's row of the catalog; looked up once. Raises HudUsage: no such model, or
        several; the hint names similar ones."""
        if self._entry is None:
            self._entry = await self.client.model(canonical_id(self.model) or self.model)
        return self._entry

    async def available_losses(self) -> list[str]:
        """The loss functions that this model's service has."""
        return (await self.client.training.losses((await self.entry()).id)).losses

    async def checkpoints(self) -> list[Checkpoint]:
        """The checkpoint tree, oldest first; each with its rewards and metrics."""
        return await self.client.checkpoints((await self.entry()).id)

    async def head(self) -> Checkpoint | None:
        """The checkpoint that the gateway serves; None for the base weights."""
        return head_of(await self.checkpoints())

    async def set_head(self, checkpoint: str) -> Checkpoint:
        """Serve a checkpoint; the next `optim_step` extends the tree from it. Sent once.

        Args:
            checkpoint: Its id, its name, or a prefix of its id.

        Raises:
            HudUsage: The tree has no such checkpoint.
            HudConflict: The head was moved elsewhere meanwhile (embedded service).
            HudError: Refused, or the answer was lost: see `resume`.
        """
        tree = await self.checkpoints()
        target = find_checkpoint(checkpoint, tree)
        async with self._once("set_head", target.id):
            seen = head_of(tree)
            model_id = (await self.entry()).id
            await self.client.set_head(model_id, target.id, seen.id if seen else None)
        served = [c.model_copy(update={"is_active": c.id == target.id}) for c in tree]
        self._seen, self._lost = seen_of(served), None
        return target.model_copy(update={"is_active": True})

    async def resume(self) -> Resumed:
        """Find the outcome of a write whose answer was lost; safe to repeat.

        A service that stores keys is asked by the call's key, and refuses the call should it arrive
        later. Otherwise, and for a set_head, the tree is read a few times. An unknown outcome is
        looked up again by the next `resume`, until another write is made. If nothing was lost, the
        current state is returned. Raises HudError: the service does not answer.
        """
        settled = await self._settle()
        async for _ in outcome_looks():
            tree = await self.checkpoints()
            resumed = resolve(self._lost, self._seen, tree, settled)
            is_pending = resumed.landed is None and resumed.call in ("optim_step", "set_head")
            if not is_pending:
                self._lost, self._seen = None, seen_of(tree)
                break
        return resumed

    async def _settle(self) -> Settled | None:
        """The service's record of the lost call; None if it stores no keys."""
        if self._lost is None or self._lost.call == "set_head":
            return None
        try:
            return await self.client.training.settle((await self.entry()).id, self._lost.key)
        except HudRefused as error:
            if error.status in (404, 405):
                return None
            raise

    @asynccontextmanager
    async def _once(self, call: str, asked: str | None = None) -> AsyncIterator[str]:
        """Context of a write with the yielded key; records a lost answer and adds a hint."""
        key = uuid4().hex
        try:
            yield key
        except (CancelledError, HudUnclear) as error:
            self._lost = Lost(call, asked, key)
            if isinstance(error, HudUnclear):
                error.hint = advice(call)
            raise

    async def sample(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        group_size: int = 1,
        max_tokens: int | None = None,
        temperature: float | None = None,
        checkpoint: str | None = None,
        seed: int | None = None,
        task_slug: str | None = None,
    ) -> list[Rollout]:
        """Sample a group of rollouts of one prompt; the caller then sets the reward of each.

        Each is a trace of the loop's job; its reward is reported when it is trained on.

        Args:
            messages: The user's message, or a conversation in OpenAI's form.
            group_size: Number of rollouts.
            max_tokens: Maximum tokens per answer; None: up to the context length.
            temperature: None for the service's default, 1.
            checkpoint: Id of a checkpoint to sample instead of the head.
            seed: For reproducible answers, if the service supports it.
            task_slug: Name of the group's task; None: the beginning of the prompt.

        Raises:
            HudBadInput: A number is out of its bounds; nothing was sent.
            HudError: No answer, or an answer without tokens.
        """
        asked = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        body = checked(
            Chat,
            model=(await self.entry()).model_name,
            messages=[dict(message) for message in asked],
            logprobs=True,  # which training needs, as it does token ids
            return_token_ids=True,
            max_tokens=max_tokens,
            temperature=temperature,
            checkpoint=checkpoint,
            seed=seed,
        )
        return await sample_group(self.client, self.reports, body, group_size, task_slug)

    async def forward_backward(
        self,
        inputs: Iterable[Input],
        *,
        loss_fn: str = "importance_sampling",
        loss_fn_config: Mapping[str, float] | None = None,
        group_size: int | None = None,
        reward_scale: float = 1.0,
        num_substeps: int = 1,
    ) -> ForwardBackwardResult:
        """Accumulate a batch's gradients for the next `optim_step`.

        Args:
            inputs: N rollouts, ordered by group.
            loss_fn: One of `available_losses`.
            loss_fn_config: The loss's own parameters; None for the service's defaults.
            group_size: Rollouts per group.
            reward_scale: Multiplies every advantage.
            num_substeps: Sent unchanged; interpreted by the service.

        Raises:
            HudBadInput: The batch, its groups or a number are invalid; nothing was sent.
            HudError: It was refused, or its answer was lost.
        """
        batch = list(inputs)
        body = forward_backward_body(
            batch,
            group_size,
            loss_fn,
            loss_fn_config=loss_fn_config,
            reward_scale=reward_scale,
            num_substeps=num_substeps,
        )
        await self.reports.graded(batch)
        model_id = (await self.entry()).id
        async with self._once("forward_backward") as key:
            return await self.client.training.forward_backward(model_id, body, key)

    async def optim_step(
        self,
        *,
        learning_rate: float,
        beta1: float = 0.9,
        beta2: float = 0.95,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> OptimStepResult:
        """Take an Adam step on the accumulated gradients: a new checkpoint, which becomes the head.

        Raises:
            HudBadInput: A number is out of its bounds; nothing was sent.
            HudConflict: There is no gradient to step on; the message says why.
            HudError: It was refused, or its answer was lost: see `resume`.
        """
        numbers = {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
        return await self._step(checked(OptimStep, learning_rate=learning_rate, **numbers))

    async def step(
        self,
        inputs: Iterable[Input],
        *,
        learning_rate: float,
        loss_fn: str = "importance_sampling",
        loss_fn_config: Mapping[str, float] | None = None,
        group_size: int | None = None,
        reward_scale: float = 1.0,
        num_substeps: int = 1,
        beta1: float = 0.9,
        beta2: float = 0.95,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> OptimStepResult:
        """`forward_backward`, then `optim_step`; both are checked before either is sent."""
        numbers = {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
        adam = checked(OptimStep, learning_rate=learning_rate, **numbers)
        await self.forward_backward(
            inputs,
            loss_fn=loss_fn,
            loss_fn_config=loss_fn_config,
            group_size=group_size,
            reward_scale=reward_scale,
            num_substeps=num_substeps,
        )
        return await self._step(adam)

    async def forward(
        self, inputs: Iterable[Input], *, group_size: int | None = None, reward_scale: float = 1.0
    ) -> ForwardResult:
        """Current logprobs of a batch, for a custom loss. Changes nothing."""
        batch = list(inputs)
        sent = to_inputs(batch, group_size)
        body = checked(Forward, inputs=sent, group_size=group_size, reward_scale=reward_scale)
        await self.reports.graded(batch)
        return await self.client.training.forward((await self.entry()).id, body)

    async def backward(
        self,
        forward_id: str,
        weights: Sequence[Sequence[float]],
        *,
        metrics: Mapping[str, float] | None = None,
    ) -> ForwardBackwardResult:
        """Accumulate the gradients of a custom loss, for the batch of a `forward`.

        Args:
            forward_id: The forward pass; it ends with the next step or set_head.
            weights: −dC/dlogprob, one row per datum with the shape of its logprobs.
            metrics: Metrics of the loss, stored with the step.

        Raises:
            HudBadInput: A weight or a metric is not finite; nothing was sent.
            HudNotFound: The service no longer knows the forward pass.
            HudError: It was refused, or its answer was lost.
        """
        check_weights(weights, metrics or {})
        rows = [list(datum) for datum in weights]
        body = checked(Backward, forward_id=forward_id, weights=rows, metrics=dict(metrics or {}))
        model_id = (await self.entry()).id
        async with self._once("backward") as key:
            return await self.client.training.backward(model_id, body, key)

    async def forward_backward_custom(
        self,
        inputs: Iterable[Input],
        loss_fn: CustomLoss,
        *,
        group_size: int | None = None,
        reward_scale: float = 1.0,
    ) -> ForwardBackwardResult:
        """`forward`, a custom loss differentiated by torch, then `backward`.

        Args:
            inputs: N rollouts, ordered by group.
            loss_fn: Maps datums and their logprobs (tensors) to a scalar tensor and metrics by
                name.
            group_size: Rollouts per group; each datum names its group.
            reward_scale: Sent with the forward pass.

        Raises:
            HudUsage: torch is not installed.
            HudBadInput: The batch is invalid, or the loss has no usable gradient.
            HudError: A pass was refused, or its answer was lost.
        """
        torch = load_torch()
        passed = await self.forward(inputs, group_size=group_size, reward_scale=reward_scale)
        weights, metrics = differentiate(torch, passed.data, loss_fn)
        return await self.backward(passed.forward_id, weights, metrics=metrics)

    async def _step(self, body: OptimStep) -> OptimStepResult:
        if self._seen is None or self._lost is not None:
            self._seen = seen_of(await self.checkpoints())
            self._lost = None
        model_id = (await self.entry()).id
        async with self._once("optim_step") as key:
            result = await self.client.training.optim_step(model_id, body, key)
        self._seen = Seen(result.checkpoint_id)
        return result
