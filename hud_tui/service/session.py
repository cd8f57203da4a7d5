"""A model's training session: one open policy, its accumulated gradients, one caller at a time.

The policy is opened from the head when training needs it. Passes accumulate gradients until
`optim_step`, which saves a new checkpoint and makes it the head. Whatever makes the open policy
differ from the head (set_head, a failed step, an engine that stopped) discards it with its
gradients; the next call opens the head again.
"""

import asyncio
import shutil
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from time import monotonic, perf_counter
from typing import Any

from hud_tui.events import HeadMoved
from hud_tui.rl.groups import CROSS_ENTROPY
from hud_tui.rl.stopwatch import Stopwatch, time_metrics
from hud_tui.rl.timeline import DISK, ENGINE, FORWARD_BACKWARD, OPTIM_STEP, SAVING
from hud_tui.service import batches
from hud_tui.service.batches import Batch, Trajectory, name_flat, of_step
from hud_tui.service.engines.base import (
    STEPPED,
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
from hud_tui.service.policies import Policies, Policy, Weights, saved_file, telling
from hud_tui.service.store import checkpoints, replies, times
from hud_tui.service.store.checkpoints import File, HeadRequest, NewCheckpoint, Node
from hud_tui.service.store.db import Db, Store
from hud_tui.service.store.models import ModelRow
from hud_tui.service.store.replies import MOST_REPLIES, StoredReply
from hud_tui.wire import BASE, Checkpoint, Group

MOST_FORWARDS, LIFETIME_S = 16, 3600.0
"""Most forward passes kept per model, the oldest dropped first, and for how many seconds."""
Also = Callable[[Db, Node], object]
AlsoOfHead = Callable[[Db, Node, HeadMoved | None], object]
"""A change in the same transaction as a step, given the new node."""


@dataclass(frozen=True)
class KlPenalty:
    """Of each token, for its distance from a reference policy."""

    coef: float
    reference: str = BASE
    """A checkpoint of the model by id, name or sampler path; or `BASE`."""


def kl_of(parameters: Mapping[str, Any]) -> KlPenalty | None:
    """The penalty of a run or a call, by the wire names of its parameters."""
    coef = parameters.get("kl_coef")
    return KlPenalty(coef, parameters.get("kl_reference") or BASE) if coef else None


@dataclass
class Pass:
    """A forward pass that waits for the gradients of its custom loss."""

    batch: Batch
    datums: Sequence[Datum]
    at: float
    is_used: bool = False
    """Whether its gradients are accumulated."""


class Session:
    """A model's training session. Hold `lock` around every call."""

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
        self.used_at = 0.0
        """When it last needed its policy, seconds of the monotonic clock."""
        self._model, self._store, self._engine = model, store, engine
        self._policies, self._weights = policies, weights
        self._data_dir, self._on_step = data_dir, on_step
        self._policy: Policy | None = None
        self._node: Node | None = None
        """The checkpoint of `_policy`; None for the weights that the model started from."""
        self.stopwatch = Stopwatch()
        """Where the time since the last step goes."""
        self._accumulated = Accumulated()
        self._was_stale = False
        """Whether any step was trained on rollouts that its parent had not sampled."""
        self._forwards: OrderedDict[str, Pass] = OrderedDict()
        """Forward passes by id; valid until the weights change."""
        self._answers: OrderedDict[str, StoredReply] = OrderedDict()
        """Replies to gradient passes by their Idempotency-Key. They live as long as the gradients:
        here until the step, then in the transaction of the step."""

    # Passes.

    async def forward_backward(
        self,
        batch: Batch,
        loss_fn: str,
        config: Mapping[str, float] | None = None,
        kl: KlPenalty | None = None,
    ) -> tuple[dict[str, float], int]:
        """Accumulate a batch's gradients; returns its metrics, and the number of datums with a
        gradient. Raises Refused, 422, the engine does not support this loss or config; 404 or 410,
        the reference of `kl`; EngineLost: all gradients are lost."""
        with self.stopwatch.measure(FORWARD_BACKWARD, 0):
            datums, count = batch.all_datums(), len(batch.datums())
            distance = dict[str, float]()
            if kl is not None and count:
                datums, distance = await self._penalised(datums, kl)
            policy, start = await self._open(), perf_counter()
            async with self._passing(policy):
                figures = await self._engine.forward_backward(
                    policy.handle, datums, loss_fn, config
                )
            figures = batches.finite({**figures, **distance, **batches.left_out(batch)})
            self._accumulated.add(batch, figures, count, loss_fn, perf_counter() - start)
        own = {"num_datums_dropped": float(len(datums) - count)}
        return {**figures, **batches.of_rewards([batch]), **own}, count

    async def _penalised(
        self, datums: Sequence[Datum], kl: KlPenalty
    ) -> tuple[list[Datum], dict[str, float]]:
        """The datums, those with an advantage penalised; and the metric of their distance."""
        moved = [datum for datum in datums if datum.advantage]
        if not all(datum.logprobs for datum in moved):
            raise bad_field("kl_coef", "it compares sampling logprobs, and a turn has none")
        node = None
        if kl.reference != BASE:
            node = await self._store.read(checkpoints.loadable, self._model.id, kl.reference)
        async with self._policies.borrow(self._model, node, pinned=True) as handle:
            reference = await self._engine.forward(handle, moved)
        penalised, distance = batches.with_penalties(moved, reference, kl.coef)
        following = iter(penalised)
        all_ = [next(following) if datum.advantage else datum for datum in datums]
        return all_, {"kl_reference": distance}

    async def forward(self, batch: Batch) -> tuple[str, list[list[float]]]:
        """Current logprobs of every turn's output, and an id for `backward`."""
        policy, datums = await self._open(), batch.all_datums()
        async with self._passing(policy):
            logprobs = await self._engine.forward(policy.handle, datums)
        id_ = new_id()
        self._forwards[id_] = Pass(batch, datums, monotonic())
        while len(self._forwards) > MOST_FORWARDS:
            self._forwards.popitem(last=False)
        return id_, logprobs

    def passed(self, forward_id: str) -> Pass:
        """A forward pass by its id. Raises Refused, 404, unknown, expired, or the weights have
        changed since; 409, its gradients are accumulated already."""
        forward = self._forwards.get(forward_id)
        if forward is None or monotonic() - forward.at > LIFETIME_S:
            self._forwards.pop(forward_id, None)
            raise not_found(
                "forward pass (ids end with the next step or set_head)", forward_id[:100]
            )
        if forward.is_used:
            raise Refused(
                409,
                f"the gradients of forward pass {forward_id[:100]} are accumulated already: a"
                " second backward would double them. For another loss on the same turns, call"
                " forward again",
            )
        return forward

    async def backward(
        self, passed: Pass, weights: Sequence[Sequence[float]], own: Mapping[str, float]
    ) -> tuple[dict[str, float], int]:
        """Accumulate gradients of a custom loss, given −dC/dlogprob per output token."""
        count = sum(any(row) for row in weights)
        policy, start = await self._open(), perf_counter()
        async with self._passing(policy):
            figures = await self._engine.backward(policy.handle, passed.datums, weights)
        left_out = batches.left_out(passed.batch)
        figures = batches.finite({**figures, **own, **left_out})
        self._accumulated.add(passed.batch, figures, count, "custom", perf_counter() - start)
        passed.is_used = True
        return figures, count

    @asynccontextmanager
    async def _passing(self, policy: Policy) -> AsyncIterator[None]:
        """Around a pass: what its failure means for the session."""
        try:
            with self._policies.calling(self.stopwatch, FORWARD_BACKWARD):
                yield
        except (PolicyLost, NotFinite):
            await self.drop()
            raise
        except EngineLost:
            self._lose(policy)
            raise
        except StateGone as error:
            node = self._node
            await self.drop()
            await self._policies.gone(self._model, node)
            raise Refused(410, str(error)) from error
        except EngineError as error:
            raise Refused(422, str(error)) from error
        except BaseException:
            await self.drop()  # it may or may not have accumulated
            raise

    def refuse_full(self, batch: Batch) -> None:
        """Check before a client's pass; batches without any gradient make room for it.

        After a step was refused for lack of a gradient, its batches do not count in the next one.
        Raises Refused, 413, too much has accumulated already.
        """
        if not self.accumulated and (
            self._accumulated.refused or not self._accumulated.holds(batch)
        ):
            self._accumulated = Accumulated()
        had = self._accumulated
        if not had.holds(batch):
            cure = "call optim-step first" if had.batches else "send fewer inputs a call"
            limit = f"{TURNS} turns and {TOKENS} tokens are the most that wait for one step"
            raise Refused(413, f"{limit}, and {had.turns} and {had.tokens} do: {cure}")

    def keep_answer(self, answer: StoredReply) -> None:
        """Keep the reply to a pass whose gradients wait for a step."""
        self._answers[answer.asked.key] = answer
        while len(self._answers) > MOST_REPLIES:
            self._answers.popitem(last=False)

    def answered(self, key: str) -> StoredReply | None:
        """The reply to a key, if its pass was made since the last step."""
        return self._answers.get(key)

    # The step: the engine saves it, and one transaction adds it to the tree.

    async def optim_step(
        self,
        adam: Adam,
        job_id: str | None = None,
        extra: Mapping[str, float] | None = None,
        also: Also = lambda db, node: None,
        tasks_digest: str | None = None,
        draw: str | None = None,
        coming: Callable[[Node], object] | None = None,
    ) -> Node:
        """Step, save, and make the new checkpoint the head. `job_id`, `extra`, `tasks_digest`
        and `draw` are those of a run and its metrics; `also` changes more in the same transaction.
        `coming` is called with a node to sample from, if the engine can before the new weights are
        saved: it is no checkpoint of the tree yet, and may never be.
        Raises Refused, 409, nothing was accumulated; waiting gradients are kept; EngineLost: all
        gradients are lost; no step was taken."""
        self._accumulated.refuse_empty()
        with self.stopwatch.measure(ENGINE):
            policy, start = await self._open(), perf_counter()
            await self._policies.hold(policy)
        directory = self._data_dir / "checkpoints" / new_id()

        def stepped(path: str) -> None:  # the new weights, which are saved there
            if coming is not None:
                source = _under(self._data_dir, path)
                self._policies.trains(self._model.id, source, policy, is_stored=False)
                coming(Node(directory.name, 0, "", "", source))

        async with self._stepping(policy, directory):
            with telling(STEPPED, stepped):
                saved, file = await self._save(policy.handle, adam, directory)
            train_s = self._accumulated.seconds + perf_counter() - start
            parent_id = self._node.id if self._node else None
            sampled_from, stale = await self._samplers(parent_id)
            had = self._accumulated
            for reason, ids in times.flat(had.groups, had.loss_fn).items():
                self.stopwatch.discard(reason, dict.fromkeys(ids, ""))
            # the step's own transaction is part of the next one's time
            time = self.stopwatch.so_far(is_taken=True)
            figures = {**saved.metrics, "train_s": train_s, **stale, **(extra or {})}
            row = had.checkpoint(
                adam,
                {**figures, **time_metrics(time)},
                id=directory.name,
                checkpoint_name=saved.sampler_path,
                prev_model_checkpoint_id=parent_id,
                job_id=job_id,
                tasks_digest=tasks_digest,
                draw=draw,
                sampled_from=sampled_from,
            )
            traced = [trace.trace_id for trace in had.trajectories if trace.trace_id]
            failed = self.stopwatch.failed() if time.is_outside else {}  # else its run tells
            new = NewCheckpoint(self._model.id, row, file, traced, time, failed)
            waiting = [answer for answer in self._answers.values() if not answer.dropped]
            with self.stopwatch.measure(DISK):
                node = await self._store.write(_append, new, waiting, also)
        self.stopwatch.step(time.end)
        self._go_on_from(node, policy, waiting)
        return node

    async def _samplers(
        self, parent_id: str | None
    ) -> tuple[dict[str, int] | None, dict[str, float]]:
        """Which checkpoints sampled the rollouts of a step, as `Checkpoint.sampled_from` has it;
        and by how many steps they are stale, as metrics: none before the first stale rollout."""
        known = (trajectory.sampled_from for trajectory in self._accumulated.trajectories)
        counts = Counter(source for source in known if source is not None)
        is_of_parent = counts.keys() <= {parent_id or BASE}
        self._was_stale = self._was_stale or not is_of_parent
        if not counts or not self._was_stale:
            return None, {}
        ages = await self._store.read(checkpoints.ages, parent_id, counts.keys())
        metrics = dict[str, float]()
        if ages:
            total = sum(counts[source] for source in ages)
            mean = sum(age * counts[source] for source, age in ages.items()) / total
            metrics = {"staleness_mean": mean, "staleness_max": float(max(ages.values()))}
        return None if is_of_parent else dict(counts), metrics

    def _go_on_from(self, node: Node, policy: Policy, stored: Sequence[StoredReply]) -> None:
        """After a step: nothing is accumulated, and these replies are in the store."""
        self._accumulated = Accumulated()
        self._forwards.clear()
        for answer in stored:
            del self._answers[answer.asked.key]
        self._node = node
        self._policies.trains(self._model.id, node.state_path, policy)
        self._on_step()

    async def _save(self, handle: Handle, adam: Adam, directory: Path) -> tuple[Saved, File]:
        """Step into a new directory; returns the saved weights and their file.

        Paths are relative to the data directory, so that it can be moved. Raises EngineError: no
        step was taken.
        """
        watch = self.stopwatch
        with watch.measure(SAVING):
            await asyncio.to_thread(directory.mkdir, 0o700, parents=True)
        with self._policies.calling(watch, OPTIM_STEP) as call:
            saved = await self._engine.optim_step(handle, adam, directory)
            call.saving_s = saved.seconds
        state_path = _under(self._data_dir, saved.state_path)
        sampler_path = _under(self._data_dir, saved.sampler_path)
        with watch.measure(SAVING):
            file = await asyncio.to_thread(saved_file, self._data_dir, directory, state_path)
        return replace(saved, state_path=state_path, sampler_path=sampler_path), file

    @asynccontextmanager
    async def _stepping(self, policy: Policy, directory: Path) -> AsyncIterator[None]:
        """Around an optimizer step, from the engine's call until it is in the tree: what its
        failure means for the session. Its files are in `directory`."""
        try:
            with self.stopwatch.measure(OPTIM_STEP, 0):
                yield
        except BaseException as error:
            if isinstance(error, EngineLost) and not isinstance(error, PolicyLost):
                self._lose(policy)
            elif isinstance(error, EngineRefused):
                self._policies.release(policy)
            else:
                await self.drop()
            if isinstance(error, Exception):  # an interrupted step may be in the tree already
                await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
            if isinstance(error, EngineRefused):
                had = self._accumulated
                passed = f"{had.num_datums} turns were passed ({had.loss_fn})"
                raise Refused(409, f"no step was taken: {passed}, but {error}") from error
            raise

    # The head, and the policy that is open there.

    async def set_head(self, move: HeadRequest, also: AlsoOfHead) -> tuple[Node, HeadMoved | None]:
        """Serve another node; gradients are discarded, and training continues from there. Returns
        as `checkpoints.set_head` does. `also` changes more in the same transaction. Raises Refused:
        as `checkpoints.set_head`; 410, its weights are missing or damaged."""
        chosen = await self._store.read(checkpoints.find, self._model.id, move.checkpoint_id)
        await self._weights.check(chosen.state_path)
        moved = await self._store.write(_set_head, self._model.id, move, also)
        await self.drop()
        return moved

    @property
    def accumulated(self) -> bool:
        """Whether gradients wait for a step."""
        return self._accumulated.num_datums > 0

    @property
    def idle(self) -> bool:
        """Whether it has an open policy without users and without gradients."""
        return self._policy is not None and not self.lock.locked() and not self.accumulated

    async def drop(self) -> None:
        """Discard the open policy and its gradients; it is closed when nobody samples from it."""
        policy = self._policy
        self._forget()
        if policy is not None:
            await self._policies.retire(policy)

    async def rest(self) -> None:
        """Close the policy if it has no gradients. Forward passes stay valid: the next call opens
        the same weights again."""
        if self.accumulated or self._policy is None:  # a pass may have begun meanwhile
            return
        policy, self._policy, self._node = self._policy, None, None
        await self._policies.retire(policy)

    async def _open(self) -> Policy:
        """The training policy, opened at the head if none is open. Raises EngineLost: the engine
        stopped since gradients were accumulated."""
        if self._policy is not None and not self._policies.alive(self._policy):
            had = self.accumulated
            self._forget()  # its last user closes it
            if had:
                raise EngineLost("the engine stopped after gradients were accumulated")
        self.used_at = monotonic()
        if self._policy is None:
            node = await self._store.read(checkpoints.head, self._model.id)
            source = self._policies.source(self._model, node)
            with self.stopwatch.measure(ENGINE):
                self._policy = await self._policies.open(source, self._model)
            self._node = node
            self._policies.trains(self._model.id, source, self._policy)
        return self._policy

    def _lose(self, policy: Policy) -> None:
        """Discard everything after the engine stopped."""
        self._policies.lost(policy.generation)
        self._forget()

    def _forget(self) -> None:
        """Discard the open policy and its gradients."""
        self._policy = self._node = None
        self._accumulated = Accumulated()
        self._forwards.clear()
        for key, answer in self._answers.items():
            self._answers[key] = replace(answer, dropped=True)


def _append(db: Db, new: NewCheckpoint, passes: Sequence[StoredReply], also: Also) -> Node:
    """Make a saved step the head, with the replies to its passes and `also`."""
    node = checkpoints.append(db, new)
    for answer in passes:
        replies.keep(db, new.model_id, answer)
    also(db, node)
    return node


def _set_head(
    db: Db, model_id: str, move: HeadRequest, also: AlsoOfHead
) -> tuple[Node, HeadMoved | None]:
    node, moved = checkpoints.set_head(db, model_id, move)
    also(db, node, moved)
    return node, moved


def _under(directory: Path, path: str) -> str:
    inside = "://" not in path and Path(path).is_relative_to(directory)
    return str(Path(path).relative_to(directory)) if inside else path


def output_weights(
    datums: Sequence[Datum], weights: Sequence[Sequence[float]]
) -> list[list[float]]:
    """The weights at output positions, from rows over prompt and output.

    Args:
        datums: N turns of P prompt and T output tokens.
        weights: −dC/dlogprob, shape (N, P + T).

    Raises:
        Refused: 422, a row is missing, has another length, or is not finite.
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


# The batches behind the accumulated gradients, and why there may be no gradient.


TURNS, TOKENS = 2**18, 2**23
"""Most turns and tokens that may accumulate for one step: they are held in memory."""


@dataclass
class Accumulated:
    batches: list[Batch] = field(default_factory=list)
    passes: list[dict[str, float]] = field(default_factory=list)
    """The engine's metrics, one dict per batch."""
    num_datums: int = 0
    """Turns with a gradient."""
    loss_fn: str = ""
    seconds: float = 0.0
    """Time spent in passes, seconds."""
    turns: int = 0
    tokens: int = 0
    """Of all batches, prompts and outputs together."""
    refused: bool = False
    """Whether a step was refused because no batch had a gradient."""

    def add(
        self, batch: Batch, figures: dict[str, float], num_datums: int, loss_fn: str, seconds: float
    ) -> None:
        """Add a batch after its pass."""
        self.seconds += seconds
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

    @property
    def trajectories(self) -> list[Trajectory]:
        return [trajectory for batch in self.batches for trajectory in batch.trajectories]

    @property
    def groups(self) -> list[Group]:
        return [group for batch in self.batches for group in batch.groups]

    def refuse_empty(self) -> None:
        """Raises Refused, 409, if there is no gradient to step on; the message says why."""
        if self.num_datums:
            return
        if not self.batches:
            raise Refused(409, "nothing is accumulated: call forward-backward first")
        self.refused = True
        if self.loss_fn == CROSS_ENTROPY:
            raise Refused(409, "nothing to step on: every reward, and so every weight, is 0")
        raise Refused(
            409,
            f"nothing to step on: {name_flat(self.groups)}. Sample again, or choose tasks that"
            " sometimes succeed",
        )

    def checkpoint(self, adam: Adam, figures: Mapping[str, float], **more: Any) -> Checkpoint:
        """The row of a step on these gradients. `figures`: further metrics; `more`: the fields that
        they do not say."""
        trajectories = self.trajectories
        return Checkpoint(
            learning_rate=adam.learning_rate,
            loss_fn=self.loss_fn,
            num_traces=len(trajectories),
            num_datums=self.num_datums,
            num_tokens=sum(t.num_tokens for t in trajectories),
            mean_reward=fmean(t.reward for t in trajectories),
            metrics=of_step(self.batches, self.passes, adam.learning_rate, figures),
            groups=self.groups,
            **more,
        )


def _size(batch: Batch) -> tuple[int, int]:
    """A batch's turns, and their tokens."""
    turns = [turn for trajectory in batch.trajectories for turn in trajectory.turns]
    return len(turns), sum(len(turn.prompt) + len(turn.output) for turn in turns)
