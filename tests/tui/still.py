"""The app over a service that stands still: given trees, a fixed clock, nothing to wait for."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from textual.pilot import Pilot

from hud_tui.client.guard import Guard
from hud_tui.errors import HudNotFound
from hud_tui.events import Event, MovesRead, TreeRead
from hud_tui.tui import session
from hud_tui.tui.app import HudApp, Options
from hud_tui.tui.start import Start
from hud_tui.wire import Checkpoint, Job, Model, WorkState
from hud_tui.wire_rollouts import Trace
from hud_tui.wire_runs import RunPage
from hud_tui.wire_time import RunTime
from hud_tui.wire_training import TraceEvent, TraceEvents
from tests.conftest import until
from tests.tui import runs
from tests.tui.conftest import asked

NOW = runs.START + 400.0
"""The clock of every still, Unix seconds."""


class StillFeed:
    """Yields its events, then nothing more for ever."""

    source, trouble, retry_at, reading = "stream", "", None, None
    behind_s = 0.0

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events

    @property
    def heard_at(self) -> float:
        return session.monotonic() - 0.5

    async def __aiter__(self) -> AsyncIterator[Event]:
        for event in self.events:
            yield event
        await asyncio.Event().wait()


class StillClient:
    """What views ask of a client, answered from memory: a model with a tree, and others."""

    def __init__(
        self, tree: Sequence[Checkpoint] = (), *others: tuple[Model, Sequence[Checkpoint]]
    ) -> None:
        self.settings = SimpleNamespace(
            program="hud-tui --local",
            label="HUD local",
            local=True,
            embedded=True,
            data_dir="",
            web_url="http://hud",
            api_url="http://hud",
            api_key="key",
        )
        self.is_observed = False
        self.wire = SimpleNamespace(guard=Guard(), get=self._get, rl=str.format)
        self.identity = None
        self.training = self.runs = self.rollouts = self.tasks = self
        self.known = {model.id: (model, nodes) for model, nodes in ((runs.MODEL, tree), *others)}

    def feed(self, model_id: str) -> StillFeed:
        return StillFeed([TreeRead(checkpoints=tuple(self.known[model_id][1]))])

    async def _get(self, url: str, kind: object, params: object = None) -> Any:
        return []

    async def run_time(self, run_id: str, *given: Any, **asked: Any) -> RunTime:
        raise HudNotFound(404, "no such endpoint")

    async def moves(self, model_id: str) -> MovesRead:
        return MovesRead(since=0.0)

    async def service_id(self) -> str:
        return self.settings.api_url

    async def models(self) -> list[Model]:
        return [model for model, _ in self.known.values()]

    async def checkpoints(self, model_id: str) -> list[Checkpoint]:
        return list(self.known[model_id][1])

    async def jobs(self, limit: int = 200) -> list[Job]:
        return []

    async def evaluations(self, model_id: str) -> list[WorkState]:
        evaluations: list[WorkState] = await self._get(f"/{model_id}/evaluations", list[WorkState])
        return evaluations

    async def known_job(self, job_id: str) -> WorkState | None:
        return None

    async def run_page(self, since: int = 0, offset: int = 0) -> RunPage:
        return RunPage(items=[], total=0, revision=1)

    async def trace(self, trace_id: str) -> Trace:
        step, task, rollout = map(int, trace_id.split("/"))
        reward = runs.rewards(step, task, 8)[rollout]
        return Trace(id=trace_id, task_slug=runs.slug(task), reward=reward, stop_reason="done")

    async def trace_events(self, trace_id: str) -> TraceEvents:
        _, task, rollout = map(int, trace_id.split("/"))
        begin = "The answer is \x1b[1m" if rollout == 5 else "I think it is "
        answer = f"{begin}{task * 10 + rollout}." + " And so on, and on." * (rollout % 4)
        prompt = f"Answer with the result only.\n{runs.slug(task).replace('-', ' ')} = ?"
        return TraceEvents(
            events=[
                TraceEvent(id="0", seq=0, kind="user_message", text=prompt),
                TraceEvent(id="1", seq=1, kind="agent_message", text=answer),
            ]
        )

    async def aclose(self) -> None:
        """Nothing is open."""


def still(client: Any, options: Options | None = None) -> HudApp:
    """The app on the Checkpoints view, over a client."""

    async def connect(mode: str, key: str | None, progress: Callable[[str], None]) -> Any:
        return client

    begun = asked(Start("checkpoints", model=runs.MODEL.id))
    return HudApp(connect, "local", begun, clock=lambda: NOW, options=options)


@asynccontextmanager
async def standing(
    steps: int = 60, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[HudApp, Pilot[None]]]:
    """The app on a straight tree of so many steps, once it is read; and its pilot."""
    app = still(StillClient(runs.checkpoints(steps)))
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(lambda: app.shown_view is not None and len(app.shown_view.run.tree) == steps)
        yield app, pilot


BRANCHES: dict[range, tuple[int, dict[str, object]]] = {
    range(100, 112): (99, {"loss_fn": "ppo", "learning_rate": 1e-3, "mean_reward": 0.4}),
    range(112, 116): (105, {"loss_fn": "cispo", "mean_reward": 0.5}),
    range(116, 170): (99, {}),
}
"""Steps, from 0: the step they grow from, and what is their own."""


def branched() -> list[Checkpoint]:
    """A run, a bad branch that was left, one on that, and the run that was continued."""
    nodes = list(runs.checkpoints(170))
    for places, (parent, own) in BRANCHES.items():
        for place in places:
            before = nodes[parent if place == places.start else place - 1].id
            changed = {**own, "prev_model_checkpoint_id": before}
            nodes[place] = nodes[place].model_copy(update=changed)
    return nodes
