"""The embedded service is the tests' server: the real routes over a toy engine.

`service` is one in process; `http` calls it without a socket; `served` puts it on a real
one, which streams need. `serve_process` starts a whole service in a process of its own.
"""

import asyncio
import gc
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from typing import IO, Any, TypeVar

import httpx
import pytest
import uvicorn
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from hud_tui.service.app import create_app
from hud_tui.service.connections import KEEP_ALIVE_S, MOST, bounded, secured
from hud_tui.service.data_dir import DATABASE
from hud_tui.service.service import Service, recover
from hud_tui.service.store.db import Db, Store, connect
from hud_tui.service.tls import RenewedTls
from hud_tui.service_file import ServiceReady
from tests import bounds
from tests.in_process import InProcess
from tests.toy_engine import TOY, ToyEngine

T = TypeVar("T")
PATIENCE_S = 180.0
MOST_WORKERS = 16
DELAYS = os.environ.get("HUD_TUI_TEST_DELAYS", "")
"""Seed of random delays of the app's requests, answers and threads, which find what depends on the
order of answers; empty: nothing is delayed."""
# How long an example takes says how busy the machine is. One commit is tried by the same examples
# everywhere; --hypothesis-profile=search looks for new ones.
settings.register_profile("same", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("same")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems() -> None:
    """Which modules are imported is no part of an example: one file is tried as the whole suite.

    Hypothesis would read them all for constants, in each worker, for a fifth of a start.
    """
    if settings.get_current_profile_name() == "same":
        providers._get_local_constants = lambda: providers._local_constants


pytest_configure = bounds.pytest_configure
pytest_runtest_protocol = bounds.pytest_runtest_protocol


def pytest_addoption(parser: pytest.Parser) -> None:
    bounds.pytest_addoption(parser)
    parser.addoption("--campaign-size", type=int, help="rounds of each of tests/campaigns")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Tests wait for half of their time: two workers for each core. Files and tests that are named
    run in this process, which starts sooner and can be debugged."""
    if all(".py" in argument for argument in config.args):
        return 0
    return min(2 * (os.cpu_count() or 1), MOST_WORKERS)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is imported by now stays: the garbage collector need not look through it again. Apps
    are made of small objects; looking for garbage as often as usual takes 6 % of the time."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture
def engine() -> ToyEngine:
    return ToyEngine()


@cache
def _first_database() -> bytes:
    """The toy engine's database after a first start, but for its id."""
    with TemporaryDirectory() as directory:
        file = Path(directory) / DATABASE
        with closing(connect(file)) as db:
            db.execute("BEGIN")  # else each row is synced by itself
            recover(db, {TOY.name: TOY.id})
            db.execute("COMMIT")
        return file.read_bytes()


def blank(data: Path) -> Path:
    """A data directory in which a service with the toy engine need not make its tables."""
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = data / DATABASE
    file.touch(0o600)
    file.write_bytes(_first_database())
    return data


async def _at_once(store: Store, work: Callable[[], T]) -> T:
    """In the test's own thread: handing a query to another, and its answer back, takes longer than
    the query."""
    try:
        return work()
    finally:
        await asyncio.sleep(0)


@pytest.fixture
def store_at_once() -> bool:
    """Whether the service's store works in the test's thread."""
    return not DELAYS


@pytest.fixture
async def service(tmp_path: Path, engine: ToyEngine, store_at_once: bool) -> AsyncIterator[Service]:
    """A started service on a directory of its own, with the toy engine."""
    with pytest.MonkeyPatch.context() as patch:
        if store_at_once:
            patch.setattr(Store, "_on_thread", _at_once)
        async with Service(blank(tmp_path / "data"), engine) as service:
            await service.parts.store.read(unsynced)
            yield service


def unsynced(db: Db) -> None:
    """Nobody pulls the plug in a test: no write waits for the disk."""
    db.execute("PRAGMA synchronous = OFF")


@pytest.fixture
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """Calls the service in process. Streams need `served`."""
    async with calling(service) as client:
        yield client


def calling(service: Service) -> httpx.AsyncClient:
    """A client that calls a service in process."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(service)),
        base_url="http://127.0.0.1",
        headers=bearer(service.api_key),
    )


@dataclass(frozen=True)
class Served:
    """A service that can be called over a socket."""

    url: str
    api_key: str
    service: Service
    in_process: InProcess | None = None

    @property
    def near(self) -> InProcess | None:
        """Calls it without a socket; None where that is another's than this URL's."""
        near = self.in_process
        return near if near is not None and near.url == self.url else None


@pytest.fixture
async def served(service: Service) -> AsyncIterator[Served]:
    """The service on a real socket, in this test's loop."""
    async with on_socket(service) as url:
        yield Served(url, service.api_key, service)


def caller(served: Served) -> httpx.AsyncClient:
    """Calls the service as somebody else would."""
    headers = bearer(served.api_key)  # loopback: no certificates, which take 15 ms to load
    return httpx.AsyncClient(
        base_url=served.url, headers=headers, transport=served.near, verify=False
    )


class _Server(uvicorn.Server):
    """A server in a test's loop that ends at once when it is told to."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ends = asyncio.Event()

    def capture_signals(self) -> nullcontext[None]:  # type: ignore[override]
        return nullcontext()

    async def main_loop(self) -> None:
        await self.on_tick(0)  # sets the headers of every answer
        await self.ends.wait()

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """As any server's, which would first rest for a tenth of a second."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await until(lambda: not self.server_state.connections)
        await self._wait_tasks_to_complete()


@asynccontextmanager
async def on_socket(
    service: Service, port: int = 0, most: int = MOST, tls: RenewedTls | None = None
) -> AsyncIterator[str]:
    """Serve on a free port, or on this one, until the block ends; yields the URL.

    `most`: connections at once.
    """
    protocol = bounded(most)
    config = uvicorn.Config(
        create_app(service), port=port, log_config=None, ws="none", lifespan="off",
        http=secured(protocol, tls.context) if tls else protocol, timeout_keep_alive=KEEP_ALIVE_S,
    )  # fmt: skip
    server = _Server(config)
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started or task.done())
    bound = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{bound}"
    finally:
        service.parts.hub.close()
        server.ends.set()
        await task
        service.parts.hub.closed = False


@dataclass(frozen=True)
class Process:
    """A service in a process of its own."""

    ready: ServiceReady
    process: asyncio.subprocess.Process

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.ready.url,
            headers=bearer(self.ready.api_key),
            timeout=PATIENCE_S,
            verify=False,
        )


@asynccontextmanager
async def serve_process(
    data_dir: Path, *flags: str, stderr: IO[bytes] | None = None
) -> AsyncIterator[Process]:
    """`python -m hud_tui.service` with the tiny engine; ended with SIGKILL if need be."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hud_tui.service", "--data-dir", str(data_dir), *flags,
        stdout=asyncio.subprocess.PIPE, stderr=stderr,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        yield Process(ServiceReady.model_validate_json(line), process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def pointed_at(url: str, api_key: str) -> dict[str, str]:
    """The variables by which a program finds this service, and no other."""
    hosts = ("API", "RL", "GATEWAY", "TELEMETRY", "WEB")
    return {f"HUD_{host}_URL": url for host in hosts} | {"HUD_API_KEY": api_key}


def bearer(api_key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"}


async def until(
    condition: Callable[[], bool | Awaitable[bool]],
    patience_s: float = PATIENCE_S,
    look_s: float = 0.005,
) -> None:
    """Let the loop run until the condition holds; fail the test if it never does.

    `look_s`: seconds between two looks.
    """
    async with asyncio.timeout(patience_s):
        while True:
            held = condition()
            if held if isinstance(held, bool) else await held:
                return
            await asyncio.sleep(look_s)


async def fork(http: httpx.AsyncClient, name: str = "arith rl") -> dict[str, Any]:
    """A fresh fork of the first base in the catalog."""
    base = (await http.get("/v2/models")).json()["items"][0]
    body = {"source_model_id": base["id"], "name": name}
    answer = await http.post("/v2/models/fork", json=body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def tasks_of(http: httpx.AsyncClient, taskset: str = "arith") -> list[dict[str, Any]]:
    id_ = (await http.get(f"/v2/tasksets/by-name/{taskset}")).json()["taskset_id"]
    return list((await http.get(f"/v2/tasksets/{id_}/export")).json()["tasks"])


async def submit(
    http: httpx.AsyncClient, model_id: str, taskset: str = "arith", **parameters: Any
) -> str:
    """Submit a run on a taskset; its id."""
    body = {
        "model_id": model_id,
        "dataset": {"tasks": await tasks_of(http, taskset)},
        "config": {"parameters": parameters},
    }
    answer = await http.post("/v1/training/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def ended(http: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    """The status of a run once it has ended, however it did."""
    return await at_end(http, f"/v1/training/jobs/{job_id}/raw-status")


async def at_end(http: httpx.AsyncClient, path: str) -> dict[str, Any]:
    """What is at a path, once its status says that it has ended."""
    found: dict[str, Any] = {}

    async def is_over() -> bool:
        nonlocal found
        found = (await http.get(path)).json()
        return found["status"] not in ("queued", "running")

    await until(is_over, look_s=0.02)  # a request takes a millisecond from what is waited for
    return found


def dumps(value: Any) -> str:
    """JSON with NaN as Python writes it, which a client may send."""
    return json.dumps(value)
