"""Checks of the rows by themselves, and of the model."""

from typing import Any

import pytest

from hud_tui.rl.tasks.checks import (
    Finding,
    check_count,
    check_duplicates,
    check_fields,
    check_group_size,
    check_ready,
    check_rows,
    check_runtime,
    check_slug_forms,
    check_tokens,
    check_vision,
    local_checks,
)
from hud_tui.rl.tasks.formats import read_row
from hud_tui.rl.tasks.task import HELD_OUT, Task
from hud_tui.wire import JobStatus, Model


def task(slug: str = "one", number: int = 1, **more: Any) -> Task:
    row = {"env": "e", "id": "s", "args": {"n": number}, "slug": slug, **more}
    return read_row(row, f"t.json row {number}")


def only(findings: list[Finding]) -> tuple[str, str]:
    [finding] = findings
    return finding.level, finding.where


MANY = [task(f"t{number}", number) for number in range(12)]


def test_a_good_set_passes_every_check_and_fewer_than_ten_tasks_are_few() -> None:
    assert {finding.level for finding in local_checks(MANY, embedded=True)} == {"ok"}
    held = task("h", 99, columns={"split": HELD_OUT})
    assert check_count(MANY[:10])[0].level == "ok"
    assert check_count([*MANY[:9], held])[0].level == "warning"


@pytest.mark.parametrize("slug", ["1234", "x" * 101, "a\x1b[2J", " "])
def test_a_slug_that_hud_refuses_is_named(slug: str) -> None:
    others = [task(fine, 1) for fine in ("12345", "123", "a-1234", "x" * 100, "größe 5")]
    assert only(check_slug_forms([*others, task(slug, 2)])) == ("failure", "t.json row 2")
    assert check_slug_forms(others) == []


def test_the_same_task_under_two_slugs_is_named_once() -> None:
    tasks = [task("a"), task("b"), task("c", 3), task("a")]
    assert only(check_duplicates(tasks)) == ("warning", "t.json row 1")
    other = task("d", runtime_config={"image": "x"})
    assert only(check_duplicates([task("a"), other])) == ("ok", "")
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
    row = read_row({"env": "e", "id": "s", "args": args}, "t.json row 1")
    where = "t.json row 1" if level == "warning" else ""
    assert only(check_vision([*MANY, row])) == (level, where)


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
    [finding] = check_runtime([task(runtime_config=config), task("b")], embedded=False)
    assert finding.level == ("failure" if said else "ok")
    assert said in finding.message
    [here] = check_runtime([task(runtime_config=config)], embedded=True)
    assert here.level == ("failure" if said else "warning")
    assert check_runtime([task()], embedded=True) == []


def test_misspelt_fields_and_mixed_forms_are_warned_of() -> None:
    rows = [task("a", arg={}), task("b", 2)]
    assert only(check_fields(rows)) == ("warning", "t.json row 1")
    v5 = read_row({"env": "e", "scenario": "s"})
    assert check_rows([*rows, v5])[0].level == "warning"
    assert check_rows([*rows, v5])[0].message == "3 tasks, 1 v5, 2 v6"


def model(**more: Any) -> Model:
    return Model.model_validate({"id": "1", "model_name": "m", "is_trainable": True, **more})


def test_a_model_is_ready_and_its_agent_records_tokens_where_the_service_says_so() -> None:
    assert check_ready(model(status="ready"), None)[0].level == "ok"
    assert check_ready(model(status="deploying"), None)[0].level == "failure"
    assert check_ready(model(), None) == []
    busy = check_ready(model(status="ready"), JobStatus(status="running", id="j-1"))
    assert only(busy) == ("warning", "j-1")
    assert busy[0].fix == "wait until it ends, or cancel it: hud-tui jobs j-1 --cancel"
    assert busy[0].place == ""  # the fix says it
    long = JobStatus(status="running", id="0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d")
    [busy] = check_ready(model(status="ready"), long)
    assert f"{busy.message} {busy.place} {busy.fix}".count("0a1b2c3d") == 1
    assert "0a1b2c3d-" not in f"{busy.message} {busy.where} {busy.fix}"
    agents = {"openai_compatible": "ok", "claude": "failure", None: "warning"}
    for kind, level in agents.items():
        assert check_tokens(model(sdk_agent_type=kind))[0].level == level
