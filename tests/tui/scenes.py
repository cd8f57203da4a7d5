"""The main scenes of the app, always the same: for the snapshots and for the README.

``python -m tests.tui.scenes`` writes them as SVG into screenshots/.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

from textual.pilot import Pilot
from textual.screen import Screen

from hud_tui.events import CheckpointAdded, Event, MovesRead, StepTaken, TreeRead, WorkChanged
from hud_tui.remote.machines import Machines
from hud_tui.rl.game import Game
from hud_tui.rollouts.play import Play, Result
from hud_tui.rollouts.play_link import PlayLink
from hud_tui.service_file import write_rental
from hud_tui.tui.app import HudApp
from hud_tui.tui.screens.play import PlayScreen
from hud_tui.tui.screens.rollout import RolloutScreen
from hud_tui.tui.start import Start
from hud_tui.wire import Checkpoint, Identity, Job, Model
from hud_tui.wire_rollouts import Trace
from hud_tui.wire_runs import RunPage, RunRecord, RunSteps, UsualTasks
from hud_tui.wire_tasks import EnvironmentConfig, ScenarioRecord, Taskset, TasksetExport
from hud_tui.wire_time import DiscardedPage, RunTime
from hud_tui.wire_training import Losses, TraceEvents
from tests.conftest import until
from tests.tui import scene_data as data
from tests.tui.conftest import asked, run_of, time_stands_still
from tests.tui.reading import stock_group
from tests.tui.still import StillClient, StillFeed

SIZES = ((80, 24), (120, 40))
LARGE = (200, 60)
QUIET_S = 0.3
"""What a view draws when it has nothing else to do is drawn by then."""
SCREENSHOTS = Path(__file__).parent.parent.parent / "screenshots"


class SceneClient(StillClient):
    """The client's reads, answered from the made-up run; it has no writes."""

    def __init__(
        self,
        models: Sequence[Model] = data.MODELS,
        runs: Sequence[RunRecord] = data.RUNS,
        evaluated: bool = False,
        moved: bool = False,
    ) -> None:
        super().__init__()
        self._models, self._runs, self._evaluated = models, runs, evaluated
        self._moved = moved

    def feed(self, model_id: str) -> StillFeed:
        if model_id != data.MIXED.id:
            return StillFeed([TreeRead(checkpoints=tuple(data.other_tree(model_id)))])
        nodes = data.tree()
        events: list[Event] = [TreeRead(checkpoints=nodes[:-8])]
        for node in nodes[-8:]:
            at = data.NOW - data.STEP_S * (len(nodes) - (node.step or 0))
            events.append(
                CheckpointAdded(at=at, checkpoint=node.model_copy(update={"is_active": True}))
            )
            step = StepTaken(
                at=at,
                step=node.step or 0,
                checkpoint_id=node.id,
                metrics=node.metrics,
                groups=node.groups,
            )
            events.append(step)
        return StillFeed([*events, WorkChanged(at=data.NOW, work=data.run_status())])

    async def _get(self, url: str, kind: object, params: object = None) -> Any:
        """The evaluations of a model, one of them, or the tasks that are evaluated usually."""
        known = data.evaluations() if self._evaluated else ()
        if url.endswith("/tasks"):
            return UsualTasks(name="mixed", heldout=48, train=172)
        if url.endswith("/evaluations"):
            return [one.model_copy(update={"groups": []}) for one in known]
        return next(one for one in known if url.endswith(one.id))

    async def moves(self, model_id: str) -> MovesRead:
        return MovesRead(moves=data.moves() if self._moved else (), since=0.0)

    async def whoami(self) -> Identity:
        return Identity(user_id="u", team_id="t")

    async def models(self) -> list[Model]:
        return list(self._models)

    async def checkpoints(self, model_id: str) -> list[Checkpoint]:
        return list(data.tree()) if model_id == data.MIXED.id else data.other_tree(model_id)

    async def run_page(self, since: int = 0, offset: int = 0) -> RunPage:
        rows = [] if since else list(self._runs)
        return RunPage(items=rows, total=len(rows), revision=1)

    async def run_steps(self, run_id: str, after: int, keys: Sequence[str]) -> RunSteps:
        return data.run_steps(run_id, after, keys)

    async def run_time(
        self,
        run_id: str,
        last: int = 20,
        step: int | None = None,
        checkpoint_id: str | None = None,
    ) -> RunTime:
        return data.run_time(last, checkpoint_id)

    async def discarded(self, run_id: str, limit: int = 1000, offset: int = 0) -> DiscardedPage:
        rows = data.discarded()
        return DiscardedPage(items=rows, total=len(rows))

    async def jobs(self, limit: int = 200) -> list[Job]:
        return list(data.JOBS[:limit])

    async def job(self, job_id: str) -> Job:
        return next(job for job in data.JOBS if job.id == job_id)

    async def job_traces(self, job_id: str, step: int | None = None) -> list[Trace]:
        return data.traces(data.TAKEN if step is None else step)

    async def trace(self, trace_id: str) -> Trace:
        step = int(trace_id[:8], 16)
        return next(trace for trace in data.traces(step) if trace.id == trace_id)

    async def trace_events(self, trace_id: str, since_seq: int = -1) -> TraceEvents:
        return TraceEvents(events=data.turns(trace_id), latest_seq=1, status="completed")

    async def losses(self, model_id: str) -> Losses:
        return Losses(losses=["importance_sampling", "ppo", "cispo", "dro", "cross_entropy"])

    async def model(self, name: str) -> Model:
        return next(model for model in self._models if name in (model.id, model.model_name))

    async def tasksets(self) -> list[Taskset]:
        return [
            Taskset(
                id=one.name, name=one.name, task_count=len(one.tasks), description=one.description
            )
            for one in data.TASKSETS.values()
        ]

    async def taskset(self, name: str) -> TasksetExport:
        return TasksetExport(name=name, tasks=list(data.TASKSETS[name].tasks))

    async def environment(self, name: str) -> EnvironmentConfig | None:
        found = data.environment(name)
        return None if found is None else EnvironmentConfig.model_validate(found)

    async def scenarios(self, registry_id: str) -> list[ScenarioRecord]:
        known = data.ENVIRONMENTS[registry_id].scenarios.values()
        return [ScenarioRecord(id=s.name, name=s.name, args_schema=s.args_schema) for s in known]


Act = Callable[[HudApp, Pilot[None]], Awaitable[None]]


@dataclass(frozen=True)
class Scene:
    """A view of the app, and how to get there."""

    start: Start
    play: Act
    models: Sequence[Model] = data.MODELS
    runs: Sequence[RunRecord] = data.RUNS
    evaluated: bool = False
    """Whether some of the checkpoints were evaluated."""
    moved: bool = False
    """Whether the head was set."""
    machines: bool = False
    """Whether there are a host with GPUs and a rented pod."""

    def app(self) -> HudApp:
        async def connect(mode: str, key: str | None, say: Callable[[str], None]) -> Any:
            return SceneClient(self.models, self.runs, self.evaluated, self.moved)

        start, more = asked(self.start), {}
        if self.machines:
            state = Path(mkdtemp(prefix="hud-tui-scenes-"))
            _keep_machines(state)
            more["state"] = lambda: state
        app = HudApp(connect, "local", start, clock=lambda: data.NOW, **more)
        if self.machines:
            finalize(app, rmtree, state, ignore_errors=True)
        return app

    async def ready(self, pilot: Pilot[None]) -> None:
        """Play the scene to where it is looked at."""
        app = pilot.app
        await settle(pilot, lambda: app.shown_view is not None)
        await self.play(app, pilot)
        await pilot.pause()
        await pilot.pause()


async def settle(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    async def holds() -> bool:
        await pilot.pause()
        return bool(condition())

    await until(holds)


ALARMS = 3
"""Of the run; each is told of when it comes, which may be at any time."""


async def _followed(app: HudApp, pilot: Pilot[None]) -> None:
    """Wait until the run is read, and its alarms, which mark rows and may come last."""

    def whole() -> bool:
        run = run_of(app)
        view = app.shown_view
        return (
            len(run.tree) == len(data.tree())
            and len(run.alarms.loud) == ALARMS
            and run.training
            and view is not None
            and view.run is run
        )

    await settle(pilot, whole)


async def _quiet(app: HudApp, pilot: Pilot[None]) -> None:
    """Wait until the alarms were told of, and take the notices away."""

    def told() -> bool:
        return len(run_of(app).alarms.loud) == ALARMS and not app.workspace._unshown

    await settle(pilot, told)
    app.clear_notifications()


async def _calm(app: HudApp, pilot: Pilot[None]) -> None:
    await _followed(app, pilot)
    await _quiet(app, pilot)


def _then(before: Act, *keys: str, until: Callable[[Any], object] = bool) -> Act:
    """Press keys, and wait until the screen is so."""

    async def play(app: HudApp, pilot: Pilot[None]) -> None:
        await before(app, pilot)
        await pilot.press(*keys)
        await settle(pilot, lambda: until(app.screen))

    return play


def _shows(selector: str) -> Callable[[Screen[object]], object]:
    return lambda screen: screen.query(selector)


def _has(name: str) -> Callable[[Screen[object]], object]:
    return lambda screen: getattr(screen, name, None)


def _asks(screen: Screen[object]) -> object:
    return screen.is_modal and screen.focused


async def _models(app: HudApp, pilot: Pilot[None]) -> None:
    await _followed(app, pilot)
    await settle(pilot, lambda: len(getattr(app.screen, "facts", ())) == 4)
    await _quiet(app, pilot)


async def _welcome(app: HudApp, pilot: Pilot[None]) -> None:
    await settle(pilot, lambda: "forks" in str(app.screen.query_one("#note").render()))


async def _launch(app: HudApp, pilot: Pilot[None]) -> None:
    await settle(pilot, lambda: run_of(app).loaded)
    screen: Any = app.screen
    await settle(
        pilot, lambda: screen.draft.findings and not screen.draft.checking and screen.form.read()
    )
    await settle(pilot, lambda: screen.query_one("#loss_fn").options)
    screen.button.focus()


async def _evaluated(app: HudApp, pilot: Pilot[None]) -> None:
    """The cursor on the best checkpoint, and how that compares with the head and the base."""
    await _calm(app, pilot)
    await settle(pilot, lambda: run_of(app).tree.evaluated_range)
    screen: Any = app.screen
    await pilot.press("asterisk")
    await settle(pilot, lambda: len(screen._beside.get(screen.cursor.position, ())) == 2)


async def _jobs(app: HudApp, pilot: Pilot[None]) -> None:
    await _followed(app, pilot)
    screen: Any = app.screen
    await settle(pilot, lambda: screen.jobs)
    await _quiet(app, pilot)
    await pilot.press("enter")
    await settle(pilot, lambda: screen.part is not None)
    await pilot.press("enter")
    await settle(pilot, lambda: getattr(app.screen, "transcript", None) is not None)


def _rollout(*keys: str) -> Callable[[HudApp, Pilot[None]], Awaitable[None]]:
    """The reader over a rollout with tools, after these keys."""

    async def ready(app: HudApp, pilot: Pilot[None]) -> None:
        await _calm(app, pilot)
        shelf = stock_group()
        screen = RolloutScreen(shelf, shelf.groups(), "a")
        await app.push_screen(screen)
        await settle(pilot, lambda: screen.transcript is not None)
        await pilot.press(*keys)
        await settle(pilot, lambda: "c" not in keys or screen.view.first_difference is not None)
        await settle(pilot, lambda: "d" not in keys or bool(shelf.asked))

    return ready


def _keep_machines(state: Path) -> None:
    """A host that trains, and a pod that is not set up."""
    machines = Machines(state)
    machines.write(data.HOST)
    machines.key(data.HOST.name)
    machines.use(data.HOST, "tinker")
    machines.set_line(data.HOST.name, data.LINE)
    write_rental(state, data.POD)


def _runs(*keys: str) -> Act:
    """The table of runs, and these keys."""

    async def play(app: HudApp, pilot: Pilot[None]) -> None:
        await _followed(app, pilot)
        await pilot.press("5")
        view: Any = app.screen
        await settle(pilot, lambda: view.rows is not None)
        await _quiet(app, pilot)
        await pilot.press(*keys)

    return play


async def _compared(app: HudApp, pilot: Pilot[None]) -> None:
    await _runs("down", "space", "space", "space", "space", "c")(app, pilot)
    await settle(pilot, lambda: getattr(app.screen, "compared", None) is not None)
    screen: Any = app.screen
    await settle(pilot, lambda: screen.compared.runs)
    await pilot.press("shift+left", "shift+left")


FLOWERS = {"type": "string", "enum": ["tulip", "rose", "aster"]}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": about,
            "parameters": {"type": "object", "properties": fields, "required": required},
        },
    }
    for name, about, fields, required in (
        ("stock", "How many of a flower are in stock.", {"flower": FLOWERS}, ["flower"]),
        (
            "order",
            "Order flowers for a customer.",
            {
                "flower": FLOWERS,
                "count": {"type": "integer", "description": "at most 20"},
                "gift": {"type": "boolean", "description": "wrapped"},
                "note": {"type": "string"},
            },
            ["flower", "count"],
        ),
    )
]
PROMPT = "A customer wants eight tulips as a gift. Look how many there are, then order them."


class Shop:
    """A world whose second turn is waited for."""

    def __init__(self) -> None:
        self._answers = asyncio.Queue[Any]()

    async def play(self, begun: Any, asked: Callable[[Any], object]) -> Result:
        messages: list[Any] = [{"role": "user", "content": PROMPT}]
        while True:
            asked({"model": "sums", "messages": messages, "tools": TOOLS})
            said = (await self._answers.get())["choices"][0]["message"]
            told = {"role": "tool", "content": '{"flower": "tulip", "stock": 12, "price": 2.5}'}
            messages = [*messages, said, told]

    def answer(self, completion: Any) -> None:
        self._answers.put_nowait(completion)


async def _play(app: HudApp, pilot: Pilot[None]) -> None:
    """The second turn of a game on an environment with two tools."""
    await _calm(app, pilot)

    async def begin(changed: Callable[[Game], object]) -> Play:
        client = app.workspace.session.client
        return Play(PlayLink(lambda: client), Shop(), Game("shop", most=6), changed, "sums")

    screen = PlayScreen("shop order-8-tulips", begin)
    await app.push_screen(screen)
    await settle(pilot, lambda: screen.game.number == 1 and screen.query("#argument-0"))
    screen.form.call()
    await settle(pilot, lambda: screen.game.number == 2 and screen.game.waits)
    await settle(pilot, lambda: screen.focused is not None)
    await pilot.press("right")
    await settle(pilot, lambda: screen.query("#argument-3"))
    await pilot.press("tab", "tab", "8", "enter")


def _is_estimated(screen: Screen[object]) -> bool:
    problem = screen.query("#dialog-problem")
    return bool(problem) and "rollouts" in str(problem.first().render())


_timed = _then(_calm, "percent_sign", until=lambda screen: screen.pane.timeline.times)
_time = _then(_timed, "down", "down", "down")
BASES = data.MODELS[-3:]
LIVE, TREE = Start("status", model="mixed-rl"), Start("checkpoints", model="mixed-rl")
SCENES = {
    "welcome": Scene(Start(), _welcome, BASES),
    "models": Scene(Start("models"), _models),
    "launch": Scene(Start("run", model="letters-first", source="mixed"), _launch),
    "live": Scene(LIVE, _followed),
    "time": Scene(LIVE, _time),
    "time-step": Scene(
        LIVE, _then(_time, "left", until=lambda screen: len(screen.pane.timeline.times) == 1)
    ),
    "checkpoints": Scene(TREE, _followed),
    "head-dialog": Scene(TREE, _then(_followed, "b", until=_asks)),
    "evaluations": Scene(TREE, _evaluated, evaluated=True),
    "evaluate": Scene(TREE, _then(_evaluated, "E", until=_is_estimated), evaluated=True),
    "evaluated-head": Scene(TREE, _then(_evaluated, "H", until=_has("current")), evaluated=True),
    "compare": Scene(TREE, _then(_evaluated, "c", until=_shows("#compare-tasks")), evaluated=True),
    "history": Scene(
        TREE, _then(_evaluated, "V", until=_shows("#history")), evaluated=True, moved=True
    ),
    "ship": Scene(TREE, _then(_evaluated, "Q", until=_has("ranking")), evaluated=True),
    "jobs": Scene(Start("jobs", model="mixed-rl"), _jobs),
    "rollout": Scene(Start("models"), _rollout("G", "k", "v", "d")),
    "rollout-pair": Scene(Start("models"), _rollout("c")),
    "runs": Scene(LIVE, _runs("down", "space", "space")),
    "runs-grouped": Scene(LIVE, _runs("v", "v")),
    "runs-columns": Scene(LIVE, _runs("o", "down", "down")),
    "runs-empty": Scene(LIVE, _runs(), runs=()),
    "runs-compared": Scene(LIVE, _compared),
    "alarms": Scene(LIVE, _then(_followed, "7", until=lambda screen: screen.VIEW == "alarms")),
    "machines": Scene(Start("models"), _then(_calm, "8", until=_has("entry")), machines=True),
    "play": Scene(Start("models"), _play),
    "help": Scene(Start("models"), _then(_calm, "question_mark", until=_shows("#help-list"))),
}
VIEWS = ("models", "launch", "live", "checkpoints", "runs", "jobs", "alarms", "machines")


async def write(directory: Path) -> None:
    """Write the scenes as ``<name>.svg``, each view in other sizes as ``<name>-<size>.svg``."""
    for name, scene in SCENES.items():
        for size in ((80, 24), (120, 40), LARGE) if name in VIEWS else ((120, 40),):
            app = scene.app()
            async with app.run_test(size=size) as pilot:
                await scene.ready(pilot)
                await pilot.pause(QUIET_S)
                file = f"{name}.svg" if size == (120, 40) else f"{name}-{size[0]}x{size[1]}.svg"
                app.save_screenshot(str(directory / file))
                print(file)


if __name__ == "__main__":
    SCREENSHOTS.mkdir(exist_ok=True)
    with time_stands_still():
        asyncio.run(write(SCREENSHOTS))
