"""The command line on a served service, for tests that need no more than a model."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from httpx import AsyncClient

from hud_tui.cli.main import main
from hud_tui.client import signal as sampling
from hud_tui.client.client import HudClient
from hud_tui.service.routes import training
from hud_tui.service.service import Service
from hud_tui.service.tls import TlsFiles
from tests.certificates import Authority
from tests.conftest import Served, bearer, calling, fork
from tests.service.calls import Json, new_key
from tests.service.clients import in_process
from tests.service.headless import Command, Configure, Text, commands, forked


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own state and config are neither written nor read."""
    monkeypatch.setenv("HUD_TUI_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HUD_TUI_CONFIG_DIR", str(tmp_path / "config"))


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def box(authority: Authority) -> TlsFiles:
    """A certificate for loopback and box.test."""
    return authority.sign("box")


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits: a pause, as between two attempts, takes a hundredth of a second at most."""
    pause = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda seconds: pause(min(seconds, 0.01)))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the test is the one that commands run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    (tmp_path / "config").mkdir()
    return (tmp_path / "config" / "config.toml").write_text


@pytest.fixture
def bare(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs headless commands; no model is there but the base."""
    return commands(served, monkeypatch, capsys)


@pytest.fixture
def text(capsys: pytest.CaptureFixture[str]) -> Text:
    async def run(*argv: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = await asyncio.to_thread(main, list(argv))
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
async def hud(bare: Command) -> Command:
    """Runs headless commands; a fork called arith-rl is there."""
    await forked(bare)
    return bare


@pytest.fixture
async def client(service: Service) -> AsyncIterator[HudClient]:
    """A client whose requests never leave this process."""
    async with in_process(service) as client:
        yield client


@pytest.fixture
async def model(http: AsyncClient) -> Json:
    """A fresh fork of the first base in the catalog."""
    return await fork(http)


@pytest.fixture
async def team(http: AsyncClient, service: Service) -> AsyncIterator[dict[str, AsyncClient]]:
    """A client for a person of each role, and one more who trains and who steers."""
    names = {"rea": "read", "tim": "train", "tom": "train", "sue": "steer", "sam": "steer"}
    clients = {"admin": http}
    for name, role in names.items():
        clients[name] = calling(service)
        clients[name].headers.update(bearer(await new_key(http, name, role)))
    yield clients
    for client in clients.values():
        await client.aclose()


@pytest.fixture
def evaluates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service makes no evaluations, as HUD."""
    kept = [route for route in training.ROUTES if route not in training.EVALUATION_ROUTES]
    monkeypatch.setattr(training, "ROUTES", kept)
    monkeypatch.setattr(sampling, "FAR_LOOK_S", sampling.LOOK_S)
