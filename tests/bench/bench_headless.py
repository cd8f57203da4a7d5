"""How long `hud-tui --headless status` takes, as a multiple of a bare script's time.

Both run as processes of their own against one embedded service with a run of 20 steps,
by turns, and the least time of each counts. The bare script (bare_status.py) makes the
same four GETs with httpx and json. No host is https, as with ``--local``.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from time import perf_counter

from tests.bench import trained
from tests.conftest import pointed_at

GOAL = 1.6
STEPS, REPEATS = 20, 12
HUD = ("-m", "hud_tui", "--headless", "status")
BARE = ("-m", "tests.bench.bare_status")


def main() -> int:
    ratio = asyncio.run(_measure())
    print(f"headless status / bare script: {ratio:.2f} (goal: at most {GOAL})")
    return ratio > GOAL


async def _measure() -> float:
    async with trained.service() as (client, _):
        await trained.train(client, STEPS)
        environ = pointed_at(client.settings.api_url, client.settings.api_key)
        return await asyncio.to_thread(_ratio, os.environ | environ)


def _ratio(environ: Mapping[str, str]) -> float:
    times: dict[tuple[str, ...], list[float]] = {HUD: [], BARE: []}
    for _ in range(REPEATS):
        for command, taken in times.items():
            start = perf_counter()
            subprocess.run(
                [sys.executable, *command], env=environ, stdout=subprocess.DEVNULL, check=True
            )
            taken.append(perf_counter() - start)
    return min(times[HUD]) / min(times[BARE])
