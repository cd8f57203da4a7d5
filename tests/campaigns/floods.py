"""Floods: connections and bodies that mean no good, while a run trains.

``python -m tests.campaigns floods --count 1100`` opens so many silent connections at once to a
service in a process of its own, and beside every fourth of them another: headers and bodies drop
by drop, bodies without end with a key and without, other hosts, other origins, and bytes that
are no HTTP. Loopback only. Meanwhile
somebody with a key asks again and again: the answer must come in time, the memory and the log
stay small, and the run must succeed.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import httpx

from hud_tui.service.connections import raise_open_files
from tests.campaigns.campaign import Campaign, Plan, Report
from tests.conftest import Process, fork, serve_process, submit, until
from tests.service.calls import Json

AT_ONCE = 1100
HOLD_S = 8.0
"""How long an attacker keeps at it."""
BOUND_S = 10.0
"""Longest that others may wait for an answer."""
MEMORY = 500 * 2**20
"""Most bytes that the service may hold meanwhile."""
LOG = 16 * 2**10
"""Most bytes of its log."""
STEPS = 40
STEP_S = 50.0
"""Longest that a step of the run may take once the flood is over."""
PIECE = b"0," * 2**16
MANY = 400
"""Pieces of a body without end: 50 MB."""
KINDS = ("crashes", "hangs", "leaks")


class Target:
    def __init__(self, service: Process, log: Path) -> None:
        self.key, self.process, self.log = service.ready.api_key, service.process, log
        self.port = int(service.ready.url.rpartition(":")[2])
        self.client = service.client


@dataclass(frozen=True)
class Line:
    target: Target
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def head(self, path: str, *lines: str, host: str = "127.0.0.1") -> bytes:
        method = "GET" if path == MODELS else "POST"
        said = (f"{method} {path} HTTP/1.1", f"Host: {host}", *lines)
        return ("\r\n".join(said) + "\r\n").encode()

    def key_head(self, path: str, *lines: str, **how: str) -> bytes:
        """One with the service's key."""
        return self.head(path, f"Authorization: Bearer {self.target.key}", *lines, **how)

    async def send(self, said: bytes) -> None:
        self.writer.write(said)
        await self.writer.drain()

    async def drip(self, head: bytes, drop: bytes, pause_s: float = 0.2) -> None:
        """After a head the same again and again, until it is closed."""
        self.writer.write(head)
        while not self.reader.at_eof():
            await self.send(drop)
            await asyncio.sleep(pause_s)

    async def pour(self, head: bytes) -> None:
        """A body of 50 MB that is nothing but small numbers, whatever is answered."""
        self.writer.write(head)
        for piece in [b"[", *[PIECE] * MANY]:
            await self.send(b"%x\r\n%s\r\n" % (len(piece), piece))

    async def ask(self, head: bytes) -> None:
        while not self.reader.at_eof():
            await self.send(head)
            await self.reader.readuntil(b"\r\n\r\n")


Attack = Callable[[Line], Awaitable[object]]


async def silent(line: Line) -> None:
    await line.reader.read()


async def no_http(line: Line) -> None:
    await line.send(bytes(range(256)) * 8)
    await line.reader.read()


CHUNKED = ("Transfer-Encoding: chunked", "")
CHAT, FORK, TRAIN = "/chat/completions", "/v2/models/fork", "/v1/models/x/train/forward-backward"
LARGE = b"X-More: " + b"x" * 2**14 + b"\r\n"
EVENTS, MODELS = "/telemetry/v3/api/sdk-events/cli", "/v2/models"
ATTACKS: dict[str, tuple[int, Attack]] = {
    "slow headers": (10, lambda line: line.drip(line.head(CHAT), b"X-Drop: 1\r\n")),
    "endless headers": (2, lambda line: line.drip(line.head(CHAT), LARGE, pause_s=0)),
    "slow body": (5, lambda line: line.drip(line.key_head(FORK, "Content-Length: 9999", ""), b" ")),
    "keyless body": (2, lambda line: line.pour(line.head(EVENTS, *CHUNKED))),
    "large body": (1, lambda line: line.pour(line.key_head(TRAIN, *CHUNKED))),
    "other host": (5, lambda line: line.ask(line.key_head(MODELS, "", host="127.0.0.1.evil"))),
    "other origin": (5, lambda line: line.ask(line.key_head(MODELS, "Origin: http://evil", ""))),
    "no HTTP": (5, no_http),
}
"""What goes beside the silent ones, and how often for one of the others."""
BESIDE = 4
"""One of them for so many silent connections."""


async def connect(target: Target, attack: Attack) -> None:
    """One connection, until it is closed or the time is up."""
    with suppress(OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
        async with asyncio.timeout(HOLD_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
            try:
                await attack(Line(target, reader, writer))
            finally:
                writer.transport.abort()


async def watch(target: Target, report: Report) -> None:
    """Ask as a user does, each time on a connection of its own, and look at what it costs."""
    worst_s = most = 0.0
    try:
        while True:
            began, said = monotonic(), ""
            try:
                async with target.client() as http:
                    answer = await http.get("/v2/auth/me")
                    said = "" if answer.status_code == 200 else answer.text
            except httpx.HTTPError as error:
                said = f"{type(error).__name__}: {error}"
            took_s = monotonic() - began
            if target.process.returncode is not None:
                report.found("crashes", f"the service ended: {target.process.returncode}")
                return
            if said or took_s > BOUND_S:
                report.found("hangs", f"GET /v2/auth/me: {took_s:.1f} s {said}")
            held = await memory(target.process.pid)
            if held > MEMORY > most:
                report.found("leaks", f"{held / 2**20:.0f} MB in memory")
            worst_s, most = max(worst_s, took_s), max(most, held)
            await asyncio.sleep(0.2)
    finally:
        logged = target.log.stat().st_size
        print(f"worst answer {worst_s:.2f} s, most memory {most / 2**20:.0f} MB, log {logged} B")


async def memory(pid: int) -> int:
    asked = await asyncio.create_subprocess_exec(
        "ps", "-o", "rss=", "-p", str(pid), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asked.communicate()
    return int(out.strip() or 0) * 1024


@asynccontextmanager
async def target_in(directory: Path) -> AsyncIterator[Target]:
    """A service of its own; its log is kept to be measured."""
    log = directory / "log"
    with log.open("wb") as stderr:
        async with serve_process(directory / "data", stderr=stderr) as service:
            yield Target(service, log)


async def outcome(http: httpx.AsyncClient, job_id: str) -> Json:
    """How the run ended; how it stands if it takes no step for `STEP_S`."""
    status: Json = {"status": "running", "step": -1}

    async def moves() -> bool:
        nonlocal status
        before = status
        status = (await http.get(f"/v1/training/jobs/{job_id}/raw-status")).json()
        return (status["status"], status["step"]) != (before["status"], before["step"])

    with suppress(TimeoutError):
        while status["status"] in ("queued", "running"):
            await until(moves, STEP_S)
    return status


async def play(plan: Plan, report: Report) -> None:
    at_once = min(AT_ONCE, raise_open_files() - 500)
    chance = plan.random
    weights, attacks = zip(*ATTACKS.values(), strict=True)
    with tempfile.TemporaryDirectory() as directory:
        async with target_in(Path(directory)) as target, target.client() as http:
            model = await fork(http)
            job_id = await submit(http, model["id"], steps=STEPS, tasks_per_step=4)
            watching = asyncio.create_task(watch(target, report))
            room, under_way = asyncio.Semaphore(at_once), set[asyncio.Task[None]]()
            for number in plan.rounds(report):
                await room.acquire()
                begun = [asyncio.create_task(connect(target, silent))]
                begun[0].add_done_callback(lambda done: room.release())
                if number % BESIDE == 0:
                    [beside] = chance.choices(attacks, weights)
                    begun.append(asyncio.create_task(connect(target, beside)))
                for task in begun:
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
            await asyncio.gather(*under_way)
            status = await outcome(http, job_id)
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            if (status["status"], status["step"]) != ("succeeded", STEPS):
                report.found("hangs" if status["status"] == "running" else "crashes", f"{status}")
            if target.log.stat().st_size > LOG:
                report.found("leaks", f"a log of {target.log.stat().st_size} bytes")


CAMPAIGN = Campaign("floods", "silent connections", AT_ONCE, 24, play, KINDS)
