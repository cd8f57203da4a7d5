"""What preflight finds, from what was looked up."""

from itertools import permutations
from typing import Any, cast, get_args

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


def test_rows_and_what_is_left_to_train_on_and_slugs_that_are_used_twice() -> None:
    assert verdict(check_rows([])) == "failure"
    assert verdict(check_rows([task("1", split=HELD_OUT)])) == "failure"
    findings = check_rows([task("1"), task("2", split=HELD_OUT)])
    assert verdict(findings) == "ok"
    assert findings[-1].message == "1 task to train on, 1 held out"
    [finding] = check_slugs([task("1"), task("2"), task("1")])
    assert (finding.level, finding.where) == ("failure", "t.jsonl line 1")
    assert verdict(check_slugs([task("1"), task("2")])) == "ok"


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
    assert verdict(check_model(model)) == expected


def test_scenarios_are_compared_without_their_prefix_and_args_by_a_published_schema() -> None:
    tasks = [task("1", "add"), task("2", "sub")]
    assert verdict(check_scenarios("arith", ["arith:add", "sub"], tasks)) == "ok"
    [finding] = check_scenarios("arith", ["add"], tasks)
    assert (finding.level, finding.where) == ("failure", "t.jsonl line 2")
    assert "sub" in finding.message
    assert verdict(check_scenarios("arith", None, tasks)) == "warning"

    assert check_args("arith", {}, [task("1")]) == []
    assert verdict(check_args("arith", {"add": SCHEMA}, [task("1", a=3)])) == "ok"
    [finding] = check_args("arith", {"add": SCHEMA}, [task("1", a=3), task("2", a=30)])
    assert (finding.level, finding.where) == ("failure", "t.jsonl line 2")


@pytest.mark.parametrize(
    ("schema", "args", "problem"),
    [
        (SCHEMA, {"a": 3, "word": "x", "op": "+"}, ""),
        (SCHEMA, {"a": 3.0}, ""),
        (SCHEMA, {}, "args.a: missing"),
        (SCHEMA, {"a": "3"}, "args.a: expected integer"),
        (SCHEMA, {"a": True}, "args.a: expected integer"),
        (SCHEMA, {"a": 10}, "args.a: 10 is above 9"),
        (SCHEMA, {"a": -1}, "args.a: -1 is below 0"),
        (SCHEMA, {"a": 1, "word": ""}, "args.word: 0 is below 1"),
        (SCHEMA, {"a": 1, "op": "*"}, "args.op: expected one of ['+', '-']"),
        (SCHEMA, {"a": 1, "b\x1b": 2}, "args.b␛: not known"),
        ({"required": ["a", "b\x1b", "c"]}, {"c": 1}, "args: a, b␛ are missing"),
        ({"properties": {"n": {"multipleOf": 2}}}, {"n": 3}, "args.n: does not fit multipleOf 2"),
        ({"properties": {"n": {"const": 1}}}, {"n": 3}, "args.n: does not fit const 1"),
        ({"properties": {"l": {"items": {"type": "string"}}}}, {"l": ["a", 2]},
         "args.l[1]: expected string"),
        ({"$defs": {"n": {"minimum": 3}}, "$ref": "#/$defs/n"}, 2, "args: 2 is below 3"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 2, "args: does not fit anyOf"),
        # What makes no sense refuses nothing.
        *((odd, {"a": 1}, "") for odd in ({}, {"type": 3}, {"type": "vector"})),
        ({"properties": [], "required": 1}, {"a": 1}, ""),
        ({"properties": {"a": {"pattern": "("}}}, {"a": "1"}, ""),
        # No reference is fetched, or followed without end.
        ({"$ref": "http://127.0.0.1:9/schema.json"}, {"a": "1"}, ""),
        ({"$ref": "#"}, {"a": "1"}, ""),
        ({"allOf": [{"$ref": "#"}]}, {"a": "1"}, ""),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, {"a": "1"}, ""),
    ],
)  # fmt: skip
def test_args_against_a_json_schema(schema: dict[str, Any], args: object, problem: str) -> None:
    assert validator(schema)(args).startswith(problem)
    assert bool(problem) == bool(validator(schema)(args))


@pytest.mark.parametrize("worst", ["ok", "warning", "failure"])
def test_the_verdict_is_the_worst_in_whichever_order(worst: str) -> None:
    milder = get_args(Level)[: get_args(Level).index(worst)]
    for order in permutations([worst, *milder]):
        assert verdict([Finding("rows", cast(Level, one), one) for one in order]) == worst
    assert verdict([]) == "ok"
