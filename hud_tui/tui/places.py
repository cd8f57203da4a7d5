"""What the palette goes to: views, actions, models, checkpoints, runs, jobs, tasksets and tasks."""

from __future__ import annotations

from asyncio import sleep, to_thread
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

from textual.app import App
from textual.screen import Screen

from hud_tui.errors import HudError
from hud_tui.keys import VIEWS, WRITES, Action, of_view
from hud_tui.rl.checkpoint_tree import Kind, kind, label
from hud_tui.rl.evaluation import sample_size
from hud_tui.rl.sides import step_of_run
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.work import Work
from hud_tui.tui.keys import doable, shows_view
from hud_tui.tui.name_search import BLOCK, Place, Section
from hud_tui.tui.rollout_reader import StepGroups
from hud_tui.tui.screens.base import HudScreen, scored
from hud_tui.tui.screens.dialogs import show_notice
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.screens.launch import LaunchScreen
from hud_tui.tui.screens.models import ModelsScreen
from hud_tui.tui.session import RunSession
from hud_tui.tui.theme import TITLES
from hud_tui.wire import Checkpoint, Evaluation, Job, Model
from hud_tui.wire_tasks import Taskset


def action_sections(screen: Screen[object]) -> Iterator[Section]:
    """The views, what can be done on a screen now, and the themes."""
    possible = [able for able in doable(screen) if able.action.name not in HIDDEN]
    app = screen.app
    for title, are_views in (("view", True), ("action", False)):
        of_kind = [able for able in possible if shows_view(able.action) is are_views]
        places = [
            Place(
                f"{able.action.label.capitalize()}: {able.action.help}",
                partial(app.run_action, able.action.name, able.where),
                able.action.all_shown,
            )
            for able in of_kind
        ]
        yield _of_actions(title, places, [able.action for able in of_kind])
    wear = {name: partial(app.run_action, f"app.wear({name!r})") for name in TITLES}
    themes = [Place(f"Theme: {TITLES[name]}", wear[name]) for name in TITLES]
    yield Section("theme", themes.__getitem__).add([theme.name for theme in themes])


HIDDEN = frozenset({"command_palette", "interrupt"})
"""Actions that are not listed: the first is open already, the second is another name of quit."""
UNTOLD = frozenset({"quit"})
"""Actions that are found by their names only, not by what is told of them."""
MOVES = frozenset(
    {
        *("enter", "escape", "tab", "up", "down", "left", "right"),
        *("home", "end", "pageup", "pagedown"),
    }
)
"""Keys that move or choose in what is in sight: such actions of other views are not listed."""


def _of_actions(
    kind: str, places: Sequence[Place], actions: Sequence[Action], within: str = ""
) -> Section:
    section = Section(kind, places.__getitem__, within)
    descriptions = [
        "" if action.name in UNTOLD else f"· {action.label}: {action.help}" for action in actions
    ]
    return section.add([action.label for action in actions], descriptions=descriptions)


MOST_JOBS = {True: 10_000, False: 1000}
"""Newest jobs that are read: from the embedded service, and from HUD."""
NEW_JOBS = 100
"""Newest jobs that are read again when the palette is opened another time."""
TASK_STEPS = 200
"""Newest steps whose tasks are listed."""
IN_RUN = "in this model's steps"
"""Note of a task that steps train on, whose groups Live shows."""
MOST_TASKS = 50_000
"""Most tasks of tasksets that are listed."""


class Places:
    """The service's places: models, checkpoints, runs, jobs, tasksets and tasks."""

    def __init__(self, app: App[None], session: RunSession) -> None:
        self._app, self._session = app, session
        self._jobs: dict[str, Job] = {}
        """The jobs read so far, by id, newest first."""
        self._scored: dict[str, list[str]] = {}
        """Tasks of evaluations, by the evaluation's id."""
        self._tasks_of: dict[Taskset, list[tuple[str, bool]]] = {}
        """Tasks of tasksets: their slugs, and whether they are held out."""

    def actions_elsewhere(self, below: Screen[object]) -> Iterator[Section]:
        """The actions of each view that cannot be done on the screen `below`."""
        here = set() if below.is_modal else {possible.action.id for possible in doable(below)}
        for shown in filter(shows_view, of_view("app")) if here else ():
            view = shown.name.removeprefix("view('").removesuffix("')")
            listed = [each for each in of_view(view) if each.id not in here and not _moves(each)]
            places = [
                Place(
                    f"{action.label.capitalize()} · {shown.shown} {shown.label} · {action.shown}",
                    partial(self._do, view, action),
                    action.help,
                    is_dim=True,
                )
                for action in listed
            ]
            yield _of_actions("action", places, listed, shown.label)

    async def _do(self, view: str, action: Action) -> None:
        """Show an action's view, and do it there if it changes nothing; else tell its key."""
        if view in VIEWS:
            await self._app.switch_mode(view)
        else:
            await self._app.run_action(view)
        screen = self._app.screen
        possible = isinstance(screen, HudScreen) and view == screen.VIEW and screen.can(action.name)
        if possible and action.id not in WRITES:
            await self._app.run_action(action.name, screen)
        else:
            show_notice(self._app, f"{action.shown}  {action.label}: {action.help}")

    async def sections(self) -> AsyncIterator[Section]:
        """Known places first, then the jobs; a section that has grown is given again.

        Jobs that cannot be read are left out: their view says why.
        """
        yield self._models()
        tasks = self._tasks()
        yield tasks
        with suppress(HudError):  # the known ones suffice
            self._session.catalog = tuple(await self._session.client.models())
            yield self._models()
        with suppress(HudError):  # then only tasks that are trained on are listed
            if (heldout := await self._heldout()) is not None:
                yield heldout
        tree, model = self._session.run.tree, self._session.run.model

        def checkpoint(i: int) -> Place:
            position = len(tree) - 1 - i
            go = partial(self._show, "checkpoints", tree[position].id)
            return Place(label(tree[position]), go, scored(tree.own(position)))

        within = model.model_name if model is not None else ""
        checkpoints = Section("checkpoint", checkpoint, within)
        for end in range(len(tree), 0, -BLOCK):
            part = [tree[i] for i in range(end - 1, max(0, end - BLOCK) - 1, -1)]
            checkpoints.add([label(node) for node in part], [node.id for node in part])
            yield checkpoints
            await sleep(0)  # let keys go first
        for section in self._known_jobs():
            yield section
        if await self._read_jobs():
            for section in self._known_jobs():
                yield section
        with suppress(HudError):  # their view says why
            async for section in self._tasksets():
                yield section

    async def _tasksets(self) -> AsyncIterator[Section]:
        tasksets = await self._session.client.tasks.tasksets()
        names = [taskset.name for taskset in tasksets]
        section = Section("taskset", lambda i: Place(names[i], partial(self._launch, names[i])))
        yield section.add(names, [taskset.id for taskset in tasksets])
        kept = self._tasks_of
        self._tasks_of = {taskset: kept[taskset] for taskset in tasksets if taskset in kept}
        listed = 0
        for taskset in tasksets:
            if taskset not in self._tasks_of:
                rows = (await self._session.client.tasks.taskset(taskset.name)).tasks
                tasks = await to_thread(read_rows, rows)
                self._tasks_of[taskset] = [(task.slug, task.heldout) for task in tasks]
            listed += len(self._tasks_of[taskset])
            if listed > MOST_TASKS:
                return
            for heldout in (False, True):
                slugs = [slug for slug, held in self._tasks_of[taskset] if held is heldout]
                place_of = partial(self._task_of, taskset.name, slugs)
                kind = "held-out task" if heldout else "task"
                yield Section(kind, place_of, taskset.name).add(slugs)

    def _task_of(self, taskset: str, slugs: Sequence[str], i: int) -> Place:
        """A task of a taskset, which Launch lists with its text."""
        return Place(slugs[i], partial(self._launch, taskset, slugs[i]), f"of {taskset}")

    async def _launch(self, taskset: str, slug: str | None = None) -> None:
        """Check a taskset in Launch, as Enter there does, with the cursor on a task."""
        await self._app.switch_mode("launch")
        if isinstance(self._app.screen, LaunchScreen):
            self._app.screen.take(taskset, slug)

    def _models(self) -> Section:
        models = list(self._session.catalog)

        def place_of(i: int) -> Place:
            model = models[i]
            return Place(model.model_name, partial(self._open, model))

        section = Section("model", place_of)
        return section.add([model.model_name for model in models], [model.id for model in models])

    async def _open(self, model: Model) -> None:
        """What Enter does in Models; the user's own model is selected at once."""
        if kind(model) is Kind.OWN:
            self._session.choose(model)
            await self._app.switch_mode("launch" if model.checkpoint_count == 0 else "live")
            return
        await self._show("models", model.id)
        if isinstance(self._app.screen, ModelsScreen):
            self._app.screen.open(model)

    async def _heldout(self) -> Section | None:
        """The tasks of the head's lineage's newest held-out evaluation; None without any."""
        run = self._session.run
        evaluations = dict(run.tree.evaluations())
        lineage = set(run.tree.lineage(run.tree.head))
        position = max(evaluations, key=lambda p: (p in lineage, p), default=None)
        node = run.tree.node(position)
        evaluation = None if position is None else evaluations[position]
        if evaluation is None or not evaluation.id:
            return None
        if evaluation.id not in self._scored:
            groups = (await self._session.evaluations.get(evaluation.id)).groups
            self._scored[evaluation.id] = sorted(group.task_slug for group in groups)
        slugs, note = self._scored[evaluation.id], f"evaluated at {label(node)}"

        def place_of(i: int) -> Place:
            return Place(slugs[i], partial(self._rollouts, evaluation, node, slugs[i]), note)

        return Section("held-out task", place_of).add(slugs)

    async def _rollouts(self, evaluation: Evaluation, node: Checkpoint | None, slug: str) -> None:
        number = None if node is None else step_of_run(self._session.run.tree, node)
        group = await self._session.evaluations.rollouts(evaluation, node, slug, number)
        name = f"{label(node)}, evaluated on {sample_size(evaluation)}"
        step = StepGroups(name, [group], index=0, node=node, names=[name])
        await self._app.push_screen(GroupScreen(self._session.client, step))

    def _tasks(self) -> Section:
        tree = self._session.run.tree
        newest = (tree[position] for position in islice(tree.lineage(tree.head), TASK_STEPS))
        sampled = dict.fromkeys(group.task_slug for node in newest for group in node.groups)
        slugs = sorted(slug for slug in sampled if slug)

        def place_of(i: int) -> Place:
            return Place(slugs[i], partial(self._show, "live", slugs[i]), IN_RUN)

        return Section("task", place_of).add(slugs)

    def _known_jobs(self) -> list[Section]:
        runs = [job for job in self._jobs.values() if Work.of(job).model_id is not None]
        others = [job for job in self._jobs.values() if Work.of(job).model_id is None]
        return [self._job_section("run", runs), self._job_section("job", others)]

    def _job_section(self, kind: str, jobs: Sequence[Job]) -> Section:
        def place_of(i: int) -> Place:
            job = jobs[i]
            short, go = job.id[:8], partial(self._show, f"{kind}s", job.id)
            return Place(job.name or job.id, go, f"{short} {job.status or ''}", id=short)

        section = Section(kind, place_of)
        return section.add([job.name or "" for job in jobs], [job.id for job in jobs])

    async def _read_jobs(self) -> bool:
        """Read the jobs, after the first time only the newest. Returns whether any has changed."""
        most = NEW_JOBS if self._jobs else MOST_JOBS[self._session.client.settings.embedded]
        try:
            newest = {job.id: job for job in await self._session.client.jobs(most)}
        except HudError:
            return False
        before = self._jobs
        self._jobs = newest | {id_: job for id_, job in before.items() if id_ not in newest}
        return self._jobs != before

    async def _show(self, view: str, name: str) -> None:
        await self._app.switch_mode(view)
        if isinstance(self._app.screen, HudScreen):
            self._app.screen.go_to(name)


def _moves(action: Action) -> bool:
    return any(key.rpartition("+")[2] in MOVES for key in action.keys.split(","))
