"""A model's training session: one open policy, the gradients in it, one caller at a time.

The policy is opened from the head when training needs it. Passes accumulate until
`optim_step`, which saves a new checkpoint and makes it the head. Whatever makes the open
policy differ from the head (set_head, a failed step, an engine that stopped) drops it
with its gradients; the next call opens the head again.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from hud_tui.service import step_metrics, steps
from hud_tui.service.accumulated import Accumulated
from hud_tui.service.batches import Batch
from hud_tui.service.engines.base import Adam, Engine, EngineLost
from hud_tui.service.failures import PassFailures, StepFailures
from hud_tui.service.forwards import Forwards, Pass
from hud_tui.service.ids import new_id
from hud_tui.service.opened import Opened
from hud_tui.service.passes import Passes
from hud_tui.service.policies import Policies, Policy
from hud_tui.service.refusals import Refused
from hud_tui.service.steps import Also
from hud_tui.service.store import Db, Store, heads, nodes
from hud_tui.service.store.heads import Seen
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.nodes import Node
from hud_tui.service.weights import Weights


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
        figures = step_metrics.finite({**figures, **step_metrics.left_out(batch)})
        self._accumulated.add(batch, figures, count, loss_fn)
        own = {"num_datums_dropped": float(len(datums) - count)}
        return {**figures, **step_metrics.of_rewards([batch]), **own}, count

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
        left_out = step_metrics.left_out(passed.batch)
        figures = step_metrics.finite({**figures, **own, **left_out})
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
            saved, file = await steps.take(
                self._engine, policy.handle, adam, directory, self._data_dir
            )
            train_s = self._accumulated.seconds + perf_counter() - start
            figures = {**saved.metrics, "train_s": train_s, **(extra or {})}
            parent = self._opened.node
            place = (self._model.id, parent.id if parent else None, job_id)
            new = self._accumulated.checkpoint(directory.name, place, adam, saved, figures)
            new = replace(new, bytes=file.bytes, sha256=file.sha256)
            node = await self._store.write(steps.append, new, self.passes.waiting(), also)
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
        chosen = await self._store.read(nodes.find, self._model.id, checkpoint_id)
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
    heads.set_head(db, model_id, checkpoint_id, seen)
    node = nodes.find(db, model_id, checkpoint_id)
    if also is not None:
        also(db, node)
    return node
