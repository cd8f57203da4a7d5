"""Own numbers: rewards and metrics of a checkpoint's own weights, as opposed to its step's.

A step is trained on rollouts sampled by the checkpoint before it. Metrics of those rollouts
(reward, held-out reward, entropy, KL, length) are reported by the **step**, but describe the
weights that sampled them. The **own** numbers of a checkpoint are those of rollouts sampled from
it: the training rollouts of the steps taken from it, and its evaluations. The newest checkpoint of
an active run has none yet.

A step says which checkpoint sampled its rollouts (`Checkpoint.sampled_from`), unless that is its
parent, or the service does not know: then the parent is assumed, since HUD's loop samples from the
head and takes one step. A step whose rollouts are of several checkpoints counts for none of them. A
loop that takes several steps on one batch is recognised if the steps report rewards by task: equal
rewards of equal tasks with off-policy ratios are the same rollouts, sampled by the checkpoint
before the first of these steps. Where a service does not say who sampled, other loops that train on
stale rollouts are not recognised; their metric `staleness_mean` reports by how many steps.

A batch whose tasks were drawn by their signal (`Checkpoint.draw`) is no sample of the taskset: its
mean reward, entropy and the like count for no checkpoint. Task by task its groups do, and so do the
held-out rewards that its step reports.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, sqrt
from operator import attrgetter, eq
from statistics import NormalDist

from hud_tui.rl.metrics import finite, metrics_of, of_weights, spelling
from hud_tui.rl.text import counted
from hud_tui.wire import Checkpoint, Estimate, Evaluation, Group, WorkState

REWARD, HELDOUT = "reward_mean", "heldout_reward"
HELDOUT_TRACES = "num_heldout_traces"
NOBODY = -1
"""Position of the sampler for a step taken from the base weights."""
MOST = 10**9
"""Upper bound of reported rollout counts, and of the rewards that are compared."""
OFF_POLICY = 1e-4
"""Difference of the importance ratio from 1 above which a step is off-policy."""
Z = NormalDist().inv_cdf(0.975)
"""Half the width of a 95 % interval, in standard deviations."""


def ends_of(mean: float, rollouts: int | None) -> tuple[float, float]:
    """The 95 % interval of a mean reward, given the tasks: only the sampling of rollouts counts as
    chance, because all ranked checkpoints have the same tasks.

    Source: Wilson 1927, for proportions. Rewards between 0 and 1 have at most the variance of a
    proportion with the same mean, so the interval is wide enough for them.

    Args:
        mean: Of rewards from 0 to 1.
        rollouts: Their number; None if unknown.

    Returns:
        The ends; twice the mean if `rollouts` is unknown or the mean outside [0, 1].
    """
    if not rollouts or not 0 <= mean <= 1:
        return mean, mean
    share = Z * Z / rollouts
    half = Z * sqrt(mean * (1 - mean) / rollouts + share / (4 * rollouts))
    return (mean + share / 2 - half) / (1 + share), (mean + share / 2 + half) / (1 + share)


@dataclass(frozen=True, slots=True)
class Own:
    """Own rewards of one checkpoint; all None if nothing was sampled from it yet."""

    reward: float | None = None
    """Mean over its training rollouts, in the taskset's reward unit."""
    sampled: int = 0
    """Number of those rollouts; 0 if there are none or the service does not count them."""
    heldout: float | None = None
    """Mean on held-out tasks: of its evaluations under the common conditions (see `Evaluated`),
    else as reported by steps from it, else of its largest evaluation."""
    heldout_rollouts: int | None = None
    """Rollouts of that mean; None if the service does not report it."""
    apart: bool = False
    """Whether that mean is on other tasks, or under other conditions, than those that checkpoints
    are ranked by."""
    at_least: int | None = None
    """Rollouts assumed for that mean if the service does not report their number: one per task."""
    heldout_tasks: int | None = field(default=None, compare=False)
    """Tasks of that mean if it comes from evaluations."""

    @property
    def known(self) -> bool:
        """Whether anything was sampled from the checkpoint."""
        return self.reward is not None or self.heldout is not None

    @property
    def over(self) -> str:
        """The sample of the held-out reward, e.g. ``48 tasks × 4`` or ``36 rollouts``; empty if
        unknown."""
        tasks, rollouts = self.heldout_tasks, self.heldout_rollouts
        if not rollouts:
            return ""
        if not tasks or rollouts < tasks:
            return counted(rollouts, "rollout")
        return f"{counted(tasks, 'task')} × {rollouts // tasks}"

    @property
    def over_briefly(self) -> str:
        """The sample for a narrow column: ``48×4`` or ``36``."""
        tasks, rollouts = self.heldout_tasks, self.heldout_rollouts
        each = rollouts // tasks if tasks and rollouts else 0
        return f"{tasks}×{each}" if each else f"{rollouts or ''}"


NONE = Own()


@dataclass(frozen=True, slots=True)
class Observed:
    """The mean reward of rollouts of some weights."""

    position: int
    """Of their checkpoint; NOBODY for the base weights."""
    mean: float
    rollouts: int
    """Their number; 1 if the service does not report it."""
    fresh: int = 0
    """Number of those that were made to confirm what the others had shown."""
    count: int = 1
    """Number of checkpoints that are pooled in it."""

    def pooled(self, newer: "Observed") -> "Observed":
        """This and the next one of its lineage as one, which stands at that."""
        rollouts = self.rollouts + newer.rollouts
        mean = (self.mean * self.rollouts + newer.mean * newer.rollouts) / rollouts
        return Observed(newer.position, mean, rollouts, count=self.count + newer.count)


Conditions = tuple[str | None, int | None, float | None]
"""Digest of the tasks, max_tokens, temperature: evaluations with equal ones can be compared."""


def conditions(evaluation: Evaluation) -> Conditions:
    return evaluation.tasks_digest, evaluation.max_tokens, evaluation.temperature


def best_known(
    evaluations: Sequence[Evaluation], common: Conditions | None
) -> tuple[Evaluation, bool] | None:
    """A checkpoint's held-out evaluation, and whether it is under the common conditions.

    Evaluations under the common conditions are pooled; if there are none, those under the
    conditions of the largest. None without held-out evaluations.
    """
    largest = heldout_evaluation(evaluations)
    if largest is None:
        return None
    held = [(conditions(evaluation), evaluation) for evaluation in _heldout(evaluations)]
    if like := [evaluation for under, evaluation in held if under == common]:
        return pooled(like), True
    return pooled([evaluation for under, evaluation in held if under == conditions(largest)]), False


def is_of_run(evaluation: Evaluation | WorkState) -> bool:
    """Whether a run made it of its own checkpoint; others are asked for by themselves."""
    return evaluation.job_id not in (None, evaluation.id)


def _heldout(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    return [e for e in evaluations if e.split == "heldout" and isfinite(e.mean_reward)]


def pooled(evaluations: Sequence[Evaluation]) -> Evaluation:
    """One evaluation from several of a checkpoint under the same conditions.

    Evaluations with the same seed have the same rollouts: only the largest of them counts, of
    equals the newest. Without a known seed, those with equal mean and size are taken to be the
    same.

    Args:
        evaluations: Oldest first, at least one.

    Returns:
        The largest, with means weighted by rollouts. Interval ends are averaged with the same
        weights; that does not make the interval too narrow, because the tasks are the same and
        most of its width comes from them.
    """
    distinct = independent(evaluations)
    largest = distinct[-1]
    if len(distinct) == 1:
        return largest
    rollouts = [evaluation.num_traces for evaluation in distinct]
    samples = [evaluation.samples for evaluation in distinct if evaluation.samples]
    alike = [evaluation for evaluation in distinct if evaluation.solved_at == largest.solved_at]
    return largest.model_copy(
        update={
            "mean_reward": _weighted([evaluation.mean_reward for evaluation in distinct], rollouts),
            "num_traces": sum(rollouts),
            "samples": sum(samples) if len(samples) == len(rollouts) else None,
            "mean": _averaged(
                [(evaluation.mean, evaluation.num_traces) for evaluation in distinct]
            ),
            "pass_at": {
                k: _averaged([(e.pass_at[k], e.num_traces) for e in alike if k in e.pass_at])
                for k in largest.pass_at
            },
        }
    )


def independent(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Of those with equal seeds the largest, of equals the newest; smallest first."""
    by_seed: dict[object, Evaluation] = {}
    for evaluation in sorted(evaluations, key=lambda evaluation: evaluation.num_traces):
        by_seed[_seed(evaluation)] = evaluation
    return sorted(by_seed.values(), key=lambda evaluation: evaluation.num_traces)


def _seed(evaluation: Evaluation) -> object:
    if evaluation.seed is None:
        return evaluation.mean_reward, evaluation.num_traces
    return evaluation.seed


def _weighted(values: Sequence[float], weights: Sequence[int]) -> float:
    total = sum(weights)
    return sum(v * w for v, w in zip(values, weights, strict=True)) / total if total else values[-1]


def _averaged(estimates: Sequence[tuple[Estimate | None, int]]) -> Estimate | None:
    """Weighted mean of estimates and of their ends; None if one is missing."""
    reported = [(estimate, weight) for estimate, weight in estimates if estimate is not None]
    if len(reported) < len(estimates):
        return None
    weights = [weight for _, weight in reported]
    lows = [estimate.low for estimate, _ in reported if estimate.low is not None]
    highs = [estimate.high for estimate, _ in reported if estimate.high is not None]
    whole = len(lows) == len(highs) == len(reported)
    return Estimate(
        value=_weighted([estimate.value for estimate, _ in reported], weights),
        low=_weighted(lows, weights) if whole else None,
        high=_weighted(highs, weights) if whole else None,
    )


class Evaluated:
    """The held-out evaluations of a tree by checkpoint, and the common conditions.

    The common conditions are those that checkpoints are ranked by: the ones of the evaluations that
    runs make of their own checkpoints, whose steps report the same tasks; without such a run, those
    under which most checkpoints were evaluated, of equals those with more rollouts.
    """

    def __init__(self) -> None:
        self._by_position: dict[int, list[Evaluation]] = {}
        self._checkpoints: Counter[Conditions] = Counter()
        self._rollouts: dict[Conditions, int] = {}
        """Rollouts of the largest evaluation under each."""
        self._tasks: dict[Conditions, int] = {}
        """Number of tasks under each."""
        self._jobs = defaultdict[Conditions, Counter[str]](Counter)
        """Runs that evaluated their own checkpoints under each, by job id."""
        self.common: Conditions | None = None
        """The common conditions; None if nothing was evaluated."""

    def put(self, position: int, evaluations: Sequence[Evaluation]) -> None:
        """Replace the evaluations of a checkpoint; only held-out ones count."""
        held = _heldout(evaluations)
        before = self._by_position.pop(position, [])
        if not held and not before:
            return
        self._tally(before, -1)
        self._tally(held, 1)
        if held:
            self._by_position[position] = held
        for evaluation in held:
            size = max(self._rollouts.get(conditions(evaluation), 0), evaluation.num_traces)
            self._rollouts[conditions(evaluation)] = size
            self._tasks[conditions(evaluation)] = evaluation.num_tasks
        self.common = max(+self._checkpoints, key=self._rank, default=None)

    @property
    def tasks(self) -> int | None:
        """Number of tasks under the common conditions; None if nothing was evaluated."""
        return None if self.common is None else self._tasks[self.common]

    @property
    def positions(self) -> list[int]:
        """Positions of the evaluated checkpoints."""
        return list(self._by_position)

    def __contains__(self, position: int) -> bool:
        return position in self._by_position

    def __bool__(self) -> bool:
        return bool(self._by_position)

    @property
    def runs(self) -> Iterator[str]:
        """Ids of the runs that evaluated their own checkpoints under common conditions."""
        return iter(() if self.common is None else +self._jobs[self.common])

    def best_known(self, position: int) -> tuple[Evaluation, bool] | None:
        """The held-out evaluation of a checkpoint, and whether it is under the common
        conditions."""
        return best_known(self._by_position.get(position, ()), self.common)

    def fresh(self, position: int, reported: bool) -> int:
        """Number of rollouts of a checkpoint that were made after it had been noticed: those of
        evaluations under the common conditions that were asked for by themselves, with a seed of
        their own. If nothing else showed what it is worth, the first of them did.

        Args:
            reported: Whether steps report a held-out reward of it.
        """
        held = self._by_position.get(position, ())
        alike = [e for e in held if conditions(e) == self.common]
        of_runs = [e for e in alike if is_of_run(e)]
        seeds = {_seed(e) for e in of_runs}
        asked = [e for e in alike if not is_of_run(e) and _seed(e) not in seeds]
        if asked and not of_runs and not reported:
            first = _seed(asked[0])
            asked = [e for e in asked if _seed(e) != first]
        return sum(e.num_traces for e in independent(asked))

    @property
    def shown(self) -> Iterator[Evaluation]:
        """The held-out evaluation of each evaluated checkpoint."""
        pairs = map(self.best_known, self._by_position)
        return (pair[0] for pair in pairs if pair is not None)

    def _tally(self, held: Sequence[Evaluation], sign: int) -> None:
        for key in {conditions(evaluation) for evaluation in held}:
            self._checkpoints[key] += sign
        own = (evaluation for evaluation in held if is_of_run(evaluation))
        for key, job_id in {(conditions(evaluation), evaluation.job_id) for evaluation in own}:
            self._jobs[key][job_id or ""] += sign

    def _rank(self, key: Conditions) -> tuple[bool, int, int, str]:
        # The last part: of equals the same ones, in whatever order evaluations were told.
        return bool(+self._jobs[key]), self._checkpoints[key], self._rollouts[key], repr(key)


class TaskNumbers:
    """A number for the tasks of each run, equal for runs on the same tasks (`on_same_tasks`)."""

    def __init__(self) -> None:
        self._first: list[Checkpoint] = []
        """The first step on the tasks of each number."""
        self._numbers: dict[tuple[str | None, str | None], int] = {}
        self.by_job: dict[str | None, int] = {}

    def of(self, step: Checkpoint) -> int:
        """The number of a step's tasks."""
        key = step.job_id, step.tasks_digest
        number = self._numbers.get(key)
        if number is None:
            same = (i for i, first in enumerate(self._first) if on_same_tasks(first, step))
            number = next(same, len(self._first))
            if number == len(self._first):
                self._first.append(step)
            self._numbers[key] = number
            self.by_job.setdefault(step.job_id, number)
        return number


@dataclass(slots=True)
class HeldoutSum:
    """Sum of the held-out rewards of one checkpoint, on the same tasks, that steps report."""

    tasks: int
    """The tasks' number."""
    total: float = 0.0
    steps: int = 0
    rollouts: int = 0
    uncounted: int = 0
    """Number of steps that do not report how many rollouts their reward is of."""


class ReportedHeldout:
    """Held-out rewards that steps report, by the checkpoint that sampled them and by tasks."""

    def __init__(self) -> None:
        self._sums: dict[int, list[HeldoutSum]] = {}
        self._checkpoints: Counter[int] = Counter()
        """Number of checkpoints with a reward, by task number."""

    def add(self, position: int, tasks: int, step: Checkpoint, sign: int) -> None:
        """Add what a step reports of a checkpoint, or with `sign` −1 subtract it."""
        reward = finite(_metric(step.metrics, HELDOUT))
        if reward is None:
            return
        sums = self._sums.setdefault(position, [])
        entry = next((heldout for heldout in sums if heldout.tasks == tasks), None)
        if entry is None:
            sums.append(entry := HeldoutSum(tasks))
        of, before = heldout_rollouts_of(step), entry.steps
        entry.total += sign * reward
        entry.steps += sign
        entry.rollouts += sign * of
        entry.uncounted += sign * (not of)
        self._checkpoints[tasks] += (entry.steps > 0) - (before > 0)

    def __bool__(self) -> bool:
        return bool(self._sums)

    @property
    def positions(self) -> list[int]:
        """Positions of the checkpoints of which steps reported a reward."""
        return list(self._sums)

    @property
    def most(self) -> int | None:
        """The task number with the most checkpoints, the lowest of equals; None without any."""
        return max(+self._checkpoints, key=lambda n: (self._checkpoints[n], -n), default=None)

    def of(self, position: int, ranked: frozenset[int]) -> tuple[HeldoutSum, bool] | None:
        """The sum of a checkpoint, on `ranked` tasks if possible; and whether it is on these. None
        if no step reports a held-out reward of it."""
        sums = [heldout for heldout in self._sums.get(position, ()) if heldout.steps > 0]
        if not sums:
            return None
        entry = next((heldout for heldout in sums if heldout.tasks in ranked), sums[0])
        return entry, entry.tasks in ranked


class Sampled:
    """Which steps were trained on rollouts of which checkpoint, and the rewards of those rollouts.

    Sums are kept by position, so that adding a step takes the same time in any tree.
    """

    def __init__(self) -> None:
        self.sources = array("q")
        """For each step, the position of the checkpoint that sampled its rollouts, or NOBODY; of
        several the one that sampled most."""
        self._uncounted = set[int]()
        """Steps whose rollouts count for no checkpoint: several sampled them, or one that is not in
        the tree; or they are those of the step before."""
        self._newest, self._before = array("q", [NOBODY]), array("q")
        """For the base and each position, the newest step sampled from it; for each step, the
        previous one with the same sampler."""
        self._rewards, self._weights = array("d", [0.0]), array("d", [0.0])
        self._counts = array("q", [0])
        """Sums over the rollouts of the base and of each position."""
        self._tasks, self._reported = TaskNumbers(), ReportedHeldout()
        self.evaluated = Evaluated()
        self._ranked: frozenset[int] | None = frozenset()
        """As `ranked`; None if a node has changed since it was read."""
        self.told = 0
        """Incremented by each step that says more of what checkpoints are compared by."""
        self.changes = 0
        """Incremented whenever what was known of a checkpoint has changed otherwise."""

    def append(
        self,
        checkpoint: Checkpoint,
        parent: int,
        above: Checkpoint | None,
        position_of: Callable[[str], int | None],
    ) -> None:
        """Add the next node.

        Args:
            parent: Its parent's position, or NOBODY.
            position_of: The position of a checkpoint by its id, NOBODY for `BASE`; None if it is
                not in the tree.
        """
        position, samplers, again = len(self.sources), checkpoint.sampled_from or {}, False
        if samplers:
            main = position_of(max(samplers, key=samplers.__getitem__))
            source = parent if main is None else main
            if main is None or len(samplers) > 1:
                self._uncounted.add(position)
            elif above is not None and main == self.sources[parent]:
                again = _same_rollouts(above, checkpoint)
        elif above is not None and _same_batch(above, checkpoint):
            source, again = self.sources[parent], True
        else:
            source = parent
        self.sources.append(source)
        self._newest.append(NOBODY)
        for sums in (self._rewards, self._weights):
            sums.append(0.0)
        self._counts.append(0)
        if again:
            self._uncounted.add(position)
        if position in self._uncounted:
            self._before.append(NOBODY)
        else:
            self._before.append(self._newest[source + 1])
            self._newest[source + 1] = position
        self._count(position, checkpoint, 1)

    def evaluate(self, position: int, evaluations: Sequence[Evaluation]) -> None:
        """Replace the evaluations of a checkpoint, or of the base for NOBODY."""
        self.changes += bool(evaluations) or position in self.evaluated
        self.evaluated.put(position, evaluations)

    def renew(self, position: int, old: Checkpoint, new: Checkpoint) -> None:
        """Update a known node."""
        if (old.mean_reward, old.metrics) != (new.mean_reward, new.metrics):
            self.changes += 1
        self._count(position, old, -1)
        self._count(position, new, 1)

    def own(self, position: int) -> Own:
        reward = self._reward(position)
        best, reported = self.evaluated.best_known(position), self._reported_own(position)
        if reward is None and reported is None and best is None:
            return NONE
        if best is None or (reported is not None and not best[1]):
            return replace(reported or NONE, reward=reward, sampled=self._counts[position + 1])
        evaluation, compares = best
        heldout, count = evaluation.mean_reward, evaluation.num_traces
        tasks = evaluation.num_tasks
        sampled = self._counts[position + 1]
        return Own(reward, sampled, heldout, count, not compares, heldout_tasks=tasks)

    def _reward(self, position: int) -> float | None:
        weight = self._weights[position + 1]
        return finite(self._rewards[position + 1] / weight) if weight > 0 else None

    def observed(self, size: int) -> tuple[str, list[Observed], int]:
        """What is known of the base and of the first `size` checkpoints: the metric, its means by
        position, and the number of checkpoints that cannot be compared by it.

        The metric is the held-out reward if any is known, else the reward of training rollouts.
        """
        held, apart = self._observed_heldout(size)
        if held:
            return HELDOUT, held, apart
        rewards = ((p, self._reward(p)) for p in range(NOBODY, size))
        sampled = (
            Observed(position, reward, max(1, self._counts[position + 1]))
            for position, reward in rewards
            if reward is not None and abs(reward) <= MOST
        )
        return REWARD, list(sampled), 0

    def _observed_heldout(self, size: int) -> tuple[list[Observed], int]:
        held, apart = list[Observed](), 0
        positions = {*self.evaluated.positions, *self._reported.positions}
        for position in sorted(position for position in positions if position < size):
            own = self.own(position)
            if own.heldout is None or abs(own.heldout) > MOST:
                continue
            if own.apart:
                apart += position != NOBODY
                continue
            rollouts = own.heldout_rollouts or own.at_least or 1
            fresh = self.evaluated.fresh(position, self._reported_own(position) is not None)
            held.append(Observed(position, own.heldout, rollouts, fresh))
        return held, apart

    def _reported_own(self, position: int) -> Own | None:
        """The held-out reward that steps report of a position; None if none does."""
        reported = self._reported.of(position, self.ranked)
        mean = None if reported is None else finite(reported[0].total / reported[0].steps)
        if reported is None or mean is None:
            return None
        entry, is_ranked = reported
        of = None if entry.uncounted else entry.rollouts or None
        each = self.evaluated.tasks
        least = None if of or each is None else each * entry.steps
        return Own(None, 0, mean, of, not is_ranked, least)

    @property
    def ranked(self) -> frozenset[int]:
        """Task numbers whose reported held-out rewards checkpoints are ranked by: those of the runs
        with evaluations under the common conditions; if there are none, the number on which most
        checkpoints have a reported reward."""
        if self._ranked is None:
            numbers, runs = self._tasks.by_job, self.evaluated.runs
            self._ranked = frozenset(numbers[job_id] for job_id in runs if job_id in numbers)
            if not self._ranked and (most := self._reported.most) is not None:
                self._ranked = frozenset([most])
        return self._ranked

    def steps(self, position: int) -> Iterator[int]:
        """The steps that were trained on rollouts of a position, newest first."""
        step = self._newest[position + 1]
        while step != NOBODY:
            yield step
            step = self._before[step]

    def _count(self, position: int, checkpoint: Checkpoint, sign: int) -> None:
        """Add a node's rewards to its sampler, or with `sign` −1 subtract them."""
        self._ranked, source = None, self.sources[position]
        has_heldout = bool(self.evaluated) or bool(self._reported)
        self.told += not has_heldout or _metric(checkpoint.metrics, HELDOUT) is not None
        tasks = self._tasks.of(checkpoint)
        self.evaluate(position, checkpoint.evaluations)
        if position in self._uncounted:
            return
        self._reported.add(source, tasks, checkpoint, sign)
        if not _is_fair(checkpoint):
            return
        reward, rollouts = finite(reward_of(checkpoint)), count_rollouts(checkpoint)
        if reward is not None:
            weight = sign * max(1, rollouts)
            self._rewards[source + 1] += weight * reward
            self._weights[source + 1] += weight
            self._counts[source + 1] += sign * rollouts


def own_metrics(nodes: Sequence[Checkpoint], own: Own) -> dict[str, float]:
    """Own metrics of a checkpoint, by canonical key.

    Args:
        nodes: The steps that were trained on its rollouts.

    Returns:
        Means over the steps, weighted by their rollouts; empty if nothing was sampled from it.
    """
    sums: dict[str, float] = {}
    weights: dict[str, int] = {}
    for node in filter(_is_fair, nodes):
        weight = max(1, count_rollouts(node))
        for key, value in metrics_of(node).items():
            if of_weights(key) and isfinite(value):
                sums[key] = sums.get(key, 0.0) + weight * value
                weights[key] = weights.get(key, 0) + weight
    means = {key: total / weights[key] for key, total in sums.items()}
    values = {REWARD: own.reward, HELDOUT: own.heldout}
    return means | {key: value for key, value in values.items() if value is not None}


def own_metric(nodes: Sequence[Checkpoint], key: str) -> float | None:
    """One own metric, by the name that the steps use; None if no step reports it."""
    having = [node for node in nodes if key in node.metrics and (_is_fair(node) or key == HELDOUT)]
    weighted = [(node.metrics[key], max(1, count_rollouts(node))) for node in having]
    total = sum(weight for _, weight in weighted)
    return sum(value * weight for value, weight in weighted) / total if total else None


def _is_fair(step: Checkpoint) -> bool:
    """Whether a step's batch is a sample of its taskset."""
    return step.draw is None


def joined_groups(groups: Iterable[Group]) -> list[Group]:
    """Rollouts by task: the groups of each task as one."""
    by_task: dict[str, list[float]] = {}
    for group in groups:
        by_task.setdefault(group.task_slug, []).extend(group.rewards)
    return [Group(task_slug=slug, rewards=rewards) for slug, rewards in by_task.items()]


def rewards_by_task(groups: Iterable[Group]) -> dict[str, list[float]]:
    """The finite rewards of each task that has any."""
    by_task: dict[str, list[float]] = {}
    for group in groups:
        by_task.setdefault(group.task_slug, []).extend(filter(isfinite, group.rewards))
    return {slug: rewards for slug, rewards in by_task.items() if rewards}


def count_rollouts(checkpoint: Checkpoint) -> int:
    """Number of rollouts that a step was trained on; 0 if the service does not report it."""
    if checkpoint.num_traces is not None:
        return max(0, min(checkpoint.num_traces, MOST))
    return sum(len(group.rewards) for group in checkpoint.groups)


def reward_of(checkpoint: Checkpoint) -> float | None:
    """Mean reward of the rollouts that a step was trained on, under any known key."""
    if checkpoint.mean_reward is not None:
        return checkpoint.mean_reward
    return _metric(checkpoint.metrics, REWARD)


def heldout_rollouts_of(checkpoint: Checkpoint) -> int:
    """Number of rollouts of that reward; 0 if the step does not report it."""
    return int(max(0.0, min(finite(checkpoint.metrics.get(HELDOUT_TRACES)) or 0.0, MOST)))


def _metric(metrics: Mapping[str, float], key: str) -> float | None:
    name = key if key in metrics else spelling(tuple(metrics), key)
    return None if name is None else metrics[name]


def on_same_tasks(step: Checkpoint, other: Checkpoint) -> bool:
    """Whether two steps were trained on the same tasks, so that their rewards can be compared.

    Steps of two runs are on different tasks if the service reports different digests, or if it
    reports none and the steps have no task in common. Without any information the tasks are taken
    to be the same.
    """
    if step.job_id == other.job_id:
        return True
    if step.tasks_digest is not None and other.tasks_digest is not None:
        return step.tasks_digest == other.tasks_digest
    slugs = {group.task_slug for group in step.groups}
    others = {group.task_slug for group in other.groups}
    return not slugs or not others or not slugs.isdisjoint(others)


def are_on_same_tasks(steps: Sequence[Checkpoint], others: Sequence[Checkpoint]) -> bool:
    """Whether any of some steps was trained on the same tasks as any of others; True if there are
    none to compare."""
    return not steps or not others or any(on_same_tasks(a, b) for a in steps for b in others)


def heldout_evaluation(evaluations: Sequence[Evaluation]) -> Evaluation | None:
    """The held-out evaluation with the most rollouts, of equals the newest; None without any."""
    newest_first = reversed(_heldout(evaluations))
    return max(newest_first, key=lambda evaluation: evaluation.num_traces, default=None)


def with_results(nodes: Iterable[Checkpoint], jobs: Iterable[WorkState]) -> tuple[Checkpoint, ...]:
    """Checkpoints with the results of evaluations that their rows lack: those made by this program,
    which a service without evaluations does not know."""
    results: dict[str, list[Evaluation]] = {}
    for job in jobs:
        if job.result is not None and job.checkpoint_id is not None:
            results.setdefault(job.checkpoint_id, []).append(job.result)
    return tuple(_with(node, results.get(node.id, ())) for node in nodes)


def of_base(jobs: Iterable[WorkState]) -> list[Evaluation]:
    """Results of the evaluations of the weights that the model started from."""
    return [job.result for job in jobs if job.checkpoint_id is None and job.result is not None]


def _with(node: Checkpoint, results: Sequence[Evaluation]) -> Checkpoint:
    ids = {result.id for result in node.evaluations} if results else ()
    missing = [result for result in results if result.id not in ids]
    if not missing:
        return node
    return node.model_copy(update={"evaluations": [*node.evaluations, *missing]})


def _same_batch(above: Checkpoint, checkpoint: Checkpoint) -> bool:
    """Whether a step was trained on the same rollouts as its parent, where nobody says who sampled
    them."""
    ratio = checkpoint.metrics.get("ratio_max")
    if ratio is None or abs(ratio - 1) <= OFF_POLICY:
        return False
    return _same_rollouts(above, checkpoint)


def _same_rollouts(above: Checkpoint, checkpoint: Checkpoint) -> bool:
    if not checkpoint.groups or len(above.groups) != len(checkpoint.groups):
        return False
    rollouts = attrgetter("task_slug", "rewards", "num_tokens")
    return all(map(eq, map(rollouts, above.groups), map(rollouts, checkpoint.groups)))
