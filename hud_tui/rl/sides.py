"""The two sides of a comparison: whose rollouts tell of a checkpoint.

The training rollouts sampled from a checkpoint are those of the steps taken from it. One batch has
few tasks, so the rollouts of its neighbours in the tree are added until both sides have enough
rollouts of the same tasks, as far as the rewards of the neighbours are alike. Held-out rollouts are
those of evaluations, and those that a run sampled while it trained.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hud_tui.rl.checkpoint_tree import ROOT, Tree, label
from hud_tui.rl.curves import reward_spread
from hud_tui.rl.metrics import metrics_of
from hud_tui.rl.own_numbers import HELDOUT, joined_groups, reward_of
from hud_tui.rl.text import one_line
from hud_tui.wire import Checkpoint, Evaluation, Group

FEWEST = 12
"""Tasks of both sides below which neighbours are added, unless those are all of their tasks."""
ENOUGH = 256
"""Training rollouts of the same tasks, on either side, from which no neighbours are added."""
WIDTHS = (1, 2, 4, 8, 16)
"""Number of checkpoints whose training rollouts make a side."""
REACH = 64
"""Steps from a checkpoint within which its neighbours are."""

Read = Mapping[str, Sequence[Group]]
"""Groups of steps that a tree does not have, by the step's checkpoint id."""


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two: a checkpoint, or the weights that its model started from."""

    tree: Tree
    position: int
    """ROOT for the weights that the model started from."""
    model_id: str = ""
    model: str = ""
    """The model's name, if the two are of different models."""
    near: dict["Side", list[int]] = field(default_factory=dict, repr=False)
    """What `around` found of it beside another one."""

    @property
    def node(self) -> Checkpoint | None:
        return self.tree.node(self.position)

    @property
    def name(self) -> str:
        return one_line(f"{self.model} {self.name_of(self.position)}".strip(), 60)

    @property
    def depth(self) -> int:
        return self.tree.depth(self.position)

    def name_of(self, position: int) -> str:
        """Name of a checkpoint of its tree."""
        return one_line(label(self.tree.node(position)), 40)

    def evaluations_of(self, position: int) -> Sequence[Evaluation]:
        tree = self.tree
        return tree.base_evaluations if position == ROOT else tree[position].evaluations


def meet_of(side: Side, other: Side) -> int | None:
    """Position of the newest common ancestor; None in different trees."""
    if side.tree is not other.tree:
        return None
    return side.tree.common_ancestor(side.position, other.position)


@dataclass(frozen=True)
class Sampled:
    """Training rollouts of a checkpoint and of its neighbours."""

    positions: tuple[int, ...]
    """Of the checkpoints that they were sampled from, oldest first; empty if there are none."""
    groups: Sequence[Group]
    """By task."""

    @property
    def rollouts(self) -> int:
        return sum(len(group.rewards) for group in self.groups)


def around(side: Side, other: Side) -> list[int]:
    """Positions of a checkpoint and of its neighbours in the tree, nearest first, at most REACH
    steps away. O(size of the tree).

    If one of the two descends from the other, they are on the far side of it; on this side, and
    nearer to it, only where nothing was sampled there. They end before one whose reward differs
    beyond chance: its weights are others than those that the side is about.
    """
    if other not in side.near:
        side.near[other] = _around(side, other)
    return side.near[other]


def _around(side: Side, other: Side) -> list[int]:
    line, here, meet = _line(side, other), side.depth, meet_of(side, other)
    low, high = max(0, here - REACH), min(len(line) - 1, here + REACH)
    if meet == side.position:  # the other one descends from it
        high = here
    elif meet == other.position:
        is_sampled = any(map(side.tree.steps, line[here:]))
        low = here if is_sampled else (here + other.depth + 2) // 2
    elif meet is not None:
        low = max(low, side.tree.depth(meet) + 1)
    depths = sorted(range(low, high + 1), key=lambda depth: (abs(depth - here), -depth))
    return list(_alike(side.tree, [line[depth] for depth in depths]))


def _alike(tree: Tree, positions: Sequence[int]) -> Iterator[int]:
    """Positions up to the first whose reward differs from that of the first one with rollouts."""
    first: tuple[float, float] | None = None
    for position in positions:
        step = next(iter(tree.steps(position)), None)
        reward = None if step is None else reward_of(step)
        if step is not None and reward is not None:
            mean = reward, reward_spread(step).half
            first = first or mean
            if not _overlap(first, mean):
                return
        yield position


def _overlap(mean: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether two intervals, each a mean and half its width, overlap, or a width is unknown."""
    return not abs(mean[0] - other[0]) > mean[1] + other[1]


def _line(side: Side, other: Side) -> list[int]:
    """A lineage through a checkpoint, by depth from ROOT: to the other one or to the head if these
    descend from it, else to its newest descendant."""
    tree, here = side.tree, side.position
    for tip in (other.position if other.tree is tree else None, tree.head):
        if tip is not None and tip != here and tree.common_ancestor(tip, here) == here:
            return [ROOT, *tree.path(tip)]
    return [ROOT, *tree.path(_newest_descendant(tree, here))]


def _newest_descendant(tree: Tree, position: int) -> int:
    descendants = {position}
    for later in range(position + 1, len(tree)):
        if tree.parent(later) in descendants:
            descendants.add(later)
    return max(descendants)


def steps_around(side: Side, other: Side) -> Iterator[tuple[int, list[Checkpoint]]]:
    """Positions of `around`, each with the steps that were trained on its rollouts."""
    for position in around(side, other):
        if steps := side.tree.steps(position):
            yield position, steps


def training_rollouts(left: Side, right: Side, read: Read) -> tuple[Sampled, Sampled]:
    """The training rollouts of both sides. Neighbours are added while the two have fewer than
    FEWEST tasks in common, and, as many as there are steps between the two, while they have fewer
    than ENOUGH rollouts."""
    lines = [_with_groups(steps_around(*pair), read) for pair in ((left, right), (right, left))]
    meet = meet_of(left, right)
    apart = WIDTHS[-1] if meet is None else left.depth + right.depth - 2 * left.tree.depth(meet)
    for width in WIDTHS:
        before, after = (_joined(line[:width]) for line in lines)
        is_enough = width >= apart or _shared(before, after) >= ENOUGH
        if width >= max(map(len, lines)) or (is_enough and _compares(before, after)):
            break
    return before, after


def _compares(before: Sampled, after: Sampled) -> bool:
    """Whether two sides have FEWEST tasks in common, or all of them."""
    first, second = ({group.task_slug for group in side.groups} for side in (before, after))
    return len(first & second) >= min(FEWEST, len(first | second))


Line = list[tuple[int, list[Group]]]
"""Positions with the groups that were sampled from each."""


def _with_groups(around: Iterable[tuple[int, list[Checkpoint]]], read: Read) -> Line:
    """The nearest positions that have groups, as many as a side may have."""
    line: Line = []
    for position, steps in around:
        groups = [group for step in steps for group in (step.groups or read.get(step.id, ()))]
        line += [(position, groups)] if groups else []
        if len(line) == WIDTHS[-1]:
            break
    return line


def _joined(line: Line) -> Sampled:
    groups = joined_groups(group for _, groups in line for group in groups)
    return Sampled(tuple(sorted(position for position, _ in line)), groups)


def _shared(before: Sampled, after: Sampled) -> int:
    """The smaller number of rollouts, of the two, of the tasks that both have."""
    counts = [{g.task_slug: len(g.rewards) for g in side.groups} for side in (before, after)]
    slugs = counts[0].keys() & counts[1].keys()
    return min(sum(count[slug] for slug in slugs) for count in counts)


HELDOUT_PAIRS = 4
"""Most pairs of checkpoints whose held-out rollouts are looked for."""


def heldout_pairs(left: Side, right: Side) -> list[tuple[int, int]]:
    """Positions of checkpoints on both sides that may have held-out rollouts, nearest first."""
    lines = [
        [position for position in around(*pair) if has_heldout(pair[0], position)]
        for pair in ((left, right), (right, left))
    ]
    ranks = sorted((i + j, i, j) for i in range(len(lines[0])) for j in range(len(lines[1])))
    return [(lines[0][i], lines[1][j]) for _, i, j in ranks[:HELDOUT_PAIRS]]


def has_heldout(side: Side, position: int) -> bool:
    return bool(evaluation_of(side, position) or _heldout_report(side, position))


def evaluation_of(side: Side, position: int) -> Evaluation | None:
    """A checkpoint's largest evaluation on held-out tasks whose rewards by task can be read."""
    stored = [e for e in side.evaluations_of(position) if e.id and e.split == "heldout"]
    return max(stored, key=lambda evaluation: evaluation.num_traces, default=None)


def heldout_step(side: Side, position: int) -> tuple[str, int] | None:
    """Where the held-out rollouts are that a run sampled from a checkpoint while it trained: the
    run's id, and the number of the run's step that reports them. None without any."""
    step = _heldout_report(side, position)
    if step is None or step.job_id is None:
        return None
    return step.job_id, step_of_run(side.tree, step)


def _heldout_report(side: Side, position: int) -> Checkpoint | None:
    """The step of a run that reports a held-out reward of a checkpoint; None without any."""
    steps = (step for step in side.tree.steps(position) if step.job_id is not None)
    return next((step for step in steps if HELDOUT in metrics_of(step)), None)


def step_of_run(tree: Tree, step: Checkpoint) -> int:
    """The number of a step in its run, from 1: a tree counts those of earlier runs, too."""
    last = tree.find(step.id)
    nodes = (tree[position] for position in range(len(tree) if last is None else last + 1))
    return sum(node.job_id == step.job_id for node in nodes)
