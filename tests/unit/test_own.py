"""Own numbers: what a checkpoint's weights scored, told by the steps that were taken from it."""

from collections.abc import Sequence
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.alarms.monitor import AlarmMonitor, last_good_checkpoint
from hud_tui.rl.changed import compare
from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.filter import parse
from hud_tui.rl.head import head_change
from hud_tui.rl.metrics import of_weights
from hud_tui.rl.own_numbers import (
    NONE,
    Evaluated,
    Own,
    ReportedHeldout,
    best_known,
    ends_of,
    heldout_evaluation,
    own_metric,
    pooled,
)
from hud_tui.rl.run import Run
from hud_tui.rl.sides import Side
from hud_tui.rl.tree_cursor import Matches
from hud_tui.rl.tree_layout import Lanes
from hud_tui.tui.widgets.checkpoint_details import details
from hud_tui.wire import Checkpoint, Estimate, Evaluation, Group
from tests.unit.corrupted_run import BAD, GOOD, LAST, corrupted_run
from tests.unit.trees import REWARDS, chain, named, parents


def evaluated(reward: float, split: str = "heldout") -> Evaluation:
    return Evaluation(split=split, mean_reward=reward, num_tasks=36, num_traces=72)


def test_a_checkpoint_has_the_rewards_of_the_steps_that_were_trained_on_its_rollouts() -> None:
    tree = Tree.of(
        [
            named("a", mean_reward=0.1, num_traces=8),
            named("b", "a", mean_reward=0.5, num_traces=30, metrics={"heldout_reward": 0.4}),
            named("c", "a", mean_reward=1.0, num_traces=10, metrics={"heldout_reward": 0.6}),
        ]
    )
    own = tree.own(0)
    assert (own.reward, own.sampled) == (pytest.approx(0.625), 40)
    assert (own.heldout, own.heldout_rollouts) == (pytest.approx(0.5), None)
    assert tree.own(1) == tree.own(2) == NONE
    assert tree.own(ROOT) == Own(0.1, 8)


def test_a_chosen_batch_counts_task_by_task_and_for_the_held_out_reward() -> None:
    chosen = {"draw": "signal", "groups": [Group(task_slug="t", rewards=[0.0, 1.0])]}
    metrics = {"heldout_reward": 0.6, "num_heldout_traces": 4.0, "entropy": 0.9}
    fair = {"heldout_reward": 0.4, "num_heldout_traces": 4.0, "entropy": 0.3}
    tree = Tree.of(
        [
            named("a", mean_reward=0.1, num_traces=8),
            named("b", "a", mean_reward=0.2, num_traces=8, metrics=fair),
            named("c", "a", mean_reward=0.9, num_traces=8, metrics=metrics, **chosen),
        ]
    )
    own = tree.own(0)
    assert (own.reward, own.sampled) == (0.2, 8)
    assert (own.heldout, own.heldout_rollouts) == (pytest.approx(0.5), 8)
    assert tree.own_metrics(0)["entropy"] == own_metric(tree.steps(0), "entropy") == 0.3
    assert own_metric(tree.steps(0), "heldout_reward") == pytest.approx(0.5)
    assert [group.task_slug for group in tree.own_groups(0)] == ["t"]


def test_an_evaluation_says_more_than_the_steps_and_may_come_late_or_alone() -> None:
    first = named("a", mean_reward=0.1)
    tree = Tree.of([first, named("b", "a", mean_reward=0.5, metrics={"heldout_reward": 0.4})])
    late = first.model_copy(update={"evaluations": [evaluated(0.7)]})
    told = tree.add(late)
    assert (told.own(0).heldout, told.own(0).heldout_rollouts) == (0.7, 72)
    assert told.choice is not None
    assert (told.own(0).reward, told.choice.position, told.choice.by) == (0.5, 0, "heldout_reward")
    other = first.model_copy(update={"evaluations": [evaluated(0.9, "train")]})
    assert told.add(other).own(0).heldout == 0.4

    tree = corrupted_run()
    assert not tree.own(LAST - 1).known
    last = tree[LAST - 1].model_copy(update={"evaluations": [evaluated(0.95)]})
    told = tree.add(last)
    assert told.own(LAST - 1) == Own(None, 0, 0.95, 72)


def on(tasks: str, reward: float, rollouts: int = 72, **more: Any) -> Evaluation:
    """An evaluation on held-out tasks that somebody asked for; `more` is the row's."""
    more = {"id": "e", "job_id": "e", "max_tokens": 20} | more
    return Evaluation(
        mean_reward=reward, num_tasks=36, num_traces=rollouts, tasks_digest=tasks, **more
    )


def grown_and_read(nodes: Sequence[Checkpoint]) -> Tree:
    """A tree, the same whether it is read at once or grows by a step at a time."""
    grown, choices = Tree(), [None]
    for node in nodes:
        grown = grown.add(node)
        choices.append(grown.choice)
    read = Tree.of(nodes)
    assert (choices[-1], grown.peak) == (read.choice, read.peak)
    return read


def chosen(tree: Tree) -> int | None:
    """Position of the most likely best."""
    return None if tree.choice is None else tree.choice.position


def best_of(*evaluated: Sequence[Evaluation]) -> Tree:
    """A chain of checkpoints with these evaluations, which may also come late."""
    plain = [
        named(str(place), str(place - 1) if place else None, mean_reward=0.5)
        for place in range(len(evaluated))
    ]
    told = zip(plain, evaluated, strict=True)
    nodes = [one.model_copy(update={"evaluations": list(found)}) for one, found in told]
    late = Tree.of(plain)
    for one in reversed(nodes):
        late = late.add(one)
    read = grown_and_read(nodes)
    assert late.choice == read.choice
    return read


def test_checkpoints_are_ranked_by_evaluations_on_the_same_tasks() -> None:
    tree = best_of([on("a", 0.6)], [on("a", 0.7)], [on("b", 0.9)])
    assert (chosen(tree), tree.own(2).heldout, tree.own(2).apart) == (1, 0.9, True)
    assert tree.evaluated_range == (0.6, 0.9)
    both = best_of([on("a", 0.6)], [on("a", 0.7)], [on("a", 0.1), on("b", 0.9)])
    assert (chosen(both), both.own(2).heldout) == (1, 0.1)
    longer = best_of([on("a", 0.6)], [on("a", 0.7)], [on("a", 0.9, max_tokens=99)])
    assert chosen(longer) == 1


def test_evaluations_of_one_checkpoint_are_pooled_by_their_rollouts_which_count_once() -> None:
    twice = best_of([on("a", 0.6, 144, seed=0), on("a", 0.9, 72, seed=1)], [on("a", 0.72)])
    assert twice.own(0).heldout == pytest.approx(0.7)
    assert twice.own(0).heldout_rollouts == 216
    found = twice.evaluation(0)
    assert found is not None
    assert (found.mean_reward, found.num_traces) == (pytest.approx(0.7), 216)
    assert chosen(best_of([on("a", 0.6, 36)], [on("b", 0.5, 144)])) == 1

    repeated = [on("a", 0.9, seed=3), on("a", 0.8, 144, seed=3), on("a", 0.9, seed=3)]
    assert best_of(repeated).own(0) == Own(None, 0, 0.8, 144)
    unknown = [on("a", 0.9), on("a", 0.9), on("a", 0.9)]
    assert best_of(unknown).own(0).heldout_rollouts == 72


def test_pooled_figures_keep_their_intervals_and_are_never_narrower_than_they_may_be() -> None:
    def one(value: float, samples: int, seed: int) -> Evaluation:
        figure = Estimate(value=value, low=value - 0.2, high=value + 0.1)
        chances = {1: figure, samples: figure}
        figures = {"samples": samples, "mean": figure, "pass_at": chances}
        return on("a", value, 36 * samples, seed=seed, **figures)

    both = pooled([one(0.5, 2, 0), one(0.8, 4, 1)])
    assert (both.samples, both.num_traces, both.mean_reward) == (6, 216, pytest.approx(0.7))
    assert both.mean is not None
    assert (both.mean.low, both.mean.high) == (pytest.approx(0.5), pytest.approx(0.8))
    assert {k: round(e.value, 6) for k, e in both.pass_at.items()} == {1: 0.7, 4: 0.8}


@pytest.mark.parametrize(
    ("mean", "rollouts", "ends"),
    [
        # Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
        (81 / 263, 263, (0.2553, 0.3662)),
        (15 / 148, 148, (0.0624, 0.1605)),
        (0.0, 20, (0.0, 0.1611)),
        (1 / 29, 29, (0.0061, 0.1718)),
        # Of no size, or on another scale.
        (0.5, None, (0.5, 0.5)),
        (7.5, 40, (7.5, 7.5)),
        (-0.5, 40, (-0.5, -0.5)),
    ],
)
def test_the_chance_of_rollouts_is_wilsons_interval(
    mean: float, rollouts: int | None, ends: tuple[float, float]
) -> None:
    assert ends_of(mean, rollouts) == pytest.approx(ends, abs=5e-5)


def test_steps_say_how_many_held_out_rollouts_they_had_else_one_per_task_is_assumed() -> None:
    def step(id_: str, parent: str | None, **metrics: float) -> Checkpoint:
        return named(id_, parent, mean_reward=0.5, metrics=metrics)

    told = Tree.of(
        [
            named("a", mean_reward=0.1),
            step("b", "a", heldout_reward=0.9, num_heldout_traces=20),
            step("c", "a", heldout_reward=0.7, num_heldout_traces=20),
            step("d", "b", heldout_reward=0.82),
        ]
    )
    assert told.own(0) == Own(0.5, 0, pytest.approx(0.8), 40)
    assert (told.own(1).heldout, told.own(1).heldout_rollouts) == (0.82, None)
    many = told[0].model_copy(update={"evaluations": [on("a", 0.8, 720, id="e", job_id="run")]})
    ranked = told.add(many)
    assert ranked.own(1).at_least == 36
    assert ranked.choice is not None
    assert (ranked.choice.position, ranked.choice.rollouts) == (1, 36)
    partly = ranked.add(step("e", "b", heldout_reward=0.86, num_heldout_traces=20)).own(1)
    assert (partly.heldout, partly.heldout_rollouts) == (pytest.approx(0.84), None)


def test_a_step_on_the_same_batch_tells_of_what_sampled_the_batch() -> None:
    batch = [Group(task_slug="t", rewards=[0.0, 1.0], num_tokens=[3, 4])]
    other = [Group(task_slug="t", rewards=[1.0, 1.0], num_tokens=[3, 4])]
    near = 1.0000001  # an engine computes no exact 1
    taken = ((0.2, other, near), *((0.5, batch, ratio) for ratio in (near, 1.3, near)))
    steps = (
        {"mean_reward": mean, "num_traces": 2, "groups": groups, "metrics": {"ratio_max": ratio}}
        for mean, groups, ratio in taken
    )
    tree = Tree.of(chain(*steps))
    assert [tree.source(position) for position in range(4)] == [ROOT, 0, 0, 2]
    assert (tree.own(0).sampled, tree.own(1), tree.own(2).reward) == (2, NONE, 0.5)


def test_metrics_of_weights_come_from_the_rollouts_and_those_of_an_update_do_not() -> None:
    metrics = {"entropy": 0.5, "grad_norm": 9.0, "reward/format": 0.1, "zebra": 1.0}
    tree = Tree.of(
        [
            named("a", metrics={"entropy": 2.0}),
            named("b", "a", mean_reward=0.5, num_traces=10, metrics=metrics),
            named("c", "a", mean_reward=0.7, num_traces=30, metrics={"entropy": 0.9}),
        ]
    )
    found = tree.own_metrics(0)
    assert found == pytest.approx({"entropy": 0.8, "reward_mean": 0.65, "reward/format": 0.1})
    assert tree.own_metrics(1) == {}
    assert own_metric([*tree.steps(0)], "entropy") == pytest.approx(0.8)
    uncounted = [named("d", metrics={"entropy": 1.0}), named("e", metrics={"entropy": 2.0})]
    assert own_metric(uncounted, "entropy") == 1.5
    assert own_metric(uncounted, "kl") is None
    assert of_weights("tinker.optim/entropy")
    assert not any(map(of_weights, ["grad_norm", "clip_fraction", "learning_rate", "zebra"]))


@pytest.mark.parametrize("bad", [nan, inf, -inf, 1e308])
def test_no_reward_spoils_the_others(bad: float) -> None:
    spoilt = {"mean_reward": bad, "num_traces": 2**80, "metrics": {"heldout_reward": bad}}
    tree = Tree.of(chain({}, spoilt, {"mean_reward": 0.5, "num_traces": 4}))
    assert tree.own(0).reward in (None, pytest.approx(bad))
    assert tree.own(1).reward == 0.5


@given(parents(most=20), st.data())
def test_own_numbers_and_the_best_are_those_of_the_steps_that_were_taken(
    chosen: list[int], data: st.DataObject
) -> None:
    rewards = [data.draw(REWARDS) for _ in chosen]
    tree = grown_and_read(
        [
            named(
                f"c{n}",
                None if above == ROOT else f"c{above}",
                mean_reward=rewards[n],
                num_traces=4,
            )
            for n, above in enumerate(chosen)
        ]
    )
    for position in range(len(tree)):
        told = [r for r, above in zip(rewards, chosen, strict=True) if above == position]
        known = [r for r in told if r is not None and r == r]
        mean = sum(known) / len(known) if known else None
        assert tree.own(position).reward == pytest.approx(mean)
        assert tree.own(position).sampled == 4 * len(known)
    known = {n for n in range(ROOT, len(tree)) if tree.own(n).reward is not None}
    assert (set() if tree.choice is None else tree.choice.rewards.keys()) == known


HELDOUT = st.fixed_dictionaries(
    {},
    optional={
        "heldout_reward": st.sampled_from([0.0, 0.25, 0.5, 1.0]),
        "num_heldout_traces": st.just(8.0),
    },
)
EVALUATIONS = st.lists(
    st.builds(
        on,
        st.sampled_from("ab"),
        st.sampled_from([0.25, 0.5, 0.75]),
        seed=st.integers(0, 2),
        job_id=st.sampled_from(["e", "run"]),
    ),
    max_size=2,
)


@given(parents(most=10), st.data())
def test_a_step_that_is_told_anew_counts_as_if_it_had_been_told_so_at_first(
    chosen: list[int], data: st.DataObject
) -> None:
    def told(n: int, above: int, job: str) -> Checkpoint:
        metrics, evaluations = data.draw(HELDOUT), data.draw(EVALUATIONS)
        more: dict[str, Any] = {"job_id": job, "tasks_digest": job, "evaluations": evaluations}
        parent = None if above == ROOT else f"c{above}"
        reward = data.draw(st.sampled_from([None, 0.0, 0.5, 1.0]))
        return named(f"c{n}", parent, mean_reward=reward, num_traces=4, metrics=metrics, **more)

    jobs = [data.draw(st.sampled_from(["run", "other"])) for _ in chosen]
    first, last = (
        [told(n, above, job) for n, (above, job) in enumerate(zip(chosen, jobs, strict=True))]
        for _ in range(2)
    )
    tree, anew = Tree.of(last), Tree.of(first)
    for each in last:
        anew = anew.add(each)
    owns = [[one.own(position) for position in range(len(chosen))] for one in (tree, anew)]
    assert owns[0] == owns[1]
    assert (tree.choice, tree.common) == (anew.choice, anew.common)


@given(parents(most=20), st.data())
def test_another_branch_from_an_older_version_counts_its_own_steps(
    chosen: list[int], data: st.DataObject
) -> None:
    if len(chosen) < 2:
        return
    versions = [Tree()]
    for n, above in enumerate(chosen):
        parent = None if above == ROOT else f"c{above}"
        versions.append(versions[-1].add(named(f"c{n}", parent, mean_reward=n / 20)))
    cut = data.draw(st.integers(1, len(chosen) - 1))
    known = [n / 20 for n, above in enumerate(chosen[:cut]) if above == 0]
    for reward in (1.0, 0.0):
        grown = versions[cut].add(named(f"of {reward}", "c0", mean_reward=reward))
        assert grown.own(0).reward == pytest.approx(sum([*known, reward]) / (len(known) + 1))


def test_the_filter_asks_for_own_numbers_and_by_step_for_the_steps() -> None:
    tree = corrupted_run()

    def found(text: str) -> list[int]:
        keep = parse(text, ["grad_norm", "heldout_reward"])
        return [p + 1 for p in range(len(tree)) if keep(tree, p)]

    assert GOOD in found("reward>.9 step:55..")
    assert BAD not in found("reward>.9")
    assert BAD in found("step_reward>.9")
    assert found("heldout>.8 step:60..") == [GOOD]
    assert found("sampled=0") == [LAST]
    assert LAST not in found("reward>=0")

    matches = Matches(parse("reward>.9"))
    matches.show(corrupted_run(GOOD))
    before = len(matches)
    grown = corrupted_run(BAD)
    matches.show(grown)
    assert [matches.row(0).newest, len(matches)] == [GOOD - 1, before + 1]


def newest_alarms(tree: Tree) -> dict[str, tuple[int, int, int]]:
    """The alarms' onset, the step that showed it, and the step to serve, by detector."""
    monitor = AlarmMonitor()
    monitor.follow(tree)
    found = {}
    for alarm in monitor.report().alarms:
        position = tree.find(alarm.before_id)
        assert position is not None
        found[alarm.name] = alarm.onset, alarm.shown, position + 1
    return found


def told(rewards: Sequence[float | None], states: Sequence[str] = ()) -> Tree:
    """Steps whose checkpoints have these own rewards; the last step is there to tell."""
    states = [*states, *["full"] * (len(rewards) + 1 - len(states))]
    steps = zip([None, *rewards], states, strict=True)
    return Tree.of(chain(*({"mean_reward": reward, "state": state} for reward, state in steps)))


@pytest.mark.parametrize("steps", [*range(75, LAST, 5), LAST])
def test_the_rescue_of_a_corrupted_run_is_what_was_good_before_the_update_that_spoilt_it(
    steps: int,
) -> None:
    alarms = newest_alarms(corrupted_run(steps))
    assert alarms["reward_collapse"] == (BAD, BAD + 1, GOOD)
    if steps == LAST:
        assert alarms["heldout_collapse"] == (BAD, BAD + 1, GOOD)
        assert alarms["grad_norm"][2] == GOOD


def test_a_rescue_passes_over_what_is_no_longer_good_and_the_update_that_spoilt_it() -> None:
    tree = told([*[0.9] * 20, 0.3, 0.4, 0.1])
    assert last_good_checkpoint(tree, 22) == 19
    assert last_good_checkpoint(told([*[0.9] * 20, 0.3], ["full"] * 19 + ["expired"]), 20) == 18
    assert last_good_checkpoint(told([None] * 5), 3) == 2
    assert last_good_checkpoint(tree, 0) is None

    tree = corrupted_run()
    assert tree[BAD - 1].mean_reward == max(r.mean_reward or 0 for r in tree)
    assert chosen(tree) in range(BAD - 1)
    change = head_change(Run(tree=tree.with_head(f"c{BAD}")), f"c{GOOD}")
    assert change.deltas["reward_mean"] == pytest.approx(0.4673, abs=1e-3)


def test_the_head_may_be_set_to_the_bad_update_and_the_alarm_stays_known() -> None:
    tree, monitor = corrupted_run(), AlarmMonitor()
    monitor.follow(tree)
    monitor.follow(tree.with_head(f"c{BAD}"))
    left = {alarm.name: alarm for alarm in monitor.report().left}
    assert left["reward_collapse"].checkpoint_id == f"c{BAD}"
    assert left["reward_collapse"].before_id == f"c{GOOD}"
    monitor.follow(tree)
    report = monitor.report()
    ids = [alarm.id for alarm in (*report.alarms, *report.left)]
    assert len(ids) == len(set(ids))


def test_comparing_says_how_many_rollouts_and_no_difference_within_their_noise() -> None:
    def sampled(solved: int) -> list[Group]:
        return [Group(task_slug="t", rewards=[1.0] * solved + [0.0] * (8 - solved))]

    steps = (
        {"mean_reward": solved / 8, "num_traces": 8, "groups": sampled(solved)}
        for solved in (3, 5, 8)
    )
    tree = Tree.of(chain({}, *steps))
    sides = [Side(tree, position) for position in range(4)]
    near, far = compare(sides[0], sides[1]), compare(sides[0], sides[2])
    assert near.tasks is not None
    assert far.tasks is not None
    assert (near.tasks.better, near.tasks.worse, len(near.tasks.alike)) == ([], [], 1)
    assert [task.slug for task in far.tasks.better] == ["t"]
    assert (far.tasks.rollouts, [own.sampled for own in far.own]) == ((8, 8), [8, 8])
    unsampled = compare(sides[2], sides[3])
    assert (unsampled.tasks, unsampled.own[1]) == (None, NONE)


def told_on(tasks: str, job: str, *heldout: float, start: int = 0) -> list[Checkpoint]:
    """Steps of a run that report held-out rewards of 40 rollouts, each of the checkpoint before."""
    return [
        named(
            f"c{at}",
            f"c{at - 1}" if at else None,
            job_id=job,
            tasks_digest=tasks,
            mean_reward=0.5,
            metrics={"heldout_reward": reward, "num_heldout_traces": 40},
        )
        for at, reward in enumerate(heldout, start)
    ]


HARD = told_on("hard", "a", 0.0, 0.3, 0.5, 0.4)
EASY = told_on("easy", "b", 0.9, 0.95, start=4)


def test_held_out_rewards_of_steps_rank_only_with_those_of_the_same_tasks() -> None:
    """A run on harder tasks does not lose its star to one on easier ones."""
    tree, lanes = grown_and_read([*HARD, *EASY]), Lanes()
    assert tree.choice is not None
    assert (tree.choice.position, tree.choice.by) == (1, "heldout_reward")
    assert [tree.own(at).apart for at in range(5)] == [False] * 3 + [True] * 2
    assert (tree.choice.compared, tree.choice.apart) == (3, 2)
    lanes.show(tree)
    said = [line.plain for line in details(Run(tree=tree), lanes, 1, 0.0, 200)]
    assert "2 on other tasks, or sampled otherwise, are not compared" in said
    again = grown_and_read([*HARD, *told_on("hard", "b", 0.9, 0.95, start=4)])
    assert (chosen(again), again.own(4).apart) == (4, False)


def test_what_runs_evaluate_says_which_reported_rewards_rank_with_it() -> None:
    """The evaluation of a run's own checkpoint is on the held-out tasks that its steps report."""
    last = EASY[-1].model_copy(update={"evaluations": [on("x", 0.9, 160, job_id="b")]})
    tree = grown_and_read([*HARD, *EASY[:-1], last])
    assert [tree.own(at).apart for at in range(6)] == [True] * 3 + [False] * 3
    assert tree.choice is not None
    assert (tree.choice.position, tree.choice.compared, tree.choice.apart) == (4, 3, 3)
    own = on("a", 0.6, 36, job_id="run")
    assert chosen(best_of([own], [on("b", 0.9)], [on("b", 0.8)])) == 0


def test_a_checkpoint_that_two_runs_begin_from_has_a_held_out_reward_of_each_run_s_tasks() -> None:
    easy = {"job_id": "b", "tasks_digest": "easy", "metrics": {"heldout_reward": 1}}
    other = HARD[2].model_copy(update={"id": "x", **easy})
    tree = grown_and_read([*HARD[:3], other])
    assert (tree.own(1).heldout, tree.own(1).heldout_rollouts) == (0.5, 40)
    late = tree.add(other.model_copy(update={"metrics": {}, "state": "expired"}))
    assert late.own(1).heldout == 0.5


def test_of_equal_evaluations_the_newest_counts() -> None:
    first, second = on("b", 0.6), on("c", 0.7)
    found = best_known([first, second], ("a", 20, None))
    assert found == (second, False)
    assert heldout_evaluation([first, second]) == second
    assert pooled([on("a", 0.8, seed=3), on("a", 0.9, seed=3)]).mean_reward == 0.9


def test_pass_at_k_is_pooled_of_what_counts_the_same_as_solved() -> None:
    def one(chance: float, solved_at: float, seed: int) -> Evaluation:
        figures = {"solved_at": solved_at, "pass_at": {1: Estimate(value=chance)}}
        return on("a", 0.5, 72 + seed, seed=seed, **figures)

    both = pooled([one(0.9, 0.5, 0), one(0.2, 1.0, 1), one(0.4, 1.0, 2)])
    assert both.pass_at[1].value == pytest.approx(0.3, abs=0.01)


def test_conditions_that_nobody_has_any_more_are_not_the_common_ones() -> None:
    evaluated = Evaluated()
    evaluated.put(0, [on("a", 0.5, 999)])
    evaluated.put(1, [on("b", 0.5, 1)])
    evaluated.put(0, [])
    assert (evaluated.common, evaluated.positions) == (("b", 20, None), [1])
    evaluated.put(1, [])
    assert evaluated.common is None


def test_of_tasks_with_as_many_checkpoints_the_first_rank() -> None:
    reported, step = ReportedHeldout(), named("s", metrics={"heldout_reward": 0.5})
    assert reported.most is None
    for position, tasks in enumerate((4, 2, 3)):
        reported.add(position, tasks, step, 1)
    assert reported.most == 2
    reported.add(9, 3, step, 1)
    assert reported.most == 3
