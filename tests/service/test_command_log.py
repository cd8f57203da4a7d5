"""The command log over the real service: what is written down, and that it does the same again."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from hud_tui.audit_log import NAME, AuditEntry, Change, CommandLog, as_curl, as_python
from hud_tui.cli.main import main
from hud_tui.client.guard import Guard
from hud_tui.config import ReadOnly
from hud_tui.errors import HudConflict, HudMalformed, HudReadOnly, HudRefused, HudUnreachable
from hud_tui.service.service import Service
from hud_tui.wire_training import Chat
from tests.conftest import Served
from tests.service.clients import KEY, answered, fork_of, in_process, run_of
from tests.service.headless import Command, commands
from tests.service.test_headless_commands import forked
from tests.tui.cockpit import grow


@pytest.fixture
def hud(
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Command:
    monkeypatch.setenv("HUD_TUI_STATE_DIR", str(tmp_path / "state"))
    return commands(served, monkeypatch, capsys)


async def test_what_was_changed_is_told_with_what_came_of_it(service: Service) -> None:
    log: list[AuditEntry] = []
    async with in_process(service, observe=log.append) as client:
        model = await fork_of(client)
        with pytest.raises(HudConflict):
            await fork_of(client)
        job = await client.submit(await run_of(client, model, steps=1))
        await client.cancel_job(job.job_id)
        await client.models()
    verbs = [(one.verb, one.outcome) for one in log]
    assert verbs == [("fork", "done"), ("fork", "refused"), ("submit", "done"), ("cancel", "done")]
    made, refused, submitted, cancelled = log
    assert (made.after, made.subject) == (model.id, "arith rl")
    assert made.sent["name"] == "arith rl"
    assert "409" in refused.said
    assert refused.after == ""
    assert (submitted.model, submitted.name) == (model.id, model.model_name)
    assert submitted.after == job.job_id
    assert submitted.left_out == ("dataset",)
    assert submitted.sent["config"]["parameters"]["steps"] == 1
    assert cancelled.subject == job.job_id
    assert len({one.key for one in log}) == 4
    assert {one.service for one in log} == {"HUD local"}


async def test_what_is_unclear_is_said_to_be_and_no_key_is_kept() -> None:
    log: list[AuditEntry] = []

    def handler(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            raise httpx.ReadError(f"cut, with {KEY}", request=request)
        if request.method == "DELETE":
            return httpx.Response(503, json={"detail": f"busy {KEY}"})
        headers = {"x-request-id": "req-1\x1b[31m"}
        return httpx.Response(409, json={"detail": f"no {KEY}"}, headers=headers)

    async with answered(handler, observe=log.append) as client:
        for call in (
            client.set_head("m", KEY, was="before"),
            client.pin("m", "c", False),
            client.fork("m", f"named {KEY}"),
        ):
            with pytest.raises((HudUnreachable, HudRefused)):
                await call
        waiting = asyncio.create_task(client.resume_job("j"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert [one.outcome for one in log] == ["unknown", "unknown", "refused"]
    assert log[0].before == "before"
    assert log[2].request_id.startswith("req-1")
    assert "\x1b" not in log[2].request_id
    assert all(KEY not in str(one) for one in log)


def empty(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={})


async def test_what_computes_or_was_not_sent_is_not_told() -> None:
    log: list[AuditEntry] = []
    async with answered(empty, observe=log.append) as client:
        with pytest.raises(HudMalformed):
            await client.chat(Chat(model="m", messages=[]))
    guard = Guard(lambda: ReadOnly("told so", "do not"))
    async with answered(empty, guard=guard, observe=log.append) as client:
        with pytest.raises(HudReadOnly):
            await client.set_head("m", "c")
    assert log == []


async def test_a_url_with_a_user_is_kept_without() -> None:
    log: list[AuditEntry] = []
    async with answered(empty, observe=log.append) as client:
        change = Change("set head", "m", after="c")
        await client.wire.write("PUT", "http://ada:secret@hud/x", dict, change)
    assert [one.url for one in log] == ["http://hud/x"]


async def test_headless_commands_are_written_down_and_told(hud: Command, tmp_path: Path) -> None:
    empty = await hud("log")
    assert (empty.code, empty.kind) == (0, "log")
    assert empty.data == {"entries": [], "total": 0, "left_out": 0, "unreadable": 0}
    model = await forked(hud)
    await hud("fork", "arith-rl", "--name", "arith-rl", "-y")
    with (tmp_path / "state" / NAME).open("a") as file:
        file.write("no line of ours\n")
    told = (await hud("log")).data
    assert (told["total"], told["unreadable"]) == (2, 1)
    first, second = told["entries"]
    assert (first["verb"], first["outcome"], first["by"]) == ("fork", "done", "headless")
    assert first["after"] == model["id"]
    assert second["outcome"] == "refused"
    assert first["again"]["hud"].endswith(f"--name=arith-rl --yes {first['model']}")
    last = (await hud("log", "refused", "--limit", "1")).data
    assert [one["said"] for one in last["entries"]] == [second["said"]]
    assert (await hud("log", "--limit", "1")).data["left_out"] == 1
    assert (await hud("log", "--limit", "0")).code == 2


async def test_it_is_read_without_a_service_and_as_lines(
    hud: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await forked(hud)
    monkeypatch.delenv("HUD_API_KEY")
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["log"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert "done    fork" in line
    assert "→ arith-rl" in line
    assert await asyncio.to_thread(main, ["log", "nothing of it"]) == 0
    assert capsys.readouterr().out == "no entry matches\n"


async def test_curl_and_python_do_the_same_again(
    hud: Command, served: Served, tmp_path: Path
) -> None:
    model = await forked(hud)
    headers = {"Authorization": f"Bearer {served.api_key}"}
    async with httpx.AsyncClient(base_url=served.url, headers=headers) as http:
        await grow(http, model["id"], 2)

        async def head() -> str:
            tree = (await http.get(f"/v2/models/{model['id']}/checkpoints")).json()
            return str(next(row["name"] for row in tree if row["is_active"]))

        first = await head()
        assert (await hud("head", "arith-rl", "--back", "1", "-y")).code == 0
        second = await head()
        [one] = [e for e in CommandLog(tmp_path / "state").read()[0] if e.verb == "set head"]
        assert (one.before, one.after) != ("", "")
        environ = {**os.environ, "HUD_API_KEY": served.api_key}
        for command in (
            ["sh", "-c", as_curl(one)],
            [sys.executable, "-c", as_python(one)],
        ):
            back = await http.put(
                f"/v2/models/{model['id']}/head", json={"checkpoint_id": one.before}
            )
            assert back.is_success
            assert await head() == first
            done = await asyncio.to_thread(
                subprocess.run, command, env=environ, capture_output=True, timeout=60, check=False
            )
            assert done.returncode == 0, done.stderr
            assert await head() == second
        everything = (tmp_path / "state" / NAME).read_text()
        assert served.api_key not in everything
