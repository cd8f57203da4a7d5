"""The loop's rules, over any sequence of what can happen to a run."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.rl.evaluation import RESIDUE, SOLVED_AT
from hud_tui.rl.groups import has_gradient
from hud_tui.rl.loop import (
    FLAT_IN_A_ROW,
    UNGRADED_IN_A_ROW,
    Evaluate,
    Loop,
    LoopFacts,
    Sample,
    Streak,
    Train,
)
from hud_tui.rl.metrics import short
from hud_tui.rl.work import End

LOOP = Loop(steps=3)
FLATS = {"zeros": [[0.0, 0.0]], "ones": [[1.0, 1.0]], "mixed": [[0.0, 0.0], [1.0, 1.0]]}
SIGNAL = [[0.0, 1.0]]

happenings = st.lists(
    st.sampled_from([*FLATS, "signal", "ungraded", "moved", "stopped"]), max_size=120
)
loops = st.builds(
    Loop,
    steps=st.integers(1, 6),
    heldout_every=st.none() | st.integers(1, 4),
    eval_every=st.none() | st.integers(1, 4),
    baseline=st.booleans(),
)


def after(*batches: list[list[float]]) -> LoopFacts:
    facts = LoopFacts()
    for groups in batches:
        facts = facts.sampled(groups, any(has_gradient(group, "ppo") for group in groups))
    return facts


def over(facts: LoopFacts) -> End:
    """How a run ends that nothing more happens to but evaluations."""
    while isinstance(action := LOOP.next(facts), Evaluate):
        facts = facts.scored()
    assert isinstance(action, End)
    return action


@pytest.mark.parametrize("reward", [1.0, 2.0, 0.9999999, 1.0000001])
def test_batches_of_full_rewards_are_a_success(reward: float) -> None:
    end = over(after(*[[[reward, reward]]] * FLAT_IN_A_ROW))
    assert (end.status, end.error) == ("succeeded", None)
    had = short(round(reward, 4))
    said = f"solved: every rollout of the last 20 batches had reward {had}; no gradient left"
    assert end.reason == said


def test_all_batches_of_a_streak_are_told() -> None:
    end = over(after(*[[[0.0, 0.0]]] * (FLAT_IN_A_ROW - 1), [[0.7, 0.7]]))
    assert end.status == "failed"
    assert end.error is not None
    assert end.error.code == "zero_variance"
    assert "the last 20 batches had rewards from 0 to .700" in end.error.message


@pytest.mark.parametrize(("reward", "why"), [(0.0, "too hard"), (0.4, "does not distinguish")])
def test_one_reward_everywhere_says_what_it_means(reward: float, why: str) -> None:
    end = over(after(*[[[reward, reward]]] * FLAT_IN_A_ROW))
    assert end.error is not None
    assert f"had reward {short(reward)}: " in end.error.message
    assert why in end.error.message


def test_a_gradient_ends_both_streaks() -> None:
    flat = after(*[FLATS["zeros"]] * (FLAT_IN_A_ROW - 1))
    assert flat.flat.count == FLAT_IN_A_ROW - 1
    facts = flat.sampled(SIGNAL, True)
    assert (facts.flat, facts.ungraded) == (Streak(), 0)
    assert LOOP.next(facts) == Train()
    assert LOOP.next(facts.discarded()) == Sample(facts.iteration, facts.attempt + 1, False, 1)
    ungraded = after(*[[]] * (UNGRADED_IN_A_ROW - 1))
    assert ungraded.ungraded == UNGRADED_IN_A_ROW - 1
    assert after(*[[]] * (UNGRADED_IN_A_ROW - 1), FLATS["zeros"]).ungraded == 0


def test_no_batch_is_not_solved() -> None:
    assert not Streak().is_solved
    assert Streak().add([SOLVED_AT - RESIDUE]).is_solved


def test_batches_without_a_graded_rollout_end_the_run_as_the_environment_s_failure() -> None:
    end = over(after(*[[]] * UNGRADED_IN_A_ROW))
    assert end.status == "failed"
    assert end.error is not None
    assert end.error.code == "environment"


def test_a_solved_run_is_evaluated_once_more_and_stays_solved_when_it_is_resumed() -> None:
    facts = replace(after(*[FLATS["ones"]] * FLAT_IN_A_ROW), step=1, evaluated=frozenset())
    assert LOOP.next(facts) == Evaluate(1)
    resumed = facts.resumed()
    assert LOOP.next(resumed) == Evaluate(1)
    assert LOOP.next(resumed.scored()) == End("succeeded", reason=facts.solved)


def test_who_resumes_a_run_without_a_gradient_wants_it_tried_again() -> None:
    facts = after(*[FLATS["zeros"]] * FLAT_IN_A_ROW).resumed()
    assert LOOP.next(facts) == Sample(FLAT_IN_A_ROW, FLAT_IN_A_ROW + 1, False, 1)


@given(loops, happenings)
def test_every_step_is_taken_once_and_evaluated_when_due(loop: Loop, events: list[str]) -> None:
    """Drives the loop as a run does; a "stopped" is a process that was killed and resumed."""
    facts, steps, evaluated, batches, measured = LoopFacts(), 0, list[int](), 0, False
    pending = iter(events)
    for _ in range(1000):
        match loop.next(facts):
            case Sample() as action:
                assert steps < loop.steps
                assert action.iteration >= steps
                assert action.attempt == batches + 1
                due = loop.eval_every and steps and steps % loop.eval_every == 0
                assert not due or steps in evaluated
                assert not loop.baseline or 0 in evaluated
                last = steps + 1 == loop.steps
                if loop.heldout_every:
                    due = last or steps % loop.heldout_every == 0
                    assert action.with_heldout == (due and not measured), "once per step"
                else:
                    assert not action.with_heldout
                event = next(pending, "signal")
                measured = event != "stopped"
                if event == "stopped":
                    facts = facts.resumed()
                elif event == "ungraded":
                    facts, batches = facts.sampled([], False), batches + 1
                else:
                    groups = FLATS.get(event, SIGNAL)
                    facts = facts.sampled(groups, event == "signal")
                    batches += event != "signal"
            case Train() if next(pending, "signal") == "moved":
                facts, batches, measured = facts.discarded(), batches + 1, False
                assert isinstance(loop.next(facts), Sample)
            case Train():
                facts, steps, batches, measured = facts.stepped(), steps + 1, 0, False
                assert facts.step == steps
            case Evaluate(step):
                assert step == steps
                assert step not in evaluated
                due = not step or (loop.eval_every and step % loop.eval_every == 0)
                assert due or loop.is_over(facts)
                evaluated.append(step)
                facts = facts.scored()
            case End() as end:
                if end.error is None:
                    assert steps == loop.steps or facts.solved
                    assert not steps or steps in evaluated
                    assert bool(end.reason) == (steps < loop.steps)
                else:
                    assert end.status == "failed"
                    assert facts.flat.count == FLAT_IN_A_ROW or facts.ungraded == UNGRADED_IN_A_ROW
                return
    raise AssertionError("it does not end")


@given(st.lists(st.sampled_from([0.0, 0.5, 0.9999999, 1.0, 3.0]), min_size=20, max_size=20))
def test_solved_is_what_evaluations_call_solved(rewards: list[float]) -> None:
    end = over(after(*[[[reward, reward]] for reward in rewards]))
    assert (end.status == "succeeded") == (min(rewards) > 0.99)


def test_a_reward_of_a_supervised_loss_is_a_gradient_without_variance() -> None:
    assert has_gradient([1.0, 1.0], "cross_entropy")
    assert not has_gradient([0.0, 0.0], "cross_entropy")
    assert not has_gradient([1.0, 1.0], "importance_sampling")


@given(
    st.builds(
        Loop,
        steps=st.integers(1, 12),
        heldout_every=st.none() | st.integers(1, 4),
        max_staleness=st.integers(0, 3),
        substeps=st.integers(1, 3),
    ),
    st.lists(st.sampled_from(["signal", "signal", "zeros", "moved"]), max_size=40),
)
def test_batches_that_are_sampled_ahead_are_those_that_come_next(
    loop: Loop, events: list[str]
) -> None:
    """Each with the step whose weights sampled it, at the latest."""
    facts, ahead, pending = LoopFacts(), list[tuple[int, int]](), iter(events)
    while isinstance(action := loop.next(facts), Sample):
        begun = facts.step
        if ahead:
            iteration, begun = ahead.pop(0)
            assert iteration == action.iteration
        event = next(pending, "signal")
        if event == "moved":  # to where none of them was sampled
            again = facts.discarded()
            ahead.clear()
            assert (again.iteration, again.step) == (facts.iteration, facts.step)
            facts = again
            continue
        if event == "zeros":
            facts = facts.sampled(FLATS["zeros"], False)
            continue
        facts = facts.sampled(SIGNAL, True)
        while (next_ := loop.ahead(facts, len(ahead))) is not None:
            ahead.append((next_.iteration, facts.step))
        assert len(ahead) <= loop.max_staleness
        assert len(ahead) == loop.max_staleness or (
            facts.step + (1 + len(ahead)) * loop.substeps >= loop.steps
        )
        assert facts.step - begun <= loop.oldest
        steps = loop.steps_on_batch(facts)
        assert steps == min(loop.substeps, loop.steps - facts.step)
        facts = facts.stepped(steps)
    if isinstance(action, Evaluate):
        assert facts.step == loop.steps


@given(st.integers(1, 30), st.integers(1, 7), st.integers(1, 5))
def test_held_out_tasks_are_sampled_once_for_every_multiple_that_steps_reach_or_pass(
    steps: int, every: int, substeps: int
) -> None:
    loop = Loop(steps=steps, heldout_every=every, substeps=substeps)
    facts, measured = LoopFacts(), list[int]()
    while isinstance(action := loop.next(facts), Sample):
        if action.with_heldout:
            measured.append(facts.step)
        facts = facts.sampled(SIGNAL, True)
        facts = facts.stepped(loop.steps_on_batch(facts))
    multiples = {step // every for step in range(0, steps, substeps)}
    assert {step // every for step in measured} == multiples
    assert measured[-1] + substeps >= steps
