"""The command line on a served service, for tests that need no more than a model."""

import asyncio
from pathlib import Path

import pytest

from tests.conftest import Served
from tests.service.headless import Command, commands


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written into the user's own state directory."""
    monkeypatch.setenv("HUD_TUI_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits: a pause, as between two attempts, takes a hundredth of a second at most."""
    pause = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda seconds: pause(min(seconds, 0.01)))


@pytest.fixture
async def hud(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs headless commands; a fork called arith-rl is there."""
    hud = commands(served, monkeypatch, capsys)
    base = (await hud("models")).data["models"][0]["model_name"]
    await hud("fork", base, "--name", "arith-rl", "-y")
    return hud
