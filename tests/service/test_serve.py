"""`serve`: a real process, from its ready line to its exit code."""

import asyncio
import json
import os
import re
import signal
import socket
import stat
import subprocess
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
from tests.service.calls import reach
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
    async with serve_process(data) as process, process.client() as http:
        status = (await http.get(f"/v1/training/jobs/{job_id}/raw-status")).json()
        assert (status["status"], status["error"]["code"]) == ("interrupted", "interrupted")
        resumed = await http.post(f"/v1/training/jobs/{job_id}/resume")
        assert resumed.status_code == 200
        process.process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.process.wait(), PATIENCE_S) == 0


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "hud_tui.service", "--data-dir", str(tmp_path)]
        result = subprocess.run([*command, "--port", port], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (1, "")
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("port", ["-1", "70000"])
def test_an_impossible_port_is_said(refused: Refused, tmp_path: Path, port: str) -> None:
    assert "cannot listen" in refused("--data-dir", str(tmp_path), "--port", port)


def test_a_directory_that_cannot_be_used_is_said(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "cannot use" in refused("--data-dir", str(tmp_path / "file" / "data"))


def test_checkpoints_of_something_else_are_refused_and_left_alone(
    refused: Refused, tmp_path: Path
) -> None:
    foreign = tmp_path / "checkpoints" / "my-llama" / "weights"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("x")
    assert "has no service.db beside it" in refused("--data-dir", str(tmp_path))
    assert foreign.read_text() == "x"
    assert not (tmp_path / "service.db").exists()


def test_a_garbled_key_is_said(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "service.key").touch(0o600)
    (tmp_path / "service.key").write_bytes(b"\xff\xfe\x00")
    assert f"{tmp_path / 'service.key'} " in refused("--data-dir", str(tmp_path))


@pytest.mark.parametrize(
    "body", ["", "short", "x" * 42, "hud-local-" + "x" * 31, "a\nb", "x" * 9999]
)
def test_a_key_file_with_something_else_is_refused_by_name(tmp_path: Path, body: str) -> None:
    file = tmp_path / "service.key"
    file.touch(0o600)
    file.write_text(body)
    with pytest.raises(Unusable, match=re.escape(str(file))):
        load_key(file)
    assert file.read_text() == body


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


async def test_its_files_are_private(tmp_path: Path) -> None:
    database, files = tmp_path / "service.db", ("service.db", "service.db-wal", "service.db-shm")
    os.close(os.open(database, os.O_CREAT, 0o644))
    async with serve_process(tmp_path) as process, process.client() as http:
        await fork(http)
        modes = [stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in files]
    assert modes == [0o600] * 3


def test_a_database_that_is_a_fifo_is_refused(refused: Refused, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "service.db")
    said = refused("--data-dir", str(tmp_path))
    assert "a FIFO, not a regular file" in said
    assert "service.db" in said
