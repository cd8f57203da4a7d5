"""Which checkpoint is the best, and how sure that is."""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.choice import KNOTS, Choice
from hud_tui.rl.run import Run
from hud_tui.rl.smoothing import BELIEF, BENDS, FLAT, LEAST, NEGLIGIBLE, VARIANCE, Node, smoothed
from hud_tui.rl.tree_layout import Lanes
from hud_tui.tui.widgets.checkpoint_details import details
from hud_tui.wire import Checkpoint, Evaluation
from tests.bench.bench_choice import LEVELS, outcome
from tests.unit.trees import chain, named


@st.composite
def observed_trees(draw: st.DrawFn) -> list[Node]:
    nodes = [Node(0, 0.0, draw(st.floats(0, 1)), draw(st.integers(2, 300)))]
    for position in range(1, draw(st.integers(1, 12))):
        mean = draw(st.one_of(st.none(), st.floats(0, 1)))
        parent, gap = draw(st.integers(0, position - 1)), float(draw(st.integers(1, 9)))
        nodes.append(Node(parent, gap, mean, draw(st.integers(2, 300))))
    return nodes


def conditioned(nodes: Sequence[Node]) -> tuple[Any, Any]:
    """Means and covariances of all levels, from the covariance matrix of the whole walk."""
    at = [position for position, node in enumerate(nodes) if node.mean is not None]
    rollouts = np.array([nodes[position].rollouts for position in at], float)
    means = np.array([nodes[position].mean for position in at], float)
    center, average = float(means @ rollouts / rollouts.sum()), float(rollouts.mean())
    depths = [0.0]
    for node in nodes[1:]:
        depths.append(depths[node.parent] + node.gap)
    depth, size, fits = max(1.0, *depths), len(nodes), []
    for bend in BENDS:
        walk, rate = np.zeros((2 * size, 2 * size)), 3 * average * bend / depth**3
        walk[:2, :2] = np.diag([average * FLAT, average * FLAT / depth**2])
        for position, node in enumerate(nodes[1:], 1):
            gap, above = node.gap, slice(2 * node.parent, 2 * node.parent + 2)
            here, before = slice(2 * position, 2 * position + 2), slice(2 * position)
            step = np.array([[1, gap], [0, 1]])
            noise = rate * np.array([[gap**3 / 3, gap**2 / 2], [gap**2 / 2, gap]])
            walk[here, before] = step @ walk[above, before]
            walk[before, here] = walk[here, before].T
            walk[here, here] = step @ walk[above, above] @ step.T + noise
        levels = walk[::2, ::2]
        told = levels[np.ix_(at, at)] + np.diag(average / rollouts)
        gain, off = levels[:, at] @ np.linalg.inv(told), means - center
        square = float(off @ np.linalg.solve(told, off))
        expected = VARIANCE * max(center * (1 - center), LEAST) / average
        freedom, squares = BELIEF + len(at), max(BELIEF * expected + square, 1e-12)
        score, noise = (
            np.linalg.slogdet(told)[1] + freedom * np.log(squares),
            squares / (freedom - 2),
        )
        fits.append((-score / 2, center + gain @ off, noise * (levels - gain @ levels[at])))
    shares = np.exp([score - max(fit[0] for fit in fits) for score, _, _ in fits])
    shares = np.where(shares > NEGLIGIBLE * shares.sum(), shares, 0)
    shares /= shares.sum()
    mean = sum(share * fit[1] for share, fit in zip(shares, fits, strict=True))
    apart = [fit[1] - mean for fit in fits]
    parts = zip(shares, fits, apart, strict=True)
    return mean, sum(share * (fit[2] + np.outer(off, off)) for share, fit, off in parts)


@given(observed_trees())
def test_two_passes_over_the_tree_are_the_conditional_distribution_of_the_whole_walk(
    nodes: list[Node],
) -> None:
    """A relative tolerance of the prior's size: FLAT is 1000 times what is measured."""
    mean, covariance = conditioned(nodes)
    curve = smoothed(nodes)
    assert curve.means == pytest.approx(mean, abs=1e-6)
    last = len(nodes) - 1
    for position in {0, last // 2, last}:
        expected = covariance[position, position]
        assert curve.deviation(position) ** 2 == pytest.approx(expected, rel=1e-5, abs=1e-9)
        delta, deviation = curve.difference(position, last)
        assert delta == pytest.approx(mean[position] - mean[last], abs=1e-6)
        both = covariance[last, last] - 2 * covariance[position, last]
        assert deviation**2 == pytest.approx(expected + both, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize(("name", "last"), [("rising", 0.0), ("rise, then fall", 10.0)])
def test_little_is_lost_against_the_truly_best_and_what_is_shown_is_what_it_earns(
    name: str, last: float
) -> None:
    made = outcome(LEVELS[name], range(60))
    assert made.lost < made.highest - 0.5
    assert made.last > last
    assert made.lost < 1.5
    assert abs(made.shown) < 2.5
    assert made.confirmed_lost < 1.2
    assert made.covered > 0.85


def on(reward: float, rollouts: int = 48, job: str | None = "run", seed: int = 0) -> Evaluation:
    return Evaluation(
        mean_reward=reward, num_tasks=48, num_traces=rollouts, job_id=job, seed=seed, id="e"
    )


def lineage(*rewards: float, rollouts: int = 480, **more: Any) -> list[Checkpoint]:
    """Steps whose checkpoints a run evaluated."""
    return chain(*({"evaluations": [on(reward, rollouts)], **more} for reward in rewards))


RISE_AND_FALL = 0.3, 0.4, 0.5, 0.6, 0.7, 0.6, 0.5, 0.4, 0.3


def chosen(tree: Tree) -> Choice:
    assert tree.choice is not None
    return tree.choice


def test_a_checkpoint_stands_out_from_the_newest_and_is_a_candidate_until_it_is_confirmed() -> None:
    tree = Tree.of(lineage(*RISE_AND_FALL))
    choice = chosen(tree)
    assert (choice.position, choice.star, choice.glyph, tree.best) == (4, 4, "☆", 4)
    assert choice.value.value < 0.7, "it is the highest of nine"
    assert (choice.compared, [*choice.over]) == (9, [8, 0])
    [said] = tree.choice_sentences
    assert said.startswith("☆ c4 is the candidate of 9 checkpoints: held-out .6")
    assert "] over c8" in said.partition("not yet confirmed, +.3")[2]

    def told(*evaluations: Evaluation) -> Tree:
        renewed = {"evaluations": [*tree[4].evaluations, *evaluations]}
        return tree.add(tree[4].model_copy(update=renewed))

    assert chosen(told(on(0.7, 480, None, seed=0))).glyph == "☆", "the same rollouts once more"
    assert chosen(told(on(0.7, 240, None, seed=1))).glyph == "☆", "fewer than before"
    confirmed = told(on(0.68, 480, None, seed=1))
    assert (chosen(confirmed).glyph, confirmed.best) == ("★", 4)
    assert "confirmed by 480 fresh rollouts" in confirmed.choice_sentences[0]
    lost = told(on(0.2, 4800, None, seed=1))
    assert lost.best != 4


def test_what_somebody_asked_for_confirms_what_steps_reported_or_was_asked_for_before() -> None:
    reports = [{"heldout_reward": r, "num_heldout_traces": 48} for r in RISE_AND_FALL]
    steps = chain({}, *({"metrics": report} for report in reports))
    reported = Tree.of(steps)
    assert (reported.best, chosen(reported).glyph) == (4, "☆")
    asked = reported.add(steps[4].model_copy(update={"evaluations": [on(0.7, 48, None)]}))
    assert (asked.best, chosen(asked).fresh, chosen(asked).glyph) == (4, 48, "★")

    by_hand = lineage(*RISE_AND_FALL)
    for node in by_hand:
        node.evaluations[0] = on(node.evaluations[0].mean_reward, 480, None)
    assert chosen(Tree.of(by_hand)).glyph == "☆"
    by_hand[4].evaluations.append(on(0.7, 480, None, seed=1))
    assert chosen(Tree.of(by_hand)).glyph == "★"


def test_nothing_stands_out_where_the_newest_may_be_as_good_or_nothing_was_compared() -> None:
    level = Tree.of(lineage(0.5, 0.52, 0.51, 0.53, 0.52, rollouts=48))
    assert level.best is None
    assert level.choice_sentences[0].startswith("no checkpoint stands out; c")
    grown = chosen(Tree.of(lineage(0.3, 0.5, 0.6, 0.61, 0.6, 0.59, 0.6)))
    assert (grown.star, len(grown.over)) == (None, 2), "from the oldest it does stand out"
    assert chosen(Tree.of(lineage(0.3, 0.4, 0.5, 0.6))).star == 3, "the newest"
    assert (Tree.of([]).choice, Tree.of(chain({})).choice) == (None, None)
    alone = Tree.of(lineage(0.9))
    only = "nothing is compared yet: only c0 has a known held-out reward"
    assert (alone.best, alone.choice_sentences) == (None, [only])


def test_the_base_takes_part_and_may_be_better_than_every_checkpoint() -> None:
    """A run that only did damage has no best checkpoint."""
    tree = Tree.of(lineage(0.6, 0.65, 0.6), [on(0.8, 480, None)])
    assert (chosen(tree).position, tree.best) == (ROOT, None)
    assert tree.choice_sentences[0].startswith("the base is more likely better than each of 3")
    assert Tree.of(lineage(0.6, 0.65, 0.6)).with_base([on(0.8, 480, None)]).choice == tree.choice
    above = Tree.of(lineage(0.6, 0.7, 0.8), [on(0.3, 480, None)])
    assert above.best == 2
    assert "] over base" in above.choice_sentences[0]
    assert [*chosen(above.with_base([])).over] == [0]
    lines = [line.plain for line in details(Run(tree=tree), Lanes(), ROOT, 0.0, 200)]
    assert any("more likely better" in line for line in lines)
    # The first step's rollouts are the base's.
    trained = Tree.of(chain(*({"mean_reward": r, "num_traces": 480} for r in (0.9, 0.5, 0.5, 0.5))))
    assert (trained.own(ROOT).reward, chosen(trained).position) == (0.9, ROOT)


def test_of_two_that_are_alike_the_one_with_more_rollouts_is_chosen() -> None:
    nodes = lineage(0.3, 0.5, 0.7, 0.7, 0.51, 0.32)
    for position, rollouts in ((2, 480), (3, 470)):
        nodes[position].evaluations[0] = on(0.7, rollouts)
    assert chosen(Tree.of(nodes)).position == 2
    nodes[2].evaluations[0] = on(0.7, 460)
    assert chosen(Tree.of(nodes)).position == 3


def test_weights_that_are_gone_are_not_chosen() -> None:
    nodes = lineage(*RISE_AND_FALL)
    nodes[4] = nodes[4].model_copy(update={"state": "expired"})
    assert chosen(Tree.of(nodes)).position in (3, 5)


def test_neighbours_are_pooled_in_a_long_run_and_any_unit_of_rewards_does() -> None:
    rewards = [300 - abs(step - 400) / 2 for step in range(700)]
    steps = [{"mean_reward": r, "num_traces": 64} for r in rewards]
    tree = Tree.of(chain(*steps))
    assert len(chosen(tree).rewards) <= KNOTS + 1
    assert tree.best is not None
    assert abs(tree.best - 400) <= 700 / KNOTS
    assert chosen(tree).value.value == pytest.approx(300, abs=5)
    wild = Tree.of(chain(*({"mean_reward": r, "num_traces": 4} for r in (1e308, -1e308, inf, 1))))
    assert wild.choice is None or wild.choice.value.value == pytest.approx(1)


def test_branches_inform_each_other_up_to_where_they_part() -> None:
    trunk = lineage(0.3, 0.4, 0.5)
    worse = [
        named(f"x{n}", f"x{n - 1}" if n else "c2", evaluations=[on(0.4 - n / 10, 480)])
        for n in range(3)
    ]
    better = [
        named(f"y{n}", f"y{n - 1}" if n else "c2", evaluations=[on(0.6 + n / 10, 480)])
        for n in range(3)
    ]
    tree = Tree.of([*trunk, *worse, *better])
    assert (tree.best, chosen(tree).value.value) == (8, pytest.approx(0.8, abs=0.04))
    assert chosen(tree).rewards[5] == pytest.approx(0.2, abs=0.05)
