"""Rollouts by group, and rows and text made of them."""

import re
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style

from hud_tui.rl.groups import PLAIN, Advantages
from hud_tui.rl.outcome import outcome_of
from hud_tui.rl.rollout_search import parse_row_filter
from hud_tui.rl.rollouts import Shade, rollout_groups
from hud_tui.rl.text import pictures
from hud_tui.rl.transcript import transcript_of
from hud_tui.tui.rollout_reader import Part, job_rows, part_title, sibling_rows, trace_rows
from hud_tui.tui.widgets.passages import Colouring, turn_passages
from hud_tui.tui.widgets.transcript_blocks import Side, outcome_passages
from hud_tui.wire import Job
from hud_tui.wire_rollouts import Trace
from hud_tui.wire_training import TraceEvent, TraceEvents, TurnSample

HOSTILE = "\x1b[31mred\x1b[0m [bold]plain[/] \u202eback"


def rollout_text(one: Trace, events: Sequence[TraceEvent], shade: Shade | None = None) -> str:
    """Everything that the reader shows of a rollout."""
    transcript = transcript_of(events, one.completion)
    colouring = Colouring(shade, detailed=frozenset({0}))
    removed = Counter(picture for text in transcript.texts() for picture in pictures(text))
    side = Side(transcript, outcome_of(one), colouring, removed=removed)
    passages = [*outcome_passages(side)]
    for turn in transcript.turns:
        passages += turn_passages(turn, colouring)
    rows = [row for each in passages if each.rows for row in each.rows(60, lambda name: Style())]
    lines = [f"{passage.title}\n{passage.text}" for passage in passages]
    return "\n".join([*lines, *("".join(part.text for part in row) for row in rows)])


def trace(number: int, reward: float | None, **fields: object) -> Trace:
    return Trace.model_validate({"id": f"t{number}", "reward": reward, **fields})


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.floats(0, 1), st.booleans())))
def test_every_trace_is_in_one_group_and_advantages_sum_to_zero(
    drawn: list[tuple[int, float | None, bool]],
) -> None:
    traces = [
        trace(i, reward, step=1, task_slug=f"task-{task}", rollout=i, heldout=heldout)
        for i, (task, reward, heldout) in enumerate(drawn)
    ]
    groups = rollout_groups(traces)
    assert sorted(r.trace.id for g in groups for r in g.rollouts) == sorted(t.id for t in traces)
    for group in groups:
        advantages = [r.advantage for r in group.rollouts if r.advantage is not None]
        assert sum(advantages) == pytest.approx(0.0, abs=1e-9)
        if group.heldout:
            assert advantages == []
        else:
            assert len(advantages) == len(group.rewards)
    assert [g.heldout for g in groups] == sorted(g.heldout for g in groups)


def test_groups_with_signal_come_first_and_without_group_or_step_there_is_no_advantage() -> None:
    traces = [
        trace(0, 1.0, step=1, task_slug="flat"),
        trace(1, 1.0, step=1, task_slug="flat"),
        trace(2, 0.0, step=1, task_slug="teaches", rollout=1),
        trace(3, 1.0, step=1, task_slug="teaches", rollout=0),
    ]
    groups = rollout_groups(traces)
    assert [(g.task_slug, g.has_signal) for g in groups] == [("teaches", True), ("flat", False)]
    assert [(r.trace.id, r.advantage) for r in groups[0].rollouts] == [("t3", 0.5), ("t2", -0.5)]

    [group] = rollout_groups([trace(0, 0.0), trace(1, 1.0)])
    assert not group.compared
    assert not group.has_signal
    assert [r.advantage for r in group.rollouts] == [None, None]
    assert (group.mean, group.std) == (0.5, 0.5)
    traces = [trace(i, float(i), group_id=f"g{i // 2}") for i in range(4)]
    assert [g.compared for g in rollout_groups(traces)] == [True, True]


def test_rows_have_a_heading_for_each_task_and_a_filter_hides_the_others() -> None:
    traces = [trace(i, i / 4, step=1, task_slug=f"task-{i // 2}", completion="x") for i in range(4)]
    groups = rollout_groups(traces)
    rows = trace_rows(groups, parse_row_filter(""))
    assert [row.heading for row in rows] == [True, False, False, True, False, False]
    assert [
        row.key for row in trace_rows(groups, parse_row_filter("task-1")) if not row.heading
    ] == ["t2", "t3"]
    assert trace_rows(groups, parse_row_filter("nothing")) == []


def test_hostile_text_in_rows_and_conversations_is_made_visible() -> None:
    one = trace(0, 1.0, step=1, task_slug=HOSTILE, completion=HOSTILE, stop_reason=HOSTILE)
    [group] = rollout_groups([one])
    drawn = "".join(
        cell.plain
        for row in [*trace_rows([group], parse_row_filter("")), *sibling_rows(group, "t0")]
        for cell in row.cells
    )
    events = TraceEvents(
        events=[
            TraceEvent(id="0", seq=0, kind="user_message", text=HOSTILE),
            TraceEvent(id="1", seq=1, kind="agent_message", text=HOSTILE, reasoning=HOSTILE),
            TraceEvent(
                id="2", seq=2, kind="tool_call", tool_name=HOSTILE, arguments={"a": HOSTILE},
                result_text=HOSTILE, error=HOSTILE,
            ),
            TraceEvent(id="3", seq=3, kind=HOSTILE, text="odd"),
        ]
    )  # fmt: skip
    said = rollout_text(one, events.events)
    for text in (drawn, said):
        assert not {"\x1b", "\u202e"} & set(text)
        assert "[bold]plain[/]" in text
    assert re.search(r"␛ removed ×\d+, shown as symbols:  ␛ ×\d+", said)


def test_tokens_whose_texts_are_known_are_listed_and_logprobs_of_0_have_no_sign() -> None:
    sample = TurnSample(output_token_ids=[7, 8, 9], output_logprobs=[-0.5, -1.5, float("nan")])
    event = TraceEvent(id="0", seq=0, kind="agent_message", text="4", sample=sample)
    said = rollout_text(trace(0, 1.0), [event], Shade.SURPRISE)
    assert "logprob Σ -2.00" in said
    assert "-1.500" not in said, "an id tells a reader nothing"
    named = event.model_copy(update={"tokens": ["4", " ", "[end]"]})
    said = rollout_text(trace(0, 1.0), [named], Shade.SURPRISE)
    assert "logprob Σ -2.00" in said
    for token in (r"4 +-0\.500", r"␣ +-1\.500", r"\[end] +–"):
        assert re.search(token, said)

    sample = TurnSample(output_token_ids=[7, 8], output_logprobs=[-1e-5, -1e-6])
    event = TraceEvent(id="0", seq=0, kind="agent_message", sample=sample, tokens=["4", "[end]"])
    said = rollout_text(trace(0, 1.0), [event], Shade.SURPRISE)
    assert "logprob Σ 0.00   mean 0.000" in said
    assert "-0.00" not in said


def test_without_a_conversation_the_row_speaks() -> None:
    one = trace(0, None, completion="forty-two", error="timed out")
    said = rollout_text(one, [])
    assert "no conversation" in said
    assert "forty-two" in said
    assert "timed out" in said


def attempt(number: int, attempt: int, slug: str, reward: float) -> Trace:
    return trace(
        number, reward, step=1, attempt=attempt, task_slug=slug, group_id=f"{attempt}{slug}"
    )


def test_attempts_at_a_step_are_told_apart_the_last_one_first() -> None:
    traces = [
        attempt(0, 1, "add", 0.0), attempt(1, 1, "add", 0.0),
        attempt(2, 2, "add", 0.0), attempt(3, 2, "add", 1.0),
    ]  # fmt: skip
    groups = rollout_groups(traces)
    assert [(group.attempt, group.has_signal) for group in groups] == [(2, True), (1, False)]
    headings = [
        row.cells[0].plain for row in trace_rows(groups, parse_row_filter("")) if row.heading
    ]
    assert headings[0] == "attempt 2 of 2"
    assert headings[2] == "attempt 1 of 2: zero variance, sampled again"


def test_advantages_are_those_that_the_run_was_trained_with() -> None:
    traces = [trace(n, float(n)).model_copy(update={"group_id": "g"}) for n in range(2)]
    rule = Advantages.of_run({"norm_adv_by_std": True, "reward_scale": 2.0})
    [group] = rollout_groups(traces, rule)
    assert [rollout.advantage for rollout in group.rollouts] == [-2.0, 2.0]
    assert group.rule.formula_end == " ÷ std × 2"
    [plain] = rollout_groups(traces)
    assert [rollout.advantage for rollout in plain.rollouts] == [-0.5, 0.5]
    assert plain.rule.formula_end == ""


@pytest.mark.parametrize("given", [None, {}, {"reward_scale": "2", "norm_adv_by_std": "yes"}])
def test_a_run_that_does_not_say_has_plain_advantages(given: dict[str, object] | None) -> None:
    assert Advantages.of_run(given) == PLAIN


def test_the_row_of_an_evaluation_shows_its_mean_reward() -> None:
    more = {"kind": "evaluation", "mean": {"value": 0.718, "low": 0.56, "high": 0.849}}
    ended = Job(id="e", name="an evaluation", status="completed", metadata=more)
    running = ended.model_copy(update={"metadata": {"kind": "evaluation"}})
    for job, shown in ((ended, ".718"), (running, "")):
        [row] = job_rows([job], "", 0.0)
        assert row.cells[4].plain == shown


@pytest.mark.parametrize(("evaluates", "told"), [("c", "mean reward .500"), (None, "2 held-out")])
def test_the_mean_is_of_what_is_trained_on_or_of_all_that_is_evaluated(
    evaluates: str | None, told: str
) -> None:
    held = [
        trace(n, float(n), step=1, task_slug="h", heldout=True, evaluates="c") for n in range(2)
    ]
    trained = [trace(n + 2, 0.25, step=1, task_slug="t", evaluates=evaluates) for n in range(2)]
    traces = held if evaluates else [*held, *trained]
    job = Job.model_validate({"id": "j", "name": "mixed", "status": "succeeded"})
    groups = tuple(rollout_groups(traces, None if evaluates else PLAIN))
    part = Part(job, 1, 1, evaluates is None, None if evaluates is None else 2, groups)
    title = part_title(part, job, False, 200).plain
    assert told in title
    assert ("mean reward .250" in title) is (evaluates is None)


def test_one_reward_has_no_deviation() -> None:
    texts = {
        tuple(rewards): rollout_groups([trace(n, r) for n, r in enumerate(rewards)])[0].mean_text
        for rewards in ([0.5], [0.0, 1.0], [None])
    }
    assert texts == {(0.5,): ".500", (0.0, 1.0): ".500 ± .500", (None,): ""}
