"""Filters of rollouts: what a row decides, what the conversation decides, and where it stands."""

import json

import pytest

from hud_tui.errors import HudUsage
from hud_tui.rl.rollout_search import (
    LONGEST,
    Needles,
    Sought,
    parse_row_filter,
    split_filter,
    where_found,
)
from hud_tui.rl.rollouts import Rollout
from hud_tui.rl.transcript import Transcript, transcript_of
from hud_tui.wire_rollouts import Trace
from tests.tui import reading

TRACE = {
    "id": "t1", "task_slug": "stock-7", "reward": 0.1, "step": 3, "attempt": 1, "rollout": 0,
    "num_tokens": 40, "stop_reason": "length", "completion": "no idea", "checkpoint_id": "c",
    "discarded": "timeout",
}  # fmt: skip


def sought(error: bool = True, **fields: object) -> Sought:
    trace = Trace.model_validate({**TRACE, **fields})
    events = reading.told(reading.stock("That makes 19.", error=error))
    return Sought(Rollout(trace, -0.3), transcript_of(events))


@pytest.mark.parametrize(
    "expression",
    [
        "tool:stock error reward<.2", "warehouse", "WAREHOUSE", '"two warehouses"', "!order2",
        "task:stock stop:length", "advantage<0 tokens:40 step=3 rollout=1", "turns=2 calls=2",
        "errors=1", "is:error", "is:trained", "is:cut", "is:discarded", "!is:heldout",
        "said:makes", "result:closed", "!said:closed", "id:t1", "count_stock", "no idea",
    ],
)  # fmt: skip
def test_a_filter_keeps(expression: str) -> None:
    by_row, whole = split_filter(expression)
    one = sought()
    assert by_row(one)
    assert whole is None or whole(one)


@pytest.mark.parametrize(
    "expression",
    [
        "tool:order", "reward>.2", '"two shops"', "errors>1", "said:closed", "is:evaluated",
        "task:add", "!warehouse", "turns>4", "is:played", "said:clerk",
    ],
)  # fmt: skip
def test_a_filter_drops(expression: str) -> None:
    by_row, whole = split_filter(expression)
    one = sought()
    assert not (by_row(one) and (whole is None or whole(one)))


def test_error_is_a_word_and_a_mark() -> None:
    _, whole = split_filter("error")
    assert whole is not None
    assert whole(sought())
    assert not whole(sought(error=False))
    assert whole(sought(error=False, error_="", status="error"))
    assert whole(sought(error=False, completion="an error of mine"))
    _, failed = split_filter("is:error")
    assert failed is not None
    for fields, kept in (({}, False), ({"status": "error"}, True), ({"error": "boom"}, True)):
        assert failed(Sought(Rollout(Trace.model_validate({"id": "t", **fields}), None))) == kept


def graded(**told: object) -> Transcript:
    """A transcript without an error, graded as the SDK does."""
    grade = {"reward": 1.0, "content": None, "info": {"expected": None}, **told}
    events = reading.stock("That makes 19.")
    return transcript_of(
        reading.told([*events, {**reading.GRADING, "result_text": json.dumps(grade)}])
    )


def test_a_grading_without_an_error_is_not_found_by_the_word() -> None:
    _, whole = split_filter("error")
    assert whole is not None
    rollout, fine = sought(error=False).rollout, graded(isError=False)
    assert not whole(Sought(rollout, fine))
    assert whole(Sought(rollout, graded(isError=True)))
    assert fine.grading[-1].result == '{"reward": 1.0, "info": {"expected": null}}'


@pytest.mark.parametrize("reason", ["length", "timeout", "max_steps", "done"])
def test_cut_is_what_ended_before_its_end(reason: str) -> None:
    by_row, _ = split_filter("is:cut")
    assert by_row(sought(stop_reason=reason)) == (reason != "done")


def test_why_a_rollout_stopped_is_found_as_the_list_says_it() -> None:
    for term in ("stop:length", "stop:max"):
        by_row, _ = split_filter(term)
        assert by_row(sought(stop_reason="length"))
        assert not by_row(sought(stop_reason="done"))


def test_what_a_tool_answered_is_its_error_where_it_has_no_result() -> None:
    failed = {"kind": "tool_call", "tool_name": "stock", "error": "no such shelf"}
    _, whole = split_filter("result:shelf")
    assert whole is not None
    assert whole(Sought(sought().rollout, transcript_of(reading.told([failed]))))


def test_only_what_a_conversation_decides_needs_it() -> None:
    for expression in ("reward<.2 task:add", "is:trained is:cut", "", "id:t step:3..4"):
        assert split_filter(expression)[1] is None
    for expression in ("error", "tool:x", "turns>1", "is:error", "reward<.2 x"):
        assert split_filter(expression)[1] is not None
    rowless = Sought(sought().rollout)
    by_row, _ = split_filter("reward<.2 tool:stock warehouse")
    assert by_row(rowless), "what the row cannot tell is left open"


def test_a_list_is_filtered_by_its_rows_alone() -> None:
    rowless = Sought(sought().rollout)
    assert parse_row_filter("stock reward<.2 idea")(rowless)
    assert not parse_row_filter("warehouse")(rowless)
    for expression in ("tool:stock", "turns>1", "is:error"):
        with pytest.raises(HudUsage, match="only the conversations tell"):
            parse_row_filter(expression)
    with pytest.raises(HudUsage, match="no rollout has rewrad"):
        parse_row_filter("rewrad<1")


@pytest.mark.parametrize(
    ("expression", "where", "excerpt"),
    [
        ("twelve", "prompt", "order of twelve? Answer"),
        (
            "tool:stock reward<1",
            "turn 1",
            'stock {"warehouse": "north", "sku": "SKU-7"} ← {"stock": 12}',
        ),
        ("count_stock", "setup", "count_stock"),
        ("done", "grading", '{"reward": 0.6, "done": true}'),
        ("error", "turn 1", "warehouse south is closed"),
        ('"SOUTH IS"', "turn 1", "warehouse south is closed"),
    ],
)
def test_where_it_stands(expression: str, where: str, excerpt: str) -> None:
    place = where_found(sought().read, Needles.of(expression))
    assert place is not None
    assert place.where == where
    assert excerpt in place.excerpt
    assert len(place.excerpt) <= LONGEST + 1


def test_without_words_or_where_none_stands_there_is_no_place() -> None:
    assert Needles.of("reward<.2 !no is:error !tool:x") == Needles([], [])
    assert where_found(sought().read, Needles()) is None
    assert where_found(sought().read, Needles(["zebra"], ["zebra"])) is None
