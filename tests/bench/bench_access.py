"""One key's flood beside another's run.

Run: python -m tests.bench.bench_access
- A run on the tiny engine in a service of its own, alone and in turns beside a client with a key of
  its own that keeps CONNECTIONS connections busy: with reads of the tree, or with chats. The run's
  steps may take so many times as long (`FLOODS`). The same flood with the admin's key, which has no
  bounds, is shown beside it. Each flood has a fresh run, since answers grow shorter as it learns.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import httpx

from tests.bench.bench_service import Witness, connected, turn
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
FLOOD = """
import asyncio, sys
host, port, request = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode().decode("unicode_escape")

async def one():
    while True:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            while True:
                writer.write(request.encode())
                head = await reader.readuntil(b"\\r\\n\\r\\n")
                length = next((int(line[15:]) for line in head.split(b"\\r\\n")
                    if line.lower().startswith(b"content-length:")), 0)
                await reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

async def main():
    await asyncio.gather(*(one() for _ in range(int(sys.argv[4]))))

asyncio.run(main())
"""


def request_of(http: httpx.AsyncClient, key: str, model: str, chat: Chat | None) -> str:
    """A request as text: a read of the model's tree, or a chat."""
    host = http.base_url.netloc.decode()
    if chat is None:
        return (
            f"GET /v2/models/{model}/checkpoints HTTP/1.1\\r\\nHost: {host}\\r\\n"
            f"Authorization: Bearer {key}\\r\\n\\r\\n"
        )
    body = json.dumps(
        {
            "model": model if chat.own else "tiny/mixed-0.2M",
            "messages": [{"role": "user", "content": "3 + 4 = ?"}],
            "temperature": 5.0,
            "max_tokens": 100,
            "n": chat.answers,
        }
    )
    return (
        f"POST /v1/chat/completions HTTP/1.1\\r\\nHost: {host}\\r\\n"
        f"Authorization: Bearer {key}\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n{body}"
    )


async def beside(http: httpx.AsyncClient, arrivals: AsyncIterator[float], request: str) -> float:
    """A step's seconds beside a flood, in those alone: the median of turns."""
    alone, flooded = [await turn(arrivals)], list[float]()
    url = http.base_url
    for _ in range(ROUNDS):
        flood = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", FLOOD, url.host, str(url.port), request, str(CONNECTIONS))
        )
        await asyncio.sleep(0.5)
        await anext(arrivals)
        flooded.append(await turn(arrivals))
        with suppress(ProcessLookupError):
            flood.kill()
        await flood.wait()
        await anext(arrivals)
        alone.append(await turn(arrivals))
    around = [fmean(pair) for pair in pairwise(alone)]
    return median(one / both for one, both in zip(flooded, around, strict=True))


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
                    await beside(http, arrivals, request_of(http, key, model["id"], chat))
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


if __name__ == "__main__":
    sys.exit(main())
