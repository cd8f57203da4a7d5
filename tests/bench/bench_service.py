"""The embedded service under load: many readers, a long tree, a store that is full.

- A run on the tiny engine in a service of its own, in turns alone and with 64 clients that
  poll the tree and 8 that follow the events; its steps may take 1.10 times as long, no
  request may fail, and no follower may miss an event. Each turn under load is compared with
  the turns alone before and after it, and of all these ratios the median counts: what else
  the machine does for longer than a turn is in both.
- The tree of 1 000 checkpoints, over a socket: 500 a second where nothing else runs.
- An optimizer step in a tree of 100 000 checkpoints, beside one in a tree of 10.
"""

import asyncio
import contextlib
import json
import socket
import tempfile
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from urllib.parse import urlsplit

import httpx
from httpx_sse import EventSource

from hud_tui.client.feed import BUSY_S
from hud_tui.service.batches import Trajectory, Turn, make_batch
from hud_tui.service.engines.base import Adam, SampleRequest
from hud_tui.service.service import Service
from hud_tui.service.store import models
from hud_tui.service.store.db import Db
from hud_tui.service.store.models import ModelRow
from hud_tui.wire import Checkpoint, Group
from tests.bench.by_hand import read_answer, request_of
from tests.bench.timing import Goal, best_s, in_turns, missed
from tests.conftest import Process, bearer, fork, serve_process, submit
from tests.toy_engine import ToyEngine

POLLERS, FOLLOWERS = 64, 8
ROUNDS, STEPS = 12, 10
"""Turns under load, with one alone before each and one after the last; steps in a turn."""
SLOWER = 1.10
PAGE, A_PAGE = 1_000, Goal(2.0, 0.37)
FEW, MANY, STEP_RATIO = 10, 100_000, 1.15


class Load:
    """Readers of one model's run, who can be sent away and called back."""

    def __init__(self, http: httpx.AsyncClient, model_id: str) -> None:
        self._http, self._model_id = http, model_id
        self._tasks: list[asyncio.Task[None]] = []
        self.seen: list[list[int]] = [[] for _ in range(FOLLOWERS)]
        """Event ids that each follower has had."""
        self.polls = 0

    def start(self) -> None:
        followers = [self._follow(number) for number in range(FOLLOWERS)]
        pollers = [self._poll(number) for number in range(POLLERS)]
        self._tasks = [asyncio.create_task(work) for work in (*followers, *pollers)]

    async def stop(self) -> None:
        """Raises what went wrong for any of them."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _poll(self, number: int) -> None:
        """Over a bare connection: the clients are not to take the processor that is measured."""
        await asyncio.sleep(BUSY_S * number / POLLERS)
        url = self._http.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        etag = ""
        try:
            while True:
                key = self._http.headers["authorization"]
                writer.write(tree_request(self._model_id, url.netloc.decode(), key, etag))
                status, headers = await read_answer(reader)
                assert status in (200, 304), headers
                etag = headers["etag"]
                self.polls += 1
                await asyncio.sleep(BUSY_S)
        finally:
            writer.close()

    async def _follow(self, number: int) -> None:
        """Where it was sent away it resumes after the last event that it had."""
        ids = self.seen[number]
        headers = {"Last-Event-ID": str(ids[-1])} if ids else {}
        url = f"/v1/models/{self._model_id}/train/events"
        async with self._http.stream("GET", url, headers=headers) as answer:
            async for event in EventSource(answer).aiter_sse():
                ids.append(int(event.id))


def tree_request(model_id: str, host: str, authorization: str, etag: str = "") -> bytes:
    line = f"GET /v2/models/{model_id}/checkpoints"
    return request_of(line, host, authorization, etag=etag).encode()


class Witness:
    """One more follower, who never leaves."""

    def __init__(self, http: httpx.AsyncClient, model_id: str) -> None:
        self._http, self._model_id = http, model_id
        self.seen: list[int] = []
        """Ids of all events since it came."""

    async def steps(self) -> AsyncIterator[float]:
        url = f"/v1/models/{self._model_id}/train/events"
        async with self._http.stream("GET", url) as answer:
            async for event in EventSource(answer).aiter_sse():
                self.seen.append(int(event.id))
                if event.event == "step":
                    yield perf_counter()
                if event.event == "work" and json.loads(event.data)["work"]["status"] == "failed":
                    raise AssertionError(event.data)


async def readers() -> tuple[float, int, list[str]]:
    """How much longer a step takes under load, polls answered, and what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        async with serve_process(Path(folder)) as process, connected(process) as http:
            model = await fork(http)
            job = await submit(http, model["id"], steps=10_000, seed=1)
            load, witness = Load(http, model["id"]), Witness(http, model["id"])
            ratio = await under(load, witness)
            await http.post("/v2/rollouts/cancel_job", json={"job_id": job})
            return ratio, load.polls, lost(load, witness)


async def under(load: Load, witness: Witness) -> float:
    """A step's seconds under load, in those alone."""
    arrivals = witness.steps()
    alone, loaded = [await turn(arrivals)], []
    for _ in range(ROUNDS):
        load.start()
        await anext(arrivals)
        loaded.append(await turn(arrivals))
        await load.stop()
        await anext(arrivals)
        alone.append(await turn(arrivals))
    await arrivals.aclose()
    return in_turns(loaded, alone)


async def turn(arrivals: AsyncIterator[float]) -> float:
    """Seconds of a step: the median of a turn's, as every fifth samples the held-out tasks too."""
    times = [await anext(arrivals) for _ in range(STEPS + 1)]
    return median(after - before for before, after in pairwise(times))


def lost(load: Load, witness: Witness) -> list[str]:
    """What any follower lacks of the events between its first and its last."""
    return [
        f"follower {number} had not exactly the events from its first to its last"
        for number, ids in enumerate(load.seen)
        if ids != [id_ for id_ in witness.seen if ids[0] <= id_ <= ids[-1]]
    ]


@contextlib.asynccontextmanager
async def connected(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
    headers = bearer(process.ready.api_key)
    async with httpx.AsyncClient(
        base_url=process.ready.url, headers=headers, limits=limits, timeout=60
    ) as http:
        yield http


def plant(db: Db, model: ModelRow, count: int) -> None:
    """A chain of checkpoints as steps would have made it, its head at the end."""
    groups = [Group(task_slug=f"add-{n}", rewards=[0.0, 1.0] * 4) for n in range(4)]
    metrics = {f"metric_{n}": n / 7 for n in range(24)}
    rows = []
    for step in range(1, count + 1):
        id_ = f"{model.id[:8]}-{step:06d}"
        parent = f"{model.id[:8]}-{step - 1:06d}" if step > 1 else None
        row = Checkpoint(
            id=id_,
            name=f"step-{step:06d}",
            checkpoint_name=id_,
            prev_model_checkpoint_id=parent,
            mean_reward=step / count,
            metrics=metrics,
            groups=groups,
            step=step,
        )
        body = row.model_dump_json(exclude={"is_active", "state", "pinned"})
        rows.append((id_, model.id, parent, step, row.name, id_, "planted://x", body, step / count))
    db.executemany(
        "INSERT INTO checkpoint (id, model_id, parent_id, step, name, sampler_path, state_path,"
        " body, reward) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    db.execute("INSERT INTO head (model_id, checkpoint_id) VALUES (?, ?)", (model.id, rows[-1][0]))


def planted_fork(db: Db, name: str, count: int) -> ModelRow:
    model = models.fork(db, models.find(db, ToyEngine().bases()[0].name), name)
    plant(db, model, count)
    return models.find(db, model.id)


class Planted(ToyEngine):
    """Opens planted states as the base."""

    async def open(self, source: str | Path) -> str:
        planted = isinstance(source, Path) and "planted" in str(source)
        return await super().open(self.bases()[0].name if planted else source)


async def pages() -> tuple[float, int]:
    """Seconds of one page over a socket, and its size in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        async with Service(Path(folder), Planted()) as service:
            model = await service.parts.store.write(planted_fork, "long", PAGE)
        async with serve_process(Path(folder)) as process:
            return await asyncio.to_thread(page_s, process, model.id)


def page_s(process: Process, model_id: str) -> tuple[float, int]:
    """Least seconds of a page, out of several hundred that are asked for in a row."""
    parts = urlsplit(process.ready.url)
    asked = tree_request(model_id, parts.netloc, f"Bearer {process.ready.api_key}")
    buffer = bytearray(1 << 20)
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as line:
        size = read_page(line, asked, buffer)
        taken = best_s(lambda: [read_page(line, asked, buffer) for _ in range(50)], 8) / 50
    return taken, size


def read_page(line: socket.socket, asked: bytes, buffer: bytearray) -> int:
    """Ask for a page and read all of it; bytes of its body."""
    line.sendall(asked)
    got = b""
    while b"\r\n\r\n" not in got:
        got += line.recv(4096)
    head, _, body = got.partition(b"\r\n\r\n")
    assert b" 200 " in head.splitlines()[0], head
    fields = dict(row.lower().split(b": ", 1) for row in head.splitlines()[1:])
    size = left = int(fields[b"content-length"])
    left -= len(body)
    while left:
        left -= line.recv_into(buffer, min(left, len(buffer)))
    return size


async def long_trees() -> float:
    """An optimizer step in a tree of MANY, in steps in a tree of FEW in the same store."""
    with tempfile.TemporaryDirectory() as folder:
        async with Service(Path(folder), Planted()) as service:
            few = await service.parts.store.write(planted_fork, "few", FEW)
            many = await service.parts.store.write(planted_fork, "many", MANY)
            times: dict[str, list[float]] = {few.id: [], many.id: []}
            for _ in range(40):
                for model in (few, many):
                    times[model.id].append(await step_s(service, model))
            return median(times[many.id]) / median(times[few.id])


async def step_s(service: Service, model: ModelRow) -> float:
    """Seconds of an optimizer step, without its pass."""
    session, tokens = service.parts.session(model), await service.parts.tokenizer(model)
    prompt = tokens.render([{"role": "user", "content": "3 + 4 = ?"}])
    async with service.parts.policies.borrow(model, None) as handle:
        said = await service.parts.engine.sample(handle, [SampleRequest(prompt, 8)] * 2)
    turns = [Turn(prompt, one.tokens, one.logprobs) for one in said]
    pair = [Trajectory([turn], float(n), "sum") for n, turn in enumerate(turns)]
    async with session.lock:
        await session.forward_backward(make_batch(pair, 2, "ppo"), "ppo")
        start = perf_counter()
        await session.optim_step(Adam(0.001))
        return perf_counter() - start


def main() -> int:
    ratio, polls, wrong = asyncio.run(readers())
    print(
        f"a run's step with {POLLERS} pollers and {FOLLOWERS} followers: {ratio:.2f} times as long,"
        f" {polls} polls answered; goal {SLOWER:.2f}"
    )
    print(f"events under that load: {', '.join(wrong) or 'none lost'}; goal none lost")
    taken, size = asyncio.run(pages())
    slow = missed([(f"a page of {PAGE} checkpoints, {size >> 10} kB", taken, A_PAGE)])
    longer = asyncio.run(long_trees())
    print(f"a step after {MANY} checkpoints: {longer:.2f} of one after {FEW}; goal {STEP_RATIO}")
    return bool(wrong) or slow or ratio > SLOWER or longer > STEP_RATIO
