"""One policy is lost, as when a server forgets a run: the others keep what they have."""

import httpx
import pytest

from tests.conftest import fork
from tests.service.calls import chat, detail, optim, pass_, payloads, step, tree
from tests.toy_engine import ToyEngine


@pytest.mark.parametrize("verb", ["forward_backward", "optim_step"])
async def test_a_lost_policy_takes_only_its_own_gradients(
    http: httpx.AsyncClient, engine: ToyEngine, verb: str
) -> None:
    mine, other = await fork(http, "mine"), await fork(http, "other")
    first = await step(http, mine)
    inputs = await payloads(http, mine["id"], [1.0, 0.0])
    for model in (mine, other):
        assert (await pass_(http, model["id"], inputs)).status_code == 200
    held = set(engine.policies)
    engine.lose_next = verb
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
    http: httpx.AsyncClient, engine: ToyEngine
) -> None:
    model = await fork(http)
    await step(http, model)
    held = set(engine.policies)
    engine.lose_next = "sample"
    body = {"model": model["id"], "messages": [{"role": "user", "content": "3 + 4 = ?"}]}
    assert (await http.post("/chat/completions", json=body)).status_code == 503
    assert len(held - set(engine.policies)) == 1
    await chat(http, model["id"])
    await step(http, model)
    assert [row["step"] for row in await tree(http, model["id"])] == [1, 2]
