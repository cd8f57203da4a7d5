"""The tiny engine on two cores beside one: a run's step, chats of several callers, memory.

Run: python -m tests.bench.bench_cores [CHECKOUT]

A service of its own for each: one process of the engine, two, and the program of another checkout,
if there is one. They take turns, so that what else the machine does is in all of them, and the
least of several turns counts.
- A step of a `mixed` run at its defaults, held-out tasks included: each step's least time, added
  up. With two processes it may take .70 of the time with one, and .60 of the other checkout's.
- Chats of 16 callers at once with `tiny/agent-1M`: at least 1.6 times as many a second as with one
  process, and 1.7 times the other checkout's.
- Memory of the second process after all that: less than 60 MB, counted as its share of what it has
  in common with others (Linux).
- The checkpoints of the runs are the same files with one process and two.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import perf_counter

import httpx

from hud_tui.service_file import ServiceReady
from tests.bench.bench_service import Witness
from tests.conftest import bearer, submit

ROOT = Path(__file__).parents[2]
TURNS, STEPS = 4, 16
CALLERS, CHATS_S = 16, 6.0
QUESTION = "Use the plus tool to add 17 and 25. " * 12
TOKENS = 96
STEP, STEP_OLDER = 0.70, 0.60
CHATS, CHATS_OLDER = 1.6, 1.7
MEMORY_MB = 60


@dataclass
class Served:
    """A service, and what was measured of it."""

    http: httpx.AsyncClient
    pid: int
    folder: Path
    forks: int = 0
    step_s: list[float] = field(default_factory=lambda: [float("inf")] * STEPS)
    """Least seconds of each step of the run."""
    chats: float = 0.0
    """Most chats per second."""
    memory_mb: float = 0.0
    is_same: bool = True


@asynccontextmanager
async def serving(checkout: Path, *flags: str) -> AsyncIterator[Served]:
    """`python -m hud_tui.service` of a checkout."""
    with tempfile.TemporaryDirectory() as folder:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "hud_tui.service", "--data-dir", folder, *flags, cwd=checkout,
            stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(checkout)},
        )  # fmt: skip
        assert process.stdout is not None
        ready = ServiceReady.model_validate_json(await process.stdout.readline())
        try:
            headers = bearer(ready.api_key)
            async with httpx.AsyncClient(base_url=ready.url, headers=headers, timeout=60) as http:
                yield Served(http, ready.pid, Path(folder))
        finally:
            process.terminate()
            await process.wait()


async def forked(served: Served, base: str) -> str:
    """Id of a new fork of a base."""
    served.forks += 1
    bases = (await served.http.get("/v2/models")).json()["items"]
    [id_] = [model["id"] for model in bases if model["name"] == base]
    body = {"source_model_id": id_, "name": f"{base} {served.forks}".replace("/", " ")}
    return str((await served.http.post("/v2/models/fork", json=body)).json()["id"])


async def run(served: Served) -> None:
    """A run, whose steps are timed by their events."""
    model = await forked(served, "tiny/mixed-0.2M")
    steps = Witness(served.http, model).steps()
    first = asyncio.ensure_future(anext(steps))
    job = await submit(
        served.http, model, "mixed", steps=STEPS + 1, seed=1, tasks_per_step=32, group_size=8,
        max_tokens=20, learning_rate=2e-4,
    )  # fmt: skip
    before = await first  # which also starts processes
    for number in range(STEPS):
        now = await anext(steps)
        served.step_s[number] = min(served.step_s[number], now - before)
        before = now
    await steps.aclose()
    path = f"/v1/training/jobs/{job}/raw-status"
    while (await served.http.get(path)).json()["status"] in ("queued", "running"):  # noqa: ASYNC110
        await asyncio.sleep(0.1)


def digests(served: Served) -> set[str]:
    """Checksums of all checkpoints of a service; its runs are all the same."""
    files = served.folder.rglob("*.safetensors")
    return {sha256(file.read_bytes()).hexdigest() for file in files}


async def chat(served: Served, model: str) -> None:
    """Callers who ask again as soon as they have their answer."""
    until, count = perf_counter() + CHATS_S, 0

    async def call(number: int) -> None:
        nonlocal count
        turn = 0
        while perf_counter() < until:
            turn += 1
            body = {
                "model": model,
                "messages": [{"role": "user", "content": f"{number} {turn} {QUESTION}"}],
                "max_tokens": TOKENS,
                "seed": 1000 * number + turn,
            }
            answer = await served.http.post("/chat/completions", json=body)
            answer.raise_for_status()
            count += perf_counter() < until

    await asyncio.gather(*map(call, range(CALLERS)))
    served.chats = max(served.chats, count / CHATS_S)


def memory_mb(pid: int) -> float:
    """Proportional memory of a service's processes but the first one, MB; 0 where the system does
    not say."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        texts = [Path(f"/proc/{child}/smaps_rollup").read_text() for child in children]
    except OSError:
        return 0.0
    return sum(int(text.partition("\nPss:")[2].split()[0]) / 1024 for text in texts[1:])


async def measure(older: Path | None) -> dict[str, Served]:
    async with AsyncExitStack() as stack:
        all_ = {
            "one": await stack.enter_async_context(serving(ROOT, "--cores", "1")),
            "two": await stack.enter_async_context(serving(ROOT, "--cores", "2")),
        }
        if older is not None:
            all_["older"] = await stack.enter_async_context(serving(older))
        two = all_["two"]
        agents = {name: await forked(served, "tiny/agent-1M") for name, served in all_.items()}
        for _ in range(TURNS):
            for served in all_.values():
                await run(served)
        memory = [memory_mb(two.pid)]
        for _ in range(TURNS):
            for name, served in all_.items():
                await chat(served, agents[name])
        memory.append(memory_mb(two.pid))
        two.memory_mb = max(memory)
        two.is_same = digests(two) == digests(all_["one"])
    return all_


def main() -> int:
    older = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
    load = os.getloadavg()[0]
    found = asyncio.run(measure(older))
    two, missed = found["two"], False
    for name, served in found.items():
        step = sum(served.step_s) / STEPS
        print(f"{name}: a step {1000 * step:.0f} ms, {served.chats:.1f} chats a second")
    for name, step_goal, chats_goal in (
        ("one", STEP, CHATS),
        ("older", STEP_OLDER, CHATS_OLDER),
    ):
        if name not in found:
            continue
        step = sum(two.step_s) / sum(found[name].step_s)
        chats = two.chats / found[name].chats
        print(f"two beside {name}: a step {step:.2f} of the time, goal {step_goal}")
        print(f"two beside {name}: {chats:.2f} times the chats, goal {chats_goal}")
        missed |= step > step_goal or chats < chats_goal
    print(f"memory of the second process: {two.memory_mb:.0f} MB, goal {MEMORY_MB}")
    print(f"checkpoints with one and two: {'the same files' if two.is_same else 'NOT the same'}")
    print(f"the machine's load was {load:.1f} before, {os.getloadavg()[0]:.1f} after")
    return missed or not two.is_same or two.memory_mb > MEMORY_MB


if __name__ == "__main__":
    sys.exit(main())
