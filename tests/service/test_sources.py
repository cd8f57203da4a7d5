"""Where tasks are loaded from, and what ``--headless preflight`` says of their form."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hud_tui.audit_log import TaskSource
from hud_tui.client.submit import submit
from hud_tui.wire import JobDataset, SubmitJob
from tests.conftest import Served
from tests.service.clients import over_socket
from tests.service.headless import Command

ROW = {"env": "arith", "id": "add", "args": {"a": 1, "b": 2}}
SECRET = "sk-hud-0123456789"
SERVERS = {
    "hud": {"url": "https://mcp.hud.ai/v3/mcp", "headers": {"Key": "${MY_KEY:" + SECRET + "}"}}
}
V4 = {"prompt": "Go.", "mcp_config": json.dumps(SERVERS), "evaluate_tool": '{"evaluate": {}}'}
"""As Hugging Face data sets have it."""


async def test_a_directory_is_read_with_all_below_it(hud: Command, tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    (folder / "deep").mkdir(parents=True)
    (folder / ".cache").mkdir()
    (folder / "a.json").write_text(json.dumps([ROW]))
    (folder / "deep" / "b.jsonl").write_text(json.dumps({**ROW, "slug": "b"}))
    (folder / ".cache" / "c.json").write_text("{")
    (folder / ".hidden.json").write_text("{")
    (folder / "notes.txt").write_text("{")
    result = await hud("preflight", str(folder))
    assert (result.code, result.data["tasks"], result.data["loaded_from"]) == (0, 2, "directory")
    assert (result.data["name"], result.data["format"]) == ("tasks", "v6")


async def test_the_problems_of_a_directory_come_from_all_of_its_files(
    hud: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "a.json").write_text('[{"env": 3, "id": "s"}]')
    (folder / "b.jsonl").write_bytes(b'{"env": "e", "id": "s"}\n\0')
    (folder / "c.json").write_text(json.dumps(ROW))
    result = await hud("preflight", str(folder))
    assert (result.code, result.error["type"]) == (2, "usage")
    assert [(p["where"], p["field"]) for p in result.error["problems"]] == [
        ("a.json row 1", "env"),
        ("b.jsonl", ""),
    ]
    assert "line 2: NUL byte" in result.error["message"]


async def test_a_source_without_tasks_is_refused(hud: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "env.py").write_text("import os")
    for name, said in (
        ("empty", "no .json or .jsonl file in it"),
        ("env.py", "train {} -m MODEL"),
        ("nothing", "no file or taskset named"),
    ):
        path = tmp_path / name
        result = await hud("preflight", str(path))
        assert (result.code, result.error["type"]) == (2, "usage")
        assert said.format(path) in result.error["message"] + result.error["hint"]


async def test_a_taskset_has_a_name_and_an_id(
    hud: Command, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with over_socket(served) as client:
        id_ = next(one.id for one in await client.tasksets() if one.name == "text")
    by_id, by_name = await hud("preflight", id_), await hud("preflight", "text")
    assert by_id.data | {"source": "text"} == by_name.data
    assert by_id.data["loaded_from"] == "taskset"
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.json").write_text(json.dumps(ROW))
    monkeypatch.chdir(tmp_path)
    assert (await hud("preflight", "text")).data["loaded_from"] == "taskset"
    assert (await hud("preflight", "./text")).data["loaded_from"] == "directory"


async def test_an_older_file_is_shown_with_its_form_and_variables(
    hud: Command, tmp_path: Path
) -> None:
    file = tmp_path / "old.jsonl"
    line = json.dumps([{**V4, "id": "a"}, {**V4, "id": "b"}])
    file.write_bytes(f"{json.dumps(V4)}\r\n\r\n{line}".encode())
    result = await hud("preflight", str(file))
    assert (result.code, result.data["format"], result.data["tasks"]) == (0, "v4", 3)
    assert result.data["variables"] == [
        {"name": "MY_KEY", "missing": False, "default": True, "tasks": 3}
    ]
    assert SECRET not in json.dumps(result.documents) + result.err


async def test_the_variables_of_a_row_are_filled_when_it_is_sent(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "mine")
    sent: list[SubmitJob] = []
    async with over_socket(served) as client:

        async def take(body: SubmitJob, source: TaskSource) -> Any:
            sent.append(body)
            raise asyncio.CancelledError

        monkeypatch.setattr(client, "submit", take)
        row = {"prompt": "Go.", "mcp_config": SERVERS}
        body = SubmitJob(model_id=(await client.models())[0].id, dataset=JobDataset(tasks=[row]))
        with pytest.raises(asyncio.CancelledError):
            await submit(client, body)
    [taken] = sent
    assert taken.dataset.tasks[0]["mcp_config"]["hud"]["headers"] == {"Key": "mine"}
    assert row["mcp_config"] is SERVERS
