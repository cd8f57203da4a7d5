"""Streams of the gateway: the first token beside a whole answer, and a run beside slow readers.

- Of an answer of 600 tokens by the agent's base: the time to the first token, and to the last one,
  each in the time of the same answer that is not streamed. They are asked for in turns.
- A run on the tiny engine in a service of its own, with STREAMS answers begun each second, in turns
  by clients that read them and by clients that never read; its steps may take 1.10 times as long
  beside the latter.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from time import perf_counter

import httpx

from tests.bench.bench_service import Witness, connected, turn
from tests.bench.by_hand import request_of
from tests.bench.timing import in_turns
from tests.conftest import fork, serve_process, submit

TIMES, TOKENS, FIRST, LAST = 12, 600, 0.25, 1.15
STREAMS, ROUNDS, SLOWER = 16, 6, 1.10
ASK = {"role": "user", "content": "3 + 4 = ?"}


async def answers(http: httpx.AsyncClient) -> tuple[float, float]:
    """Time to the first and to the last token of a stream, in that of the reply: medians."""
    first, last = list[float](), list[float]()
    for seed in range(-1, TIMES):
        body = {
            "model": "tiny/agent-1M",
            "messages": [ASK],
            "seed": seed % 2**31,
            "temperature": 5.0,
            "max_tokens": TOKENS,
        }
        start = perf_counter()
        reply = await http.post("/v1/chat/completions", json=body)
        whole_s = perf_counter() - start
        if seed < 0 or reply.json()["usage"]["completion_tokens"] < TOKENS:
            continue  # the first one opens the policy; one that ends early is no long answer
        times = [perf_counter()]
        async with http.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as got:
            async for line in got.aiter_lines():
                if '"content"' in line and '"role"' not in line:
                    times.append(perf_counter())
        first.append((times[1] - times[0]) / whole_s)
        last.append((times[-1] - times[0]) / whole_s)
    return median(first), median(last)


class Readers:
    """Begin STREAMS answers each second, over connections of their own."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http, self._count = http, 0

    async def begin(self, reads: bool) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._one(reads))
                await asyncio.sleep(1 / STREAMS)

    async def _one(self, reads: bool) -> None:
        """Reads to the end; or nothing, until the answer must have ended."""
        self._count += 1
        body = {
            "model": "tiny/mixed-0.2M",
            "messages": [ASK],
            "seed": self._count,
            "temperature": 5.0,
            "max_tokens": 100,
            "stream": True,
        }
        url, key = self._http.base_url, self._http.headers["authorization"]
        request = request_of("POST /v1/chat/completions", url.netloc.decode(), key, body)
        reader, writer = await asyncio.open_connection(url.host, url.port, limit=64)
        try:
            writer.write(request.encode())
            end = b""
            while reads and not end.endswith(b"0\r\n\r\n"):
                end = (end + await reader.read(1 << 16))[-8:]
            await asyncio.sleep(0 if reads else 3.0)
        finally:
            writer.close()


async def steps(http: httpx.AsyncClient) -> float:
    """A step's seconds beside clients that read nothing, in those beside clients that read."""
    model = await fork(http)
    job = await submit(http, model["id"], steps=10_000, seed=1)
    readers, arrivals = Readers(http), Witness(http, model["id"]).steps()
    read = [await beside(readers, True, arrivals)]
    unread = list[float]()
    for _ in range(ROUNDS):
        unread.append(await beside(readers, False, arrivals))
        read.append(await beside(readers, True, arrivals))
    await arrivals.aclose()
    await http.post("/v2/rollouts/cancel_job", json={"job_id": job})
    return in_turns(unread, read)


async def beside(readers: Readers, reads: bool, arrivals: AsyncIterator[float]) -> float:
    """Seconds of a step, the median of a turn."""
    load = asyncio.create_task(readers.begin(reads))
    await anext(arrivals)
    taken = await turn(arrivals)
    load.cancel()
    await asyncio.wait([load])
    return taken


async def measure() -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as folder:
        async with serve_process(Path(folder)) as process, connected(process) as http:
            return *await answers(http), await steps(http)


def main() -> int:
    first, last, longer = asyncio.run(measure())
    print(
        f"a stream of {TOKENS} tokens: first after {first:.3f}, last after {last:.2f} of a reply's"
        f" time; goals {FIRST}, {LAST}"
    )
    print(
        f"a run's step beside {STREAMS} streams a second that nobody reads: {longer:.2f} times as"
        f" long as beside as many that are read; goal {SLOWER:.2f}"
    )
    return first > FIRST or last > LAST or longer > SLOWER
