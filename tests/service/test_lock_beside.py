"""Preflight of tasks with a lock file beside them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.service.headless import Command, Result
from tests.unit.legacy.locks import V1_0, V1_3

pytestmark = pytest.mark.usefixtures("here")
ROW = {"prompt": "Play", "evaluate_tool": {"name": "evaluate", "arguments": {"name": "max"}}}


async def preflight(hud: Command, tmp_path: Path, lock: str | None, *rows: Any) -> Result:
    if lock is not None:
        (tmp_path / "hud.lock.yaml").write_text(lock)
    (tmp_path / "tasks.json").write_text(json.dumps(rows))
    return await hud("preflight", "tasks.json", "-m", "arith-rl")


def of_lock(result: Result) -> list[dict[str, Any]]:
    return [finding for finding in result.data["findings"] if finding["check"] == "lock"]


async def test_rows_without_servers_load_where_a_lock_file_names_the_image(
    hud: Command, tmp_path: Path
) -> None:
    alone = await preflight(hud, tmp_path, None, ROW)
    assert (alone.code, "mcp_config" in alone.error["message"]) == (2, True)
    beside = await preflight(hud, tmp_path, V1_0, ROW)
    assert (beside.data["format"], beside.data["tasks"]) == ("v4", 1)
    assert beside.data["lock"] == "hud.lock.yaml"
    assert [finding["level"] for finding in of_lock(beside)] == ["ok"]
    assert "not-to-be-shown" not in json.dumps(beside.documents)


async def test_what_disagrees_is_a_warning(hud: Command, tmp_path: Path) -> None:
    servers = {"hud": {"url": "u", "headers": {"Mcp-Image": "org/cards:0.1"}}}
    call = {"name": "evaluate", "arguments": {"name": "score"}}
    row = {**ROW, "mcp_config": servers, "evaluate_tool": call}
    [finding] = of_lock(await preflight(hud, tmp_path, V1_3, row))
    assert (finding["level"], "org/cards:0.1" in finding["message"]) == ("warning", True)
    assert finding["where"] == "tasks.json row 1"


async def test_a_lock_file_of_something_else_or_a_broken_one(hud: Command, tmp_path: Path) -> None:
    row = {"env": "arith", "id": "add", "args": {"a": 1, "b": 2}}
    assert of_lock(await preflight(hud, tmp_path, V1_3, row)) == []
    broken = await preflight(hud, tmp_path, "version: [", row)
    [finding] = of_lock(broken)
    assert (broken.code, finding["level"], finding["where"]) == (0, "warning", "hud.lock.yaml")
    needed = await preflight(hud, tmp_path, "version: [", ROW)
    assert (needed.code, needed.error["message"][:20]) == (2, "hud.lock.yaml line 1")
