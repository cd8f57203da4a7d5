"""Two checkpoints side by side: what is worked out, and what is said of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from hud_tui.rl.changed import Comparison, MetricPair, compare, relation
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.rl.sides import Side
from hud_tui.tui.screens.compare import comparison_table
from hud_tui.wire import Checkpoint, Group
from tests.unit.trees import named


def node(id_: str, parent: str | None, reward: float, **fields: object) -> Checkpoint:
    return named(id_, parent, mean_reward=reward, **fields)


def groups(**rewards: list[float]) -> list[Group]:
    return [Group(task_slug=slug, rewards=each) for slug, each in rewards.items()]


TREE = Tree.of(
    [
        node("root", None, 0.1),
        node("left", "root", 0.9, loss_fn="ppo", metrics={"grad_norm": 2.0}),
        node("right", "root", 0.9, loss_fn="cispo", metrics={"grad_norm": 3.0}),
        node(
            "later",
            "right",
            0.75,
            metrics={"kl_sample_train": 0.3, "heldout_reward": 0.6},
            groups=groups(add=[1] * 6, sub=[0] * 6, same=[0.5, 0.51], new=[1]),
        ),
        node(
            "after left",
            "left",
            0.5,
            metrics={"kl_sample_train": 0.1, "entropy": 1.0, "heldout_reward": 0.5},
            groups=groups(add=[0] * 6, sub=[1] * 6, same=[0.5, 0.5], gone=[1, 1]),
        ),
    ]
)


def compared(
    tree: Tree, left: int, right: int, read: Mapping[str, Sequence[Group]] | None = None
) -> Comparison:
    return compare(Side(tree, left), Side(tree, right), read)


def test_metrics_are_right_minus_left_and_the_better_side_is_told() -> None:
    both = compared(TREE, 1, 2)
    pairs = {pair.key: pair for pair in both.metrics}
    assert list(pairs) == ["heldout_reward", "reward_mean", "kl_sample_train", "entropy"]
    assert pairs["reward_mean"].delta == pytest.approx(0.25)
    assert pairs["reward_mean"].better == 1
    assert pairs["kl_sample_train"].better == -1
    assert (pairs["entropy"].delta, pairs["entropy"].better) == (None, 0)
    steps = {pair.key: (pair.left, pair.right) for pair in both.steps}
    assert steps == {"reward_mean": (0.9, 0.9), "grad_norm": (2.0, 3.0)}


@pytest.mark.parametrize(("right", "better"), [(1.3e-7, 0), (0.0099, -1), (-1e-9, 0)])
def test_next_to_nothing_of_the_healthy_range_makes_neither_better(
    right: float, better: int
) -> None:
    assert MetricPair("kl_sample_train", -2e-8, right).better == better


def test_a_kl_of_float32_s_rounding_is_none() -> None:
    pair = MetricPair("kl_sample_train", 1e-9, 3e-8)
    assert pair.delta == 0
    both = replace(compared(TREE, 1, 2), metrics=[pair])
    [line] = [line.plain for line in comparison_table(both, 80) if "KL" in line.plain]
    assert line.split()[-3:] == ["0", "0", "=0"]


def test_groups_that_both_have_are_better_worse_or_alike() -> None:
    tasks = compared(TREE, 1, 2).tasks
    assert tasks is not None
    assert [(task.slug, task.delta) for task in tasks.better] == [("add", 1.0)]
    assert [(task.slug, task.delta) for task in tasks.worse] == [("sub", -1.0)]
    assert len(tasks.alike) == 1
    read = {"left": groups(add=[0] * 4), "right": groups(add=[0] * 4)}
    given = compared(TREE, 0, 2, read).tasks
    assert given is not None
    assert [task.slug for task in given.better] == ["add"], "of steps whose groups were read"


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        (1, 2, "They diverged at root: A is 1 step after it, B 1 step."),
        (0, 3, "B is 2 steps after A."),
        (3, 2, "A is 1 step after B."),
    ],
)
def test_how_they_are_related(left: int, right: int, said: str) -> None:
    assert relation(compared(TREE, left, right)) == said


@pytest.mark.parametrize("width", [40, 71, 96])
def test_the_table_fits_its_width(width: int) -> None:
    lines = comparison_table(compared(TREE, 1, 2), width)
    assert max(line.cell_length for line in lines) <= max(width, 49)
    text = "\n".join(line.plain for line in lines)
    assert "differs" in text
    unsampled = "\n".join(line.plain for line in comparison_table(compared(TREE, 0, 3), 80))
    assert "not sampled yet" in unsampled


LONG, MIXED = groups(reverse=[1, 1, 0, 1]), groups(add=[1, 0, 0, 0])
TWO_TASKSETS = Tree.of(
    [
        node("one", None, 0.1, job_id="a", groups=LONG),
        node("two", "one", 0.75, job_id="a", groups=LONG, metrics={"entropy": 0.1}),
        node(
            *("three", "two", 0.25),
            job_id="b",
            groups=MIXED,
            metrics={"entropy": 0.4, "heldout_reward": 0.5, "num_heldout_traces": 40},
        ),
    ]
)


def test_rewards_on_other_tasks_stand_side_by_side_without_a_difference() -> None:
    both = compared(TWO_TASKSETS, 0, 1)
    assert not both.same_tasks
    assert {pair.key: (pair.delta, pair.better) for pair in both.metrics} == dict.fromkeys(
        ("heldout_reward", "reward_mean", "entropy"), (None, 0)
    )
    lines = [line.plain.rstrip() for line in comparison_table(both, 78)]
    assert "on other tasks: not comparable" in lines
    assert compared(TREE, 1, 2).same_tasks
    said = [line.split() for line in lines]
    at = said.index(["held-out", "rollouts", "sampled", "from", "it"])
    assert said[at + 1] == ["sampled", "–", "40", "rollouts"], "though one side has none"
    assert said[at + 2] == ["held-out", "reward", "–", ".500"]
    at = said.index(["training", "rollouts", "sampled", "from", "it"])
    assert said[at + 1] == ["sampled", "4", "rollouts", "4", "rollouts"]
