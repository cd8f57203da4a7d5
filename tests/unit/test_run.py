"""The snapshot of a run: events fold into it, how far it is, and how far behind."""

from collections.abc import Callable
from datetime import UTC, datetime
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.client import feed
from hud_tui.client.feed import FRESH_S, Lag
from hud_tui.events import (
    CheckpointAdded,
    Event,
    HeadMoved,
    RolloutDone,
    StepTaken,
    TreeRead,
    WorkChanged,
)
from hud_tui.rl.metrics import Series
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
from hud_tui.rl.run import LOG, LeftBehind, Run, left_behind
from hud_tui.rl.runs import eta_s, run_of_job
from hud_tui.rl.text import seconds
from hud_tui.rl.work import is_active
from hud_tui.tui.widgets.run_status import leaves_out
from hud_tui.wire import Checkpoint, Group, Job, WorkState
from tests.unit.trees import chain, tree_of


def column(run: Run, key: str = "reward_mean") -> list[float]:
    return list(run.series.values(key))


def state(run: Run) -> tuple[object, ...]:
    """All that a screen could show of it."""
    tree = run.tree
    return ([n.id for n in tree], tree.head, tree.best, column(run), run.log, run.rollouts)


def expected(run: Run) -> list[float]:
    """The rewards of the head's lineage, worked out from scratch."""
    tree = run.tree
    return list(Series.of(tree[p] for p in tree.path(tree.head)).values("reward_mean"))


@given(st.data())
def test_the_series_is_the_heads_lineage_after_any_events(data: st.DataObject) -> None:
    run, seen = Run(), []
    for number in range(data.draw(st.integers(0, 25))):
        ids = [node.id for node in run.tree]
        if ids and data.draw(st.integers(0, 2)) == 0:
            chosen = data.draw(st.none() | st.sampled_from(ids))
            event: Event = HeadMoved(checkpoint_id=chosen, cause="set", at=float(number))
        else:
            parent = data.draw(st.none() | st.sampled_from(ids)) if ids else None
            active = data.draw(st.booleans())
            node = Checkpoint(
                id=f"c{number}",
                prev_model_checkpoint_id=parent,
                is_active=active,
                mean_reward=number / 10,
            )
            event = CheckpointAdded(checkpoint=node)
        run = run.fold(event)
        assert column(run) == expected(run)
        assert state(run.fold(event)) == state(run)
        seen.append((run, state(run)))
    for version, was in seen:
        assert state(version) == was


def test_a_step_arrives_as_checkpoint_head_and_step() -> None:
    run = Run().fold(TreeRead(checkpoints=()))
    stamp = "2026-01-01T00:00:05+00:00"
    node = Checkpoint(id="a", name="step-000001", mean_reward=0.25, created_at=stamp)
    groups = [Group(task_slug="t", rewards=[0.0, 0.5])]
    for event in (
        CheckpointAdded(checkpoint=node),
        HeadMoved(checkpoint_id="a", cause="step"),
        StepTaken(step=1, checkpoint_id="a", metrics={"reward_mean": 0.25}, groups=groups),
    ):
        run = run.fold(event)
    assert run.head is node
    [entry] = run.log
    assert entry.text == "step-000001  reward .250  1 group", "by its checkpoint's name"
    assert entry.at == 1767225605.0, "of an event without a time, when its checkpoint was made"


def test_newer_steps_that_the_head_was_set_back_from_are_counted() -> None:
    nodes = [
        Checkpoint(id=f"c{n}", name=f"step-{n}", prev_model_checkpoint_id=f"c{n - 1}", step=n)
        for n in range(1, 7)
    ]
    run = Run().fold(
        TreeRead(checkpoints=(*nodes[:5], nodes[5].model_copy(update={"is_active": True})))
    )
    assert left_behind(run) is None
    back = run.fold(HeadMoved(checkpoint_id="c4", cause="set"))
    assert left_behind(back) == LeftBehind(2, "step-6", "step-4")
    base = run.fold(HeadMoved(checkpoint_id=None, cause="set"))
    assert left_behind(base) == LeftBehind(6, "step-6", "base")
    on = Checkpoint(id="c7", name="step-7", prev_model_checkpoint_id="c4", step=7, is_active=True)
    assert left_behind(back.fold(CheckpointAdded(checkpoint=on))) is None, "the newest is shown"
    assert left_behind(Run()) is None
    aside = on.model_copy(update={"prev_model_checkpoint_id": "c2", "is_active": False})
    apart = run.fold(CheckpointAdded(checkpoint=aside)).fold(
        HeadMoved(checkpoint_id="c4", cause="set")
    )
    assert left_behind(apart) == LeftBehind(1, "step-7", "step-2", at_head=False)
    assert leaves_out(back).startswith("Head at step-4. 2 steps after it are on another branch")
    assert leaves_out(apart).startswith("1 step after step-2 is on another branch")


def test_a_share_that_is_none_counts_no_groups() -> None:
    groups = [Group(task_slug=slug, rewards=[0.0, 0.0]) for slug in ("add", "mul")]
    for share, said in ((nan, False), (inf, False), (-1.0, False), (0.5, True), (1e308, True)):
        taken = StepTaken(
            step=1, checkpoint_id="c1", metrics={"frac_reward_zero_std": share}, groups=groups
        )
        [line] = Run().fold(taken).log
        assert ("zero-variance" in line.text) is said


def test_a_set_head_is_logged_a_step_s_promotion_is_not_and_the_newest_are_kept() -> None:
    run = Run()
    for name in ("a", "b"):
        run = run.fold(CheckpointAdded(checkpoint=Checkpoint(id=name, name=name)))
    run = run.fold(HeadMoved(checkpoint_id="a", cause="step"))
    assert run.log == ()
    run = run.fold(HeadMoved(checkpoint_id="b", cause="set", at=1.0))
    assert [entry.text for entry in run.log] == ["head set to b"]

    read = [Checkpoint(id=name, name=name, is_active=name == "a") for name in ("a", "b")]
    moved = HeadMoved(checkpoint_id="a", previous="b", cause="set", at=2.0)
    run = run.fold(TreeRead(checkpoints=tuple(read))).fold(moved).fold(moved)
    texts = [entry.text for entry in run.log]
    assert texts == ["head set to b", "head set to a"], "although the tree was read before it"
    run = run.fold(HeadMoved(checkpoint_id="unknown", cause="set", at=3.0))
    assert len(run.log) == 2, "of a checkpoint that is not known the head is not set"

    run = Run()
    for number in range(LOG + 5):
        run = run.fold(StepTaken(step=number, checkpoint_id=str(number), at=float(number)))
    assert len(run.log) == LOG
    assert run.log[-1].text == f"step {LOG + 4}"


def done(step: int, number: int | None, reward: float | None, **more: Any) -> RolloutDone:
    """A rollout of the task t, unless it is told otherwise, and which of its group it is."""
    fields = {"task_slug": "t", "rollout": number, "reward": reward, "trace_id": "i", **more}
    return RolloutDone.model_validate({"step": step, **fields})


def test_rollouts_belong_to_the_step_and_the_attempt_that_is_sampled() -> None:
    run = Run()
    for event in (done(1, 0, 0.5), done(1, 1, 1.0), done(1, 1, 1.0), done(1, 2, None)):
        run = run.fold(event)
    assert run.rollouts == {"t": (0.5, 1.0)}, "one with a number counts once"
    nameless = done(1, None, 0.0)
    assert run.fold(nameless).fold(nameless).rollouts == {"t": (0.5, 1.0, 0.0, 0.0)}
    assert run.fold(done(1, 0, 0.75)).rollouts == {"t": (0.75, 1.0)}, "sampled again"
    again = run.fold(done(1, 0, 1.0, attempt=2, task_slug="c"))
    assert (again.rollouts, again.rollouts_attempt) == ({"c": (1.0,)}, 2)
    run = run.fold(done(2, 0, 0.25)).fold(done(2, 0, 9.0, heldout=True))
    assert run.rollouts == {"t": (0.25,)}
    assert run.rollouts_step == 2


def test_rollouts_are_folded_together_as_one_by_one() -> None:
    told = [done(1, number, 0.5, trace_id=f"i{number}") for number in (0, 1, None, 1)]
    told += [done(1, 0, None), done(1, 0, 0.0, heldout=True), done(1, 0, 1.0, task_slug="c")]
    others = [done(2, 3, 0.25), done(2, 0, 0.75, trace_id="late"), done(2, 0, 1.0, attempt=2)]
    for events in (told, told + others[:2], told + others):
        run = Run()
        for event in events:
            run = run.fold(event)
        together = Run().with_rollouts(events)
        for name in ("rollouts", "rollout_ids", "rollouts_step", "rollouts_attempt"):
            assert getattr(together, name) == getattr(run, name)
    assert run.with_rollouts(told[4:6]) is run, "none is graded"


def test_a_job_is_logged_when_its_status_changes_and_what_goes_by_within_it_once() -> None:
    run, job = Run(), WorkState(id="job-0123456", status="running", created_at=5.0)
    paused, lost = "paused: the server is short of capacity", "step 2: lost: sampled again"
    over = {"status": "succeeded", "reason": "solved: all scored 1.0", "finished_at": 90.0}
    for changed in (
        {},
        {"step": 1},
        {"waits": paused},
        {"waits": paused},
        {"note": lost},
        {"note": lost, "step": 2},
        {"note": "every group had zero variance", "attempt": 2},
        {},
        over,
    ):
        run = run.fold(WorkChanged(work=job.model_copy(update=changed)))
        assert run.training == (changed is not over)
    assert [entry.text for entry in run.log] == [
        "job job-0123 running",
        f"waits: {paused}",
        lost,
        "job job-0123 succeeded: solved: all scored 1.0",
    ]
    assert (run.log[0].at, run.log[-1].at) == (5.0, 90.0), "of an event without a time, the job's"
    late = Run().fold(WorkChanged(work=job, at=7.0))
    assert [entry.at for entry in late.log] == [7.0]


def test_a_word_for_a_status_that_is_not_known_is_no_end() -> None:
    assert [is_active(word) for word in ("queued", "warming_up", "failed", None)] == [
        True, True, False, False,
    ]  # fmt: skip


def test_news_that_a_reading_has_overtaken_does_not_move_the_head_back() -> None:
    """The tree is read between two steps' events and their arrival."""
    nodes = tuple(tree_of([-1, 0, 1], head=2))
    served = (*nodes[:2], nodes[2].model_copy(update={"is_active": True}))
    run = Run().fold(TreeRead(checkpoints=served))
    late = nodes[1].model_copy(update={"is_active": True})
    run = run.fold(CheckpointAdded(checkpoint=late))
    run = run.fold(HeadMoved(checkpoint_id="c1", previous="c0", cause="step"))
    assert run.tree.head == 2
    run = run.fold(HeadMoved(checkpoint_id="c1", previous="c2", cause="set"))
    assert run.tree.head == 1


def run_of(times: list[float], step: int = 0, steps: int | None = None) -> Run:
    steps_taken = chain(*({"created_at": stamp(at)} for at in times))
    job = WorkState(status="running", step=step, steps=steps)
    return Run().fold(TreeRead(checkpoints=tuple(steps_taken))).fold(WorkChanged(work=job))


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
    status = WorkState(
        status="running", id=jobs[-1], step=3, steps=10, parameters={**ALIKE, "seed": 1}
    )
    run = Run().fold(TreeRead(checkpoints=tuple(chain(*nodes))))
    return run.fold(WorkChanged(work=status))


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
    held = run.fold(WorkChanged(work=run.job.model_copy(update={"waits": "no answer"})))
    found = [progress(one) for one in (run, held, endless)]
    assert [(one.fraction, one.eta_s) for one in found if one] == [
        (0.3, 14),
        (0.3, None),
        (None, None),
    ]
    assert progress(Run()) is None
    done = [progress(run_of([0], step=step, steps=2000)) for step in (0, 1999, 2000)]
    assert [progress.percent for progress in done if progress] == ["0 %", "99 %", "100 %"]


def test_the_pace_is_that_which_the_service_reports_with_the_run() -> None:
    run = run_of([0, 2, 4], step=3, steps=10)
    assert run.job is not None
    told = run.fold(WorkChanged(work=run.job.model_copy(update={"step_s": 5.0})))
    header, row = progress(told), run_of_job(Job(id="j", status="running"), None, told.job)
    assert header is not None
    assert header.eta_s == eta_s(row) == 35.0


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
        (WorkState(status="running", step=0), "The first step is being sampled."),
        (WorkState(status="running", step=0, attempt=3), "sampled again, attempt 3"),
        (WorkState(status="failed", step=0), "No steps: the run ended before its first step."),
        (WorkState(status="failed", step=2), "No steps yet."),
    ],
)
def test_a_run_without_steps_says_what_it_waits_for(job: WorkState | None, said: str) -> None:
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


DATE = "Sat, 21 Nov 2026 18:00:00 GMT"
THERE = 1_795_284_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = 100.0
    monkeypatch.setattr(feed, "monotonic", lambda: now)

    def go_on(seconds: float) -> None:
        nonlocal now
        now += seconds

    return go_on


def test_an_event_is_as_late_as_the_service_s_clock_says_where_it_has_a_time(
    clock: Callable[[float], None],
) -> None:
    found = Lag()
    found.opened({"date": DATE})
    clock(50.0)
    found.update(THERE + 10.0)
    assert found.behind_s == pytest.approx(40.0)
    found.update(THERE + 50.0)
    assert found.behind_s == pytest.approx(0.0)

    found = Lag()
    found.opened({"date": DATE})
    found.update(0.0)
    assert found.behind_s == 0


@pytest.mark.parametrize("jump", [-90_000.0, 90_000.0])
def test_nothing_is_late_because_the_service_s_clock_was_set(
    jump: float, clock: Callable[[float], None]
) -> None:
    found, stamp = Lag(), THERE
    found.opened({"date": DATE})
    for shift in (0.0, jump, 0.0):
        for late in (0.0, 3.0, 0.0):
            clock(60.0)
            stamp += 60.0
            found.update(stamp + shift - late)
        assert found.behind_s == pytest.approx(0.0, abs=3.1)
    clock(60.0)
    found.update(stamp + 5.0)
    assert found.behind_s == pytest.approx(55.0, abs=3.1), "what is late is told afterwards, too"


def test_what_was_late_is_told_only_while_more_of_it_comes(clock: Callable[[float], None]) -> None:
    found = Lag()
    found.opened({"date": DATE})
    clock(50.0)
    found.update(THERE)
    assert found.behind_s > 0
    clock(FRESH_S)
    assert found.behind_s == 0


@pytest.mark.parametrize("date", ["", "yesterday", "Sat, 99 Nov 2026 18:00:00 GMT"])
def test_without_a_time_nothing_is_late(date: str, clock: Callable[[float], None]) -> None:
    found = Lag()
    found.opened({"date": date})
    found.update(1.0)
    assert found.behind_s == 0
