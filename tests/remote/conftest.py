"""Machines over ssh, each test with a far machine and a state directory of its own."""

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hud_tui import service_file
from hud_tui.remote.engines import ENGINES, Engine
from hud_tui.remote.machines import Machines
from hud_tui.remote.ssh import quote
from tests.remote.far import HAS_SSHD, WHY_NOT, Far, far_machine


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
def machines(far: Far, tmp_path: Path) -> Machines:
    return Machines(tmp_path / "state", far.config)


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
