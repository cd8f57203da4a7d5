"""Losses of one's own, against those that the service has."""

import math
import sys
from typing import Any

import pytest

from hud_tui.client import HudClient, TrainingClient
from hud_tui.errors import HudBadInput, HudUsage
from hud_tui.wire_training import ForwardDatum, Payload
from tests.service.calls import QUESTION
from tests.service.clients import fork_of

REWARDS = (1.0, 0.0, 0.25, 0.75)


async def trainer_of(client: HudClient, name: str) -> TrainingClient:
    return TrainingClient((await fork_of(client, name)).id, client)


async def batch_of(trainer: TrainingClient, shift: float = 0.0) -> list[Payload]:
    """Two groups of two; with `shift`, sampled by a policy that was surer by so many nats."""
    group = await trainer.sample(QUESTION, group_size=4, seed=1)
    return [
        Payload(
            samples=[
                sample.model_copy(
                    update={"output_logprobs": [p + shift for p in sample.output_logprobs]}
                )
                for sample in rollout.samples
            ],
            reward=reward,
        )
        for rollout, reward in zip(group, REWARDS, strict=True)
    ]


def advantages(data: list[ForwardDatum]) -> list[float]:
    """Reward minus the mean of its group."""
    groups: dict[int | None, list[float]] = {}
    for datum in data:
        groups.setdefault(datum.group_idx, []).append(datum.reward)
    means = {index: sum(rewards) / len(rewards) for index, rewards in groups.items()}
    return [datum.reward - means[datum.group_idx] for datum in data]


async def gradient(trainer: TrainingClient) -> tuple[float, dict[str, float]]:
    """The norm of what was accumulated, and the step's metrics."""
    await trainer.optim_step(learning_rate=1e-9)
    head = await trainer.head()
    assert head is not None
    return head.metrics["grad_norm"], head.metrics


async def test_two_passes_are_the_built_in_loss(client: HudClient) -> None:
    """w = A · ratio, for C = −Σ A · ratio is importance sampling's loss."""
    ours, theirs = await trainer_of(client, "ours"), await trainer_of(client, "theirs")
    batch = await batch_of(ours, shift=0.2)
    passed = await ours.forward(batch, group_size=2)
    weights = [
        [
            advantage * math.exp(now - then) * mask
            for now, then, mask in zip(
                datum.logprobs, datum.sampling_logprobs, datum.mask, strict=True
            )
        ]
        for datum, advantage in zip(passed.data, advantages(passed.data), strict=True)
    ]
    result = await ours.backward(passed.forward_id, weights, metrics={"mine": 1.5})
    assert result.num_datums == 4
    await theirs.forward_backward(batch, group_size=2)
    (norm, metrics), (wanted, _) = await gradient(ours), await gradient(theirs)
    assert norm == pytest.approx(wanted)
    assert metrics["mine"] == 1.5
    head = await ours.head()
    assert head is not None
    assert head.loss_fn == "custom"


async def test_a_forward_pass_moves_nothing(client: HudClient) -> None:
    trainer = await trainer_of(client, "ours")
    passed = await trainer.forward(await batch_of(trainer), reward_scale=2.0)
    assert [datum.reward for datum in passed.data] == list(REWARDS)
    assert await trainer.head() is None


async def test_without_torch_it_says_what_to_do(
    client: HudClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    trainer = await trainer_of(client, "ours")
    with pytest.raises(HudUsage, match="torch") as error:
        await trainer.forward_backward_custom(await batch_of(trainer), lambda data, leaves: (0, {}))
    assert "pip install torch" in error.value.hint


async def test_a_torch_loss_is_the_built_in_loss(client: HudClient) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = await trainer_of(client, "ours"), await trainer_of(client, "theirs")
    batch = await batch_of(ours, shift=0.2)

    def importance_sampling(data: list[ForwardDatum], logprobs: list[Any]) -> Any:
        loss = 0.0
        for datum, now, advantage in zip(data, logprobs, advantages(data), strict=True):
            then, mask = torch.tensor(datum.sampling_logprobs), torch.tensor(datum.mask)
            loss = loss - advantage * ((now - then).exp() * mask).sum()
        return loss, {"custom_loss": loss.detach()}

    result = await ours.forward_backward_custom(batch, importance_sampling, group_size=2)
    assert result.num_datums == 4
    await theirs.forward_backward(batch, group_size=2)
    (norm, metrics), (wanted, _) = await gradient(ours), await gradient(theirs)
    assert norm == pytest.approx(wanted, rel=1e-5)
    assert "custom_loss" in metrics


@pytest.mark.parametrize("fault", ["detached", "infinite"])
async def test_a_torch_loss_without_a_usable_gradient(client: HudClient, fault: str) -> None:
    pytest.importorskip("torch")
    trainer = await trainer_of(client, "ours")

    def loss(data: list[ForwardDatum], logprobs: list[Any]) -> Any:
        if fault == "detached":
            return logprobs[0].sum(), {}
        return sum((row * float("inf")).sum() for row in logprobs), {}

    with pytest.raises(HudBadInput, match=r"datum [01]"):
        await trainer.forward_backward_custom(await batch_of(trainer), loss)
    assert await trainer.head() is None
