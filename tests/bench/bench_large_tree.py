"""The first reading of a tree of 50 MB: how long it takes, and how long no key is answered.

A service in a process of its own sends a tree of 10 000 steps with 20 metrics and 24 groups
each, and has no event stream, as HUD has none. The app opens its Live view on it. Measured is
the processor time from the app's start until the run is on the screen, as a multiple of a
floor of the same process: such a body through `json.loads` into columns. While it is read and
in the seconds after it, when the app asks again and draws, another task of the same loop looks
how much was done before it had its turn, in processor time too.
"""

import asyncio
import gc
import json
import sys
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from math import nan
from time import monotonic, process_time, thread_time
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hud_tui.client.client import HudClient
from hud_tui.settings import Settings
from hud_tui.tui.app import HudApp, Options, settle
from hud_tui.tui.start import Start
from tests.bench.timing import Goal, missed
from tests.conftest import until
from tests.tui import runs
from tests.tui.conftest import run_of

AFTER_S = 5.0
TIMES, STALL = 2.0, Goal(100.0, 18.5)
STEPS, METRICS, GROUPS, SIZE = 10_000, 20, 24, 16
KINDS = 50
"""Steps with groups of their own; they repeat, for a bench need not wait for them."""
MODEL = {"id": "m1", "model_name": "me/arith-rl", "is_trainable": True, "base_model": "tiny"}
KEY = "k" * 20


def body() -> bytes:
    """The tree: about 50 MB, written as the embedded service does."""
    groups = [_groups(kind) for kind in range(1, KINDS + 1)]
    rows = [_row(step, groups[step % KINDS]) for step in range(1, STEPS + 1)]
    return json.dumps(rows, separators=(",", ":")).encode()


def _groups(kind: int) -> list[dict[str, Any]]:
    found = runs.groups(kind, GROUPS, SIZE)
    return [group.model_dump(include={"task_slug", "rewards", "num_tokens"}) for group in found]


def _row(step: int, groups: list[dict[str, Any]]) -> dict[str, Any]:
    like = runs.checkpoints(1, tasks=0)[0].model_dump(exclude={"groups"})
    metrics = runs.metrics(step)
    more = range(METRICS - len(metrics))
    own = {
        "id": _id(step),
        "name": f"step-{step:06d}",
        "prev_model_checkpoint_id": _id(step - 1) if step > 1 else None,
        "is_active": step == STEPS,
        "mean_reward": runs.reward(step),
        "metrics": metrics | {f"own/{number}": runs.noise(31 * step + number) for number in more},
        "step": step,
    }
    return {**like, **own, "groups": groups}


def _id(step: int) -> str:
    return f"3f2b7c1e-0000-4000-8000-{step:012}"


def app(tree: bytes) -> Starlette:
    """HUD's wire, as much of it as following one model asks for; it has no event stream."""
    etag = f'"{sha256(tree).hexdigest()}"'

    async def send_tree(request: Request) -> Response:
        headers = {"ETag": etag}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(tree, headers=headers, media_type="application/json")

    async def models(request: Request) -> Response:
        return JSONResponse({"items": [MODEL], "total": 1, "limit": 100, "offset": 0})

    async def jobs(request: Request) -> Response:
        return JSONResponse({"items": [], "total": 0, "limit": 100, "offset": 0})

    return Starlette(
        routes=[
            Route("/v2/models", models),
            Route("/v2/models/m1/checkpoints", send_tree),
            Route("/v2/jobs", jobs),
        ]
    )


@asynccontextmanager
async def served() -> AsyncIterator[Settings]:
    """The service in a process of its own, until the end of the block."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "tests.bench", "large_tree", "--serve")
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        yield Settings(url, url, url, f"{url}/v3/api", url, KEY)
    finally:
        process.kill()
        await process.wait()


async def serve() -> None:
    """Serve the tree on a free port, say where, and end with the standard input."""
    server = uvicorn.Server(uvicorn.Config(app(body()), port=0, log_config=None, lifespan="off"))
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await serving


def build(body: bytes) -> dict[str, "array[float]"]:
    """The least that a cockpit must do with a tree: an id and its metrics in columns."""
    columns: dict[str, array[float]] = {}
    for number, row in enumerate(json.loads(body)):
        for key, value in row["metrics"].items():
            column = columns.setdefault(key, array("d", [nan]) * number)
            column.append(value)
    return columns


def build_s(body: bytes) -> float:
    """Processor time of that, without a garbage collector, which takes longer than all else."""
    gc.disable()
    start = process_time()
    assert len(build(body)) >= METRICS
    used = process_time() - start
    gc.enable()
    return used


@dataclass
class Turns:
    """The most that the loop did between two turns of a task: seconds of its own thread."""

    longest: float = 0.0

    async def watch(self) -> None:
        last = thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = thread_time()
            self.longest, last = max(self.longest, now - last), now


@dataclass(frozen=True)
class Found:
    used_s: float
    clock_s: float
    reading_s: float
    """Of `Turns`, while the tree was read."""
    after_s: float
    """And in the AFTER_S that followed."""


async def measure(settings: Settings) -> Found:
    async def connect(mode: str, key: str | None, say: Callable[[str], None]) -> HudClient:
        return HudClient(settings)

    gc.disable()
    options = Options(settle=settle)  # as the program does
    app = HudApp(connect, "hud", Start("status", model="arith-rl"), options=options)
    turns = Turns()
    async with app.run_test(size=(120, 40)):
        await until(lambda: app.shown_view is not None)
        used, clock = process_time(), monotonic()
        watch = asyncio.create_task(turns.watch())
        await until(lambda: run_of(app).loaded)
        found = process_time() - used, monotonic() - clock, turns.longest
        turns.longest = 0.0
        assert len(run_of(app).tree) == STEPS
        await asyncio.sleep(AFTER_S)
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
    return Found(*found, turns.longest)


async def first_reading() -> Found:
    async with served() as settings:
        return await measure(settings)


def main() -> int:
    if "--serve" in sys.argv:
        asyncio.run(serve())
        return 0
    found, whole = asyncio.run(first_reading()), build_s(body())
    times = found.used_s / whole
    print(
        f"tree of 50 MB, first reading: {times:.2f} times json.loads"
        f" ({found.used_s:.1f} s of a processor, {found.clock_s:.1f} s); goal {TIMES:.2f}"
    )
    stalls = [
        ("tree of 50 MB, longest stall while it is read", found.reading_s, STALL),
        ("tree of 50 MB, longest stall after it", found.after_s, STALL),
    ]
    return missed(stalls) or times > TIMES
