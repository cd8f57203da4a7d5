"""A server forgets a run, or a state: the others keep what they have, and the tree says so."""

from collections.abc import Sequence

import pytest
from httpx import AsyncClient

from hud_tui.service import gateway
from hud_tui.service.engines.base import About, PolicyLost, Sampled, SampleRequest, StateGone
from hud_tui.service.service import Service
from tests.conftest import ended, fork, submit
from tests.service.calls import (
    Json,
    ask,
    chat,
    detail,
    optim,
    pass_,
    payloads,
    set_head,
    step,
    told,
    tree,
)
from tests.toy_engine import ToyEngine


@pytest.mark.parametrize("verb", ["forward_backward", "optim_step"])
async def test_a_lost_policy_takes_only_its_own_gradients(
    http: AsyncClient, engine: ToyEngine, verb: str
) -> None:
    mine, other = await fork(http, "mine"), await fork(http, "other")
    first = await step(http, mine)
    inputs = await payloads(http, mine["id"], [1.0, 0.0])
    for model in (mine, other):
        assert (await pass_(http, model["id"], inputs)).status_code == 200
    held = set(engine.policies)
    engine.fail_next[verb] = PolicyLost("the policy was lost")
    answer = await (
        optim(http, mine["id"]) if verb == "optim_step" else pass_(http, mine["id"], inputs)
    )
    assert (answer.status_code, "no step was taken" in detail(answer)) == (503, True)
    assert len(held - set(engine.policies)) == 1
    assert (await optim(http, other["id"])).status_code == 200
    assert (await optim(http, mine["id"])).status_code == 409
    await step(http, mine)
    rows = await tree(http, mine["id"])
    assert rows[1]["prev_model_checkpoint_id"] == first["checkpoint_id"]


async def test_a_policy_that_is_lost_in_a_sample_is_opened_again(
    http: AsyncClient, model: Json, engine: ToyEngine
) -> None:
    await step(http, model)
    held = set(engine.policies)
    engine.fail_next["sample"] = PolicyLost("the policy was lost")
    await chat(http, model["id"])
    assert len(held - set(engine.policies)) == 1
    await chat(http, model["id"])
    await step(http, model)
    assert [row["step"] for row in await tree(http, model["id"])] == [1, 2]


@pytest.mark.parametrize("verb", ["sample", "forward_backward", "optim_step"])
async def test_a_run_says_why_it_samples_a_step_again(
    http: AsyncClient, model: Json, service: Service, engine: ToyEngine, verb: str
) -> None:
    await step(http, model)
    engine.fail_next[verb] = PolicyLost("the server lost the training run")
    job = await ended(http, await submit(http, model["id"], steps=1))
    assert (job["status"], job["note"]) == ("succeeded", None)
    found = [event["work"].get("note") for event in await told(service, model["id"], "work")]
    again = "step 1: the server lost the training run: sampled again from step-000001"
    assert next(note for note in found if note) == again


@pytest.mark.parametrize("verb", ["sample", "forward_backward"])
async def test_a_state_that_is_gone_is_shown_as_expired(
    http: AsyncClient, model: Json, engine: ToyEngine, verb: str
) -> None:
    kept, lost = await step(http, model), await step(http, model)
    inputs = await payloads(http, model["id"], [1.0, 0.0])
    engine.fail_next[verb] = StateGone("the server no longer has this checkpoint")
    answer = await (
        ask(http, model["id"]) if verb == "sample" else pass_(http, model["id"], inputs)
    )
    assert (answer.status_code, "no longer has" in detail(answer)) == (410, True)
    assert [row["state"] for row in await tree(http, model["id"])] == ["full", "expired"]
    refused = await set_head(http, model["id"], lost["checkpoint_id"])
    assert (refused.status_code, "by the server that stored them" in detail(refused)) == (410, True)
    assert (await set_head(http, model["id"], kept["checkpoint_id"])).status_code == 200
    third = await step(http, model)
    rows = await tree(http, model["id"])
    assert rows[2]["prev_model_checkpoint_id"] == kept["checkpoint_id"]
    assert third["step"] == 3


async def test_sampling_is_repeated_a_few_times_only(
    http: AsyncClient, model: Json, engine: ToyEngine
) -> None:
    """An older checkpoint, on a server that has just been started again; and one that is broken."""
    older = await step(http, model)
    await step(http, model)
    sample, asked = engine.sample, 0
    losses = gateway.REPEATS

    async def losing(handle: str, requests: Sequence[SampleRequest]) -> list[Sampled]:
        nonlocal asked
        asked += 1
        if asked <= losses:
            raise PolicyLost("the server lost the session")
        return await sample(handle, requests)

    engine.sample = losing  # type: ignore[method-assign]
    reply = await chat(http, model["id"], checkpoint=older["checkpoint_id"])
    assert (reply["checkpoint"], asked) == (older["checkpoint_id"], gateway.REPEATS + 1)
    asked, losses = 0, 100
    answer = await ask(http, model["id"])
    assert (answer.status_code, asked) == (503, gateway.REPEATS + 1)


async def test_a_refusal_names_the_engine_that_runs(
    http: AsyncClient, model: Json, engine: ToyEngine
) -> None:
    engine.place = About("tinker", "http://trainer:8000")
    refused = await ask(http, model["id"], frequency_penalty=0.5)
    assert (refused.status_code, "tinker engine" in refused.text) == (400, True)
    engine.bases = lambda: []  # type: ignore[method-assign]
    refused = await ask(http, model["id"])
    assert (refused.status_code, "tinker engine does not offer" in refused.text) == (409, True)
