"""Which of a few candidates to serve: compared on the same tasks, beyond what chance does among so
many.

All pairs of candidates are compared at once: their intervals hold together (Bonferroni). Rollouts
are spent by successive halving: a round samples those that are left equally often, and the better
half goes on.

Sources: Karnin, Koren and Somekh 2013, "Almost Optimal Exploration in Multi-Armed Bandits"
(successive halving); Hsu 1981, "Simultaneous confidence intervals for all distances from the best"
(what is worse than the best of those that were compared).
`tests/bench/bench_ship.py` measures how often equals are told apart, and what is lost.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from math import ceil, comb, fsum, inf
from statistics import NormalDist, fmean, variance

from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.evaluation import POWER, Difference, Scores, difference, effect_of, normal_quantile
from hud_tui.rl.metrics import estimate_text, gain_text, short
from hud_tui.rl.own_numbers import Conditions, conditions, independent
from hud_tui.rl.smoothing import VARIANCE
from hud_tui.rl.text import counted, spaced
from hud_tui.wire import Evaluation

FEWEST, MOST = 2, 8
"""Number of candidates."""
MOST_SAMPLES = 256
"""Most rollouts per task; an evaluation takes no more."""


@dataclass(frozen=True)
class Candidate:
    """Weights that could be served."""

    name: str
    scores: Scores | None
    """Its rewards on the tasks of all; None if it has none."""

    @property
    def is_sampled(self) -> bool:
        return self.scores is not None and bool(self.scores.tasks)


@dataclass(frozen=True)
class Ranking:
    """Candidates compared with each other; `reference` is the position of the one that each is
    shown beside."""

    candidates: tuple[Candidate, ...]
    reference: int

    @cached_property
    def order(self) -> list[int]:
        """Positions, the most likely best first; those without rollouts at the end.

        Means of few rollouts are shrunk more towards the mean of all: else the one that was sampled
        least and luckily would lead.
        """
        sampled = {n: c.scores for n, c in enumerate(self.candidates) if c.scores and c.is_sampled}
        worth = _shrunk(sampled)
        ranked = sorted(worth, key=lambda position: (-worth[position], -sampled[position].rollouts))
        return ranked + [n for n in range(len(self.candidates)) if n not in worth]

    @property
    def leader(self) -> int | None:
        """Position of the most likely best; None without rollouts of two."""
        sampled = [p for p in self.order if self.candidates[p].is_sampled]
        return sampled[0] if len(sampled) >= FEWEST else None

    @cached_property
    def from_reference(self) -> dict[int, Difference]:
        """How each other differs from the reference, by position."""
        return self._from(self.reference)

    @cached_property
    def from_leader(self) -> dict[int, Difference]:
        """How each other differs from the leader, by position."""
        return {} if self.leader is None else self._from(self.leader)

    @cached_property
    def worse(self) -> list[int]:
        """Positions of those that earn less than the leader beyond chance, best first."""
        return [p for p in self.order if p in self.from_leader and self.from_leader[p].is_worse]

    @cached_property
    def contenders(self) -> list[int]:
        """Positions of those that may be the best, the leader first; one of them, if decided."""
        compared = [p for p in self.order if p == self.leader or p in self.from_leader]
        return [position for position in compared if position not in self.worse]

    @property
    def is_decided(self) -> bool:
        """Whether one of them is better than each other beyond chance."""
        return len(self.worse) == len(self.candidates) - 1

    @cached_property
    def more_rollouts(self) -> int | None:
        """Number of further rollouts of the contenders that would decide; None if no number on
        these tasks would."""
        pairs = [self.from_leader[position] for position in self.contenders[1:]]
        wanted = [samples_to_decide(pair) for pair in pairs]
        enough = [samples for samples in wanted if samples is not None]
        if not pairs:
            return 0
        if len(enough) < len(wanted):
            return None
        lacking = [
            max(0, samples - len(change.after.rewards))
            for samples, pair in zip(enough, pairs, strict=True)
            for change in pair.changes
        ]
        most = max(enough)
        of_leader = [most - len(change.before.rewards) for change in pairs[0].changes]
        return sum(lacking) + sum(samples for samples in of_leader if samples > 0)

    @property
    def standings(self) -> list["Standing"]:
        """What a table of them shows, the most likely best first."""
        return [
            Standing(
                self.candidates[position],
                position,
                self.from_reference.get(position),
                position == self.reference,
                self._verdict(position),
            )
            for position in self.order
        ]

    def _verdict(self, position: int) -> str:
        if not self.candidates[position].is_sampled:
            return "not sampled"
        if position in self.worse:
            return "worse"
        if position not in self.contenders:
            return "–"
        return "best" if self.is_decided else "may be best"

    def sentences(self) -> list[str]:
        """The verdict, and what it would take to know."""
        unsampled = [c.name for c in self.candidates if not c.is_sampled]
        texts = []
        if unsampled:
            rest = " on these tasks" if len(unsampled) < len(self.candidates) else " to compare"
            texts.append(f"No rollouts of {_listed(unsampled, 'and')}{rest}")
        if self.leader is None:
            return texts
        names, worse = self._names(self.contenders), self._names(self.worse)
        if worse:
            texts.insert(0, f"{_listed(worse, 'and')} {'is' if len(worse) == 1 else 'are'} worse")
        if len(names) > 1:
            undecided = f"{_listed(names, 'and')}: no difference beyond chance"
            return [undecided, *texts, self._what_it_takes()]
        other = self.reference if self.reference in self.worse else self.worse[0]
        gain = gain_text(self._from(other)[self.contenders[0]].reward)
        over = self.candidates[other].name
        return [f"{names[0]} is the best of {len(worse) + 1}: {gain} over {over}", *texts]

    def _names(self, positions: Sequence[int]) -> list[str]:
        return [self.candidates[position].name for position in positions]

    def _what_it_takes(self) -> str:
        pairs = [self.from_leader[position] for position in self.contenders[1:]]
        of = f"difference of {short(min(effect_of(pair.reward) for pair in pairs))}"
        more = self.more_rollouts
        if more is None:
            tasks = counted(len(pairs[0].changes), "task")
            return f"{tasks} are too few to show a {of}, however often they are sampled"
        if not more:
            return f"A {of} would have shown"
        return f"About {counted(more, 'more rollout')} would show a {of}"

    def _from(self, position: int) -> dict[int, Difference]:
        before, pairs = self.candidates[position].scores, comb(len(self.candidates), 2)
        differences = {}
        for other, candidate in enumerate(self.candidates):
            if other == position or before is None or candidate.scores is None:
                continue
            delta = difference(before, candidate.scores, comparisons=pairs)
            if delta is not None:
                differences[other] = delta
        return differences


# What tables in the app and on the command line show of a candidate.


@dataclass(frozen=True)
class Standing:
    """A candidate among the others."""

    candidate: Candidate
    position: int
    over: Difference | None
    """How it differs from the reference; None of the reference itself, and without rollouts."""
    is_reference: bool
    verdict: str
    """Beside the others, e.g. ``may be best``."""

    @property
    def scores(self) -> Scores | None:
        return self.candidate.scores if self.candidate.is_sampled else None

    @property
    def reward(self) -> str:
        return "–" if self.scores is None else estimate_text(self.scores.mean)

    @property
    def solved(self) -> str:
        return "–" if self.scores is None else estimate_text(self.scores.pass_at[1])

    @property
    def solved_of_several(self) -> str:
        """pass@k of the most samples, e.g. ``@4 .91 [.83, .96]``."""
        if self.scores is None:
            return "–"
        most = max(self.scores.pass_at)
        return "" if most == 1 else f"@{most} {estimate_text(self.scores.pass_at[most])}"

    @property
    def gain(self) -> str:
        if self.is_reference:
            return "reference"
        return "–" if self.over is None else gain_text(self.over.reward)

    @property
    def moved(self) -> str:
        """Number of tasks that are better and worse than the reference's, beyond chance."""
        if self.over is None:
            return ""
        return f"{len(self.over.better)} ↑ {len(self.over.worse)} ↓"

    @property
    def rollouts(self) -> str:
        return "0" if self.scores is None else spaced(self.scores.rollouts)


@dataclass(frozen=True)
class Column:
    title: str
    width: int
    """Cells; 0 takes what is left."""
    text: Callable[[Standing], str]
    right: bool = False
    rank: int = 0
    """What does not fit is left out by it, the highest first."""


COLUMNS = (
    Column("candidate", 0, lambda standing: standing.candidate.name),
    Column("mean reward", 19, lambda standing: standing.reward, rank=1),
    Column("pass@1", 19, lambda standing: standing.solved, rank=4),
    Column("pass@k", 24, lambda standing: standing.solved_of_several, rank=5),
    Column("over reference", 20, lambda standing: standing.gain),
    Column("tasks", 9, lambda standing: standing.moved, True, rank=2),
    Column("rollouts", 8, lambda standing: standing.rollouts, True, rank=3),
    Column("", 11, lambda standing: standing.verdict),
)


_HYPHEN = re.compile(r"(?<![0-9]e)-")
"""Between the words of a name; not that of a number like 1e-3."""


def short_names(names: Sequence[str]) -> list[str]:
    """Names as a narrow column has them: without the words that those with a model's all begin
    with, e.g. ``…lr1e-3:step-000060``."""
    of_models = [_HYPHEN.split(name) for name in names if ":" in name]
    columns = zip(*of_models, strict=False)
    alike = takewhile(lambda words: len(set(words)) == 1 and ":" not in words[0], columns)
    length = len("-".join(words[0] for words in alike))
    if len(of_models) < FEWEST or not length:
        return list(names)
    return [f"…{name[length + 1 :]}" if ":" in name else name for name in names]


def usual_candidates(tree: Tree) -> list[int]:
    """Positions that are compared unless others are named: the head, the most likely best, the
    newest, and the base, each once."""
    best = None if tree.choice is None else tree.choice.position
    newest = len(tree) - 1 if len(tree) else None
    wanted = (tree.head, best, newest, ROOT)
    return list(dict.fromkeys(position for position in wanted if position is not None))


# Which evaluations compare, and what it takes to decide.


def comparable(results: Sequence[Sequence[Evaluation]]) -> list[list[str]]:
    """The ids of each candidate's evaluations that compare: on the same tasks under the same
    conditions, those that most candidates have, then those with the most rollouts.

    Args:
        results: Of each candidate, oldest first; those without an id have no rewards by task.
    """
    by_conditions: dict[Conditions, dict[int, list[Evaluation]]] = {}
    for position, evaluations in enumerate(results):
        for evaluation in evaluations:
            if evaluation.id is not None and evaluation.tasks_digest is not None:
                alike = by_conditions.setdefault(conditions(evaluation), {})
                alike.setdefault(position, []).append(evaluation)

    def rollouts(alike: Mapping[int, Sequence[Evaluation]]) -> tuple[int, int]:
        return len(alike), sum(e.num_traces for own in alike.values() for e in own)

    most = max(by_conditions.values(), key=rollouts, default={})
    return [
        [evaluation.id or "" for evaluation in independent(most.get(position, ()))]
        for position in range(len(results))
    ]


def _mean(scores: Scores | None) -> float:
    return scores.mean_reward if scores and scores.tasks else -inf


def _shrunk(sampled: Mapping[int, Scores]) -> dict[int, float]:
    """What the mean of each is worth beside the others: shrunk towards the mean of all by the share
    of its variance that is due to few rollouts; by position."""
    means = {position: _mean(scores) for position, scores in sampled.items()}
    noise = {
        position: fmean(_variance(task.rewards) / len(task.rewards) for task in scores.tasks)
        / len(scores.tasks)
        for position, scores in sampled.items()
    }
    if len(means) < FEWEST:
        return means
    middle = fmean(means.values())
    apart = max(0.0, variance(means.values()) - fmean(noise.values()))
    return {
        position: middle + (apart / (apart + noise[position]) if apart else 0.0) * (mean - middle)
        for position, mean in means.items()
    }


def _listed(names: Sequence[str], word: str) -> str:
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


def samples_to_decide(pair: Difference) -> int | None:
    """Rollouts per task of each of two that would show the difference `effect_of`, with the
    probability POWER; None if no number on these tasks would.

    The difference of a task has a variance of its own, which further rollouts do not reduce, beside
    that of the rollouts within the tasks, which falls with their number.
    """
    deltas = [change.delta for change in pair.changes]
    count, mean = len(deltas), fmean(deltas)
    if count < FEWEST:
        return None
    within = [
        (_variance(change.before.rewards), _variance(change.after.rewards))
        for change in pair.changes
    ]
    noise = fmean(
        before / len(change.before.rewards) + after / len(change.after.rewards)
        for change, (before, after) in zip(pair.changes, within, strict=True)
    )
    of_tasks = max(0.0, fsum((delta - mean) ** 2 for delta in deltas) / (count - 1) - noise)
    reach = normal_quantile(pair.comparisons) + NormalDist().inv_cdf(POWER)
    left = count * (effect_of(pair.reward) / reach) ** 2 - of_tasks
    if left <= 0:
        return None
    samples = ceil(fmean(map(sum, within)) / left)
    return samples if samples <= MOST_SAMPLES else None


def _variance(rewards: Sequence[float]) -> float:
    """Variance of a rollout's reward on one task; of a single rollout it is what it has on tasks of
    usual hardness."""
    return variance(rewards) if len(rewards) > 1 else VARIANCE / 4


# Successive halving.


@dataclass(frozen=True)
class Round:
    candidates: int
    """How many are left."""
    samples: int
    """Rollouts per task of each."""


def halving(candidates: int, tasks: int, budget: int) -> list[Round]:
    """The rounds that spend at most `budget` rollouts, about equally many in each, until two are
    left that are compared.

    Raises:
        ValueError: The budget does not allow one rollout per task and candidate.
    """
    if budget < candidates * tasks or not tasks:
        least = f"{counted(candidates, 'candidate')} on {counted(tasks, 'task')}"
        raise ValueError(f"{least}: at least {candidates * tasks} rollouts")
    sizes = [candidates]
    while sizes[-1] > FEWEST:
        sizes.append(ceil(sizes[-1] / 2))
    rounds, left = list[Round](), budget
    for number, size in enumerate(sizes):
        one_each = size * tasks
        share = left // (len(sizes) - number) // one_each
        samples = min(MOST_SAMPLES, max(share, min(1, left // one_each)))
        if samples:
            rounds.append(Round(size, samples))
            left -= samples * one_each
    return rounds


def rounds_text(rounds: Sequence[Round]) -> str:
    """E.g. ``8 candidates × 4 rollouts of each task, then 4 × 8``."""
    first, *others = rounds
    head = f"{first.candidates} candidates × {counted(first.samples, 'rollout')} of each task"
    return ", then ".join([head, *(f"{each.candidates} × {each.samples}" for each in others)])


def survivors(scores: Mapping[str, Scores], count: int) -> list[str]:
    """The names of the `count` with the highest means, best first."""
    return sorted(scores, key=lambda name: -_mean(scores[name]))[:count]
