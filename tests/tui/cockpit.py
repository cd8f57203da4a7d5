"""The app over the real embedded service on a socket, and what tests ask of both."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from textual.pilot import Pilot

from hud_tui.client.client import HudClient
from hud_tui.settings import Settings
from hud_tui.start import Start
from hud_tui.tui.app import HudApp
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.screens.dialogs import Dialog
from hud_tui.tui.screens.head_dialog import READING
from hud_tui.wire import Checkpoint
from tests.conftest import Served, bearer, until

ADAM = {"learning_rate": 0.3}


def settings_of(served: Served) -> Settings:
    url = served.url
    return Settings(url, url, url, f"{url}/v3/api", url, served.api_key, local=True)


class Lossy(httpx.AsyncHTTPTransport):
    """The network, that does to the PUT of a head what a test asks."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[httpx.Request] = []
        self.lose: str = ""
        """``request`` drops it before the service, ``answer`` after."""
        self.refuse: int = 0
        """A status to answer with instead of the service."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method != "PUT":
            return await super().handle_async_request(request)
        self.puts.append(request)
        if self.refuse:
            return httpx.Response(self.refuse, json={"detail": "the head is locked"})
        if self.lose == "request":
            raise httpx.ReadError("the line is cut", request=request)
        answer = await super().handle_async_request(request)
        if self.lose == "answer":
            await answer.aread()
            raise httpx.ReadError("the line is cut", request=request)
        return answer


class Cockpit:
    """A running app, its keys, and the service beside it."""

    def __init__(
        self, app: HudApp, pilot: Pilot[None], net: Lossy, http: httpx.AsyncClient
    ) -> None:
        self.app, self.pilot, self.net, self.http = app, pilot, net, http

    @property
    def view(self) -> HudScreen:
        view = self.app.shown_view
        assert view is not None
        return view

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def until(self, condition: Callable[[], Any]) -> None:
        """Let the app run until the condition holds; else fail the test, and say what is shown."""
        try:
            await until(lambda: bool(condition()))
        except TimeoutError as error:
            rows = [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]
            error.add_note("\n".join([*rows, f"sent: {self.net.puts}"]))
            raise

    async def until_dialog(self) -> str:
        """Wait for a dialog that has read what it asks about; what it says."""
        await self.until(lambda: isinstance(self.app.screen, Dialog) and self.app.screen.focused)
        await self.until(lambda: READING not in self.dialog)
        return self.dialog

    @property
    def dialog(self) -> str:
        """What the dialog on the screen says."""
        return "\n".join(str(line.render()) for line in self.app.screen.query(".dialog-line"))

    def said(self, selector: str) -> str:
        """What a line of the view says."""
        return str(self.view.query_one(selector).render())

    async def tree(self, model_id: str) -> list[Checkpoint]:
        """The tree as the service has it."""
        answer = await self.http.get(f"/v2/models/{model_id}/checkpoints")
        return [Checkpoint.model_validate(row) for row in answer.json()]

    async def head(self, model_id: str) -> str | None:
        """Name of the head as the service has it."""
        return next((node.name for node in await self.tree(model_id) if node.is_active), None)


async def grow(http: httpx.AsyncClient, model_id: str, steps: int = 1) -> None:
    """Take optimizer steps from wherever the head is."""
    sample = {"prompt_token_ids": [5, 6], "output_token_ids": [7], "output_logprobs": [-1.0]}
    for _ in range(steps):
        inputs = [{"samples": [sample], "reward": reward} for reward in (0.0, 1.0)]
        train = f"/v1/models/{model_id}/train"
        done = await http.post(
            f"{train}/forward-backward", json={"inputs": inputs, "group_size": 2}
        )
        assert done.status_code == 200, done.text
        done = await http.post(f"{train}/optim-step", json=ADAM)
        assert done.status_code == 200, done.text


async def put_head(http: httpx.AsyncClient, model_id: str, checkpoint_id: str) -> None:
    """Set the head as somebody else would."""
    url = f"/v2/models/{model_id}/head"
    assert (await http.put(url, json={"checkpoint_id": checkpoint_id})).is_success


@asynccontextmanager
async def cockpit(
    served: Served, start: Start, size: tuple[int, int] = (120, 40), **more: Any
) -> AsyncIterator[Cockpit]:
    """The app, opened as the command line asks, once it shows a view; `more` is the app's."""
    net = Lossy()

    async def connect(mode: str, key: str | None, say: Callable[[str], None]) -> HudClient:
        return HudClient(settings_of(served), net)

    app = HudApp(connect, "local", start, **more)
    headers = bearer(served.api_key)
    async with (
        httpx.AsyncClient(base_url=served.url, headers=headers) as http,
        app.run_test(size=size) as pilot,
    ):
        flown = Cockpit(app, pilot, net, http)
        await flown.until(lambda: app.shown_view is not None and app.shown_view.is_mounted)
        await pilot.pause()
        yield flown
