"""What preflight finds: in rows of any version by themselves, and from what was looked up."""

from itertools import permutations
from typing import Any

import pytest

from hud_tui.rl.findings import SEVERITIES, Finding, Severity, verdict
from hud_tui.rl.tasks.checks import (
    check_args,
    check_count,
    check_duplicates,
    check_fields,
    check_group_size,
    check_legacy,
    check_model,
    check_parameters,
    check_ready,
    check_rows,
    check_runtime,
    check_scenarios,
    check_slug_forms,
    check_slugs,
    check_tokens,
    check_vision,
    local_checks,
)
from hud_tui.rl.tasks.formats import read_row
from hud_tui.rl.tasks.legacy import Variable, fill_rows, find_variables
from hud_tui.rl.tasks.task import HELD_OUT, NAMED, Task, validator
from hud_tui.wire import Model, TrainingDefaults, WorkState
from hud_tui.wire_runs import JobParameters

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
    assert findings[-1].message == "1 training task, 1 held out"
    [finding] = check_slugs([task("1"), task("2"), task("1")])
    assert (finding.level, finding.where) == ("failure", "t.jsonl line 1")
    assert verdict(check_slugs([task("1"), task("2")])) == "ok"


def model(**more: Any) -> Model:
    return Model.model_validate({"id": "1", "model_name": "m", "is_trainable": True, **more})


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "ok"),
        ({"is_trainable": False}, "failure"),
        ({"public": True}, "failure"),
        ({"base_model": "m"}, "failure"),
        ({"base_model": "t", "forked_from": "t"}, "ok"),
    ],
)
def test_only_a_trainable_model_of_ones_own_passes(more: dict[str, Any], expected: str) -> None:
    assert verdict(check_model(model(**more))) == expected


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
    problems = validator(schema)(args)
    assert len(problems) == bool(problem)
    assert "".join(problems).startswith(problem)


def test_each_kind_of_wrong_args_is_told_with_its_own_lines() -> None:
    schema = {"required": ["a", "b"], "properties": {"a": {"type": "integer"}}}
    tasks = [
        task("4", a="x", b=1),
        task("5", a=1, b=1),
        task("6", a=1),
        task("7", a="y"),
        task("8", a="z", b=1),
    ]
    found = check_args("arith", {"add": schema}, tasks)
    assert [(one.level, one.message, one.where) for one in found] == [
        (
            "failure",
            "3 tasks of arith have invalid args: args.a: expected integer",
            "t.jsonl lines 4, 7-8",
        ),
        ("failure", "2 tasks of arith have invalid args: args.b: missing", "t.jsonl lines 6-7"),
    ]
    several = {"properties": {str(n): {"type": "integer"} for n in range(9)}}
    found = check_args("arith", {"add": several}, [task("1", **{str(n): "" for n in range(9)})])
    assert len(found) == NAMED + 1
    assert found[-1].message == "4 further kinds of invalid args"


@pytest.mark.parametrize("worst", SEVERITIES)
def test_the_verdict_is_the_worst_in_whichever_order(worst: Severity) -> None:
    for order in permutations(SEVERITIES[SEVERITIES.index(worst) :]):
        assert verdict([Finding("rows", level, level) for level in order]) == worst
    assert verdict([]) == "ok"


def row(slug: str = "one", number: int = 1, **more: Any) -> Task:
    fields = {"env": "e", "id": "s", "args": {"n": number}, "slug": slug, **more}
    return read_row(fields, f"t.json row {number}")


def only(findings: list[Finding]) -> tuple[str, str]:
    [finding] = findings
    return finding.level, finding.where


MANY = [row(f"t{number}", number) for number in range(12)]


def test_a_good_set_passes_every_check_and_fewer_than_ten_tasks_are_few() -> None:
    assert {finding.level for finding in local_checks(MANY, embedded=True)} == {"ok"}
    held = row("h", 99, columns={"split": HELD_OUT})
    assert check_count(MANY[:10])[0].level == "ok"
    assert check_count([*MANY[:9], held])[0].level == "warning"


@pytest.mark.parametrize("slug", ["1234", "x" * 101, "a\x1b[2J", " "])
def test_a_slug_that_hud_refuses_is_named(slug: str) -> None:
    others = [row(fine, 1) for fine in ("12345", "123", "a-1234", "x" * 100, "größe 5")]
    assert only(check_slug_forms([*others, row(slug, 2)])) == ("failure", "t.json row 2")
    assert check_slug_forms(others) == []


def test_the_same_task_under_two_slugs_is_named_once() -> None:
    tasks = [row("a"), row("b"), row("c", 3), row("a")]
    assert only(check_duplicates(tasks)) == ("warning", "t.json row 1")
    other = row("d", runtime_config={"image": "x"})
    assert only(check_duplicates([row("a"), other])) == ("ok", "")
    older = {"prompt": "p", "mcp_config": {"s": {"url": "https://x.y"}}}
    by_id = [read_row({**older, "id": id_}) for id_ in "ab"]
    assert check_duplicates(by_id)[0].level == "warning", "older rows without their ids"


@pytest.mark.parametrize(
    ("group_size", "per_step", "level"),
    [(8, 12, "ok"), (8, None, "ok"), (8, 13, "warning"), (1, 4, "failure")],
)
def test_batches_are_compared_with_the_tasks(
    group_size: int, per_step: int | None, level: str
) -> None:
    assert check_group_size(MANY, group_size, per_step)[0].level == level
    assert check_group_size(MANY, None, None) == [], "nobody knows the sizes"


@pytest.mark.parametrize(
    ("args", "level"),
    [
        ({"image": "data:image/png;base64,AAAA"}, "warning"),
        ({"parts": [{"type": "image_url", "image_url": {"url": "https://x/y"}}]}, "warning"),
        ({"deep": {"screenshot": "shots/1.PNG"}}, "warning"),
        ({"image": "debian:12"}, "ok"),
        ({"text": "a.png"}, "ok"),
        ({"type": "picture"}, "ok"),
    ],
)
def test_images_are_seen(args: dict[str, Any], level: str) -> None:
    where = "t.json row 1" if level == "warning" else ""
    assert only(check_vision([*MANY, row(args=args)])) == (level, where)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"image": "a/b:1", "resources": {"cpu": 1.5, "gpu": {"type": "H100", "count": 2}}}, ""),
        ({"compose": {"services": {}}, "limits": {"run_timeout_s": 60}}, ""),
        ({"resources": {"tpu": {"type": "v5e", "topology": "2x4"}}}, ""),
        ({"image": "a", "compose": {}}, ""),
        ({"image": "a", "compose": {"x": 1}}, "runtime_config: image or compose, not both"),
        ({"memory": 3}, "runtime_config.memory: not known"),
        ({"resources": {"memory_mb": 0}}, "runtime_config.resources.memory_mb: 0 is below 1"),
        ({"resources": {"cpu": 0}}, "runtime_config.resources.cpu: 0 is not above 0"),
        ({"limits": {"run_timeout_s": "60"}}, "expected integer or null"),
        ({"resources": {"tpu": {"type": "v5e"}}}, "runtime_config.resources.tpu.topology: missing"),
        ({"resources": {"tpu": {"type": "a", "topology": "4"}}}, "does not fit pattern"),
    ],
)
def test_a_runtime_config_that_hud_does_not_understand_is_named(
    config: dict[str, Any], said: str
) -> None:
    [finding] = check_runtime([row(runtime_config=config), row("b")], embedded=False)
    assert finding.level == ("failure" if said else "ok")
    assert said in finding.message
    [here] = check_runtime([row(runtime_config=config)], embedded=True)
    assert here.level == ("failure" if said else "warning")
    assert said or here.message.endswith("the runtime_config of 1 row")
    assert check_runtime([row()], embedded=True) == []


def test_misspelt_fields_and_mixed_forms_are_warned_of() -> None:
    rows = [row("a", arg={}), row("b", 2)]
    assert only(check_fields(rows)) == ("warning", "t.json row 1")
    v5 = read_row({"env": "e", "scenario": "s"})
    assert check_rows([*rows, v5])[0].level == "warning"
    assert check_rows([*rows, v5])[0].message == "3 tasks, 1 v5, 2 v6"


def test_a_model_is_ready_and_its_agent_records_tokens_where_the_service_says_so() -> None:
    assert check_ready(model(status="ready"), None)[0].level == "ok"
    assert check_ready(model(status="deploying"), None)[0].level == "failure"
    assert check_ready(model(), None) == []
    busy = check_ready(model(status="ready"), WorkState(status="running", id="j-1"))
    assert only(busy) == ("warning", "j-1")
    assert busy[0].fix == "wait until it ends, or cancel it: hud-tui jobs j-1 --cancel"
    assert busy[0].named == ""  # the fix says it
    long = WorkState(status="running", id="0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d")
    [busy] = check_ready(model(status="ready"), long)
    assert f"{busy.message} {busy.named} {busy.fix}".count("0a1b2c3d") == 1
    assert "0a1b2c3d-" not in f"{busy.message} {busy.where} {busy.fix}"
    agents = {"openai_compatible": "ok", "claude": "failure", None: "warning"}
    for kind, level in agents.items():
        assert check_tokens(model(sdk_agent_type=kind))[0].level == level


SECRET = "sk-hud-0123456789"


def v4(url: str = "https://mcp.hud.ai/v3/mcp", **headers: str) -> Task:
    row = {
        "prompt": "Go.",
        "mcp_config": {"hud": {"url": url, "headers": headers}},
        "evaluate_tool": {"name": "evaluate"},
    }
    return read_row(row, "t.json row 1")


def levels(tasks: list[Task], *known: str, embedded: bool = False) -> dict[str, str]:
    return {f.check: f.level for f in check_legacy(tasks, known, embedded)}


def of(check: str, findings: list[Finding]) -> Finding:
    return next(finding for finding in findings if finding.check == check)


def test_a_remote_graded_row_passes_on_the_platform_and_not_here() -> None:
    assert levels([v4()]) == {"graded": "ok", "remote": "ok"}
    assert levels([v4()], embedded=True)["environments"] == "failure"
    gym = read_row({"prompt": "Go.", "gym": "hud-browser", "evaluate": "page.is x"})
    assert levels([gym])["environments"] == "failure", "nobody runs it"
    assert check_legacy([read_row({"env": "e", "id": "s"})], (), embedded=True) == []


PUBLIC = """
    https://mcp.hud.ai/v3/mcp https://8.8.8.8/ ${URL} $URL https://$HOST/mcp https://${HOST}/mcp
"""
OF_THIS_NETWORK = """
    http://localhost:8765/mcp http://127.0.0.1/mcp http://10.1.2.3/ http://[::1]/ none
    http://box.internal/mcp http://mcp/ http://box.local./ http://$$localhost/
"""
OF_NO_WEBSITE = ("file:///x", "not a url", "ftp://x.y/z", "hud.ai/mcp")


def remote(row: dict[str, Any]) -> Finding:
    return of("remote", check_legacy([read_row(row, "t.json row 1")], ("URL", "HOST"), False))


@pytest.mark.parametrize("url", [*PUBLIC.split(), *OF_THIS_NETWORK.split(), *OF_NO_WEBSITE])
def test_a_server_that_is_not_reached_from_elsewhere_is_named(url: str) -> None:
    finding = remote(v4(url).row())
    if url in PUBLIC.split():
        assert finding.level == "ok"
    else:
        assert (finding.level, finding.where) == ("failure", "t.json row 1")
    assert ("neither http nor https" in finding.message) is (url in (*OF_NO_WEBSITE, "none"))


def test_a_row_that_nothing_grades_and_a_server_that_is_started_here_are_named() -> None:
    row = {"prompt": "Go.", "mcp_config": {"hud": {"url": "https://x.hud.ai"}}}
    finding = of("graded", check_legacy([v4(), read_row(row, "t.json row 2")], (), False))
    assert (finding.level, finding.where) == ("failure", "t.json row 2")
    finding = remote({**v4().more, "mcp_config": {"box": {"command": "docker"}}})
    assert "box is started on this machine" in finding.message


def test_variables_are_listed_with_what_is_missing() -> None:
    tasks = [v4(a="${KEY}", b="${REGION:eu}"), v4(a="Bearer ${KEY} ${OTHER}")]
    assert find_variables(tasks, {"KEY"}) == [
        Variable("KEY", missing=False, default=False, tasks=2),
        Variable("OTHER", missing=True, default=False, tasks=1),
        Variable("REGION", missing=False, default=True, tasks=1),
    ]
    finding = of("variables", check_legacy(tasks, {"KEY"}, embedded=False))
    assert (finding.level, finding.where) == ("failure", "OTHER")
    assert levels(tasks, "KEY", "OTHER")["variables"] == "ok"
    [variable] = find_variables([v4(a="${KEY:x}"), v4(a="${KEY}")], ())
    assert variable.missing, "a default of one row does not help another"
    assert variable.default


def test_a_key_in_the_clear_is_named_by_its_place_and_never_shown() -> None:
    finding = of("variables", check_legacy([v4(Authorization=f"Bearer {SECRET}")], (), False))
    assert finding.where == "mcp_config.hud.headers.Authorization"
    assert SECRET not in repr(finding)
    assert levels([v4(Authorization="Bearer ${KEY}")], "KEY")["variables"] == "ok"


def test_rows_are_filled_where_something_is_known_and_a_dollar_sign_is_written_twice() -> None:
    task = v4(a="${KEY}", b="${REGION:eu}-1", c="${UNKNOWN}", d="${EMPTY:}")
    [row] = fill_rows([task.row()], {"KEY": SECRET})
    headers = row["mcp_config"]["hud"]["headers"]
    assert headers == {"a": SECRET, "b": "eu-1", "c": "${UNKNOWN}", "d": ""}
    assert SECRET not in repr(task)
    plain = read_row({"env": "e", "id": "s", "args": {"text": "${KEY}"}}).row()
    assert fill_rows([plain], {"KEY": SECRET}) == [plain]

    task = v4(a="$$KEY costs $5, $$${KEY} more", b="$$")
    assert [(v.name, v.tasks) for v in find_variables([task], ())] == [("KEY", 1)]
    [row] = fill_rows([task.row()], {"KEY": "7"})
    headers = row["mcp_config"]["hud"]["headers"]
    assert headers == {"a": "$KEY costs $5, $7 more", "b": "$"}
    assert find_variables([v4(a="$$KEY")], ()) == []


@pytest.mark.parametrize(
    "text", ["Bearer $KEY", "Bearer ${KEY}", "Bearer ${KEY:}", "$KEY", "token $KEY"]
)
def test_a_variable_is_spelt_with_braces_or_without(text: str) -> None:
    task = v4(Authorization=text)
    assert [variable.name for variable in find_variables([task], ())] == ["KEY"]
    assert levels([task], "KEY")["variables"] == "ok"
    [row] = fill_rows([task.row()], {"KEY": SECRET})
    filled = row["mcp_config"]["hud"]["headers"]["Authorization"]
    assert filled.split()[-1] == SECRET
    assert "$" not in filled


@pytest.mark.parametrize(
    "text",
    [
        f"Bearer {SECRET}",
        f"{SECRET}$KEY",
        f"${{KEY:{SECRET}}}",
        f"Bearer ${{KEY:{SECRET}}}",
        "pa$$word-$$1234",
    ],
)
def test_a_key_beside_a_variable_or_as_its_default_is_in_the_clear(text: str) -> None:
    finding = of(
        "variables",
        [f for f in check_legacy([v4(token=text)], ("KEY",), False) if f.level == "warning"],
    )
    assert finding.where == "mcp_config.hud.headers.token"
    assert SECRET not in repr(finding)


@pytest.mark.parametrize(
    ("server", "clear"),
    [
        ({"command": "docker", "args": ["run", "-e", f"HUD_API_KEY={SECRET}", "image"]}, True),
        ({"command": "npx", "args": ["--header", f"Authorization: Bearer {SECRET}"]}, True),
        ({"command": "npx", "args": ["--header", "Authorization: Bearer $KEY"]}, False),
        ({"command": "docker", "args": ["run", "-e", "HUD_API_KEY=$KEY", "-e", "TOKEN"]}, False),
        ({"command": "x", "args": ["--max-tokens=100000000"]}, False),
        ({"url": f"https://mcp.hud.ai/?api_key={SECRET}"}, True),
        ({"url": "https://mcp.hud.ai/?api_key=${KEY}&region=eu-central-1"}, False),
    ],
)
def test_a_key_within_a_text_is_in_the_clear_too(server: dict[str, Any], clear: bool) -> None:
    task = read_row({**v4().more, "mcp_config": {"box": server}}, "t.json row 1")
    found = [f for f in check_legacy([task], ("KEY",), False) if f.check == "variables"]
    assert ("warning" in {f.level for f in found}) == clear
    assert SECRET not in repr(found)


@pytest.mark.parametrize(("most", "level"), [(127, None), (128, "failure"), (4000, "failure")])
def test_an_answer_that_no_context_holds_is_refused(most: int, level: str | None) -> None:
    defaults = TrainingDefaults(
        learning_rate=1e-4, group_size=8, max_tokens=20, tasks_per_step=4, steps=60
    )
    model = Model(id="m", model_name="m", context_length=128, training_defaults=defaults)
    found = check_parameters(model, JobParameters(max_tokens=most))
    assert [one.level for one in found] == ([] if level is None else [level])
    for one in found:
        assert f"max_tokens {most} is above the most, 127" in one.message
