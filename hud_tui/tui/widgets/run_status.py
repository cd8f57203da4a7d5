"""A run in words: its status line, why it failed, its constant metrics, its events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from time import time

from textual.content import Content
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from hud_tui.keys import key, keyed
from hud_tui.rl.checkpoint_tree import label
from hud_tui.rl.metrics import ChartOrder, reading, title
from hud_tui.rl.progress import Liveness, State, step_seconds
from hud_tui.rl.run import Entry, Run, left_behind, starting_point
from hud_tui.rl.settings import settings
from hud_tui.rl.text import LIMIT, counted, one_line
from hud_tui.rl.work import Work, has_ended, title_of, trouble
from hud_tui.tui.screens.base import (
    MOST,
    fitted,
    freshness_content,
    job_parts,
    length_of,
    loop_parts,
    waits,
)
from hud_tui.tui.session import CONNECTING
from hud_tui.tui.widgets.lines import LinesView, fit_text, labelled, line

MARGIN = 11
"""Cells to the left of a text, for its time."""


class EventLog(LinesView):
    """A scrolled log keeps its place while newer events arrive above.

    If there is room for the heading only, it shows the newest event and the key that opens the log.
    """

    run: reactive[Run] = reactive(Run, repaint=False)
    pane: reactive[str] = reactive("", repaint=False)

    watch_pane = LinesView.redraw

    def watch_run(self, before: Run, run: Run) -> None:
        if run.log is before.log:
            return
        self.redraw()
        if self.scroll_offset.y:
            newest = _added(before.log, run.log)
            self.scroll_rows(self._lines(newest))

    def title(self, width: int) -> str:
        if self.body_rows or not self.run.log:
            return "events"
        way = key("live.pane.1" if self.pane == "groups" else "live.pane.-1")
        newest = self.run.log[-1]
        title = f"events · {f'{local_time(newest.at)}  {one_line(newest.text, LIMIT)}'.lstrip()}"
        return f"{fit_text(title, max(0, width - len(way) - 11)).rstrip()} · {way}: events"

    @property
    def count(self) -> int:
        return self._lines(self.run.log) or 1

    def draw(self, width: int, rows: range) -> list[Strip]:
        if not self.run.log:
            return [line((" No events yet.", self.tone("dim")))]
        drawn: list[Strip] = []
        passed = 0
        room = self._room
        for entry in reversed(self.run.log):
            texts = wrapped(entry.text, room)
            if passed + len(texts) > rows.start:
                lines = [self._line(entry, nth, text) for nth, text in enumerate(texts)]
                drawn += lines[max(0, rows.start - passed) :]
            passed += len(texts)
            if passed >= rows.stop:
                break
        return drawn[: len(rows)]

    def _line(self, entry: Entry, nth: int, text: str) -> Strip:
        time = f" {'' if nth else local_time(entry.at):<{MARGIN - 1}}"
        return line((time, self.tone("dim")), (text, self.tone("plain")))

    @property
    def _room(self) -> int:
        return max(1, self.width - MARGIN)

    def _lines(self, entries: Sequence[Entry]) -> int:
        """How many lines the entries take."""
        room = self._room
        return sum(len(wrapped(entry.text, room)) for entry in entries)


@lru_cache(1024)
def wrapped(text: str, width: int) -> tuple[str, ...]:
    """Text as lines of at most `width` cells; at least one line."""
    lines = Content(one_line(text, LIMIT)).wrap(width)
    return tuple(line.plain for line in lines) or ("",)


def local_time(stamp: float) -> str:
    """Unix seconds as ``07:12:41``, in local time; empty if unknown."""
    try:
        return datetime.fromtimestamp(stamp).strftime("%H:%M:%S") if stamp else ""
    except (OverflowError, OSError, ValueError):
        return ""


def _added(before: tuple[Entry, ...], now: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The new entries at the end."""
    indexes = range(len(now) - 1, -1, -1) if before else ()
    return now[next((index for index in indexes if now[index] is before[-1]), -1) + 1 :]


class Reason(Widget):
    """What is wrong, else why the run ended and which steps the curves leave out; hidden where
    there is none of that. What does not fit is in the events pane."""

    run: reactive[Run] = reactive(Run, repaint=False)
    freshness: reactive[Liveness] = reactive(CONNECTING, repaint=False)
    text: reactive[str] = reactive("", layout=True)

    def _write(self) -> None:
        wrong = wrong_with(self.run, self.freshness)
        self.text = wrong or "\n".join(filter(None, (ended_well(self.run), leaves_out(self.run))))
        self.set_class(not wrong, "-caption")
        self.display = bool(self.text)

    watch_run = watch_freshness = _write

    def render(self) -> Content:
        lines, room = Content(self.text).wrap(max(1, self.size.width)), self.size.height
        if len(lines) > room > 0:
            lines[room - 1 :] = [Content(keyed("… in full under events ({live.pane.1})"))]
        return Content("\n").join(lines)


def wrong_with(run: Run, freshness: Liveness) -> str:
    """What went wrong with the connection, else with the run; empty where nothing did."""
    if freshness.state is State.RECONNECTING and freshness.trouble:
        return one_line(freshness.trouble, LIMIT)
    if run.job is None or not (why := trouble(run.job)):
        return ""
    return f"{one_line(run.job.status, 20)}: {one_line(why, LIMIT)}"


def ended_well(run: Run) -> str:
    """Why the run ended before its last step although nothing went wrong; empty otherwise."""
    job = run.job
    if job is None or not has_ended(job.status) or not job.reason:
        return ""
    return f"{one_line(job.status, 20)}: {one_line(job.reason, LIMIT)}"


LEAVES_OUT = "{where} {are} on another branch: {{live.compare}} overlays it."


def leaves_out(run: Run) -> str:
    """Which newer steps the curves leave out, since the head was set back; empty for none."""
    if (left := left_behind(run)) is None:
        return ""
    common = one_line(left.common, 24).replace("{", "(").replace("}", ")")  # no keys in a name
    are, steps = "is" if left.steps == 1 else "are", counted(left.steps, "step")
    where = f"Head at {common}. {steps} after it" if left.at_head else f"{steps} after {common}"
    return keyed(LEAVES_OUT.format(where=where, are=are))


class ConstantLine(Widget):
    """The metrics that never change, in a line; hidden where there are none."""

    run: reactive[Run] = reactive(Run, repaint=False)
    charts: reactive[ChartOrder] = reactive(ChartOrder, repaint=False)
    text: reactive[str] = reactive("")

    def _write(self) -> None:
        series, keys = self.run.series, self.charts.constant
        values = [f"{one_line(title(key), 60)} {reading(key, series.last(key))}" for key in keys]
        self.text = constants_text(values, self.size.width - 2)
        self.set_class(not keys, "-none")

    watch_run = watch_charts = on_resize = _write

    def render(self) -> Content:
        return Content(f" {self.text}")


def constants_text(values: Sequence[str], width: int) -> str:
    """As many as there is room for, and how many others there are; empty without any."""
    for left_out in range(len(values)):
        shown = values[: len(values) - left_out]
        others = [f"{left_out} more"] if left_out else []
        text = f"constant: {' · '.join([*shown, *others])}"
        if len(text) <= width:
            return text
    return f"{len(values)} constant" if values else ""


NAME = 32
"""Cells of a run's name, more where there is room."""


class RunStatus(Widget):
    """One line; it repaints only when its text changes."""

    run: reactive[Run] = reactive(Run, repaint=False)
    freshness: reactive[Liveness] = reactive(CONNECTING, repaint=False)
    frozen: reactive[Run | None] = reactive[Run | None](None, repaint=False)
    """What the screen was frozen at; None while it follows."""
    played: reactive[str] = reactive("", repaint=False)
    """Where a replay is; empty where a service is followed."""
    loop: reactive[Work | None] = reactive[Work | None](None, repaint=False)
    """The loop that trains the model from outside; None where none is known."""
    line: reactive[Content] = reactive(Content())

    def _write(self) -> None:
        width = self.size.width
        loop = self.loop if self.run.job is None else None
        self.line = status_line(self.run, self.freshness, self.frozen, width, self.played, loop)

    watch_run = watch_loop = watch_freshness = watch_frozen = watch_played = on_resize = _write

    def render(self) -> Content:
        return self.line


def status_line(
    run: Run,
    freshness: Liveness,
    frozen: Run | None,
    width: int,
    played: str = "",
    loop: Work | None = None,
) -> Content:
    """The line, at most `width` cells: the job, how far it is, how fresh this is. The rest
    is as in `RunStatus`; `loop` is None where there is a job."""
    right = _held(run, frozen) if frozen is not None else _fresh(run, freshness)
    if played and frozen is None:
        right = Content.styled(played, "bold $accent")
    right = right.truncate(max(0, width - 20), ellipsis=True)
    parts = job_parts(run, freshness, width // 4) if loop is None else loop_parts(loop, time())
    named = _job(run, max(NAME, width // 4)) if loop is None else _loop(loop, max(NAME, width // 4))
    needed = [(1, named), *(part for part in parts if part[0] < MOST), (1, right)]
    if loop is None and length_of(needed) + 4 > width:
        named = _job(run)
    return Content.assemble(" ", fitted([(1, named), *parts], [(1, right)], width - 1))


def _fresh(run: Run, freshness: Liveness) -> Content:
    if run.waits and freshness.state in (State.LIVE, State.STALLED):
        return waits(run)
    pace = step_seconds(run) if freshness.state is State.STALLED else None
    usual = "" if pace is None else f", usual step {pace:.1f} s"
    return freshness_content(freshness) + Content.styled(usual, "bold $warning")


def _held(run: Run, frozen: Run) -> Content:
    steps = run.series.length - frozen.series.length
    late = f" · {counted(steps, 'step')} behind" if steps > 0 else ""
    if frozen.head is not None and run.tree.find(frozen.head.id) is not None:
        left = not run.tree.is_ancestor(run.tree.find(frozen.head.id) or 0, run.tree.head)
        late = f" · now at {one_line(label(run.head), 24)}" if left else late
    name = one_line(label(frozen.head), 24)
    return Content.styled(
        f"⏸ frozen at {name}{late} · {key('live.follow')} follows", "bold $warning"
    )


def _loop(row: Work, cells: int) -> Content:
    name = Content.styled(f"{one_line(row.title, cells)} ", "$text-muted")
    return name + Content.styled(row.status or "client loop", "bold")


def _job(run: Run, cells: int = 0) -> Content:
    """The job's name in so many cells, if any, and its state."""
    job = run.job
    if job is None:
        idle = "no run in progress"
        if run.model is not None and not run.loaded:
            idle = "reading the run …"
        elif run.head is not None and run.head.job_id is None:
            idle = "trained by a client loop"
        return Content.styled(idle, "$text-muted")
    name = one_line(title_of(job.name, job.id), cells)
    failed = "bold $error" if trouble(job) else "bold"
    return Content.assemble(
        (f"{name} " if cells else "", "$text-muted"),
        ("waiting", "bold $warning") if run.waits else (one_line(job.status, 20), failed),
    )


# All that a run was started with.


FACT = 19
NO_PARAMETERS = "The service does not report what the run was started with."
DRIVEN = "A client loop takes these steps: it passes learning rate and loss with each."


def run_facts(run: Run) -> list[Content]:
    model, job, head = run.model, run.job, run.head
    facts = [("model", one_line(model.model_name, 60))] if model is not None else []
    if job is not None:
        facts.append(("run", f"{one_line(job.name or job.id or '', 60)}, {job.status}"))
    facts.append(("starts from", one_line(starting_point(run), 60) or "not reported"))
    lines = [_fact(name, text) for name, text in facts]
    if job is not None and job.parameters:
        asked = settings(model, job.parameters, managed=job.driver is None)
        return [*lines, Content(), *(_fact(s.label, s.text, s.usual) for s in asked)]
    last = {} if head is None else {"loss": head.loss_fn, "learning rate": head.learning_rate}
    listed = [
        _fact(f"last {name}", str(value)) for name, value in last.items() if value is not None
    ]
    why = DRIVEN if job is None and head is not None else NO_PARAMETERS
    return [*lines, *listed, Content(), Content.styled(why, "$text-muted")]


def _fact(name: str, text: str, usual: bool = False) -> Content:
    tone = "$text-muted" if usual else ""
    default = "   default" if usual and text != "–" else ""
    return labelled(FACT, f" {name}", (f"{text}{default}", tone))
