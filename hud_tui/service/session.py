"""Passes: what was answered to gradient passes that carried a key.

They live as long as the gradients: in memory while these wait, and in the transaction of
the step that takes them. A restart forgets both, so asking again then does it anew.
"""

import asyncio
import shutil
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from time import monotonic, perf_counter

from hud_tui.service import batches
from hud_tui.service.batches import (
    CROSS_ENTROPY,
    Batch,
    Trajectory,
    flat_groups,
    nothing_to_train,
    of_step,
)
from hud_tui.service.engines.base import (
    Adam,
    Datum,
    Engine,
    EngineError,
    EngineLost,
    EngineRefused,
    Handle,
    NotFinite,
    PolicyLost,
    Saved,
    StateGone,
)
from hud_tui.service.http import Refused, bad_field, new_id, not_found
from hud_tui.service.policies import Policies, Policy, Weights, checksum
from hud_tui.service.store import checkpoints, replies
from hud_tui.service.store.checkpoints import File, NewCheckpoint, Node, Seen
from hud_tui.service.store.db import Db, Store
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.replies import KEPT, Kept


class Passes:
    def __init__(self) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def keep(self, kept: Kept) -> None:
        """A pass was done; its gradients wait."""
        self._kept[kept.asked.key] = kept
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def find(self, key: str) -> Kept | None:
        """What was answered to a key, if its pass was since the last step."""
        return self._kept.get(key)

    def waiting(self) -> list[Kept]:
        """Those whose gradients wait."""
        return [kept for kept in self._kept.values() if not kept.dropped]

    def stepped(self) -> None:
        """A step took the gradients, and the store has their replies."""
        for kept in self.waiting():
            del self._kept[kept.asked.key]

    def dropped(self) -> None:
        """The gradients are gone without a step."""
        for key, kept in self._kept.items():
            self._kept[key] = replace(kept, dropped=True)


# Accumulated: what the gradients that wait for a step came from, or why there are none.


TURNS, TOKENS = 2**18, 2**23
"""Most that may wait for one step: they are held in memory until then."""


@dataclass
class Accumulated:
    batches: list[Batch] = field(default_factory=list)
    passes: list[dict[str, float]] = field(default_factory=list)
    """The engine's figures, one dict a batch."""
    num_datums: int = 0
    """Turns that moved the gradient."""
    loss_fn: str = ""
    seconds: float = 0.0
    """Spent in passes."""
    turns: int = 0
    tokens: int = 0
    """Of all batches, prompts and outputs together."""
    refused: bool = False
    """Whether a step was refused because no batch had anything to step on."""

    def add(self, batch: Batch, figures: dict[str, float], num_datums: int, loss_fn: str) -> None:
        """One more batch was passed."""
        self.batches.append(batch)
        self.passes.append(figures)
        self.num_datums += num_datums
        self.loss_fn = loss_fn
        turns, tokens = _size(batch)
        self.turns += turns
        self.tokens += tokens

    def holds(self, batch: Batch) -> bool:
        """Whether there is room for another batch."""
        turns, tokens = _size(batch)
        return self.turns + turns <= TURNS and self.tokens + tokens <= TOKENS

    def refuse_full(self, batch: Batch) -> None:
        """Raises Refused, 413, where there is no room for another batch."""
        if not self.holds(batch):
            cure = "call optim-step first" if self.batches else "send fewer inputs a call"
            limit = f"{TURNS} turns and {TOKENS} tokens are the most that wait for one step"
            raise Refused(413, f"{limit}, and {self.turns} and {self.tokens} do: {cure}")

    @property
    def trajectories(self) -> list[Trajectory]:
        return [trajectory for batch in self.batches for trajectory in batch.trajectories]

    def refuse_empty(self) -> None:
        """Raises Refused, 409, where there is no gradient to step on; it says why."""
        if self.num_datums:
            return
        if not self.batches:
            raise Refused(409, "nothing is accumulated: call forward-backward first")
        self.refused = True
        if self.loss_fn == CROSS_ENTROPY:
            raise Refused(409, "nothing to step on: every reward, and so every weight, is 0")
        raise nothing_to_train([group for batch in self.batches for group in flat_groups(batch)])

    def nothing_moved(self, why: str) -> Refused:
        """409 for a step that the engine refused, although turns were passed."""
        return Refused(
            409,
            f"no step was taken: {self.num_datums} turns were passed ({self.loss_fn}), but {why}",
        )

    def checkpoint(
        self,
        id_: str,
        place: tuple[str, str | None, str | None],
        adam: Adam,
        saved: Saved,
        figures: Mapping[str, float],
    ) -> NewCheckpoint:
        """The step that was taken on these gradients, for the tree.

        Args:
            id_: The checkpoint's.
            place: Ids of its model, its parent and its managed run.
            adam: What the optimizer was told.
            saved: Where the weights are.
            figures: Metrics beside those of batches and passes.
        """
        model_id, parent_id, job_id = place
        trajectories = self.trajectories
        return NewCheckpoint(
            id=id_,
            model_id=model_id,
            parent_id=parent_id,
            sampler_path=saved.sampler_path,
            state_path=saved.state_path,
            learning_rate=adam.learning_rate,
            loss_fn=self.loss_fn,
            num_traces=len(trajectories),
            num_datums=self.num_datums,
            num_tokens=sum(len(turn.output) for t in trajectories for turn in t.turns),
            mean_reward=fmean(t.reward for t in trajectories),
            metrics=of_step(self.batches, self.passes, adam.learning_rate, figures),
            groups=[group for batch in self.batches for group in batch.groups()],
            trace_ids=[t.trace_id for t in trajectories if t.trace_id],
            job_id=job_id,
        )


def _size(batch: Batch) -> tuple[int, int]:
    """A batch's turns, and their tokens."""
    turns = [turn for trajectory in batch.trajectories for turn in trajectory.turns]
    return len(turns), sum(len(turn.prompt) + len(turn.output) for turn in turns)


# What the failure of an engine's call means for the session that made it.


class PassFailures:
    """Around a pass."""

    def __init__(self, session: "Session", policy: Policy) -> None:
        self._session, self._policy = session, policy

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PolicyLost | NotFinite):
            await self._session.drop()
        elif isinstance(error, EngineLost):
            self._session.lost(self._policy)
        elif isinstance(error, StateGone):
            await self._session.gone()
            raise Refused(410, str(error)) from error
        elif isinstance(error, EngineError):
            raise Refused(422, str(error)) from error
        elif error is not None:
            await self._session.drop()  # whether it accumulated is not known


class StepFailures:
    """Around an optimizer step, from the engine's call until it is in the tree."""

    def __init__(self, session: "Session", policy: Policy, directory: Path) -> None:
        """`directory`: where the step's files are written."""
        self._session, self._policy, self._directory = session, policy, directory

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        if isinstance(error, EngineLost) and not isinstance(error, PolicyLost):
            self._session.lost(self._policy)
        elif isinstance(error, EngineRefused):
            self._policy.held = False
        else:
            await self._session.drop()
        if isinstance(error, Exception):  # a step that was cut off may be in the tree by now
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        if isinstance(error, EngineRefused):
            raise self._session.nothing_moved(str(error)) from error


# Forward passes that wait for their custom loss's gradients.


KEPT_FORWARDS = 16
"""Forward passes kept a model; the oldest goes first."""
LIFETIME_S = 3600.0


@dataclass(frozen=True)
class Pass:
    """What was passed forward."""

    batch: Batch
    datums: Sequence[Datum]
    at: float


class Forwards:
    """Forward passes by their ids. They end with the weights that they were made with."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Pass] = OrderedDict()

    def keep(self, batch: Batch, datums: Sequence[Datum]) -> str:
        """Remember a pass under a new id."""
        id_ = new_id()
        self._kept[id_] = Pass(batch, datums, monotonic())
        while len(self._kept) > KEPT_FORWARDS:
            self._kept.popitem(last=False)
        return id_

    def get(self, forward_id: str) -> Pass:
        """The pass of an id.

        Raises:
            Refused: 404, it never was, expired, or the weights have changed since.
        """
        found = self._kept.get(forward_id)
        if found is None or monotonic() - found.at > LIFETIME_S:
            self._kept.pop(forward_id, None)
            raise not_found(
                "forward pass (ids end with the next step or set_head)", forward_id[:100]
            )
        return found

    def clear(self) -> None:
        """The weights change: no pass is current any more."""
        self._kept.clear()


def output_weights(
    datums: Sequence[Datum], weights: Sequence[Sequence[float]]
) -> list[list[float]]:
    """The weights at output positions, out of rows over prompt and output.

    Args:
        datums: N turns of P prompt and T output tokens.
        weights: −dC/dlogprob, shape (N, P + T).

    Raises:
        Refused: 422, a row is missing or of another length, or not finite.
    """
    if len(weights) != len(datums):
        raise bad_field("weights", f"{len(weights)} rows for {len(datums)} datums")
    rows = []
    for number, (datum, row) in enumerate(zip(datums, weights, strict=True)):
        total = len(datum.prompt) + len(datum.output)
        if len(row) != total:
            raise bad_field(f"weights.{number}", f"{len(row)} weights for {total} tokens")
        if any(value - value != 0 for value in row):
            raise bad_field(f"weights.{number}", "a weight is not finite")
        rows.append(list(row[len(datum.prompt) :]))
    return rows


# Opened: the policy that a model's training session has open, at the head it was opened from.


class Opened:
    def __init__(self, model: ModelRow, store: Store, policies: Policies) -> None:
        self.used_at = 0.0
        """When training last needed it, in seconds of the monotonic clock."""
        self.policy: Policy | None = None
        self.node: Node | None = None
        """Where `policy` stands; None for the weights that the model started from."""
        self._model = model
        self._store = store
        self._policies = policies

    @property
    def is_lost(self) -> bool:
        """Whether the engine stopped since it was opened."""
        return self.policy is not None and not self._policies.alive(self.policy)

    async def get(self) -> Policy:
        """The policy, opened from the head where none is open."""
        self.used_at = monotonic()
        if self.policy is None:
            node = await self._store.read(checkpoints.head, self._model.id)
            source = self._policies.source(self._model, node)
            self.policy = await self._policies.open(source, self._model)
            self.node = node
            self._policies.trains(self._model.id, source, self.policy)
        return self.policy

    def stepped(self, node: Node) -> None:
        """Its weights are those of a new head."""
        assert self.policy is not None
        self.node = node
        self._policies.trains(self._model.id, node.state_path, self.policy)

    def forget(self) -> None:
        """It is gone, or will be: the next `get` opens the head."""
        self.policy, self.node = None, None

    async def close(self) -> None:
        """Close it as soon as nobody samples from it."""
        policy = self.policy
        self.forget()
        if policy is not None:
            await self._policies.retire(policy)


# Taking a step: the engine saves it, and one transaction puts it into the tree.


Also = Callable[[Db, Node], object]
"""A change that belongs in the same transaction as a step."""


async def take(
    engine: Engine, handle: Handle, adam: Adam, directory: Path, data_dir: Path
) -> tuple[Saved, File]:
    """Step and save.

    Args:
        engine, handle: What steps.
        adam: The optimizer's numbers.
        directory: Where the files go; made here.
        data_dir: What paths are kept relative to, so that it can be moved.

    Returns:
        Where the weights are, and their file.

    Raises:
        EngineError: No step was taken.
    """
    await asyncio.to_thread(directory.mkdir, parents=True)
    saved = await engine.optim_step(handle, adam, directory)
    portable = replace(
        saved,
        state_path=_under(data_dir, saved.state_path),
        sampler_path=_under(data_dir, saved.sampler_path),
    )
    return portable, await asyncio.to_thread(saved_file, data_dir, directory, portable.state_path)


def append(db: Db, new: NewCheckpoint, passes: Sequence[Kept], also: Also | None) -> Node:
    """Make a saved step the head, with the replies to the passes that it took and `also`."""
    node = checkpoints.append(db, new)
    for kept in passes:
        replies.keep(db, new.model_id, kept)
    if also is not None:
        also(db, node)
    return node


def saved_file(data_dir: Path, directory: Path, state_path: str) -> File:
    """What was saved into a directory, with the checksum of the file that is loaded."""
    is_here = "://" not in state_path
    sha256 = checksum(data_dir / state_path) if is_here else None
    return File(state_path, size_of(directory), sha256)


def size_of(directory: Path) -> int:
    """Bytes of a directory's files."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _under(directory: Path, path: str) -> str:
    inside = "://" not in path and Path(path).is_relative_to(directory)
    return str(Path(path).relative_to(directory)) if inside else path


# A model's training session: one open policy, the gradients in it, one caller at a time.
#
# The policy is opened from the head when training needs it. Passes accumulate until
# `optim_step`, which saves a new checkpoint and makes it the head. Whatever makes the open
# policy differ from the head (set_head, a failed step, an engine that stopped) drops it
# with its gradients; the next call opens the head again.


class Session:
    """Hold `lock` around every call."""

    def __init__(
        self,
        model: ModelRow,
        store: Store,
        engine: Engine,
        policies: Policies,
        weights: Weights,
        data_dir: Path,
        on_step: Callable[[], None],
    ) -> None:
        """`on_step`: called after every optimizer step."""
        self.lock = asyncio.Lock()
        self.forwards = Forwards()
        self.passes = Passes()
        self._model = model
        self._store = store
        self._engine = engine
        self._policies = policies
        self._weights = weights
        self._data_dir = data_dir
        self._on_step = on_step
        self._opened = Opened(model, store, policies)
        self._accumulated = Accumulated()

    async def forward_backward(
        self, batch: Batch, loss_fn: str, config: Mapping[str, float] | None = None
    ) -> tuple[dict[str, float], int]:
        """Accumulate a batch's gradients; its metrics, and how many datums carried any.

        Raises:
            Refused: 422, the engine does not take this loss or config.
            EngineLost: All gradients are gone.
        """
        datums, count = batch.all_datums(), len(batch.datums())
        policy, start = await self._open(), perf_counter()
        async with PassFailures(self, policy):
            figures = await self._engine.forward_backward(policy.handle, datums, loss_fn, config)
        self._accumulated.seconds += perf_counter() - start
        figures = batches.finite({**figures, **batches.left_out(batch)})
        self._accumulated.add(batch, figures, count, loss_fn)
        own = {"num_datums_dropped": float(len(datums) - count)}
        return {**figures, **batches.of_rewards([batch]), **own}, count

    async def forward(self, batch: Batch) -> tuple[str, list[list[float]]]:
        """Logprobs of every turn's output by now, and an id to send weights for."""
        policy, datums = await self._open(), batch.all_datums()
        async with PassFailures(self, policy):
            logprobs = await self._engine.forward(policy.handle, datums)
        return self.forwards.keep(batch, datums), logprobs

    async def backward(
        self, passed: Pass, weights: Sequence[Sequence[float]], own: Mapping[str, float]
    ) -> tuple[dict[str, float], int]:
        """Accumulate gradients of a custom loss, given −dC/dlogprob per output token."""
        count = sum(any(row) for row in weights)
        policy, start = await self._open(), perf_counter()
        async with PassFailures(self, policy):
            figures = await self._engine.backward(policy.handle, passed.datums, weights)
        self._accumulated.seconds += perf_counter() - start
        left_out = batches.left_out(passed.batch)
        figures = batches.finite({**figures, **own, **left_out})
        self._accumulated.add(passed.batch, figures, count, "custom")
        return figures, count

    async def optim_step(
        self,
        adam: Adam,
        job_id: str | None = None,
        extra: Mapping[str, float] | None = None,
        also: Also | None = None,
    ) -> Node:
        """Step, save, and make the new checkpoint the head.

        Args:
            adam: The optimizer's numbers.
            job_id, extra: The managed run that takes it, and what that measured.
            also: Written in the same transaction, given the new node.

        Raises:
            Refused: 409, nothing was accumulated; gradients that wait still do.
            EngineLost: All gradients are gone; no step was taken.
        """
        self._accumulated.refuse_empty()
        policy, start = await self._open(), perf_counter()
        await self._policies.hold(policy)
        directory = self._data_dir / "checkpoints" / new_id()
        async with StepFailures(self, policy, directory):
            saved, file = await take(self._engine, policy.handle, adam, directory, self._data_dir)
            train_s = self._accumulated.seconds + perf_counter() - start
            figures = {**saved.metrics, "train_s": train_s, **(extra or {})}
            parent = self._opened.node
            place = (self._model.id, parent.id if parent else None, job_id)
            new = self._accumulated.checkpoint(directory.name, place, adam, saved, figures)
            new = replace(new, bytes=file.bytes, sha256=file.sha256)
            node = await self._store.write(append, new, self.passes.waiting(), also)
        self._accumulated = Accumulated()
        self.forwards.clear()
        self.passes.stepped()
        self._opened.stepped(node)
        self._on_step()
        return node

    async def set_head(
        self, checkpoint_id: str, seen: Seen | None = None, also: Also | None = None
    ) -> Node:
        """Serve another node; the gradients go, and training goes on from there.

        Args:
            checkpoint_id: The node's.
            seen: What the caller takes for the head; None where it does not say.
            also: Written in the same transaction, given the node.

        Raises:
            Refused: As `heads.set_head`; 410, its weights are missing or damaged.
        """
        chosen = await self._store.read(checkpoints.find, self._model.id, checkpoint_id)
        await self._weights.check(chosen.state_path)
        node = await self._store.write(_set_head, self._model.id, checkpoint_id, seen, also)
        await self.drop()
        return node

    async def drop(self) -> None:
        """Forget the open policy and its gradients."""
        policy = self._opened.policy
        self._forget()
        if policy is not None:
            await self._policies.retire(policy)

    async def rest(self) -> None:
        """Close the policy where no gradient waits in it. Forward passes stay current: the
        next call opens the same weights again."""
        if not self.accumulated:  # a pass may have come while others were closed
            await self._opened.close()

    def refuse_full(self, batch: Batch) -> None:
        """Before a pass of a caller's; batches that left no gradient make room for it.

        Those that a step was refused for are no part of the next one, which is sampled again.

        Raises:
            Refused: 413, too much waits for a step already.
        """
        over = self._accumulated.refused or not self._accumulated.holds(batch)
        if over and not self.accumulated:
            self._accumulated = Accumulated()
        self._accumulated.refuse_full(batch)

    def nothing_moved(self, why: str) -> Refused:
        """409 for a step that the engine refused; the gradients still wait."""
        return self._accumulated.nothing_moved(why)

    @property
    def accumulated(self) -> bool:
        """Whether gradients wait for a step."""
        return self._accumulated.num_datums > 0

    @property
    def idle(self) -> bool:
        """Whether it has an open policy that nobody uses and nothing waits in."""
        is_open = self._opened.policy is not None
        return is_open and not self.lock.locked() and not self.accumulated

    @property
    def used_at(self) -> float:
        """When it last needed its policy, in seconds of the monotonic clock."""
        return self._opened.used_at

    def lost(self, policy: Policy) -> None:
        """The engine stopped."""
        self._policies.lost(policy)
        self._forget()

    async def gone(self) -> None:
        """The head that was opened is no longer where it was saved."""
        node = self._opened.node
        await self.drop()
        await self._policies.gone(self._model, node)

    def _forget(self) -> None:
        self._opened.forget()
        self._accumulated = Accumulated()
        self.forwards.clear()
        self.passes.dropped()

    async def _open(self) -> Policy:
        """The training policy, at the head.

        Raises:
            EngineLost: The engine stopped since gradients were accumulated.
        """
        policy = self._opened.policy
        if policy is not None and self._opened.is_lost:
            had = self.accumulated
            self._forget()  # its last user closes it
            if had:
                raise EngineLost("the engine stopped after gradients were accumulated")
        return await self._opened.get()


def _set_head(
    db: Db, model_id: str, checkpoint_id: str, seen: Seen | None, also: Also | None
) -> Node:
    checkpoints.set_head(db, model_id, checkpoint_id, seen)
    node = checkpoints.find(db, model_id, checkpoint_id)
    if also is not None:
        also(db, node)
    return node
