"""Work: what is said of a run, an evaluation and a loop, whichever list it is from."""

import pytest

from hud_tui.rl.work import (
    ENDED,
    EVALUATION,
    REPORTED,
    RESUMABLE,
    SUCCEEDED,
    TRAINING,
    Work,
    is_active,
    is_lost,
    stopped,
)
from hud_tui.wire import Job, JobError, WorkState

STATUSES = ("queued", "running", *sorted(ENDED), "warming_up")


def run(status: str, **fields: object) -> Work:
    return Work.of(WorkState(id="r1", status=status, name="arith on m", **fields))


def evaluation(status: str, done: int = 12) -> Work:
    return Work.of(
        WorkState(
            kind="evaluation",
            id="e1",
            model_id="m",
            checkpoint="step-000003",
            status=status,
            done=done,
            total=48,
        )
    )


def listed(status: str | None, **more: object) -> Work:
    return Work.of(Job(id="j1", name="arith on m", status=status, metadata=more or None))


def test_a_status_is_active_has_succeeded_or_is_lost() -> None:
    assert [word for word in STATUSES if is_active(word)] == ["queued", "running", "warming_up"]
    assert [word for word in STATUSES if is_lost(word)] == [
        *("cancelled", "error", "failed", "interrupted")
    ]
    assert not is_active(None)
    assert not is_lost(None)


@pytest.mark.parametrize("status", STATUSES)
def test_what_is_active_can_be_cancelled_and_what_was_cut_short_can_be_resumed(status: str) -> None:
    """In every list alike."""
    row = Work(id="r1", model_id="m", model="m", name="arith on m", done=0, status=status)
    same = [
        *(run(status), evaluation(status), row),
        *(listed(status, kind=kind) for kind in (TRAINING, EVALUATION)),
    ]
    assert {not work.why_no_cancel for work in same} == {status not in ENDED}
    assert {not work.why_no_resume for work in same} == {status in RESUMABLE}


def test_why_not_names_the_work_and_its_status() -> None:
    assert run("running").why_no_resume == "arith on m is running: nothing to resume."
    assert run("succeeded").why_no_resume == "arith on m has ended (succeeded): nothing to resume."
    assert run("failed").why_no_cancel == "arith on m has ended (failed): nothing to cancel."
    assert listed(None).why_no_cancel == "arith on m has ended (–): nothing to cancel."


def test_of_what_a_client_makes_only_the_open_rollouts_can_be_cancelled() -> None:
    reported = listed("running", kind=REPORTED)
    assert reported.why_no_cancel == ""
    loop = Work(id="l", model_id="m", model="m", kind="reported", status="running", done=0)
    assert (
        loop.why_no_cancel == "loop on m is driven from outside: only its own client can cancel it."
    )
    for work in (loop, reported, listed("cancelled"), listed("running")):
        assert work.why_no_resume.endswith("only its own client can resume it.")


def test_progress_is_counted_in_steps_or_in_rollouts() -> None:
    assert run("running", step=3, steps=60).state == "arith on m is running at step 3 of 60"
    assert run("running", step=3, steps=60).count == "3/60"
    assert evaluation("cancelled").state == (
        "The evaluation of step-000003 is cancelled after 12 of 48 rollouts"
    )
    assert listed("running", kind=EVALUATION).count == "0/?"
    assert listed("running", kind=TRAINING, step=3).count == "3"
    assert listed("running", kind=TRAINING, step=True).count == "", "no number"
    assert (listed("running").count, listed("running").state) == ("", "arith on m is running")
    assert evaluation("running").step is None
    assert (run("running", step=3).step, listed("running").step) == (3, None)


def test_why_it_ended_is_asked_for_unless_it_is_told_or_has_succeeded() -> None:
    assert listed("failed", kind=TRAINING).is_untold
    assert not listed("failed", kind=TRAINING, reason="disk").is_untold
    assert not any(listed(status, kind=TRAINING).is_untold for status in (*SUCCEEDED, "running"))
    assert run("failed", error=JobError(message="disk"), reason="solved").why == "disk"
    assert run("succeeded", reason="solved").why == "solved"


@pytest.mark.parametrize("kind", [TRAINING, EVALUATION])
def test_only_a_shutdown_is_an_error(kind: str) -> None:
    assert stopped(kind, "cancelled").error is None
    end = stopped(kind, "interrupted")
    assert (end.status, end.error and end.error.code) == ("interrupted", "interrupted")


def test_nothing_is_trained_on_the_rollouts_of_evaluations_and_trials() -> None:
    kinds = (("reported", "mine"), ("training", "trial of x"), ("reported", "trial of sums on a"))
    trained = [Work("1", kind=kind, name=name).is_trained_on for kind, name in kinds]
    assert trained == [True, True, False]
    assert not Work("1", kind="evaluation", name="mine").is_trained_on
