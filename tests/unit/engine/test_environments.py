"""Prompts, answers and rewards of every scenario, and the built-in tasksets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.service.engines.tiny.engine import CONTEXT
from hud_tui.service.engines.tiny.tokenizer import CharTokenizer
from hud_tui.service.environments import ENVIRONMENTS, TASKSETS, TaskRow, rows

EXAMPLES = [
    ("arith", "add", {"a": 12, "b": 30}, "12 + 30 = ?", "42"),
    ("arith", "subtract", {"a": 12, "b": 30}, "12 - 30 = ?", "-18"),
    ("arith", "compare", {"a": 12, "b": 30}, "Larger: 12 or 30?", "30"),
    ("text", "reverse", {"text": "candle"}, "Reverse: candle", "eldnac"),
    ("text", "count_letter", {"letter": "e", "text": "cheese"}, "Count e in: cheese", "3"),
    ("text", "uppercase", {"text": "river"}, "Uppercase: river", "RIVER"),
    ("letters", "reverse", {"text": "river"}, "Reverse: river", "revir"),
    ("letters", "uppercase", {"text": "river"}, "Uppercase: river", "RIVER"),
]


@pytest.mark.parametrize(("env", "name", "args", "prompt", "answer"), EXAMPLES)
def test_prompt_answer_and_rewards(
    env: str, name: str, args: dict[str, object], prompt: str, answer: str
) -> None:
    scenario = ENVIRONMENTS[env].scenarios[name]
    assert scenario.prompt(args) == prompt
    assert scenario.answer(args) == answer
    assert scenario.grade(args, f" {answer}\n") == 1.0
    assert scenario.grade(args, f"The answer is {answer}.") == 0.2
    assert scenario.grade(args, "I do not know.") == 0.0
    assert scenario.grade(args, "") == 0.0


def test_a_near_miss_earns_more_the_nearer_it_is() -> None:
    add = ENVIRONMENTS["arith"].scenarios["add"]
    earned = [add.grade({"a": 12, "b": 30}, text) for text in ("41", "44", "52", "53", "-42")]
    assert earned == sorted(earned, reverse=True)
    assert 0.2 > earned[0] > earned[2] > earned[3] == earned[4] == 0.0
    for inside_another in ("12 or 22", "it is -2"):
        assert add.grade({"a": 1, "b": 1}, inside_another) == 0.0
    reverse = ENVIRONMENTS["text"].scenarios["reverse"]
    assert reverse.grade({"text": "abcd"}, "dcbx") == 0.1125
    assert reverse.grade({"text": "abcd"}, "dcb") == reverse.grade({"text": "abcd"}, "xxxa") == 0
    in_place = ENVIRONMENTS["letters"].scenarios["reverse"]
    said = ("", "xxxx", "dxxx", "dcbaaaaa", "dcbx", "dcb", "dcba")
    earned = [in_place.grade({"text": "abcd"}, text) for text in said]
    assert earned == [0, 0, 0.125, 0.25, 0.375, 0.375, 1]


@given(st.text(), st.integers(-999, 999), st.integers(-999, 999))
def test_a_reward_lies_within_0_and_1(text: str, a: int, b: int) -> None:
    for scenario in ENVIRONMENTS["arith"].scenarios.values():
        assert 0 <= scenario.grade({"a": a, "b": b}, text) <= 1
    counting = ENVIRONMENTS["text"].scenarios["count_letter"]
    assert 0 <= counting.grade({"letter": "e", "text": "cheese"}, text) <= 1


@pytest.mark.parametrize(
    ("env", "name", "args", "word"),
    [
        ("arith", "add", {"a": 1}, "args.b is missing"),
        ("arith", "add", {"a": 1, "b": 2, "c": 3}, "args.c is not known"),
        ("arith", "add", {"a": 1, "b": "2"}, "args.b must be an integer"),
        ("arith", "add", {"a": True, "b": 2}, "args.a must be an integer"),
        ("arith", "add", {"a": 10**30, "b": 2}, "args.a must be"),
        ("text", "reverse", {"text": 5}, "args.text must be a string"),
        ("text", "reverse", {"text": ""}, "args.text must be 1 to 64 characters"),
        ("text", "count_letter", {"letter": "ab", "text": "x"}, "args.letter must be 1 to 1"),
    ],
)
def test_wrong_args_name_the_field(env: str, name: str, args: dict[str, object], word: str) -> None:
    scenario = ENVIRONMENTS[env].scenarios[name]
    for act in (scenario.prompt, scenario.answer, lambda args: scenario.grade(args, "")):
        with pytest.raises(ValueError, match=word):
            act(args)


@pytest.mark.parametrize("name", TASKSETS)
def test_a_taskset_s_rows_can_be_rolled_out_and_none_held_out_is_trained_on(name: str) -> None:
    tasks = TASKSETS[name].tasks
    assert len({task["slug"] for task in tasks}) == len(tasks)
    prompts: dict[bool, set[str]] = {True: set(), False: set()}
    for task in tasks:
        scenario = ENVIRONMENTS[task["env"]].scenarios[task["id"]]
        prompt = scenario.prompt(task["args"])
        prompts["columns" in task].add(prompt)
        rendered = CharTokenizer().render([{"role": "user", "content": prompt}])
        assert len(rendered) + 20 <= CONTEXT
        assert scenario.grade(task["args"], scenario.answer(task["args"])) == 1.0
    assert prompts[True]
    assert not prompts[True] & prompts[False]


def test_the_tasksets_hold_what_they_say() -> None:
    train = {name: [t for t in s.tasks if "columns" not in t] for name, s in TASKSETS.items()}
    heldout = {name: [t for t in s.tasks if "columns" in t] for name, s in TASKSETS.items()}
    assert len(train["arith"]) == 96
    assert {len(heldout[name]) for name in TASKSETS} == {36, 24, 48, 80}
    assert len(train["long"]) == 320
    assert all(t["columns"] == {"split": "heldout"} for rows in heldout.values() for t in rows)
    examples = {(env, name) for env, name, *_ in EXAMPLES}
    assert examples == {(e.name, name) for e in ENVIRONMENTS.values() for name in e.scenarios}
    of_mixed = {(task["env"], task["id"]) for task in heldout["mixed"]}
    assert of_mixed == {(env, name) for env, name in examples if env != "letters"}


def test_tasks_are_the_same_everywhere() -> None:
    def first(n: int) -> list[TaskRow]:
        return list(rows("arith", "add", lambda random: {"a": random.randrange(9), "b": 1}, n, 2))

    assert first(3) == first(3)
    assert TASKSETS["arith"].tasks[0]["slug"] == "add-86-34"
    assert ["columns" in row for row in first(3)] == [False, False, False, True, True]
