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
    """Gives one answer a request, or none, and notes what it was asked and told."""

    def __init__(self, most: int = 1, **choice: Any) -> None:
        self.most = most
        self.choice = choice
        self.asked: list[dict[str, Any]] = []
        self.traces: list[str] = []
        self.told: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v2/models":
            return httpx.Response(200, json={"items": [MODEL], "total": 1})
        body = json.loads(request.content)
        if request.url.path.startswith("/v2/trace/"):
            self.told.append((request.url.path.removeprefix("/v2/trace/"), body))
            return httpx.Response(503, json={"detail": "no reports today"})
        self.asked.append(body)
        self.traces.append(request.headers["trace-id"])
        choices = [self._choice(number) for number in range(self.most)]
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


@pytest.mark.parametrize("size", [1, 8, 130])
async def test_every_rollout_is_asked_for_under_a_trace_of_its_own(size: int) -> None:
    """The gateway takes no reports, which costs the loop nothing."""
    gateway = Gateway()
    async with answered(gateway) as client:
        group = await sample(client, size, seed=10)
    assert len(group) == len(set(gateway.traces)) == size
    assert {rollout.trace_id for rollout in group} == set(gateway.traces)
    assert len({body["seed"] for body in gateway.asked}) == size
    assert all(body["model"] == "team/mine" and "n" not in body for body in gateway.asked)
    assert all(body["return_token_ids"] and body["logprobs"] for body in gateway.asked)
    assert (group[0].text, group[0].samples[0].output_logprobs) == ("", [-0.5])
    assert {path for path, _ in gateway.told[1:]} == {f"{id_}/enter" for id_ in gateway.traces}


async def test_answers_that_cannot_be_trained_on() -> None:
    for gateway, says in (
        (Gateway(0), "no choice"),
        (Gateway(1, token_ids=None), "no token ids"),
        (Gateway(1, prompt_token_ids=None), "no token ids"),
        (Gateway(1, logprobs={"content": [{}]}), "logprobs cannot be read"),
        (Gateway(1, logprobs={"content": 7}), "logprobs cannot be read"),
    ):
        async with answered(gateway) as client:
            with pytest.raises(HudMalformed, match=says) as error:
                await sample(client, 4)
        assert error.value.hint
        assert {told["status"] for path, told in gateway.told if path.endswith("exit")} == {"error"}
        assert Model.model_validate(MODEL).id


async def test_a_gateway_without_logprobs_still_samples() -> None:
    async with answered(Gateway(1, logprobs=None)) as client:
        group = await sample(client, 2)
    assert [rollout.samples[0].output_logprobs for rollout in group] == [[], []]
