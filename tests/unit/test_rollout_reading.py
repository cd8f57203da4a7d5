"""What is read of a rollout: its turns, its tokens' shades, its reward; and what is copied."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from hud_tui.rl.outcome import Subscore, fate_of, grade_notes, outcome_of, subscores
from hud_tui.rl.rollouts import (
    Shade,
    by_advantage,
    by_ratio,
    by_surprise,
    least_likely,
    rollout_groups,
    surprise_level,
)
from hud_tui.rl.transcript import Transcript, transcript_of
from hud_tui.rl.transcript_forms import FORMS, Copied
from hud_tui.tui.rollout_reader import group_heading
from hud_tui.tui.widgets.passages import (
    LEAST,
    Colouring,
    Passage,
    legend,
    overlaid,
    readable,
    turn_passages,
    wrapped,
)
from hud_tui.tui.widgets.transcript_blocks import Side, outcome_passages
from hud_tui.wire_rollouts import Trace
from hud_tui.wire_training import TraceEvent, TraceEvents, TurnSample, content_text

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
HOSTILE = "\x1b[2J ```\n```` \u202e end"


def test_a_token_is_shaded_by_its_surprise_the_log_of_its_ratio_or_its_advantage() -> None:
    assert by_surprise([0.0, -3.0, -6.0, -99.0]).shares == [0.0, 0.5, 1.0, 1.0]
    nan, logprobs = float("nan"), [-0.05, -0.6, -2.0, -4.0, -9.0]
    assert [surprise_level(p) for p in (*logprobs, 0.5, nan, None)] == [0, 1, 2, 3, 4, 0, 0, 0]
    assert least_likely([-0.01, -3.0, nan, -1.0, -9.0], 2) == [4, 1]
    shaded = by_ratio([-1.0, -0.5, None, float("nan")], [-1.0, -99.0, -1.0, -1.0])
    assert shaded.values[0] == pytest.approx(1.0)
    assert shaded.shares == [0.5, 1.0, None, None]
    assert by_advantage(-0.25, 0.5, 3).shares == [0.25] * 3
    assert by_advantage(None, 0.5, 2).shares == [None, None]
    assert by_advantage(0.0, 0.0, 1).shares == [None]


@given(st.lists(st.tuples(NUMBERS, NUMBERS)))
def test_no_number_leaves_the_ramp(pairs: list[tuple[float, float]]) -> None:
    now, sampled = [one for one, _ in pairs], [other for _, other in pairs]
    for shaded in (by_surprise(sampled), by_ratio(now, sampled)):
        assert len(shaded.shares) == len(pairs)
        assert all(share is None or 0 <= share <= 1 for share in shaded.shares)


@pytest.mark.parametrize(
    ("result", "found"),
    [
        (None, []),
        ({"subscores": None}, []),
        ({"subscores": "odd"}, []),
        (
            {"subscores": {"exact": 1, "form": 0.5, "odd": "x"}},
            [Subscore("exact", 1.0), Subscore("form", 0.5)],
        ),
        (
            {"subscores": [{"name": "form", "score": 0.5, "weight": 0.2}, {"name": "x"}, 3]},
            [Subscore("form", 0.5, 0.2)],
        ),
        ({"subscores": [{"name": "exact", "value": 1.0}]}, [Subscore("exact", 1.0)]),
    ],
)
def test_subscores_in_every_form(result: object, found: list[Subscore]) -> None:
    assert subscores(result) == found


@pytest.mark.parametrize(
    ("result", "notes"),
    [
        (None, []),
        ("odd", []),
        ({"score": 1.0, "info": {}, "content": None}, []),
        (
            {"info": {"exact": False, "found": ["7", 8]}},
            [("exact", "false"), ("found", '["7", 8]')],
        ),
        ({"info": "by hand"}, [("info", "by hand")]),
        (
            {"isError": True, "content": [{"type": "text", "text": "no answer"}]},
            [("grader", "reported an error"), ("grader", "no answer")],
        ),
    ],
)
def test_a_grader_s_notes_in_every_form(result: object, notes: list[tuple[str, str]]) -> None:
    assert grade_notes(result) == notes


def test_a_grader_s_notes_are_bounded_and_plain() -> None:
    info = {f"key {n}": HOSTILE * 500 for n in range(100)}
    notes = grade_notes({"info": info})
    assert (len(notes), notes[-1]) == (25, ("…", "76 more"))
    trace = Trace(id="t", reward=0.5, evaluation_result={"info": info, "subscores": {"exact": 1}})
    shown = list(outcome_passages(Side(Transcript(), outcome_of(trace))))
    text = "\n".join(passage.title + passage.text for passage in shown)
    assert "key 0␛[2J" in text
    assert "\x1b" not in text
    assert len(text) < 30_000


def test_an_image_is_a_line_and_a_call_is_text() -> None:
    said = {
        "id": "e", "seq": 0, "kind": "tool_call", "tool_name": "look", "arguments": {"at": "x"},
        "result_text": [{"type": "image", "data": "a" * 40_000, "mimeType": "image/png"}],
        "screenshot_url": "https://h/s.png",
    }  # fmt: skip
    [turn] = transcript_of([TraceEvent.model_validate(said)]).turns
    assert [passage.text for passage in turn_passages(turn, Colouring())] == [
        '→ look {"at": "x"}', "← [image/png, 30 kB]\n[image https://h/s.png]",
    ]  # fmt: skip


def rollout() -> tuple[Trace, TraceEvents]:
    sample = TurnSample(output_token_ids=[1, 2], output_logprobs=[-0.1, -2.0])
    events = [
        TraceEvent(id="0", seq=0, kind="user_message", text="add"),
        TraceEvent(
            id="1", seq=1, kind="agent_message", text="4 !", tokens=["4", " !"], sample=sample
        ),
        TraceEvent(
            id="2", seq=2, kind="tool_call", tool_name="sum", arguments={"a": 1}, result_text="3"
        ),
        TraceEvent(id="3", seq=3, kind="agent_message", text=HOSTILE, reasoning="so"),
    ]
    return Trace(id="t", task_slug="add-1", step=3, reward=0.5), TraceEvents(events=events)


STYLES = {name: Style(dim=n % 2 == 0) for n, name in enumerate(("plain", "dim", "faint"))}


def tone(name: str) -> Style:
    return STYLES.get(name, Style())


@pytest.mark.parametrize("shade", Shade)
def test_every_shade_has_its_legend_and_its_values(shade: Shade) -> None:
    _, events = rollout()
    _, turn, _ = transcript_of(events.events).turns
    colouring = Colouring(shade, 0.25, 0.5, {0: [-0.1, -1.0]}, frozenset({0}))
    told, value = {
        Shade.SURPRISE: ("surprise", "-2.000"),
        Shade.RATIO: ("importance ratio", "2.718"),
        Shade.ADVANTAGE: ("advantage", "0.250"),
    }[shade]
    assert told in legend(colouring).plain
    text, _, _, sums, tokens = turn_passages(turn, colouring)
    assert (text.text, text.ends) == ("4 !", [1, 3])
    assert sums.text.startswith("2 tokens   logprob Σ -2.10")
    assert tokens.rows is not None
    assert value in "".join(part.text for row in tokens.rows(60, tone) for part in row)
    assert legend(Colouring()).plain == ""


@pytest.mark.parametrize("tokens", [None, [], ["5"], ["5", "2", "", ""]])
def test_an_answer_whose_pieces_are_unknown_is_its_text(tokens: list[str] | None) -> None:
    sample = TurnSample(output_token_ids=[53, 50, 1], output_logprobs=[-0.5, -0.25, -0.25])
    said = TraceEvent(id="0", seq=0, kind="agent_message", text="52", tokens=tokens, sample=sample)
    [turn] = transcript_of([said]).turns
    assert [passage.text for passage in turn_passages(turn, Colouring(Shade.SURPRISE))] == [
        "52",
        "3 tokens   logprob Σ -1.00   mean -0.333   (token texts unknown: not coloured)",
    ]


@given(st.text(max_size=200), st.integers(LEAST, 40))
def test_every_line_fits_and_nothing_but_spaces_and_ends_of_lines_is_left_out(
    text: str, width: int
) -> None:
    text = readable(text)
    lines, last = wrapped(text, width), 0
    for start, stop in lines:
        assert set(text[last:start]) <= {" ", "\n"}
        assert len(text[last:start]) <= 1
        assert cell_len(text[start:stop]) <= width
        last = stop
    assert last == len(text)


def test_a_long_word_is_cut_and_a_line_ends_at_a_space() -> None:
    text = "one two three " + "x" * 12 + "\n\nfour"
    lines = [text[start:stop] for start, stop in wrapped(text, 8)]
    assert lines == ["one two", "three", "xxxxxxxx", "xxxx", "", "four"]
    wide = "世界" * 6
    assert [wide[start:stop] for start, stop in wrapped(wide, 8)] == ["世界世界"] * 3


def test_parts_of_a_line_are_styled_by_token_and_marked_over() -> None:
    passage = Passage("ab cd", ends=[1, 2, 5], styles=[lambda tone: tone("dim")] * 3)
    assert [piece[:2] for piece in passage.pieces(1, 4, tone)] == [(1, 2), (2, 4)]
    pieces = overlaid(passage.pieces(0, 5, tone), 1, 3, Style(bold=True))
    assert [(start, stop, bool(style.bold)) for start, stop, style in pieces] == [
        (0, 1, False), (1, 2, True), (2, 3, True), (3, 5, False),
    ]  # fmt: skip
    led = Passage("→ go now", tone="plain", title_tone="dim", lead=4)
    assert [piece[:2] for piece in led.pieces(0, 8, tone)] == [(0, 4), (4, 8)]
    assert [piece[:2] for piece in led.pieces(5, 8, tone)] == [(5, 8)]


def copied(trace: Trace, events: TraceEvents) -> Copied:
    transcript = transcript_of(events.events, trace.completion)
    return Copied(trace, transcript, outcome_of(trace, 0.25), events.events)


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_what_is_copied_cannot_act_and_has_everything(form: str) -> None:
    text = FORMS[form][1](copied(*rollout()))
    assert not {"\x1b", "\u202e"} & set(text)
    for part in ("add-1", "sum", "so", "4 !"):
        assert part in text
    if form == "json":
        kept = json.loads(text)["events"]
        assert kept[3]["text"] == HOSTILE
        assert kept[1]["sample"]["output_logprobs"] == [-0.1, -2.0]
    else:
        assert "advantage +.250" in text
    if form == "markdown":
        assert "`````text" in text  # longer than the longest fence inside


def event(kind: str, text: object = None, **fields: object) -> TraceEvent:
    return TraceEvent.model_validate({"id": "e", "seq": 0, "kind": kind, "text": text, **fields})


def test_the_prompt_ends_where_the_policy_speaks_and_all_that_follows_is_the_answer() -> None:
    turns = [event("system", "be brief"), event("user_message", "2 + 2?"), event("agent_message")]
    assert transcript_of(turns).prompt == "be brief\n2 + 2?"
    assert transcript_of([]).prompt == transcript_of([]).answer == ""
    turns = [
        event("user_message", "look it up"),
        event("agent_message", "I do", reasoning="hm"),
        event("tool_call", tool_name="find", arguments={"q": 1}, result_text="4"),
        event("user_message", "sure?"),
        event("agent_message", "4", error="cut off"),
    ]
    assert transcript_of(turns).answer.split("\n") == [
        "(hm)",
        "I do",
        '→ find {"q": 1}',
        "4",
        "[sure?]",
        "4",
        "error: cut off",
    ]
    turn = event("agent_message", None, tool_calls=[{"name": "say", "arguments": {"x": 4}}])
    assert transcript_of([turn]).answer == '→ say {"x": 4}'


PIXEL = "iVBORw0KGgo" * 1000


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("2 + 2?", "2 + 2?"),
        (["2 +", None, " 2?"], "2 +\n 2?"),
        ([{"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}], "a\nb"),
        ([{"role": "user", "content": [{"type": "input_text", "text": "a"}]}], "a"),
        ({"role": "assistant", "content": None, "refusal": "no"}, "no"),
        ({"type": "thinking", "thinking": "hm"}, "hm"),
        (
            {"role": "assistant", "content": "", "tool_calls": [
                {"type": "function", "function": {"name": "say", "arguments": '{"x": 4}'}}]},
            '→ say {"x": 4}',
        ),
        ({"type": "tool_use", "name": "say", "input": {"x": 4}}, '→ say {"x": 4}'),
        ({"type": "tool_result", "content": [{"type": "text", "text": "said"}]}, "said"),
        ({"content": [], "isError": False, "structuredContent": {"n": 1}}, '{"n": 1}'),
        ({"x": 4}, '{"x": 4}'),
        (7, "7"),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            "[image/png, 8 kB]",
        ),
        ({"type": "image_url", "image_url": {"url": "https://h/a.png"}}, "[image https://h/a.png]"),
        ({"type": "input_image", "image_url": "https://h/a.png"}, "[image https://h/a.png]"),
        ({"type": "image", "data": PIXEL, "mimeType": "image/jpeg"}, "[image/jpeg, 8 kB]"),
        (
            {"type": "image", "source": {"media_type": "image/webp", "data": "abcd"}},
            "[image/webp, 3 bytes]",
        ),
        ({"type": "input_audio", "input_audio": {"data": "abcd"}}, "[audio, 3 bytes]"),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}, "inside"),
        ({"type": "resource_link", "uri": "file:///a"}, "[resource file:///a]"),
        ({"type": "file", "file": {"file_id": "f1"}}, "[file f1]"),
    ],
)  # fmt: skip
def test_content_is_read_as_text_whatever_its_shape(content: object, text: str) -> None:
    assert content_text(content) == text
    read = event("user_message", content)
    assert read.text == (None if content is None else text)


@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["type", "text", "content", "tool_calls", "image_url", "url", "data",
                         "name", "function", "arguments", "resource", "role"]), inner, max_size=4),
    max_leaves=25,
))  # fmt: skip
def test_no_shape_of_content_stops_the_reading(content: object) -> None:
    assert isinstance(content_text(content), str)
    read = event("agent_message", content, tool_calls=content, result_text=content)
    assert isinstance(transcript_of([read]).answer, str)


def test_nested_content_is_bounded_and_samples_may_say_more_than_is_known() -> None:
    deep: object = "x"
    for _ in range(5000):
        deep = [deep]
    assert content_text(deep) == "(too deep to show)"

    sample = {"output_token_ids": [1], "output_logprobs": [-0.5], "finish_reason": "stop"}
    event = {"id": "e", "seq": 0, "kind": "agent_message", "sample": sample}
    read = TraceEvents.model_validate({"events": [event]}).events[0].sample
    assert read is not None
    assert (read.output_token_ids, read.output_logprobs) == ([1], [-0.5])


def test_a_rollout_that_was_played_has_no_advantage_and_says_so() -> None:
    traces = [
        Trace(id=str(reward), group_id="g", reward=reward, task_slug="add", played=True)
        for reward in (0.0, 1.0)
    ]
    [group] = rollout_groups(traces)
    assert [rollout.advantage for rollout in group.rollouts] == [None, None]
    assert (group.is_played, group.has_signal) == (True, False)
    assert group_heading(group).plain.endswith("  played by a person: not trained on")
    assert fate_of(traces[0]) == "played by a person: not trained on"
