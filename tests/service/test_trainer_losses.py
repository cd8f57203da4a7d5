"""Losses of one's own: their two halves, and against those that the service has."""

import math
import sys
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient, Response

from hud_tui.client import HudClient, TrainingClient
from hud_tui.errors import HudBadInput, HudUsage
from hud_tui.service import context as parts_module
from hud_tui.service import session
from hud_tui.service.service import Service
from hud_tui.wire_training import ForwardDatum, ForwardResult, Payload
from tests.conftest import dumps, fork
from tests.service.calls import QUESTION, Json, detail, optim, payloads, set_head, step, tree
from tests.service.clients import fork_of


async def forward(http: AsyncClient, model_id: str, inputs: list[Json], **body: int) -> Json:
    url = f"/v1/models/{model_id}/train/forward"
    answer = await http.post(url, json={"inputs": inputs, **body})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def backward(
    http: AsyncClient, model_id: str, forward_id: str, weights: list[list[float]], **own: float
) -> Response:
    url = f"/v1/models/{model_id}/train/backward"
    body = {"forward_id": forward_id, "weights": weights, "metrics": own}
    return await http.post(url, content=dumps(body))


async def test_rows_run_over_prompt_and_output(http: AsyncClient, model: Json) -> None:
    inputs = await payloads(http, model["id"], [1.0, 0.0, 0.5, 0.25])
    result = ForwardResult.model_validate(await forward(http, model["id"], inputs, group_size=2))
    assert [datum.traj_idx for datum in result.data] == [0, 1, 2, 3]
    assert [datum.group_idx for datum in result.data] == [0, 0, 1, 1]
    assert [datum.reward for datum in result.data] == [1.0, 0.0, 0.5, 0.25]
    alone = (await forward(http, model["id"], inputs))["data"]
    assert {datum["group_idx"] for datum in alone} == {None}, "no group size, no group"
    for datum, given in zip(result.data, inputs, strict=True):
        sample = given["samples"][0]
        prompt, output = len(sample["prompt_token_ids"]), len(sample["output_token_ids"])
        assert datum.mask == [0.0] * prompt + [1.0] * output
        assert datum.sampling_logprobs == [0.0] * prompt + sample["output_logprobs"]
        assert datum.logprobs == pytest.approx(datum.sampling_logprobs)


async def test_weights_must_fit(http: AsyncClient, model: Json) -> None:
    inputs = await payloads(http, model["id"], [1.0, 0.0])
    result = await forward(http, model["id"], inputs)
    good = [datum["mask"] for datum in result["data"]]
    for wrong, says in (
        (good[:1], "1 rows for 2 datums"),
        ([good[0], good[1][:-1]], "weights for"),
        ([good[0], [float("nan")] * len(good[1])], "not finite"),
    ):
        answer = await backward(http, model["id"], result["forward_id"], wrong)
        assert (answer.status_code, says in detail(answer)) == (422, True)
    zeros = [[0.0] * len(row) for row in good]
    answer = await backward(http, model["id"], result["forward_id"], zeros)
    assert (answer.status_code, answer.json()["num_datums"]) == (200, 0)
    assert (await optim(http, model["id"])).status_code == 409
    result = await forward(http, model["id"], inputs)
    assert (await backward(http, model["id"], result["forward_id"], good)).status_code == 200


async def test_a_forward_id_ends_with_its_weights(http: AsyncClient, model: Json) -> None:
    inputs = await payloads(http, model["id"], [1.0, 0.0])
    first = await step(http, model)
    for change in ("step", "head"):
        result = await forward(http, model["id"], inputs)
        if change == "step":
            await step(http, model)
        else:
            await set_head(http, model["id"], first["checkpoint_id"])
        weights = [datum["mask"] for datum in result["data"]]
        answer = await backward(http, model["id"], result["forward_id"], weights)
        assert (answer.status_code, "no such forward pass" in detail(answer)) == (404, True)
    assert (await backward(http, model["id"], str(uuid4()), [[0.0]])).status_code == 404


async def test_only_so_many_are_kept_and_only_so_long(
    http: AsyncClient, model: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = await payloads(http, model["id"], [1.0, 0.0])
    made = [await forward(http, model["id"], inputs) for _ in range(session.MOST_FORWARDS + 1)]
    weights = [datum["mask"] for datum in made[0]["data"]]
    assert (await backward(http, model["id"], made[0]["forward_id"], weights)).status_code == 404
    assert (await backward(http, model["id"], made[1]["forward_id"], weights)).status_code == 200
    monkeypatch.setattr(session, "LIFETIME_S", -1.0)
    assert (await backward(http, model["id"], made[2]["forward_id"], weights)).status_code == 404


async def test_a_forward_pass_stays_current_while_its_policy_is_closed(
    http: AsyncClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Policies that nobody used for long are closed; what was passed forward is not lost."""
    closed, untouched = await fork(http, "closed"), await fork(http, "untouched")
    inputs = await payloads(http, closed["id"], [1.0, 0.0])
    made = []
    for model in (closed, untouched):
        result = await forward(http, model["id"], inputs)
        if model is closed:
            monkeypatch.setattr(parts_module, "TRAINING", 0)
            await service.parts.rest()
            monkeypatch.undo()
        weights = [[datum["reward"] - 0.5] * len(datum["mask"]) for datum in result["data"]]
        answer = await backward(http, model["id"], result["forward_id"], weights)
        assert answer.status_code == 200, answer.text
        assert (await optim(http, model["id"])).status_code == 200
        made.append((await tree(http, model["id"]))[-1]["metrics"]["grad_norm"])
    assert made[0] == made[1]


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
