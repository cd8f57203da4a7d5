"""What an evaluation says: pass@k, intervals that cover, and what two evaluations tell apart."""

from collections.abc import Callable, Mapping, Sequence
from math import comb, exp, inf, lgamma, nan, sqrt
from random import Random
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.errors import HudAmbiguous
from hud_tui.events import CheckpointAdded, EvaluationsRead, TreeRead, WorkChanged
from hud_tui.rl.curves import evaluation_score
from hud_tui.rl.evaluation import (
    RESIDUE,
    Difference,
    Scores,
    best_evaluated,
    best_known,
    difference,
    evaluation_results,
    fewest_tasks,
    find_evaluation,
    interval,
    job_result,
    ks,
    last_requested,
    pair_of,
    pass_at,
    rollout_seconds,
    rollouts_to_decide,
    sample_size,
    seconds_left,
    sentence,
    student_t,
    summarize,
)
from hud_tui.rl.run import Run
from hud_tui.rl.run_columns import evaluation_text
from hud_tui.rl.text import spaced
from hud_tui.wire import Checkpoint, Estimate, Evaluation, Group, Job, WorkState

REWARDS = st.lists(st.sampled_from([0.0, 0.2, 1.0]), min_size=1, max_size=6)
TASKS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), REWARDS, min_size=1, max_size=9)


def as_groups(rewards: Mapping[str, Sequence[float]]) -> list[Group]:
    return [Group(task_slug=slug, rewards=list(found)) for slug, found in rewards.items()]


def scores(**rewards: list[float]) -> Scores:
    return Scores.of(as_groups(rewards))


def compared(before: dict[str, list[float]], after: dict[str, list[float]]) -> Difference:
    found = difference(Scores.of(as_groups(before)), Scores.of(as_groups(after)))
    assert found is not None
    return found


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), st.data())
def test_pass_at_k_is_the_closed_form(counts: tuple[int, int], data: st.DataObject) -> None:
    n, c = counts
    k = data.draw(st.integers(1, n))
    assert pass_at(n, c, k) == pytest.approx(1 - comb(n - c, k) / comb(n, k), abs=1e-12)


def test_pass_at_k_of_the_paper_s_sizes_is_stable_where_factorials_are_not() -> None:
    """HumanEval was sampled 200 times: C(200, 100) has 59 digits, a product of floats none."""
    assert pass_at(200, 1, 1) == pytest.approx(1 / 200)
    assert pass_at(200, 1, 100) == pytest.approx(0.5)
    assert pass_at(200, 57, 1) == pytest.approx(0.285)
    assert pass_at(100_000, 1, 50_000) == pytest.approx(0.5)
    assert pass_at(4, 2, 2) == pytest.approx(5 / 6)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5), (0, 0, 1)])
def test_what_is_no_pass_at_k_is_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@"):
        pass_at(n, c, k)


def test_an_evaluation_in_figures() -> None:
    found = summarize(as_groups({"a": [1.0, 0.0, 0.0, 0.2], "b": [1.0, 1.0, 1.0, 1.0]}))
    assert (found.num_tasks, found.num_traces, found.samples) == (2, 8, 4)
    assert found.mean_reward == pytest.approx(0.65)
    assert {k: e.value for k, e in found.pass_at.items()} == pytest.approx(
        {1: 5 / 8, 2: 0.75, 4: 1}
    )
    assert [ks(n) for n in (0, 1, 4, 6)] == [[], [1], [1, 2, 4], [1, 2, 4, 6]]
    assert found.mean is not None
    assert found.mean.low is not None
    assert found.mean.high is not None
    assert found.mean.low < found.mean_reward < found.mean.high
    one = summarize(as_groups({"a": [1.0, 0.0]}))
    assert one.mean == Estimate(value=0.5), "one task says nothing of others"
    assert one.pass_at[2].model_dump() == {"value": 1.0, "low": None, "high": None}


def test_solved_is_said_by_a_reward_and_a_task_counts_as_much_as_any_other() -> None:
    groups = as_groups({"a": [0.9999999, 1.0 - RESIDUE, 0.8, 0.5]})
    assert Scores.of(groups).tasks[0].solved == 2
    assert Scores.of(groups, solved_at=0.8).tasks[0].solved == 3
    found = scores(a=[1.0] * 6, b=[0.0, nan, inf], c=[nan])
    assert [task.slug for task in found.tasks] == ["a", "b"]
    assert (found.mean.value, found.samples, found.rollouts) == (0.5, 1, 7)
    with pytest.raises(ValueError, match="at least one"):
        summarize([Group(task_slug="c", rewards=[nan])])


@pytest.mark.parametrize("tasks", [2, 20, 48])
def test_tasks_that_are_all_alike_leave_room_for_those_that_nobody_asked(tasks: int) -> None:
    """Clopper and Pearson 1934: with n of n solved, the lower end is .025^(1/n)."""
    found = scores(**{f"t{n}": [1.0] * 4 for n in range(tasks)}).pass_at[1]
    assert (found.low, found.high) == (pytest.approx(0.025 ** (1 / tasks)), 1.0)
    none = scores(**{f"t{n}": [0.0] * 4 for n in range(tasks)})
    assert (none.mean.low, none.mean.high) == (0.0, pytest.approx(1 - 0.025 ** (1 / tasks)))


@given(TASKS)
def test_intervals_hold_the_figure_and_stay_in_bounds_whatever_the_rewards(
    tasks: dict[str, list[float]],
) -> None:
    found = summarize(as_groups(tasks))
    for one in (found.mean, *found.pass_at.values()):
        assert one is not None
        if len(tasks) == 1:
            assert one.low is one.high is None
        else:
            assert one.low is not None
            assert one.high is not None
            assert -1e-9 <= one.low <= one.value + 1e-9
            assert one.value - 1e-9 <= one.high <= 1 + 1e-9
    passes = [found.pass_at[k].value for k in sorted(found.pass_at)]
    assert passes == sorted(passes)


@given(TASKS, st.randoms())
def test_the_order_of_tasks_changes_nothing(tasks: dict[str, list[float]], random: Random) -> None:
    groups = as_groups(tasks)
    again = list(groups)
    random.shuffle(again)
    assert summarize(groups) == summarize(again)


QUANTILES = {3: 3.182446305, 4: 2.776445105, 8: 2.306004135, 19: 2.093024054, 30: 2.042272456}


@pytest.mark.parametrize("freedom", QUANTILES)
def test_student_s_t_lacks_only_terms_beyond_the_fourth(freedom: int) -> None:
    assert -0.37 < (student_t(freedom) / QUANTILES[freedom] - 1) * freedom**5 < -0.29


@pytest.mark.parametrize(("tasks", "power"), [(8, 0.7), (48, 6.0)])
def test_an_interval_is_student_s_and_leans_with_the_skewness(tasks: int, power: float) -> None:
    """Hall 1988, "Theoretical comparison of bootstrap confidence intervals", section 3: BCa's ends
    to the second order."""
    values = [(task / (tasks - 1)) ** power for task in range(tasks)]
    mean, t = fmean(values), student_t(tasks - 1)
    deviation = sqrt(fmean((value - mean) ** 2 for value in values))
    skewness = fmean((value - mean) ** 3 for value in values) / deviation**3
    lean = skewness * (2 * t * t + 1) / (6 * sqrt(tasks))
    told = [mean + deviation / sqrt(tasks) * (end + lean) for end in (-t, t)]
    assert interval(values, 0.0, 1.0) == pytest.approx(told, abs=0.01 * (told[1] - told[0]))


Statistic = Callable[[int], float]


def coverage(
    tasks: int, beta: tuple[float, float], statistic: Statistic, truth: float, times: int = 500
) -> float:
    """How often an interval of tasks × 4 covers what is true of all tasks.

    Args:
        tasks: How many are asked.
        beta: What the tasks' chances of being solved are distributed as.
        statistic: Of a task that was solved so often.
        truth: Its mean over all tasks.
    """
    random, covered = Random(20261122), 0
    for _ in range(times):
        chances = [random.betavariate(*beta) for _ in range(tasks)]
        solved = [sum(random.random() < chance for _ in range(4)) for chance in chances]
        ends = interval([statistic(count) for count in solved], 0.0, 1.0, resamples=400)
        assert ends is not None
        covered += ends[0] <= truth + 1e-9 and ends[1] >= truth - 1e-9
    return covered / times


def test_95_percent_cover_93_to_97() -> None:
    """Of mean rewards, and of pass@4."""
    for tasks, beta in ((20, (1.0, 1.0)), (48, (0.3, 2.0))):
        truth = beta[0] / sum(beta)
        assert 0.93 <= coverage(tasks, beta, lambda solved: solved / 4, truth) <= 0.97
    a = b = 0.4
    unsolved = exp(lgamma(b + 4) + lgamma(a + b) - lgamma(b) - lgamma(a + b + 4))
    found = coverage(40, (a, b), lambda solved: pass_at(4, solved, 4), 1 - unsolved)
    assert 0.93 <= found <= 0.97


def test_a_paired_difference_covers_too() -> None:
    """Each task is harder or easier for both alike; the second one solves 8 points more."""
    random, covered, times = Random(7), 0, 1000
    for _ in range(times):
        deltas = []
        for _ in range(24):
            chance = 0.9 * random.random()
            pairs = (chance, chance + 0.08)
            one, other = (sum(random.random() < p for _ in range(4)) / 4 for p in pairs)
            deltas.append(other - one)
        low, high = interval(deltas, -1.0, 1.0, resamples=400) or (1.0, -1.0)
        covered += low <= 0.08 <= high
    assert 0.93 <= covered / times <= 0.97


BEFORE = {f"t{n:02}": [1.0] * (n % 4) + [0.0] * (4 - n % 4) for n in range(48)}
AFTER = {slug: [1.0, *rewards[:3]] if int(slug[1:]) % 3 else rewards for slug, rewards in
         BEFORE.items()}  # fmt: skip


def test_a_difference_says_how_large_it_is_or_what_would_show_it() -> None:
    found = compared(BEFORE, AFTER)
    assert found.solved.value == pytest.approx(1 / 6)
    [said] = found.sentences("A", "B")
    assert said == "B − A: pass@1 +.167 [.130, .198] on 48 tasks × 4"
    assert (found.better, found.worse, found.is_worse) == ([], [], False)
    assert [change.delta > 0 for change in found.alike] == [True] * 32 + [False] * 16
    back = compared(AFTER, BEFORE)
    assert back.is_worse
    assert back.sentences("A", "B")[0].startswith("B − A: pass@1 -.167 [-.198, -.130]")

    noisy = {slug: list(reversed(BEFORE[f"t{47 - int(slug[1:]):02}"])) for slug in BEFORE}
    found = compared(BEFORE, noisy)
    assert found.solved.value == pytest.approx(0.0)
    assert not found.is_worse
    [said] = found.sentences("A", "B")
    assert said.startswith("B − A: no difference in pass@1 is visible with 48 tasks × 4: about ")
    assert said.endswith(" more rollouts on more tasks would show one of .050")


@pytest.mark.parametrize(("differing", "claimed"), [(3, False), (5, False), (6, True)])
def test_a_few_tasks_that_differ_prove_nothing(differing: int, claimed: bool) -> None:
    """Three of three that fell are one chance in four: a gate must not fail for them."""
    before = {f"t{n:02}": [1.0, 1.0, 0.0, 0.0] for n in range(48)}
    after = before | {f"t{n:02}": [1.0, 0.0, 0.0, 0.0] for n in range(differing)}
    found = compared(before, after)
    assert found.is_worse is claimed
    [said] = found.sentences("A", "B")
    assert ("no difference" in said) is not claimed
    if not claimed:  # the interval is narrow, but a difference of five in a hundred may be in few
        assert f"48 tasks × 4, of which {differing} differ: about 880 more rollouts" in said


def test_rewards_between_0_and_1_have_a_sentence_of_their_own_where_there_is_one_to_say() -> None:
    graded = {slug: [reward * 0.5 for reward in rewards] for slug, rewards in AFTER.items()}
    solved, scored = compared(BEFORE, graded).sentences("A", "B")
    assert solved.startswith("B − A: pass@1 -.375 [")
    assert scored.startswith("B − A: mean reward -.104 [")
    halved = {slug: [0.5 * reward for reward in rewards] for slug, rewards in BEFORE.items()}
    [neither] = compared(halved, halved | {"t00": [0.25, 0.0, 0.0, 0.0]}).sentences("A", "B")
    assert neither.startswith(
        "B − A: no difference in pass@1 or mean reward is visible with 48 tasks × 4, "
        "of which 1 differs: about "
    )


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ([(0.5, 1.0)] * 4 + [(0.5, 0.0)] * 3, 270),  # solved: 0 to .17, reward: -.03 to .06
        ([(1.0, 0.9)] * 2 + [(0.0, 0.8)] * 15 + [(0.8, 0.0)] * 13, 2100),  # solved ends at 0
    ],
)
def test_where_neither_differs_the_wider_interval_says_what_would_show_it(
    changes: list[tuple[float, float]], more: int
) -> None:
    pairs = [*changes, *[(0.5, 0.5)] * (60 - len(changes))]
    before, after = ({f"t{n}": [pair[at]] for n, pair in enumerate(pairs)} for at in (0, 1))
    [said] = compared(before, after).sentences("A", "B")
    assert f"mean reward is visible with 60 tasks × 1: about {spaced(more)} more" in said


def test_rewards_of_another_scale_have_its_bounds() -> None:
    """All tasks differ by 10: those that nobody asked may differ by as much either way."""
    before, after = ({f"t{n}": [reward] for n in range(8)} for reward in (5.0, 15.0))
    found, share = compared(before, after).reward, 1 - 0.025 ** (1 / 8)
    assert (found.low, found.high) == (pytest.approx(10 - 20 * share), 10.0)


def test_only_shared_tasks_are_compared_and_none_is_no_comparison() -> None:
    one, other = scores(a=[1.0], b=[0.0], c=[0.0]), scores(b=[1.0, 1.0], d=[0.0, 0.0])
    found = difference(one, other)
    assert found is not None
    assert (found.missing, found.size) == ((2, 1), "1 task × 1 and 2")
    assert found.sentences("A", "B") == [
        "B − A: pass@1 +1 on 1 task × 1 and 2; one task says nothing of others"
    ]
    assert difference(scores(a=[1.0]), scores(b=[1.0])) is None


@given(TASKS, TASKS)
def test_a_difference_is_that_of_the_means_over_the_shared_tasks(
    before: dict[str, list[float]], after: dict[str, list[float]]
) -> None:
    found = difference(Scores.of(as_groups(before)), Scores.of(as_groups(after)))
    shared = before.keys() & after.keys()
    assert (found is None) == (not shared)
    if found is not None:
        gaps = [fmean(after[slug]) - fmean(before[slug]) for slug in shared]
        assert found.reward.value == pytest.approx(fmean(gaps))
        assert len(found.better) + len(found.worse) + len(found.alike) == len(shared)


def test_how_many_more_rollouts_would_decide() -> None:
    """Cohen 1988: the size for a power of .8 is ((1.96 + .8416) / 1.96)² of that for a half."""

    def measured(value: float, half: float) -> Estimate:
        return Estimate(value=value, low=value - half, high=value + half)

    assert rollouts_to_decide(measured(0.0, 0.1), 1000, 500) == 7200
    assert rollouts_to_decide(measured(-0.02, 0.1), 1000, 500) == 7200, "0.05 all the same"
    assert rollouts_to_decide(measured(-0.1, 0.1), 1000, 500) == 1100, "as large as measured"
    assert rollouts_to_decide(measured(0.01, 0.02), 1000, 500) == 0
    assert rollouts_to_decide(measured(0.2, 0.2), 80, 10) == 240, "six of ten may not differ"
    assert rollouts_to_decide(measured(0.0, 0.6), 24, 300) is None
    assert rollouts_to_decide(Estimate(value=0.0), 24, 300) is None


def test_what_would_show_a_difference_is_said_of_it() -> None:
    narrow, wide = (Estimate(value=0.0, low=-end, high=end) for end in (0.02, 0.6))
    said = sentence("pass@1", narrow, "B − A", "900 tasks × 4", [0.25, -0.25] * 450, 7200)
    assert said.endswith("visible with 900 tasks × 4: one of .050 would have shown")
    said = sentence("mean reward", wide, "B − A", "3 tasks × 4", [0.0] * 3, 24)
    assert ", of which none differs: even 100 times as many tasks may not show one of .050" in said
    seen = Estimate(value=0.12, low=-0.03, high=0.27)
    said = sentence("mean reward", seen, "B − A", "36 tasks × 4", [0.12] * 36, 288)
    assert said.endswith(": about 640 more rollouts on more tasks would show one of .120")
    said = sentence("pass@1", Estimate(value=0.01, low=4e-4, high=0.02), "B − A", "9 tasks", [], 9)
    assert said == "B − A: pass@1 +.010 [4e-4, .020] on 9 tasks"


@pytest.mark.parametrize("tasks", [156, 157])
def test_a_difference_that_may_lie_in_few_tasks_needs_enough_of_them(tasks: int) -> None:
    """The chance of six or more of 157 at .05 is .8017, of 156 it is .7968."""
    assert fewest_tasks() == 157
    alike = {f"t{n}": [1.0, 0.0, 0.0, 0.0] for n in range(tasks)}
    [said] = compared(alike, alike).sentences("A", "B")
    assert ("would have shown" in said) is (tasks == 157)


Chances = Callable[[Random], tuple[float, float]]
"""Draws a task: the chances that one checkpoint and the other solve it."""


def sampled(random: Random, tasks: int, chances: Chances) -> Difference:
    """Two evaluations of `tasks` × 4."""
    drawn = [chances(random) for _ in range(tasks)]
    before, after = (
        {
            f"t{n}": [float(random.random() < pair[at]) for _ in range(4)]
            for n, pair in enumerate(drawn)
        }
        for at in (0, 1)
    )
    return compared(before, after)


@pytest.mark.parametrize(("alike", "spread", "power"), [(0.0, True, 0.75), (1.0, False, 0.9)])
def test_so_many_tasks_show_it_four_times_in_five(alike: float, spread: bool, power: float) -> None:
    """What 48 tasks without a difference say, and whether so many show 5 points. Where they lie in
    few tasks, those vary more than the 48 did, and it is seen a bit more seldom.

    Args:
        alike: Share of tasks that the first always solves, or never.
        spread: Whether each unsolved task is solved a bit oftener; else one in ten always is.
    """

    def before(random: Random) -> float:
        if random.random() < alike:
            return float(random.random() < 0.5)
        return random.betavariate(0.6, 0.6)

    def same(random: Random) -> tuple[float, float]:
        chance = before(random)
        return chance, chance

    def more(random: Random) -> tuple[float, float]:
        chance = before(random)
        gain = 0.1 if spread else float(random.random() < 0.1)
        return chance, chance + (1 - chance) * gain

    random, seen = Random(11), []
    for _ in range(30):
        delta = sampled(random, 48, same).solved.model_copy(update={"value": 0.0})
        if wanted := rollouts_to_decide(delta, 2 * 48 * 4, 48):
            found = sampled(random, 48 + round(wanted / 8), more).solved
            seen.append(found.low is not None and found.low > 0)
    assert len(seen) > 25
    assert sum(seen) / len(seen) >= power


def scored(id_: str | None, digest: str = "a", rollouts: int = 144, **more: Any) -> Evaluation:
    return Evaluation(
        id=id_, mean_reward=0.5, num_tasks=36, num_traces=rollouts, tasks_digest=digest, **more
    )


def test_two_checkpoints_are_compared_by_the_evaluations_that_are_most_alike() -> None:
    one, other = scored("1", rollouts=36), scored("2", "b", 999)
    same, larger = scored("3", rollouts=36), scored("4")
    assert pair_of([one, other], [same, larger]) == (one, larger)
    short, long = scored("5", max_tokens=9, rollouts=999), scored("6", max_tokens=99)
    assert pair_of([long], [short, scored("7", max_tokens=99, rollouts=9)])[1].id == "7"  # type: ignore[index]
    assert pair_of([long], [short]) == (long, short)
    assert pair_of([scored(None)], [same]) is None
    assert pair_of([], [same]) is None
    assert pair_of([scored("8", split="train")], [same]) is None


def of_job(id_: str, status: str = "succeeded", done: int = 144, **more: Any) -> WorkState:
    usual = {"model_id": "m", "checkpoint_id": "c", "job_id": id_, "total": 144}
    return WorkState(kind="evaluation", id=id_, status=status, done=done, **{**usual, **more})


def test_what_was_made_from_here_is_said_of_its_checkpoint_whatever_comes_first() -> None:
    node, found = Checkpoint(id="c"), of_job("e", result=scored("e"))
    read, told = TreeRead(checkpoints=(node,)), EvaluationsRead(evaluations=(found,))
    for events in ([read, told], [told, read], [told, read, read], [read, told, told]):
        run = Run()
        for event in events:
            run = run.fold(event)
        assert [evaluation.id for evaluation in run.tree[0].evaluations] == ["e"]
        assert run.tree.choice is not None
        assert run.tree.choice.position == 0
    assert [one.id for one in run.fold(CheckpointAdded(checkpoint=node)).tree[0].evaluations] == [
        "e"
    ]
    known = node.model_copy(update={"evaluations": [scored("e")]})
    assert len(run.fold(CheckpointAdded(checkpoint=known)).tree[0].evaluations) == 1


def test_a_read_that_events_have_overtaken_changes_nothing() -> None:
    run = Run().fold(WorkChanged(work=of_job("e", "cancelled", 64)))
    late = EvaluationsRead(evaluations=(of_job("e", "running", 64), of_job("f", "running", 0)))
    assert run.fold(late).evaluations["e"].status == "cancelled"
    assert run.fold(late).evaluations["f"].status == "running"
    resumed = run.fold(WorkChanged(work=of_job("e", "queued", 64)))
    assert resumed.evaluations["e"].status == "queued"
    over = EvaluationsRead(evaluations=(of_job("e"),))
    assert resumed.fold(over).evaluations["e"].status == "succeeded"


def test_the_pace_is_that_of_the_newest_evaluation_that_says_it() -> None:
    jobs = [of_job("1", seconds=72.0), of_job("2", seconds=14.4), of_job("3", done=0)]
    assert rollout_seconds(jobs) == pytest.approx(0.1)
    assert seconds_left(of_job("4", "running", 44, seconds=4.4)) == pytest.approx(10.0)
    assert seconds_left(of_job("4", "running", 0)) is None
    assert rollout_seconds([]) is None
    assert last_requested([*jobs, of_job("4", job_id="run")]).id == "3"  # type: ignore[union-attr]


def test_the_evaluation_of_a_checkpoint_and_the_best_of_all() -> None:
    def job(id_: str, checkpoint: str | None, mean: float | None, rollouts: int = 144, digest: str
            = "a") -> WorkState:  # fmt: skip
        result = scored(id_, digest, rollouts)
        result = None if mean is None else result.model_copy(update={"mean_reward": mean})
        return of_job(id_, checkpoint_id=checkpoint, result=result, model="arith-rl")

    jobs = [
        job("e1", "lucky", 0.9, 12),
        job("e2", "sure", 0.8),
        job("e3", None, 1.0),
        job("e4", "other", 0.85, digest="b"),
        job("e5", "sure", None),
        job("e6", "sure", 0.6, digest="b"),
    ]

    def id_of(evaluation: WorkState | None) -> str | None:
        return None if evaluation is None else evaluation.id

    best = [id_of(best_evaluated(jobs, digest)) for digest in (None, "a", "b", "c")]
    assert best == ["e4", "e2", "e4", None]
    known = [id_of(best_known(jobs, "sure", digest)) for digest in (None, "a", "b", "c")]
    assert known == ["e6", "e2", "e6", "e6"]
    assert (id_of(best_known(jobs, None)), best_known(jobs, "none")) == ("e3", None)
    node = Checkpoint(id="sure", name="step-3", evaluations=[scored("e2")])
    results = [(one.checkpoint_id, one.evaluation.id) for one in evaluation_results([node], jobs)]
    assert results == [
        *((None, "e3"), ("sure", "e2"), ("sure", "e6"), ("lucky", "e1"), ("other", "e4"))
    ]
    assert find_evaluation("e4", jobs) is jobs[3]
    with pytest.raises(HudAmbiguous) as refused:
        find_evaluation("e1", [jobs[0], jobs[0]])
    assert "e1 (lucky of arith-rl)" in refused.value.hint


def test_an_old_row_has_its_samples_in_tables_charts_and_reports_alike() -> None:
    old = Evaluation(mean_reward=0.5, num_tasks=48, num_traces=192)
    assert sample_size(old) == evaluation_score(old).over == "48 tasks × 4"
    assert evaluation_text(old) == ".500 48×4"


def test_a_job_s_result_has_its_sample_where_that_is_known() -> None:
    known = {"kind": "evaluation", "mean": {"value": 0.5}}
    jobs = [
        Job(id="j", metadata=known | more) for more in ({"tasks": 1, "samples": 4}, {"tasks": 3})
    ]
    assert [*map(job_result, jobs)] == ["mean reward .500, 1 task × 4", "mean reward .500"]
    assert job_result(Job(id="j", metadata={**known, "kind": "training"})) == ""


def test_an_evaluation_of_all_tasks_is_compared_with_one_of_a_split() -> None:
    whole, train, held = (scored(split, split=split) for split in ("all", "train", "heldout"))
    assert pair_of([whole], [held]) == (whole, held)
    assert pair_of([train], [whole]) == (train, whole)
    assert pair_of([train], [held]) is None


def test_an_interval_is_of_two_thousand_resamples() -> None:
    values = [((7 * number) % 11) / 10 for number in range(40)]
    assert interval(values, 0.0, 1.0) == interval(values, 0.0, 1.0, 2000)
    assert interval(values, 0.0, 1.0) != interval(values, 0.0, 1.0, 1000)
