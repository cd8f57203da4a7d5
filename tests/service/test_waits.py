"""A server that holds runs up is told of, in the status, in the events and headless."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from httpx import AsyncClient

from hud_tui.service import works
from hud_tui.service.engines.base import About, EngineLost, Sampled, SampleRequest
from hud_tui.service.service import Service
from hud_tui.service.store import jobs
from tests.conftest import ended, fork, submit, until
from tests.service.calls import Held, Json, status_of, told
from tests.toy_engine import ToyEngine

PAUSED = "paused: the server is short of capacity"


@pytest.fixture
def paused(engine: ToyEngine, monkeypatch: pytest.MonkeyPatch) -> ToyEngine:
    monkeypatch.setattr(works, "POLL_S", 0.01)
    engine.place = About("tinker", "http://trainer:8000", PAUSED, slots=2)
    return engine


async def test_a_run_that_is_held_up_says_so_until_it_goes_on(
    http: AsyncClient, service: Service, paused: ToyEngine
) -> None:
    sampling = Held(paused, "sample")
    model = await fork(http)
    job = await submit(http, model["id"], steps=1)

    async def said() -> list[bool]:
        """Of each event of the run, whether it says so."""
        return [PAUSED in str(event) for event in await told(service, model["id"], "work")]

    async def begins() -> bool:
        return True in await said()

    await until(begins)
    assert (await status_of(http, job))["waits"] == PAUSED
    paused.place = replace(paused.place, queue="active")

    async def goes_on() -> bool:
        found = await said()
        return False in found[found.index(True) :]

    await until(goes_on)
    now = await status_of(http, job)
    assert (now["status"], now["waits"]) == ("running", None)
    paused.place = replace(paused.place, queue=PAUSED)
    sampling.go_on.set()
    now = await ended(http, job)
    assert (now["status"], now["waits"]) == ("succeeded", None)
    assert not (await said())[-1], "one that has ended waits for nothing"


async def test_the_catalog_says_where_a_model_lives(
    http: AsyncClient, paused: ToyEngine, model: Json
) -> None:
    assert model["engine"] == {
        "engine": "tinker", "server": "http://trainer:8000", "queue": PAUSED, "slots": 2,
        "ttl_s": None, "saves_per_step": 0, "place": "", "prices": None,
    }  # fmt: skip
    shown = (await http.get("/v2/models")).json()["items"]
    assert all(row["engine"]["queue"] == PAUSED for row in shown)


async def test_what_else_is_said_of_a_run_leaves_what_it_waits_for(
    http: AsyncClient, service: Service, paused: ToyEngine, model: Json
) -> None:
    """The server is away: the policy is lost, a note says so, and the run still waits."""
    sample, go_on = paused.sample, asyncio.Event()
    lost = [EngineLost("http://trainer:8000 stopped answering in the middle of a call")]

    async def said() -> Json:
        return dict((await told(service, model["id"], "work"))[-1]["work"])

    async def waits() -> bool:
        return bool((await said())["waits"] == PAUSED)

    async def says_so() -> bool:
        return "sampled again" in ((await said())["note"] or "")

    async def goes_on() -> bool:
        return (await said())["waits"] is None

    async def gated(handle: str, requests: Sequence[SampleRequest]) -> list[Sampled]:
        if lost:
            await until(waits)
            raise lost.pop()
        await go_on.wait()
        return await sample(handle, requests)

    paused.sample = gated  # type: ignore[method-assign]
    job = await submit(http, model["id"], steps=1)
    await until(says_so)
    assert await waits()
    paused.place = replace(paused.place, queue="active")
    await until(goes_on)
    go_on.set()
    assert (await ended(http, job))["waits"] is None
    row = await service.parts.store.read(jobs.training, job)
    assert row["waits"] is None
