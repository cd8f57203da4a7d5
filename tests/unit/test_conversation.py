"""A rollout's turns as the task's text and the policy's."""

from hud_tui.rl.rollouts import answer_of, prompt_of
from hud_tui.wire import TraceEvent


def event(kind: str, text: str | None = None, **fields: object) -> TraceEvent:
    return TraceEvent.model_validate({"id": "e", "seq": 0, "kind": kind, "text": text, **fields})


def test_the_prompt_ends_where_the_policy_speaks() -> None:
    turns = [event("system", "be brief"), event("user_message", "2 + 2?"), event("agent_message")]
    assert prompt_of(turns) == "be brief\n2 + 2?"
    assert prompt_of([]) == answer_of([]) == ""


def test_tools_and_later_messages_are_part_of_the_answer() -> None:
    turns = [
        event("user_message", "look it up"),
        event("agent_message", "I do", reasoning="hm"),
        event("tool_call", tool_name="find", arguments={"q": 1}, result_text="4"),
        event("user_message", "sure?"),
        event("agent_message", "4", error="cut off"),
    ]
    assert answer_of(turns).split("\n") == [
        "(hm)",
        "I do",
        "→ find {'q': 1}",
        "4",
        "[sure?]",
        "4",
        "error: cut off",
    ]
