"""Sampling groups from gateways that are not ours."""

import json
from typing import Any

import httpx
import pytest

from hud_tui.client import HudClient, TrainingClient
from hud_tui.errors import HudMalformed
from hud_tui.wire import Model
from tests.service.clients import answered

MODEL = {"id": "5f0c2b8e-0000-4000-8000-000000000001", "model_name": "team/mine"}


class Gateway:
    """Gives at most so many answers a request, and notes what it was asked."""

    def __init__(self, most: int, **choice: Any) -> None:
        self.most = most
        self.choice = choice
        self.asked: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v2/models":
            return httpx.Response(200, json={"items": [MODEL], "total": 1})
        body = json.loads(request.content)
        self.asked.append(body)
        choices = [self._choice(number) for number in range(min(self.most, body["n"]))]
        return httpx.Response(200, json={"id": "1", "model": "m", "choices": choices})

    def _choice(self, number: int) -> dict[str, Any]:
        return {
            "index": number,
            "message": {"content": None},
            "prompt_token_ids": [1],
            "token_ids": [2],
            "logprobs": {"content": [{"logprob": -0.5}]},
        } | self.choice


async def sample(client: HudClient, size: int, **more: Any) -> list[Any]:
    return list(await TrainingClient("mine", client).sample("Hi", group_size=size, **more))


@pytest.mark.parametrize(
    ("most", "size", "asked"),
    [(8, 8, [8]), (1, 3, [3, 1, 1]), (3, 8, [8, 3, 2]), (100, 130, [64, 64, 2])],
)
async def test_a_group_is_asked_for_until_it_is_whole(
    most: int, size: int, asked: list[int]
) -> None:
    gateway = Gateway(most)
    async with answered(gateway) as client:
        group = await sample(client, size, seed=10)
    assert len(group) == size
    assert [body["n"] for body in gateway.asked] == asked
    assert len({body["seed"] for body in gateway.asked}) == len(asked)
    assert all(body["model"] == "team/mine" for body in gateway.asked)
    assert all(body["return_token_ids"] and body["logprobs"] for body in gateway.asked)
    assert (group[0].text, group[0].samples[0].output_logprobs) == ("", [-0.5])


@pytest.mark.parametrize(
    ("gateway", "says"),
    [
        (Gateway(0), "0 answers of 4"),
        (Gateway(4, token_ids=None), "no token ids"),
        (Gateway(4, prompt_token_ids=None), "no token ids"),
        (Gateway(4, logprobs={"content": [{}]}), "logprobs cannot be read"),
        (Gateway(4, logprobs={"content": 7}), "logprobs cannot be read"),
    ],
)
async def test_answers_that_cannot_be_trained_on(gateway: Gateway, says: str) -> None:
    async with answered(gateway) as client:
        with pytest.raises(HudMalformed, match=says) as error:
            await sample(client, 4)
    assert error.value.hint
    assert Model.model_validate(MODEL).id


async def test_a_gateway_without_logprobs_still_samples() -> None:
    async with answered(Gateway(4, logprobs=None)) as client:
        group = await sample(client, 2)
    assert [rollout.samples[0].output_logprobs for rollout in group] == [[], []]
