"""What changed between two checkpoints, from stored rollouts: it takes no new evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite

from hud_tui.rl.alarms.alarm import Alarm
from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.evaluation import Difference, Scores, difference, is_unseen
from hud_tui.rl.metrics import change, metric, metrics_of, of_weights, ranked
from hud_tui.rl.own_numbers import HELDOUT, REWARD, Own, are_on_same_tasks, on_same_tasks
from hud_tui.rl.run import Run
from hud_tui.rl.run_groups import Differences
from hud_tui.rl.settings import setting_label
from hud_tui.rl.sides import Read, Sampled, Side, around, has_heldout, meet_of, training_rollouts
from hud_tui.rl.text import counted, one_line
from hud_tui.wire import Checkpoint, Evaluation, Group

NOISE = 0.01
"""Share of a metric's healthy range below which a difference counts as none."""


@dataclass(frozen=True)
class MetricPair:
    """One metric of both checkpoints; None where one does not have it."""

    key: str
    left: float | None
    right: float | None
    compares: bool = True
    """Whether both are measured on the same tasks, as far as known."""

    @property
    def delta(self) -> float | None:
        """Right minus left; 0 if both print alike, None if one is missing or they cannot be
        compared."""
        if self.left is None or self.right is None or not self.compares:
            return None
        return change(self.left, self.right, self.key)

    @property
    def better(self) -> int:
        """1 if the right one is better, −1 if the left one is, 0 if neither.

        Differences below NOISE of the healthy range count as neither.
        """
        delta, definition = self.delta or 0.0, metric(self.key)
        low, high = definition.healthy or (0.0, 0.0)
        if isfinite(high - low) and abs(delta) < NOISE * (high - low):
            return 0
        return definition.better * ((delta > 0) - (delta < 0))


@dataclass(frozen=True)
class HeldoutRollouts:
    """Held-out rollouts of one checkpoint."""

    position: int
    groups: Sequence[Group]
    """By task."""
    evaluation: Evaluation | None = None
    """The evaluation that they are of; None if a run sampled them while it trained."""


@dataclass(frozen=True)
class Heldout:
    """Held-out rollouts of both, or of their nearest neighbours that have some."""

    before: HeldoutRollouts
    after: HeldoutRollouts
    difference: Difference


@dataclass(frozen=True)
class Batches:
    """The steps between two checkpoints, whose batches made them differ."""

    title: str
    steps: Sequence[Checkpoint]
    """Oldest first."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """What is stored of two checkpoints, side by side."""

    left: Side
    right: Side
    metrics: Sequence[MetricPair]
    """Own metrics, measured on rollouts sampled from each. Held-out and mean reward first."""
    steps: Sequence[MetricPair]
    """Metrics of the steps that made the checkpoints."""
    same_tasks: bool
    """Whether the training rollouts sampled from both are of the same tasks."""
    sampled: tuple[Sampled, Sampled]
    """Training rollouts, left and right."""
    heldout: Heldout | None = None
    """None if none are stored of the same tasks, or they cannot be read."""
    unread: str = ""
    """Why held-out rollouts could not be read; empty if they could."""
    settings: Differences | None = None
    """In what the runs that made them differ; None if one run made both, or a run is unknown."""

    @property
    def own(self) -> tuple[Own, Own]:
        """Own rewards, left and right."""
        left, right = self.left, self.right
        return left.tree.own(left.position), right.tree.own(right.position)

    @property
    def meet(self) -> Side | None:
        """The newest common ancestor; None if they are of different models."""
        position = meet_of(self.left, self.right)
        return None if position is None else replace(self.left, position=position)

    @property
    def is_of_one_run(self) -> bool:
        """Whether one run made both."""
        jobs = [None if side.node is None else side.node.job_id for side in (self.left, self.right)]
        return jobs[0] is not None and jobs[0] == jobs[1]

    @cached_property
    def tasks(self) -> Difference | None:
        """The training rollouts of the tasks that both sides have; None if there are no such
        tasks."""
        return difference(*(Scores.of(sampled.groups) for sampled in self.sampled))

    def draw(self) -> None:
        """Compute the bootstrap intervals, which takes long, before they are read."""
        if self.heldout is not None:
            self.heldout.difference.sentences("A", "B")
        if self.tasks is not None:
            self.tasks.sentences("A", "B")

    @property
    def batches(self) -> list[Batches]:
        """The steps between them; of checkpoints that diverged, those since then to each."""
        meet, between = self.meet, list[Batches]()
        if meet is None:
            return []
        for mark, side in (("A", self.left), ("B", self.right)):
            path = side.tree.path(side.position)[meet.depth :]
            steps = [side.tree[position] for position in path]
            is_line = meet.position in (self.left.position, self.right.position)
            title = "between them" if is_line else f"from there to {mark}"
            between += [Batches(title, steps)] if steps else []
        return between


def compare(left: Side, right: Side, read: Read | None = None) -> Comparison:
    """Compare two checkpoints, of one tree or of two models.

    Args:
        read: Groups of steps that the trees do not have.
    """
    own = left.tree.own(left.position), right.tree.own(right.position)
    same_tasks = are_on_same_tasks(*(side.tree.steps(side.position) for side in (left, right)))
    compares = {HELDOUT: _heldout_compares(own, same_tasks)}
    before, after = (side.tree.own_metrics(side.position) for side in (left, right))
    keys = sorted(ranked([*dict.fromkeys([*before, *after])]), key=lambda key: key != HELDOUT)
    return Comparison(
        left,
        right,
        [
            MetricPair(key, before.get(key), after.get(key), compares.get(key, same_tasks))
            for key in keys
        ],
        _step_pairs(left.node, right.node),
        same_tasks,
        training_rollouts(left, right, read or {}),
    )


def _heldout_compares(own: tuple[Own, Own], same_tasks: bool) -> bool:
    """Whether two held-out rewards are on the same tasks. Evaluations report theirs; what steps
    report is on the held-out tasks of the taskset that they are trained on."""
    if own[0].apart or own[1].apart:
        return own[0].apart == own[1].apart and same_tasks and not any(o.heldout_tasks for o in own)
    return same_tasks or all(side.heldout_tasks for side in own)


def _step_pairs(left: Checkpoint | None, right: Checkpoint | None) -> list[MetricPair]:
    """Metrics of the steps themselves: of their batches and updates."""
    before, after = ({} if node is None else metrics_of(node) for node in (left, right))
    both = dict.fromkeys([*before, *after])
    keys = ranked([key for key in both if key == REWARD or not of_weights(key)])
    alike = left is None or right is None or on_same_tasks(left, right)
    return [
        MetricPair(key, before.get(key), after.get(key), alike or key != REWARD) for key in keys
    ]


# What is said of it.


def relation(both: Comparison) -> str:
    """How the two are related, in a sentence."""
    meet, left, right = both.meet, both.left, both.right
    if meet is None:
        return "They are of different models."
    a_steps, b_steps = (counted(side.depth - meet.depth, "step") for side in (left, right))
    if meet.position == left.position:
        return f"B is {b_steps} after A."
    if meet.position == right.position:
        return f"A is {a_steps} after B."
    parted = "the base weights" if meet.position == ROOT else meet.name
    return f"They diverged at {parted}: A is {a_steps} after it, B {b_steps}."


def made_sentences(both: Comparison) -> list[str]:
    """How the two are related, and in what the runs that made them differ."""
    if both.is_of_one_run:
        return [relation(both), "Both are of one run, with the same parameters."]
    if both.settings is None:
        return [relation(both)]
    (_, left), (_, right) = both.settings.rows
    pairs = zip(both.settings.keys, left, right, strict=True)
    differ = [f"{setting_label(key)} {before} → {after}" for key, before, after in pairs]
    runs = (
        f"Their runs differ in {', '.join(differ)}."
        if differ
        else "Their runs have the same parameters."
    )
    return [relation(both), runs]


def training_sentences(both: Comparison) -> list[str]:
    """What the training rollouts tell; why they tell nothing, if so."""
    if both.tasks is None:
        return [_why_no_training(both)]
    sides = zip("AB", (both.left, both.right), both.sampled, strict=True)
    of = "; ".join(
        f"{mark} {_span(side, sampled.positions)} ({counted(sampled.rollouts, 'rollout')})"
        for mark, side, sampled in sides
    )
    return [*_verdicts(both.tasks), f"Sampled from {of}."]


def _verdicts(delta: Difference) -> list[str]:
    said = [f"{sentence}." for sentence in delta.sentences("A", "B")]
    better, worse = len(delta.better), len(delta.worse)
    if is_unseen(delta.reward) and (better or worse):
        said.append(f"Task by task, {worse} regressed and {better} improved beyond chance.")
    return said


def _why_no_training(both: Comparison) -> str:
    sides = zip("AB", both.sampled, strict=True)
    missing = [mark for mark, sampled in sides if not sampled.groups]
    if missing:
        of = " or ".join(missing)
        return f"No training rollouts sampled from {of} are stored: the tasks cannot be compared."
    counts = [counted(len(sampled.groups), "task") for sampled in both.sampled]
    return f"No task was sampled from both: {counts[0]} from A, {counts[1]} from B."


def _span(side: Side, positions: Sequence[int]) -> str:
    """The first and the last of some checkpoints: ``step-000009 … step-000012``, or one."""
    return " … ".join(dict.fromkeys(map(side.name_of, (positions[0], positions[-1]))))


def sampled_names(both: Comparison, heldout: bool) -> tuple[str, str]:
    """The checkpoints that the compared rollouts were sampled from, left and right; those of
    training rollouts if not of `heldout` ones, of which there are some."""
    positions = [sampled.positions for sampled in both.sampled]
    if heldout and both.heldout is not None:
        positions = [(side.position,) for side in (both.heldout.before, both.heldout.after)]
    left, right = (
        f"{mark} {_span(side, own)}"
        for mark, side, own in zip("AB", (both.left, both.right), positions, strict=True)
    )
    return left, right


def heldout_sentences(both: Comparison) -> list[str]:
    """What the held-out rollouts tell; which are missing, if they tell nothing."""
    heldout = both.heldout
    if heldout is None:
        return [_why_no_heldout(both)]
    sides = (("A", both.left, heldout.before), ("B", both.right, heldout.after))
    of = "; ".join(f"{mark} {_heldout_text(side, rollouts)}" for mark, side, rollouts in sides)
    left_out = sum(heldout.difference.missing)
    rest = f"; left out: {counted(left_out, 'task')} of one only" if left_out else ""
    return [*_verdicts(heldout.difference), f"Sampled from {of}{rest}."]


def _heldout_text(side: Side, rollouts: HeldoutRollouts) -> str:
    of = rollouts.evaluation
    count = counted(sum(len(group.rewards) for group in rollouts.groups), "rollout")
    on = f" on {one_line(of.name, 40)}" if of is not None and of.name else ""
    made = "in training" if of is None else f"evaluated{on}"
    return f"{side.name_of(rollouts.position)} ({count}, {made})"


def _why_no_heldout(both: Comparison) -> str:
    pairs = (("A", both.left, both.right), ("B", both.right, both.left))
    missing = [
        mark
        for mark, side, other in pairs
        if not any(has_heldout(side, position) for position in around(side, other))
    ]
    if missing:
        return f"No held-out rollouts of {' or '.join(missing)} are stored."
    if both.unread:
        return f"Their held-out rollouts cannot be read: {both.unread}."
    return "The stored held-out rollouts of A and B are of different tasks."


# From a crosshair to the two checkpoints that it asks about.


def pair_at(run: Run, key: str, row: int | None, opened: str = "") -> tuple[int, int] | None:
    """Positions of the checkpoints before and after what a chart shows at a row; None without
    steps.

    A metric of rollouts describes the weights that sampled them, so its step stands for the update
    before it. Where the metric's alarm began, or without a crosshair, it is from the last healthy
    checkpoint to the one at which the alarm was raised.

    Args:
        key: The chart's metric.
        row: Of the head's lineage; None for no crosshair.
        opened: Id of the alarm that is looked at.
    """
    alarm = run.alarms.of_metric(key, opened)
    tree, length = run.tree, run.series.length
    if alarm is not None and row in (None, alarm.row):
        pair = alarm_pair(tree, alarm)
        if pair is not None:
            return pair
    here = weights_at(run, key, length - 1 if row is None else row)
    if here == ROOT:
        here = tree.find(run.series.id_at(0))
    return None if here is None else (tree.parent(here), here)


def alarm_pair(tree: Tree, alarm: Alarm) -> tuple[int, int] | None:
    """Positions of the last healthy checkpoint before an alarm, and of the one at which it was
    raised; None if the tree does not have its update."""
    update, raised = tree.find(alarm.checkpoint_id), tree.of_step(alarm.raised)
    if update is None:
        return None
    good = tree.find(alarm.before_id)
    source = update if raised is None else tree.source(raised)
    is_later = source > update and tree.is_ancestor(update, source)
    return tree.parent(update) if good is None else good, source if is_later else update


def weights_at(run: Run, key: str, row: int) -> int | None:
    """Position of the weights that a metric describes at a row; None if there is no such row."""
    if not 0 <= row < run.series.length:
        return None
    position = run.tree.find(run.series.id_at(row))
    if position is None or not of_weights(key):
        return position
    return run.tree.source(position)
