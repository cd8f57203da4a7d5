"""Setting the head on condition that it is still the one that was seen."""

import pytest
from httpx import AsyncClient, Response

from hud_tui.client import HudClient, TrainingClient
from hud_tui.errors import HudConflict
from tests.conftest import fork
from tests.service.calls import Json, detail, set_head, steps, tree


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
