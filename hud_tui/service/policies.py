"""Open policies: which handle samples which weights, who uses it, and the files behind it.

The head is sampled through the training handle while that is at the head, or a view of it where the
engine has such, else through a handle opened from the node's file. A few of the latter stay open;
the least recently used is closed first. A policy in use is closed only when its last user is done.
"""

import asyncio
import contextlib
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import file_digest
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from hud_tui.rl.stopwatch import EngineCall, Stopwatch
from hud_tui.rl.timeline import ENGINE, EVALUATION
from hud_tui.service.engines.base import (
    BEGUN,
    Engine,
    EngineError,
    EngineLost,
    Handle,
    PolicyLost,
    StateDamaged,
    StateGone,
)
from hud_tui.service.http import Refused
from hud_tui.service.store import checkpoints
from hud_tui.service.store.checkpoints import File, Node, Row
from hud_tui.service.store.db import Db, Store, without_damaged
from hud_tui.service.store.models import ModelRow

# Weights: a checkpoint's file is loaded only if its checksum is the one that was saved.
#
# A missing or different file makes its checkpoint `damaged`: its row says so, and requests that
# need the file are refused. The file is checked again each time, so restoring it is enough.


T = TypeVar("T")
log = logging.getLogger(__name__)

SURVEY_S = 2.0
"""Longest time for reading the heads' files at start-up, seconds; the rest is read when loaded."""
NAMED = 5


class Weights:
    def __init__(self, store: Store, data_dir: Path) -> None:
        self._store = store
        self._data_dir = data_dir

    async def check(self, state_path: str) -> None:
        """Check a state before it is loaded, or becomes the head. Raises Refused, 410, its file is
        missing, or not the one that was saved."""
        row = await self._store.read(checkpoints.row, state_path)
        if row is None or "://" in state_path:
            return
        problem = await asyncio.to_thread(damage_of, self._data_dir / state_path, row.sha256)
        if problem != row.damage:
            await self._store.write(checkpoints.mark, state_path, problem)
        still = await self._store.read(checkpoints.row, state_path)
        if problem and still is not None:  # unless retention has just deleted it
            raise await self._refusal(still, problem)

    async def knows(self, state_path: str) -> bool:
        """Whether a checkpoint has its state in this file at present."""
        return await self._store.read(checkpoints.row, state_path) is not None

    async def gone(self, state_path: str) -> None:
        """Record that a server no longer has this state."""
        await self._store.write(checkpoints.gone, state_path)

    async def unreadable(self, state_path: str, problem: str) -> None:
        """Record that the engine could not read a state. Raises Refused, 410."""
        row = await self._store.read(checkpoints.row, state_path)
        if row is not None:
            await self._store.write(checkpoints.mark, state_path, problem)
            raise await self._refusal(row, problem)

    async def survey(self) -> None:
        """At start-up: look for every file, and read those of the heads."""
        rows = await self._store.read(checkpoints.weights_rows)
        changes = await asyncio.to_thread(_survey, self._data_dir, rows)
        if changes:
            await self._store.write(_mark_all, changes)
        damaged = [(row, problem) for row, problem in changes if problem]
        for row, problem in damaged[:NAMED]:
            log.warning("%s of %s is damaged: %s", row.name, row.model, problem)
        if len(damaged) > NAMED:
            log.warning("%d more checkpoints are damaged", len(damaged) - NAMED)

    async def _refusal(self, row: Row, problem: str) -> Refused:
        near = await self._store.read(checkpoints.whole, row)
        others = f"or choose an intact checkpoint: {', '.join(near)}"
        return Refused(
            410,
            f"{row.name} of {row.model} is damaged: {problem}. Restore the file from a backup"
            f" and try again, {others if near else 'or fork its base again'}",
        )


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits. Raises OSError."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def saved_file(data_dir: Path, directory: Path, state_path: str) -> File:
    """The file saved into a directory, with its checksum."""
    is_here = "://" not in state_path
    sha256 = checksum(data_dir / state_path) if is_here else None
    return File(state_path, size_of(directory), sha256)


def size_of(directory: Path) -> int:
    """Total size of a directory's files, bytes."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def damage_of(path: Path, sha256: str | None) -> str | None:
    """What is wrong with the file ``…/checkpoints/ID/NAME``, in words; None if it is the one that
    was saved, with this checksum if one is known."""
    shown = "/".join(path.parts[-3:])
    try:
        if sha256 is None:
            path.stat()
        elif checksum(path) != sha256:
            return f"{shown} does not match its checksum"
    except FileNotFoundError:
        return f"{shown} is missing"
    except OSError as error:
        return f"{shown} cannot be read: {error.strerror}"
    return None


def _survey(data_dir: Path, rows: Sequence[Row]) -> list[tuple[Row, str | None]]:
    """The rows whose files have changed their condition, with what is wrong now."""
    until = monotonic() + SURVEY_S
    changes = []
    for row in rows:
        if "://" in row.path:
            continue
        reads = row.damage is not None or (row.is_head and monotonic() < until)
        problem = damage_of(data_dir / row.path, row.sha256 if reads else None)
        if problem != row.damage:
            changes.append((row, problem))
    return changes


def _mark_all(db: Db, changes: Sequence[tuple[Row, str | None]]) -> None:
    for row, problem in changes:
        with without_damaged(db, f"{row.name} of {row.model}"):
            checkpoints.mark(db, row.path, problem)


@contextmanager
def telling(variable: ContextVar[T], listener: T) -> Iterator[None]:
    """Have the engine tell a listener what it tells by one of its variables, e.g. `STEPPED`."""
    token = variable.set(listener)
    try:
        yield
    finally:
        variable.reset(token)


OPEN = 8
"""Policies kept open for sampling, in addition to those that train."""


@dataclass
class Policy:
    """One open handle."""

    handle: Handle
    generation: int
    users: int = 0
    retired: bool = False
    held: bool = False
    """Whether its weights are about to change, so that nobody may begin to sample."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever its last user is done."""


@dataclass
class Trained:
    """A policy that trains a model."""

    source: str
    """Of its present weights."""
    policy: Policy
    views: Mapping[str, Policy]
    """To sample its weights while it steps, by their source: the present ones, and those before a
    step that is not in the tree yet. None if the engine has no views."""


class Policies:
    def __init__(self, engine: Engine, data_dir: Path, weights: Weights) -> None:
        """State paths are relative to `data_dir`."""
        self._engine = engine
        self._data_dir = data_dir
        self._weights = weights
        self._sampling: OrderedDict[str, Policy] = OrderedDict()
        self._training: dict[str, Trained] = {}
        """By model id."""
        self._opening: Counter[str] = Counter()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By source: held while it is opened for sampling."""
        self.evaluating = 0
        """Parts of evaluations that the engine has to sample."""
        self._generation = 0
        self._closing: set[asyncio.Task[None]] = set()
        """Closing tasks of policies that nobody waits for."""

    def sources(self) -> set[str]:
        """Sources that are open or being opened."""
        training = {trained.source for trained in self._training.values()}
        return {*self._sampling, *training, *+self._opening}

    def opens(self, source: str) -> bool:
        """Whether this source is being opened."""
        return self._opening[source] > 0

    def source(self, model: ModelRow, node: Node | None) -> str:
        """Source of a node's weights, or of an untrained model: a state path, or the name of a
        base."""
        return node.state_path if node else model.state_path or model.base

    async def open(self, source: str, model: ModelRow) -> Policy:
        """Open weights under a new handle. Raises Refused, 410, their file is missing or damaged;
        PolicyLost: retention moved them meanwhile: their checkpoint has another file."""
        generation = self._generation
        target: str | Path = source
        if source != model.base:
            target = Path(source) if "://" in source else self._data_dir / source
        self._opening[source] += 1
        try:
            if source != model.base:
                await self._weights.check(source)
            return Policy(await self._opened(target), generation)
        except EngineLost as error:
            if not isinstance(error, PolicyLost):
                self.lost(generation)
            raise
        except StateDamaged as error:
            await self._weights.unreadable(source, str(error))
            raise
        except EngineError as error:
            if source != model.base and not await self._weights.knows(source):
                raise PolicyLost(f"{source} was thinned while it was opened") from error
            raise
        finally:
            self._opening[source] -= 1

    async def _opened(self, target: str | Path) -> Handle:
        """The engine's handle; if the caller is cancelled, it is closed as soon as it is open."""
        opening = asyncio.ensure_future(self._engine.open(target))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:

            async def close() -> None:
                with contextlib.suppress(EngineError):
                    await self._engine.close(await opening)

            self._begin(close())
            raise

    def _begin(self, closing: Coroutine[Any, Any, None]) -> None:
        """Begin to close a policy that nobody waits for."""
        task = asyncio.ensure_future(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def trains(self, model_id: str, source: str, policy: Policy, is_stored: bool = True) -> None:
        """Record that this policy trains the model and has the weights of `source`. `is_stored`:
        whether they are in the tree, so that those before are no longer the head."""
        before = self._training.get(model_id)
        views = {} if before is None or before.policy is not policy else dict(before.views)
        view = None if source in views else self._engine.view(policy.handle)
        if view is not None:
            views[source] = Policy(view, policy.generation)
        for other in [other for other in views if is_stored and other != source]:
            self._begin(self.retire(views.pop(other)))
        self._training[model_id] = Trained(source, policy, views)
        self.release(policy)

    async def hold(self, policy: Policy) -> None:
        """Wait until nobody samples from a policy that is about to step, and let nobody begin.
        Until `trains` is called, with the source of its new weights, its old ones are sampled from
        their file. Nobody does who has a view of them, so no step waits for what others sample."""
        policy.held = True
        try:
            while policy.users:
                policy.left.clear()
                await policy.left.wait()
        except asyncio.CancelledError:
            self.release(policy)
            raise

    def release(self, policy: Policy) -> None:
        """Undo `hold` after a step that was not taken: the weights are unchanged."""
        policy.held = False

    async def retire(self, policy: Policy) -> None:
        """Close a policy as soon as nobody uses it."""
        self._leave(policy)
        if policy.users == 0 and policy.generation == self._generation:
            await self._engine.close(policy.handle)

    @asynccontextmanager
    async def borrow(
        self, model: ModelRow, node: Node | None, pinned: bool = False
    ) -> AsyncIterator[Handle]:
        """A handle that samples exactly these weights, open until the block ends.

        Args:
            node: The checkpoint; None for the weights that the model started from.
            pinned: Whether later requests will sample the same checkpoint: its policy is then
                separate from training, and stays open, and on disk, for a while.
        """
        policy = await self._take(model, self.source(model, node), pinned)
        try:
            yield policy.handle
        except PolicyLost:
            self._leave(policy)
            raise
        except EngineLost:
            self.lost(policy.generation)
            raise
        except StateGone:
            self._leave(policy)
            await self.gone(model, node)
            raise
        finally:
            policy.users -= 1
            if policy.users == 0:
                policy.left.set()
            if policy.retired and policy.users == 0:
                await self.retire(policy)

    @contextmanager
    def calling(self, watch: Stopwatch, kind: str, number: float = 1.0) -> Iterator[EngineCall]:
        """Around a call of the engine, which may serve others first; `number`: as in
        `TimedSpan`."""
        with watch.measure(kind, number, self.waits_for) as call, telling(BEGUN, call.begun):
            yield call

    @property
    def waits_for(self) -> str:
        """What a call of the engine waits for now."""
        return EVALUATION if self.evaluating else ENGINE

    async def gone(self, model: ModelRow, node: Node | None) -> None:
        """Record that the state of these weights no longer exists."""
        if node is not None or model.state_path:
            await self._weights.gone(self.source(model, node))

    async def _take(self, model: ModelRow, source: str, pinned: bool) -> Policy:
        """The policy that samples these weights, with one more user."""
        trained = None if pinned else self._training.get(model.id)
        if trained is not None and self.alive(trained.policy):
            is_there = trained.source == source and not trained.policy.held
            there = trained.views.get(source) or (trained.policy if is_there else None)
            if there is not None and self.alive(there):
                there.users += 1
                return there
        # of all that ask for the same weights at once, one opens them
        async with self._locks.setdefault(source, asyncio.Lock()):
            policy = self._sampling.get(source)
            if policy is None or not self.alive(policy):
                policy = self._sampling[source] = await self.open(source, model)
        policy.users += 1
        self._sampling.move_to_end(source)
        while len(self._sampling) > OPEN:
            await self.retire(self._sampling.popitem(last=False)[1])
        return policy

    def alive(self, policy: Policy) -> bool:
        """Whether the engine still knows the policy's handle."""
        return policy.generation == self._generation and not policy.retired

    def _leave(self, policy: Policy) -> None:
        """Stop lending a policy; it is closed when its last user is done."""
        policy.retired = True
        for source in [key for key, open_ in self._sampling.items() if open_ is policy]:
            del self._sampling[source]
        for model_id in [id_ for id_, of in self._training.items() if of.policy is policy]:
            for view in self._training.pop(model_id).views.values():
                self._begin(self.retire(view))

    def lost(self, generation: int) -> None:
        """Record that the engine stopped: all handles of this generation are invalid."""
        if generation == self._generation:
            self._generation += 1
            self._sampling.clear()
            self._training.clear()
