"""``hud-tui --headless`` against a service, in this process."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
from httpx import AsyncHTTPTransport, Request, Response

from hud_tui.cli.main import main
from hud_tui.client import client
from hud_tui.client.client import HudClient
from hud_tui.service.routes import models
from hud_tui.settings import Settings
from tests.conftest import Served, pointed_at
from tests.service.clients import documents

Command = Callable[..., Coroutine[Any, Any, "Result"]]
Text = Callable[..., Coroutine[Any, Any, tuple[int, str, str]]]
"""Runs a command as people do: its exit code, and what it printed."""
Answer = Callable[[Request], Response | None]
Configure = Callable[[str], object]
"""Writes the config file."""


@dataclass(frozen=True)
class Result:
    code: int
    documents: list[dict[str, Any]]
    err: str

    @property
    def data(self) -> Any:
        """The last document's."""
        return self.documents[-1]["data"]

    @property
    def kind(self) -> str:
        return str(self.documents[-1]["kind"])

    @property
    def error(self) -> Any:
        assert self.kind == "error"
        return self.documents[-1]["error"]


def point_at(monkeypatch: pytest.MonkeyPatch, url: str, api_key: str) -> None:
    """Make this service what HUD_… names, and no other."""
    for name, value in pointed_at(url, api_key).items():
        monkeypatch.setenv(name, value)


def as_hud(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the service publish no defaults for runs, as HUD does not."""
    made = models.record

    def without(*given: Any) -> dict[str, Any]:
        return {**made(*given), "training_defaults": None}

    monkeypatch.setattr(models, "record", without)


def commands(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """A function that runs one command against the service."""
    point_at(monkeypatch, served.url, served.api_key)
    if "HUD_TUI_STATE_DIR" not in os.environ:  # where what was changed is written down
        monkeypatch.setenv("HUD_TUI_STATE_DIR", str(served.service.data_dir.parent / "state"))
    return runner(capsys)


def runner(capsys: pytest.CaptureFixture[str]) -> Command:
    """A function that runs one command where the environment leads it."""

    async def run(*argv: str) -> Result:
        capsys.readouterr()
        code = await asyncio.to_thread(main, ["--headless", *argv])
        out, err = capsys.readouterr()
        return Result(code, documents(out), err)

    return run


def nothing(request: Request) -> None:
    return None


def meddle(
    monkeypatch: pytest.MonkeyPatch, after: Answer = nothing, before: Answer = nothing
) -> None:
    """Let something happen to the requests of commands.

    Args:
        after: When a request was answered: the answer is lost, or another one comes; somebody
            else writes.
        before: Before it is sent: it is lost, or is answered in the service's place.
    """

    class Meddler(AsyncHTTPTransport):
        async def handle_async_request(self, request: Request) -> Response:
            if (instead := before(request)) is not None:
                return instead
            answer = await super().handle_async_request(request)
            await answer.aread()
            return after(request) or answer

    class Meddled(HudClient):
        def __init__(self, settings: Settings, transport: None, *more: Any) -> None:
            super().__init__(settings, Meddler(verify=False), *more)

    monkeypatch.setattr(client, "HudClient", Meddled)


async def forked(hud: Command, name: str = "arith-rl") -> dict[str, Any]:
    base = (await hud("models")).data["models"][0]["model_name"]
    return dict((await hud("fork", base, "--name", name, "-y")).data["model"])


async def model_of(hud: Command) -> dict[str, Any]:
    return dict((await hud("status", "arith-rl")).data["model"])
