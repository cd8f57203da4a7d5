"""`Workspace`: the part of the app that needs a service: selected model, views, notices.

The app imports this module after its first frame, because it imports the client, pydantic, the
wire's models and every dialog, which takes about 250 ms.
"""

from __future__ import annotations

from asyncio import sleep, to_thread
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import time
from typing import Any

from textual.app import App
from textual.notifications import SeverityLevel
from textual.worker import WorkerError, WorkType

from hud_tui.client.client import HudClient, find_job
from hud_tui.client.transport import post_webhook
from hud_tui.errors import HudError, HudRefused, HudUsage
from hud_tui.events import HeadMoved, TreeRead
from hud_tui.keys import keyed
from hud_tui.notebook import LastKnown
from hud_tui.remote.clock import ahead_s, prime_now
from hud_tui.remote.machines import machines_in
from hud_tui.rl.alarms.alarm import Alarm, Level, Notifier, Notify
from hud_tui.rl.checkpoint_tree import own_models
from hud_tui.rl.head import move_text
from hud_tui.rl.names import find_model
from hud_tui.rl.run import Run
from hud_tui.rl.text import clean, one_line
from hud_tui.rl.work import Work
from hud_tui.service_file import costs_text, keep_budgets, read_rentals, rental_text, url_of
from hud_tui.settings import read_paths
from hud_tui.tui.job_actions import ask_resume, may_end_evaluations, may_leave, of_session
from hud_tui.tui.keys import GAMES, OPENS
from hud_tui.tui.layout import Layout, LayoutStore
from hud_tui.tui.places import Places
from hud_tui.tui.screens.base import ASIDE_S, Aside, HudScreen, ViewContext, WritePolicy
from hud_tui.tui.screens.dialogs import ALARM, ConfirmDialog, Leavable, show_error, show_notice
from hud_tui.tui.screens.json import JsonScreen, read_document
from hud_tui.tui.screens.log import LogScreen
from hud_tui.tui.screens.machines import SET_UPS, MachinesScreen, SetUps, aside
from hud_tui.tui.screens.sampling import may_leave_sampling
from hud_tui.tui.session import RunSession, SessionOwner
from hud_tui.tui.start import Start
from hud_tui.tui.sweep_actions import may_leave_sweeps
from hud_tui.wire import Job, Model, WorkState

LOOP_S = 2.0
"""Seconds between two reads of a training loop outside the service."""
SERVICE_S = 2.0
"""Seconds between two looks for a service that was lost."""
FRAME_S = 0.25
"""Minimum seconds between two displayed updates; events in between are collected."""
READING = frozenset({"read", "check", "form", "start", "evaluations", "paired", "gather"})
"""Groups of workers that only read, and can be restarted with another client."""


class Workspace:
    """Owns the session, runs its workers, and shows its notices."""

    def __init__(
        self,
        app: App[None],
        session_of: Callable[[SessionOwner], RunSession],
        start: Start,
        notify: Notify | None,
        export_dir: Path,
        reopen: Callable[[], object] = lambda: None,
        reconnect: Callable[[], object] = lambda: None,
        set_ups: SetUps | None = None,
        is_unseen: Callable[[], bool] = lambda: False,
    ) -> None:
        """`session_of` makes the session, which reports to its argument; `notify` says how to
        announce alarms and the end of a run; `reopen` opens the service again, after another
        machine was chosen; `reconnect` finds a service that another program has started
        again; `set_ups` of machines may be running already; `is_unseen` as in `WritePolicy`."""
        self.session = session = session_of(self)
        self.layout = LayoutStore(session.store, session.scope)
        self.writes = WritePolicy(app, lambda: session.client, is_unseen)
        self._aside = Aside()
        self.context = ViewContext(
            session, self.layout, self.writes, start, session.clock, export_dir, lambda: self._aside
        )
        self._app, self._start, self._reopen, self.set_ups = app, start, reopen, set_ups
        self._reconnect = reconnect
        self._notifier = None if notify is None else Notifier(notify, app.bell, self._write)
        self.places = Places(app, session)
        self._leaving = False
        self._former: list[HudClient] = []
        """Clients before the last reconnects."""
        self._unshown: list[Alarm] = []
        """Alarms raised while a dialog is open, because a notice would cover its buttons."""

    @property
    def view(self) -> HudScreen | None:
        stack = reversed(self._app.screen_stack)
        return next((screen for screen in stack if isinstance(screen, HudScreen)), None)

    # Opening: which model and view are shown first.

    async def opening(self) -> Opening:
        """The first view and model. Raises HudError if the service does not answer."""
        client = self.session.client
        first = await opening(client, self._start, self.layout.now)
        if any(model.training_defaults is not None for model in first.models):
            with suppress(HudError):  # an embedded service, whose keys may have roles
                await client.whoami()
        return first

    async def begin(self, first: Opening) -> None:
        self.session.catalog = first.models
        if first.model is not None:
            self.session.choose(first.model)
        self._keep_saving()
        self._app.run_worker(self._watch_machines(), exclusive=True, group="aside")
        self._app.run_worker(self._watch_loop(), exclusive=True, group="loop")
        self._app.run_worker(self._watch_service(), exclusive=True, group="service")
        await self._app.switch_mode(first.view)
        if first.trouble is not None:
            show_error(self._app, first.trouble)
        elif self._start.verbose:
            self.show_document(self._start.ref)

    async def begin_offline(self) -> bool:
        """Show the last known state; False if there is none."""
        session = self.session
        state = await to_thread(session.read_last_known)
        if state is None:
            return False
        try:
            first = opening_offline(state, self._start, self.layout.now)
        except HudError:
            return False
        assert first.model is not None
        run = Run(model=first.model)
        if first.model.id == state.model.id:
            run = replace(run.fold(TreeRead(checkpoints=tuple(state.tree))), job=state.job)
        session.catalog = first.models
        session.choose(first.model, run, state.at)
        session.catch_up()
        self._keep_saving()
        await self._app.switch_mode(first.view)
        return True

    async def reconnect(self, client: HudClient) -> None:
        """Replace the client. Reads with the old one are cancelled, and repeated; pages that have
        it go on with the new one."""
        old = self.session.client
        client.identity = old.identity
        self.session.reconnect(client)
        await self._cancel(READING)
        await old.aclose()
        self._former.append(old)
        for each in self._former:
            each.continue_as(client)
        self._app.clear_notifications()
        show_notice(self._app, "reconnected")
        self._read_evaluations()
        self.service_came_back()

    async def end(self) -> None:
        """`close` while the app goes on with another service, and set-ups of machines do."""
        for worker in [*self._app.workers]:
            if worker.group not in (SET_UPS, "reopen", "connect"):
                worker.cancel()
        await self.close()

    async def close(self) -> None:
        await self._cancel({GAMES})  # each tells the service that its player left
        await self.session.evaluation_runner.stop()
        await self.session.save_last_known()
        await self.session.client.aclose()

    async def _cancel(self, groups: Container[str]) -> None:
        """Cancel the workers of these groups, and wait until they have ended."""
        workers = [worker for worker in self._app.workers if worker.group in groups]
        for worker in workers:
            worker.cancel()
        for worker in workers:
            with suppress(WorkerError):
                await worker.wait()

    # Called by the session: see `SessionOwner`.

    def model_chosen(self, model: Model) -> None:
        self._app.run_worker(self._follow(), exclusive=True, group="follow")
        self._read_evaluations()
        self.layout.arrange(model=model.id, model_name=model.model_name[:1000])

    def session_changed(self) -> None:
        """Pass the run to the view on the screen; hidden views get it when they are shown."""
        view = self.view
        if view is not None:
            view.update_run(self.session.run, self.session.freshness)
            if self._unshown and not self._app.screen.is_modal:
                raised, self._unshown = self._unshown, []
                if view.VIEW != "alarms":  # which lists them
                    self._show_alarms(raised)

    def evaluation_begun(self, evaluation_id: str) -> None:
        evaluating = self.session.evaluation_runner.run(evaluation_id)
        self._app.run_worker(evaluating, group="evaluate")

    def detection_behind(self) -> None:
        self._app.run_worker(self.session.detect_alarms(), exclusive=True, group="alarms")

    def alarms_raised(self, alarms: list[Alarm]) -> None:
        self._unshown += alarms
        for alarm in alarms:
            if self._notifier is not None:
                self._send(self._notifier, self._notifier.alarm(alarm, self._model_name))
        self.session_changed()

    def run_ended(self, job: WorkState) -> None:
        if self._notifier is not None:
            self._send(self._notifier, self._notifier.ended(job, self._model_name))

    def run_interrupted(self, job: WorkState) -> None:
        """Ask whether to resume a run that a service shutdown interrupted."""
        run = of_session(self.session, job)
        offer = ask_resume(self._app, self.session, self.writes, run)
        self._app.run_worker(offer, exclusive=True, group="resume")

    def head_moved_elsewhere(self, move: HeadMoved) -> None:
        undo = keyed("{checkpoints.undo} in Checkpoints undoes it.")
        show_notice(self._app, f"The head moved: {move_text(self.session.run, move)}. {undo}")

    def moves_missed(self) -> None:
        # as a function: a coroutine that is never started raises a warning
        reading: WorkType[None] = self.session.read_history
        self._app.run_worker(reading, exclusive=True, group="history")

    def service_came_back(self) -> None:
        if self.view is not None:
            self.view.on_screen_resume()  # this repeats reads that failed

    def _read_evaluations(self) -> None:
        # as a function: a coroutine that is never started raises a warning
        reading: WorkType[None] = self.session.evaluation_runner.read
        self._app.run_worker(reading, exclusive=True, group="evaluations")

    async def _follow(self) -> None:
        frame = self._app.set_interval(FRAME_S, self.session.frame)
        try:
            await self.session.follow()
        finally:
            frame.stop()

    def _keep_saving(self) -> None:
        self._app.run_worker(self.session.keep_saving(), exclusive=True, group="keep")

    # Alarms: on the screen, and as notifications.

    @property
    def _model_name(self) -> str:
        model = self.session.run.model
        return "" if model is None else one_line(model.model_name, 80)

    def _show_alarms(self, alarms: list[Alarm]) -> None:
        """Show new alarms as one notice over any view: the most severe, and how many more."""
        alarm = max(alarms, key=lambda alarm: alarm.level.rank)  # the first of equals
        more = f" · {len(alarms) - 1} more" if len(alarms) > 1 else ""
        what = keyed("press {app.alarms} for advice")
        text = f"{ALARM} {alarm.title} since step {alarm.onset}{more}\n{alarm.summary}\n{what}"
        severity: SeverityLevel = "error" if alarm.level is Level.CRITICAL else "warning"
        show_notice(self._app, text, severity, 10)

    def _send(self, notifier: Notifier, document: dict[str, object] | None) -> None:
        if document is not None:
            self._app.run_worker(self._post(notifier, document), group="webhook")

    async def _post(self, notifier: Notifier, document: dict[str, object]) -> None:
        """POST a document to the webhook; only the first failure is displayed."""
        why = await post_webhook(notifier.notify.webhook, document)
        if why and (message := notifier.failed(why)):
            show_notice(self._app, message)

    def _write(self, text: str) -> None:
        """Write to the terminal directly, bypassing the screen."""
        if self._app._driver is not None:
            self._app._driver.write(text)

    # Actions of every view.

    def show_document(self, ref: str | None = None) -> None:
        self._app.run_worker(self._show_document(ref), exclusive=True, group=OPENS)

    async def _show_document(self, ref: str | None) -> None:
        model = self.session.run.model
        if model is None:
            text = keyed("no model selected: press {app.view.models} to choose one")
            show_notice(self._app, text)
            return
        title, document = await read_document(self.session.client, model, ref)
        await self._app.push_screen(JsonScreen(title, document, self.context.aside))

    def play_rollout(self, trace_id: str) -> None:
        """Begin a game from a rollout, unless changes are not allowed, or no files are kept."""
        from hud_tui.tui.games import game_from_rollout  # with all that makes rollouts

        state = self.session.store.directory
        if not self.writes.may_change():
            return
        if state is None:
            show_notice(self._app, "this session keeps no files: see --state-dir", "warning")
            return
        self._app.push_screen(game_from_rollout(lambda: self.session.client, trace_id, state))

    def show_machines(self) -> None:
        state = self.session.store.directory
        if state is None:
            show_notice(self._app, "no state directory: no machines are kept")
            return
        if self.set_ups is None:
            self.set_ups = SetUps(self._app, machines_in(state), self._reopen)

        def models() -> tuple[str, ...]:
            return tuple(model.model_name for model in self.session.catalog if model.forked_from)

        screen = MachinesScreen(state, self.set_ups, self.writes, self._real_clock, models)
        self._app.push_screen(screen)

    async def _watch_machines(self) -> None:
        """Update the machine in use and costs in the top line."""
        state = self.session.store.directory
        costs = costs_now(state)
        if costs:
            show_notice(self._app, costs, "warning", 15)
        while True:
            if state is not None:
                with suppress(HudError, OSError):
                    now = await to_thread(prime_now, state)
                    await to_thread(keep_budgets, read_paths(str(state)), now)
            news = await to_thread(aside, state, time(), self.session.machine)
            if news != self._aside:
                self._aside = news
                if self.view is not None:
                    self.view.update_aside(news)
            await sleep(ASIDE_S)

    async def _watch_loop(self) -> None:
        """Follow the training loop outside the service that trains the selected model."""
        while not self.session.replays:
            before = self.session.loop
            await self.session.find_loop()
            if self.session.loop != before and self.view is not None:
                self.view.update_loop(self.session.loop)
            await sleep(LOOP_S)

    async def _watch_service(self) -> None:
        """Reconnect once the embedded service that was lost runs again, at another port."""
        tried: str | None = None  # once: connecting may take longer than until the next look
        while not self.session.replays:
            settings = self.session.client.settings
            if self.session.freshness.offline and settings.local and settings.data_dir:
                url = await to_thread(url_of, Path(settings.data_dir))
                if url not in (None, settings.api_url, tried):
                    tried = url
                    self._reconnect()
            await sleep(SERVICE_S)

    def show_log(self) -> None:
        session, aside = self.session, self.context.aside
        log = LogScreen(session.store.directory, self._real_clock, session.client, aside)
        self._app.push_screen(log)

    @property
    def _real_clock(self) -> Callable[[], float]:
        return time if self.session.replays else self.session.clock

    async def reset_layout(self) -> None:
        lines = [
            "Panes, folds, filters and charts go back to their defaults.",
            "The theme, notes and acknowledged alarms are kept.",
        ]
        dialog = ConfirmDialog("Reset the layout", lines, "Reset")
        if await self._app.push_screen_wait(dialog):
            self.layout.reset()
            if self.view is not None:
                self.view.follow_layout()

    def leave(self) -> None:
        """Quit; ask first if a run trains, or what this program drives has not ended."""
        job = self.session.run.job if self.session.run.training else None
        costs = costs_now(self.session.store.directory)
        session = self.session
        own = session.sweeps or session.spending or session.evaluation_runner.running
        asks = job is not None or bool(costs or own or self._pages_that_ask())
        if not asks or self._leaving or self.session.replays:
            self._exit()
        else:
            self._app.run_worker(self._ask_to_leave(job, costs), exclusive=True, group="quit")

    async def _ask_to_leave(self, job: WorkState | None, costs: str) -> None:
        self._leaving = True
        try:
            leave = await may_end_evaluations(self._app, self.session)
            leave = leave and await may_leave_sweeps(self._app, self.session)
            leave = leave and await may_leave_sampling(self._app, self.session)
            for page in self._pages_that_ask():
                leave = leave and await page.may_leave()
            if leave and job is not None:
                leave = await may_leave(self._app, self.session, self.writes, job)
            if leave and costs:
                leave = await self._may_leave_costs()
        finally:
            self._leaving = False
        if leave:
            self._exit()

    def _pages_that_ask(self) -> list[Leavable[Any]]:
        """Pages over the view that lose something when the app quits, as a game its turns."""
        pages = [page for page in self._app.screen_stack if isinstance(page, Leavable)]
        return [page for page in pages if page.asks_to_leave]

    async def _may_leave_costs(self) -> bool:
        """Show what will go on costing money, and until when; return whether to quit now."""
        state = self.session.store.directory
        lines = []
        for rental in () if state is None else read_rentals(state):
            if rental.runs and state is not None:
                now = prime_now(state)
                text = rental_text(state, rental, now, ahead_s(state))
                lines.append(one_line(f"{rental.name}: {text}", 200))
        machines = keyed("{app.machines} ends it there; hud-tui pods terminate does it anywhere.")
        dialog = ConfirmDialog("Rented machines run on", [*lines, machines], "Quit", keep="Stay")
        return await self._app.push_screen_wait(dialog)

    def _exit(self) -> None:
        """Exit, and print what still costs money."""
        costs = costs_now(self.session.store.directory)
        self._app.exit(message=clean(costs, 1000) if costs else None)


def costs_now(state: Path | None) -> str:
    """What is rented and what it has cost; empty if nothing is, or that is unknown."""
    with suppress(HudError):
        return "" if state is None else costs_text(state, prime_now(state), ahead_s(state))
    return ""


# Opening: which model and view are shown first.


@dataclass(frozen=True)
class Opening:
    """The first view, and the selected model."""

    view: str
    model: Model | None
    """The model to select; None before the first fork."""
    trouble: HudError | None = None
    """Why it is not the requested one."""
    models: tuple[Model, ...] = ()
    """The catalog as read."""


async def opening(client: HudClient, start: Start, left: Layout) -> Opening:
    """Choose the first view and model: those of the command line, else those of the last session,
    else the model of the newest job, else the newest fork. Raises HudError."""
    models = await client.models()
    try:
        model = await _requested(client, start, models) or _last(start, left, models)
    except (HudUsage, HudRefused) as error:
        return Opening("models", await _usual(client, models), error, tuple(models))
    model = model or await _usual(client, models)
    view = _view(start, left)
    if model is None and (start.again or view in ("live", "checkpoints")):
        view = "models"
    return Opening(view, model, models=tuple(models))


def _view(start: Start, left: Layout) -> str:
    return left.view if start.again else start.view


def _last(start: Start, left: Layout, models: list[Model]) -> Model | None:
    """The model that was selected last; None for commands about the newest run. Raises HudUsage: it
    was deleted, and the app was started with ``again``."""
    if not left.model or (start.command == "status" and not start.again):
        return None
    selected = next((model for model in models if model.id == left.model), None)
    if selected is None and start.again:
        name = one_line(left.model_name or left.model, 60)
        raise HudUsage(f"{name}, selected last time, no longer exists: choose another model")
    return selected


def opening_offline(state: LastKnown, start: Start, left: Layout) -> Opening:
    """As `opening`, from the last known state. Raises HudUsage: that does not have the model that
    the command line names."""
    models = list(state.models) or [state.model]
    model = state.model
    if start.model or (start.ref and start.command == "status"):
        model = find_model(start.model or start.ref or "", models)
    return Opening(_view(start, left), model, models=tuple(models))


async def _requested(client: HudClient, start: Start, models: list[Model]) -> Model | None:
    """The model, or the model of the job, that the command line names; None if it names none.
    Raises HudUsage: there is no such model or job."""
    if start.model:
        return find_model(start.model, models)
    if not start.ref:
        return None
    try:
        return find_model(start.ref, models)
    except HudUsage:
        return _model_of(await client.job(await find_job(client, start.ref)), models)


async def _usual(client: HudClient, models: list[Model]) -> Model | None:
    """The model of the newest job, else the newest fork."""
    try:
        jobs = await client.jobs(1)
    except HudRefused:
        jobs = []  # a service without jobs still has models
    trained = _model_of(jobs[0], models) if jobs else None
    return trained or next(iter(own_models(models)), None)


def _model_of(job: Job, models: list[Model]) -> Model | None:
    """The model that a managed run trains; None if it is not in the catalog."""
    model_id = Work.of(job).model_id
    return next((model for model in models if model.id == model_id), None)
