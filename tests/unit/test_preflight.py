"""What preflight finds, from what was looked up."""

from typing import Any, cast

import pytest

from hud_tui.rl.tasks.checks import (
    Finding,
    Level,
    check_args,
    check_model,
    check_rows,
    check_scenarios,
    check_slugs,
    verdict,
)
from hud_tui.rl.tasks.task import HELD_OUT, Task, validator
from hud_tui.wire import Model

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "minimum": 0, "maximum": 9},
        "word": {"type": "string", "minLength": 1},
        "op": {"enum": ["+", "-"]},
    },
    "required": ["a"],
    "additionalProperties": False,
}


def task(slug: str, scenario: str = "add", split: str = "train", **args: Any) -> Task:
    return Task("arith", scenario, args, slug, {"split": split}, f"t.jsonl line {slug}")


def level(findings: list[Finding]) -> str:
    return verdict(findings)


def test_rows_and_what_is_left_to_train_on() -> None:
    assert level(check_rows([])) == "failure"
    assert level(check_rows([task("1", split=HELD_OUT)])) == "failure"
    findings = check_rows([task("1"), task("2", split=HELD_OUT)])
    assert level(findings) == "ok"
    assert findings[-1].message == "1 task to train on, 1 held out"


def test_a_slug_that_is_used_twice_is_named_with_its_rows() -> None:
    [finding] = check_slugs([task("1"), task("2"), task("1")])
    assert (finding.level, finding.where) == ("failure", "t.jsonl line 1")
    assert level(check_slugs([task("1"), task("2")])) == "ok"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Model(id="1", model_name="mine", is_trainable=True), "ok"),
        (Model(id="1", model_name="claude", is_trainable=False), "failure"),
        (
            Model.model_validate(
                {"id": "1", "model_name": "s", "is_trainable": True, "public": True}
            ),
            "failure",
        ),
        (Model(id="1", model_name="tiny/a", is_trainable=True, base_model="tiny/a"), "failure"),
        (Model(id="1", model_name="f", is_trainable=True, base_model="t", forked_from="t"), "ok"),
    ],
)
def test_only_a_trainable_model_of_ones_own_passes(model: Model, expected: str) -> None:
    assert level(check_model(model)) == expected


def test_scenarios_are_compared_with_and_without_the_environment_s_prefix() -> None:
    tasks = [task("1", "add"), task("2", "sub")]
    assert level(check_scenarios("arith", ["arith:add", "sub"], tasks)) == "ok"
    [finding] = check_scenarios("arith", ["add"], tasks)
    assert (finding.level, finding.where) == ("failure", "t.jsonl line 2")
    assert "sub" in finding.message
    assert level(check_scenarios("arith", None, tasks)) == "warning"


def test_args_are_judged_where_a_schema_is_published() -> None:
    assert check_args("arith", {}, [task("1")]) == []
    assert level(check_args("arith", {"add": SCHEMA}, [task("1", a=3)])) == "ok"
    [finding] = check_args("arith", {"add": SCHEMA}, [task("1", a=3), task("2", a=30)])
    assert (finding.level, finding.where) == ("failure", "t.jsonl line 2")


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"a": 3, "word": "x", "op": "+"}, ""),
        ({"a": 3.0}, ""),
        ({}, "args.a: missing"),
        ({"a": "3"}, "args.a: expected integer"),
        ({"a": True}, "args.a: expected integer"),
        ({"a": 10}, "args.a: 10 is above 9"),
        ({"a": -1}, "args.a: -1 is below 0"),
        ({"a": 1, "word": ""}, "args.word: 0 is below 1"),
        ({"a": 1, "op": "*"}, "args.op: expected one of ['+', '-']"),
        ({"a": 1, "b\x1b": 2}, "args.b␛: not known"),
    ],
)
def test_args_against_a_json_schema(args: dict[str, Any], problem: str) -> None:
    assert validator(SCHEMA)(args) == problem


def test_every_missing_arg_is_named() -> None:
    schema = {"type": "object", "required": ["a", "b\x1b", "c"]}
    assert validator(schema)({"c": 1}) == "args: a, b␛ are missing"


@pytest.mark.parametrize(
    "schema", [{}, {"type": 3}, {"properties": [], "required": 1}, {"type": "vector"}]
)
def test_a_schema_that_makes_no_sense_refuses_nothing(schema: dict[str, Any]) -> None:
    assert validator(schema)({"a": 1}) == ""


REFERRING = [
    {"$ref": "http://127.0.0.1:9/schema.json"},
    {"$ref": "#"},
    {"properties": {"a": {"$ref": "#/$defs/none"}}},
    {"allOf": [{"$ref": "#"}]},
    {"properties": {"a": {"pattern": "("}}},
]


@pytest.mark.parametrize("schema", REFERRING, ids=range(len(REFERRING)))
def test_a_schema_is_never_fetched_and_never_followed_without_end(schema: dict[str, Any]) -> None:
    assert validator(schema)({"a": "1"}) == ""


@pytest.mark.parametrize(
    ("schema", "args", "problem"),
    [
        ({"properties": {"n": {"multipleOf": 2}}}, {"n": 3}, "args.n: does not fit multipleOf 2"),
        ({"properties": {"n": {"const": 1}}}, {"n": 3}, "args.n: does not fit const 1"),
        (
            {"properties": {"l": {"items": {"type": "string"}}}},
            {"l": ["a", 2]},
            "args.l[1]: expected string",
        ),
        ({"$defs": {"n": {"minimum": 3}}, "$ref": "#/$defs/n"}, 2, "args: 2 is below 3"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 2, "args: does not fit anyOf"),
    ],
)
def test_every_keyword_of_a_schema_is_judged(
    schema: dict[str, Any], args: object, problem: str
) -> None:
    assert validator(schema)(args).startswith(problem)


@pytest.mark.parametrize(
    ("levels", "worst"),
    [
        ("", "ok"),
        ("ok", "ok"),
        ("ok warning", "warning"),
        ("warning ok", "warning"),
        ("failure warning", "failure"),
        ("warning failure", "failure"),
        ("ok failure ok", "failure"),
        ("failure warning ok", "failure"),
    ],
)
def test_the_verdict_is_the_worst_in_whichever_order(levels: str, worst: str) -> None:
    found = [Finding("rows", cast(Level, one), one) for one in levels.split()]
    assert verdict(found) == worst
