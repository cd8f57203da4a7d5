"""The monitor: the detectors over a head's lineage, wherever the head goes."""

from datetime import UTC, datetime

from hud_tui.rl.alarms.demos import BEGAN, PATHOLOGIES, STEP_S, Pathology
from hud_tui.rl.alarms.monitor import AlarmMonitor
from hud_tui.rl.checkpoint_tree import Tree
from hud_tui.wire import Checkpoint, JobStatus
from tests.unit.inspecting import inspect_lineage

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


def test_read_in_slices_it_says_what_it_says_at_once() -> None:
    tree, monitor = tree_of(BAD, 300), AlarmMonitor()
    assert monitor.follow(tree, most=70)
    assert (monitor.behind, monitor.report().waiting, monitor.report().steps) == (230, 230, 70)
    while monitor.behind:
        assert monitor.follow(tree, most=70)
    assert not monitor.follow(tree)
    assert monitor.report() == inspect_lineage(tree).report()


def test_steps_that_come_while_it_is_behind_are_read_too() -> None:
    tree, monitor = tree_of(BAD, 200), AlarmMonitor()
    monitor.follow(tree, most=50)
    tree = grow(tree, BAD, 201, 260)
    while monitor.behind or monitor.follow(tree, most=50):
        monitor.follow(tree, most=50)
    assert monitor.report().steps == 260
    assert monitor.report() == inspect_lineage(tree).report()


def test_a_tree_that_is_read_anew_is_not_judged_anew() -> None:
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


def test_base_weights_have_nothing_to_judge() -> None:
    monitor = AlarmMonitor()
    assert not monitor.follow(Tree())
    assert monitor.report().steps == 0
    monitor.follow(tree_of(BAD, 20))
    assert monitor.follow(tree_of(BAD, 20).with_head(None))
    assert monitor.report().steps == 0


def test_a_silent_run_is_among_the_alarms() -> None:
    monitor = AlarmMonitor()
    monitor.follow(tree_of(BAD, 20), JobStatus(status="running", step=20, steps=100))
    assert monitor.report(5.9).alarms == ()
    [alarm] = monitor.report(15.0).alarms
    assert (alarm.name, alarm.onset, alarm.before_id) == ("stall", 20, "c20")
