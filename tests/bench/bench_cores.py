"""The tiny engine on two cores beside one: a run's step, chats of several callers, memory.

Run: python -m tests.bench cores [CHECKOUT]

A service of its own for each: one process of the engine, two, and the program of another checkout,
if there is one. They take turns, so that what else the machine does is in all of them, and the
least of several turns counts. Where other programs take both cores, two processes have no second
one: the goals hold where hardly anything else runs, and the processor times say what was done.
- A step of a `mixed` run at its defaults, held-out tasks included: each step's least time, added
  up. With two processes it may take .70 of the time with one, and .60 of the other checkout's.
- Chats of 16 callers at once with `tiny/agent-1M`: at least 1.6 times as many a second as with one
  process, and 1.7 times the other checkout's. Callers and service share the two cores with them.
- Processor time of each of a service's processes (Linux): of the service, and of its engine's.
- Memory of the second process: less than 60 MB, after the runs and after the chats, counted as its
  share of what it has in common with others (Linux), without the memory that all of them share.
- The checkpoints of the runs are the same files with one process and two.
"""

import asyncio
import os
import re
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
from tests.bench.by_hand import read_answer, request_of
from tests.conftest import bearer, submit

ROOT = Path(__file__).parents[2]
TURNS, STEPS = 4, 16
CALLERS, CHATS_S = 16, 4.0
QUESTION = "Use the plus tool to add 17 and 25. " * 40
TOKENS = 96
STEP, STEP_OLDER = 0.70, 0.60
CHATS, CHATS_OLDER = 1.6, 1.7
MEMORY_MB = 60
OWN = re.compile(r"Pss_(Anon|File):")


@dataclass
class Served:
    """A service, and what was measured of it."""

    http: httpx.AsyncClient
    pid: int
    folder: Path
    forks: int = 0
    step_s: list[float] = field(default_factory=lambda: [float("inf")] * STEPS)
    """Least seconds of each step of the run."""
    asked: int = 0
    """Questions so far."""
    chats: float = 0.0
    """Most chats per second."""
    step_cpu_s: list[float] = field(default_factory=list)
    chat_cpu_s: list[float] = field(default_factory=list)
    """Processor time of each process, in the last run and in the turn with most chats."""
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
    cpu_s = processor_s(served.pid)
    for number in range(STEPS):
        now = await anext(steps)
        served.step_s[number] = min(served.step_s[number], now - before)
        before = now
    served.step_cpu_s = each(cpu_s, processor_s(served.pid), STEPS)
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

    async def call() -> None:
        nonlocal count
        url = served.http.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        while perf_counter() < until:
            served.asked += 1
            writer.write(question(served.http, model, served.asked))
            status, headers = await read_answer(reader)
            assert status == 200, headers
            count += perf_counter() < until
        writer.close()

    before = processor_s(served.pid)
    await asyncio.gather(*(call() for _ in range(CALLERS)))
    if count / CHATS_S > served.chats:
        served.chats = count / CHATS_S
        served.chat_cpu_s = each(before, processor_s(served.pid), count)


def question(http: httpx.AsyncClient, model: str, number: int) -> bytes:
    """A request that none before is like, which would be remembered."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"{number} {QUESTION}"}],
        "max_tokens": TOKENS,
        "seed": number,
    }
    host, key = http.base_url.netloc.decode(), http.headers["authorization"]
    return request_of("POST /chat/completions", host, key, body).encode()


def processes(pid: int) -> list[int]:
    """A service's process and its engine's, where the system says them."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *map(int, children)]


def processor_s(pid: int) -> list[float]:
    """Processor time of each of `processes`, seconds."""
    stats = [Path(f"/proc/{each}/stat").read_text() for each in processes(pid)]
    ticks = [stat.rpartition(")")[2].split()[11:13] for stat in stats]
    return [sum(map(int, pair)) / os.sysconf("SC_CLK_TCK") for pair in ticks]


def each(before: list[float], after: list[float], count: int) -> list[float]:
    """Of each process, what one of so many things took."""
    return [(b - a) / max(1, count) for a, b in zip(before, after, strict=False)]


def memory_mb(pid: int) -> float:
    """Memory of a service's processes but the first one of its engine, MB; 0 where the system does
    not say."""
    texts = [Path(f"/proc/{child}/smaps_rollup").read_text() for child in processes(pid)[2:]]
    sizes = [
        int(line.split()[1]) for text in texts for line in text.splitlines() if OWN.match(line)
    ]
    return sum(sizes) / 1024


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
        for what, spent in (("step", served.step_cpu_s), ("chat", served.chat_cpu_s)):
            if spent:
                shown = ", ".join(f"{1000 * one:.1f}" for one in spent)
                print(f"{name}: processor time of a {what}, service and engine: {shown} ms")
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
