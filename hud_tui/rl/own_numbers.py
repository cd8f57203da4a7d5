"""Own numbers: rewards and metrics of a checkpoint's own weights, as opposed to its step's.

A step is trained on rollouts sampled by the checkpoint before it. Metrics of those rollouts
(reward, held-out reward, entropy, KL, length) are reported by the **step**, but describe the
weights that sampled them. The **own** numbers of a checkpoint are those of rollouts sampled
from it: the training rollouts of the steps taken from it, and its evaluations. The newest
checkpoint of an active run has none yet.

The service does not report which weights sampled a step's rollouts. HUD's loop and the
embedded service sample from the head and take one step, so the parent is assumed. A loop that
takes several steps on one batch is recognised if the steps report rewards by task: equal
rewards of equal tasks with off-policy ratios are the same rollouts, sampled by the checkpoint
before the first of these steps. Other loops that train on stale rollouts are not recognised;
`staleness_mean` says how stale they are.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from hud_tui.rl.metrics import metrics_of, of_weights, spelling
from hud_tui.wire import Checkpoint, Evaluation, EvaluationJob, Group

REWARD, HELDOUT = "reward_mean", "heldout_reward"
NOBODY = -1
"""Position of the sampler of a step from the base weights."""
MOST = 10**9
"""More rollouts than any step has."""
OFF_POLICY = 1e-4
"""Deviation of the importance ratio from 1 above which a step is off-policy."""


@dataclass(frozen=True, slots=True)
class Own:
    """Own rewards of one checkpoint; all None if nothing was sampled from it yet."""

    reward: float | None = None
    """Mean over its training rollouts, in the taskset's reward unit."""
    sampled: int = 0
    """Number of those rollouts; 0 if none, or if the service does not count them."""
    heldout: float | None = None
    """Mean on held-out tasks: of its evaluation that compares with others, else as reported by
    steps from it, else of its largest evaluation."""
    heldout_rollouts: int | None = None
    """Rollouts of that mean; None if the service does not say."""
    apart: bool = False
    """Whether that mean is of other tasks, or other conditions, than most checkpoints'."""

    @property
    def known(self) -> bool:
        """Whether anything was sampled from it."""
        return self.reward is not None or self.heldout is not None

    @property
    def score(self) -> tuple[int, float] | None:
        """Sort key of checkpoints: a held-out reward ranks above any training reward, and one on
        the tasks that most were evaluated on above any on others."""
        if self.heldout is not None:
            return 1 if self.apart else 2, self.heldout
        return None if self.reward is None else (0, self.reward)


NONE = Own()

Conditions = tuple[str | None, int | None, float | None]
"""Digest of the tasks, max_tokens, temperature: evaluations with the same compare."""


def conditions(evaluation: Evaluation) -> Conditions:
    return evaluation.tasks_digest, evaluation.max_tokens, evaluation.temperature


def best_known(
    evaluations: Sequence[Evaluation], common: Conditions | None
) -> tuple[Evaluation, bool] | None:
    """The largest on held-out tasks under common conditions, the newest of equals, else the
    largest of the others; and whether it is under those. None if there is none."""
    held = [e for e in evaluations if e.split == "heldout" and isfinite(e.mean_reward)]
    if not held:
        return None
    like = [one for one in held if conditions(one) == common]
    return max(reversed(like or held), key=lambda one: one.num_traces), bool(like)


class Evaluated:
    """The evaluations on held-out tasks by checkpoint, and which of them compare.

    Checkpoints are ranked by evaluations under the same conditions: those of the evaluations
    that runs make of their own checkpoints, whose steps report the same tasks; else those that
    most checkpoints were evaluated under, of equals those with more rollouts.
    """

    def __init__(self) -> None:
        self._by_position: dict[int, list[Evaluation]] = {}
        self._checkpoints: Counter[Conditions] = Counter()
        self._by_runs: Counter[Conditions] = Counter()
        self._rollouts: dict[Conditions, int] = {}
        """The largest under each."""
        self.common: Conditions | None = None
        """What checkpoints are ranked by; None where nothing was evaluated."""

    def put(self, position: int, evaluations: Sequence[Evaluation]) -> None:
        """Replace what is known of a checkpoint; only those on held-out tasks count."""
        held = [e for e in evaluations if e.split == "heldout" and isfinite(e.mean_reward)]
        before = self._by_position.pop(position, [])
        if not held and not before:
            return
        self._tally(before, -1)
        self._tally(held, 1)
        if held:
            self._by_position[position] = held
        for one in held:
            size = max(self._rollouts.get(conditions(one), 0), one.num_traces)
            self._rollouts[conditions(one)] = size
        self.common = max(+self._checkpoints, key=self._rank, default=None)

    @property
    def positions(self) -> list[int]:
        """Of the checkpoints that were evaluated."""
        return list(self._by_position)

    def best_known(self, position: int) -> tuple[Evaluation, bool] | None:
        """Of one checkpoint the largest that compares, the newest of equals, else the largest of
        the others; and whether it compares."""
        return best_known(self._by_position.get(position, ()), self.common)

    @property
    def shown(self) -> Iterator[Evaluation]:
        """The one of each checkpoint that has any."""
        found = map(self.best_known, self._by_position)
        return (one[0] for one in found if one is not None)

    def _tally(self, held: Sequence[Evaluation], sign: int) -> None:
        for key in {conditions(one) for one in held}:
            self._checkpoints[key] += sign
        for key in {conditions(one) for one in held if one.job_id and one.job_id != one.id}:
            self._by_runs[key] += sign

    def _rank(self, key: Conditions) -> tuple[bool, int, int]:
        return self._by_runs[key] > 0, self._checkpoints[key], self._rollouts[key]


class Sampled:
    """Which steps were trained on rollouts of which checkpoint, and their rewards.

    Sums by position, so that a step costs the same in a tree of any size or shape.
    """

    def __init__(self) -> None:
        self.sources = array("q")
        """Position of the checkpoint that sampled each step's rollouts, or NOBODY."""
        self._newest, self._before = array("q"), array("q")
        """Newest step sampled from a position; and per step, the one before it."""
        self._rewards, self._weights = array("d"), array("d")
        self._counts = array("q")
        self._heldout, self._heldout_steps = array("d"), array("q")
        self.evaluated = Evaluated()

    def append(self, checkpoint: Checkpoint, parent: int, above: Checkpoint | None) -> int:
        """Add the next node; return the position of the sampler of its step.

        Args:
            checkpoint: The node.
            parent: Its parent's position, or NOBODY.
            above: The parent itself.
        """
        position = len(self.sources)
        again = above is not None and _same_batch(above, checkpoint)
        source = self.sources[parent] if again else parent
        self.sources.append(source)
        self._newest.append(NOBODY)
        self._before.append(NOBODY if source == NOBODY else self._newest[source])
        for sums in (self._rewards, self._weights, self._heldout):
            sums.append(0.0)
        for counts in (self._counts, self._heldout_steps):
            counts.append(0)
        if source != NOBODY:
            self._newest[source] = position
        self._count(position, checkpoint, 1)
        return source

    def renew(self, position: int, old: Checkpoint, new: Checkpoint) -> None:
        """Update a known node."""
        self._count(position, old, -1)
        self._count(position, new, 1)

    def own(self, position: int) -> Own:
        """The numbers of one position."""
        weight, steps = self._weights[position], self._heldout_steps[position]
        reward = _finite(self._rewards[position] / weight) if weight > 0 else None
        known = self.evaluated.best_known(position)
        if reward is None and not steps and known is None:
            return NONE
        told = _finite(self._heldout[position] / steps) if steps else None
        if known is None or (told is not None and not known[1]):
            return Own(reward, self._counts[position], told)
        evaluation, compares = known
        heldout, count = evaluation.mean_reward, evaluation.num_traces
        return Own(reward, self._counts[position], heldout, count, not compares)

    def steps(self, position: int) -> Iterator[int]:
        """The steps that were trained on rollouts of a position, newest first."""
        step = self._newest[position]
        while step != NOBODY:
            yield step
            step = self._before[step]

    def _count(self, position: int, checkpoint: Checkpoint, sign: int) -> None:
        """Add a node's rewards to its sampler, or subtract them (`sign` −1)."""
        self.evaluated.put(position, checkpoint.evaluations)
        source = self.sources[position]
        if source == NOBODY:
            return
        reward, rollouts = reward_of(checkpoint), count_rollouts(checkpoint)
        if reward is not None and isfinite(reward):
            weight = sign * max(1, rollouts)
            self._rewards[source] += weight * reward
            self._weights[source] += weight
            self._counts[source] += sign * rollouts
        heldout = heldout_of(checkpoint)
        if heldout is not None and isfinite(heldout):
            self._heldout[source] += sign * heldout
            self._heldout_steps[source] += sign


def own_metrics(nodes: Sequence[Checkpoint], own: Own) -> dict[str, float]:
    """Own metrics of a checkpoint, by canonical key.

    Args:
        nodes: The steps that were trained on its rollouts.
        own: Its own rewards.

    Returns:
        Means over the steps, weighted by their rollouts; empty if nobody sampled it.
    """
    sums: dict[str, float] = {}
    weights: dict[str, int] = {}
    for node in nodes:
        weight = max(1, count_rollouts(node))
        for key, value in metrics_of(node).items():
            if of_weights(key) and isfinite(value):
                sums[key] = sums.get(key, 0.0) + weight * value
                weights[key] = weights.get(key, 0) + weight
    found = {key: total / weights[key] for key, total in sums.items()}
    told = {REWARD: own.reward, HELDOUT: own.heldout}
    return found | {key: value for key, value in told.items() if value is not None}


def own_metric(nodes: Sequence[Checkpoint], key: str) -> float | None:
    """One own metric, by the key that the steps use."""
    having = [node for node in nodes if key in node.metrics]
    told = [(node.metrics[key], max(1, count_rollouts(node))) for node in having]
    total = sum(weight for _, weight in told)
    return sum(value * weight for value, weight in told) / total if total else None


def own_groups(nodes: Sequence[Checkpoint]) -> list[Group]:
    """The rollouts of a checkpoint by task, those of all steps trained on them together."""
    found: dict[str, list[float]] = {}
    for node in nodes:
        for group in node.groups:
            found.setdefault(group.task_slug, []).extend(group.rewards)
    return [Group(task_slug=slug, rewards=rewards) for slug, rewards in found.items()]


def count_rollouts(checkpoint: Checkpoint) -> int:
    """How many rollouts a step was trained on; 0 where the service does not say."""
    if checkpoint.num_traces is not None:
        return max(0, min(checkpoint.num_traces, MOST))
    return sum(len(group.rewards) for group in checkpoint.groups)


def reward_of(checkpoint: Checkpoint) -> float | None:
    """Mean reward that a step was trained on, under any known key."""
    if checkpoint.mean_reward is not None:
        return checkpoint.mean_reward
    return _told(checkpoint.metrics, REWARD)


def heldout_of(checkpoint: Checkpoint) -> float | None:
    """Held-out reward that a step reports, under any known key."""
    return _told(checkpoint.metrics, HELDOUT)


def _told(metrics: Mapping[str, float], key: str) -> float | None:
    name = key if key in metrics else spelling(tuple(metrics), key)
    return None if name is None else metrics[name]


def heldout_evaluation(evaluations: Sequence[Evaluation]) -> Evaluation | None:
    """That on held-out tasks with the most rollouts, of equals the newest; None without any."""
    held = [e for e in reversed(evaluations) if e.split == "heldout" and isfinite(e.mean_reward)]
    return max(held, key=lambda one: one.num_traces, default=None)


def with_results(
    nodes: Iterable[Checkpoint], jobs: Iterable[EvaluationJob]
) -> tuple[Checkpoint, ...]:
    """Checkpoints with what evaluations found and their rows do not say: those that were made
    from here, which a service without evaluations knows nothing of."""
    found: dict[str, list[Evaluation]] = {}
    for job in jobs:
        if job.result is not None and job.checkpoint_id is not None:
            found.setdefault(job.checkpoint_id, []).append(job.result)
    return tuple(_with(node, found.get(node.id, ())) for node in nodes)


def _with(node: Checkpoint, found: Sequence[Evaluation]) -> Checkpoint:
    known = {one.id for one in node.evaluations} if found else ()
    missing = [one for one in found if one.id not in known]
    if not missing:
        return node
    return node.model_copy(update={"evaluations": [*node.evaluations, *missing]})


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _same_batch(above: Checkpoint, checkpoint: Checkpoint) -> bool:
    """Whether a step was trained on the same rollouts as its parent."""
    if not checkpoint.groups or len(above.groups) != len(checkpoint.groups):
        return False
    ratio = checkpoint.metrics.get("ratio_max")
    if ratio is None or abs(ratio - 1) <= OFF_POLICY:
        return False
    return all(map(_same_rollouts, above.groups, checkpoint.groups))


def _same_rollouts(one: Group, other: Group) -> bool:
    return (one.task_slug, one.rewards, one.num_tokens) == (
        *(other.task_slug, other.rewards, other.num_tokens),
    )
