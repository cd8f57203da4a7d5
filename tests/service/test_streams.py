"""Completions that are read while they are sampled, over a real socket."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from httpx import AsyncClient

from hud_tui.service.engines.base import PROGRESS, EngineLost, Sampled, SampleRequest
from hud_tui.service.engines.tiny.engine import TinyEngine
from hud_tui.service.routes import gateway
from hud_tui.service.service import Service
from tests.conftest import Served, caller, calling, ended, fork, submit, until
from tests.service.calls import QUESTION, Json, chat, conversation
from tests.toy_engine import ToyEngine

SAID = [ord(letter) for letter in "so it is"]
BODY = {
    "model": "toy/four",
    "messages": [{"role": "user", "content": QUESTION}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "return_token_ids": True,
}


class Slowly:
    """An engine's sampling that tells tokens when it is let, and may fail."""

    def __init__(self, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on, self.ended, self.calls = asyncio.Event(), asyncio.Event(), 0
        self.fails: Exception | None = None
        self.then = SAID
        """What is returned."""
        monkeypatch.setattr(engine, "sample", self)

    async def __call__(self, handle: str, requests: Sequence[SampleRequest]) -> list[Sampled]:
        progress = PROGRESS.get()
        self.calls += 1
        try:
            if progress is not None:
                progress(0, 0, Sampled(SAID[:3], [-0.1] * 3, "length"))
            await self.go_on.wait()
            if self.fails is not None:
                failure, self.fails = self.fails, None
                raise failure
            return [Sampled(list(self.then), [-0.1] * len(self.then), "stop")]
        finally:
            self.ended.set()


@pytest.fixture
def slowly(engine: ToyEngine, monkeypatch: pytest.MonkeyPatch) -> Slowly:
    return Slowly(engine, monkeypatch)


@asynccontextmanager
async def reading(http: AsyncClient, **body: Any) -> AsyncIterator[AsyncIterator[Any]]:
    """The events of a stream as they arrive; None for the last one."""
    headers = body.pop("headers", None)
    async with http.stream(
        "POST", "/v1/chat/completions", json={**BODY, **body}, headers=headers, timeout=None
    ) as answer:
        assert answer.status_code == 200

        async def events() -> AsyncIterator[Any]:
            async for line in answer.aiter_lines():
                if line:
                    said = line.removeprefix("data: ")
                    yield None if said == "[DONE]" else json.loads(said)

        yield events()


def content(chunks: Sequence[Any]) -> str:
    deltas = [choice["delta"] for chunk in chunks if chunk for choice in chunk["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


async def test_tokens_are_read_before_the_answer_is_whole(served: Served, slowly: Slowly) -> None:
    trace = uuid4().hex
    async with caller(served) as http:
        async with reading(http, headers={"Trace-Id": trace}) as events:
            first = [await anext(events) for _ in range(4)]
            assert content(first) == "so "
            assert not slowly.ended.is_set()
            slowly.go_on.set()
            rest = [event async for event in events]
        *_, usage, last = rest
        assert content([*first, *rest[:-2]]) == "so it is"
        assert (last, usage["choices"]) == (None, [])
        assert usage["usage"]["completion_tokens"] == len(SAID)
        kept = (await conversation(http, trace))[1]["sample"]
        assert kept["output_token_ids"] == SAID
        assert kept["output_logprobs"] == [-0.1] * len(SAID)


async def test_who_leaves_a_stream_ends_the_sampling_and_no_turn_is_kept(
    served: Served, slowly: Slowly
) -> None:
    trace = uuid4().hex
    async with caller(served) as http:
        async with reading(http, headers={"Trace-Id": trace}) as events:
            await anext(events)
        await until(slowly.ended.is_set)
        assert not slowly.go_on.is_set()
        policies = served.service.parts.policies._sampling.values()
        await until(lambda: [policy.users for policy in policies] == [0])
        assert (await http.get(f"/v2/trace/{trace}/events")).status_code == 404


@pytest.mark.parametrize("is_same", [True, False])
async def test_a_lost_engine_samples_the_same_tokens_again_or_the_stream_fails(
    served: Served, slowly: Slowly, is_same: bool
) -> None:
    trace, slowly.fails = uuid4().hex, EngineLost("killed")
    if not is_same:
        slowly.then = SAID[::-1]
    async with caller(served) as http:
        async with reading(http, headers={"Trace-Id": trace}) as events:
            first = [await anext(events) for _ in range(4)]
            slowly.go_on.set()
            rest = [event async for event in events]
        assert slowly.calls == 2
        if is_same:
            assert content([*first, *rest[:-1]]) == "so it is"
            assert (await conversation(http, trace))[1]["sample"]["output_token_ids"] == SAID
            return
        [failure] = rest
        assert failure["error"]["code"] == "engine_lost"
        assert "other numbers" in failure["error"]["message"]
        assert (await http.get(f"/v2/trace/{trace}/events")).status_code == 404


async def test_who_does_not_read_is_cut_off_and_delays_nobody(
    served: Served, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "UNREAD_S", 0.1)
    ended, most = asyncio.Event(), 20_000

    async def sample(handle: str, requests: Sequence[SampleRequest]) -> list[Sampled]:
        progress, some = PROGRESS.get(), Sampled([97] * 500, [-0.1] * 500, "length")
        assert progress is not None
        try:
            for start in range(0, most, 500):
                progress(0, start, some)
                await asyncio.sleep(0)
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    place = urlsplit(served.url)
    body = json.dumps(BODY).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: {len(body)}"
        f"\r\nAuthorization: Bearer {served.api_key}\r\n\r\n"
    )
    with socket.socket() as line, monkeypatch.context() as patch:
        patch.setattr(engine, "sample", sample)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.setblocking(False)
        await asyncio.get_running_loop().sock_connect(line, (place.hostname, place.port))
        await asyncio.get_running_loop().sock_sendall(line, head.encode() + body)
        await until(ended.is_set)
    async with caller(served) as http:
        assert (await chat(http, "toy/four"))["choices"]


async def test_many_streams_beside_a_run_have_the_tokens_of_the_replies(tmp_path: Path) -> None:
    async with Service(tmp_path / "data", TinyEngine(2)) as service, calling(service) as http:
        model = await fork(http)
        asked = [
            {"model": "tiny/mixed-0.2M", "seed": seed, "temperature": 1.5, "max_tokens": 40}
            for seed in range(8)
        ]
        job = await submit(http, model["id"], steps=2, tasks_per_step=2, group_size=4)
        posts = [http.post("/v1/chat/completions", json=BODY | one) for one in asked]
        answers = await asyncio.gather(*posts)
        assert (await ended(http, job))["status"] == "succeeded"
        for one, answer in zip(asked, answers, strict=True):
            lines = [line for line in answer.text.split("\n\n") if line][:-1]
            chunks: list[Json] = [json.loads(line.removeprefix("data: ")) for line in lines]
            [whole] = (await chat(http, return_token_ids=True, **one))["choices"]
            parts = [choice for chunk in chunks for choice in chunk["choices"]]
            assert [i for part in parts for i in part.get("token_ids", [])] == whole["token_ids"]
            assert content(chunks) == whole["message"]["content"]
