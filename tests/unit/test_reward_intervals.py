"""How sure the curve of rewards is, where held-out rewards are drawn, and the signs at steps."""

from dataclasses import replace
from math import isnan, nan, sqrt
from random import Random
from statistics import fmean, stdev

import pytest

from hud_tui.events import CheckpointAdded, HeadMoved
from hud_tui.rl.alarms.alarm import Report
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.curves import HeldOut, Score, Sign, Spreads, average_error, reward_spread, signs
from hud_tui.rl.evaluation import student_t
from hud_tui.rl.history import History
from hud_tui.rl.run import Run
from hud_tui.wire import Checkpoint, Estimate, Evaluation, Group
from tests.tui import runs


def step(groups: list[list[float]]) -> Checkpoint:
    named = [Group(task_slug=f"t{n}", rewards=found) for n, found in enumerate(groups)]
    return Checkpoint(id="c", groups=named)


def test_the_interval_is_over_groups_or_else_over_rollouts() -> None:
    groups = [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]
    means = [0.5, 1.0, 0.0, 0.5, 1.0]
    half, over = reward_spread(step(groups), 9.0)
    assert over == "5 groups"
    assert half == pytest.approx(2.776 * stdev(means) / sqrt(5), rel=1e-3)

    half, over = reward_spread(Checkpoint(id="c", num_traces=64), 0.4)
    assert (over, half) == ("64 rollouts", pytest.approx(student_t(63) * 0.4 / 8))
    few = step([[0.0, 1.0]])
    assert isnan(reward_spread(few).half)
    assert isnan(reward_spread(Checkpoint(id="c"), 0.4).half)
    assert isnan(reward_spread(Checkpoint(id="c", num_traces=64)).half)
    assert isnan(reward_spread(step([[nan, 1.0]] * 5)).half)


@pytest.mark.parametrize("weight", [0.0, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("count", [1, 2, 7, 300])
def test_an_average_is_as_much_surer_as_its_weights_say(weight: float, count: int) -> None:
    weights = [(1 - weight) * weight**age for age in range(count)]
    exact = sqrt(sum(w * w for w in weights)) / sum(weights)
    assert average_error(weight, count) == pytest.approx(exact)


def test_a_nominal_95_percent_covers_between_93_and_97() -> None:
    draw, hits, times = Random(7), 0, 1000
    for _ in range(times):
        skills = [draw.betavariate(1.5, 1.5) for _ in range(12)]
        groups = [[float(draw.random() < skill) for _ in range(8)] for skill in skills]
        mean = fmean(reward for group in groups for reward in group)
        hits += abs(mean - 0.5) <= reward_spread(step(groups)).half
    assert 0.93 < hits / times < 0.97


def test_the_average_s_interval_is_that_of_the_steps_near_it() -> None:
    run, spreads = runs.run_of(30), Spreads()
    own = [spreads.spread_at(run, row).half for row in range(30)]
    assert spreads.spread_at(run, 29).over == "12 groups"
    assert spreads.halves(run, [29], 0.0) == [own[29]]
    near = sqrt(fmean(half * half for half in own[26:30]))
    last, first = spreads.halves(run, [29, 0], 0.8)
    assert last == pytest.approx(near * average_error(0.8, 30))
    assert first == own[0]


def evaluated(node: Checkpoint, value: float, job_id: str | None = None) -> Checkpoint:
    mean = Estimate(value=value, low=value - 0.1, high=value + 0.1)
    found = Evaluation(mean_reward=value, num_tasks=48, num_traces=192, samples=4, mean=mean)
    found = found.model_copy(update={"job_id": job_id})
    return node.model_copy(update={"evaluations": [found]})


def reported(steps: int, heldout: dict[int, float]) -> Run:
    """A run whose steps with these numbers report a held-out reward, and no others."""
    run = Run(model=runs.MODEL, loaded=True)
    for at, node in enumerate(runs.checkpoints(steps), 1):
        metrics = {"reward_mean": 0.5} | ({"heldout_reward": heldout[at]} if at in heldout else {})
        taken = node.model_copy(update={"metrics": metrics, "is_active": True})
        run = run.fold(CheckpointAdded(checkpoint=taken))
    return run


def test_what_a_step_reports_is_of_the_checkpoint_before_it() -> None:
    held = HeldOut()
    held.follow(reported(10, {1: 0.1, 5: 0.4, 10: 0.6}))
    assert held.rows == [3, 8]
    assert held.scores[3] == Score(0.4)
    assert held.score_at(2) is None
    assert held.score_at(7) == (3, Score(0.4))
    assert held.score_at(9) == (8, Score(0.6))


def test_an_evaluation_is_at_its_own_checkpoint_with_its_interval() -> None:
    run, held = reported(10, {5: 0.4}), HeldOut()
    held.follow(run)
    for place, value in ((3, 0.7), (9, 0.8)):
        run = run.fold(CheckpointAdded(checkpoint=evaluated(run.tree[place], value)))
        held.follow(run)
    assert held.rows == [3, 9]
    assert held.scores[3][:4] == (0.7, pytest.approx(0.6), pytest.approx(0.8), "48 tasks × 4")
    back = run.fold(HeadMoved(checkpoint_id="c6", cause="set"))
    held.follow(back)
    assert held.rows == [3]
    assert held.scores[3].value == 0.7


@pytest.mark.parametrize(
    ("heldout", "job_id", "joins"),
    [({5: 0.4}, None, False), ({5: 0.4}, "run", True), ({}, None, True)],
)
def test_no_line_leads_to_an_evaluation_that_may_be_on_other_tasks(
    heldout: dict[int, float], job_id: str | None, joins: bool
) -> None:
    """A run's own are on the tasks that its steps report; others may be on any."""
    run, held = reported(10, heldout), HeldOut()
    node = evaluated(run.tree[8], 0.7, job_id)
    held.follow(run.fold(CheckpointAdded(checkpoint=node)))
    assert held.scores[8].joins is joins
    assert all(held.scores[row].joins for row in held.rows if row != 8)


def test_signs_stand_where_something_happened_in_the_lineage() -> None:
    run = runs.branched(60, 30, 40)
    assert signs(run) == {29: Sign.HEAD}, "a branch begins where the head was set"
    assert signs(replace(run, history=History())) == {29: Sign.BRANCH}
    left = run.tree[59].id
    own = run.series.id_at(49)
    moves = tuple(
        HeadMoved(at=float(at), checkpoint_id=to, cause="set")
        for at, to in enumerate((own, left, "gone", run.series.id_at(29)))
    )
    history = History(moves)
    moved = replace(run, history=history)
    assert signs(moved) == {29: Sign.HEAD, 49: Sign.HEAD}
    assert signs(Run(model=runs.MODEL, alarms=Report(), history=history)) == {}
    assert signs(moved, own)[49] == Sign.MARK
    assert [sign.meaning for sign in Sign] == ["marked", "alarm", "head set", "branch"]


def test_forks_are_found_however_branches_grow() -> None:
    parents = {"a": None, "b": "a", "c": "a", "d": "b", "e": "c", "f": "b", "g": "f"}
    nodes = [Checkpoint(id=id_, prev_model_checkpoint_id=up) for id_, up in parents.items()]
    tree = Tree()
    for node in nodes:
        tree = tree.add(node)
    assert [tree[at].id for at in tree.forks] == ["a", "b"]
    assert [Tree.of(nodes)[at].id for at in Tree.of(nodes).forks] == ["a", "b"]
    older = Tree.of(nodes[:2])
    older.add(nodes[2])
    other = older.add(Checkpoint(id="x", prev_model_checkpoint_id="b"))
    assert other.forks == []
    assert [p.id for p in (other[at] for at in range(len(other)))] == ["a", "b", "x"]
