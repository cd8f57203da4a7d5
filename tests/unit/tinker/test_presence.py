"""A server that is away is said to be, from the first look that finds it so until it answers."""

import asyncio
from collections.abc import Iterator

import pytest

from hud_tui.service.engines.base import EngineError, PolicyLost
from hud_tui.service.engines.tinker import link
from hud_tui.service.engines.tinker import server as server_module
from hud_tui.service.engines.tinker.link import Presence
from hud_tui.service.engines.tinker.server import Calls
from tests.conftest import until

URL = "http://trainer:8000"
AWAY = f"{URL} does not answer"


class Server:
    """One that answers or does not."""

    def __init__(self) -> None:
        self.up = True
        self.told: list[str | None] = []
        self.presence = Presence(URL, self.told.append)
        self.calls = Calls(URL, self.presence, lambda: None, lambda: None)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    monkeypatch.setattr(link, "_answers", lambda url: server.up)
    for module in (link, server_module):
        monkeypatch.setattr(module, "PROBE_S", 0.005)
    monkeypatch.setattr(server_module, "AWAY_S", 0.05)
    yield server
    server.calls._threads.shutdown(wait=False)


async def test_it_is_said_in_the_middle_of_a_call(server: Server) -> None:
    """For most of an outage no call waits to be sent: one is under way, and then is repeated."""
    never_done = asyncio.get_running_loop().create_future()
    call = asyncio.create_task(server.calls._until_done(never_done, 60))
    await until(lambda: server.presence._answered_at > 0)
    server.up = False
    with pytest.raises(PolicyLost, match="stopped answering"):
        await call
    assert set(server.told) == {AWAY}


async def test_a_call_that_is_repeated_says_it_before_it_has_looked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.up = False
    await server.presence.check()
    server.told.clear()  # as where the queue is cleared between two calls
    said: list[list[str | None]] = []

    def answers(url: str) -> bool:
        said.append(list(server.told))
        return True

    monkeypatch.setattr(link, "_answers", answers)
    await server.presence.wait()
    assert (said, server.told) == ([[AWAY]], [AWAY, None])


async def test_it_is_over_once_anything_is_answered(server: Server) -> None:
    server.up = False
    await server.presence.check()
    server.presence.observe()
    server.presence.observe()
    assert server.told == [AWAY, None]


async def test_patience_ends(server: Server) -> None:
    server.up = False
    with pytest.raises(EngineError, match="has not answered for 0 s: start the server again"):
        await server.presence.wait(0.02)
    assert server.told[-1] == AWAY
