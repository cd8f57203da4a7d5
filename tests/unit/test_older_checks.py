"""What preflight says of rows up to v4, and of the variables and keys in them."""

from typing import Any

import pytest

from hud_tui.rl.formats import read_row
from hud_tui.rl.older_checks import check_older
from hud_tui.rl.preflight import Finding
from hud_tui.rl.tasks import Task
from hud_tui.rl.variables import Variable, fill_rows, find_variables

SECRET = "sk-hud-0123456789"


def v4(url: str = "https://mcp.hud.ai/v3/mcp", **headers: str) -> Task:
    row = {
        "prompt": "Go.",
        "mcp_config": {"hud": {"url": url, "headers": headers}},
        "evaluate_tool": {"name": "evaluate"},
    }
    return read_row(row, "t.json row 1")


def levels(tasks: list[Task], *known: str, embedded: bool = False) -> dict[str, str]:
    return {f.check: f.level for f in check_older(tasks, known, embedded)}


def of(check: str, findings: list[Finding]) -> Finding:
    return next(finding for finding in findings if finding.check == check)


def test_rows_with_an_environment_are_not_asked() -> None:
    assert check_older([read_row({"env": "e", "id": "s"})], (), embedded=True) == []


def test_a_remote_graded_row_passes_on_the_platform_and_not_here() -> None:
    assert levels([v4()]) == {"graded": "ok", "remote": "ok"}
    assert levels([v4()], embedded=True)["environments"] == "failure"


def test_a_gym_is_run_by_nobody() -> None:
    task = read_row({"prompt": "Go.", "gym": "hud-browser", "evaluate": "page.is x"})
    assert levels([task])["environments"] == "failure"


def test_a_row_that_nothing_grades_is_named() -> None:
    row = {"prompt": "Go.", "mcp_config": {"hud": {"url": "https://x.hud.ai"}}}
    finding = of("graded", check_older([v4(), read_row(row, "t.json row 2")], (), False))
    assert (finding.level, finding.where) == ("failure", "t.json row 2")


NEAR = """
    http://localhost:8765/mcp http://127.0.0.1/mcp http://10.1.2.3/ http://[::1]/ none
    http://box.internal/mcp http://mcp/ http://box.local./
"""


@pytest.mark.parametrize("url", NEAR.split())
def test_a_url_of_this_network_is_no_remote_one(url: str) -> None:
    finding = of("remote", check_older([v4(url)], (), embedded=False))
    assert (finding.level, finding.where) == ("failure", "t.json row 1")


@pytest.mark.parametrize("url", ["https://mcp.hud.ai/v3/mcp", "https://8.8.8.8/", "${MCP_URL}"])
def test_a_public_url_is_remote(url: str) -> None:
    assert levels([v4(url)], "MCP_URL")["remote"] == "ok"


@pytest.mark.parametrize("url", ["file:///x", "not a url", "ftp://x.y/z", "hud.ai/mcp"])
def test_a_url_of_no_website_is_named_as_one(url: str) -> None:
    finding = of("remote", check_older([v4(url)], (), embedded=False))
    assert "neither http nor https" in finding.message


def test_a_server_that_is_started_here_is_not_remote() -> None:
    row: dict[str, Any] = {**v4().more, "mcp_config": {"box": {"command": "docker"}}}
    finding = of("remote", check_older([read_row(row)], (), embedded=False))
    assert "box is started on this machine" in finding.message


def test_variables_are_listed_with_what_is_missing() -> None:
    tasks = [v4(a="${KEY}", b="${REGION:eu}"), v4(a="Bearer ${KEY} ${OTHER}")]
    assert find_variables(tasks, {"KEY"}) == [
        Variable("KEY", missing=False, default=False, tasks=2),
        Variable("OTHER", missing=True, default=False, tasks=1),
        Variable("REGION", missing=False, default=True, tasks=1),
    ]
    finding = of("variables", check_older(tasks, {"KEY"}, embedded=False))
    assert (finding.level, finding.where) == ("failure", "OTHER")
    assert levels(tasks, "KEY", "OTHER")["variables"] == "ok"


def test_a_default_of_one_row_does_not_help_another() -> None:
    [variable] = find_variables([v4(a="${KEY:x}"), v4(a="${KEY}")], ())
    assert variable.missing
    assert variable.default


def test_a_key_in_the_clear_is_named_by_its_place_and_never_shown() -> None:
    finding = of("variables", check_older([v4(Authorization=f"Bearer {SECRET}")], (), False))
    assert finding.where == "mcp_config.hud.headers.Authorization"
    assert SECRET not in repr(finding)
    assert levels([v4(Authorization="Bearer ${KEY}")], "KEY")["variables"] == "ok"


def test_rows_are_filled_where_something_is_known() -> None:
    task = v4(a="${KEY}", b="${REGION:eu}-1", c="${UNKNOWN}", d="${EMPTY:}")
    [row] = fill_rows([task.row()], {"KEY": SECRET})
    headers = row["mcp_config"]["hud"]["headers"]
    assert headers == {"a": SECRET, "b": "eu-1", "c": "${UNKNOWN}", "d": ""}
    assert SECRET not in repr(task)
    plain = read_row({"env": "e", "id": "s", "args": {"text": "${KEY}"}}).row()
    assert fill_rows([plain], {"KEY": SECRET}) == [plain]
