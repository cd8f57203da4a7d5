"""A tree of ten thousand steps as a service sends it, and a service that has nothing else.

Run: python -m tests.bench.large_tree
Serves it on a free port, says where on its first line, and ends with its standard input.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hud_tui.settings import Settings
from tests.conftest import until
from tests.tui import runs

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
        known = request.headers.get("if-none-match") == etag
        headers = {"ETag": etag}
        if known:
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
    command = (sys.executable, "-m", "tests.bench.large_tree")
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        yield Settings(url, url, url, f"{url}/v3/api", url, KEY)
    finally:
        process.kill()
        await process.wait()


async def main() -> None:
    server = uvicorn.Server(uvicorn.Config(app(body()), port=0, log_config=None, lifespan="off"))
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
