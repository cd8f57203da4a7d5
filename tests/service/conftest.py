"""The command line on a served service, for tests that need no more than a model."""

import pytest

from tests.conftest import Served
from tests.service.headless import Command, commands


@pytest.fixture
async def hud(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs headless commands; a fork called arith-rl is there."""
    hud = commands(served, monkeypatch, capsys)
    base = (await hud("models")).data["models"][0]["model_name"]
    await hud("fork", base, "--name", "arith-rl", "-y")
    return hud
