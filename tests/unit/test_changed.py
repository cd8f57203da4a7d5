"""What changed between two checkpoints: whose rollouts tell it, and what is said of them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hud_tui.events import TreeRead
from hud_tui.rl.alarms.alarm import Alarm, Level, Report
from hud_tui.rl.changed import (
    Comparison,
    Heldout,
    HeldoutRollouts,
    compare,
    heldout_sentences,
    made_sentences,
    pair_at,
    relation,
    sampled_names,
    training_sentences,
    weights_at,
)
from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.curves import Spread, reward_spread
from hud_tui.rl.evaluation import Scores, difference
from hud_tui.rl.run import Run
from hud_tui.rl.run_groups import differences
from hud_tui.rl.sides import Side, around, evaluation_of, heldout_pairs, heldout_step, step_of_run
from hud_tui.rl.work import Work
from hud_tui.tui.screens.compare import change_rows
from hud_tui.wire import Checkpoint, Evaluation, Group
from tests.tui import runs
from tests.unit.trees import named


def groups(slugs: Sequence[str], solved: int, size: int = 8) -> list[Group]:
    rewards = [1.0] * solved + [0.0] * (size - solved)
    return [Group(task_slug=slug, rewards=rewards) for slug in slugs]


def lineage(*steps: dict[str, object], job: str = "run", start: int = 1) -> list[Checkpoint]:
    """Steps one after another, named ``s1`` on."""
    return [
        named(f"s{n}", f"s{n - 1}" if n > 1 else None, job_id=job, step=n, **fields)
        for n, fields in enumerate(steps, start)
    ]


def batch(tasks: str, solved: int) -> dict[str, object]:
    """A step on a letter's task each, of whose eight rollouts so many are solved."""
    return {"groups": groups(tasks, solved), "mean_reward": solved / 8, "num_traces": 8}


def compared(tree: Tree, left: int, right: int) -> Comparison:
    return compare(Side(tree, left), Side(tree, right))


def tasks_sampled(both: Comparison) -> list[tuple[tuple[int, ...], str]]:
    return [
        (sampled.positions, "".join(sorted(group.task_slug for group in sampled.groups)))
        for sampled in both.sampled
    ]


ALL = "abcd"
DROP = Tree.of(lineage(*[batch(ALL, 6)] * 5, *[batch(ALL, 1)] * 4))
"""The weights of s1 to s4 solve six of eight, those of s5 to s8 one: s5 broke it."""


def test_where_neighbours_have_the_same_tasks_their_own_rollouts_tell_it() -> None:
    both = compared(DROP, 3, 4)
    assert tasks_sampled(both) == [((3,), ALL), ((4,), ALL)]
    assert both.tasks is not None
    assert both.tasks.rollouts == (32, 32)
    assert training_sentences(both)[-1] == "Sampled from A s4 (32 rollouts); B s5 (32 rollouts)."


def test_tasks_that_differ_are_counted_where_the_mean_shows_nothing() -> None:
    few = Tree.of(lineage(*[batch("abc", 8)] * 5, *[batch("abc", 0)] * 4))
    mean, alone, _ = training_sentences(compared(few, 3, 4))
    assert mean.startswith("B − A: no difference in pass@1 is visible with 3 tasks × 8")
    assert alone == "Task by task, 3 regressed and 0 improved beyond chance."


def test_neighbours_on_the_far_side_are_added_where_few_tasks_are_in_common() -> None:
    tasks = ["abcd", "efgh", "ijkl", "mnop"]
    rising = Tree.of(lineage(*[batch(tasks[n % 4], 4) for n in range(12)]))
    both = compared(rising, 3, 4)
    every = "".join(tasks)
    assert tasks_sampled(both) == [((0, 1, 2, 3), every), ((4, 5, 6, 7), every)]
    assert around(Side(rising, 3), Side(rising, 4)) == [3, 2, 1, 0, ROOT]
    assert around(Side(rising, 4), Side(rising, 3)) == [4, 5, 6, 7, 8, 9, 10, 11]
    back = rising.with_head(rising[4].id)
    assert around(Side(back, 4), Side(back, 3)) == [4, 5, 6, 7, 8, 9, 10, 11], "rolled back to it"
    said = training_sentences(both)
    assert "no difference in pass@1 is visible with 16 tasks × 8" in said[0]
    assert said[-1] == "Sampled from A s1 … s4 (128 rollouts); B s5 … s8 (128 rollouts)."
    assert sampled_names(both, heldout=False) == ("A s1 … s4", "B s5 … s8")


def test_as_many_are_added_as_there_are_steps_between_the_two() -> None:
    even = Tree.of(lineage(*[batch(ALL, 4)] * 20))
    both = compared(even, 8, 12)
    assert tasks_sampled(both) == [((5, 6, 7, 8), ALL), ((12, 13, 14, 15), ALL)]


def test_none_is_added_whose_reward_differs_beyond_chance() -> None:
    """A side stands for weights like those that it is named by."""
    steps = [batch(ALL, 7)] * 3 + [batch(ALL, 0)] * 6
    tree = Tree.of(lineage(*steps))
    assert around(Side(tree, 3), Side(tree, 4)) == [3, 2], "s1 and s2 solve seven of eight"
    assert around(Side(tree, 1), Side(tree, 2)) == [1, 0, ROOT]


def test_a_step_is_looked_at_once_for_each_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask for a side's neighbours: in a long run this was most of the time."""
    looked: list[str] = []

    def spread(step: Checkpoint) -> Spread:
        looked.append(step.id)
        return reward_spread(step)

    monkeypatch.setattr("hud_tui.rl.sides.reward_spread", spread)
    even = Tree.of(lineage(*[batch(ALL, 4)] * 20))
    both = compared(even, 8, 12)
    heldout_pairs(both.left, both.right)
    assert looked, "or nothing is measured"
    assert max(map(looked.count, looked)) <= 2


def test_the_newest_borrows_from_those_before_it_that_are_nearer_to_it() -> None:
    even = Tree.of(lineage(*[batch(ALL, 4)] * 9))
    assert around(Side(even, 8), Side(even, 3)) == [8, 7, 6]
    assert tasks_sampled(compared(even, 3, 8))[1] == ((6, 7), ALL)
    both = compared(even, 7, 8)
    assert training_sentences(both) == [
        "No training rollouts sampled from B are stored: the tasks cannot be compared."
    ]
    assert both.tasks is None


def test_what_the_model_started_from_is_a_side_like_any_other() -> None:
    both = compared(DROP, ROOT, 0)
    assert tasks_sampled(both) == [((ROOT,), ALL), ((0,), ALL)]
    assert (both.left.name, both.left.node, relation(both)) == (
        *("base", None),
        "B is 1 step after A.",
    )
    assert [[step.id for step in batches.steps] for batches in both.batches] == [["s1"]]


def test_other_tasks_are_said_to_be_other_ones() -> None:
    tree = Tree.of(lineage(batch("a", 4), batch("b", 4), batch("cd", 4)))
    both = compare(
        Side(tree, 0), Side(Tree.of(lineage(batch("x", 1), batch("yz", 1))), 0, "m", "other")
    )
    assert training_sentences(both) == [
        "No task was sampled from both: 4 tasks from A, 3 tasks from B."
    ]
    assert (both.meet, both.batches, relation(both)) == (None, [], "They are of different models.")
    assert both.right.name == "other s1"


def test_the_steps_between_are_those_that_were_trained_on() -> None:
    line = compared(DROP, 1, 4).batches
    assert [(b.title, [s.id for s in b.steps]) for b in line] == [
        ("between them", ["s3", "s4", "s5"])
    ]
    assert [s.id for s in compared(DROP, 4, 1).batches[0].steps] == ["s3", "s4", "s5"]
    forked = Tree.of([*lineage(*[batch(ALL, 4)] * 3), named("x", "s1"), named("y", "x")])
    both = compared(forked, 2, 4)
    assert [(b.title, [s.id for s in b.steps]) for b in both.batches] == [
        ("from there to A", ["s2", "s3"]),
        ("from there to B", ["x", "y"]),
    ]
    assert around(both.left, both.right) == [2, 1]


def test_batches_of_other_tasks_have_no_common_reward_but_common_updates() -> None:
    first = lineage({**batch("ab", 4), "metrics": {"grad_norm": 1.0}})
    second = lineage({**batch("cd", 4), "metrics": {"grad_norm": 2.0}}, job="other", start=2)
    both = compared(Tree.of([*first, *second]), 0, 1)
    deltas = {pair.key: pair.delta for pair in both.steps}
    assert (deltas["reward_mean"], deltas["grad_norm"]) == (None, 1.0)


def test_what_moved_is_listed_first_then_the_steps_then_the_rest() -> None:
    rows = [(row.key, row.heading) for row in change_rows(compared(DROP, 3, 4))]
    assert rows[0] == ("heading 4 training tasks regress", True)
    assert [key for key, _ in rows[1:5]] == [f"training {slug}" for slug in ALL]
    assert rows[5:] == [("heading 1 step between them", True), ("step s5", False)]
    assert [cell.plain for cell in change_rows(compared(DROP, 3, 4))[-1].cells] == [
        *("s5", "", "", "", "4×8 reward .750")
    ]
    same = Tree.of(lineage(*[batch(ALL, 4)] * 4))
    titles = [row.key for row in change_rows(compared(same, 0, 1)) if row.heading]
    assert titles == [
        "heading 1 step between them",
        "heading 4 training tasks do not differ beyond chance individually",
    ]


def evaluated(id_: str, split: str = "heldout", rollouts: int = 36) -> Evaluation:
    return Evaluation(
        id=id_, mean_reward=0.5, num_tasks=36, num_traces=rollouts, split=split, name="arith"
    )


def test_a_side_s_neighbours_are_on_the_way_to_the_head_else_to_its_newest_descendant() -> None:
    """s1 – s2 – s3 – s4, and from s2 the branch x – y; from y nothing goes on but z."""
    steps = [batch(ALL, 4)] * 4
    nodes = [*lineage(*steps), named("x", "s2", **batch(ALL, 4)), named("y", "x", **batch(ALL, 4))]
    tree = Tree.of([*nodes, named("z", "y", **batch(ALL, 4))])
    at_s4, at_z = tree.with_head("s4"), tree.with_head("z")
    assert around(Side(at_s4, 1), Side(at_s4, 0)) == [1, 2, 3]
    assert around(Side(at_z, 1), Side(at_z, 0)) == [1, 4, 5, 6]
    assert around(Side(at_s4, 4), Side(at_s4, 1)) == [4, 5, 6]
    assert around(Side(at_z, 2), Side(at_z, 6)) == [2, 3], "diverged: after the common one"
    other = Tree.of(lineage(*steps, *steps))
    assert around(Side(at_s4, 2), Side(other, 7)) == [2, 3, 1, 0, ROOT], "of another model"


def test_rewards_are_alike_where_their_intervals_overlap() -> None:
    """The means of these four groups are .5 ± .66 and 1.2 ± .66."""
    sure, unsure = batch(ALL, 4), {"mean_reward": 0.9, "num_traces": 8}
    tree = Tree.of(lineage(*[sure] * 2, *[unsure] * 2))
    assert around(Side(tree, 2), Side(tree, 3)) == [2, 1, 0, ROOT], (
        "without groups nothing is known"
    )
    wide = [
        {
            "groups": [Group(task_slug=slug, rewards=[mean + off]) for slug, off in offs.items()],
            "mean_reward": mean,
        }
        for mean in (0.5, 1.2)
        for offs in [dict(zip(ALL, (-0.5, -0.1, 0.1, 0.5), strict=True))]
    ]
    tree = Tree.of(lineage(*[wide[0]] * 2, *[wide[1]] * 2))
    assert around(Side(tree, 2), Side(tree, 3)) == [2, 1, 0, ROOT], "half of each"


def test_what_the_runs_differ_in_is_said_first() -> None:
    one = compared(DROP, 3, 4)
    assert made_sentences(one) == [
        "B is 1 step after A.",
        "Both are of one run, with the same parameters.",
    ]
    tree = Tree.of([*lineage(batch(ALL, 4)), *lineage(batch(ALL, 4), job="second", start=2)])
    both = compared(tree, 0, 1)
    assert made_sentences(both) == ["B is 1 step after A."]
    assert not both.is_of_one_run
    assert not compared(tree, ROOT, 0).is_of_one_run
    differs, alike = "differ in learning rate 1e-4 → 3e-4", "have the same parameters"
    for rate, said in ((3e-4, differs), (1e-4, alike)):
        runs_of = [
            Work(id=str(n), parameters={"learning_rate": r}) for n, r in ((1, 1e-4), (2, rate))
        ]
        told = replace(both, settings=differences(runs_of))
        assert made_sentences(told)[1] == f"Their runs {said}."


@pytest.mark.parametrize(
    ("digests", "compares"), [(("a", "a"), True), (("a", "b"), False), (("b", "b"), False)]
)
def test_held_out_rewards_compare_only_on_the_same_tasks(
    digests: tuple[str, str], compares: bool
) -> None:
    """Most checkpoints were evaluated on a; those on b stand apart."""
    evaluations = [
        [Evaluation(id=d, mean_reward=0.5, num_tasks=9, num_traces=9, tasks_digest=d)]
        for d in ("a", "a", "a", *digests)
    ]
    steps = lineage(*({"evaluations": each} for each in evaluations))
    both = compared(Tree.of(steps), 3, 4)
    [pair] = [pair for pair in both.metrics if pair.key == "heldout_reward"]
    assert pair.compares is compares


def test_the_nearest_held_out_rollouts_are_looked_for() -> None:
    told = {"metrics": {"heldout_reward": 0.5}}
    steps = lineage({}, {}, told, {}, {}, {}, told, {})
    steps[4] = steps[4].model_copy(update={"evaluations": [evaluated("e", rollouts=72)]})
    side = Side(Tree.of(steps), 4)
    assert evaluation_of(side, 4) == side.evaluations_of(4)[0]
    several = [evaluated("small", rollouts=9), evaluated("large"), evaluated("train", "train", 99)]
    steps[7] = steps[7].model_copy(update={"evaluations": several})
    assert evaluation_of(Side(Tree.of(steps), 7), 7) == several[1]
    assert evaluation_of(side, 3) is None
    assert heldout_step(side, 1) == ("run", 3), "s3 reports what was sampled from s2"
    assert heldout_step(side, 4) is None
    assert heldout_pairs(Side(side.tree, 2), side) == [(1, 4), (1, 5)]
    assert heldout_pairs(side, Side(side.tree, 2)) == [(4, 1), (5, 1)]


def test_a_step_has_another_number_in_its_run_than_in_the_tree() -> None:
    tree = Tree.of([*lineage({}, {}), *lineage({}, {}, job="second", start=3)])
    assert [step_of_run(tree, step) for step in tree] == [1, 2, 1, 2]


def test_which_held_out_rollouts_are_missing_is_said() -> None:
    tree = Tree.of(lineage({}, {"metrics": {"heldout_reward": 0.5}}, {}))
    none = compared(Tree.of(lineage({}, {}, {})), 1, 2)
    assert heldout_sentences(none) == ["No held-out rollouts of A or B are stored."]
    assert heldout_sentences(compared(tree, 0, 2)) == ["No held-out rollouts of B are stored."]
    both = Tree.of(
        lineage({}, {"metrics": {"heldout_reward": 0.5}}, {"metrics": {"heldout_reward": 0}})
    )
    apart = compared(both, 0, 1)
    assert heldout_sentences(apart) == [
        "The stored held-out rollouts of A and B are of different tasks."
    ]
    unread = replace(apart, unread="the service does not answer")
    assert heldout_sentences(unread) == [
        "Their held-out rollouts cannot be read: the service does not answer."
    ]


def test_held_out_rollouts_say_where_they_are_from() -> None:
    tree = Tree.of(lineage({}, {}, {}))
    before, after = groups(ALL, 2, 2), groups("abc", 1, 2)
    delta = difference(Scores.of(before), Scores.of(after))
    assert delta is not None
    both = compared(tree, 0, 2)
    heldout = Heldout(HeldoutRollouts(0, before), HeldoutRollouts(1, after, evaluated("e")), delta)
    told = replace(both, heldout=heldout)
    assert sampled_names(told, heldout=True) == ("A s1", "B s2")
    said = heldout_sentences(told)
    assert said[0].startswith("B − A: no difference in pass@1 is visible with 3 tasks × 2")
    assert said[1] == (
        "Sampled from A s1 (8 rollouts, in training); B s2 (6 rollouts, evaluated on arith); "
        "left out: 1 task of one only."
    )


def test_a_crosshair_on_rollouts_asks_for_the_update_before_them() -> None:
    run = runs.run_of(12)
    assert weights_at(run, "reward_mean", 6) == 5, "the reward of step 7 is that of step-000006"
    assert weights_at(run, "grad_norm", 6) == 6
    assert weights_at(run, "reward_mean", 12) is None
    assert pair_at(run, "reward_mean", 6) == (4, 5)
    assert pair_at(run, "grad_norm", 6) == (5, 6)
    assert pair_at(run, "reward_mean", None) == (9, 10), "the newest"
    assert pair_at(run, "reward_mean", 1) == (ROOT, 0)
    assert pair_at(run, "reward_mean", 0) == (ROOT, 0)
    assert pair_at(Run(), "reward_mean", None) is None


def alarm(row: int, raised: int, before: str | None) -> Alarm:
    return Alarm(
        *("reward_collapse", "reward collapse", Level.WARN, True, row, row + 1),
        *(f"c{row + 1}", before, row + 2, f"c{row + 2}", raised, None, (), "", ""),
        metric="reward_mean",
    )


@pytest.mark.parametrize(
    ("raised", "good", "pair"), [(9, "c4", (3, 7)), (9, None, (4, 7)), (6, "c5", (4, 5))]
)
def test_an_alarm_asks_from_the_last_healthy_one_to_where_it_was_raised(
    raised: int, good: str | None, pair: tuple[int, int]
) -> None:
    run = Run(model=runs.MODEL, alarms=Report(alarms=(alarm(5, raised, good),))).fold(
        TreeRead(checkpoints=runs.checkpoints(12))
    )
    for row in (None, 5):
        assert pair_at(run, "reward_mean", row) == pair
    assert pair_at(run, "reward_mean", 8) == (6, 7), "elsewhere it is that step"
    assert pair_at(run, "grad_norm", None) == (10, 11), "of another metric"
