"""How far a run is, and when it counts as stalled."""

from datetime import UTC, datetime

import pytest

from hud_tui.events import JobChanged, TreeRead
from hud_tui.rl.progress import (
    Liveness,
    State,
    awaiting,
    comparable_step_seconds,
    download_text,
    liveness,
    progress,
    step_seconds,
)
from hud_tui.rl.run import Run
from hud_tui.rl.text import seconds
from hud_tui.wire import Group, JobStatus
from tests.unit.trees import chain


def run_of(times: list[float], step: int = 0, steps: int | None = None) -> Run:
    """A chain with a step at each time, and a job that has come as far."""
    steps_taken = chain(*({"created_at": stamp(at)} for at in times))
    job = JobStatus(status="running", step=step, steps=steps)
    return Run().fold(TreeRead(checkpoints=tuple(steps_taken))).fold(JobChanged(job=job))


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def test_the_pace_is_the_median_of_the_run_s_own_last_steps() -> None:
    assert step_seconds(run_of([0, 1, 2, 3, 50, 51])) == 1
    assert step_seconds(run_of([0])) is None
    assert step_seconds(trained("aaaabbb")) == 2
    assert step_seconds(trained("aaaab")) is None


def trained(
    jobs: str, gap: float = 2.0, slugs: tuple[str, ...] = ("a", "b", "c", "d"), wide: int = 2
) -> Run:
    """A chain whose steps these jobs made, a letter each; the last of them with its parameters.

    Steps of the last job are `gap` seconds apart, all others a minute.
    """
    at, nodes = 0.0, []
    for number, job in enumerate(jobs):
        at += gap if job == jobs[-1] else 60.0
        sampled = [slugs[(wide * number + place) % len(slugs)] for place in range(wide)]
        groups = [Group(task_slug=slug, rewards=[0.0, 1.0]) for slug in sampled]
        nodes.append({"created_at": stamp(at), "job_id": job, "groups": groups})
    status = JobStatus(
        status="running", id=jobs[-1], step=3, steps=10, parameters={**ALIKE, "seed": 1}
    )
    run = Run().fold(TreeRead(checkpoints=tuple(chain(*nodes))))
    return run.fold(JobChanged(job=status))


ALIKE = {"group_size": 2, "tasks_per_step": 2}


@pytest.mark.parametrize(
    ("run", "parameters", "slugs", "pace"),
    [
        (trained("aaaabbb"), {**ALIKE, "seed": 7}, "abcd", 2),
        (trained("aaaabbb"), {**ALIKE, "seed": 7}, "abcdz", 2),  # one was never sampled
        (trained("aaaabbb"), {**ALIKE, "group_size": 8}, "abcd", None),
        (trained("aaaabbb"), {**ALIKE, "tasks_per_step": 8}, "abcd", None),
        (trained("aaaabbb"), ALIKE, "abc", None),
        (trained("aaaabbb", slugs=("a", "b")), ALIKE, "abcdefghijklm", None),
        (trained("aaaab"), ALIKE, "abcd", None),
        (run_of([0, 1, 2]), ALIKE, "a", None),
        (Run(), ALIKE, "a", None),
    ],
)
def test_the_pace_of_the_last_run_is_that_of_one_like_it(
    run: Run, parameters: dict[str, object], slugs: str, pace: float | None
) -> None:
    assert comparable_step_seconds(run, parameters, set(slugs)) == pace


def test_progress_says_how_long_it_still_takes_where_that_can_be_known() -> None:
    run, endless = run_of([0, 2, 4], step=3, steps=10), run_of([0, 2], step=2)
    assert run.job is not None
    held = run.fold(JobChanged(job=run.job.model_copy(update={"waits": "no answer"})))
    found = [progress(one) for one in (run, held, endless)]
    assert [(one.fraction, one.eta_s) for one in found if one] == [
        (0.3, 14),
        (0.3, None),
        (None, None),
    ]
    assert progress(Run()) is None


@pytest.mark.parametrize(
    ("source", "age", "trouble", "silent", "step", "state"),
    [
        ("connecting", None, "", None, None, State.CONNECTING),
        ("stream", 0.2, "", None, None, State.LIVE),
        ("stream", 0.2, "", 9.0, 1.0, State.LIVE),
        ("stream", 0.2, "", 11.0, 1.0, State.STALLED),
        ("poll", 0.2, "", 29.0, 10.0, State.LIVE),
        ("poll", 0.2, "", 31.0, 10.0, State.STALLED),
        ("stream", 30.0, "no route", 31.0, 1.0, State.RECONNECTING),
    ],
)
def test_what_we_see_is(
    source: str,
    age: float | None,
    trouble: str,
    silent: float | None,
    step: float | None,
    state: State,
) -> None:
    assert liveness(source, age, trouble, None, silent, step).state is state


def test_a_time_that_is_none_is_unknown() -> None:
    assert seconds("yesterday") is seconds(None) is None
    assert seconds("1970-01-01T00:00:01+00:00") == 1


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (None, "No steps yet."),
        (JobStatus(status="running", step=0), "The first step is being sampled."),
        (JobStatus(status="running", step=0, attempt=3), "sampled again, attempt 3"),
        (JobStatus(status="failed", step=0), "No steps: the run ended before its first step."),
        (JobStatus(status="failed", step=2), "No steps yet."),
    ],
)
def test_a_run_without_steps_says_what_it_waits_for(job: JobStatus | None, said: str) -> None:
    assert said in awaiting(Run(job=job))


@pytest.mark.parametrize(
    ("size", "total", "said"),
    [
        (12_400_000, 50_100_000, "reading the tree · 12 of 50 MB"),
        (12_400_000, None, "reading the tree · 12 MB"),
        (0, 2_000_000, "reading the tree · 0.0 of 2.0 MB"),
        (900_000, None, "reading the tree · 0.9 MB"),
        (90_000, 190_000, ""),
        (90_000, None, ""),
    ],
)
def test_how_much_of_a_tree_has_come(size: int, total: int | None, said: str) -> None:
    assert download_text(size, total) == said


@pytest.mark.parametrize(("age_s", "said"), [(0.0, "x"), (5.0, ""), (None, "")])
def test_a_silent_line_is_not_said_to_be_read(age_s: float | None, said: str) -> None:
    assert Liveness(State.LIVE, "poll", age_s, reading="x").arriving == said
