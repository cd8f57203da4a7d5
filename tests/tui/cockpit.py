"""The app over the real embedded service on a socket, and what tests ask of both."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from hud_tui.tui.app import HudApp
from hud_tui.tui.start import Start
from hud_tui.wire import Checkpoint
from tests.conftest import Served, caller, fork
from tests.tui.conftest import Connector, Opened, asked

ADAM = {"learning_rate": 0.3}


@dataclass
class Cockpit(Opened):
    """A running app, its keys, and the service beside it."""

    http: httpx.AsyncClient = field(kw_only=True)

    def said(self, selector: str) -> str:
        """What a line of the view says, under whatever is open over it."""
        return str(self.view.query_one(selector).render())

    async def tree(self, model_id: str) -> list[Checkpoint]:
        answer = await self.http.get(f"/v2/models/{model_id}/checkpoints")
        return [Checkpoint.model_validate(row) for row in answer.json()]

    async def head(self, model_id: str) -> str | None:
        return next((node.name for node in await self.tree(model_id) if node.is_active), None)


async def grown(http: httpx.AsyncClient, name: str, steps: int) -> dict[str, Any]:
    """A fresh fork with so many steps."""
    model = await fork(http, name)
    await grow(http, model["id"], steps)
    return model


async def grow(
    http: httpx.AsyncClient, model_id: str, steps: int = 1, rewards: Sequence[float] = (0.0, 1.0)
) -> None:
    """Take optimizer steps from wherever the head is, each on one group of such rewards."""
    sample = {"prompt_token_ids": [5, 6], "output_token_ids": [7], "output_logprobs": [-1.0]}
    for _ in range(steps):
        inputs = [{"samples": [sample], "reward": reward} for reward in rewards]
        train = f"/v1/models/{model_id}/train"
        done = await http.post(
            f"{train}/forward-backward", json={"inputs": inputs, "group_size": len(rewards)}
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
    """The app, opened as the command line asks, once it shows a view; `more` is the app's, but for
    `observe`, which is told of each change that is sent."""
    observe = more.pop("observe", lambda entry: None)
    connector = Connector(served, observe=observe)
    app = HudApp(connector, "local", asked(start), **more)
    async with caller(served) as http, app.run_test(size=size) as pilot:
        flown = Cockpit(app, pilot, connector, http=http)
        await flown.until(lambda: app.shown_view is not None and app.shown_view.is_mounted)
        await pilot.pause()
        yield flown
