"""HudScreen: base of the views, with the top line and the footer; and what all views share."""

from __future__ import annotations

from asyncio import CancelledError, to_thread
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any, ClassVar

from textual import on, work
from textual.actions import ActionParseResult, parse
from textual.app import App, ComposeResult
from textual.content import Content
from textual.dom import DOMNode
from textual.notifications import SeverityLevel
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from hud_tui.client.client import HudClient
from hud_tui.client.guard import Guard
from hud_tui.config import OFFLINE, ReadOnly
from hud_tui.errors import HudError
from hud_tui.keys import STEERING, WRITES, Action, key, keyed
from hud_tui.rl.alarms.alarm import Level
from hud_tui.rl.checkpoint_tree import label
from hud_tui.rl.disk import engine_place
from hud_tui.rl.export import Sheet, csv_pieces, json_pieces
from hud_tui.rl.metrics import chosen_text, short
from hud_tui.rl.names import plain_name
from hud_tui.rl.own_numbers import Own
from hud_tui.rl.plot import allowed
from hud_tui.rl.progress import Liveness, fresh, progress
from hud_tui.rl.report import LocalFacts, report_files
from hud_tui.rl.run import Run
from hud_tui.rl.run_columns import COLUMNS
from hud_tui.rl.runs import eta_s, silent_s
from hud_tui.rl.text import age, clean, clock_text, counted, duration, one_line
from hud_tui.rl.work import Work, title_of
from hud_tui.storage import write_folder, write_numbered
from hud_tui.tui.keys import KeyLine, Need, clicked, does
from hud_tui.tui.layout import LayoutStore
from hud_tui.tui.repaint import ThinCompositor
from hud_tui.tui.screens.dialogs import (
    ChoiceDialog,
    InputDialog,
    Panel,
    T,
    Viewed,
    make_way,
    show_error,
    show_notice,
)
from hud_tui.tui.session import CONNECTING, RunSession
from hud_tui.tui.start import Start
from hud_tui.tui.theme import LOCK, bar_cells
from hud_tui.tui.widgets.form import FilterField
from hud_tui.tui.widgets.lines import TextPane
from hud_tui.wire import Identity
from hud_tui.wire_access import ADMIN_KEY, Role, why_not
from hud_tui.wire_time import RunTime

UNSEEN = ReadOnly(
    "that key, which changes something, came before there was a view",
    "look, and press it again",
    "not done",
)


class WritePolicy:
    """Whether writes are allowed now: not in read-only mode, nor beyond the role of the key."""

    def __init__(
        self,
        app: App[None],
        client: Callable[[], HudClient],
        is_unseen: Callable[[], bool] = lambda: False,
    ) -> None:
        """`app` shows notices and dialogs; `client` gives the present one; `is_unseen` says whether
        the key that is handled now was typed before the first view."""
        self._app, self._client, self._is_unseen = app, client, is_unseen

    @property
    def _guard(self) -> Guard:
        return self._client().wire.guard

    @property
    def read_only(self) -> ReadOnly | None:
        return self._guard.shut

    @property
    def identity(self) -> Identity | None:
        """Whose key it is, on a service whose keys have names; None elsewhere."""
        identity = self._client().identity
        return None if identity is None or not (identity.key and identity.role) else identity

    def why_not(self, needed: Role = Role.TRAIN, what: str = "change anything") -> ReadOnly | None:
        """Why what needs this role cannot be done now; None if it can."""
        if self.read_only is not None:
            return self.read_only
        who = self.identity
        if who is None or who.role not in list(Role) or Role(who.role).may(needed):
            return None
        why = why_not(who.key or "", Role(who.role), needed, what)
        return ReadOnly(why, "an admin of the service can give a key with that role", "not allowed")

    def why_not_do(self, action_id: str) -> ReadOnly | None:
        """Why an action of the table of keys is not done now; None if it is."""
        if action_id not in WRITES:
            return None
        if action_id in STEERING:
            return self.why_not(Role.STEER, "move a head")
        return self.why_not()

    def may_change(self, needed: Role = Role.TRAIN, what: str = "change anything") -> bool:
        """Whether what needs this role can be done now; else a notice says why not."""
        return self._tell(self.why_not(needed, what) or (UNSEEN if self._is_unseen() else None))

    def blocks(self, action: str | ActionParseResult, where: DOMNode) -> bool:
        """Whether an action is not done now; says why."""
        namespace, name, parameters = parse(action) if isinstance(action, str) else action
        node = self._app.screen if namespace == "screen" else where
        action_id = f"{getattr(node, 'VIEW', '')}.{name}"
        why = self.why_not_do(action_id)
        if why is None and action_id in WRITES and self._is_unseen():
            why = UNSEEN
        if why is None:
            return isinstance(node, HudScreen) and node.lacks(name)
        return bool(node.check_action(name, parameters)) and not self._tell(why)

    def _tell(self, why: ReadOnly | None) -> bool:
        if why is not None:
            show_notice(self._app, f"{why.kind}: {why.why}\n{why.cure}", "warning")
        return why is None

    async def confirm_name(self, model_id: str | None, what: str) -> bool:
        """Ask for the name of a protected model before it is changed, e.g. to ``set its head``;
        return whether it was typed, or the model is not protected. From a worker. Raises HudUsage:
        the file of protected models cannot be read."""
        guard = self._guard
        if model_id is None or model_id not in guard.protected:
            return True
        if not await self.type_name(guard.protected[model_id], what):
            return False
        guard.allow(model_id)
        return True

    async def type_name(self, name: str, what: str) -> bool:
        """Ask for a protected model's name; returns whether it was typed. From a worker."""
        shown = one_line(name, 100).strip()
        lines = [f"{shown} is protected on this machine.", f"To {what}, type its name."]
        wrong = f"type {shown}, or esc to cancel"

        def check(text: str) -> str:
            return "" if text in (shown, name.strip()) else wrong

        dialog = InputDialog(f"{LOCK} {shown}", lines, "Go on", check=check)
        return await self._app.push_screen_wait(dialog) is not None


# Exporting the screen's content to a new file.


TABLES = {"csv": csv_pieces, "json": json_pieces}


async def export(view: HudScreen) -> None:
    sheet, directory = view.sheet(), view.context.export_dir
    reported = view.session.run.loaded
    choices = [("svg", "SVG"), *([("csv", "CSV"), ("json", "JSON")] if sheet else [])]
    choices += [("report", "Report")] if reported else []
    lines = ["SVG: the screen as drawn"]
    if sheet:
        rows = "all rows" if sheet.shown is None else f"the {counted(sheet.shown, 'row')} shown"
        if sheet.steps_aside:
            rows = f"the head's lineage, without {counted(sheet.steps_aside, 'other step')}"
        lines.append(f"CSV, JSON: {sheet.name}, {rows}, full precision")
    lines += ["Report: the run in Markdown, with charts"] if reported else []
    lines.append(clean(f"to {directory.absolute()}; no file is overwritten", 400))
    dialog = ChoiceDialog("Export", lines, choices, yes="svg", safe=True)
    chosen = await view.app.push_screen_wait(dialog)
    if chosen is None:
        return
    told = await view.session.run_time() if chosen == "report" else None
    try:
        file = await to_thread(_writer(view, chosen, sheet, directory, told))
    except HudError as error:
        view.show_error(error)
        return
    show_notice(view.app, f"wrote {file.absolute()}", seconds=8)


def _writer(
    view: HudScreen, chosen: str, sheet: Sheet | None, directory: Path, told: RunTime | None
) -> Callable[[], Path]:
    """Returns the function that writes the file in a thread; the SVG is drawn at once."""
    run, book, now = view.session.run, view.session.notebook, view.context.clock()
    stem = plain_name("hud" if run.model is None else run.model.model_name)
    if chosen == "svg":
        picture = allowed(view.app.export_screenshot(title="hud-tui", simplify=True))
        return lambda: write_numbered(directory, f"{stem}-{view.VIEW}", ".svg", [picture])
    if chosen == "report" or sheet is None:
        kept = LocalFacts(view.session.client.settings.label, dict(book.notes), told)
        return lambda: write_folder(directory, f"{stem}-report", report_files(run, kept, now))
    pieces = TABLES[chosen](sheet)
    of = plain_name(sheet.facts.get("model") or "hud")  # not every table is of the selected model
    return lambda: write_numbered(directory, f"{of}-{sheet.name}", f".{chosen}", pieces)


OLDER_S = 10.0
"""Seconds between two updates of the age."""


class OfflineLine(Static):
    """Hidden while the service answers."""

    freshness: reactive[Liveness] = reactive(CONNECTING, repaint=False)

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives Unix seconds."""
        super().__init__("", markup=False)
        self._clock = clock

    def on_mount(self) -> None:
        self.set_interval(OLDER_S, self._show_age)

    def watch_freshness(self, before: Liveness, now: Liveness) -> None:
        if before.offline != now.offline or before.as_of != now.as_of:
            self._show_age()
            self.screen.set_class(now.offline, "-offline")

    def _show_age(self) -> None:
        if self.freshness.offline:
            text = offline_text(self.freshness.as_of, self._clock())
            self.update(Content.styled(text, "bold"))


def offline_text(stamp: float | None, now: float) -> str:
    """E.g. ``offline, as of 14:02, 12 m ago · read-only``, in local time."""
    if stamp is None:
        return "offline: nothing has been read yet"
    return f"offline, as of {clock_text(stamp, now)}, {age(stamp, now)} ago · read-only"


def unread(what: str, freshness: Liveness) -> str:
    """Why a list of the service is empty that was not read."""
    lost = f"The {what} were not read before the connection was lost"
    again = keyed("{app.reconnect} reconnects.")
    return f"{lost}: {again}" if freshness.offline else f"reading the {what} …"


ROOMY = 100
"""Cells from which the top line says a warning in full."""
BAR = 16
ALARMING = {Level.CRITICAL: "bold $error", Level.WARN: "bold $warning"}
MOST = 10
"""Rank of the part that is dropped first."""


class TopLine(Widget):
    """One line at the top of every view; it repaints only when its text changes. Parts are dropped,
    the least important first, until the rest fits.

    A click on a part opens the view with more about it.
    """

    ALLOW_SELECT = False

    run: reactive[Run] = reactive(Run, repaint=False)
    freshness: reactive[Liveness] = reactive(CONNECTING, repaint=False)
    aside: reactive[Aside] = reactive(lambda: Aside(), repaint=False)
    loop: reactive[Work | None] = reactive[Work | None](None, repaint=False)
    """The loop that trains the model from outside."""
    line: reactive[Content] = reactive(Content())

    def __init__(self, view: str, service: str, read_only: bool) -> None:
        """`service`: the connected one, e.g. ``HUD local``."""
        super().__init__()
        self.view, self.service, self.read_only = view, service, read_only
        self.who = ""
        """As whom, e.g. ``as ana (train)``; empty where keys have no names."""
        self.auto_links = False

    def on_resize(self) -> None:
        self.line = top_line(
            *(self.view, self.service, self.run, self.freshness, self.size.width),
            *(self.read_only, self.aside, self.loop, self.who),
        )

    watch_run = watch_freshness = watch_aside = watch_loop = on_resize

    def render(self) -> Content:
        return self.line


class PageTitle(Widget):
    """The top of a page that covers a view: its title, and what costs money."""

    title: reactive[Content] = reactive(Content())
    line: reactive[Content] = reactive(Content())
    """The displayed text."""

    def __init__(self, aside: Callable[[], Aside], id: str) -> None:
        super().__init__(id=id)
        self._aside_now = aside

    def on_mount(self) -> None:
        self.set_interval(ASIDE_S, self.on_resize)

    def on_resize(self) -> None:
        width = self.size.width
        right = [part for part in _aside(self._aside_now(), width) if part[0] <= 2]
        title = self.title.truncate(max(1, width - length_of(right) - 3), ellipsis=True)
        self.line = fitted([(1, title)], right, width)

    watch_title = on_resize

    def render(self) -> Content:
        return self.line


def top_line(
    view: str,
    service: str,
    run: Run,
    freshness: Liveness,
    width: int,
    read_only: bool = False,
    aside: Aside | None = None,
    loop: Work | None = None,
    who: str = "",
) -> Content:
    """The line, at most `width` cells; "read-only" always fits. `who`: as whom, if keys have
    names."""
    aside = aside or Aside()
    where = engine_place(run.model) or aside.machine or service
    title = Content.styled(f" {view.capitalize()} ", "bold $background on $primary")
    name = title.stylize(does("app.views"))
    guarded = [(1, Content.styled("read-only", "bold $warning"))] if read_only else []
    far = "@" in where
    machine = 8, Content.styled(where, "$text-muted")
    if far:
        if width < ROOMY and aside.warning:  # the machine's name alone
            where = f"@ {one_line(where.partition('@ ')[2].partition(' · ')[0], 24)}"
        machine = 2, clicked(Content.styled(where, "$text"), "app.machines")
    caller = [(5, Content.styled(who, "$text-muted"))] if who else []
    left = [(1, name), *guarded, machine, *caller, *_model(run)]
    right = [*_aside(aside, width), *_alarms(run)]
    if run.model is not None and view != "live":  # which has a line of its own for these
        right += _loop(loop) if run.job is None and loop is not None else _job(run, freshness)
        rank = 3 if far and freshness.calm else 2  # if all is well far away, it gives way sooner
        right.append((rank, freshness_content(freshness)))
    return fitted(left, right, width)


def whom(identity: Identity | None) -> str:
    """As whom the service is used; empty for the key that its data directory is made with."""
    if identity is None or identity.key == ADMIN_KEY:
        return ""
    return f"as {one_line(identity.key, 40)} ({identity.role})"


Part = tuple[int, Content]
"""(rank, text): if not all parts fit, those with the highest rank are dropped first."""


def fitted(left: list[Part], right: list[Part], width: int) -> Content:
    """The parts that fit, at both ends of a line of `width` cells."""
    for least in range(MOST, 2, -1):
        if length_of(left) + length_of(right) + 3 <= width:
            break
        left = [part for part in left if part[0] != least]
        right = [part for part in right if part[0] != least]
    for parts in (right, left):  # what matters goes singly, the last first
        while length_of(left) + length_of(right) + 3 > width and (2 in [rank for rank, _ in parts]):
            parts.pop(max(index for index, (rank, _) in enumerate(parts) if rank == 2))
    gap = " " * max(1, width - length_of(left) - length_of(right) - 1)
    return Content.assemble(_join(left), gap, _join(right), " ").truncate(width)


def _aside(aside: Aside, width: int) -> list[Part]:
    """The machine that is used, and what costs money and who ends that, which stay where there is
    any room; a click goes to the machines."""
    warning = aside.warning if width >= ROOMY else aside.brief or aside.warning
    parts = [
        (9, Content.styled(one_line(aside.load, 60), "$text-muted")),
        (1 if width >= 60 else 2, Content.styled(one_line(warning, 80), "bold $warning")),
        (1 if width >= 80 else 2, Content.styled(aside.guard, "$warning")),
    ]
    return [(rank, clicked(text, "app.machines")) for rank, text in parts if text.plain]


def _model(run: Run) -> list[Part]:
    if run.model is None:
        return []
    name = Content.styled(one_line(run.model.model_name, 40), "bold")
    parts = [(3, clicked(name, "app.view.models"))]
    if run.loaded:
        head = f"▶ {one_line(label(run.head), 24)}"
        parts.append((4, clicked(Content.styled(head, "$accent"), "app.view.checkpoints")))
        if scored := _scored(run):  # its own part: it is long, and goes before the run's progress
            score = Content.styled(scored, "$text-muted")
            parts.append((6, clicked(score, "app.view.checkpoints")))
    return parts


def _scored(run: Run) -> str:
    """The head's own reward and what it is of; else that of the batch it was trained on."""
    tree = run.tree
    if tree.head is None:
        return ""
    step, chosen = tree[tree.head].mean_reward, chosen_text(tree[tree.head].draw)
    trained = "" if step is None else f"batch reward {short(step)}{chosen}"
    return scored(tree.own(tree.head)) or trained


def scored(own: Own) -> str:
    """Reward of a checkpoint's own weights, and how many rollouts, or tasks × rollouts, it is of,
    e.g. ``held-out .41 (12×4)``; empty if none were sampled."""
    title, mean, of = "held-out", own.heldout, own.over_briefly
    if mean is None:
        title, mean, of = "reward", own.reward, str(own.sampled or "")
    if mean is None:
        return ""
    return f"{title} {short(mean)} ({of})" if of else f"{title} {short(mean)}"


def _alarms(run: Run) -> list[Part]:
    """The number of unacknowledged alarms with the highest level, and the key that shows them."""
    loud = run.alarms.loud
    counts = {level: sum(alarm.level is level for alarm in loud) for level in ALARMING}
    critical, warnings = counts[Level.CRITICAL], counts[Level.WARN]
    texts = [f"{critical} critical"] * bool(critical)
    texts += [counted(warnings, "warning")] * bool(warnings)
    if not texts:
        return []
    style = ALARMING[Level.CRITICAL if critical else Level.WARN]
    flag = Content.styled(f"⚑ {', '.join(texts)} ({key('app.alarms')})", style)
    return [(2, clicked(flag, "app.alarms"))]


def _loop(row: Work) -> list[Part]:
    name = Content.styled(f"{one_line(row.title, 32)} {row.status}".rstrip(), "$text-muted")
    return [(8, clicked(name, "app.view.runs")), *loop_parts(row, time())]


def loop_parts(row: Work, now: float) -> list[Part]:
    """How far a loop is that is driven from outside, and when it will be done, or how long a step
    is overdue, at a time in Unix seconds."""
    parts = [(5, Content(f"step {row.count}"))]
    if row.reward is not None:
        parts.append((7, Content(f"reward {COLUMNS['reward'].text(row, 0)}")))
    silent, left = silent_s(row, now), eta_s(row)
    if silent is not None:
        parts.append((6, Content(f"no step for {duration(silent)}")))
    elif left is not None:
        parts.append((6, Content(f"{duration(left)} left")))
    return parts


def _job(run: Run, freshness: Liveness) -> list[Part]:
    if run.job is None:
        return []
    status = "waiting" if run.waits else one_line(run.job.status, 20)
    name = Content.styled(f"{title_of(None, run.job.id)} {status}", "$text-muted")
    if progress(run) is None or not run.training:
        return [(7, clicked(name, "app.view.jobs"))]
    parts = [(8, clicked(name, "app.view.jobs")), *job_parts(run, freshness)]
    return [*parts, (4, waits(run))] if run.waits else parts


def waits(run: Run) -> Content:
    """What a run waits for."""
    return Content.styled(f"⚠ {one_line(run.waits, 60)}", "bold $warning")


def job_parts(run: Run, freshness: Liveness, cells: int = BAR) -> list[Part]:
    """How far the run's job is, with a bar of so many cells, and when it will be done."""
    going = progress(run)
    if going is None:
        return []
    numbered = None if run.head is None else run.head.step
    parts = [(5, Content(f"step {going.step}/{going.steps or '?'}"))]
    # a step is stored a moment before the job counts it
    alike = (going.step, going.step + run.training)
    if going.step and numbered is not None and numbered not in alike:
        parts.append((9, Content("of this run")))
    if going.fraction is not None:
        parts.append((MOST, bar(going.fraction, cells)))
        parts.append((7, Content(going.percent)))
    if run.training and going.eta_s is not None and freshness.goes_on:
        parts.append((6, Content(f"{duration(going.eta_s)} left")))
    return parts


def bar(fraction: float, width: int = BAR) -> Content:
    done, left = bar_cells(fraction, width)
    return Content.assemble((done, "$accent"), (left, "$border"))


def freshness_content(liveness: Liveness) -> Content:
    """How fresh the screen is, muted unless something is wrong."""
    return Content.styled(fresh(liveness), "$text-muted" if liveness.calm else "bold $warning")


def _join(parts: Sequence[Part]) -> Content:
    return Content("  ").join(text for _, text in parts)


def length_of(parts: Sequence[Part]) -> int:
    return sum(text.cell_length for _, text in parts) + 2 * max(0, len(parts) - 1)


ASIDE_S = 5.0
"""Seconds between two updates of the machine in use and of costs."""


@dataclass(frozen=True)
class Aside:
    """Parts of the top line that are not about the run: the machine in use, and its cost."""

    machine: str = ""
    """E.g. ``tinker @ gpubox · 2×H100``; empty: this one."""
    load: str = ""
    """Latency, GPU use and memory, disk."""
    warning: str = ""
    """A broken tunnel, and what is rented."""
    brief: str = ""
    """The warning where a line is narrow; empty: it is short enough."""
    guard: str = ""
    """Who ends what is rented, and when that last spoke."""


WIDTHS = [(0, "-slim"), (60, "-narrow"), (110, "-wide")]
HEIGHTS = [(0, "-short"), (20, "-tall")]


@dataclass(frozen=True)
class ViewContext:
    """What every view is given, for one connection."""

    session: RunSession
    layout: LayoutStore
    writes: WritePolicy
    start: Start
    """What the command line asked for."""
    clock: Callable[[], float]
    """Unix seconds, for ages on the screen."""
    export_dir: Path
    aside: Callable[[], Aside] = Aside
    """The last known state of the machine in use."""


class HudScreen(Viewed[None]):
    """A view. `run` and `freshness` follow the session's while it is shown.

    The table of keys says what each `action_` method does for the user.
    """

    NEEDS: ClassVar[Mapping[str, Need[Any]]] = {}
    """What actions need, by their names; others can always do something."""
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS

    run: reactive[Run] = reactive(Run, repaint=False)
    freshness: reactive[Liveness] = reactive(CONNECTING, repaint=False)
    """Neither repaints the screen: that would redraw every line of every pane."""

    filter_field: FilterField
    """Of a view with the action `filter`."""
    take_back: Callable[[], object] | None = None
    """Removes what is said of a head that was verified; None while nothing is said."""
    _edition = 0
    """Edition of the layout that is displayed."""
    _requested: str | None = None
    """What the cursor is to go to once it is there."""

    def __init__(self, context: ViewContext) -> None:
        super().__init__()
        self._compositor = ThinCompositor()
        self.context = context

    def compose(self) -> ComposeResult:
        why = self.context.writes.read_only
        read_only = why is not None and why.kind != OFFLINE  # that has a line of its own, and ends
        top = TopLine(self.VIEW, self.session.client.settings.label, read_only)
        top.who = whom(self.context.writes.identity)
        top.set_reactive(TopLine.aside, self.context.aside())
        yield top.data_bind(HudScreen.run, HudScreen.freshness)
        yield OfflineLine(self.context.clock).data_bind(HudScreen.freshness)
        yield from self.body()
        yield KeyLine(self.VIEW)

    def body(self) -> Iterable[Widget]:
        """The view's own widgets, between the top line and the footer."""
        return ()

    @property
    def session(self) -> RunSession:
        return self.context.session

    @property
    def client(self) -> HudClient:
        return self.context.session.client

    @property
    def is_built(self) -> bool:
        """Whether all its widgets exist: not during composition, nor after the app ends."""
        return self.is_mounted and self.is_attached and self.app.is_running

    def update_run(self, run: Run, freshness: Liveness) -> None:
        """Show a newer run. Before the view is built, this is deferred until it is resumed."""
        if self.is_built:
            if self.take_back is not None and self.run.tree.head != run.tree.head:
                self.take_back()
                self.take_back = None
            self.run, self.freshness = run, freshness
            self.renew_hints()

    def update_aside(self, aside: Aside) -> None:
        if self.is_built and (line := self.query_one_optional(TopLine)):
            line.aside = aside

    def update_loop(self, loop: Work | None) -> None:
        if self.is_built and (line := self.query_one_optional(TopLine)):
            line.loop = loop

    def on_resize(self) -> None:
        self.call_after_refresh(make_way, self)

    watch_focused = on_resize

    def on_mount(self) -> None:
        """Called after `on_mount` of subclasses."""
        self._edition = self.context.layout.edition
        self.lay_out()

    def lay_out(self) -> None:
        """Restore panes and filters: on mount, and after a reset."""

    def go_to(self, name: str) -> None:
        """Move the cursor to the row with this id, or to this task, once it is there."""
        self._requested = name
        self.go_to_requested()

    def go_to_requested(self) -> None:
        """Move the cursor there if it is there by now; a filter that hides it is cleared."""
        if self._requested is not None and self.reach(self._requested):
            self._requested = None

    def reach(self, name: str) -> bool:
        """Move the cursor to what has this name. Returns False if it is not there yet."""
        return True

    def hints(self, actions: Sequence[Action]) -> Sequence[Action]:
        """The actions among these that the focused pane can do, most used first, for the last line.

        A key that is not among them still shows, when pressed, why it does nothing.
        """
        return [action for action in actions if self.can(action.name)]

    def can(self, action: str) -> bool:
        """Whether an action would do something now."""
        need = self.NEEDS.get(action)
        return need is None or bool(need.is_met(self))

    def lacks(self, action: str) -> bool:
        """Whether an action can do nothing now, which the screen does not show; says why."""
        need = self.NEEDS.get(action)
        if need is None or not need.reason or need.is_met(self):
            return False
        self.warn(need.reason_for(self))
        return True

    def warn(self, text: str) -> None:
        self.notice(text, "warning")

    def renew_hints(self) -> None:
        if self.is_built and (line := self.query_one_optional(KeyLine)):
            line.renew()

    def follow_layout(self) -> None:
        if self.is_mounted and self._edition != self.context.layout.edition:
            self._edition = self.context.layout.edition
            self.lay_out()

    def on_screen_resume(self) -> None:
        self.context.layout.arrange(view=self.VIEW)
        self.follow_layout()
        self.update_run(self.session.run, self.session.freshness)
        self.update_aside(self.context.aside())
        self.update_loop(self.session.loop)
        self.resume()

    def resume(self) -> None:
        """Called whenever the view comes to the front, after it was given the newest run. Textual
        calls `on_screen_resume` of every class by itself, so views extend this instead."""

    async def attempt(self, call: Awaitable[T]) -> T | None:
        """Await a client call in a worker; on an error, show it and return None.

        If the view is closed meanwhile, the worker ends without showing anything.
        """
        try:
            answer = await call
        except HudError as error:
            self.show_error(error)
            answer = None
        if self.is_mounted and not self.is_built:
            raise CancelledError
        return answer

    def show_error(self, error: HudError) -> None:
        show_error(self.app, error)

    def notice(self, text: str, severity: SeverityLevel = "information") -> None:
        show_notice(self.app, text, severity)

    def sheet(self) -> Sheet | None:
        """The view's data as a table, for export; None if it has none."""
        return None

    @work(exclusive=True, group="export")
    async def action_export(self) -> None:
        await export(self)

    def action_filter(self) -> None:
        self.filter_field.focus()

    def action_leave(self) -> None:
        self.filter_field.leave()

    def copy(self, text: str) -> None:
        self.app.copy_to_clipboard(self.get_selected_text() or text)


class TextPanel(Panel[None]):
    """A text over the view, to scroll through."""

    FOOT = "↑ ↓ scroll   {panel.close} back"

    def __init__(self, title: str, lines: Callable[[int], Sequence[Content]]) -> None:
        """`lines`: the text, for a width in cells."""
        super().__init__(title)
        self.pane, self.lines = TextPane(), lines

    def body(self) -> Iterable[Widget]:
        yield self.pane

    def on_mount(self) -> None:
        self.pane.focus()

    @on(TextPane.Resized)
    def lay_out(self) -> None:
        self.pane.show(self.lines(self.pane.width))
