"""Which models are whose: bases to fork, forks to train, models that are only served."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf

from hud_tui.rl.metrics import change
from hud_tui.rl.own_numbers import HELDOUT, REWARD, Own, Sampled, own_groups, own_metrics
from hud_tui.rl.tasks.checks import is_shared
from hud_tui.wire import Checkpoint, Group, Model

NAME_LIMIT = 100
"""Characters of a model's name, as the wire limits it."""
_SIZE = re.compile(r"[-_ ]\d+(\.\d+)?[kmb]$")


class Kind(StrEnum):
    """What can be done with a model."""

    OWN = "own"
    """Ours to train."""
    BASE = "base"
    """Shared: fork it to train it."""
    SERVED = "served"
    """Neither; the gateway serves it."""


def kind(model: Model) -> Kind:
    """What can be done with a model of the catalog."""
    if not model.is_trainable:
        return Kind.SERVED
    return Kind.BASE if is_shared(model) else Kind.OWN


def own(models: Iterable[Model]) -> list[Model]:
    """Models that are ours to train, newest first."""
    mine = [model for model in models if kind(model) is Kind.OWN]
    return sorted(mine, key=lambda model: model.created_at or "", reverse=True)


def origin(model: Model) -> str:
    """Where a fork starts: ``forked from mixed-rl step-000017``.

    Empty where the service does not say, and for a fork of the base that it names anyway.
    """
    told = model.forked_from or ""
    if told in ("", model.base_model):
        return ""
    return f"forked from {' '.join(told.rsplit('@', 1))}"


def free_name(source: str, models: Iterable[Model]) -> str:
    """A name for a fork that nobody has: ``mixed-rl`` for ``tiny/mixed-0.2M``, or ``mixed-rl-2``.

    Args:
        source: Slug of the model to fork.
        models: The catalog.
    """
    tail = source.rpartition("/")[2].casefold()
    stem = re.sub(r"-rl(-\d+)?$", "", _SIZE.sub("", tail))[: NAME_LIMIT - 10] or "model"
    taken = _names(models)
    number = 1
    while (name := f"{stem}-rl" if number == 1 else f"{stem}-rl-{number}") in taken:
        number += 1
    return name


def slug_of(name: str) -> str:
    """What the embedded service makes of a name, where nobody has that slug already."""
    return re.sub(r"[^a-z0-9.]+", "-", name.casefold()).strip("-.")[:60] or "model"


def name_problem(name: str, models: Sequence[Model]) -> str:
    """Why a fork cannot have this name, in one line; empty when it can."""
    if not name.strip():
        return "type a name"
    if len(name) > NAME_LIMIT:
        return f"at most {NAME_LIMIT} characters"
    if not name.isprintable():
        return "only characters that can be seen"
    if name.strip().casefold() in _names(models):
        return "a model has this name already"
    return ""


def _names(models: Iterable[Model]) -> set[str]:
    return {text.casefold() for model in models for text in (model.name, model.model_name) if text}


# Tree: a model's checkpoints, who descends from whom, and which one is the head.
#
# A tree only grows, so its versions share one list of nodes and one index: a version is
# how many of them it sees and where its head is. Appending a step costs the same at ten
# checkpoints as at a hundred thousand, and an older version keeps its shape. What the
# service says anew of a node, such as that its state has expired, every version sees; and
# so it does what the steps taken from it say of its weights (`hud_tui.rl.own_numbers`).


ROOT = -1
"""The parent position of a step that started from the base weights."""
Best = tuple[int | None, tuple[bool, float] | None]
"""Position of the best checkpoint, and its score."""


@dataclass(frozen=True, eq=False)
class Tree:
    """An immutable version of the tree. Build it with `Tree.of`; grow it with `add`."""

    size: int = 0
    head: int | None = None
    """Position of the checkpoint being served; None while the base weights are."""
    best: int | None = None
    """Position of the highest held-out reward of its own; of the highest mean reward of its
    own where no checkpoint has one. The earliest of equals."""
    peak: float = 0.0
    """The highest mean reward of a step, which no checkpoint's own is above; at least 0."""
    pinned: frozenset[int] = frozenset()
    """Positions of the checkpoints that the service keeps whatever its disk limit."""
    edition: int = 0
    """Grows when something new is said of a node that was known."""
    _nodes: list[Checkpoint] = field(default_factory=list, repr=False)
    _parents: list[int] = field(default_factory=list, repr=False)
    _depths: list[int] = field(default_factory=list, repr=False)
    _index: dict[str, int] = field(default_factory=dict, repr=False)
    _sampled: Sampled = field(default_factory=Sampled, repr=False)
    _score: tuple[bool, float] | None = None
    """Of the best."""

    @classmethod
    def of(cls, checkpoints: Iterable[Checkpoint]) -> "Tree":
        """The tree of checkpoints listed oldest first, shape (N,)."""
        tree = cls()
        head = None
        for checkpoint in checkpoints:
            position = tree._index.get(checkpoint.id)
            if position is None:
                position = tree._append(checkpoint)
            if checkpoint.is_active:
                head = position
        peak = max((r for r in map(tree._reward, range(len(tree._nodes)))), default=0.0)
        pinned = frozenset(position for position, node in enumerate(tree._nodes) if node.pinned)
        best, score = tree._find_best(len(tree._nodes))
        return replace(
            tree,
            size=len(tree._nodes),
            head=head,
            best=best,
            _score=score,
            peak=max(0.0, peak),
            pinned=pinned,
        )

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, position: int) -> Checkpoint:
        """The checkpoint at a position, oldest first from 0."""
        if not 0 <= position < self.size:
            raise IndexError(position)
        return self._nodes[position]

    def __iter__(self) -> Iterator[Checkpoint]:
        return (self._nodes[position] for position in range(self.size))

    def find(self, checkpoint_id: str | None) -> int | None:
        """The position of a checkpoint; None where this version does not have it."""
        position = self._index.get(checkpoint_id or "", self.size)
        return position if position < self.size else None

    def of_step(self, step: int) -> int | None:
        """The position of the checkpoint that this step made, counted over the tree from 1; the
        newest of several."""
        newest_first = range(self.size - 1, -1, -1)
        return next((place for place in newest_first if self._nodes[place].step == step), None)

    def parent(self, position: int) -> int:
        """The parent's position, or ROOT."""
        return self._parents[position]

    def depth(self, position: int) -> int:
        """Optimizer steps from the base weights to this checkpoint, its own included."""
        return self._depths[position]

    def extends(self, older: "Tree") -> bool:
        """Whether this has the same shape as `older`, with nothing or more steps after it."""
        if self._parents is older._parents:
            return self.size >= older.size
        return self._parents[: older.size] == older._parents[: older.size] and (
            self.size >= older.size
        )

    def retells(self, older: "Tree") -> bool:
        """Whether this may say of older's nodes what it did not say of them itself."""
        return self._nodes is not older._nodes or self.edition != older.edition

    @property
    def served(self) -> Checkpoint | None:
        """The head's checkpoint; None while the base weights are served."""
        return None if self.head is None else self._nodes[self.head]

    @property
    def best_by(self) -> str:
        """Key of the metric that says which is best."""
        found = self.best is not None and self.own(self.best).heldout is not None
        return HELDOUT if found else REWARD

    def add(self, checkpoint: Checkpoint) -> "Tree":
        """The version with one more checkpoint, or with what is said anew of one.

        A known one does not become the head by it: what is told late must not move the head
        back.
        """
        known = self.find(checkpoint.id)
        if known is not None:
            return self._renew(known, checkpoint)
        tree = self if self.size == len(self._nodes) else self._copy()
        position = tree._append(checkpoint)
        best, score = tree._best_after(position, position + 1)
        return replace(
            tree,
            size=position + 1,
            head=position if checkpoint.is_active else tree.head,
            best=best,
            _score=score,
            peak=max(tree.peak, tree._reward(position)),
            pinned=tree.pinned | {position} if checkpoint.pinned else tree.pinned,
        )

    def _renew(self, position: int, checkpoint: Checkpoint) -> "Tree":
        old = self._nodes[position]
        new = checkpoint.model_copy(update={"is_active": old.is_active})
        if new == old:
            return self
        self._nodes[position] = new
        self._sampled.renew(position, old, new)
        pinned = self.pinned | {position} if new.pinned else self.pinned - {position}
        best, score = self._best_after(position, self.size)
        return replace(self, edition=self.edition + 1, pinned=pinned, best=best, _score=score)

    def with_head(self, checkpoint_id: str | None) -> "Tree":
        """The version with another head; unchanged where the checkpoint is unknown."""
        position = self.find(checkpoint_id)
        if position == self.head or (position is None and checkpoint_id is not None):
            return self
        return replace(self, head=position)

    def lineage(self, position: int | None) -> Iterator[int]:
        """Positions from a checkpoint back to its first step: what its weights learned from."""
        while position is not None and position != ROOT:
            yield position
            position = self._parents[position]

    def path(self, position: int | None) -> Sequence[int]:
        """The lineage, oldest first."""
        return list(self.lineage(position))[::-1]

    def is_ancestor(self, ancestor: int, position: int | None) -> bool:
        """Whether `position` descends from `ancestor`, or is it."""
        for node in self.lineage(position):
            if node <= ancestor:
                return node == ancestor
        return False

    def common_ancestor(self, one: int | None, other: int | None) -> int:
        """The newest checkpoint that both descend from, or ROOT."""
        left, right = ROOT if one is None else one, ROOT if other is None else other
        while left != right:
            if left > right:
                left = self._parents[left]
            else:
                right = self._parents[right]
        return left

    def own(self, position: int) -> Own:
        """What a checkpoint's own weights scored; of ROOT nothing is known."""
        return Own() if position == ROOT else self._sampled.own(position)

    def own_metrics(self, position: int) -> dict[str, float]:
        """The metrics that tell of its weights, by the vocabulary's keys; empty where nobody
        sampled it. O(steps taken from it)."""
        return own_metrics(self.steps(position), self.own(position))

    def own_groups(self, position: int) -> list[Group]:
        """Its training rollouts by task, where the service carries them."""
        return own_groups(self.steps(position))

    def source(self, position: int) -> int:
        """Position of the checkpoint that sampled what a step was trained on, or ROOT."""
        return self._sampled.sources[position]

    def steps(self, position: int) -> list[Checkpoint]:
        """The steps that were trained on rollouts of a checkpoint, newest first."""
        if position == ROOT:
            return []
        return [self._nodes[at] for at in self._sampled.steps(position) if at < self.size]

    def reward(self, position: int) -> float | None:
        """A checkpoint's own mean reward, in the taskset's reward unit."""
        return self.own(position).reward

    def delta(self, position: int) -> float | None:
        """Its own mean reward minus its parent's own, 0 where that cannot be seen; None where
        either is unknown."""
        own, before = self.reward(position), self.reward(self._parents[position])
        return None if own is None or before is None else change(before, own)

    def _append(self, checkpoint: Checkpoint) -> int:
        """Add a node to the shared lists; a parent that is not there counts as the base."""
        position = len(self._nodes)
        parent = self._index.get(checkpoint.prev_model_checkpoint_id or "", ROOT)
        self._nodes.append(checkpoint)
        self._parents.append(parent)
        self._depths.append(1 if parent == ROOT else self._depths[parent] + 1)
        self._index[checkpoint.id] = position
        above = None if parent == ROOT else self._nodes[parent]
        self._sampled.append(checkpoint, parent, above)
        return position

    def _best_after(self, position: int, size: int) -> Best:
        """The best of the first `size` nodes, after one was added or told anew.

        O(1), but where the best itself got worse.
        """
        best, score = self.best, self._score
        for at in (self.source(position), position):
            own = None if at == ROOT else self._sampled.own(at).score
            if at == best and own != score and (own is None or score is None or own < score):
                return self._find_best(size)
            if own is None or (score is not None and own < score):
                continue
            if own != score or best is None or at < best:
                best, score = at, own
        return best, score

    def _find_best(self, size: int) -> Best:
        best, score = None, None
        for position in range(size):
            own = self._sampled.own(position).score
            if own is not None and (score is None or own > score):
                best, score = position, own
        return best, score

    def _reward(self, position: int) -> float:
        """A mean reward to compare; what has none is below all."""
        reward = self._nodes[position].mean_reward
        return -inf if reward is None or reward != reward else reward

    def _copy(self) -> "Tree":
        n = self.size
        nodes, parents = self._nodes[:n], self._parents[:n]
        sampled = Sampled()
        for node, parent in zip(nodes, parents, strict=True):
            sampled.append(node, parent, None if parent == ROOT else nodes[parent])
        tree = replace(
            self,
            _nodes=nodes,
            _parents=parents,
            _depths=self._depths[:n],
            _index={node.id: position for position, node in enumerate(nodes)},
            _sampled=sampled,
        )
        best, score = tree._find_best(n)
        return replace(tree, best=best, _score=score)


def label(checkpoint: Checkpoint | None) -> str:
    """What a checkpoint is called on screen; ``base`` for the base weights."""
    if checkpoint is None:
        return "base"
    return checkpoint.name or checkpoint.id[:8]


# A tree read again: what is known of it is kept, and what was made of that with it.


MOST = 500
"""Rows that are compared with what is known of them; a tree with more is taken as another."""
RETOLD = ("is_active", "state", "pinned", "evaluations")
"""What may be said anew of a step without it being another."""


def reread(tree: Tree, checkpoints: Sequence[Checkpoint]) -> Tree | None:
    """The version of a tree that a reading makes of it.

    Args:
        tree: As it is known.
        checkpoints: As it was read now, oldest first, shape (N,).

    Returns:
        None where it has not only grown: it must be built anew.
    """
    if len(checkpoints) < len(tree):
        return None
    told = [pair for pair in zip(tree, checkpoints, strict=False) if pair[0] is not pair[1]]
    if len(told) > MOST or not all(is_same(*pair) for pair in told):
        return None
    for checkpoint in (*(new for _, new in told), *checkpoints[len(tree) :]):
        tree = tree.add(checkpoint)
    return tree.with_head(next((c.id for c in reversed(checkpoints) if c.is_active), None))


def is_same(old: Checkpoint, new: Checkpoint) -> bool:
    """Whether both are one step, of which something may be said anew."""
    return old is new or old.model_copy(update={name: getattr(new, name) for name in RETOLD}) == new
