"""What happens when several things are done to one model at once: each has one outcome."""

import asyncio

import pytest
from httpx import AsyncClient, Response

from hud_tui.client import HudClient, TrainingClient
from hud_tui.errors import HudConflict
from hud_tui.service.service import Service
from tests.conftest import ended, fork, submit, until
from tests.service.calls import (
    Held,
    Json,
    cancel,
    detail,
    fork_from,
    optim,
    pass_,
    payloads,
    ran,
    set_head,
    step,
    steps,
    tree,
)
from tests.toy_engine import ToyEngine


@pytest.fixture
def held(engine: ToyEngine) -> Held:
    """Optimizer steps begin, and end when they are let go."""
    return Held(engine, "optim_step")


async def test_two_trainers_fill_one_gradient_and_the_first_step_takes_it(
    http: AsyncClient, model: Json
) -> None:
    inputs = await payloads(http, model["id"], [1.0, 0.0])
    await asyncio.gather(*(pass_(http, model["id"], inputs) for _ in range(2)))
    answers = await asyncio.gather(*(optim(http, model["id"]) for _ in range(2)))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    refused = next(answer for answer in answers if answer.status_code == 409)
    assert "nothing is accumulated" in detail(refused)
    [node] = await tree(http, model["id"])
    assert (node["num_datums"], node["num_traces"]) == (4, 4)


async def test_set_head_between_pass_and_step_drops_the_gradients(
    http: AsyncClient, model: Json
) -> None:
    first, _ = [(await step(http, model))["checkpoint_id"] for _ in range(2)]
    await pass_(http, model["id"], await payloads(http, model["id"], [1.0, 0.0]))
    await set_head(http, model["id"], first)
    refused = await optim(http, model["id"])
    assert (refused.status_code, "nothing is accumulated" in detail(refused)) == (409, True)
    taken = await step(http, model)
    rows = {row["id"]: row for row in await tree(http, model["id"])}
    assert rows[taken["checkpoint_id"]]["prev_model_checkpoint_id"] == first
    assert rows[taken["checkpoint_id"]]["num_datums"] == 2


async def test_set_head_during_a_step_waits_and_then_holds(
    http: AsyncClient, model: Json, held: Held
) -> None:
    held.go_on.set()
    first = (await step(http, model))["checkpoint_id"]
    held.go_on.clear()
    held.begun.clear()
    await pass_(http, model["id"], await payloads(http, model["id"], [1.0, 0.0]))
    stepping = asyncio.create_task(optim(http, model["id"]))
    await held.begun.wait()
    setting = asyncio.create_task(set_head(http, model["id"], first))
    held.go_on.set()
    assert [(await stepping).status_code, (await setting).status_code] == [200, 200]
    rows = await tree(http, model["id"])
    assert [row["is_active"] for row in rows] == [True, False], "the step is there, not served"


async def test_a_fork_during_a_run_starts_at_its_last_whole_step(
    http: AsyncClient, model: Json, held: Held
) -> None:
    held.go_on.set()
    await step(http, model)
    held.go_on.clear()
    held.begun.clear()
    job_id = await submit(http, model["id"], steps=2, seed=1)
    await held.begun.wait()  # in its first step
    child = (await fork_from(http, model["id"], "child")).json()
    held.go_on.set()
    assert (await ended(http, job_id))["status"] == "succeeded"
    assert child["forked_from"] == f"{model['model_name']}@step-000001"
    assert (len(await tree(http, child["id"])), len(await tree(http, model["id"]))) == (0, 3)
    await step(http, child)
    assert len(await tree(http, model["id"])) == 3, "neither sees the other's steps"


async def test_cancel_during_a_step_lets_it_land_whole(
    http: AsyncClient, model: Json, service: Service, held: Held
) -> None:
    job_id = await submit(http, model["id"], steps=5, seed=1)
    await held.begun.wait()
    cancelling = asyncio.create_task(cancel(http, job_id))
    run, _ = service.works._tasks[job_id]
    await until(run.stop.requested.is_set)
    held.go_on.set()
    assert (await cancelling).json() == {"cancelled": 1, "status": "cancelled"}
    status = await ended(http, job_id)
    rows = await tree(http, model["id"])
    assert (status["status"], status["step"], len(rows)) == ("cancelled", 1, 1)
    assert rows[0]["is_active"]


async def test_a_run_that_begins_drops_the_gradients_that_wait(
    http: AsyncClient, model: Json
) -> None:
    await pass_(http, model["id"], await payloads(http, model["id"], [1.0, 0.0]))
    await ran(http, model["id"], steps=1, tasks_per_step=1, group_size=4, seed=1)
    refused = await optim(http, model["id"])
    assert (refused.status_code, "nothing is accumulated" in detail(refused)) == (409, True)
    [node] = await tree(http, model["id"])
    assert node["num_traces"] == 4


async def put(http: AsyncClient, model: Json, target: str, match: str) -> Response:
    return await http.put(
        f"/v2/models/{model['id']}/head",
        json={"checkpoint_id": target},
        headers={"If-Match": match},
    )


async def head(http: AsyncClient, model: Json) -> str:
    [active] = [row["id"] for row in await tree(http, model["id"]) if row["is_active"]]
    return str(active)


async def test_the_head_that_was_seen_may_be_replaced(http: AsyncClient, model: Json) -> None:
    first, second, third = await steps(http, model, 3)
    for match in (f'"{third}"', f'"{second}"', '"none"', "*", f'"zzz", "{first}"'):
        assert (await put(http, model, third, match)).status_code == 200, match
    assert (await put(http, model, first, third)).status_code == 200
    assert await head(http, model) == first
    other = await fork(http, "other")  # without steps it serves none
    assert (await put(http, other, first, '"none"')).status_code == 404
    assert (await put(http, model, first, f'"{other["id"]}"')).status_code == 409


async def test_steps_from_there_are_no_move_but_a_set_head_is(
    http: AsyncClient, model: Json
) -> None:
    first, second = await steps(http, model, 2)
    await set_head(http, model["id"], first)
    for stale in (second, "none", "zzz"):
        refused = await put(http, model, second, f'"{stale}"')
        assert refused.status_code == 409
        assert f"step-000001 ({first}) now, not {stale}" in detail(refused)
    assert await head(http, model) == first
    branch, tip = await steps(http, model, 2)
    assert (await put(http, model, second, f'"{second}"')).status_code == 409
    assert (await put(http, model, second, f'"{branch}"')).status_code == 200
    refused = await put(http, model, first, f'"{tip}"')
    assert refused.status_code == 409, "somebody chose another branch meanwhile"


async def test_a_descendant_that_was_set_is_a_move_and_remembered_when_training_goes_on(
    http: AsyncClient, model: Json
) -> None:
    """Who saw the head before it was set is refused, also once steps have been taken from there."""
    first, second = await steps(http, model, 2)
    await set_head(http, model["id"], first)
    await set_head(http, model["id"], second)
    assert (await put(http, model, first, f'"{first}"')).status_code == 409
    [third] = await steps(http, model, 1)
    refused = await put(http, model, first, f'"{first}"')
    assert (refused.status_code, f"not {first}" in detail(refused)) == (409, True)
    assert (await put(http, model, first, '"none"')).status_code == 409
    assert await head(http, model) == third
    assert (await put(http, model, first, f'"{second}"')).status_code == 200


async def test_the_client_says_what_it_saw(
    http: AsyncClient, model: Json, client: HudClient
) -> None:
    first, second = await steps(http, model, 2)
    await client.set_head(model["id"], first, second)
    with pytest.raises(HudConflict, match="step-000001"):
        await client.set_head(model["id"], second, None)
    await client.set_head(model["id"], second)
    assert await head(http, model) == second


async def test_a_loop_does_not_undo_what_somebody_else_chose(
    http: AsyncClient, model: Json, client: HudClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look at the tree and its write, the head is set elsewhere."""
    first, second, third = await steps(http, model, 3)
    trainer = TrainingClient(model["id"], client)
    read = trainer.client.checkpoints

    async def slow(model_id: str) -> object:
        seen = await read(model_id)
        await set_head(http, model_id, first)
        return seen

    monkeypatch.setattr(trainer.client, "checkpoints", slow)
    with pytest.raises(HudConflict, match=f"not {third}"):
        await trainer.set_head(second)
    assert await head(http, model) == first
