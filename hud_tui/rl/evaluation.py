"""What an evaluation says: mean reward and pass@k with intervals; of two, the paired difference.

Tasks are the sample here, not rollouts: a checkpoint is asked how it does on tasks like these, so
every figure is a mean over tasks of something that each task's rollouts say, and its interval
comes from a bootstrap over tasks. Two checkpoints are compared on the tasks that both have.

Sources: Chen et al. 2021 (arXiv:2107.03374), section 2.1 (pass@k, and its stable product); Efron
1987, "Better bootstrap confidence intervals" (BCa); Hesterberg 2015 (arXiv:1411.5279), section
5.3 (quantiles of t, as the percentile interval of few is too narrow).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import ceil, comb, floor, fsum, isfinite, prod
from operator import itemgetter
from random import Random
from statistics import NormalDist, fmean

from hud_tui.rl.metrics import short
from hud_tui.rl.own_numbers import conditions, ends_of
from hud_tui.rl.tasks.task import digest
from hud_tui.wire import Checkpoint, Estimate, Evaluation, EvaluationJob, Group

LEVEL = 0.95
"""Of all intervals."""
RESAMPLES = 2000
DRAWS = 100_000
"""Tasks that are drawn for one interval at most; of very many tasks, fewer resamples do."""
FEWEST = 500
SEED = 20210707
SOLVED_AT = 1.0
"""The reward from which on a rollout counts as solved, where nobody says another."""
FEWEST_DIFFERING = 6
"""Tasks that must differ before a difference is claimed."""
RESIDUE = 1e-6
"""A reward that is this much less was rounded to 32 bits."""
EFFECT = 0.05
"""The difference that is said to need so many tasks, where none is visible."""
POWER = 0.8
"""With which chance so many tasks would show it."""
_NORMAL = NormalDist()
_Z = _NORMAL.inv_cdf((1 + LEVEL) / 2)


def pass_at(samples: int, solved: int, k: int) -> float:
    """The unbiased estimate of the chance that one of k rollouts of a task solves it.

    Args:
        samples: Rollouts that were made, n.
        solved: Those of them that solved it, c.
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
    values: Sequence[float], least: float, most: float, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """The 95 % interval of a mean over tasks; None for fewer than two tasks.

    BCa, with the exact acceleration of a mean as its bias correction too, and with the quantiles of
    Student's t, which make up for the narrowness of a bootstrap of few. In a simulation with 20 to
    48 tasks of 4 rollouts it covers 93 to 97 % for mean rewards and pass@1; for pass@4, which is
    0 or 1 of a task, up to 98 %; where all tasks but one or two are alike, less.

    Args:
        values: One a task, shape (N,).
        least, most: What a task's value may be. Where all are equal there is nothing to draw
            from: the ends are then as far as a share 1 − .025^(1/N) of unseen tasks could move it.
        resamples: How many means are drawn, with a seed of their own: the same values have the
            same interval.
    """
    count = len(values)
    if count < 2:
        return None
    mean = fmean(values)
    deviations = [value - mean for value in values]
    squares = fsum(d * d for d in deviations)
    if max(values) - min(values) <= RESIDUE or not squares:
        share = 1 - ((1 - LEVEL) / 2) ** (1 / count)
        return mean - share * max(0.0, mean - least), mean + share * max(0.0, most - mean)
    acceleration = fsum(d**3 for d in deviations) / (6 * squares**1.5)
    means = _resampled(sorted(values), resamples)
    reach = student_t(count - 1)
    low, high = (_quantile(means, _adjusted(z, acceleration)) for z in (-reach, reach))
    return low, high


def student_t(freedom: int) -> float:
    """The .975 quantile of Student's t, to three digits from 3 degrees of freedom on.

    Source: Abramowitz and Stegun 1964, 26.7.5.
    """
    z, v = _Z, freedom
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + fsum(term / v**power for power, term in enumerate(terms, 1))


def _adjusted(z: float, acceleration: float) -> float:
    """BCa's share for a normal quantile; a mean's bias correction equals its acceleration."""
    moved = acceleration + z
    return _NORMAL.cdf(acceleration + moved / (1 - acceleration * moved))


def _resampled(values: Sequence[float], resamples: int) -> list[float]:
    count = len(values)
    times = min(resamples, max(FEWEST, DRAWS // count))
    few = times * count <= DRAWS
    draws = _remembered(count, times) if few else _draws(count, times)
    return sorted(sum(draw(values)) / count for draw in draws)


def _draws(count: int, times: int) -> Iterator[Callable[[Sequence[float]], Iterable[float]]]:
    """Each takes `count` values with replacement: always the same ones, whatever they are."""
    choose = Random(SEED).choices
    return (itemgetter(*choose(range(count), k=count)) for _ in range(times))


@lru_cache(maxsize=4)
def _remembered(count: int, times: int) -> Sequence[Callable[[Sequence[float]], Iterable[float]]]:
    """Drawing takes most of the time, and an evaluation's figures are all of as many tasks."""
    return tuple(_draws(count, times))


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = min(floor(place), len(ordered) - 2)
    return ordered[below] + (place - below) * (ordered[below + 1] - ordered[below])


def estimate(values: Sequence[float], least: float, most: float) -> Estimate:
    """A mean over tasks, with its interval; arguments as of `interval`, at least one value."""
    low, high = interval(values, least, most) or (None, None)
    return Estimate(value=fmean(values), low=low, high=high)


# One checkpoint: its rewards by task.


@dataclass(frozen=True)
class TaskScore:
    """One task's rollouts."""

    slug: str
    rewards: tuple[float, ...]
    """Finite, shape (K,), K ≥ 1."""
    solved: int
    """How many of them solved it."""

    @property
    def mean(self) -> float:
        return fmean(self.rewards)


@dataclass(frozen=True)
class Scores:
    """An evaluation by task; nothing is drawn before it is asked for."""

    tasks: tuple[TaskScore, ...]
    """By slug; those without any reward are left out."""
    solved_at: float = SOLVED_AT

    @classmethod
    def of(cls, groups: Sequence[Group], solved_at: float = SOLVED_AT) -> "Scores":
        """From rewards by task, a task's groups together. What is not finite is no reward."""
        found: dict[str, list[float]] = {}
        for group in groups:
            found.setdefault(group.task_slug, []).extend(filter(isfinite, group.rewards))
        least = solved_at - RESIDUE
        scores = (
            TaskScore(slug, tuple(rewards), sum(reward >= least for reward in rewards))
            for slug, rewards in sorted(found.items())
            if rewards
        )
        return cls(tuple(scores), solved_at)

    @property
    def samples(self) -> int:
        """Rollouts that every task has at least; 0 where there are no tasks."""
        return min((len(task.rewards) for task in self.tasks), default=0)

    @property
    def rollouts(self) -> int:
        return sum(len(task.rewards) for task in self.tasks)

    @property
    def size(self) -> str:
        """E.g. ``48 tasks × 4``."""
        return size(len(self.tasks), self.samples)

    @cached_property
    def mean(self) -> Estimate:
        """Mean reward, every task as much as any other. Raises ValueError where there are none."""
        return estimate([task.mean for task in self.tasks], *self._bounds)

    @cached_property
    def pass_at(self) -> dict[int, Estimate]:
        """pass@k for 1, its doubles, and the number of samples."""
        return {k: self.passed(k) for k in ks(self.samples)}

    def passed(self, k: int) -> Estimate:
        """pass@k. Raises ValueError where k is not from 1 to `samples`."""
        chances = [pass_at(len(task.rewards), task.solved, k) for task in self.tasks]
        return estimate(chances, 0.0, 1.0)

    @property
    def _bounds(self) -> tuple[float, float]:
        """What a task's mean may be, as far as is seen: 0 to 1, and what was beyond."""
        rewards = [reward for task in self.tasks for reward in task.rewards]
        return min([0.0, *rewards]), max([1.0, *rewards])


def ks(samples: int) -> list[int]:
    """For which k pass@k is told: 1, 2, 4 … and the number of samples."""
    doubles = [1 << power for power in range(samples.bit_length())]
    return sorted({*doubles, samples} - {0})


def size(tasks: int, samples: int) -> str:
    """E.g. ``48 tasks × 4``."""
    return f"{tasks} {'task' if tasks == 1 else 'tasks'} × {samples}"


def tasks_digest(slugs: Sequence[str]) -> str:
    """Names a set of tasks, whatever their order."""
    return digest(sorted(slugs))[:16]


def sum_up(groups: Sequence[Group], solved_at: float = SOLVED_AT) -> Evaluation:
    """The figures of an evaluation, which its checkpoint carries.

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


# Two checkpoints on the same tasks.


@dataclass(frozen=True)
class TaskChange:
    """One task that both were asked."""

    slug: str
    before: TaskScore
    after: TaskScore

    @property
    def delta(self) -> float:
        """Of the mean rewards, after minus before."""
        return self.after.mean - self.before.mean

    @property
    def solved(self) -> float:
        """Of the shares that are solved, after minus before."""
        before, after = self.before, self.after
        return after.solved / len(after.rewards) - before.solved / len(before.rewards)


@dataclass(frozen=True)
class Difference:
    """What one evaluation has over another, on the tasks that both have; at least one."""

    changes: tuple[TaskChange, ...]
    missing: tuple[int, int]
    """Tasks that only the first has, and only the second."""

    @property
    def samples(self) -> tuple[int, int]:
        """Rollouts that every task has at least, in each."""
        before = min(len(change.before.rewards) for change in self.changes)
        return before, min(len(change.after.rewards) for change in self.changes)

    @property
    def size(self) -> str:
        """E.g. ``48 tasks × 4``, or ``48 tasks × 4 and 8``."""
        one, other = self.samples
        return size(len(self.changes), one) + ("" if one == other else f" and {other}")

    @cached_property
    def reward(self) -> Estimate:
        """The difference of the mean rewards."""
        means = [t.mean for change in self.changes for t in (change.before, change.after)]
        most = max(1.0, max(means) - min(means))
        return _paired([change.delta for change in self.changes], most)

    @cached_property
    def solved(self) -> Estimate:
        """The difference of pass@1."""
        return _paired([change.solved for change in self.changes], 1.0)

    @property
    def better(self) -> list[TaskChange]:
        """The tasks whose mean reward rose, the most first; that some do is no proof."""
        rose = [change for change in self.changes if change.delta > RESIDUE]
        return sorted(rose, key=lambda change: (-change.delta, change.slug))

    @property
    def worse(self) -> list[TaskChange]:
        """The tasks whose mean reward fell, the most first."""
        fell = [change for change in self.changes if change.delta < -RESIDUE]
        return sorted(fell, key=lambda change: (change.delta, change.slug))

    @property
    def is_worse(self) -> bool:
        """Whether the second one's mean reward is lower beyond chance: all of the interval is."""
        return self.reward.high is not None and self.reward.high < 0

    def sentences(self, before: str, after: str) -> list[str]:
        """What can be said, of what is solved and of the mean reward; one where both are alike."""
        shares = [change.solved for change in self.changes]
        means = [change.delta for change in self.changes]
        solved, reward = ("solves", self.solved, shares), ("scores", self.reward, means)
        told = [solved, reward]
        if all(abs(mean - share) <= RESIDUE for mean, share in zip(means, shares, strict=True)):
            told = [solved]  # rewards of 0 and 1: the mean reward is the share that is solved
        elif _is_unseen(self.solved) and _is_unseen(self.reward):
            told = [("either", max(self.solved, self.reward, key=_width), means)]
        return [sentence(verb, delta, before, after, self.size, by) for verb, delta, by in told]


def _paired(deltas: Sequence[float], most: float) -> Estimate:
    """The mean of differences by task, each from -most to most. Of fewer than six tasks that differ
    none can be told from chance (sign test: 2 × 2⁻⁵ = .06), and a bootstrap that draws from so few
    is too narrow: the interval then reaches zero."""
    found = estimate(deltas, -most, most)
    if found.low is None or found.high is None or _differing(deltas) >= FEWEST_DIFFERING:
        return found
    return found.model_copy(update={"low": min(0.0, found.low), "high": max(0.0, found.high)})


def _is_unseen(delta: Estimate) -> bool:
    """Whether its interval has both sides of zero."""
    return delta.low is not None and delta.high is not None and delta.low <= 0 <= delta.high


def _width(delta: Estimate) -> float:
    return 0.0 if delta.low is None or delta.high is None else delta.high - delta.low


def _differing(deltas: Sequence[float]) -> int:
    return sum(abs(delta) > RESIDUE for delta in deltas)


def difference(before: Scores, after: Scores) -> Difference | None:
    """Compare two evaluations; None if they share no task."""
    known = {task.slug: task for task in before.tasks}
    changes = tuple(
        TaskChange(task.slug, known[task.slug], task) for task in after.tasks if task.slug in known
    )
    shared = len(changes)
    missing = len(before.tasks) - shared, len(after.tasks) - shared
    return Difference(changes, missing) if changes else None


def sentence(
    verb: str,
    delta: Estimate,
    before: str,
    after: str,
    size: str,
    deltas: Sequence[float],
) -> str:
    """What a difference says, in points: hundredths of a reward or of a share.

    Args:
        verb: ``solves`` or ``scores``; ``either`` where neither shows a difference.
        delta: After minus before.
        before, after: What the two are called.
        size: Of the tasks, as `Difference.size`.
        deltas: By task, shape (N,).
    """
    low, high = delta.low, delta.high
    if low is None or high is None:
        return (
            f"{after} {verb} {_points(delta.value)} than {before} on {size}; one task says"
            " nothing of others"
        )
    if low > 0 or high < 0:
        ends = sorted((abs(low), abs(high)))
        least = _number(ends[0]) if ends[0] >= 0.0005 else "less than 0.1"
        between = f"between {least} and {_number(ends[1])}"
        return f"{after} {verb} {_points(delta.value)} than {before}, {between}, on {size}"
    what = {
        "solves": "what they solve",
        "scores": "their rewards",
        "either": "what they solve or their rewards",
    }[verb]
    differing = _differing(deltas)
    few = f", of which {differing or 'none'} differ{'s' * (differing < 2)}"
    on = size + (few if differing < FEWEST_DIFFERING else "")
    return f"no difference in {what} is visible with {on}: {_more((high - low) / 2, len(deltas))}"


def _more(half: float, tasks: int) -> str:
    times = max(times_as_many(half), ceil(fewest_tasks() / tasks))
    effect = f"{_number(EFFECT)} points"
    if times <= 1:
        return f"one of {effect} would have shown"
    many = "more than 100" if times > 100 else f"about {times}"
    return f"{many} times as many tasks would show one of {effect}"


def times_as_many(half: float, effect: float = EFFECT, power: float = POWER) -> int:
    """How many times as many tasks would show a difference of this size.

    Args:
        half: Half the width of the interval that is there; it shrinks with √tasks.
        effect: The difference.
        power: The chance with which it is to be shown.
    """
    return ceil((half / effect * (1 + _NORMAL.inv_cdf(power) / _Z)) ** 2 - 1e-9)


@lru_cache
def fewest_tasks(effect: float = EFFECT, power: float = POWER) -> int:
    """Fewest tasks that can show a difference of this size, however alike the others are: all of it
    may lie in a share `effect` of them, that one never solves and the other always, and
    FEWEST_DIFFERING of those must be among the tasks."""
    tasks = FEWEST_DIFFERING
    while _at_least(FEWEST_DIFFERING, tasks, effect) < power:
        tasks += 1
    return tasks


def _at_least(least: int, tasks: int, share: float) -> float:
    """The binomial chance of at least so many."""
    fewer = (comb(tasks, k) * share**k * (1 - share) ** (tasks - k) for k in range(least))
    return 1 - fsum(fewer)


def _points(delta: float) -> str:
    count = _number(abs(delta))
    return f"{count} {'point' if count == '1' else 'points'} {'more' if delta >= 0 else 'less'}"


def _number(share: float) -> str:
    """Points, with a digit after the point where they are few."""
    points = 100 * share
    return f"{points:.0f}" if points >= 2 or abs(points - round(points)) < 0.05 else f"{points:.1f}"


def as_groups(rewards: Mapping[str, Sequence[float]]) -> list[Group]:
    """Rewards by task as the wire has them."""
    return [Group(task_slug=slug, rewards=list(found)) for slug, found in rewards.items()]


# Rows for people: what a table shows of an evaluation, whatever draws it.


@dataclass(frozen=True)
class Figure:
    """One line of an evaluation's figures."""

    label: str
    """``mean reward`` or ``pass@4``."""
    estimate: Estimate


@dataclass(frozen=True)
class Told:
    """What an evaluation found, and of what."""

    checkpoint_id: str | None
    """None: the weights that the model started from."""
    name: str
    """The checkpoint's."""
    found: Evaluation


def figures(found: Evaluation) -> list[Figure]:
    """The figures of an evaluation, mean reward first; an old row has that alone."""
    mean = found.mean or Estimate(value=found.mean_reward)
    passes = [Figure(f"pass@{k}", found.pass_at[k]) for k in sorted(found.pass_at)]
    return [Figure("mean reward", mean), *passes]


def told_figure(found: Evaluation) -> str:
    """The mean reward in a few words, e.g. ``.718 [.560, .849], 36 tasks × 4``."""
    mean = figures(found)[0].estimate
    ends = "" if mean.low is None else f" [{short(mean.low)}, {short(mean.high)}]"
    return f"{short(mean.value)}{ends}, {told_size(found)}"


def told_size(found: Evaluation) -> str:
    """E.g. ``36 tasks × 4``; an old row says only how many rollouts there were in all."""
    each = found.samples or max(1, found.num_traces // max(1, found.num_tasks))
    return size(found.num_tasks, each)


def told(tree: Sequence[Checkpoint], jobs: Sequence[EvaluationJob]) -> list[Told]:
    """Every evaluation with figures, of the weights a model started from first, then by checkpoint.

    Args:
        tree: Oldest first; a service says there what it found.
        jobs: All that are known, oldest first; those made from here are in no tree.
    """
    known: dict[str | None, list[Told]] = {None: []}
    for node in tree:
        name = node.name or node.id[:8]
        known[node.id] = [Told(node.id, name, found) for found in node.evaluations]
    seen = {one.found.id for found in known.values() for one in found if one.found.id}
    for job in jobs:
        if job.result is not None and job.id not in seen:
            place = known.setdefault(job.checkpoint_id, [])
            place.append(Told(job.checkpoint_id, called(job), job.result))
    return [one for found in known.values() for one in found]


def pair_of(
    before: Sequence[Evaluation], after: Sequence[Evaluation]
) -> tuple[Evaluation, Evaluation] | None:
    """The evaluations of two checkpoints that compare best: on the same tasks under the same
    conditions, then with the most rollouts, then the newest; None if none can be compared.

    Args:
        before, after: Of one checkpoint each, oldest first; what has no id has no rewards by task.
    """
    pairs = [
        ((one.tasks_digest == other.tasks_digest, conditions(one) == conditions(other)),
         min(one.num_traces, other.num_traces), place, (one, other))
        for place, (one, other) in enumerate(product(before, after))
        if one.id and other.id and (one.split == other.split or "all" in (one.split, other.split))
    ]  # fmt: skip
    return max(pairs, key=lambda pair: pair[:3])[3] if pairs else None


@dataclass(frozen=True)
class Paired:
    """Two evaluations, and what the second has over the first."""

    before: Evaluation
    after: Evaluation
    difference: Difference


def asked_for(jobs: Iterable[EvaluationJob]) -> EvaluationJob | None:
    """The newest evaluation that somebody asked for, not a run; None if there is none.

    Args:
        jobs: Oldest first.
    """
    own = [job for job in jobs if job.job_id in (None, job.id)]
    return own[-1] if own else None


def rollout_seconds(jobs: Iterable[EvaluationJob]) -> float | None:
    """Seconds per rollout of the newest evaluation that says what it took; None if none does.

    Args:
        jobs: Oldest first.
    """
    told = [job for job in jobs if job.seconds and job.done]
    return None if not told else (told[-1].seconds or 0.0) / told[-1].done


def seconds_left(job: EvaluationJob) -> float | None:
    """Until one that is under way is over, at its own pace; None before its first rollouts."""
    pace = rollout_seconds([job])
    return None if pace is None else pace * max(0, job.total - job.done)


def called(job: EvaluationJob) -> str:
    """What the weights of an evaluation are called."""
    return job.checkpoint or (job.checkpoint_id or "base")[:8]


def best_evaluated(
    evaluations: Sequence[EvaluationJob], digest: str | None
) -> EvaluationJob | None:
    """The one with figures that ranks highest, by the lower end of its mean's interval.

    Args:
        evaluations: Oldest first; those of what the model started from do not count.
        digest: `Evaluation.tasks_digest` that it has to have; None for any.
    """
    known = [
        (ends_of(e.result.mean_reward, e.result.num_traces)[0], e)
        for e in evaluations
        if e.result is not None and e.checkpoint_id and digest in (None, e.result.tasks_digest)
    ]
    return max(known, key=lambda one: one[0], default=(0.0, None))[1]


def best_known(
    evaluations: Sequence[EvaluationJob], checkpoint_id: str | None, digest: str | None = None
) -> EvaluationJob | None:
    """The newest evaluation of a checkpoint that has figures, on the same tasks where there is one.

    Args:
        evaluations: Oldest first.
        checkpoint_id: None for what the model started from.
        digest: `Evaluation.tasks_digest` that it is to be compared with.
    """
    own = [e for e in evaluations if e.checkpoint_id == checkpoint_id and e.result is not None]
    same = [e for e in own if digest and e.result and e.result.tasks_digest == digest]
    return next(reversed(same or own), None)
