"""The app opened over the real service, with a network that can be made to fail."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeVar

import httpx
import pytest
from textual._compositor import Compositor
from textual._context import active_app
from textual.app import App
from textual.css.model import RuleSet, SelectorType
from textual.css.styles import RulesMap
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.message_pump import MessagePump
from textual.notifications import Notification
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from hud_tui.cli.commands import COMMANDS
from hud_tui.client.client import HudClient
from hud_tui.errors import HudError
from hud_tui.rl.run import Run
from hud_tui.service.app import create_app
from hud_tui.service.service import Service
from hud_tui.settings import Settings
from hud_tui.tui import session
from hud_tui.tui.app import Connect, HudApp
from hud_tui.tui.screens.base import HudScreen
from hud_tui.tui.screens.dialogs import Dialog
from hud_tui.tui.screens.set_head import READING
from hud_tui.tui.start import Start
from hud_tui.tui.widgets.table import RowList
from tests.conftest import (
    DELAYS,
    PATIENCE_S,
    Served,
    caller,
    ended,
    fork,
    on_socket,
    submit,
    until,
)
from tests.in_process import InProcess
from tests.toy_engine import ToyEngine


@pytest.fixture(autouse=True)
def _still_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor of a field does not blink: a picture is the same whenever it is taken."""
    monkeypatch.setattr(Input, "_toggle_cursor", lambda field: None)


@pytest.fixture(autouse=True)
def _notices_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until they are taken away, or make room: on a busy machine they would go before a test has
    looked at them, or at what they cover."""
    monkeypatch.setattr(Notification, "time_left", property(lambda notice: 3600.0))


LOOK_S, LOOKS, BUSY_S = 0.003, 3, 1.0
"""Seconds between two looks at the loop; looks that find nothing; the most to wait for that."""


async def nothing_is_due(min_sleep: float = 0, max_sleep: float = BUSY_S) -> None:
    """Wait until nothing can run in the loop, and nothing is to be drawn.

    Textual's own wait takes samples of 20 ms until the processor rests: 120 ms a key, of which an
    app works 10, and a second a key where a run trains in the same process.
    """
    loop: Any = asyncio.get_running_loop()
    app, quiet, end = active_app.get(), 0, loop.time() + BUSY_S
    while quiet < LOOKS and loop.time() < end:
        await asyncio.sleep(LOOK_S)
        quiet = 0 if loop._ready or _draws(app) else quiet + 1


async def all_is_drawn(min_sleep: float = 0, max_sleep: float = BUSY_S) -> None:
    await nothing_is_due()
    draw(active_app.get())


def _draws(app: App[object]) -> bool:
    """Whether its screen will lay itself out, or draw, with the next frame."""
    if not app.screen_stack:
        return False
    screen = app.screen
    return bool(
        screen._layout_required
        or screen._scroll_required
        or screen._repaint_required
        or screen._dirty_widgets
        or screen._callbacks
    )


async def nothing_is_unread(pilot: Pilot[Any]) -> bool:
    """Wait until all on the screen have handled what was posted to them; False if the app failed.

    Textual's own wait posts a message to each: most of what a test takes, and its patience is
    30 seconds.
    """
    app = pilot.app
    if not app.screen_stack:
        return False
    busy: list[MessagePump] = [app, *app.screen.walk_children(with_self=True)]
    async with asyncio.timeout(PATIENCE_S):
        while not app._exception_event.is_set():
            busy = [pump for pump in busy if not _rests(pump)]
            if not busy:
                return True
            await asyncio.sleep(LOOK_S)
    return False


def _rests(pump: MessagePump) -> bool:
    """Whether it waits for its next message, or for none any more."""
    queue: Any = pump._message_queue
    ended = pump._closing or pump._closed
    return ended or (queue.empty() and bool(queue.ready_event._waiters))


render_update = Compositor.render_update


def leave_undrawn(compositor: Compositor, full: bool = False, *given: Any, **named: Any) -> Any:
    """Draw what was asked for as a whole; leave what a frame has to draw until nothing is due."""
    return render_update(compositor, full, *given, **named) if full else None


def draw(app: App[object]) -> None:
    """Draw what frames have left undrawn."""
    if app.screen_stack and app.screen._compositor._dirty_regions:
        screen = app.screen
        app._display(screen, render_update(screen._compositor, False, app._background_screens))


@pytest.fixture(autouse=True, scope="session")
def _frames_are_drawn_when_nothing_is_due() -> Iterator[None]:
    """Half of an app's life would be drawing for a terminal that is none, most of it what the next
    frame draws again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compositor, "render_update", leave_undrawn)
        yield


@pytest.fixture(autouse=True, scope="session")
def _keys_are_answered_when_nothing_is_due() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pilot, "_wait_for_screen", nothing_is_unread)
        patch.setattr("textual.app.wait_for_idle", nothing_is_due)
        patch.setattr("textual.pilot.wait_for_idle", all_is_drawn)
        yield


_chance = Random(f"{DELAYS} {os.environ.get('PYTEST_XDIST_WORKER')}")


def delay_s() -> float:
    return _chance.choice((0.0, 0.0, 0.0, 0.02, 0.08, 0.25)) if DELAYS else 0.0


@pytest.fixture(autouse=True, scope="session")
def _threads_are_delayed() -> Iterator[None]:
    in_thread = asyncio.BaseEventLoop.run_in_executor

    def late(loop: Any, executor: Any, call: Callable[..., Any], *given: Any) -> Any:
        def run() -> Any:
            time.sleep(delay_s())
            found = call(*given)
            time.sleep(delay_s())
            return found

        return in_thread(loop, executor, run)

    with pytest.MonkeyPatch.context() as patch:
        if DELAYS:
            patch.setattr(asyncio.BaseEventLoop, "run_in_executor", late)
        yield


@pytest.fixture(autouse=True, scope="session")
def _sheets_are_parsed_once() -> Iterator[None]:
    """Half of an app's start is parsing the same style sheets as the app before it."""
    parse_all, parse = Stylesheet.parse, Stylesheet._parse_rules
    parsed: dict[tuple[object, ...], list[RuleSet]] = {}
    sheets: dict[tuple[object, ...], tuple[list[RuleSet], dict[str, list[RuleSet]]]] = {}

    def parse_all_once(sheet: Stylesheet) -> None:
        key = tuple(sheet._variables.items()), tuple(sheet.source.items())
        if key not in sheets:
            parse_all(sheet)
            if sheet._invalid_css:
                return
            sheets[key] = sheet.rules, sheet.rules_map
        sheet._rules, sheet._rules_map = sheets[key]
        sheet._require_parse = False

    def parse_once(sheet: Stylesheet, *given: Any, **named: Any) -> list[RuleSet]:
        key = (tuple(sheet._variables.items()), given, tuple(named.items()))
        if key not in parsed:
            parsed[key] = parse(sheet, *given, **named)
        return parsed[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "parse", parse_all_once)
        patch.setattr(Stylesheet, "_parse_rules", parse_once)
        yield


@pytest.fixture(autouse=True, scope="session")
def _sheets_are_matched_once() -> Iterator[None]:
    """A third of an app's life is matching style sheets to nodes that others before them were like,
    or that were matched with the same before."""
    apply = Stylesheet.apply
    paths: dict[tuple[int, object], int] = {}
    choices = Choices()
    matched: dict[tuple[int, int], Matched] = {}
    alike: dict[object, Matched] = {}

    def path_of(node: DOMNode, known: dict[DOMNode, int]) -> int:
        """The number of all that is matched: the nodes from the app down to this one."""
        if node not in known:
            above = -1 if node._parent is None else path_of(node._parent, known)
            known[node] = paths.setdefault((above, _matched_with(node)), len(paths))
        return known[node]

    def apply_once(
        sheet: Any, node: DOMNode, *, animate: bool = False, cache: dict[Any, Any] | None = None
    ) -> None:
        choice = choices.of(sheet, node)
        key = path_of(node, {} if cache is None else cache), choice.number
        match, before = matched.get(key), vars(node).get("match")
        if match is None:
            like = choice.likeness(node)
            match = alike.get(like)
            if match is not None:
                matched[key] = match
        if match is None:
            matching, is_new = Matching(node), _is_new(node)
            apply(sheet, node, animate=animate, cache=matching)
            match = matching.match
            if match is not None:
                parts = node._component_styles.items()
                match.parts = {name: styles.base._rules for name, styles in parts}
                match.styles = node.styles.base._rules.copy() if is_new else None
                matched[key] = alike[like] = match
        elif match is before or match == before:
            node.notify_style_update()
        else:
            vars(node).update(match.found)
            if match.styles is not None and _is_new(node):
                node.styles.base.merge_rules(match.styles)
                if "display" in match.styles:
                    node._nodes.updated()
                node.notify_style_update()
            else:
                sheet.replace_rules(node, match.rules, animate=animate)
            _style_parts(node, match.parts)
        vars(node)["match"] = match

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "apply", apply_once)
        patch.setattr(RuleSet, "__hash__", object.__hash__)
        yield


@dataclass(slots=True)
class Matched:
    """The rules of a node and of its parts, and what else matching found out about it."""

    rules: RulesMap
    found: dict[str, object]
    parts: dict[str, RulesMap] = field(default_factory=dict)
    styles: RulesMap | None = field(default=None, compare=False)
    """What the rules come to in a node that had none before; None where they met others."""


FOUND = ("_has_hover_style", "_has_focus_within", "_has_order_style", "_has_odd_or_even")


@dataclass(slots=True)
class Matching:
    """Keeps what matching found out about a node."""

    node: DOMNode
    match: Matched | None = None

    def get(self, _: object) -> None:
        """What is there needs no matching."""

    def __setitem__(self, _: object, rules: RulesMap) -> None:
        self.match = Matched(rules, {name: getattr(self.node, name) for name in FOUND})


class Choice:
    """Rules of which some match a node, in their order, by what they ask of it and those above."""

    def __init__(self, number: int, rules: Sequence[RuleSet]) -> None:
        self.number = number
        asked = [one for rule in rules for way in rule.selector_set for one in way.selectors]
        self._names = {(one.type, one.name) for one in asked}
        self._names.add((SelectorType.CLASS, "-textual-system"))  # what * asks for
        self._states = any(one.pseudo_classes for one in asked)

    def likeness(self, node: DOMNode) -> object:
        """Nodes in which these are equal are matched by the same rules."""
        nodes = node.css_path_nodes
        asked = tuple(frozenset(self._names.intersection(_names_of(one))) for one in nodes)
        states = tuple(_matched_with(one)[3:] for one in nodes) if self._states else ()
        return self.number, type(node), asked, states


def _names_of(node: DOMNode) -> Iterator[tuple[SelectorType, str | None]]:
    """What selectors can name."""
    yield from ((SelectorType.TYPE, name) for name in node._css_type_names)
    yield from ((SelectorType.CLASS, name) for name in node.classes)
    yield SelectorType.ID, node.id


class Choices:
    """The rules that may match a node or its parts; all of an app's grow with each kind of widget
    that it shows."""

    def __init__(self) -> None:
        self._of_rules: dict[int, dict[object, Choice]] = {}
        """By the id of a list that is kept: it was parsed once."""
        self._known: dict[tuple[int, ...], Choice] = {}

    def of(self, sheet: Any, node: DOMNode) -> Choice:
        rules = sheet.rules
        if getattr(sheet, "choices_of", None) is not rules:
            sheet.choices_of = rules
            sheet.choices = self._of_rules.setdefault(id(rules), {})
        named = type(node), node.id, node.classes
        if named not in sheet.choices:
            names = node._selector_names | {f".{part}" for part in node._get_component_classes()}
            able = {id(rule) for name in names for rule in sheet.rules_map.get(name, ())}
            choice = [rule for rule in rules if id(rule) in able]
            key = tuple(map(id, choice))
            sheet.choices[named] = self._known.setdefault(key, Choice(len(self._known), choice))
        return sheet.choices[named]


def _style_parts(node: DOMNode, parts: Mapping[str, RulesMap]) -> None:
    """Give the parts of a node their rules."""
    before = node._component_styles.copy()
    node._component_styles.clear()
    for name, rules in parts.items():
        part = DOMNode(classes=name)
        part._attach(node)
        part.styles.base.merge_rules(rules)
        node._component_styles[name] = part.styles
    if any(name not in before or before[name].base._rules != parts[name] for name in parts):
        node.refresh()


def _is_new(node: DOMNode) -> bool:
    """Whether nothing has to be undone, animated or drawn again when it gets its rules."""
    return not node._is_mounted and not node.styles.base._rules


def _matched_with(node: DOMNode) -> tuple[object, ...]:
    more: tuple[object, ...] = ()
    if isinstance(node, Widget):
        more = (node.mouse_hover, node.has_focus, node.disabled, node.allow_focus())
    if isinstance(node, App):
        more = (node.theme, node.app_focus, node.native_ansi_color, node.no_color, node.is_inline)
    return type(node), node.id, node.classes, more


@pytest.fixture
async def served(service: Service) -> AsyncIterator[Served]:
    """The service on a socket, and without it for those in this process."""
    async with on_socket(service) as url:
        near = InProcess(create_app(service), url)
        yield Served(url, service.api_key, service, near)
        service.parts.hub.close()
        await near.ended()


@contextmanager
def time_stands_still() -> Iterator[None]:
    """Local times are Greenwich's, and what a run last told is never old, however slow we are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        patch.setattr(session, "monotonic", lambda: 1000.0)
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def still_time() -> Iterator[None]:
    with time_stands_still():
        yield


def settings_of(served: Served) -> Settings:
    url = served.url
    return Settings(url, url, url, f"{url}/v3/api", url, served.api_key, local=True)


@dataclass
class Net(httpx.AsyncHTTPTransport):
    """The network; of a write it loses the request, the answer, or answers itself."""

    near: InProcess | None = None
    """Calls the service without a socket; None for by its URL."""
    path: str = ""
    """Of the writes to lose or to answer; empty for all."""
    lose: str = ""
    """``request`` before the service has it, ``answer`` after."""
    answer: httpx.Response | None = None
    keyless: bool = False
    """Whether the service is one that keeps no keys of writes, as HUD."""
    sent: list[str] = field(default_factory=list)
    """Writes that were sent, e.g. ``POST /v2/models/fork``."""
    free: Callable[[], bool] = lambda: True
    """Whether answers may come; until then they are held, but for the stream of events."""
    look_s: float = 0.01
    """Seconds between two looks at that."""
    holds: str = ""
    """What the paths of held answers end with; empty for all."""
    held: int = 0
    """Answers that are held."""

    def __post_init__(self) -> None:
        super().__init__(verify=False)  # loopback: nothing to verify, and certificates load slowly

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        settles = request.url.path.endswith("/settle")
        if settles and self.keyless:
            return httpx.Response(404, json={"detail": "Not Found"}, request=request)
        if request.method != "GET" and not settles:
            self.sent.append(f"{request.method} {request.url.path}")
        await asyncio.sleep(delay_s())
        answer = await self._answered(request)
        if "event-stream" in answer.headers.get("content-type", ""):
            return answer
        if DELAYS:
            try:
                await answer.aread()
                await asyncio.sleep(delay_s())
            except BaseException:  # cancelled: nobody else has the answer to close
                await answer.aclose()
                raise
        if request.url.path.endswith(self.holds) and not self.free():
            await answer.aread()
            self.held += 1
            try:
                while not self.free():  # noqa: ASYNC110
                    await asyncio.sleep(self.look_s)
            finally:
                self.held -= 1
        return answer

    async def _carried(self, request: httpx.Request) -> httpx.Response:
        carry = super() if self.near is None else self.near
        return await carry.handle_async_request(request)

    async def _answered(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET" or request.url.path.endswith("/settle"):
            return await self._carried(request)
        if self.path not in ("", request.url.path):
            return await self._carried(request)
        if self.answer is not None:
            return self.answer
        if self.lose == "request":
            raise httpx.ReadError("the line is cut", request=request)
        answer = await self._carried(request)
        if self.lose == "answer":
            await answer.aread()
            await answer.aclose()
            raise httpx.ReadError("the line is cut", request=request)
        return answer


def toy_of(served: Served) -> ToyEngine:
    """The engine behind a service."""
    engine = served.service.parts.engine
    assert isinstance(engine, ToyEngine)
    return engine


async def training(served: Served, steps: int = 1, model_id: str = "") -> tuple[str, str]:
    """A model, a fork unless it is named, with a run that is under way, has taken so many steps,
    and takes the next when the engine goes on: the ids of both."""
    toy_of(served).rest_after(steps)
    async with caller(served) as http:
        model_id = model_id or str((await fork(http))["id"])
        job_id = await submit(http, model_id, steps=10_000, learning_rate=1e-6)
        await until(lambda: toy_of(served).rests)
    return model_id, job_id


async def forked(served: Served, name: str = "arith rl") -> str:
    """A fresh fork of the first base; its id."""
    async with caller(served) as http:
        return str((await fork(http, name))["id"])


async def trained(served: Served, steps: int = 1, **parameters: Any) -> tuple[str, str]:
    """A fork with a run that has ended after so many steps: the ids of both."""
    async with caller(served) as http:
        model_id = str((await fork(http))["id"])
        parameters = {"steps": steps, "learning_rate": 1e-6, **parameters}
        job_id = await submit(http, model_id, **parameters)
        assert (await ended(http, job_id))["status"] == "succeeded"
    return model_id, job_id


async def status(served: Served, job_id: str) -> str:
    async with caller(served) as http:
        answer = await http.get(f"/v1/training/jobs/{job_id}/raw-status")
        return str(answer.json()["status"])


async def cancel(served: Served, job_id: str) -> None:
    async with caller(served) as http:
        await http.post("/v2/rollouts/cancel_job", json={"job_id": job_id})


class Connector:
    """Stands for the command line's: a client of the served service, or an error first."""

    def __init__(self, served: Served | None, *errors: HudError, **client: Any) -> None:
        """`client` is what its clients are made with."""
        self.served, self.errors, self._client = served, list(errors), client
        self.net = Net(served and served.near)
        self.data_dir = ""
        """Where the served service keeps its data, as far as clients are told."""
        self.asked: list[tuple[str, str | None]] = []

    async def __call__(
        self, mode: str, key: str | None, progress: Callable[[str], None]
    ) -> HudClient:
        self.asked.append((mode, key))
        progress("starting the embedded service … 0 s")
        if self.errors:
            raise self.errors.pop(0)
        assert self.served is not None
        settings = replace(settings_of(self.served), data_dir=self.data_dir, by="app")
        return HudClient(settings, self.net, **self._client)


def told_by(app: HudApp) -> list[str]:
    """Its notices, those to come too: on a busy machine they may be gone before a test looks."""
    shown = app._notifications
    told = [notice.message for notice in shown]

    def add(notice: Notification) -> None:
        told.append(notice.message)
        type(shown).add(shown, notice)

    shown.add = add
    return told


Over = TypeVar("Over", bound=Screen[Any])


@dataclass
class Opened:
    app: HudApp
    pilot: Pilot[None]
    connector: Connector | Connect | None = None
    told: list[str] = field(init=False)
    """Notices that no test has waited for yet."""

    def __post_init__(self) -> None:
        self.told = told_by(self.app)

    @property
    def screen(self) -> Screen[object]:
        return self.app.screen

    @property
    def view(self) -> HudScreen | None:
        """The view, also under what is open over it."""
        return self.app.shown_view

    @property
    def net(self) -> Net:
        return self.connector.net

    @property
    def run(self) -> Run:
        return run_of(self.app)

    async def press(self, *keys: str, then: str = "") -> None:
        """Press keys; `then` is the view to wait for."""
        await self.pilot.press(*keys)
        if then:
            await self.until_view(then)

    async def open(self, kind: type[Over], *keys: str) -> Over:
        """Press keys that open such a screen; that screen."""
        await self.press(*keys)
        return await self.until_screen(kind)

    async def ask(self, *keys: str) -> str:
        """Press keys that open a dialog; what it says once it has read what it asks about."""
        await self.press(*keys)
        return await self.until_dialog()

    async def agree(self, *keys: str, then: str = "") -> str:
        asked = await self.ask(*keys)
        await self.press("y", then=then)
        return asked

    async def until(self, condition: Callable[[], object]) -> None:
        """Let the app run until the condition holds; else fail the test, and say what is shown."""

        async def holds() -> bool:
            await self.pilot.pause()
            return bool(condition())

        try:
            await until(holds)
        except TimeoutError as error:
            sent = self.net.sent if isinstance(self.connector, Connector) else []
            error.add_note(f"{self.drawn}\nsent: {sent}\nnotices: {self.told}")
            raise

    async def until_view(self, name: str) -> None:
        await self.until(lambda: getattr(self.screen, "VIEW", "") == name)

    async def until_screen(self, kind: type[Over]) -> Over:
        """Wait until such a screen is on top; that screen."""
        await self.until(lambda: isinstance(self.screen, kind) and self.screen.is_mounted)
        return self.screen

    async def until_dialog(self) -> str:
        """Wait for a dialog that has read what it asks about; what it says."""
        await self.until(lambda: isinstance(self.screen, Dialog) and self.screen.focused)
        await self.until(lambda: READING not in self.dialog)
        return self.dialog

    @property
    def dialog(self) -> str:
        return "\n".join(str(line.render()) for line in self.screen.query(".dialog-line"))

    async def until_notice(self, text: str, *keys: str) -> None:
        """Press keys, and wait for a notice with this text that was not waited for before."""
        if keys:
            await self.press(*keys)
        await self.until(lambda: any(text in notice for notice in self.told))
        self.told[:] = [notice for notice in self.told if text not in notice]

    @property
    def drawn(self) -> str:
        """What is on the screen."""
        return "\n".join(strip.text for strip in self.screen._compositor.render_strips())

    @property
    def notices(self) -> list[str]:
        return [notice.message for notice in self.app._notifications]

    def said(self, selector: str) -> str:
        return str(self.screen.query_one(selector).render())


def helped(screen: Screen[Any]) -> list[str]:
    """What the help lists: keys, label and description of each action."""
    lines: dict[str, list[str]] = {}
    for row in screen.query_one("#help-list", RowList).rows:
        lines.setdefault(row.key, []).extend(cell.plain for cell in row.cells if cell.plain)
    return [" ".join(texts) for texts in lines.values()]


def run_of(app: HudApp) -> Run:
    """The followed model's run, as it is on the screen."""
    return Run() if app.workspace is None else app.workspace.session.run


def asked(start: Start) -> Start:
    """It with its command's view, as the command line gives it to the app."""
    command = COMMANDS.get(start.command)
    return replace(start, view=command.view) if command else start


@asynccontextmanager
async def opened(
    connector: Connector | Connect,
    start: Start | None = None,
    mode: str | None = "local",
    size: tuple[int, int] = (80, 24),
    **more: Any,
) -> AsyncIterator[Opened]:
    """The app as the command line opens it; `more` is the app's."""
    app = HudApp(connector, mode, asked(start or Start()), **more)
    async with app.run_test(size=size, notifications=True) as pilot:
        yield Opened(app, pilot, connector)
