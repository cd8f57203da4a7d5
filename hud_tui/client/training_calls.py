"""Calls on a model's weights: gradient passes, optimizer steps, and chat."""

from typing import TypeVar

from hud_tui.change import Change
from hud_tui.client.transport import TRAIN_S, Connection
from hud_tui.wire import Request
from hud_tui.wire_changes import Settled
from hud_tui.wire_training import (
    Backward,
    Chat,
    ChatReply,
    Completion,
    CompletionReply,
    Demonstration,
    Forward,
    ForwardBackward,
    ForwardBackwardResult,
    ForwardResult,
    Losses,
    OptimStep,
    OptimStepResult,
    Sample,
)

T = TypeVar("T")


class TrainingCalls:
    """Calls on the weights of models. `key` is a write's Idempotency-Key, needed to `settle` it; by
    default a fresh one is used. `run` is the id of the run whose steps this client takes (embedded
    service)."""

    def __init__(self, wire: Connection) -> None:
        self._wire = wire

    async def losses(self, model_id: str) -> Losses:
        """The loss functions this model can be trained with."""
        return await self._wire.get(self._wire.rl("/v1/models/{}/train/losses", model_id), Losses)

    async def forward_backward(
        self, model_id: str, body: ForwardBackward, key: str | None = None, run: str | None = None
    ) -> ForwardBackwardResult:
        """Accumulate a batch's gradients for the next optim_step."""
        change = Change("forward-backward", model_id, omitted=("inputs",))
        return await self._train("forward-backward", change, ForwardBackwardResult, body, key, run)

    async def forward(self, model_id: str, body: Forward) -> ForwardResult:
        """Current logprobs of a batch, for a custom loss."""
        url = self._wire.rl("/v1/models/{}/train/forward", model_id)
        return await self._wire.write("POST", url, ForwardResult, None, body, TRAIN_S)

    async def backward(
        self, model_id: str, body: Backward, key: str | None = None
    ) -> ForwardBackwardResult:
        """Accumulate gradients from −dC/dlogprob for the batch of a `forward`."""
        change = Change("backward", model_id, omitted=("weights",))
        return await self._train("backward", change, ForwardBackwardResult, body, key)

    async def optim_step(
        self, model_id: str, body: OptimStep, key: str | None = None, run: str | None = None
    ) -> OptimStepResult:
        """Step on the accumulated gradients; the new checkpoint becomes the head."""
        change = Change("optim step", model_id, made="checkpoint_id")
        return await self._train("optim-step", change, OptimStepResult, body, key, run)

    async def _train(
        self,
        call: str,
        change: Change,
        kind: type[T],
        body: Request,
        key: str | None,
        run: str | None = None,
    ) -> T:
        url = self._wire.rl("/v1/models/{}/train/{}", change.model, call)
        sent = {"Idempotency-Key": key, "Hud-Tui-Run": run}
        headers = {name: value for name, value in sent.items() if value is not None}
        return await self._wire.write("POST", url, kind, change, body, TRAIN_S, headers)

    async def demonstration(self, model_id: str, body: Demonstration) -> Sample:
        """What somebody else said, as tokens of a model (embedded service). Changes nothing. Raises
        HudNotFound: the service does not make them."""
        url = self._wire.rl("/v1/models/{}/train/demonstration", model_id)
        return await self._wire.write("POST", url, Sample, None, body)

    async def settle(self, model_id: str, key: str) -> Settled:
        """Outcome of a training write, by its key (embedded service). Safe to repeat. Raises
        HudNotFound: the service does not store keys."""
        url = self._wire.rl("/v1/models/{}/train/calls/{}/settle", model_id, key)
        return await self._wire.write("POST", url, Settled, None)

    async def complete(self, body: Completion) -> CompletionReply:
        """Completions of prompts without a chat template. Sent once."""
        url = f"{self._wire.settings.gateway_url}/completions"
        return await self._wire.write("POST", url, CompletionReply, None, body, TRAIN_S)

    async def chat(self, body: Chat, trace_id: str | None = None) -> ChatReply:
        """A completion by a model's head, or by the checkpoint that `body` pins. Sent once. The
        service stores its tokens under `trace_id`, the rollout it belongs to."""
        url = f"{self._wire.settings.gateway_url}/chat/completions"
        trace = {} if trace_id is None else {"Trace-Id": trace_id}
        return await self._wire.write("POST", url, ChatReply, None, body, TRAIN_S, trace)
