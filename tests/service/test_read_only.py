"""Read-only: nothing but reads reaches the service, whoever asks for it."""

import inspect

import httpx
import pytest

from hud_tui.client import transport
from hud_tui.client.guard import Guard
from hud_tui.config import ReadOnly, Safety, why_read_only
from hud_tui.errors import HudReadOnly
from hud_tui.wire_training import Chat
from tests.service.clients import answered
from tests.service.headless import Command, Configure, model_of

WHY = ReadOnly("started with --read-only", "start without it to change something")


async def test_every_write_of_the_client_is_refused_before_it_is_sent() -> None:
    sent: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={})

    async with answered(handler, guard=Guard(lambda: WHY)) as client:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            with pytest.raises(HudReadOnly, match=r"not sent: .* /v2/x"):
                await client.wire.write(method, client.api("/v2/x"), dict, None)
        with pytest.raises(HudReadOnly) as refused:
            await client.chat(Chat(model="m", messages=[]))
        assert refused.value.hint == WHY.cure
        assert refused.value.exit_code == 1
    assert sent == []


def test_only_write_sends_anything_but_a_get() -> None:
    """The connection has no other way out than these: a read, a write, a stream."""
    source = inspect.getsource(transport)
    assert source.count("self.http.stream(") == source.count('self.http.stream("GET"') + 1 == 2
    assert source.count("self._send_once(") == source.count('self._send_once("GET"') + 1 == 2


async def test_a_headless_write_is_refused_and_a_read_is_not(hud: Command) -> None:
    model = await model_of(hud)
    for argv in (
        ("fork", "arith-rl", "--name", "other", "-y"),
        ("head", "arith-rl", "--back", "1", "-y"),
        ("run", "arith", "-m", "arith-rl"),
        ("jobs", "nothing", "--cancel", "-y"),
        ("eval", "arith", "-m", "arith-rl"),
        ("preflight", "arith", "-m", "arith-rl", "--sample", "1", "--fresh"),
    ):
        result = await hud("--read-only", *argv)
        assert (result.code, result.error["type"]) == (1, "read_only"), argv
        assert "started with --read-only" in result.error["message"]
        assert result.error["hint"] == "start without it to change something"
    pushed = await hud("convert", "tasks.json", "--name", "me/tasks", "-y", "--read-only")
    stopped = await hud("stop", "--read-only")
    assert pushed.error["type"] == stopped.error["type"] == "read_only"
    assert (await hud("serve", "--read-only")).code == 2, "it wants no such flag"
    result = await hud("models", "--read-only")
    assert result.code == 0
    own = [one["id"] for one in result.data["models"] if one["is_trainable"]]
    assert model["id"] in own
    assert len([one for one in result.data["models"] if one["model_name"] == "other"]) == 0


async def test_the_environment_and_the_config_file_say_it_too(
    hud: Command, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = ("fork", "arith-rl", "--name", "other", "-y")
    monkeypatch.setenv("HUD_TUI_READ_ONLY", "1")
    assert "HUD_TUI_READ_ONLY is set" in (await hud(*fork)).error["message"]
    monkeypatch.setenv("HUD_TUI_READ_ONLY", "0")
    configure("[safety]\nread_only = true\n")
    assert "[safety]" in (await hud(*fork)).error["message"]
    for text, said in (
        ("[safety]\nread_onyl = true\n", "safety.read_onyl: unknown setting"),
        ("safety = 1\n", "safety: expected a table"),
        ("[safety]\nread_only = 1\n", "safety.read_only: expected true or false"),
        ("[safety]\nread_only = 'no'\n", "safety.read_only: expected true or false"),
    ):
        configure(text)
        broken = await hud(*fork)
        assert (broken.code, broken.error["type"]) == (2, "usage")
        assert said in broken.error["message"]
    configure("")
    assert (await hud(*fork)).code == 0
    for value in ("", "0", "false", "No", "off "):
        assert why_read_only(False, {"HUD_TUI_READ_ONLY": value}, Safety()) is None
