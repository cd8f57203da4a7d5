"""The moves of a head from several sources, who made them, and the reflog."""

from dataclasses import replace

import pytest

from hud_tui.audit_log import AuditEntry
from hud_tui.client.history import logged_moves
from hud_tui.events import Act, Actor, HeadMoved, MovesRead, TreeRead
from hud_tui.rl.history import SAME_S, History, attributed, merged, who
from hud_tui.rl.reflog import ReflogLine, reflog
from hud_tui.rl.run import Run
from hud_tui.rl.tasks.task import HELD_OUT
from hud_tui.rl.text import moment
from hud_tui.wire import Checkpoint, Evaluation, WorkState

APP, OTHER = Actor(program="app", host="here"), Actor(program="headless", host="tower")


def move(
    to: str, at: float, by: Actor | None = None, previous: str = "a", act: Act = Act.SET
) -> HeadMoved:
    ends = {"checkpoint_id": to, "previous": previous}
    return HeadMoved.model_validate({"at": at, "cause": "set", "act": act, "by": by, **ends})


@pytest.mark.parametrize(
    ("first", "then", "result"),
    [
        (move("b", 2.0, APP), move("b", 1.0), [move("b", 1.0, APP)]),
        (move("b", 1.0), move("b", 2.0, APP, "z"), [move("b", 1.0, APP)]),
        (
            move("b", 2.0, APP, act=Act.UNDO),
            move("b", 1.0),
            [move("b", 1.0, APP, act=Act.UNDO)],
        ),
        (move("b", 1.0), move("b", 2.0), [move("b", 1.0)]),  # seen by two apps
        (move("b", 1.0, APP), move("b", 1.0, APP), [move("b", 1.0, APP)]),  # read, and told
        (move("b", 1.0), move("b", 2.0, None, "z"), None),  # a step between
        (move("b", 1.0, APP), move("b", 2.0, OTHER), None),
        (move("b", 1.0, APP), move("b", 2.0 + SAME_S), None),
        (move("b", 1.0), move("c", 1.0, APP), None),
    ],
)
def test_a_move_from_two_sources_is_one(
    first: HeadMoved, then: HeadMoved, result: list[HeadMoved] | None
) -> None:
    for moves in ([first, then], [then, first]):
        both = sorted(moves, key=lambda move: move.at)
        assert list(merged(moves)) == (both if result is None else result)


def test_there_and_back_again_is_three_moves() -> None:
    moves = [move("b", 1.0, previous="a"), move("a", 2.0, previous="b"), move("b", 3.0)]
    assert list(merged(reversed(moves))) == moves


def test_a_service_s_moves_stay_as_they_are_and_the_log_says_who_made_them() -> None:
    kept = [move("b", 10.0), move("c", 20.0, OTHER), move("b", 30.0)]
    sent = [move("b", 9.9, APP, "old", Act.REDO), move("c", 19.9, APP), move("d", 25.0, APP)]
    assert attributed(kept, sent) == (move("b", 10.0, APP, act=Act.REDO), *kept[1:])


def test_the_log_has_what_was_done_of_one_model() -> None:
    set_head = AuditEntry(5.0, "set head", "m", before="a", after="b", outcome="done", by="python")
    entries = [
        set_head,
        replace(set_head, outcome="unknown"),
        replace(set_head, model="other"),
        replace(set_head, verb="pin"),
        replace(set_head, at=6.0, before="", act="undo"),
        replace(set_head, at=7.0, act="no act"),
    ]
    moves = list(logged_moves(entries, "m"))
    found = [(move.at, move.previous, move.checkpoint_id, move.act) for move in moves]
    assert found == [(5.0, "a", "b", "set"), (6.0, None, "b", "undo"), (7.0, "a", "b", "set")]
    assert {move.by and move.by.program for move in moves} == {"python"}


@pytest.mark.parametrize(
    ("by", "text"),
    [
        (None, "unknown"),
        (APP, "app on here"),
        (OTHER, "command line on tower"),
        (Actor(program="hud-python/0.6"), "hud-python/0.6"),
        (Actor(program="", host="10.0.0.9"), "unknown program on 10.0.0.9"),
        (Actor(program="\x1b[2J", host="a\nb"), "␛[2J on a⏎b"),
    ],
)
def test_who_made_a_move(by: Actor | None, text: str) -> None:
    assert who(by) == text


def test_since_when_no_move_is_missing() -> None:
    assert History(since=0.0).completeness == "complete"
    assert History(since=1.7e9).completeness == "complete since 2023-11-14 22:13 UTC"
    assert History().completeness == "only moves that this machine sent or saw"


def node(number: int, parent: str | None, job_id: str | None) -> Checkpoint:
    return Checkpoint(
        id=f"c{number}",
        name=f"step-{number}",
        prev_model_checkpoint_id=parent,
        created_at=f"2023-11-14T22:00:{number:02}+00:00",
        job_id=job_id,
    )


def test_the_reflog_has_moves_steps_and_evaluations_in_order() -> None:
    began = 1699999200.0
    nodes = [node(1, None, "j1"), node(2, "c1", "j1"), node(3, "c2", "j1")]
    nodes += [node(11, "c1", "j1"), node(12, "c11", "j2"), node(13, "c12", None)]
    scored = Evaluation(mean_reward=0.75, num_tasks=4, num_traces=4, split=HELD_OUT)
    work = {"kind": "evaluation", "status": "succeeded", "result": scored}
    own = WorkState(id="e1", job_id="e1", checkpoint_id="c2", finished_at=began + 5.5, **work)
    base = WorkState(id="e2", job_id="e2", finished_at=began + 20, **work)
    of_run = WorkState(id="e3", job_id="j1", checkpoint_id="c1", finished_at=began + 1, **work)
    run = Run(evaluations={evaluation.id: evaluation for evaluation in (own, of_run, base)})
    run = run.fold(TreeRead(checkpoints=tuple(nodes)))
    moves = (
        move("c1", began + 5, OTHER, "c3"),
        move("c3", began + 6, APP, "c1", Act.UNDO),
        move("c1", began + 7, None, "c3"),
    )
    run = run.fold(MovesRead(moves=moves, since=0.0))
    assert [(line.what, line.before, line.after, line.by) for line in reflog(run)] == [
        ("3 steps", "base", "step-3", "job j1"),
        ("head set", "step-3", "step-1", "command line on tower"),
        ("evaluated .750", "", "step-2", ""),
        ("head set, undo", "step-1", "step-3", "app on here"),
        ("head set", "step-3", "step-1", "unknown"),
        ("1 step", "step-1", "step-11", "job j1"),
        ("1 step", "step-11", "step-12", "job j2"),
        ("1 step", "step-12", "step-13", ""),
        ("evaluated .750", "", "base", ""),
    ]
    assert reflog(run)[0] == ReflogLine(began + 3, "3 steps", "base", "step-3", "c3", "job j1")
    assert moment(began) == "2023-11-14 22:00 UTC"
    assert run.fold(MovesRead(moves=moves, since=0.0)).history == run.history
