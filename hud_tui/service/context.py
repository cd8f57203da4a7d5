"""ServiceContext: the collaborators that all parts of the service share."""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import TypeVar
from weakref import WeakValueDictionary

from hud_tui.patience import backoff, rest
from hud_tui.rl.stopwatch import EngineCall, Stopwatch
from hud_tui.rl.timeline import EVALUATING, SAMPLING
from hud_tui.service.batches import Origins
from hud_tui.service.data_dir import Retention
from hud_tui.service.engines.base import BEGUN, Base, Engine, Tokenizer
from hud_tui.service.http import Refused
from hud_tui.service.policies import Policies, Weights, telling
from hud_tui.service.session import Session
from hud_tui.service.store import checkpoints
from hud_tui.service.store.db import Store
from hud_tui.service.store.events import Frames, Hub
from hud_tui.service.store.jobs import Stopped
from hud_tui.service.store.models import ModelRow

T = TypeVar("T")
log = logging.getLogger(__name__)

# Trees: every model's checkpoint tree as the bytes of its JSON, updated row by row.


MOST_TREES = 32
"""Most trees cached; the least recently read is dropped first."""


@dataclass
class CachedTree:
    rows: list[bytes] = field(default_factory=list)
    """Row of step N at index N − 1."""
    body: bytes = b""
    etag: str = ""
    stale: set[str] = field(default_factory=set)
    """Ids of rows that changed since they were read."""
    reading: bool = False
    """Whether rows are read that `body` does not have yet."""

    @property
    def is_fresh(self) -> bool:
        return bool(self.body) and not self.stale and not self.reading


class Trees:
    def __init__(self) -> None:
        self._cached: dict[str, CachedTree] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._run, self._count = token_hex(4), 0

    def __contains__(self, model_id: str) -> bool:
        """Whether the model's tree is cached."""
        return model_id in self._cached

    def touch(self, touched: dict[str, set[str]]) -> None:
        """Mark rows as new or changed: checkpoint ids by model id."""
        for model_id, ids in touched.items():
            if model_id in self._cached:
                self._cached[model_id].stale |= ids

    async def read(self, store: Store, model_id: str) -> tuple[bytes, str]:
        """The tree as a JSON array, oldest first, and an ETag that changes with it."""
        tree = self._cached.get(model_id)
        if tree is None or not tree.is_fresh:
            async with self._locks.setdefault(model_id, asyncio.Lock()):
                tree = await self._renew(store, model_id)
        if self._cached.get(model_id) is tree:  # else its changes were not recorded meanwhile
            self._cached[model_id] = self._cached.pop(model_id)
        while len(self._cached) > MOST_TREES:
            del self._cached[next(iter(self._cached))]
        return tree.body, tree.etag

    async def _renew(self, store: Store, model_id: str) -> CachedTree:
        tree = self._cached.setdefault(model_id, CachedTree())  # from here on, changes are recorded
        if tree.is_fresh:
            return tree  # another request has updated it
        tree.reading = True
        try:
            if not tree.body:
                tree.rows = await store.read(checkpoints.tree, model_id)
            # Also what commits change while it is read: else rows of two states would be together,
            # perhaps without a head.
            while tree.stale:
                stale, tree.stale = tree.stale, set()
                for step, row in await store.read(checkpoints.rows, model_id, stale):
                    tree.rows[step - 1 : step] = [row]
        except BaseException:
            if self._cached.get(model_id) is tree:
                del self._cached[model_id]
            raise
        self._count += 1
        tree.body = b"[" + b",".join(tree.rows) + b"]"
        tree.etag = f'"{self._run}-{self._count}"'
        tree.reading = False
        return tree


TRAINING = 4
"""Most idle training policies kept open."""


class ServiceContext:
    def __init__(self, data_dir: Path, engine: Engine, max_disk: int) -> None:
        self.data_dir = data_dir
        self.engine = engine
        self.hub = Hub()
        self.trees = Trees()
        self.origins = Origins()
        self.frames = Frames()
        self.store = Store(data_dir / "service.db", self.hub.grew, self.trees.touch)
        self.weights = Weights(self.store, data_dir)
        self.policies = Policies(engine, data_dir, self.weights)
        self.retention = Retention(
            self.store, engine, self.policies, self.weights, data_dir, max_disk
        )
        self._sessions: dict[str, Session] = {}
        self._answering: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def session(self, model: ModelRow) -> Session:
        """The model's training session; there is one per model."""
        session = self._sessions.get(model.id)
        if session is None:
            session = self._sessions[model.id] = Session(
                model,
                self.store,
                self.engine,
                self.policies,
                self.weights,
                self.data_dir,
                self.retention.wake,
            )
        return session

    @contextmanager
    def sampling(self, model: ModelRow, trace_id: str | None, pinned: bool) -> Iterator[None]:
        """Around a request to the gateway: part of the time of whatever loop trains the model.
        `pinned`: whether it names the checkpoint, as evaluations do."""
        if model.is_base:
            yield
            return
        watch, wait = self.session(model).stopwatch, self.policies.waits_for
        call = EngineCall(watch.now)
        try:
            with telling(BEGUN, call.begun):
                yield
        finally:
            kind = EVALUATING if pinned and trace_id not in watch.rollouts else SAMPLING
            watch.call(kind, trace_id, call, wait)

    def measured(self, run_id: str) -> Stopwatch | None:
        """The stopwatch that measures a run, while it goes on."""
        watches = (session.stopwatch for session in self._sessions.values())
        return next((watch for watch in watches if watch.run_id == run_id), None)

    def stopwatch_of(self, trace_id: str) -> Stopwatch | None:
        """The stopwatch that measures a rollout."""
        watches = (session.stopwatch for session in self._sessions.values())
        return next((watch for watch in watches if trace_id in watch.rollouts), None)

    def answering(self, scope: str, key: str) -> asyncio.Lock:
        """Lock that is held while a write with this key is carried out and answered."""
        return self._answering.setdefault((scope, key), asyncio.Lock())

    async def rest(self) -> None:
        """Close the training policies that were used least recently and hold no gradients."""
        idle = [session for session in self._sessions.values() if session.idle]
        idle.sort(key=lambda session: session.used_at)
        for session in idle[: max(0, len(idle) - TRAINING)]:
            async with session.lock:
                await session.rest()

    def bases(self) -> dict[str, Base]:
        """The engine's bases, by their keys."""
        return {base.id: base for base in self.engine.bases()}

    def base(self, model: ModelRow) -> Base:
        """The base of a model. Raises Refused, 409: the running engine does not offer it."""
        base = self.bases().get(model.base)
        if base is None:
            raise Refused(
                409,
                f"{model.slug} is built on {model.base}, which the {self.engine.about().engine}"
                " engine does not offer: start the service with the engine it was made with",
            )
        return base

    async def tokenizer(self, model: ModelRow) -> Tokenizer:
        """The tokenizer of a model's base. Raises Refused as `base`, EngineError as the engine."""
        return await self.engine.tokenizer(self.base(model).id)


def trainable(model: ModelRow) -> ModelRow:
    """The model, if it is a fork. Raises Refused, 409: it is a shared base."""
    if model.is_base:
        raise Refused(409, f"{model.slug} is a shared base: fork it first")
    return model


# Runs and evaluations are tasks that a stop interrupts, and that a full disk keeps from ending.


class Stop:
    """Whether a run or an evaluation is to end, and as what."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.ends_as = "cancelled"
        """Status after the stop."""

    def request(self, ends_as: str) -> None:
        """Request that it ends as soon as no step, or part, is in progress."""
        self.ends_as = ends_as
        self.requested.set()

    async def unless(self, work: Awaitable[T]) -> T:
        """The result of `work`. Raises Stopped as soon as a stop is requested; the work is then
        cancelled."""
        task = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self.requested.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self.requested.is_set():
                raise Stopped
            return task.result()
        finally:
            for future in (task, stopping):
                future.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)


async def until_written(
    write: Callable[[], Awaitable[object]], closing: asyncio.Event, what: str
) -> None:
    """Store the end of a run or an evaluation; retried until it succeeds, since a full disk may be
    freed, or until the service closes."""
    failures = 0
    while True:
        try:
            await write()
            return
        except sqlite3.Error as error:
            log.warning("the end of %s could not be written: %s", what, error)
            if closing.is_set():
                return
        failures += 1
        await rest(backoff(failures), closing)
