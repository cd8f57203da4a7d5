"""Statistics of evaluations: mean reward and pass@k with 95 % intervals, and paired differences.

Tasks are the sampling unit, not rollouts: rollouts of one task are correlated. Every figure is a
mean over tasks of a number computed from each task's rollouts, and its interval comes from a
bootstrap over tasks. Two checkpoints are compared on the tasks that both were evaluated on.

Sources: Chen et al. 2021 (arXiv:2107.03374), section 2.1 (pass@k, and its stable product); Efron
1987, "Better bootstrap confidence intervals" (BCa); Hesterberg 2015 (arXiv:1411.5279), section 5.3
(quantiles of t, because the percentile interval of a small sample is too narrow).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import ceil, comb, floor, fsum, log2, log10, prod, sqrt
from operator import itemgetter
from random import Random
from statistics import NormalDist, fmean

from hud_tui.rl.chance import RESIDUE, differing
from hud_tui.rl.metrics import estimate_text, gain_text, short
from hud_tui.rl.names import find_by_id
from hud_tui.rl.own_numbers import Z, conditions, ends_of, is_of_run, rewards_by_task
from hud_tui.rl.tasks.task import digest
from hud_tui.rl.text import counted, one_line
from hud_tui.rl.work import job_mean, weights_name, whole
from hud_tui.wire import Checkpoint, Estimate, Evaluation, Group, Job, WorkState

LEVEL = 0.95
"""Confidence level of all intervals."""
RESAMPLES = 2000
DRAWS = 100_000
"""Maximum number of task draws for one interval; with very many tasks there are fewer resamples."""
FEWEST = 500
SEED = 20210707
SOLVED_AT = 1.0
"""Default reward from which a rollout counts as solved."""
FEWEST_DIFFERING = 6
"""Number of tasks that must differ before a difference is claimed, of one comparison."""
EFFECT = 0.05
"""The least difference for which the needed number of rollouts is told where none is visible."""
POWER = 0.8
"""Probability of detecting it with that many."""
MOST_TIMES = 100
"""Times as many tasks beyond which it is no use to tell how many."""
_NORMAL = NormalDist()


def is_solved(reward: float, solved_at: float = SOLVED_AT) -> bool:
    """Whether a rollout solved its task; its reward may have been rounded to 32 bits."""
    return reward >= solved_at - RESIDUE


def pass_at(samples: int, solved: int, k: int) -> float:
    """Unbiased estimate of the probability that at least one of k rollouts of a task solves it.

    Args:
        samples: Number of rollouts, n.
        solved: Number of rollouts that solved the task, c.
        k: From 1 to n.

    Returns:
        1 − C(n − c, k) / C(n, k), as a product, in [0, 1].

    Raises:
        ValueError: c is not from 0 to n, or k not from 1 to n.
    """
    if not 0 <= solved <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} of {solved} solved in {samples}")
    if samples - solved < k:
        return 1.0
    return 1.0 - prod(1.0 - k / i for i in range(samples - solved + 1, samples + 1))


def interval(
    values: Sequence[float],
    least: float,
    most: float,
    resamples: int = RESAMPLES,
    comparisons: int = 1,
) -> tuple[float, float] | None:
    """The 95 % interval of a mean over tasks; None for fewer than two tasks.

    BCa bootstrap. Both the acceleration and the bias correction are those of a mean, which are
    equal and known exactly. Quantiles are Student's t instead of normal, because the bootstrap of a
    small sample is too narrow. In a simulation with 20 to 48 tasks of 4 rollouts it covers 93 to 97
    % for mean rewards and pass@1, and up to 98 % for pass@4, whose values are 0 or 1; it covers
    less if all tasks but one or two have the same value.

    Args:
        values: One per task, shape (N,).
        least, most: Range of possible values. If all values are equal, resampling has nothing to
            work with: the ends are then as far away as a share 1 − .025^(1/N) of unseen tasks at
            `least` or `most` would move the mean.
        resamples: Number of bootstrap means. Their seed is fixed: equal values give equal
            intervals.
        comparisons: Number of intervals that hold together with 95 % (Bonferroni). The ends of
            several are too far out for a bootstrap: they are Student's.
    """
    count = len(values)
    if count < 2:
        return None
    mean = fmean(values)
    deviations = [value - mean for value in values]
    squares = fsum(d * d for d in deviations)
    if max(values) - min(values) <= RESIDUE or not squares:
        share = 1 - ((1 - LEVEL) / 2 / comparisons) ** (1 / count)
        return mean - share * max(0.0, mean - least), mean + share * max(0.0, most - mean)
    reach = student_t(count - 1, comparisons)
    if comparisons > 1:
        half = reach * sqrt(squares / (count - 1) / count)
        return mean - half, mean + half
    acceleration = fsum(d**3 for d in deviations) / (6 * squares**1.5)
    means = _resampled(sorted(values), resamples)
    low, high = (_quantile(means, _adjusted(z, acceleration)) for z in (-reach, reach))
    return low, high


def student_t(freedom: int, comparisons: int = 1) -> float:
    """The quantile of Student's t for the upper end of one of several intervals; for one, .975,
    three digits are right from 3 degrees of freedom.

    Source: Abramowitz and Stegun 1964, 26.7.5.
    """
    z, v = normal_quantile(comparisons), freedom
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + fsum(term / v**power for power, term in enumerate(terms, 1))


def normal_quantile(comparisons: int = 1) -> float:
    """The normal quantile for the upper end of one of several intervals."""
    return -_NORMAL.inv_cdf((1 - LEVEL) / 2 / comparisons)


def _adjusted(z: float, acceleration: float) -> float:
    """BCa's probability for a normal quantile; for a mean, bias correction and acceleration are
    equal."""
    moved = acceleration + z
    return _NORMAL.cdf(acceleration + moved / (1 - acceleration * moved))


def _resampled(values: Sequence[float], resamples: int) -> list[float]:
    count = len(values)
    times = min(resamples, max(FEWEST, DRAWS // count))
    few = times * count <= DRAWS
    draws = _remembered(count, times) if few else _draws(count, times)
    return sorted(sum(draw(values)) / count for draw in draws)


def _draws(count: int, times: int) -> Iterator[Callable[[Sequence[float]], Iterable[float]]]:
    """Functions that each pick `count` of their argument's values with replacement; the positions
    depend on `count` and `times` only."""
    choose = Random(SEED).choices
    return (itemgetter(*choose(range(count), k=count)) for _ in range(times))


@lru_cache(maxsize=4)
def _remembered(count: int, times: int) -> Sequence[Callable[[Sequence[float]], Iterable[float]]]:
    """`_draws`, cached: drawing takes most of the time, and all figures of an evaluation have the
    same `count`."""
    return tuple(_draws(count, times))


def _quantile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    below = min(floor(position), len(ordered) - 2)
    return ordered[below] + (position - below) * (ordered[below + 1] - ordered[below])


def estimate(values: Sequence[float], least: float, most: float, comparisons: int = 1) -> Estimate:
    """A mean over tasks with its interval; arguments as for `interval`, at least one value."""
    low, high = interval(values, least, most, comparisons=comparisons) or (None, None)
    return Estimate(value=fmean(values), low=low, high=high)


# One checkpoint: its rewards by task.


@dataclass(frozen=True)
class TaskScore:
    slug: str
    rewards: tuple[float, ...]
    """Finite, shape (K,), K ≥ 1."""
    solved: int
    """Number of rollouts that solved it."""

    @property
    def mean(self) -> float:
        return fmean(self.rewards)


@dataclass(frozen=True)
class Scores:
    """An evaluation's rewards by task; statistics are computed when first read."""

    tasks: tuple[TaskScore, ...]
    """Sorted by slug; tasks without a reward are left out."""
    solved_at: float = SOLVED_AT

    @classmethod
    def of(cls, groups: Sequence[Group], solved_at: float = SOLVED_AT) -> "Scores":
        """From groups; groups of the same task are joined, and non-finite rewards dropped."""
        scores = (
            TaskScore(slug, tuple(rewards), sum(is_solved(reward, solved_at) for reward in rewards))
            for slug, rewards in sorted(rewards_by_task(groups).items())
        )
        return cls(tuple(scores), solved_at)

    @property
    def samples(self) -> int:
        """Rollouts of the task that has the fewest; 0 without tasks."""
        return min((len(task.rewards) for task in self.tasks), default=0)

    @property
    def rollouts(self) -> int:
        return sum(len(task.rewards) for task in self.tasks)

    @property
    def size(self) -> str:
        """E.g. ``48 tasks × 4``."""
        return size(len(self.tasks), self.samples)

    @property
    def mean_reward(self) -> float:
        """Every task has the same weight. Raises ValueError without tasks."""
        return fmean(task.mean for task in self.tasks)

    @cached_property
    def mean(self) -> Estimate:
        """Mean reward; every task has the same weight. Raises ValueError without tasks."""
        return estimate([task.mean for task in self.tasks], *self._bounds)

    @cached_property
    def pass_at(self) -> dict[int, Estimate]:
        """pass@k for the values of `ks`."""
        estimates = {}
        for k in ks(self.samples):
            chances = [pass_at(len(task.rewards), task.solved, k) for task in self.tasks]
            estimates[k] = estimate(chances, 0.0, 1.0)
        return estimates

    @property
    def _bounds(self) -> tuple[float, float]:
        """Assumed range of rewards: 0 to 1, extended to the rewards seen."""
        rewards = [reward for task in self.tasks for reward in task.rewards]
        return min([0.0, *rewards]), max([1.0, *rewards])


def ks(samples: int) -> list[int]:
    """The values of k for which pass@k is reported: powers of two up to `samples`, and
    `samples`."""
    doubles = [1 << power for power in range(samples.bit_length())]
    return sorted({*doubles, samples} - {0})


def size(tasks: int, samples: int) -> str:
    """E.g. ``48 tasks × 4``."""
    return f"{tasks} {'task' if tasks == 1 else 'tasks'} × {samples}"


def tasks_digest(slugs: Sequence[str]) -> str:
    """A hash of a set of tasks; their order does not matter. 16 hexadecimal digits."""
    return digest(sorted(slugs))[:16]


def summarize(groups: Sequence[Group], solved_at: float = SOLVED_AT) -> Evaluation:
    """The statistics of an evaluation, in the form in which its checkpoint carries them.

    Raises:
        ValueError: There is no reward.
    """
    scores = Scores.of(groups, solved_at)
    return Evaluation(
        mean_reward=scores.mean.value,
        num_tasks=len(scores.tasks),
        num_traces=scores.rollouts,
        samples=scores.samples,
        mean=scores.mean,
        pass_at=scores.pass_at,
        solved_at=solved_at,
        tasks_digest=tasks_digest([task.slug for task in scores.tasks]),
    )


# Two checkpoints compared on the same tasks.


@dataclass(frozen=True)
class TaskChange:
    """One task that both were evaluated on."""

    slug: str
    before: TaskScore
    after: TaskScore

    @property
    def delta(self) -> float:
        """Difference of the mean rewards, after minus before."""
        return self.after.mean - self.before.mean

    @property
    def solved(self) -> float:
        """Difference of the solve rates, after minus before."""
        before, after = self.before, self.after
        return after.solved / len(after.rewards) - before.solved / len(before.rewards)


@dataclass(frozen=True)
class Difference:
    """The difference of two evaluations on the tasks that both have; at least one."""

    changes: tuple[TaskChange, ...]
    missing: tuple[int, int]
    """Number of tasks that only the first has, and that only the second has."""
    comparisons: int = 1
    """Number of differences whose intervals hold together."""

    @property
    def samples(self) -> tuple[int, int]:
        """Fewest rollouts of any task, in the first and in the second."""
        before = min(len(change.before.rewards) for change in self.changes)
        return before, min(len(change.after.rewards) for change in self.changes)

    @property
    def rollouts(self) -> tuple[int, int]:
        """Number of rollouts of the tasks, in the first and in the second."""
        before = sum(len(change.before.rewards) for change in self.changes)
        return before, sum(len(change.after.rewards) for change in self.changes)

    @property
    def size(self) -> str:
        """E.g. ``48 tasks × 4``, or ``48 tasks × 4 and 8``."""
        before, after = self.samples
        return size(len(self.changes), before) + ("" if before == after else f" and {after}")

    @cached_property
    def reward(self) -> Estimate:
        """Difference of the mean rewards."""
        means = [t.mean for change in self.changes for t in (change.before, change.after)]
        most = max(1.0, max(means) - min(means))
        return _paired([change.delta for change in self.changes], most, self.comparisons)

    @cached_property
    def solved(self) -> Estimate:
        """Difference of pass@1."""
        return _paired([change.solved for change in self.changes], 1.0, self.comparisons)

    @property
    def better(self) -> list[TaskChange]:
        """Tasks whose mean reward rose by more than chance, largest change first."""
        return [change for change in self._ranked if change.delta > 0 and change in self._differing]

    @property
    def worse(self) -> list[TaskChange]:
        """Tasks whose mean reward fell by more than chance, largest change first."""
        return [change for change in self._ranked if change.delta < 0 and change in self._differing]

    @property
    def alike(self) -> list[TaskChange]:
        """Tasks that do not differ by more than chance, largest change first."""
        return [change for change in self._ranked if change not in self._differing]

    @cached_property
    def _ranked(self) -> list[TaskChange]:
        return sorted(self.changes, key=lambda change: (-abs(change.delta), change.slug))

    @cached_property
    def _differing(self) -> frozenset[TaskChange]:
        pairs = [(change.before.rewards, change.after.rewards) for change in self.changes]
        return frozenset(self.changes[position] for position in differing(pairs))

    @property
    def is_worse(self) -> bool:
        """Whether the second mean reward is significantly lower: the whole interval is below
        zero."""
        return self.reward.high is not None and self.reward.high < 0

    def sentences(self, before: str, after: str) -> list[str]:
        """Conclusions about pass@1 and the mean reward; one sentence if both are the same number.

        `before` and `after` are the names of the two.
        """
        shares = [change.solved for change in self.changes]
        means = [change.delta for change in self.changes]
        solved, reward = ("pass@1", self.solved, shares), ("mean reward", self.reward, means)
        measures = [solved, reward]
        if all(abs(mean - share) <= RESIDUE for mean, share in zip(means, shares, strict=True)):
            measures = [solved]  # rewards of 0 and 1: the mean reward is the share that is solved
        elif is_unseen(self.solved) and is_unseen(self.reward):
            wider = max(self.solved, self.reward, key=_width)
            measures = [("pass@1 or mean reward", wider, means)]
        of = f"{after} − {before}"
        size, rollouts = self.size, sum(self.rollouts)
        return [sentence(metric, delta, of, size, by, rollouts) for metric, delta, by in measures]


def _paired(deltas: Sequence[float], most: float, comparisons: int) -> Estimate:
    """Mean of paired differences by task, each in [−most, most].

    With fewer than six differing tasks no difference is significant (sign test: 2 × 2⁻⁵ = .06;
    more of several comparisons), and a bootstrap of so few values is too narrow: the interval is
    then extended to include zero.
    """
    estimated = estimate(deltas, -most, most, comparisons)
    fewest = ceil(log2(2 * comparisons / (1 - LEVEL)))
    if estimated.low is None or estimated.high is None or _varying(deltas) >= fewest:
        return estimated
    return estimated.model_copy(
        update={"low": min(0.0, estimated.low), "high": max(0.0, estimated.high)}
    )


def is_unseen(delta: Estimate) -> bool:
    """Whether its interval contains zero."""
    return delta.low is not None and delta.high is not None and delta.low <= 0 <= delta.high


def _width(delta: Estimate) -> float:
    return (delta.high or 0.0) - (delta.low or 0.0)


def _varying(deltas: Sequence[float]) -> int:
    return sum(abs(delta) > RESIDUE for delta in deltas)


def difference(before: Scores, after: Scores, *, comparisons: int = 1) -> Difference | None:
    """Compare two evaluations, one of several comparisons; None if they have no task in common."""
    by_slug = {task.slug: task for task in before.tasks}
    changes = tuple(
        TaskChange(task.slug, by_slug[task.slug], task)
        for task in after.tasks
        if task.slug in by_slug
    )
    shared = len(changes)
    missing = len(before.tasks) - shared, len(after.tasks) - shared
    return Difference(changes, missing, comparisons) if changes else None


def sentence(
    metric: str, delta: Estimate, of: str, size: str, deltas: Sequence[float], rollouts: int
) -> str:
    """A difference with its interval; if none is visible, what it would take to know.

    Args:
        metric: ``pass@1``, ``mean reward``, or both if neither shows a difference.
        delta: After minus before.
        of: Names of the two, ``after − before``.
        size: The sample, as `Difference.size`.
        deltas: Differences by task, shape (N,).
        rollouts: Number of rollouts of both.
    """
    low, high = delta.low, delta.high
    change = f"{of}: {metric} {gain_text(delta)}"
    if low is None or high is None:
        return f"{change} on {size}; one task says nothing of others"
    if low > 0 or high < 0:
        return f"{change} on {size}"
    varying = _varying(deltas)
    few = f", of which {varying or 'none'} differ{'s' * (varying < 2)}"
    on = size + (few if varying < FEWEST_DIFFERING else "")
    would = what_would_show(delta, rollouts, len(deltas))
    return f"{of}: no difference in {metric} is visible with {on}: {would}"


def what_would_show(delta: Estimate, rollouts: int, tasks: int) -> str:
    """What it would take to know, in words; arguments as for `rollouts_to_decide`."""
    effect = short(effect_of(delta))
    more = rollouts_to_decide(delta, rollouts, tasks)
    if more is None:
        return f"even {MOST_TIMES} times as many tasks may not show one of {effect}"
    if not more:
        return f"one of {effect} would have shown"
    return f"about {counted(more, 'more rollout')} on more tasks would show one of {effect}"


def rollouts_to_decide(delta: Estimate, rollouts: int, tasks: int) -> int | None:
    """How many more rollouts, of other tasks of the same kind, would decide whether there is a
    difference as large as the one measured, or as EFFECT if that is larger.

    Args:
        delta: A difference with its interval, which shrinks with √tasks.
        rollouts: Number of rollouts of both sides that it was measured with, at least one.
        tasks: Number of their tasks, at least one.

    Returns:
        The number on both sides together; 0 if those there are would have decided, None if it
        takes more than MOST_TIMES as many, or if there is no interval. Two digits, rounded up.
    """
    if delta.low is None or delta.high is None:
        return None
    effect, half = effect_of(delta), (delta.high - delta.low) / 2
    times = (half / effect * (1 + _NORMAL.inv_cdf(POWER) / Z)) ** 2
    times = max(times, fewest_tasks(effect) / tasks)
    if times <= 1:
        return 0
    more = (times - 1) * rollouts
    unit = 10 ** max(0, floor(log10(more)) - 1)
    return None if times > MOST_TIMES else unit * ceil(more / unit)


def effect_of(delta: Estimate) -> float:
    """The difference that further rollouts are to show."""
    return max(EFFECT, abs(delta.value))


@lru_cache(maxsize=256)
def fewest_tasks(effect: float = EFFECT) -> int:
    """Fewest tasks that can show a difference of `effect`.

    In the most favourable case all of it comes from a share `effect` of the tasks, which one
    checkpoint always fails and the other always solves; FEWEST_DIFFERING of those must be drawn,
    with probability POWER.
    """
    tasks, share = FEWEST_DIFFERING, min(1.0, effect)
    while _at_least(FEWEST_DIFFERING, tasks, share) < POWER:
        tasks += 1
    return tasks


def _at_least(least: int, tasks: int, share: float) -> float:
    """Binomial probability of at least `least` successes in `tasks` draws."""
    fewer = (comb(tasks, k) * share**k * (1 - share) ** (tasks - k) for k in range(least))
    return 1 - fsum(fewer)


# What tables in the app and on the command line show of an evaluation.


@dataclass(frozen=True)
class Figure:
    label: str
    """``mean reward`` or ``pass@4``."""
    estimate: Estimate


@dataclass(frozen=True)
class EvaluationResult:
    """An evaluation's result, and the checkpoint it is of."""

    checkpoint_id: str | None
    """None for the weights that the model started from."""
    name: str
    """Name of the checkpoint."""
    evaluation: Evaluation


def figures(evaluation: Evaluation) -> list[Figure]:
    """The statistics of an evaluation, mean reward first; an old row has only that."""
    passes = [Figure(f"pass@{k}", evaluation.pass_at[k]) for k in sorted(evaluation.pass_at)]
    return [Figure("mean reward", evaluation.estimate), *passes]


def mean_text(evaluation: Evaluation) -> str:
    """The mean reward in short, e.g. ``.718 [.560, .849], 36 tasks × 4``."""
    return f"{estimate_text(evaluation.estimate)}, {sample_size(evaluation)}"


def sample_size(evaluation: Evaluation) -> str:
    """The sample, e.g. ``36 tasks × 4``."""
    return size(evaluation.num_tasks, evaluation.samples_per_task)


def job_result(job: Job) -> str:
    """Result of an evaluation, e.g. ``mean reward .718 [.56, .849], 36 tasks × 4``; empty for other
    jobs, and before it has ended."""
    mean, more = job_mean(job), job.metadata or {}
    if mean is None:
        return ""
    tasks, samples = whole(more.get("tasks")), whole(more.get("samples"))
    sample = "" if tasks is None or samples is None else f", {size(tasks, samples)}"
    return f"mean reward {estimate_text(mean)}{sample}"


def evaluation_results(
    tree: Sequence[Checkpoint], jobs: Sequence[WorkState]
) -> list[EvaluationResult]:
    """Every evaluation with a result: first those of the weights that the model started from, then
    by checkpoint.

    Args:
        tree: Oldest first, with the results that the service reports.
        jobs: All known ones, oldest first; those made by this program are not in the tree.
    """
    by_checkpoint: dict[str | None, list[EvaluationResult]] = {None: []}
    for node in tree:
        name = node.name or node.id[:8]
        by_checkpoint[node.id] = [EvaluationResult(node.id, name, e) for e in node.evaluations]
    stored = {result.evaluation.id for results in by_checkpoint.values() for result in results}
    for job in jobs:
        if job.result is not None and job.id not in stored:
            results = by_checkpoint.setdefault(job.checkpoint_id, [])
            results.append(EvaluationResult(job.checkpoint_id, weights_name(job), job.result))
    return [result for results in by_checkpoint.values() for result in results]


def pair_of(
    before: Sequence[Evaluation], after: Sequence[Evaluation]
) -> tuple[Evaluation, Evaluation] | None:
    """The two evaluations of two checkpoints that compare best; None if none can be compared.

    Preferred are pairs on the same tasks, then under the same conditions, then with the most
    rollouts, then the newest.

    Args:
        before, after: Evaluations of one checkpoint each, oldest first; those without an id have no
            rewards by task and are skipped.
    """
    pairs = []
    for position, (first, second) in enumerate(product(before, after)):
        splits = first.split, second.split
        if first.id and second.id and (first.split == second.split or "all" in splits):
            alike = (
                first.tasks_digest == second.tasks_digest,
                conditions(first) == conditions(second),
            )
            rollouts = min(first.num_traces, second.num_traces)
            pairs.append((alike, rollouts, position, (first, second)))
    return max(pairs, key=lambda pair: pair[:3])[3] if pairs else None


@dataclass(frozen=True)
class Paired:
    """Two evaluations, and the difference of the second from the first."""

    before: Evaluation
    after: Evaluation
    difference: Difference


def last_requested(jobs: Iterable[WorkState]) -> WorkState | None:
    """The newest evaluation that was requested by itself, not made by a run; None if there is none.

    Args:
        jobs: Oldest first.
    """
    own = [job for job in jobs if not is_of_run(job)]
    return own[-1] if own else None


def rollout_seconds(jobs: Iterable[WorkState]) -> float | None:
    """Seconds per rollout of the newest evaluation that reports its duration; None if none does.

    Args:
        jobs: Oldest first.
    """
    timed = [job for job in jobs if job.seconds and job.done]
    return None if not timed else (timed[-1].seconds or 0.0) / timed[-1].done


def seconds_left(job: WorkState) -> float | None:
    """Seconds until an active evaluation ends, at its own pace; None before its first rollouts."""
    pace = rollout_seconds([job])
    return None if pace is None else pace * max(0, job.total - job.done)


def find_evaluation(name: str, evaluations: Sequence[WorkState]) -> WorkState:
    """An evaluation by id or a prefix of it.

    Args:
        evaluations: Newest first.

    Raises:
        HudAmbiguous: Several match; the hint lists them.
        HudUsage: None matches; the hint lists the newest.
    """

    def label(evaluation: WorkState) -> str:
        model = evaluation.model or evaluation.model_id
        return one_line(f"{evaluation.id} ({weights_name(evaluation)} of {model})", 120)

    return find_by_id(name, evaluations, "evaluation", label)


def best_evaluated(evaluations: Sequence[WorkState], digest: str | None) -> WorkState | None:
    """The evaluation that ranks highest by the lower end of its mean reward's interval.

    Args:
        evaluations: Oldest first; those of the weights that the model started from are skipped.
        digest: Only evaluations with this `Evaluation.tasks_digest`; None for any.
    """
    ranked = [
        (ends_of(e.result.mean_reward, e.result.num_traces)[0], e)
        for e in evaluations
        if e.result is not None and e.checkpoint_id and digest in (None, e.result.tasks_digest)
    ]
    return max(ranked, key=lambda pair: pair[0], default=(0.0, None))[1]


def best_known(
    evaluations: Sequence[WorkState], checkpoint_id: str | None, digest: str | None = None
) -> WorkState | None:
    """The newest evaluation of a checkpoint that has a result, if possible on the same tasks.

    Args:
        evaluations: Oldest first.
        checkpoint_id: None for the weights that the model started from.
        digest: `Evaluation.tasks_digest` that is preferred.
    """
    own = [e for e in evaluations if e.checkpoint_id == checkpoint_id and e.result is not None]
    same = [e for e in own if digest and e.result and e.result.tasks_digest == digest]
    return next(reversed(same or own), None)
