"""A model's training session: one open policy, the gradients in it, one caller at a time.

The policy is opened from the head when training needs it. Passes accumulate until
`optim_step`, which saves a new checkpoint and makes it the head. Whatever makes the open
policy differ from the head (set_head, a failed step, an engine that stopped) drops it
with its gradients; the next call opens the head again.
"""

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic, perf_counter

from hud_tui.service import step_metrics
from hud_tui.service.accumulated import Accumulated
from hud_tui.service.batches import Batch
from hud_tui.service.engines.base import (
    Adam,
    Engine,
    EngineError,
    EngineLost,
    EngineRefused,
    Saved,
)
from hud_tui.service.forwards import Forwards, Pass
from hud_tui.service.ids import new_id
from hud_tui.service.passes import Passes
from hud_tui.service.policies import Policies, Policy
from hud_tui.service.refusals import Refused
from hud_tui.service.retention import size_of
from hud_tui.service.store import Db, Store, checkpoints, replies
from hud_tui.service.store.checkpoints import NewCheckpoint, Node, Seen
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.replies import Kept

Also = Callable[[Db, Node], object]
"""A change that belongs in the same transaction as a step."""


class Session:
    """Hold `lock` around every call."""

    def __init__(
        self,
        model: ModelRow,
        store: Store,
        engine: Engine,
        policies: Policies,
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
        self._data_dir = data_dir
        self._on_step = on_step
        self.used_at = 0.0
        """When it last needed its policy, in seconds of the monotonic clock."""
        self._policy: Policy | None = None
        self._node: Node | None = None
        self._accumulated = Accumulated()

    async def forward_backward(
        self, batch: Batch, loss_fn: str, config: Mapping[str, float] | None = None
    ) -> tuple[dict[str, float], int]:
        """Accumulate a batch's gradients; its metrics, and how many datums carried any.

        Raises:
            Refused: 422, the engine does not take this loss or config.
            EngineLost: All gradients are gone.
        """
        datums = batch.datums()
        figures, rewards = {"loss:sum": 0.0}, step_metrics.of_rewards([batch])
        if datums:
            policy, start = await self._open(), perf_counter()
            async with _Failures(self, policy, refusable=True):
                figures = await self._engine.forward_backward(
                    policy.handle, datums, loss_fn, config
                )
            self._accumulated.seconds += perf_counter() - start
        figures = step_metrics.finite({**figures, **step_metrics.left_out(batch)})
        self._accumulated.add(batch, figures, len(datums), loss_fn)
        dropped = float(len(batch.all_datums()) - len(datums))
        return {**figures, **rewards, "num_datums_dropped": dropped}, len(datums)

    async def forward(self, batch: Batch) -> tuple[str, list[list[float]]]:
        """Logprobs of every turn's output by now, and an id to send weights for."""
        policy, datums = await self._open(), batch.all_datums()
        async with _Failures(self, policy, refusable=True):
            logprobs = await self._engine.forward(policy.handle, datums)
        return self.forwards.keep(batch, datums), logprobs

    async def backward(
        self, passed: Pass, weights: Sequence[Sequence[float]], own: Mapping[str, float]
    ) -> tuple[dict[str, float], int]:
        """Accumulate gradients of a custom loss, given −dC/dlogprob per output token."""
        moving = [number for number, row in enumerate(weights) if any(row)]
        figures = {"loss:sum": 0.0}
        if moving:
            policy, start = await self._open(), perf_counter()
            datums = [passed.datums[number] for number in moving]
            rows = [weights[number] for number in moving]
            async with _Failures(self, policy, refusable=True):
                figures = await self._engine.backward(policy.handle, datums, rows)
            self._accumulated.seconds += perf_counter() - start
        left_out = step_metrics.left_out(passed.batch)
        figures = step_metrics.finite({**figures, **own, **left_out})
        self._accumulated.add(passed.batch, figures, len(moving), "custom")
        return figures, len(moving)

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
        try:
            async with _Failures(self, policy):
                await asyncio.to_thread(directory.mkdir, parents=True)
                saved = await self._engine.optim_step(policy.handle, adam, directory)
            train_s = self._accumulated.seconds + perf_counter() - start
            figures = {**saved.metrics, "train_s": train_s, **(extra or {})}
            place = (self._model.id, self._node.id if self._node else None, job_id)
            saved = self._portable(saved)
            new = self._accumulated.checkpoint(directory.name, place, adam, saved, figures)
            new = replace(new, bytes=await asyncio.to_thread(size_of, directory))
            node = await self._store.write(_append, new, self.passes.waiting(), also)
        except EngineRefused as error:
            policy.held = False
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
            raise self._accumulated.nothing_moved(str(error)) from error
        except asyncio.CancelledError:
            await self.drop()  # it may be in the tree by now: the files stay
            raise
        except Exception:
            await self.drop()
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
            raise
        self._node, self._accumulated = node, Accumulated()
        self.forwards.clear()
        self.passes.stepped()
        self._policies.trains(self._model.id, node.state_path, policy)
        self._on_step()
        return node

    async def set_head(self, checkpoint_id: str, seen: Seen | None = None) -> Node:
        """Serve another node; the gradients go, and training goes on from there.

        Raises:
            Refused: As `checkpoints.set_head`.
        """
        node = await self._store.write(_set_head, self._model.id, checkpoint_id, seen)
        await self.drop()
        return node

    async def drop(self) -> None:
        """Forget the open policy and its gradients."""
        policy = self._policy
        self._forget()
        if policy is not None:
            await self._policies.retire(policy)

    def refuse_full(self, batch: Batch) -> None:
        """Before a pass of a caller's; batches that left no gradient make room for it.

        Raises:
            Refused: 413, too much waits for a step already.
        """
        if not self.accumulated and not self._accumulated.holds(batch):
            self._accumulated = Accumulated()
        self._accumulated.refuse_full(batch)

    @property
    def accumulated(self) -> bool:
        """Whether gradients wait for a step."""
        return self._accumulated.num_datums > 0

    @property
    def idle(self) -> bool:
        """Whether it has an open policy that nobody uses and nothing waits in."""
        return self._policy is not None and not self.lock.locked() and not self.accumulated

    def lost(self, policy: Policy) -> None:
        """The engine stopped."""
        self._policies.lost(policy)
        self._forget()

    def _forget(self) -> None:
        self._policy, self._node, self._accumulated = None, None, Accumulated()
        self.forwards.clear()
        self.passes.dropped()

    async def _open(self) -> Policy:
        """The training policy, at the head.

        Raises:
            EngineLost: The engine stopped since gradients were accumulated.
        """
        self.used_at = monotonic()
        if self._policy is not None and not self._policies.alive(self._policy):
            had = self.accumulated
            self.lost(self._policy)
            if had:
                raise EngineLost("the engine stopped after gradients were accumulated")
        if self._policy is None:
            node = await self._store.read(checkpoints.head, self._model.id)
            source = self._policies.source(self._model, node)
            self._policy = await self._policies.open(source, self._model)
            self._node = node
            self._policies.trains(self._model.id, source, self._policy)
        return self._policy

    def _portable(self, saved: Saved) -> Saved:
        """Paths as they are kept: under the data directory, so that this can be moved."""
        return replace(
            saved,
            state_path=_under(self._data_dir, saved.state_path),
            sampler_path=_under(self._data_dir, saved.sampler_path),
        )


class _Failures:
    """Around an engine's call: what its failure means for the session."""

    def __init__(self, session: Session, policy: Policy, refusable: bool = False) -> None:
        self._session, self._policy, self._refusable = session, policy, refusable

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, EngineLost):
            self._session.lost(self._policy)
        elif isinstance(error, EngineError) and self._refusable:
            raise Refused(422, str(error)) from error
        elif error is not None and not isinstance(error, EngineRefused):
            await self._session.drop()  # whether it accumulated is not known


def _under(directory: Path, path: str) -> str:
    inside = "://" not in path and Path(path).is_relative_to(directory)
    return str(Path(path).relative_to(directory)) if inside else path


def _set_head(db: Db, model_id: str, checkpoint_id: str, seen: Seen | None) -> Node:
    checkpoints.set_head(db, model_id, checkpoint_id, seen)
    return checkpoints.find(db, model_id, checkpoint_id)


def _append(db: Db, new: NewCheckpoint, passes: Sequence[Kept], also: Also | None) -> Node:
    node = checkpoints.append(db, new)
    for kept in passes:
        replies.keep(db, new.model_id, kept)
    if also is not None:
        also(db, node)
    return node
