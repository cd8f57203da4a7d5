"""TrainingClient: a training loop of one's own on one model.

Sample, grade in Python, accumulate gradients, step: each `optim_step` makes a checkpoint,
which the gateway serves from then on. It does what ``hud.TrainingClient`` does.

Source: meaning and defaults of every call are the ``hud`` SDK's, 0.6.21.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hud_tui.client.trainer_bodies import chat_body, checked, forward_backward_body, forward_body
from hud_tui.client.trainer_inputs import Input
from hud_tui.client.trainer_losses import CustomLoss, check_weights, differentiate, load_torch
from hud_tui.client.trainer_outcome import Seen
from hud_tui.client.trainer_rollouts import Rollout, sample_group
from hud_tui.client.trainer_session import TrainingSession
from hud_tui.wire import (
    Backward,
    ForwardBackward,
    ForwardBackwardResult,
    ForwardResult,
    OptimStep,
    OptimStepResult,
)


class TrainingClient(TrainingSession):
    """One model's training. Use it as an async context, which finds the model first.

    Inputs are trace ids, `Payload`s, `Rollout`s or any `Scored` object, mixed. Groups are
    `group_size` of them in a row; without it the whole batch is one group.

    What cannot be trained on raises `HudBadInput` before anything is sent. A write is sent
    once; where its answer is lost, `resume` says what became of it.
    """

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
        """A group of rollouts of one prompt, each to be given its reward.

        Each is a trace of the loop's job, so it can be watched; its reward is reported when
        it is trained on.

        Args:
            messages: What the user says, or a conversation in OpenAI's form.
            group_size: How many rollouts.
            max_tokens: The longest answer, in tokens; None for as long as the context.
            temperature: None for the service's own, 1.
            checkpoint: Id of a checkpoint to ask instead of the head.
            seed: Draws the same answers again, where the service can.
            task_slug: What the group is called; None for how the prompt begins.

        Raises:
            HudBadInput: A number out of its bounds; nothing was sent.
            HudError: An answer did not come, or carries no tokens.
        """
        body = chat_body(
            (await self.entry()).model_name,
            messages,
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
        """Add a batch's gradients to those that wait for the next `optim_step`.

        Args:
            inputs: N rollouts, each group's together.
            loss_fn: One of `available_losses`.
            loss_fn_config: The loss's own numbers; None for the service's defaults.
            group_size: Rollouts in a group.
            reward_scale: Multiplies every advantage.
            num_substeps: Sent as it is; what it means is the service's business.

        Raises:
            HudBadInput: The batch, its groups or a number; nothing was sent.
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
        return await self._pass(body)

    async def optim_step(
        self,
        *,
        learning_rate: float,
        beta1: float = 0.9,
        beta2: float = 0.95,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> OptimStepResult:
        """Adam's step on what was accumulated: a new checkpoint, which becomes the head.

        Raises:
            HudBadInput: A number out of its bounds; nothing was sent.
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
        self,
        inputs: Iterable[Input],
        *,
        group_size: int | None = None,
        reward_scale: float = 1.0,
    ) -> ForwardResult:
        """The policy's logprobs of a batch by now, for a loss of one's own. Moves nothing."""
        batch = list(inputs)
        body = forward_body(batch, group_size, reward_scale)
        await self.reports.graded(batch)
        return await self.client.forward((await self.entry()).id, body)

    async def backward(
        self,
        forward_id: str,
        weights: Sequence[Sequence[float]],
        *,
        metrics: Mapping[str, float] | None = None,
    ) -> ForwardBackwardResult:
        """Add the gradients of a loss of one's own, for the batch of a `forward`.

        Args:
            forward_id: The forward pass; it ends with the next step or set_head.
            weights: −dC/dlogprob, a row a datum as long as its logprobs.
            metrics: The loss's own, kept with the step.

        Raises:
            HudBadInput: A weight or a metric is not finite; nothing was sent.
            HudNotFound: The service no longer knows the forward pass.
            HudError: It was refused, or its answer was lost.
        """
        check_weights(weights, metrics or {})
        rows = [list(row) for row in weights]
        body = checked(Backward, forward_id=forward_id, weights=rows, metrics=dict(metrics or {}))
        model_id = (await self.entry()).id
        async with self._once("backward") as key:
            return await self.client.backward(model_id, body, key)

    async def forward_backward_custom(
        self,
        inputs: Iterable[Input],
        loss_fn: CustomLoss,
        *,
        group_size: int | None = None,
        reward_scale: float = 1.0,
    ) -> ForwardBackwardResult:
        """`forward`, a loss of one's own differentiated here by torch, then `backward`.

        Args:
            inputs: N rollouts, each group's together.
            loss_fn: Takes the datums and, as tensors, their logprobs; gives a scalar tensor
                and metrics by name.
            group_size: Rollouts in a group; each datum says which one is its own.
            reward_scale: Sent with the forward pass.

        Raises:
            HudUsage: torch is not installed.
            HudBadInput: The batch, or a loss without a usable gradient.
            HudError: A pass was refused, or its answer was lost.
        """
        torch = load_torch()
        passed = await self.forward(inputs, group_size=group_size, reward_scale=reward_scale)
        weights, metrics = differentiate(torch, passed.data, loss_fn)
        return await self.backward(passed.forward_id, weights, metrics=metrics)

    async def _pass(self, body: ForwardBackward) -> ForwardBackwardResult:
        model_id = (await self.entry()).id
        async with self._once("forward_backward") as key:
            return await self.client.forward_backward(model_id, body, key)

    async def _step(self, body: OptimStep) -> OptimStepResult:
        await self._remember()
        model_id = (await self.entry()).id
        async with self._once("optim_step") as key:
            result = await self.client.optim_step(model_id, body, key)
        self._seen = Seen(result.checkpoint_id)
        return result
