"""SkyRL as the thing that is set up; and the gate before it, which needs no SkyRL."""

import asyncio
import os
import signal
import typing
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from hud_tui.processes import holder
from hud_tui.remote.machines import Machines
from hud_tui.service_file import keeper_lock
from tests.conftest import until
from tests.remote.far import Far
from tests.service.headless import Command

FOLDER = os.path.abspath(os.environ.get("HUD_TUI_SKYRL", ""))


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that is copied to the machine; on Python 3.11 it replaces `typing.TypedDict`."""
    monkeypatch.setattr(typing, "TypedDict", typing.TypedDict)
    return import_module("hud_tui.remote.skyrl_server")


async def test_the_server_wants_its_key_and_notes_its_use(gate: Any, tmp_path: Path) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"there"})

    used = tmp_path / "used"
    transport = httpx.ASGITransport(gate.Keyed(app, "tml-key", used))
    async with httpx.AsyncClient(transport=transport, base_url="http://far") as http:
        for headers in ({}, {"X-API-Key": "tml-other"}, {"Authorization": "Bearer x"}):
            refused = await http.post("/api/v1/asample", headers=headers)
            assert (refused.status_code, used.exists()) == (401, False)
        assert (await http.get("/api/v1/healthz")).text == "there"
        assert not used.exists()
        for headers in ({"X-API-Key": "tml-key"}, {"Authorization": "Bearer tml-key"}):
            assert (await http.post("/api/v1/asample", headers=headers)).status_code == 200
        assert used.exists()


@pytest.mark.skyrl
async def test_train_through_the_tunnel_on_skyrl(
    hud: Command, machines: Machines, near: None, far: Far
) -> None:
    """With a folder that `tests/live/skyrl/setup` made as the machine's environment."""
    asked = ("--engine", "skyrl-cpu", "--env", f"{FOLDER}/venv", "--model", f"{FOLDER}/tiny-qwen3")
    added = await hud("remote", "add", "far", *asked, "-y")
    assert added.code == 0, added.err
    try:
        assert (await hud("remote", "use", "far")).code == 0
        url = machines.get("far").url
        async with httpx.AsyncClient(base_url=url) as http:
            assert (await http.get("/api/v1/get_server_capabilities")).status_code == 401
        assert (await hud("--local", "fork", "local/tiny-qwen3", "--name", "q1", "-y")).code == 0
        flags = ("--steps", "4", "-y", "--follow")
        saved = far.home / ".hud-tui/far/state/checkpoints"
        forked = len([*saved.glob("*/*")])
        following = asyncio.create_task(hud("--local", "run", "text", "-m", "q1", *flags))
        await until(lambda: len([*saved.glob("*/*")]) > forked)
        killed = holder(keeper_lock(machines.state, "far"))
        assert killed is not None
        killed.send(signal.SIGKILL)
        run = await following
        assert run.data["status"]["status"] == "succeeded", run.err
        assert holder(keeper_lock(machines.state, "far")) not in (None, killed)
        model = (await hud("--local", "status", "q1")).data["model"]
        assert model["engine"]["place"] == "far · CPU"
        assert (await hud("remote", "status", "far")).data["server"]["used_at"]
    finally:
        await hud("stop")
        await hud("remote", "use", "--off")
        removed = await hud("remote", "remove", "far", "-y")
    assert removed.code == 0, removed.err
