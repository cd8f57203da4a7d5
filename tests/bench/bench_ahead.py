"""What sampling ahead is worth where an engine takes as long to sample as to train.

Managed runs of 40 steps on a toy engine whose batches take a fifth of a second to sample and a
fifth to train, by turns with --max-staleness 0 and 1. Steps an hour with 1, as a multiple of
those with 0.
"""

import asyncio
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx

from hud_tui.service.service import Service
from tests.conftest import calling, ended, fork, submit
from tests.toy_engine import ToyEngine

GOAL = 1.8
SECONDS, STEPS, ROUNDS = 0.2, 40, 1


class Slow(ToyEngine):
    async def sample(self, *given: Any) -> Any:
        await asyncio.sleep(SECONDS)
        return await super().sample(*given)

    async def forward_backward(self, *given: Any) -> Any:
        await asyncio.sleep(SECONDS)
        return await super().forward_backward(*given)


def main() -> int:
    ratio = asyncio.run(_measure())
    print(f"steps an hour with max_staleness 1 / 0: {ratio:.2f} (goal: at least {GOAL})")
    return ratio < GOAL


async def _measure() -> float:
    seconds: dict[int, list[float]] = {0: [], 1: []}
    with tempfile.TemporaryDirectory() as data:
        async with Service(Path(data), Slow()) as service, calling(service) as http:
            for number in range(ROUNDS):
                for most, taken in seconds.items():
                    taken.append(await _run(http, f"{most}-{number}", most))
    return min(seconds[0]) / min(seconds[1])


async def _run(http: httpx.AsyncClient, name: str, most: int) -> float:
    """Seconds of one run on a fork of its own, without its evaluation at the end."""
    model = await fork(http, name)
    size = {"tasks_per_step": 4, "learning_rate": 1e-3, "heldout_every": 1000}
    start = perf_counter()
    job_id = await submit(http, model["id"], steps=STEPS, max_staleness=most, **size)
    status = await ended(http, job_id)
    assert status["step"] == STEPS, status
    return perf_counter() - start - SECONDS
