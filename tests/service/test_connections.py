"""Connections that say nothing, or little, or too much: bounded, and in nobody's way."""

import asyncio
import logging
import os
import resource
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from httpx import AsyncClient

from hud_tui.processes import alive
from hud_tui.service import connections
from hud_tui.service import http as http_module
from hud_tui.service.connections import (
    FILES,
    HEADER_BYTES,
    KEEP_ALIVE_S,
    MOST,
    raise_open_files,
    room,
)
from hud_tui.service.engines.tiny import dispatch
from hud_tui.service.engines.tiny.engine import TinyEngine
from hud_tui.service.service import Service
from hud_tui.service.serving import RateLimit
from tests.conftest import (
    PATIENCE_S,
    bearer,
    calling,
    fork,
    on_socket,
    serve_process,
    submit,
    until,
)
from tests.service.calls import reach, status_of

KEYLESS = b"POST /telemetry/v3/api/sdk-events/cli HTTP/1.1\r\nHost: 127.0.0.1\r\n"


class Port:
    """A served service, and ways to speak to it below HTTP."""

    def __init__(self, service: Service, number: int) -> None:
        self.service, self.number = service, number
        self.opened: list[asyncio.StreamWriter] = []

    async def open(self, said: bytes = b"") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number)
        self.opened.append(writer)
        writer.write(said)
        await writer.drain()
        return reader

    def client(self) -> AsyncClient:
        url = f"http://127.0.0.1:{self.number}"
        return AsyncClient(base_url=url, headers=bearer(self.service.api_key), verify=False)


@asynccontextmanager
async def port_of(service: Service, most: int = MOST) -> AsyncIterator[Port]:
    async with on_socket(service, most=most) as url:
        port = Port(service, int(url.rpartition(":")[2]))
        try:
            yield port
        finally:
            for writer in port.opened:
                writer.close()


async def ends(reader: asyncio.StreamReader) -> bytes:
    """What comes until the service closes the connection."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def test_who_never_makes_a_request_is_let_go(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADERS_S", 0.2)
    async with port_of(service) as port:
        await ends(await port.open())
        await ends(await port.open(b"GET /v2/auth/me HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "))
    monkeypatch.undo()
    async with port_of(service) as port:
        endless = await port.open(b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * HEADER_BYTES)
        assert await ends(endless) == b"", "at once"


async def test_blank_lines_after_an_answer_gain_no_time(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADERS_S", 0.2)
    async with port_of(service) as port:
        reader = await port.open(KEYLESS + b"\r\n")
        await reader.readuntil(b"\r\n\r\n")
        port.opened[0].write(b"\r\n")
        async with asyncio.timeout(KEEP_ALIVE_S):  # that of the server's own timer
            await ends(reader)


async def test_a_trickle_of_headers_gains_no_time(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADERS_S", 0.5)
    async with port_of(service) as port:
        reader = await port.open(b"GET / HTTP/1.1\r\n")
        ending = asyncio.create_task(ends(reader))
        while not ending.done():
            port.opened[0].write(b"X-More: 1\r\n")
            await asyncio.wait({ending}, timeout=0.05)
        assert await ending == b""


async def test_the_rest_of_a_body_that_was_answered_is_dropped_and_the_next_request_served(
    service: Service,
) -> None:
    """Analytics are answered before their body is there; only what is no body is bounded."""
    size = 4 * HEADER_BYTES
    async with port_of(service) as port:
        reader = await port.open(KEYLESS + f"Content-Length: {size}\r\n\r\n".encode())
        assert b" 202 " in await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2)
        port.opened[0].write(b"x" * size)
        port.opened[0].write(b"GET /v2/auth/me HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b" 401 " in await reader.readuntil(b"\r\n\r\n")


async def test_the_newest_is_served_where_all_others_are_silent(service: Service) -> None:
    """Who is new has a moment to speak: twice as many as are served."""
    async with port_of(service, most=8) as port, port.client() as http:
        readers = [await port.open() for _ in range(15)]
        assert (await http.get("/v2/auth/me")).status_code == 200
        assert not any(reader.at_eof() for reader in readers)
        readers.append(await port.open())
        assert (await http.get("/v2/auth/me")).status_code == 200
        assert await ends(readers[0]) == b""
        assert not readers[-1].at_eof()


async def test_who_is_being_answered_is_not_closed_for_others(
    service: Service, engine: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with port_of(service, most=4) as port, port.client() as http:
        model = await fork(http)
        path = f"/v1/models/{model['id']}/train/events"
        async with http.stream("GET", path) as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == ": open"
            for _ in range(12):  # beyond twice as many
                await port.open()
            async with port.client() as other:
                assert (await other.get("/v2/auth/me")).status_code == 200
            await submit(http, model["id"], steps=1)
            async with asyncio.timeout(PATIENCE_S):
                while not (await anext(lines)).startswith("data:"):
                    pass


async def test_a_body_that_does_not_come_is_given_up(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_module, "CHUNK_S", 0.2)
    async with port_of(service) as port:
        head = (
            "POST /v2/models/fork HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n"
            f"Authorization: Bearer {service.api_key}\r\n\r\n{{"
        )
        reader = await port.open(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 408 " in answer


def test_open_files_are_raised_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": (1024, 9000)}

    def setrlimit(which: int, wanted: tuple[int, int]) -> None:
        limits["now"] = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda which: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    assert raise_open_files() == 9000
    assert limits["now"] == (9000, 9000)
    limits["now"] = (1024, resource.RLIM_INFINITY)
    assert raise_open_files() == FILES
    assert [room(files) for files in (256, 1024, 9000)] == [16, 384, MOST]


@pytest.fixture
def seldom() -> Iterator[list[str]]:
    """What a handler with the filter lets through."""
    said: list[str] = []
    log = logging.getLogger("seldom")
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    handler.addFilter(RateLimit())
    log.addHandler(handler)
    log.propagate = False
    yield said
    log.removeHandler(handler)


def test_a_line_that_repeats_is_said_once_a_second(
    seldom: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("hud_tui.service.serving.monotonic", lambda: clock[0])
    for second in range(3):
        for _ in range(500):
            logging.getLogger("seldom").error("too many %s", "files")
        logging.getLogger("seldom").error("another")
        clock[0] += 1.0
        assert second < 3
    more = "too many files (499 more like it)"
    assert seldom == ["too many files", "another", more, "another", more, "another"]


async def test_a_stopped_engine_keeps_the_service_from_ending_for_a_while_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "REPORTED_S", 1)
    monkeypatch.setattr(dispatch, "PATIENCE_S", 0.1)
    others = children()
    async with Service(tmp_path, TinyEngine()) as service, calling(service) as http:
        job_id = await submit(http, (await fork(http))["id"], steps=5000)
        await reach(http, job_id)
        [worker] = children() - others
        os.kill(worker, signal.SIGSTOP)

        async def said() -> bool:
            waits = (await status_of(http, job_id))["waits"] or ""
            return "which does not answer" in waits

        await until(said)
    assert worker not in children(), "it was killed"


async def test_no_process_of_the_engine_outlives_a_service_that_is_killed(tmp_path: Path) -> None:
    async with serve_process(tmp_path, "--cores", "3") as service:
        async with AsyncClient(
            base_url=service.ready.url, headers=bearer(service.ready.api_key), timeout=60.0
        ) as http:
            await submit(http, (await fork(http))["id"], steps=5000)
            await until(lambda: len(children(service.ready.pid)) == 3)
        own = children(service.ready.pid)
        os.kill(service.ready.pid, signal.SIGKILL)
        await until(lambda: not any(map(alive, own)))


def children(pid: int | None = None) -> set[int]:
    """The processes that one has started, or this one, and that live."""
    found = ["pgrep", "-P", str(pid or os.getpid())]
    done = subprocess.run(found, capture_output=True, text=True, check=False)
    return {int(line) for line in done.stdout.split()}
