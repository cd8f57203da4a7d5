"""The time of a step is accounted for by intervals, whatever overlaps."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hud_tui.rl.stopwatch import EngineCall, Stopwatch, time_metrics
from hud_tui.rl.timeline import (
    DISK,
    ENGINE,
    ENVIRONMENT,
    EVALUATING,
    EVALUATION,
    FORWARD_BACKWARD,
    GRADING,
    LOOP_PARTS,
    MOST_ROLLOUTS,
    MOST_SPANS,
    OF_ENGINE,
    OPTIM_STEP,
    QUEUE,
    REASONS,
    SAMPLING,
    SAVING,
    WAITS,
    ZERO_VARIANCE,
    Account,
    account_all,
    account_of,
    compact,
    compact_rollouts,
    time_sentence,
)
from hud_tui.wire_time import DriverTime, StepTime, TimedRollouts, TimedSpan

TIMES = st.floats(-5, 25, allow_nan=False)
LENGTHS = st.floats(0, 20, allow_nan=False)
SPANS = st.lists(
    st.builds(
        TimedSpan,
        st.sampled_from([*LOOP_PARTS, "of_a_newer_version"]),
        TIMES,
        LENGTHS,
        st.integers(0, 9),
    ),
    max_size=24,
)
BARS = st.lists(
    st.builds(
        TimedRollouts,
        st.uuids().map(str),
        st.sampled_from("abc"),
        TIMES,
        LENGTHS,
        st.integers(1, 9),
        st.sampled_from(["", *REASONS]),
        st.none() | LENGTHS,
    ),
    max_size=24,
)


def step(
    *spans: TimedSpan, seconds: float = 10.0, rollouts: list[TimedRollouts] | None = None
) -> StepTime:
    return StepTime(start=100.0, end=100.0 + seconds, spans=list(spans), rollouts=rollouts or [])


def near(seconds: float) -> object:
    return pytest.approx(seconds, abs=1e-6)


@given(SPANS, st.floats(0, 20))
def test_the_parts_and_what_is_idle_add_up_to_the_step(
    spans: list[TimedSpan], seconds: float
) -> None:
    spent = account_of(step(*spans, seconds=seconds))
    assert sum(spent.parts.values()) + spent.idle == near(seconds)
    assert all(0 <= part <= seconds + 1e-9 for part in (*spent.parts.values(), spent.idle))
    assert sum(map(spent.share, spent.parts)) + spent.of_time(spent.idle) == near(
        float(spent.seconds > 0)
    )


@given(SPANS)
def test_no_part_has_more_than_it_was_busy_and_all_are_what_something_covers(
    spans: list[TimedSpan],
) -> None:
    spent = account_of(step(*spans))
    assert all(part <= spent.busy[kind] + 1e-9 for kind, part in spent.parts.items())
    edges = sorted(
        {0.0, 10.0, *(min(10, max(0, t)) for s in spans for t in (s.start, s.start + s.seconds))}
    )
    covered = 0.0
    for low, high in itertools.pairwise(edges):
        middle = (low + high) / 2
        covered += (high - low) * any(
            s.kind in LOOP_PARTS and s.start < middle < s.start + s.seconds for s in spans
        )
    assert spent.seconds - spent.idle == near(covered)


@given(st.lists(SPANS, max_size=4))
def test_the_time_of_several_steps_is_the_sum(steps: list[list[TimedSpan]]) -> None:
    times = [step(*spans) for spans in steps]
    all_, each = account_all(times), list(map(account_of, times))
    assert all_.seconds == near(10.0 * len(times))
    for kind in LOOP_PARTS:
        assert all_.parts.get(kind, 0) == near(sum(one.parts.get(kind, 0) for one in each))
    assert sum(all_.parts.values()) + all_.idle == near(all_.seconds)


def test_what_is_done_at_once_has_its_share_by_side_and_by_number() -> None:
    spent = account_of(
        step(
            TimedSpan(SAMPLING, 0, 4, 3),
            TimedSpan(ENVIRONMENT, 2, 4, 1),
            TimedSpan(OPTIM_STEP, 2, 2),
        )
    )
    # [0, 2) sampling; [2, 4) half training, of the other half three quarters sampling; [4, 6)
    assert spent.parts == {SAMPLING: near(2.75), ENVIRONMENT: near(2.25), OPTIM_STEP: near(1)}
    assert spent.busy == {SAMPLING: near(4), ENVIRONMENT: near(4), OPTIM_STEP: near(2)}
    assert (spent.at_once, spent.idle) == (near(2), near(4))


@pytest.mark.parametrize("wait", WAITS)
def test_waiting_is_time_in_which_nothing_else_is_done(wait: str) -> None:
    spent = account_of(step(TimedSpan(wait, 0, 10), TimedSpan(FORWARD_BACKWARD, 2, 3)))
    assert spent.parts == {wait: near(7), FORWARD_BACKWARD: near(3)}
    assert (spent.waiting, spent.waits, spent.accounted) == (near(0.7), [wait], 1.0)


def test_of_what_lies_behind_the_innermost_counts() -> None:
    spent = account_of(
        step(TimedSpan(SAMPLING, 0, 10, 0), TimedSpan(ENGINE, 2, 3), TimedSpan(GRADING, 6, 1))
    )
    assert spent.parts == {SAMPLING: near(6), ENGINE: near(3), GRADING: near(1)}


@given(SPANS, st.integers(60, 100))
def test_few_spans_stay_as_they_are_and_many_become_few(spans: list[TimedSpan], most: int) -> None:
    real = [span for span in spans if span.seconds > 0]
    assert sorted(compact(spans)) == sorted(real)
    assert [s.start for s in compact(spans)] == sorted(s.start for s in real)
    many = [
        s._replace(start=s.start / 50 + at, seconds=s.seconds / 50)
        for at in range(40)
        for s in spans
    ]
    assert len(compact(many, most)) <= most


@given(
    st.lists(
        st.tuples(st.sampled_from([SAMPLING, ENVIRONMENT]), st.floats(0, 9), st.floats(0.1, 1))
    )
)
def test_what_is_summarized_covers_the_same(rows: list[tuple[str, float, float]]) -> None:
    spans = [TimedSpan(kind, start, seconds) for kind, start, seconds in rows] * 8
    before, after = account_of(step(*spans)), account_of(step(*compact(spans, 60)))
    for kind in before.busy:
        assert after.busy[kind] == pytest.approx(before.busy[kind], abs=0.05)
    assert after.idle == pytest.approx(before.idle, abs=0.05)


def test_a_long_stretch_keeps_its_course_when_it_is_summarized() -> None:
    calls = [TimedSpan(SAMPLING, at / 100, 1.0) for at in range(900)]
    few = compact(calls)
    assert len(few) <= MOST_SPANS
    assert max(span.number for span in few) > 80 > 30 > few[0].number
    assert sum(span.seconds * span.number for span in few) == near(900.0)


@given(BARS, st.integers(10, 20))
def test_every_rollout_is_counted_however_few_bars_are_kept(
    bars: list[TimedRollouts], most: int
) -> None:
    many = bars * 12
    kept = compact_rollouts(many, most + len(REASONS))
    assert len(kept) <= most + len(REASONS) < MOST_ROLLOUTS
    for reason in ("", *REASONS):
        counts = [sum(b.number for b in some if b.reason == reason) for some in (many, kept)]
        assert counts[0] == counts[1]


def test_the_slowest_tenth_sets_a_step_whose_others_ended_long_before() -> None:
    others = [TimedRollouts(f"{n}", "a", 0.0, 2.0) for n in range(18)]
    slow = [TimedRollouts("x", "a", 0.0, 9.0), TimedRollouts("y", "b", 1.0, 4.0)]
    spent = account_of(step(rollouts=[*others, *slow]))
    assert (spent.tail, spent.has_slow_rollouts) == (near(7), True)
    assert not account_of(step(rollouts=others)).has_slow_rollouts
    assert not account_of(step(rollouts=slow)).has_slow_rollouts  # of two there is no tenth


def test_one_sentence_says_where_the_time_goes() -> None:
    bars = [TimedRollouts(f"{n}", "a", 0, 3, reason=ZERO_VARIANCE) for n in range(18)]
    bars += [TimedRollouts(f"t{n}", "b", 0, 6) for n in range(2)] + [
        TimedRollouts(f"u{n}", "b", 0, 6) for n in range(5)
    ]
    time = step(
        *(
            TimedSpan(SAMPLING, 0, 4.1, 20),
            TimedSpan(FORWARD_BACKWARD, 4.1, 2),
            TimedSpan(OPTIM_STEP, 6.1, 1),
        ),
        *(
            TimedSpan(SAVING, 7.1, 0.6),
            TimedSpan(DISK, 7.7, 0.3),
            TimedSpan(ENGINE, 8, 1.2),
            TimedSpan(EVALUATING, 9.2, 0.8),
        ),
        rollouts=bars,
    )
    assert time_sentence(account_of(time)) == (
        "41 % of the time is sampling, 30 % training, 8 % evaluating, 6 % saving, 12 % waiting for"
        " the engine, 3 % waiting for the disk; 72 % of rollouts had no gradient."
    )
    assert time_sentence(Account()) == "No time was measured."
    assert time_sentence(account_of(step(TimedSpan(QUEUE, 0, 10)))) == (
        "100 % of the time is waiting for the server's queue."
    )
    both = account_of(step(TimedSpan(SAMPLING, 0, 10), TimedSpan(OPTIM_STEP, 5, 5)))
    assert "; 50 % training while the next batch is sampled." in time_sentence(both)
    saved = account_of(step(TimedSpan(SAMPLING, 0, 10), TimedSpan(SAVING, 5, 5)))
    assert time_sentence(saved) == "75 % of the time is sampling, 25 % saving."
    outside = step(TimedSpan(OPTIM_STEP, 0, 1)).model_copy(update={"is_outside": True})
    assert "90 % spent outside the service" in time_sentence(account_of(outside))


# The stopwatch.


class Now:
    """A clock that is set."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def now() -> Iterator[Now]:
    return Now()


def test_a_step_has_what_was_measured_since_the_one_before(now: Now) -> None:
    watch = Stopwatch(now)
    with watch.measure(GRADING):
        now.at += 1  # before the run
    watch.begin("run")
    with watch.measure(SAMPLING, 0), watch.measure(SAMPLING, 8):
        now.at += 3
    now.at += 1
    first = watch.so_far()
    assert (first.start, first.end) == (1001.0, 1005.0)
    assert account_of(first).parts == {SAMPLING: near(3)}
    watch.step(first.end)
    with watch.measure(DISK):
        now.at += 2
    second = watch.so_far()
    assert (second.start, account_of(second).parts) == (1005.0, {DISK: near(2)})


def test_what_goes_on_over_a_step_is_cut_there(now: Now) -> None:
    watch = Stopwatch(now)
    watch.begin("run")
    with watch.measure(SAMPLING):  # of the next batch
        now.at += 4
        first = watch.so_far()
        watch.step(first.end)
        now.at += 1
    second = watch.so_far()
    assert first.spans == [TimedSpan(SAMPLING, 0.0, 4.0)]
    assert second.spans == [TimedSpan(SAMPLING, 0.0, 1.0)]
    assert account_all([first, second]).idle == near(0)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.01, 5)), max_size=12))
def test_steps_follow_each_other_without_a_gap(moves: list[tuple[bool, float]]) -> None:
    now = Now()
    watch, times = Stopwatch(now), []
    watch.begin("run")
    for is_step, seconds in moves:
        with watch.measure(FORWARD_BACKWARD):
            now.at += seconds
        if is_step:
            times.append(watch.so_far())
            watch.step(times[-1].end)
    times.append(watch.so_far())
    assert all(one.end == other.start for one, other in itertools.pairwise(times))
    spent = account_all(times)
    assert spent.seconds == pytest.approx(sum(seconds for _, seconds in moves), abs=1e-3)
    assert spent.idle == pytest.approx(0, abs=1e-3)


def test_a_report_that_is_late_moves_nothing(now: Now) -> None:
    watch, far = Stopwatch(now), 900.0  # a driver's clock is another
    watch.begin("run", hears=True)
    for late in (0.0, 0.5, 2.0):  # as a busy machine delivers them
        started = now.at
        now.at += 1 + late
        at = started + 1 - far
        spans = [TimedSpan(SAMPLING, started - far, 1.0)]
        watch.hear(DriverTime(at=at, doing=None, spans=spans, graded={}, discarded={}))
    assert [span.start for span in watch.so_far().spans] == [near(0), near(1), near(2.5)]
    now.at += 100
    watch.hear(  # started again, and its clock with it
        DriverTime(
            at=1.0, doing=None, spans=[TimedSpan(GRADING, 0.0, 1.0)], graded={}, discarded={}
        )
    )
    assert watch.so_far().spans[-1] == TimedSpan(GRADING, near(now.at - 1001.0), near(1))


@pytest.mark.parametrize("kind", sorted(LOOP_PARTS))
def test_an_engine_that_is_held_up_does_nothing(now: Now, kind: str) -> None:
    watch = Stopwatch(now)
    watch.begin("run")
    with watch.measure(kind):
        now.at += 1
        watch.hold(QUEUE)
        now.at += 2
        watch.hold(None)
        now.at += 1
    parts = account_of(watch.so_far()).parts
    is_done = kind not in OF_ENGINE and kind not in WAITS  # what does not need the engine goes on
    assert parts == (
        {kind: near(4)} if is_done or kind == QUEUE else {kind: near(2), QUEUE: near(2)}
    )


def test_a_rollout_is_what_is_sampled_graded_and_else_the_environment(now: Now) -> None:
    watch = Stopwatch(now)
    watch.begin("run")
    watch.enter("t", "add-1")
    for trace_id, wait_s, seconds in (("t", 0, 2), ("t", 1, 1), (None, 0, 0.5)):  # one is nobody's
        now.at += 0.5
        call = EngineCall(now)
        now.at += wait_s
        call.begun()
        now.at += seconds
        call.begun()  # again, of another part
        watch.call(SAMPLING, trace_id, call, ENGINE)
    now.at = 1010.0
    watch.leave("t")
    watch.graded({"t": (1008.0, 1009.5), "unknown": (0.0, 1.0)})
    now.at += 2
    time = watch.so_far()
    parts = {SAMPLING: near(3), ENVIRONMENT: near(4.5), GRADING: near(1.5), ENGINE: near(1)}
    assert account_of(time).parts == parts
    [bar] = time.rollouts
    assert bar == TimedRollouts("t", "add-1", 0.0, 10.0, 1, "", 3.0, 1.5)
    watch.step(time.end)
    assert watch.so_far().rollouts == []


def test_of_a_loop_that_nobody_announces_whatever_is_asked_is_its_own(now: Now) -> None:
    watch = Stopwatch(now)
    now.at += 1
    call = EngineCall(now)
    now.at += 2
    watch.call(SAMPLING, None, call, ENGINE)
    now.at += 1
    time = watch.so_far()
    assert (time.is_outside, time.start) == (True, 1001.0)
    assert account_of(time).parts == {SAMPLING: near(2)}
    assert account_of(time).idle == near(1)


@pytest.mark.parametrize("says", [True, False])
def test_a_call_waits_until_the_engine_begins_with_it_and_ends_with_saving(
    now: Now, says: bool
) -> None:
    watch = Stopwatch(now)
    watch.begin("run")
    with watch.measure(OPTIM_STEP, wait=EVALUATION) as call:
        now.at += 2
        if says:
            call.begun()
        now.at += 3
        call.saving_s = 1.0
    parts = account_of(watch.so_far()).parts
    waited = {EVALUATION: near(2)} if says else {}
    assert parts == {OPTIM_STEP: near(2 if says else 4), SAVING: near(1), **waited}


def test_a_call_that_ends_in_another_run_than_it_was_begun_in_is_of_neither(now: Now) -> None:
    watch = Stopwatch(now)
    watch.begin("run")
    with watch.measure(OPTIM_STEP, wait=EVALUATION) as call:
        now.at += 1
        watch.begin("other")
        now.at += 2
        call.begun()
        now.at += 3
        call.saving_s = 1.0
    assert watch.so_far().spans == []


def test_a_rollout_under_way_when_a_step_is_taken_is_of_a_later_one(now: Now) -> None:
    watch = Stopwatch(now)
    watch.begin("run")
    watch.enter("t", "a")
    now.at += 3
    assert len(watch.so_far().rollouts) == 1
    first = watch.so_far(is_taken=True)
    watch.step(first.end)
    now.at += 1
    watch.leave("t")
    [bar] = watch.so_far(is_taken=True).rollouts
    assert (first.rollouts, bar.start, bar.seconds) == ([], near(-3), near(4))


def test_a_discarded_rollout_has_its_reason(now: Now) -> None:
    watch = Stopwatch(now)
    watch.begin("run")
    watch.enter("t", "a")
    now.at += 1
    watch.leave("t")
    watch.add_rollouts(1000.0, TimedRollouts("u", "b", 0.0, 1.0, 8))
    watch.discard(ZERO_VARIANCE, {"t": "", "u": "v", "unknown": ""})
    time = watch.so_far()
    spent = account_of(time)
    assert (spent.rollouts, spent.discarded) == (9, {ZERO_VARIANCE: 9})
    assert [bar.trace_id for bar in time.rollouts] == ["t", "v"]


def test_a_rollout_that_never_ends_is_forgotten_after_a_step_without_a_word_of_it(now: Now) -> None:
    watch = Stopwatch(now)
    for _ in range(2):
        watch.enter("t", "a")
        now.at += 5
        watch.step(watch.so_far().end)
        assert list(watch.rollouts) == ["t"]
        now.at += 5
        watch.step(watch.so_far().end)
        assert not watch.rollouts


def test_a_step_says_for_what_it_waited_if_for_long() -> None:
    time = step(TimedSpan(SAMPLING, 0, 4), TimedSpan(ENGINE, 4, 5), TimedSpan(DISK, 9, 0.5))
    assert time_metrics(time) == {
        "step_s": near(10),
        "wait_share": near(0.55),
        "wait/engine": near(0.5),
    }


@pytest.mark.parametrize("odd", ["NaN", "1e400", "-1e13"])
def test_a_driver_s_report_has_plausible_numbers_only(odd: str) -> None:
    for body in (
        f'{{"at": {odd}}}',
        f'{{"at": 1, "spans": [["sampling", 1, 1, {odd}]]}}',
        f'{{"at": 1, "graded": {{"t1": [1, {odd}]}}}}',
    ):
        with pytest.raises(ValidationError, match="not finite, or beyond 1e"):
            DriverTime.model_validate_json(body)
