"""What preflight says of rows up to v4, and of the variables and keys in them."""

from typing import Any

import pytest

from hud_tui.rl.tasks.checks import Finding, check_legacy
from hud_tui.rl.tasks.formats import read_row
from hud_tui.rl.tasks.legacy import Variable, fill_rows, find_variables
from hud_tui.rl.tasks.task import Task

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
