"""The monitor: the detectors over a head's lineage, wherever the head goes."""

from datetime import UTC, datetime

import pytest

from hud_tui.rl.alarms.demos import BEGAN, HEALTHY, PATHOLOGIES, STEP_S, Pathology, noise
from hud_tui.rl.alarms.monitor import AlarmMonitor
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.wire import Checkpoint, Group, JobStatus
from tests.unit.inspecting import inspect_lineage
from tests.unit.trees import chain

BAD = PATHOLOGIES["zero-variance"]


def node(name: str, parent: str | None, metrics: dict[str, float], head: bool) -> Checkpoint:
    at = datetime.fromtimestamp(BEGAN + STEP_S * int(name[1:]), UTC).isoformat()
    return Checkpoint(
        id=name, prev_model_checkpoint_id=parent, is_active=head, metrics=metrics, created_at=at
    )


def tree_of(pathology: Pathology, steps: int) -> Tree:
    return Tree.of(
        node(f"c{n}", f"c{n - 1}" if n > 1 else None, pathology.metrics(n), n == steps)
        for n in range(1, steps + 1)
    )


def grow(tree: Tree, pathology: Pathology, first: int, last: int, line: str = "c") -> Tree:
    parent = None if tree.head is None else tree[tree.head].id
    for n in range(first, last + 1):
        tree = tree.add(node(f"{line}{n}", parent, pathology.metrics(n), True))
        parent = f"{line}{n}"
    return tree


def test_read_in_slices_or_anew_it_says_what_it_says_at_once() -> None:
    tree, monitor = tree_of(BAD, 200), AlarmMonitor()
    assert monitor.follow(tree, most=70)
    assert (monitor.behind, monitor.report().waiting, monitor.report().steps) == (130, 130, 70)
    tree = grow(tree, BAD, 201, 260)
    while monitor.follow(tree, most=70):
        assert monitor.report().steps + monitor.behind == 260
    assert monitor.behind == 0
    assert monitor.report() == inspect_lineage(tree).report()

    monitor = AlarmMonitor()
    assert monitor.follow(tree_of(BAD, 200))
    assert not monitor.follow(tree_of(BAD, 200))
    assert monitor.follow(tree_of(BAD, 201))
    assert monitor.report().steps == 201


def test_when_the_head_is_set_back_what_was_left_is_kept_apart() -> None:
    tree, monitor = tree_of(BAD, 200), AlarmMonitor()
    monitor.follow(tree)
    [alarm] = monitor.report().alarms
    assert alarm.active
    monitor.follow(tree.with_head(alarm.before_id))
    report = monitor.report()
    assert report.alarms == ()
    assert [(left.id, left.active) for left in report.left] == [(alarm.id, False)]
    assert report.steps == alarm.onset - 1
    branch = grow(tree.with_head(alarm.before_id), BAD, alarm.onset, 200, "d")
    monitor.follow(branch)
    assert [found.checkpoint_id for found in monitor.report().alarms] == [f"d{alarm.onset}"]


def test_base_weights_have_nothing_to_judge_and_a_silent_run_is_among_the_alarms() -> None:
    monitor = AlarmMonitor()
    assert not monitor.follow(Tree())
    assert monitor.report().steps == 0
    monitor.follow(tree_of(BAD, 20))
    assert monitor.follow(tree_of(BAD, 20).with_head(None))
    assert monitor.report().steps == 0

    monitor = AlarmMonitor()
    monitor.follow(tree_of(BAD, 20), JobStatus(status="running", step=20, steps=100))
    assert monitor.report(5.9).alarms == ()
    [alarm] = monitor.report(15.0).alarms
    assert (alarm.name, alarm.onset, alarm.before_id) == ("stall", 20, "c20")


def runs_of(*runs: tuple[str, str, int, float], says: bool) -> Tree:
    """Runs on one line.

    Args:
        runs: Each one's id, its tasks, its steps and their mean reward.
        says: Whether the service names a run's tasks, or only those of its rollouts.
    """
    taken = [(run, tasks, mean) for run, tasks, steps, mean in runs for _ in range(steps)]
    steps = []
    for n, (run, tasks, mean) in enumerate(taken, 1):
        metrics = {
            "reward_mean": mean + 0.01 * noise(n),
            "heldout_reward": mean + 0.01 * noise(n + 1),
            "entropy": 2 * (1.01 - mean),
            "grad_norm": 1.2 - mean,
        }
        groups = [Group(task_slug=f"{tasks}-{(n + i) % 9}", rewards=[0, 1]) for i in range(3)]
        known = {"job_id": run, "tasks_digest": tasks if says else None, "groups": groups}
        steps.append({**known, "metrics": HEALTHY.metrics(40) | metrics})
    return Tree.of(chain(*steps, first=1))


@pytest.mark.parametrize("says", [True, False])
def test_rewards_on_other_tasks_are_no_collapse(says: bool) -> None:
    """Nor is a gradient or an entropy that is usual there; and the way back is none either."""
    tree = runs_of(("a", "long", 200, 0.98), ("b", "mixed", 60, 0.6), says=says)
    assert inspect_lineage(tree).report().active == ()
    tree = runs_of(
        ("a", "mixed", 60, 0.6), ("b", "long", 60, 0.98), ("c", "mixed", 60, 0.5), says=says
    )
    assert inspect_lineage(tree).report().active == ()


@pytest.mark.parametrize("says", [True, False])
def test_a_further_run_on_the_same_tasks_is_compared_with_the_one_before(says: bool) -> None:
    tree = runs_of(("a", "long", 60, 0.9), ("b", "long", 60, 0.4), says=says)
    found = {alarm.name: alarm for alarm in inspect_lineage(tree).report().active}
    assert {"reward_collapse", "heldout_collapse"} <= set(found)
    assert found["reward_collapse"].shown == 61


def test_a_collapse_on_other_tasks_is_found_and_ends_where_others_begin() -> None:
    tree = runs_of(
        *(("a", "long", 60, 0.98), ("b", "mixed", 60, 0.6), ("c", "mixed", 60, 0.1)), says=True
    )
    monitor = AlarmMonitor()
    monitor.follow(tree)
    alarm = next(one for one in monitor.report().active if one.name == "reward_collapse")
    assert (alarm.shown, alarm.before_id) == (121, "c119")
    [peak] = [one.value for one in alarm.evidence if one.name == "peak"]
    assert 0.5 < peak < 0.7

    fell = (("a", "long", 60, 0.9), ("b", "long", 60, 0.4))
    tree = runs_of(*fell, ("c", "mixed", 30, 0.4), says=True)
    ended = {alarm.name: alarm for alarm in inspect_lineage(tree).report().alarms}
    assert (ended["reward_collapse"].active, ended["reward_collapse"].ended) == (False, 121)
    assert ended["reward_collapse"].evidence
