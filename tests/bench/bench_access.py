"""One key's flood beside another's run.

- A run on the tiny engine in a service of its own, alone and in turns beside a client with a key of
  its own that keeps CONNECTIONS connections busy: with reads of the tree, or with chats. The run's
  steps may take so many times as long (`FLOODS`). The same flood with the admin's key, which has no
  bounds, is shown beside it. Each flood has a fresh run, since answers grow shorter as it learns.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.bench.bench_service import Witness, connected, turn
from tests.bench.by_hand import request_of
from tests.bench.timing import in_turns
from tests.conftest import bearer, fork, serve_process, submit

CONNECTIONS, ROUNDS = 128, 4


class Chat(NamedTuple):
    answers: int = 1
    """Completions of each request."""
    own: bool = False
    """Whether the model in training is asked, not its base."""


FLOODS: dict[str, tuple[Chat | None, float]] = {
    "reads": (None, 1.15),
    "chats": (Chat(), 1.5),
    "chats of 16 answers": (Chat(16), 4.0),
    "chats with the model in training": (Chat(own=True), 2.0),
}
"""Each with the most times as long that a step may take beside it."""


def request_to(http: httpx.AsyncClient, key: str, model: str, chat: Chat | None) -> str:
    """A read of the model's tree, or a chat."""
    to = (http.base_url.netloc.decode(), f"Bearer {key}")
    if chat is None:
        return request_of(f"GET /v2/models/{model}/checkpoints", *to)
    body = {
        "model": model if chat.own else "tiny/mixed-0.2M",
        "messages": [{"role": "user", "content": "3 + 4 = ?"}],
        "temperature": 5.0,
        "max_tokens": 100,
        "n": chat.answers,
    }
    return request_of("POST /v1/chat/completions", *to, body)


async def beside(http: httpx.AsyncClient, arrivals: AsyncIterator[float], request: str) -> float:
    """A step's seconds beside a flood, in those alone: the median of turns."""
    alone, flooded = [await turn(arrivals)], list[float]()
    where = (http.base_url.host, str(http.base_url.port))
    for _ in range(ROUNDS):
        flood = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench.by_hand", *where, str(CONNECTIONS), request)
        )
        await asyncio.sleep(0.5)
        await anext(arrivals)
        flooded.append(await turn(arrivals))
        with suppress(ProcessLookupError):
            flood.kill()
        await flood.wait()
        await anext(arrivals)
        alone.append(await turn(arrivals))
    return in_turns(flooded, alone)


async def measure() -> bool:
    """Prints each flood's figures; returns whether a goal is missed."""
    is_missed = False
    with tempfile.TemporaryDirectory() as folder:
        async with serve_process(Path(folder)) as process, connected(process) as http:
            made = await http.post("/v1/keys", json={"name": "flood", "role": "read"})
            keys = {"flood": made.json()["key"], "admin": process.ready.api_key}
            other = await http.post("/v1/keys", json={"name": "tim", "role": "train"})
            http.headers.update(bearer(other.json()["key"]))
            for what, (chat, goal) in FLOODS.items():
                model = await fork(http, what)
                job = await submit(http, model["id"], steps=100_000, seed=1)
                arrivals = Witness(http, model["id"]).steps()
                bounded, free = [
                    await beside(http, arrivals, request_to(http, key, model["id"], chat))
                    for key in keys.values()
                ]
                print(
                    f"a run's step beside {CONNECTIONS} connections busy with {what}:"
                    f" {bounded:.2f} times as long as alone, goal {goal:.2f}; with the admin's key,"
                    f" without bounds, {free:.2f}",
                    flush=True,
                )
                is_missed |= bounded > goal
                await arrivals.aclose()
                await http.post("/v2/rollouts/cancel_job", json={"job_id": job})
    return is_missed


def main() -> int:
    return asyncio.run(measure())
