"""What a run will take on disk is measured, and said before it is submitted."""

import pytest
from httpx import AsyncClient

from hud_tui.service.data_dir import DEFAULT_BYTES
from hud_tui.service.engines.base import About
from hud_tui.service.policies import size_of
from hud_tui.service.service import Service
from tests.conftest import Served, fork, tasks_of
from tests.service.calls import Json, detail, ran, saved_steps
from tests.service.clients import over_socket, trained
from tests.service.test_headless_terminal import at_a_terminal
from tests.toy_engine import ToyEngine


async def test_the_catalog_tells_the_size_of_the_newest_checkpoint(
    http: AsyncClient, model: Json, service: Service
) -> None:
    assert model["disk"] is None
    before = (await http.get(f"/v2/models/{model['id']}")).json()
    assert before["disk"] is None, "nothing was measured, and this engine does not say"
    await ran(http, model["id"], steps=2)
    [row] = [m for m in (await http.get("/v2/models")).json()["items"] if m["id"] == model["id"]]
    again = (await fork(http, "another"))["disk"] | {"free_bytes": row["disk"]["free_bytes"]}
    assert again == row["disk"], "a run may begin at once"
    sizes = [size_of(path) for path in saved_steps(service.data_dir)]
    assert row["disk"]["checkpoint_bytes"] in sizes
    assert (row["disk"]["used_bytes"], row["disk"]["max_bytes"]) == (sum(sizes), DEFAULT_BYTES)


async def test_a_pointer_to_a_server_is_not_the_size_of_a_checkpoint(
    http: AsyncClient, engine: ToyEngine
) -> None:
    engine.place = About("tinker", "http://trainer:8000", saves_per_step=2)
    model = await fork(http)
    await ran(http, model["id"], steps=2)
    shown = (await http.get(f"/v2/models/{model['id']}")).json()
    assert (shown["disk"], shown["engine"]["saves_per_step"]) == (None, 2)


async def test_the_question_names_it(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async with over_socket(served) as client:
        model = await trained(client, steps=3, group_size=2)
        disk = (await client.model(model.id)).disk
    assert disk is not None
    assert disk.free_bytes is not None
    size = disk.checkpoint_bytes
    monkeypatch.setattr("hud_tui.service.data_dir.free_bytes", lambda data_dir: 3 * size)
    async with at_a_terminal(served, "run", "arith", "--steps", "7") as terminal:
        asked = await terminal.prompt()
        assert "7 checkpoints of" in asked
        assert "the disk has room for at most 3 of 7 checkpoints" in asked
        assert "beyond 10 GB in total" in asked
        terminal.type("n\n")
        assert await terminal.process.wait() == 2


async def test_a_run_that_has_no_room_at_all_is_refused(
    http: AsyncClient, model: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ran(http, model["id"], steps=1)
    monkeypatch.setattr("hud_tui.service.data_dir.free_bytes", lambda data_dir: 10)
    body = {"model_id": model["id"], "dataset": {"tasks": await tasks_of(http)}}
    answer = await http.post("/v1/training/jobs", json={**body, "config": {"parameters": {}}})
    assert answer.status_code == 507
    assert "10 are free" in detail(answer)
    assert (await http.get(f"/v1/training/jobs/{model['id']}/raw-status")).json()["step"] == 1
