"""A rollout as a transcript: turns, calls with results, the environment apart, its outcome."""

import pytest

from hud_tui.rl.outcome import fate_of, outcome_of
from hud_tui.rl.timeline import ZERO_VARIANCE
from hud_tui.rl.transcript import Call, json_value, laid_out, transcript_of
from hud_tui.rl.transcript_forms import FORMS, Copied
from hud_tui.wire_rollouts import Trace
from hud_tui.wire_training import TraceEvent

TIMES = {"started_at": "2026-01-01T10:00:00Z", "ended_at": "2026-01-01T10:00:01.500Z"}


def event(kind: str, text: object = None, **fields: object) -> TraceEvent:
    return TraceEvent.model_validate({"id": "e", "seq": 0, "kind": kind, "text": text, **fields})


def called(name: str, arguments: object, result: object = None, **fields: object) -> TraceEvent:
    more = {"tool_name": name, "arguments": arguments, "result_text": result, **fields}
    return event("tool_call", **more)


def asks(*calls: dict[str, object], text: str = "") -> TraceEvent:
    return event("agent_message", text, tool_calls=list(calls))


def test_a_call_stands_once_with_its_arguments_and_its_result() -> None:
    [turn] = transcript_of(
        [
            asks(
                {"id": "c1", "name": "order", "arguments": {"n": 1}},
                {"id": "c2", "function": {"name": "order", "arguments": '{"n": 2}'}},
                {"name": "stock", "arguments": {}},
                {"name": "stock", "arguments": {"of": "tea"}},
            ),
            called("order", {"n": 2}, "second", call_id="c2", **TIMES),
            called("stock", {"of": "tea"}, "seven"),
            called("order", {"n": 9}, "first", call_id="c1"),
        ]
    ).turns
    assert [(call.name, call.arguments, call.result) for call in turn.calls] == [
        ("order", {"n": 9}, "first"),
        ("order", {"n": 2}, "second"),
        ("stock", {}, None),
        ("stock", {"of": "tea"}, "seven"),
    ]
    assert turn.calls[1].seconds == 1.5
    assert not turn.calls[2].is_answered


def test_a_result_is_of_the_call_of_its_id_else_of_its_arguments_else_of_its_name() -> None:
    [turn] = transcript_of(
        [
            asks(
                {"id": "c1", "name": "order", "arguments": {"n": 1}},
                {"id": "c2", "name": "order", "arguments": {"n": 1}},
                {"id": "c3", "name": "stock", "arguments": {"of": "tea"}},
            ),
            called("order", {"n": 1}, "second", call_id="c2"),
            called("stock", {"of": "tea", "more": None}, "seven"),
        ]
    ).turns
    calls = [(call.id, call.result) for call in turn.calls]
    assert calls == [("c1", None), ("c2", "second"), ("c3", "seven")]


def test_a_call_that_no_turn_made_is_the_last_turn_s_or_its_own() -> None:
    transcript = transcript_of(
        [
            event("user_message", "go"),
            called("look", {}, "dark"),
            called("look", {}, "light"),
            event("agent_message", "well"),
            called("wait", None, None),
        ]
    )
    shown = [(turn.role, [call.answer for call in turn.calls]) for turn in transcript.turns]
    assert shown == [("user", []), ("tool", ["dark", "light"]), ("assistant", [""])]
    assert [call.name for call in transcript.calls] == ["look", "look", "wait"]
    assert transcript.asked == 1


def test_what_the_environment_does_is_no_turn() -> None:
    part = {"arguments": {"a": 1}, "name": "add"}
    transcript = transcript_of(
        [
            event("system", "setup add", phase="setup", result_text="1 + 1?", **part),
            event("system", "be brief"),
            event("user_message", "1 + 1?"),
            event("agent_message", "2"),
            event("system", "evaluate add", phase="evaluate", error="no grader", **part),
            event("system", "files", phase="files"),
        ]
    )
    assert [turn.role for turn in transcript.turns] == ["system", "user", "assistant"]
    [setup], [grading, files] = transcript.setup, transcript.grading
    assert (setup.phase, setup.name, setup.result) == ("setup", "add", "1 + 1?")
    assert (grading.phase, grading.error, files.phase) == ("grading", "no grader", "files")
    assert (transcript.prompt, transcript.last_answer) == ("be brief\n1 + 1?", "2")
    assert transcript.has_error
    assert "no grader" in "\n".join(transcript.texts())


def test_errors_and_pictures_of_calls_are_marked() -> None:
    said = called("look", {}, "broken", error="broken", screenshot_url="https://h/a.png")
    [turn] = transcript_of([said]).turns
    [call] = turn.calls
    assert (call.error, call.answer) == ("broken", "broken\n[image https://h/a.png]")
    assert turn.has_error
    assert Call("look", error="gone").answer == "gone"
    [call] = transcript_of([called("look", {}, "", error=True)]).calls
    assert call.error == "reported as an error"


def test_tokens_are_counted_and_seconds_are_those_of_sampling() -> None:
    sample = {"output_token_ids": [1, 2], "output_logprobs": [-0.1, -2.0]}
    asked, first, second, third = transcript_of(
        [
            event("user_message", "go", **TIMES),
            event("agent_message", "ab", sample=sample, tokens=["a", "b"], **TIMES),
            event("agent_message", "c"),
            event("agent_message", "d", sample=sample, tokens=["d"]),
        ]
    ).turns
    assert (asked.seconds, first.seconds, second.seconds) == (None, 1.5, None)
    assert [turn.tokens for turn in (asked, first, second, third)] == [None, 2, None, 2]
    assert [turn.number for turn in (first, second, third)] == [0, None, 1]
    assert (first.pieces, third.pieces) == (["a", "b"], ())


def test_the_first_words_are_those_of_the_first_line_that_has_any() -> None:
    [turn] = transcript_of([event("agent_message", "\n \n  so \nthen")]).turns
    assert turn.words == "so"
    [turn] = transcript_of([event("agent_message", "", reasoning="hm")]).turns
    assert turn.words == "hm"
    assert transcript_of([], "42").last_answer == "42"


def test_json_is_laid_out_and_other_text_stays() -> None:
    assert laid_out('{"a": 1}') == '{"a": 1}'
    long = {"names": ["x" * 30, "y" * 30, "z" * 30]}
    assert laid_out(long).count("\n") == 6
    assert laid_out("{no json") == "{no json"
    assert laid_out(None) == ""
    assert json_value("7") == "7"
    assert json_value("[NaN]") == "[NaN]"
    assert json_value(" " + "[" * 300_000).startswith(" [")


@pytest.mark.parametrize(
    ("fields", "fate"),
    [
        ({"checkpoint_id": "c", "step": 3}, "trained on at step 3"),
        ({"checkpoint_id": "c"}, "trained on"),
        ({"step": 3}, ""),
        ({"evaluates": "c", "step": 3}, "evaluated"),
        ({"heldout": True}, "held out: not trained on"),
        (
            {"discarded": ZERO_VARIANCE, "checkpoint_id": "c"},
            "discarded, zero variance: all rewards of its group are equal: no gradient",
        ),
        ({"discarded": "odd"}, "discarded, odd: not trained on"),
    ],
)
def test_what_became_of_a_rollout(fields: dict[str, object], fate: str) -> None:
    trace = Trace.model_validate({"id": "t", **fields})
    assert outcome_of(trace).fate == fate
    if "heldout" not in fields:
        assert fate_of(trace, evaluated=True) == "evaluated"


def test_a_rollout_that_somebody_ended_has_not_failed() -> None:
    """As a game that is left."""
    left = Trace(id="t", played=True, status="cancelled", error="the player left")
    outcome = outcome_of(left)
    assert outcome.error == ""
    assert outcome.fate == "played by a person: not trained on  ·  cancelled: the player left"
    assert outcome_of(left.model_copy(update={"error": None})).fate.endswith("  ·  cancelled")


def test_a_reward_has_its_parts_and_an_evaluation_has_no_advantage() -> None:
    grade = {
        "subscores": {"exact": 0, "form": 1.0},
        "info": {"expected": 42, "target": "7", "note": None},
    }
    trace = Trace(id="t", reward=0.5, evaluation_result=grade, error="late")
    outcome = outcome_of(trace, 0.25, " ÷ std")
    assert [part.name for part in outcome.subscores] == ["exact", "form"]
    assert (outcome.expected, outcome.error) == ("42", "late")
    assert (outcome.advantage, outcome.formula_end) == (0.25, " ÷ std")
    assert outcome_of(trace, 0.25, evaluated=True).advantage is None
    assert outcome_of(trace.model_copy(update={"evaluates": "c"}), 0.25).advantage is None
    assert outcome_of(trace.model_copy(update={"expected": "six"})).expected == "six"
    assert outcome_of(Trace(id="t", evaluation_result="odd")).expected == ""


def test_a_copy_says_what_the_reward_is_made_of_and_shows_calls_once() -> None:
    grade = {"subscores": [{"name": "form", "value": 1, "weight": 0.5}]}
    trace = Trace(id="t", reward=0.5, expected="six", evaluation_result=grade, checkpoint_id="c")
    events = [
        event("system", "", phase="setup", name="add", arguments={"a": 1}),
        asks({"name": "sum", "arguments": {"a": 1}}),
        called("sum", {"a": 1}, '{"sum": 1}'),
    ]
    copied = Copied(trace, transcript_of(events), outcome_of(trace, 0.5, " ÷ std"), events)
    assert FORMS["text"][1](copied) == (
        "rollout, reward .500\n"
        "reward .500  =  form 1 × .500\n"
        "expected: six\n"
        "advantage +.500 ÷ std\n"
        "trained on\n\n"
        'environment: setup add:\n{"a": 1}\n\n'
        'call sum:\n{"a": 1}\n→ {"sum": 1}\n'
    )


ESCAPE = "\x1b[2Jgone\u202e"


@pytest.mark.parametrize("form", ["text", "markdown", "answer"])
def test_no_part_of_a_copy_acts_on_a_terminal(form: str) -> None:
    part = {"name": ESCAPE, "arguments": {ESCAPE: ESCAPE}, "result_text": ESCAPE, "error": ESCAPE}
    events = [
        event("system", ESCAPE, phase="setup", **part),
        event("user_message", ESCAPE),
        event("agent_message", ESCAPE, reasoning=ESCAPE, error=ESCAPE),
        called(ESCAPE, {ESCAPE: ESCAPE}, ESCAPE, error=f"no {ESCAPE}", screenshot_url=ESCAPE),
        event("system", ESCAPE, phase=ESCAPE, **part),
    ]
    trace = Trace(id="t", task_slug=ESCAPE, error=ESCAPE, expected=ESCAPE)
    text = FORMS[form][1](Copied(trace, transcript_of(events), outcome_of(trace), events))
    assert "gone" in text
    assert not {"\x1b", "\u202e"} & set(text)


def test_a_copy_has_the_grading_and_says_an_error_once() -> None:
    events = [
        called("look", {}, "broken", error="broken"),
        event("system", "", phase="evaluate", name="add", result_text="1 of 2"),
    ]
    trace = Trace(id="t")
    text = FORMS["text"][1](Copied(trace, transcript_of(events), outcome_of(trace), events))
    assert text.endswith(
        "call look:\n{}\n→ broken\n(reported as an error)\n\nenvironment: grading add:\n1 of 2\n"
    )
