"""`serve`: a real process, from its ready line to its exit code."""

import asyncio
import json
import os
import re
import signal
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import uvicorn

from hud_tui.service.__main__ import main
from hud_tui.service.app import _serve
from hud_tui.service.data_dir import Unusable, load_key
from hud_tui.service.service import Service
from tests.conftest import PATIENCE_S, fork, serve_process, submit
from tests.service.calls import reach, resume, status_of
from tests.toy_engine import ToyEngine

Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Serve with such flags, which cannot be: what it says of that."""

    def serve(*flags: str) -> str:
        assert main([*flags]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        return err

    return serve


async def test_it_says_how_it_can_be_called_and_stops_cleanly(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    async with serve_process(data) as process, process.client() as http:
        assert process.ready.pid == process.process.pid
        assert process.ready.data_dir == str(data)
        assert process.ready.telemetry_url == process.ready.url + "/telemetry/v3/api"
        model = await fork(http)
        job_id = await submit(http, model["id"], steps=5000)
        await reach(http, job_id)
        async with http.stream("GET", f"/v1/models/{model['id']}/train/events") as stream:
            assert await anext(stream.aiter_lines()) == ": open"
            process.process.send_signal(signal.SIGTERM)
            code = await asyncio.wait_for(process.process.wait(), PATIENCE_S)
        assert code == 0
        assert process.process.stdout is not None
        assert await process.process.stdout.read() == b""
    (data / "service.db").chmod(0o644)
    async with serve_process(data) as process, process.client() as http:
        status = await status_of(http, job_id)
        assert (status["status"], status["error"]["code"]) == ("interrupted", "interrupted")
        assert (await resume(http, job_id)).status_code == 200
        files = [data / name for name in ("service.db", "service.db-wal", "service.db-shm")]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        process.process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.process.wait(), PATIENCE_S) == 0


def test_what_cannot_be_served_is_said_and_left_alone(refused: Refused, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for port in ("-1", "70000", str(taken.getsockname()[1])):
            said = refused("--data-dir", str(tmp_path / "new"), "--port", port)
            assert said.startswith(f"hud-tui serve: cannot listen on 127.0.0.1:{port}: ")
    (tmp_path / "file").write_text("x")
    assert "cannot use" in refused("--data-dir", str(tmp_path / "file" / "data"))
    foreign = tmp_path / "others" / "checkpoints" / "my-llama" / "weights"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("x")
    assert "has no service.db beside it" in refused("--data-dir", str(tmp_path / "others"))
    assert foreign.read_text() == "x"
    assert not (tmp_path / "others" / "service.db").exists()
    (tmp_path / "odd").mkdir()
    os.mkfifo(tmp_path / "odd" / "service.db")
    said = refused("--data-dir", str(tmp_path / "odd"))
    assert "service.db" in said
    assert "a FIFO, not a regular file" in said


def test_a_key_file_with_something_else_is_refused_by_name(tmp_path: Path) -> None:
    for body in (
        b"",
        b"short",
        b"x" * 42,
        b"hud-local-" + b"x" * 31,
        b"a\nb",
        b"x" * 9999,
        b"\xff\xfe\x00",
    ):
        file = tmp_path / "service.key"
        file.touch(0o600)
        file.write_bytes(body)
        with pytest.raises(Unusable, match=re.escape(str(file))):
            load_key(file)
        assert file.read_bytes() == body


@pytest.mark.parametrize("kind", ["a link", "a FIFO", "a directory", "others can access it"])
def test_a_key_file_that_is_no_private_file_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "service.key"
    key = load_key(tmp_path / "own.key")
    if kind == "a link":
        file.symlink_to(tmp_path / "own.key")
    elif kind == "a FIFO":
        os.mkfifo(file)
    elif kind == "a directory":
        file.mkdir()
    else:
        file.write_text(key)
        file.chmod(0o644)
    with pytest.raises(Unusable, match=f"{re.escape(str(file))}: {kind}") as refused:
        load_key(file)
    assert key not in str(refused.value)


async def test_an_idle_connection_outlives_a_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    async def served(server: uvicorn.Server, sockets: object) -> None:
        seen.append(server.config.timeout_keep_alive)

    monkeypatch.setattr(uvicorn.Server, "serve", served)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        await _serve(bound, "127.0.0.1", Service(tmp_path, ToyEngine()), lambda ready: None)
    [kept_s] = seen
    assert kept_s > 2 * (httpx.Limits().keepalive_expiry or 0) > 0


async def test_another_address_is_warned_of(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hud_tui.service", "--data-dir", str(tmp_path)),
        *("--host", "0.0.0.0"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        ready = json.loads(await asyncio.wait_for(process.stdout.readline(), PATIENCE_S))
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = await process.communicate()
    assert ready["url"].startswith("http://0.0.0.0:")
    assert b"can be reached from other machines" in errors


def test_the_key_is_the_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "service.key"
    key = load_key(path)
    assert len(key) > 30
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_key(path) == key
