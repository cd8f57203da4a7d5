"""The model catalog (bases, own forks, served models) and the immutable checkpoint tree."""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import NamedTuple

from hud_tui.rl.choice import Choice, choose
from hud_tui.rl.metrics import change
from hud_tui.rl.names import is_shared
from hud_tui.rl.own_numbers import (
    Conditions,
    Own,
    Sampled,
    are_on_same_tasks,
    joined_groups,
    own_metrics,
)
from hud_tui.wire import BASE, Checkpoint, Evaluation, Group, Model

NAME_LIMIT = 100
"""Maximum length of a model's name on the wire."""
_SIZE = re.compile(r"[-_ ]\d+(\.\d+)?[kmb]$")


class Kind(StrEnum):
    """What the user can do with a model."""

    OWN = "own"
    """The user's own, trainable."""
    BASE = "base"
    """A shared base: fork it to train it."""
    SERVED = "served"
    """Neither; only served by the gateway."""


def kind(model: Model) -> Kind:
    if not model.is_trainable:
        return Kind.SERVED
    return Kind.BASE if is_shared(model) else Kind.OWN


def own_models(models: Iterable[Model]) -> list[Model]:
    """The user's trainable models, newest first: by their place in the embedded service's catalog,
    which lists them as they were made, because clocks go back; on HUD by their time."""
    own = [model for model in models if kind(model) is Kind.OWN]
    if all(model.training_defaults is not None for model in own):
        return own[::-1]
    return sorted(own, key=lambda model: model.created_at or "", reverse=True)


def origin(model: Model) -> str:
    """Where a fork came from, e.g. ``forked from mixed-rl step-000017``.

    Empty if the service does not report it, or if it is the base model, which is shown anyway.
    """
    source = model.forked_from or ""
    if source in ("", model.base_model):
        return ""
    return f"forked from {' '.join(source.rsplit('@', 1))}"


def free_name(source: str, models: Iterable[Model]) -> str:
    """An unused name for a fork, e.g. ``mixed-rl`` or ``mixed-rl-2`` for ``tiny/mixed-0.2M``."""
    tail = source.rpartition("/")[2].casefold()
    stem = re.sub(r"-rl(-\d+)?$", "", _SIZE.sub("", tail))[: NAME_LIMIT - 10] or "model"
    taken = _names(models)
    number = 1
    while (name := f"{stem}-rl" if number == 1 else f"{stem}-rl-{number}") in taken:
        number += 1
    return name


def slug_of(name: str) -> str:
    """The slug that the embedded service derives from a name, if that slug is free."""
    return re.sub(r"[^a-z0-9.]+", "-", name.casefold()).strip("-.")[:60] or "model"


def name_problem(name: str, models: Sequence[Model]) -> str:
    """Why a fork cannot have this name, in one line; empty if it can."""
    if not name.strip():
        return "enter a name"
    if len(name) > NAME_LIMIT:
        return f"at most {NAME_LIMIT} characters"
    if not name.isprintable():
        return "use printable characters only"
    if not any(map(str.isalpha, name)):
        return "use at least one letter, e.g. arith-rl"
    if name.strip().casefold() in _names(models):
        return "a model with this name exists"
    return ""


def _names(models: Iterable[Model]) -> set[str]:
    return {text.casefold() for model in models for text in (model.name, model.model_name) if text}


# Tree: a model's checkpoints, their parents, and the head.
#
# A tree only grows, so its versions share one list of nodes and one index: a version is a
# number of nodes and a head. Appending a step is O(1), and an older version keeps its
# shape. Updates of a known node (e.g. its state has expired, or new rollouts of its
# weights, see `hud_tui.rl.own_numbers`) are visible in every version.


ROOT = -1
"""The parent position of a step that started from the base weights."""


ANEW = 1 / 512
"""Growth of what is compared after which the best is chosen anew."""


class _LastChoice(NamedTuple):
    """The choice that versions of a tree share, and what it was made from."""

    choice: Choice | None
    size: int
    told: int
    changes: int
    observed: int

    def holds(self, sampled: Sampled) -> bool:
        """Whether nothing more is known that would count."""
        more = sampled.told - self.told
        return sampled.changes == self.changes and more < max(1, ANEW * self.observed)


@dataclass(frozen=True, eq=False)
class Tree:
    """An immutable version of the tree. Build it with `Tree.of`; grow it with `add`."""

    size: int = 0
    head: int | None = None
    """Position of the served checkpoint; None while the base weights are served."""
    peak: float = 0.0
    """Highest mean reward of any step, which no own mean reward exceeds; at least 0."""
    pinned: frozenset[int] = frozenset()
    """Positions of pinned checkpoints, which the service keeps beyond its disk limit."""
    edition: int = 0
    """Incremented whenever a known node is updated."""
    base_evaluations: Sequence[Evaluation] = ()
    """Of the weights that the model started from, oldest first."""
    _nodes: list[Checkpoint] = field(default_factory=list, repr=False)
    _parents: "array[int]" = field(default_factory=lambda: array("q"), repr=False)
    _depths: "array[int]" = field(default_factory=lambda: array("q"), repr=False)
    _index: dict[str, int] = field(default_factory=dict, repr=False)
    _sampled: Sampled = field(default_factory=Sampled, repr=False)
    _last_choice: list[_LastChoice] = field(default_factory=list, repr=False)
    """At most one."""
    _children: "array[int]" = field(default_factory=lambda: array("q"), repr=False)
    """Number of steps taken from each position."""
    _forks: list[int] = field(default_factory=list, repr=False)
    """Positions from which several steps were taken, in the order in which they became forks."""

    @classmethod
    def of(
        cls, checkpoints: Iterable[Checkpoint], base_evaluations: Sequence[Evaluation] = ()
    ) -> "Tree":
        """The tree of checkpoints listed oldest first, shape (N,)."""
        tree = cls()
        tree._sampled.evaluate(ROOT, base_evaluations)
        head = None
        for checkpoint in checkpoints:
            position = tree._index.get(checkpoint.id)
            if position is None:
                position = tree._append(checkpoint)
            if checkpoint.is_active:
                head = position
        pinned = frozenset(position for position, node in enumerate(tree._nodes) if node.pinned)
        return replace(
            tree,
            size=len(tree._nodes),
            head=head,
            peak=max([0.0, *map(tree._reward, range(len(tree._nodes)))]),
            pinned=pinned,
            base_evaluations=base_evaluations,
        )

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, position: int) -> Checkpoint:
        """The checkpoint at a position; positions count from 0, oldest first. Raises IndexError."""
        if not 0 <= position < self.size:
            raise IndexError(position)
        return self._nodes[position]

    def __iter__(self) -> Iterator[Checkpoint]:
        return (self._nodes[position] for position in range(self.size))

    def checkpoints(self, start: int = 0) -> Iterator[Checkpoint]:
        """The checkpoints from a position on, as a read would list them now: only the head is
        active. Iterating over the tree gives them as they arrived, each of them active if it was
        the head then."""
        for position in range(start, self.size):
            node, active = self._nodes[position], position == self.head
            same = node.is_active == active
            yield node if same else node.model_copy(update={"is_active": active})

    def find(self, checkpoint_id: str | None) -> int | None:
        """The position of a checkpoint; None if this version does not have it."""
        position = self._index.get(checkpoint_id or "", self.size)
        return position if position < self.size else None

    def find_weights(self, id_: str) -> int | None:
        """As `find`; ROOT for `BASE`."""
        return ROOT if id_ == BASE else self.find(id_)

    def of_step(self, step: int) -> int | None:
        """Position of the checkpoint that step number `step` made (from 1); the newest if branches
        have several."""
        newest_first = range(self.size - 1, -1, -1)
        return next((p for p in newest_first if self._nodes[p].step == step), None)

    def parent(self, position: int) -> int:
        """The parent's position, or ROOT."""
        return self._parents[position]

    def depth(self, position: int) -> int:
        """Optimizer steps from the base weights up to this checkpoint; 0 for ROOT."""
        return 0 if position == ROOT else self._depths[position]

    def extends(self, older: "Tree") -> bool:
        """Whether this version is `older` plus zero or more steps."""
        return self.size >= older.size and (
            self._parents is older._parents
            or self._parents[: older.size] == older._parents[: older.size]
        )

    def updates(self, older: "Tree") -> bool:
        """Whether a node that `older` has may have been updated since."""
        return self._nodes is not older._nodes or self.edition != older.edition

    @property
    def forks(self) -> list[int]:
        """Positions of the checkpoints from which more than one step was taken."""
        return [position for position in self._forks if position < self.size]

    def node(self, position: int | None) -> Checkpoint | None:
        """The checkpoint at a position; None for ROOT and None."""
        return None if position is None or position == ROOT else self._nodes[position]

    @property
    def served(self) -> Checkpoint | None:
        """The head's checkpoint; None while the base weights are served."""
        return self.node(self.head)

    @cached_property
    def choice(self) -> Choice | None:
        """The most likely best of the checkpoints and the base; None while no reward is known.

        O(N), but made only when what is compared has changed, or has grown by a share ANEW.
        """
        for last in self._last_choice:
            if last.size <= self.size and last.holds(self._sampled) and self._serves(last.choice):
                return last.choice
        by, observed, apart = self._sampled.observed(self.size)
        positions = (each.position for each in observed if each.position != ROOT)
        gone = [position for position in positions if not is_servable(self._nodes[position])]
        choice = choose(self._parents, self._depths, by, observed, gone, apart)
        told, changes = self._sampled.told, self._sampled.changes
        self._last_choice[:] = [_LastChoice(choice, self.size, told, changes, len(observed))]
        return choice

    def _serves(self, choice: Choice | None) -> bool:
        node = None if choice is None else self.node(choice.position)
        return node is None or is_servable(node)

    @property
    def best(self) -> int | None:
        """Position of the checkpoint with a star; None if none stands out."""
        return None if self.choice is None else self.choice.star

    @property
    def choice_sentences(self) -> list[str]:
        """The choice and its reasons; empty without one."""
        if self.choice is None:
            return []
        return self.choice.sentences(lambda position: label(self.node(position)))

    def add(self, checkpoint: Checkpoint) -> "Tree":
        """The version with one more checkpoint, or with an update of a known one.

        An update never makes a checkpoint the head: an event that arrives late must not move the
        head back.
        """
        stored = self.find(checkpoint.id)
        if stored is not None:
            return self._renew(stored, checkpoint)
        tree = self if self.size == len(self._nodes) else self._copy()
        position = tree._append(checkpoint)
        return replace(
            tree,
            size=position + 1,
            head=position if checkpoint.is_active else tree.head,
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
        return replace(self, edition=self.edition + 1, pinned=pinned)

    def with_base(self, evaluations: Sequence[Evaluation]) -> "Tree":
        """The version with these evaluations of the weights that the model started from."""
        if list(evaluations) == list(self.base_evaluations):
            return self
        self._sampled.evaluate(ROOT, evaluations)
        return replace(self, edition=self.edition + 1, base_evaluations=evaluations)

    def with_head(self, checkpoint_id: str | None) -> "Tree":
        """The version with another head; unchanged if the checkpoint is unknown."""
        position = self.find(checkpoint_id)
        if position == self.head or (position is None and checkpoint_id is not None):
            return self
        return replace(self, head=position)

    def lineage(self, position: int | None) -> Iterator[int]:
        """Positions from a checkpoint back to its first step."""
        while position is not None and position != ROOT:
            yield position
            position = self._parents[position]

    def path(self, position: int | None) -> Sequence[int]:
        """The lineage of a position, oldest first."""
        return list(self.lineage(position))[::-1]

    def is_ancestor(self, ancestor: int, position: int | None) -> bool:
        """Whether `position` is `ancestor` or descends from it."""
        for node in self.lineage(position):
            if node <= ancestor:
                return node == ancestor
        return False

    def grew_from(self, start: int, size: int) -> bool:
        """Whether the head descends from `start` by steps added after there were `size` nodes."""
        if self.head is None or self.head < size:
            return False
        return start == next((p for p in self.lineage(self.head) if p < size), ROOT)

    def common_ancestor(self, one: int | None, other: int | None) -> int:
        """Position of the newest common ancestor, or ROOT."""
        left, right = ROOT if one is None else one, ROOT if other is None else other
        while left != right:
            if left > right:
                left = self._parents[left]
            else:
                right = self._parents[right]
        return left

    def own(self, position: int) -> Own:
        """Own rewards of a checkpoint, or of the base weights for ROOT."""
        return self._sampled.own(position)

    def evaluation(self, position: int) -> Evaluation | None:
        """The held-out evaluation of a checkpoint, or of the base for ROOT: those under the common
        conditions pooled, else its largest."""
        evaluation = self._sampled.evaluated.best_known(position)
        return None if evaluation is None else evaluation[0]

    @property
    def common(self) -> Conditions | None:
        """Conditions of the evaluations that checkpoints are compared by; None if nothing was
        evaluated."""
        return self._sampled.evaluated.common

    @property
    def evaluated_range(self) -> tuple[float, float] | None:
        """Lowest and highest interval end over the shown held-out evaluation of each checkpoint;
        None if nothing was evaluated. O(evaluated checkpoints)."""
        means = [evaluation.estimate for evaluation in self._sampled.evaluated.shown]
        if not means:
            return None
        lows = (mean.value if mean.low is None else mean.low for mean in means)
        highs = (mean.value if mean.high is None else mean.high for mean in means)
        return min(lows), max(highs)

    def evaluations(self) -> Iterator[tuple[int, Evaluation]]:
        """Every position with a held-out evaluation, and that evaluation as `evaluation` returns
        it."""
        for position in self._sampled.evaluated.positions:
            evaluation = self.evaluation(position) if position < self.size else None
            if evaluation is not None:
                yield position, evaluation

    def own_metrics(self, position: int) -> dict[str, float]:
        """Own metrics by canonical key; empty if nothing was sampled from the checkpoint. O(steps
        taken from it)."""
        return own_metrics(self.steps(position), self.own(position))

    def own_groups(self, position: int) -> list[Group]:
        """Rewards by task of the training rollouts sampled from it, if the service reports them."""
        return joined_groups(group for step in self.steps(position) for group in step.groups)

    def source(self, position: int) -> int:
        """Position of the checkpoint that sampled a step's rollouts, or ROOT."""
        return self._sampled.sources[position]

    def steps(self, position: int) -> list[Checkpoint]:
        """Steps trained on rollouts sampled from a checkpoint or from ROOT, newest first."""
        return [self._nodes[child] for child in self._sampled.steps(position) if child < self.size]

    def reward(self, position: int) -> float | None:
        """Own mean reward of a checkpoint, in the taskset's reward unit."""
        return self.own(position).reward

    def delta(self, position: int) -> float | None:
        """Own mean reward minus the parent's, in the taskset's reward unit; 0 if both print alike.
        None if either is unknown or they were sampled on different tasks."""
        return self.difference(self._parents[position], position)

    def difference(self, before: int, after: int) -> float | None:
        """Own mean reward of `after` minus that of `before`; 0 and None as for `delta`."""
        old, new = self.reward(before), self.reward(after)
        if old is None or new is None or not self.on_same_tasks(before, after):
            return None
        return change(old, new)

    def on_same_tasks(self, first: int, second: int) -> bool:
        """Whether the training rollouts of both positions are of the same tasks; True if
        unknown."""
        return are_on_same_tasks(self.steps(first), self.steps(second))

    def _append(self, checkpoint: Checkpoint) -> int:
        """Add a node to the shared lists; an unknown parent counts as the base."""
        position = len(self._nodes)
        parent = self._index.get(checkpoint.prev_model_checkpoint_id or "", ROOT)
        self._nodes.append(checkpoint)
        self._parents.append(parent)
        self._depths.append(1 if parent == ROOT else self._depths[parent] + 1)
        self._index[checkpoint.id] = position
        above = None if parent == ROOT else self._nodes[parent]
        if above is not None:  # of two equal ids, one is kept
            object.__setattr__(checkpoint, "prev_model_checkpoint_id", above.id)
        self._sampled.append(checkpoint, parent, above, self._position_of)
        self._children.append(0)
        if parent != ROOT:
            self._children[parent] += 1
            if self._children[parent] == 2:
                self._forks.append(parent)
        return position

    def _position_of(self, id_: str) -> int | None:
        """The position of a checkpoint, ROOT for `BASE`; None if it is not in the tree."""
        return ROOT if id_ == BASE else self._index.get(id_)

    def _reward(self, position: int) -> float:
        """A step's mean reward for comparison; −inf if there is none."""
        reward = self._nodes[position].mean_reward
        return -inf if reward is None or reward != reward else reward

    def _copy(self) -> "Tree":
        """This version with nodes of its own."""
        copy = Tree.of(self._nodes[: self.size], self.base_evaluations)
        return replace(
            copy, head=self.head, peak=self.peak, pinned=self.pinned, edition=self.edition
        )


EXPIRED, DAMAGED = "expired", "damaged"
"""Values of `Checkpoint.state`: the weights were deleted, or cannot be read."""


def is_servable(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint's weights can be served."""
    return checkpoint.state not in (EXPIRED, DAMAGED)


def label(checkpoint: Checkpoint | None) -> str:
    """Display name of a checkpoint; ``base`` for the base weights."""
    if checkpoint is None:
        return "base"
    return checkpoint.name or checkpoint.id[:8]


# Rereading a tree: known nodes, and everything derived from them, are reused.


MOST = 500
"""Maximum nodes that may differ from the known ones; if more do, the tree is built from scratch."""
MUTABLE = ("is_active", "state", "pinned", "evaluations")
"""Fields of a node that may change."""


def reread(tree: Tree, checkpoints: Sequence[Checkpoint]) -> Tree | None:
    """Update a known tree with a new read of it.

    Args:
        checkpoints: The nodes just read, oldest first, shape (N,).

    Returns:
        The new version; None if a known node is missing or changed in a field that is immutable,
        so that the tree must be rebuilt.
    """
    if len(checkpoints) < len(tree):
        return None
    changed = [pair for pair in zip(tree, checkpoints, strict=False) if pair[0] is not pair[1]]
    if len(changed) > MOST or not all(is_same(*pair) for pair in changed):
        return None
    for checkpoint in (*(new for _, new in changed), *checkpoints[len(tree) :]):
        tree = tree.add(checkpoint)
    return tree.with_head(next((c.id for c in reversed(checkpoints) if c.is_active), None))


def step_metrics(checkpoint: Checkpoint) -> dict[str, float]:
    """A checkpoint's metrics, including its typed fields under the names that events use."""
    typed = {"reward_mean": checkpoint.mean_reward, "learning_rate": checkpoint.learning_rate}
    given = {name: value for name, value in typed.items() if value is not None}
    return {**given, **checkpoint.metrics}


def is_same(old: Checkpoint, new: Checkpoint) -> bool:
    """Whether both are the same node, apart from the fields in MUTABLE."""
    if old is new:
        return True
    return old.model_copy(update={name: getattr(new, name) for name in MUTABLE}) == new
