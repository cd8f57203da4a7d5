"""Machines over ssh, each test with a far machine and a state directory of its own."""

import asyncio
import getpass
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hud_tui import service_file
from hud_tui.remote import keeper
from hud_tui.remote.engines import ENGINES, Engine, Wish, describe, free_port
from hud_tui.remote.machines import Machine, Machines
from hud_tui.remote.setup import Setup
from hud_tui.remote.ssh import Address, Ssh, quote
from tests.conftest import until
from tests.prime_server import KEY, PrimeServer, offer, serving
from tests.remote.far import HAS_SSHD, WHY_NOT, Far, far_machine
from tests.service.headless import Command, runner

OFFERS = [
    offer("H100_80GB", 2, 5.0, "hyperstack"),
    offer("H100_80GB", 2, 4.2),
    offer("H100_80GB", 2, 2.1, "runpod", isSpot=True, stockStatus="Low"),
    offer("GH200_96GB", 2, 1.0),
    offer("H100_80GB", 8, 16.0),
    offer("H100_80GB", 2, 0.5, "gone", stockStatus="Unavailable"),
    offer("A100_80GB", 1, 1.1),
]


@pytest.fixture
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    if not HAS_SSHD:
        pytest.skip(WHY_NOT)
    with far_machine(tmp_path_factory.mktemp("far")) as machine:
        yield machine


LIGHT = """import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        key = open(os.environ["HUD_TUI_SERVER_KEY"]).read().strip()
        self.send_response(200 if self.headers["authorization"] == "Bearer " + key else 401)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A server that starts at once in place of hud-tui's, where nothing but its set-up matters."""
    engine = replace(
        ENGINES["hud-tui"],
        installed='[ -x "$ENV/bin/python" ]',
        serve=lambda machine: f'"$ENV/bin/python" -I -S -c {quote(LIGHT)} "$PORT" "$R/light"',
    )
    monkeypatch.setitem(ENGINES, "hud-tui", engine)
    return engine


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state directory, beside the other directories of this side."""
    return own_directories(tmp_path, monkeypatch)


def own_directories(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use directories in a folder; returns the state directory."""
    for name in ("HOME", "HUD_TUI_STATE_DIR", "HUD_TUI_DATA_DIR", "HUD_TUI_CONFIG_DIR"):
        monkeypatch.setenv(name, str(folder / name.lower()))
    return folder / "hud_tui_state_dir"


@pytest.fixture
def near(far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This side: directories of the test's own, and an ssh that knows ``far``."""
    own_directories(tmp_path, monkeypatch)
    monkeypatch.setenv("HUD_TUI_SSH_CONFIG", str(far.config))
    monkeypatch.delenv("HUD_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def machines(far: Far, tmp_path: Path) -> Machines:
    return Machines(tmp_path / "hud_tui_state_dir", far.config)


@pytest.fixture
def hud(near: None, capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(capsys)


@pytest.fixture
async def ssh(machines: Machines) -> AsyncIterator[Ssh]:
    ssh = machines.ssh_to(Address("far"))
    yield ssh
    await ssh.aclose()


@pytest.fixture
def known(machines: Machines, near: None) -> Machine:
    """A machine that counts as set up, where nothing of it but its name is asked for."""
    machine = Machine("box", Address("far"), "hud-tui", done=("server", "health"), root="/nowhere")
    machines.key("box")
    return machines.write(replace(machine, local_port=free_port()))


@pytest.fixture
async def box(machines: Machines, near: None) -> AsyncIterator[Machine]:
    """A machine whose set-up is complete; its tunnel's process ends with the test."""
    wish = Wish("box", "hud-tui", env=sys.prefix)
    setup = Setup(machines, await describe(machines, Address("far"), wish))
    try:
        yield await setup.run({})
    finally:
        machines.use(None)
        await keeper.end(machines, "box")
        await setup.stop()
        await setup.aclose()


@asynccontextmanager
async def keeping(machines: Machines) -> AsyncIterator[None]:
    """Keep the tunnel to ``box`` in this process; it is up as the block begins."""
    task = asyncio.create_task(keeper.Keeper(machines, machines.state, "box").run())
    await until(lambda: machines.line("box").get("state") == "up")
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def prime(monkeypatch: pytest.MonkeyPatch) -> Iterator[PrimeServer]:
    """Prime's API on the loopback, quick about everything."""
    monkeypatch.setattr("hud_tui.remote.pods.POLL_S", 0.02)
    monkeypatch.setattr("hud_tui.remote.pods.LOOK_UP_S", 0.3)
    monkeypatch.setattr("hud_tui.client.transport.backoff", lambda attempt: 0.01)
    with serving(PrimeServer(deepcopy(OFFERS))) as server:
        monkeypatch.setenv("PRIME_API_BASE_URL", server.url)
        monkeypatch.setenv("PRIME_API_KEY", KEY)
        yield server


@pytest.fixture
def pod(prime: PrimeServer, far: Far, near: None, monkeypatch: pytest.MonkeyPatch) -> PrimeServer:
    """Every pod is the far machine."""
    prime.ssh = f"{getpass.getuser()}@127.0.0.1 -p {far.port}"
    prime.keys = [(far.place / "near/id.pub").read_text()]
    monkeypatch.setenv("PRIME_SSH_KEY_PATH", str(far.place / "near/id"))
    return prime


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The processes that would have kept budgets: they outlive commands, and here tests."""
    asked: list[Sequence[str]] = []
    daemon = service_file.daemon

    def noted(log: Path, module: Sequence[str], *more: Any, **named: Any) -> Any:
        if module[0] != "hud_tui.remote.budget":
            return daemon(log, module, *more, **named)
        asked.append(module)
        return subprocess.Popen(["true"])

    monkeypatch.setattr("hud_tui.service_file.daemon", noted)
    return asked
