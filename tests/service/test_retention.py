"""The disk limit: the oldest states lose Adam's moments, then their weights; some never do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient, Response

from hud_tui.errors import HudNotFound, HudUsage
from hud_tui.service.engines.base import DiskFull, EngineError, EngineLost
from hud_tui.service.service import Service
from hud_tui.service.store import checkpoints
from hud_tui.settings import read_max_disk
from tests.conftest import calling, fork
from tests.service.calls import (
    Json,
    ask,
    chat,
    detail,
    fork_from,
    saved_steps,
    set_head,
    step,
    steps,
    told,
    trained_in,
    tree,
)
from tests.service.clients import in_process
from tests.service.test_training import rollout
from tests.toy_engine import ToyEngine


@pytest.fixture
async def service(tmp_path: Path, engine: ToyEngine) -> AsyncIterator[Service]:
    """One that may keep nothing but what it must."""
    async with Service(tmp_path / "data", engine, max_disk=0) as service:
        yield service


async def states(http: AsyncClient, service: Service, model: Json) -> list[str]:
    """What is kept of each checkpoint, once all is thinned that may be."""
    service.parts.retention.wake()
    await service.parts.retention.settled()
    return [row["state"] for row in await tree(http, model["id"])]


async def close_all(service: Service) -> None:
    """Let go of every policy, so that none is kept for being open."""
    for source in service.parts.policies.sources():
        policy = service.parts.policies._sampling.pop(source, None)
        if policy is not None:
            await service.parts.policies.retire(policy)


async def pin(http: AsyncClient, model: Json, id_: str, method: str) -> Response:
    return await http.request(method, f"/v2/models/{model['id']}/checkpoints/{id_}/pin")


def directories(service: Service) -> set[str]:
    return {path.name for path in saved_steps(service.data_dir)}


async def test_moments_go_before_any_weights(tmp_path: Path) -> None:
    """The limit is such that dropping the moments of some is enough."""
    model, _ = await trained_in(tmp_path, 4)
    size = sum(path.stat().st_size for path in (tmp_path / "checkpoints").rglob("*.json"))
    async with Service(tmp_path, ToyEngine(), size) as service, calling(service) as http:
        assert await states(http, service, model) == ["full"] * 4, "within the limit"
    async with Service(tmp_path, ToyEngine(), size - 1) as service, calling(service) as http:
        assert await states(http, service, model) == ["weights", "full", "full", "full"]
        [first, *_] = await tree(http, model["id"])
        assert first["checkpoint_name"], "its name for samplers stays"
        pinned = await chat(http, model["id"], checkpoint=first["checkpoint_name"], seed=1)
        assert pinned["checkpoint"] == first["id"]
        served = await set_head(http, model["id"], first["id"])
        assert "fresh Adam moments" in served.json()["note"]
        branch = (await step(http, model))["checkpoint_id"]
        rows = {row["id"]: row for row in await tree(http, model["id"])}
        assert rows[branch]["prev_model_checkpoint_id"] == first["id"]


async def test_moments_of_two_go_before_the_weights_of_one(tmp_path: Path) -> None:
    """Two states must be thinned by one stage, or one by both."""
    model, _ = await trained_in(tmp_path, 4)
    sizes = [path.stat().st_size for path in (tmp_path / "checkpoints").rglob("*.json")]
    limit = sum(sizes) - int(0.9 * min(sizes))
    async with Service(tmp_path, ToyEngine(), limit) as service, calling(service) as http:
        assert await states(http, service, model) == ["weights", "weights", "full", "full"]


async def test_what_is_thinned_while_it_is_opened_is_sampled_from_its_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ToyEngine()
    async with Service(tmp_path, engine) as service, calling(service) as http:
        model = await fork(http)
        [first, _] = await steps(http, model, 2)
        node = await service.parts.store.read(checkpoints.find, model["id"], first)
        moved, opened = "checkpoints/thinned", engine.open

        def thin(db: Any) -> None:
            query = "UPDATE checkpoint SET state_path = ?, sha256 = NULL WHERE id = ?"
            db.execute(query, (moved, first))

        async def thinned_meanwhile(target: str | Path) -> Any:
            if str(target).endswith(node.state_path):
                (tmp_path / node.state_path).rename(tmp_path / moved)
                await service.parts.store.write(thin)
                raise EngineError("no such state")
            return await opened(target)

        monkeypatch.setattr(engine, "open", thinned_meanwhile)
        await chat(http, model["id"], checkpoint=first)


async def test_what_is_pinned_while_it_is_thinned_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was chosen, its weights were written apart, and only then it was pinned."""
    model, [first, _] = await trained_in(tmp_path, 2)
    engine = ToyEngine()
    async with Service(tmp_path, engine, 0) as service, calling(service) as http:
        slim = engine.slim

        async def pinned_meanwhile(state: Path, directory: Path) -> str:
            path = await slim(state, directory)
            assert (await pin(http, model, first, "PUT")).status_code == 200
            return path

        monkeypatch.setattr(engine, "slim", pinned_meanwhile)
        assert await states(http, service, model) == ["full", "full"]
        assert len(directories(service)) == 2
        await chat(http, model["id"], checkpoint=first)


async def test_what_is_pinned_while_its_weights_go_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, [first, _] = await trained_in(tmp_path, 2)
    async with Service(tmp_path, ToyEngine(), 0) as service, calling(service) as http:
        write = service.parts.store.write

        async def pinned_meanwhile(change: Any, *args: Any) -> Any:
            if change is checkpoints.expired:
                await write(checkpoints.pin, model["id"], first, True)
            return await write(change, *args)

        monkeypatch.setattr(service.parts.store, "write", pinned_meanwhile)
        assert await states(http, service, model) == ["weights", "full"]
        await chat(http, model["id"], checkpoint=first)


async def test_head_best_branch_point_origin_and_pinned_stay(tmp_path: Path) -> None:
    async with Service(tmp_path, ToyEngine()) as service, calling(service) as http:
        model = await fork(http)
        base, best, pinned = await steps(http, model, 3)
        assert (await pin(http, model, pinned, "PUT")).json()["pinned"] is True
        await set_head(http, model["id"], base)
        origin, left, tip = await steps(http, model, 3)
        await set_head(http, model["id"], origin)
        await fork_from(http, model["id"], "child")
        await set_head(http, model["id"], tip)
        raise_reward = "UPDATE checkpoint SET reward = 9 WHERE id = ?"
        # Rollouts of the best made the step after it.
        await service.parts.store.write(lambda db: db.execute(raise_reward, (pinned,)))
    async with Service(tmp_path, ToyEngine(), 0) as service, calling(service) as http:
        kept = await states(http, service, model)
        rows = dict(zip([row["id"] for row in await tree(http, model["id"])], kept, strict=True))
        expired = [id_ for id_, state in rows.items() if state == "expired"]
        assert (expired, rows[tip], rows[best]) == ([left], "full", "full")
        assert (await pin(http, model, pinned, "DELETE")).json()["pinned"] is False
        assert (await states(http, service, model))[2] == "expired"


async def test_the_oldest_go_first_but_what_is_open_stays_until_it_is_closed(
    http: AsyncClient, model: Json, service: Service
) -> None:
    [first] = await steps(http, model, 1)
    await chat(http, model["id"], checkpoint=first)
    await steps(http, model, 3)
    assert (await states(http, service, model))[0] == "full"
    await close_all(service)
    # All rewards are equal here, so none is the best.
    assert await states(http, service, model) == ["expired", "expired", "expired", "full"]
    assert len(directories(service)) == 1


async def test_an_expired_one_is_gone(http: AsyncClient, model: Json, service: Service) -> None:
    first, _ = await steps(http, model, 2)
    await close_all(service)
    assert (await states(http, service, model))[0] == "expired"
    answers = [
        await set_head(http, model["id"], first),
        await pin(http, model, first, "PUT"),
        await ask(http, model["id"], checkpoint=first),
    ]
    for answer in answers:
        assert answer.status_code == 410
        assert "step-000001 has expired" in detail(answer)
    assert (await pin(http, model, str(uuid4()), "PUT")).status_code == 404


async def test_rollouts_of_an_expired_step_are_kept_for_good(
    http: AsyncClient, model: Json, service: Service
) -> None:
    """What was asked and said, token by token, and its reward: it can be trained on again."""
    ids = [await rollout(http, model, reward, seed) for seed, reward in enumerate([1.0, 0.0])]
    path = f"/v1/models/{model['id']}/train"
    await http.post(f"{path}/forward-backward", json={"inputs": ids})
    await http.post(f"{path}/optim-step", json={"learning_rate": 0.1})

    async def all_of_them() -> list[Any]:
        found = []
        for id_ in ids:
            trace = (await http.get(f"/v2/trace/{id_}")).json()
            events = (await http.get(f"/v2/trace/{id_}/events")).json()["events"]
            found.append((trace["reward"], trace["completion"], events))
        return found

    before = await all_of_them()
    assert [event["kind"] for event in before[0][2]] == ["user_message", "agent_message"]
    await steps(http, model, 2)
    await close_all(service)
    assert (await states(http, service, model))[0] == "expired"
    assert await all_of_them() == before
    again = await http.post(f"{path}/forward-backward", json={"inputs": ids})
    assert again.status_code == 200, again.text


async def test_the_client_pins(tmp_path: Path) -> None:
    async with Service(tmp_path, ToyEngine()) as service, in_process(service) as client:
        async with calling(service) as http:
            model = await fork(http)
            [first] = await steps(http, model, 1)
        for pinned in (True, False):
            assert (await client.pin(model["id"], first, pinned)).pinned is pinned
            assert [row.pinned for row in await client.checkpoints(model["id"])] == [pinned]
        with pytest.raises(HudNotFound):
            await client.pin(model["id"], "zzz", True)


@pytest.mark.parametrize("when", ["before the row", "after the row"])
async def test_a_crash_while_thinning_leaves_a_whole_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    model, _ = await trained_in(tmp_path, 2)
    with monkeypatch.context() as crash:
        crash.setattr("hud_tui.service.data_dir.shutil.rmtree", lambda *a, **k: None)
        if when == "before the row":
            crash.setattr("hud_tui.service.store.checkpoints.slimmed", _fail)
        async with Service(tmp_path, ToyEngine(), 0) as service:
            await service.parts.retention.settled()
    async with Service(tmp_path, ToyEngine()) as service, calling(service) as http:
        rows = await tree(http, model["id"])
        kept = [row for row in rows if row["state"] != "expired"]
        assert len(directories(service)) == len(kept)
        for row in kept:
            await chat(http, model["id"], checkpoint=row["id"])


def _fail(*args: object) -> bool:
    raise OSError("the power went")


async def test_a_state_that_cannot_be_read_does_not_keep_others_from_thinning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, [first, *_] = await trained_in(tmp_path, 3)
    [state] = (tmp_path / "checkpoints" / first).iterdir()
    state.write_text("{")
    async with Service(tmp_path, ToyEngine(), 0) as service, calling(service) as http:
        assert await states(http, service, model) == ["damaged", "expired", "full"]
    assert "step-000001 cannot be thinned" in caplog.text  # nor is it thrown away


async def test_a_stop_in_the_middle_of_thinning_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service is told to end while a row is written; the write cannot be called back."""
    model, _ = await trained_in(tmp_path, 2)
    async with Service(tmp_path, ToyEngine(), 0) as service, calling(service) as http:
        write = service.parts.store.write

        async def cut_off(change: Any, *args: Any) -> Any:
            done = await write(change, *args)
            if change is checkpoints.slimmed:
                raise asyncio.CancelledError
            return done

        with monkeypatch.context() as patch:
            patch.setattr(service.parts.store, "write", cut_off)
            service.parts.retention.wake()
            with contextlib.suppress(asyncio.CancelledError):
                await service.parts.retention.settled()
    async with Service(tmp_path, ToyEngine()) as service, calling(service) as http:
        rows = await tree(http, model["id"])
        assert [row["state"] for row in rows] == ["weights", "full"]
        for row in rows:
            await chat(http, model["id"], checkpoint=row["id"])


@pytest.mark.parametrize("error", [EngineLost("it stopped"), DiskFull("no room")])
async def test_an_engine_that_stops_or_has_no_room_while_it_thins_is_asked_again(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: EngineError,
) -> None:
    model, _ = await trained_in(tmp_path, 2)
    engine, errors = ToyEngine(), iter((error,))
    slim = engine.slim

    async def fails_once(state: Path, directory: Path) -> str:
        for each in errors:
            raise each
        return await slim(state, directory)

    monkeypatch.setattr(engine, "slim", fails_once)
    async with Service(tmp_path, engine, 0) as service, calling(service) as http:
        await service.parts.retention.settled()
        assert [row["state"] for row in await tree(http, model["id"])] == ["full", "full"]
        assert "could not be thinned" in caplog.text
        assert "Traceback" not in caplog.text
        assert await states(http, service, model) == ["expired", "full"]


async def test_followers_hear_of_it(http: AsyncClient, model: Json, service: Service) -> None:
    first, _ = await steps(http, model, 2)
    await close_all(service)
    await states(http, service, model)
    nodes = [event["checkpoint"] for event in await told(service, model["id"], "checkpoint")]
    states_ = [node["state"] for node in nodes if node["id"] == first]
    assert states_[-2:] == ["weights", "expired"]


def test_sizes() -> None:
    sizes = {"20GB": 2 * 10**10, "1.5 tb": 15 * 10**11, "500m": 5 * 10**8, "0": 0, "12": 12}
    for text, size in sizes.items():
        assert read_max_disk(text, {}) == size
        assert read_max_disk(None, {"HUD_TUI_MAX_DISK": text}) == size
    assert read_max_disk(None, {}) == 10**10
    for text in ("lots", "-1", "1e9", "1 PB", "GB"):
        with pytest.raises(HudUsage, match="--max-disk"):
            read_max_disk(text, {})
    with pytest.raises(HudUsage, match="HUD_TUI_MAX_DISK"):
        read_max_disk(None, {"HUD_TUI_MAX_DISK": "much"})
