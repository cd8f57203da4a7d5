"""Which of a few candidates to ship: the order, the verdict, and the rounds that spend a budget."""

from dataclasses import replace
from math import ceil
from statistics import NormalDist, fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.evaluation import Scores, difference, interval, student_t
from hud_tui.rl.ship import (
    COLUMNS,
    MOST_SAMPLES,
    Candidate,
    Ranking,
    comparable,
    halving,
    rounds_text,
    samples_to_decide,
    short_names,
    survivors,
    usual_candidates,
)
from hud_tui.rl.text import spaced
from hud_tui.wire import Evaluation, Group
from tests.bench.bench_ship import Simulated, halved, told_apart
from tests.unit.trees import chain

TASKS = 24


def scores(solved: int, samples: int = 8, tasks: int = TASKS) -> Scores:
    """Rewards of 0 and 1: each task is solved in so many of its samples."""
    rewards = [1.0] * solved + [0.0] * (samples - solved)
    return Scores.of([Group(task_slug=f"{n:02}", rewards=rewards) for n in range(tasks)])


def ranking(*candidates: tuple[str, Scores | None], reference: int = 0) -> Ranking:
    return Ranking(tuple(Candidate(name, each) for name, each in candidates), reference)


def evaluation(id_: str, seed: int = 0, digest: str = "d", **fields: object) -> Evaluation:
    given = {"mean_reward": 0.5, "num_tasks": 10, "num_traces": 40, "samples": 4, "seed": seed}
    return Evaluation.model_validate({"id": id_, "tasks_digest": digest, **given, **fields})


def test_one_that_is_better_than_each_other_is_decided() -> None:
    three = ranking(("base", scores(2)), ("A", scores(4)), ("B", scores(7)))
    assert [three.candidates[position].name for position in three.order] == ["B", "A", "base"]
    assert three.is_decided
    assert three.more_rollouts == 0
    best, worse = three.sentences()
    assert best.startswith("B is the best of 3: +.625 [")
    assert best.endswith("] over base")
    assert worse == "A and base are worse"
    assert [s.verdict for s in three.standings] == ["best", "worse", "worse"]
    assert [s.gain for s in three.standings][2] == "reference"
    assert three.standings[0].moved == f"{TASKS} ↑ 0 ↓"
    assert three.standings[0].reward == three.standings[0].solved  # rewards of 0 and 1
    assert three.standings[0].solved_of_several == "@8 1 [.858, 1]"


@pytest.mark.parametrize("reference", [2, 3])
def test_the_best_is_told_over_the_next_best_where_the_reference_tells_nothing(
    reference: int,
) -> None:
    candidates = ("base", scores(2)), ("A", scores(4)), ("B", scores(7)), ("C", None)
    best = ranking(*candidates, reference=reference).sentences()[0]
    assert best.startswith("B is the best of 3: +.375 [")
    assert best.endswith("] over A")


def test_two_alike_are_named_with_what_would_decide() -> None:
    simulated = Simulated([0.0, 0.0, -3.0], seed=1, own=0.0)
    three = simulated.ranking(8)
    names, worse, more = three.sentences()
    assert names in (f"{a} and {b}: no difference beyond chance" for a, b in ("01", "10"))
    assert worse == "2 is worse"
    assert not three.is_decided
    assert three.more_rollouts
    assert more == (
        f"About {spaced(three.more_rollouts)} more rollouts would show a difference of .050"
    )
    again = simulated.ranking(8 + three.more_rollouts // 96)
    assert again.more_rollouts is not None
    assert again.more_rollouts < three.more_rollouts / 2


def test_tasks_that_differ_among_themselves_are_too_few_however_often_they_are_sampled() -> None:
    groups = [Group(task_slug=f"{n:02}", rewards=[float(n % 2)] * 64) for n in range(12)]
    turned = [Group(task_slug=f"{n:02}", rewards=[float(not n % 2)] * 64) for n in range(12)]
    pair = ranking(("A", Scores.of(groups)), ("B", Scores.of(turned)))
    assert pair.more_rollouts is None
    assert pair.sentences()[-1] == (
        "12 tasks are too few to show a difference of .050, however often they are sampled"
    )


def test_a_lucky_one_of_few_rollouts_does_not_lead() -> None:
    lucky = Scores.of([Group(task_slug=f"{n:02}", rewards=[float(n < 15)]) for n in range(TASKS)])
    two = ranking(("lucky", lucky), ("sampled", scores(19, 32)), ("other", scores(18, 32)))
    assert fmean(task.mean for task in lucky.tasks) > 19 / 32
    assert two.candidates[two.order[0]].name == "sampled"


def test_those_without_rollouts_are_named_and_come_last() -> None:
    three = ranking(("base", None), ("A", scores(4)), ("B", scores(7)))
    assert [three.candidates[position].name for position in three.order] == ["B", "A", "base"]
    assert three.sentences()[-1] == "No rollouts of base on these tasks"
    assert not three.is_decided
    assert [s.verdict for s in three.standings] == ["may be best", "worse", "not sampled"]
    alone = ranking(("base", None), ("A", scores(4)))
    assert alone.leader is None
    assert alone.sentences() == ["No rollouts of base on these tasks"]
    assert [s.verdict for s in alone.standings] == ["–", "not sampled"]
    assert ranking(("base", None), ("A", None)).sentences() == [
        "No rollouts of base and A to compare"
    ]


def test_an_interval_below_zero_and_one_of_few_digits_fit_their_columns() -> None:
    two = ranking(("base", scores(7)), ("A", scores(1)))
    [worst] = [standing for standing in two.standings if standing.position]
    assert worst.gain.startswith("-.750 [-.")
    small = replace(worst, candidate=Candidate("A", scores(1, 512, 400)))
    assert small.reward.startswith(".002 ")
    for column in COLUMNS[1:]:
        assert len(column.text(worst)) <= column.width, column.title
        assert len(column.text(small)) <= column.width, column.title


def test_intervals_of_several_comparisons_are_wider() -> None:
    values = [0.1 * (n % 7) - 0.2 for n in range(30)]
    single, ten = interval(values, -1, 1), interval(values, -1, 1, comparisons=10)
    assert single is not None
    assert ten is not None
    assert ten[0] < single[0] < single[1] < ten[1]
    assert student_t(29, 10) == pytest.approx(3.038, abs=0.01)  # the .9975 quantile
    five = Simulated([0.0] * 5, seed=3, own=0.4).ranking(4)
    assert {delta.comparisons for delta in five.from_leader.values()} == {10}


def test_five_differing_tasks_are_not_enough_for_one_of_many() -> None:
    before = scores(0, 4)
    groups = [
        Group(task_slug=f"{n:02}", rewards=[float(n < 8)] * 4)  # eight of the tasks differ
        for n in range(TASKS)
    ]
    for comparisons, is_shown in ((1, True), (28, False)):
        delta = difference(before, Scores.of(groups), comparisons=comparisons)
        assert delta is not None
        assert delta.reward.low is not None
        assert (delta.reward.low > 0) is is_shown


def test_equals_are_rarely_told_apart_and_halving_loses_less() -> None:
    assert told_apart(5, 2, 60) <= 0.07
    losses = [halved([0.1 * number for number in range(8)], seed) for seed in range(30)]
    lost, equally = (fmean(points) for points in zip(*losses, strict=True))
    assert lost < equally


def test_what_would_decide_falls_with_the_noise() -> None:
    noisy = difference(scores(3, 4), scores(2, 4))
    calm = difference(scores(12, 16), scores(8, 16))
    assert noisy is not None
    assert calm is not None
    wanted = samples_to_decide(noisy)
    assert wanted is not None
    assert samples_to_decide(calm) == pytest.approx(wanted, rel=0.3)
    # both have the same difference on each task: all noise is within tasks, of 4 × 3/16 / 3 = 1/4
    # and 1/3, and the difference of .25 is to be seen with 95 % and a power of .8
    reach = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    assert wanted == ceil((1 / 4 + 1 / 3) * (reach / 0.25) ** 2 / TASKS)
    one_task = difference(scores(1, tasks=1), scores(2, tasks=1))
    assert one_task is not None
    assert samples_to_decide(one_task) is None


# The rounds.


@given(st.integers(2, 8), st.integers(1, 60), st.integers(0, 200_000))
def test_rounds_spend_no_more_than_the_budget(candidates: int, tasks: int, budget: int) -> None:
    if budget < candidates * tasks:
        with pytest.raises(ValueError, match=f"at least {candidates * tasks} rollouts"):
            halving(candidates, tasks, budget)
        return
    rounds = halving(candidates, tasks, budget)
    assert sum(each.candidates * each.samples * tasks for each in rounds) <= budget
    assert rounds[0].candidates == candidates
    assert all(1 <= each.samples <= MOST_SAMPLES for each in rounds)
    sizes = [each.candidates for each in rounds]
    assert sizes == sorted(sizes, reverse=True)
    assert min(sizes) >= 2


def test_each_round_gets_about_the_same() -> None:
    rounds = halving(8, 48, 3600)
    assert rounds_text(rounds) == "8 candidates × 3 rollouts of each task, then 4 × 6, then 2 × 13"


def test_the_better_half_goes_on() -> None:
    means = {"a": scores(1), "b": scores(5), "c": scores(3), "d": scores(7)}
    assert survivors(means, 2) == ["d", "b"]


# Which evaluations compare, and who is a candidate.


def test_evaluations_compare_on_the_same_tasks_and_each_seed_counts_once() -> None:
    first = [evaluation("1"), evaluation("2", seed=1), evaluation("3", digest="other")]
    second = [evaluation("4"), evaluation("5"), evaluation("6", temperature=0.5)]
    assert comparable([first, second, []]) == [["1", "2"], ["5"], []]
    without = evaluation("7").model_copy(update={"id": None})
    assert comparable([[without], []]) == [[], []]


def test_arms_of_one_sweep_differ_where_a_narrow_column_begins() -> None:
    arms = [f"mixed-rl-sweep-lr1e-{n}:step-000060" for n in (3, 4)]
    assert short_names([*arms, "base"]) == ["…lr1e-3:step-000060", "…lr1e-4:step-000060", "base"]
    alike = ["head", "base"], ["a-b:step-1", "base"], ["a:step-1", "b:step-1"]
    assert [short_names(names) for names in alike] == [list(names) for names in alike]


def test_the_usual_candidates_are_head_best_newest_and_base() -> None:
    assert usual_candidates(Tree.of([])) == [ROOT]
    of_second = [evaluation("1", split="heldout", mean_reward=0.9)]
    nodes = chain({"is_active": True}, {}, {"evaluations": of_second}, {}, head=False)
    assert usual_candidates(Tree.of(nodes)) == [0, 2, 3, ROOT]
    assert usual_candidates(Tree.of(chain({}, {}))) == [1, ROOT]
