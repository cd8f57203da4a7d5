"""AlarmsScreen: alarms of the run, with evidence and advice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from hud_tui.keys import keyed
from hud_tui.rl.alarms.alarm import Alarm, Level, Report, Skipped
from hud_tui.rl.changed import alarm_pair
from hud_tui.rl.export import Sheet, alarms_sheet
from hud_tui.rl.head import to_before
from hud_tui.rl.metrics import short
from hud_tui.rl.run import Run
from hud_tui.rl.sides import Side
from hud_tui.rl.text import counted
from hud_tui.tui.alarms import AlarmBook
from hud_tui.tui.keys import OPENS, Need
from hud_tui.tui.screens.base import HudScreen, ViewContext
from hud_tui.tui.screens.bisect import bisect_and_serve
from hud_tui.tui.screens.compare import show_changed
from hud_tui.tui.screens.set_head import move_head
from hud_tui.tui.widgets.lines import labelled
from hud_tui.tui.widgets.table import DIM, Column, Row, RowList, item_row

ON_ALARM = frozenset(
    {"open", "before_after", "bisect", "set_head", "acknowledge", "snooze", "copy"}
)


class AlarmsScreen(HudScreen):
    VIEW = "alarms"

    def __init__(self, context: ViewContext) -> None:
        super().__init__(context)
        self.list = RowList(columns_of(Report()), id="alarms", least=20)
        self.text = Static("", id="alarm-text", markup=False)
        self.note = Static("", id="alarm-note", markup=False)

    def body(self) -> Iterable[Widget]:
        yield self.list
        yield self.text
        yield self.note

    def on_mount(self) -> None:
        self.list.focus()
        self.show()

    def on_resize(self) -> None:
        self.show()

    def watch_run(self, before: Run, run: Run) -> None:
        same = run.alarms is before.alarms and run.model is before.model
        if self.is_mounted and not (same and run.training == before.training):
            self.show()

    @property
    def alarm(self) -> Alarm | None:
        key, report = self.list.key, self.run.alarms
        if key is None:
            return None
        if key.startswith(LEFT):
            return next((alarm for alarm in report.left if LEFT + alarm.id == key), None)
        return next((alarm for alarm in report.alarms if alarm.id == key), None)

    def show(self) -> None:
        if self.run.model is not None:
            self.list.lay(columns_of(self.run.alarms, self.size.width >= WIDE))
            self.list.show(alarm_rows(self.run, self.session.alarms.book))
        self._show_text()

    @on(RowList.Moved)
    def _show_text(self) -> None:
        alarm = self.alarm
        text = Content.styled(self._calm(), "$text-muted")
        if alarm is not None:
            text = Content("\n").join(alarm_text(alarm, self.run, self.session.alarms.book))
        self.text.update(text)
        self.refresh_bindings()

    def _calm(self) -> str:
        """The empty state."""
        report = self.run.alarms
        if self.run.model is None:
            return keyed("No model selected. Press {app.view.models} to choose one.")
        if report.waiting:
            return f"Checking the run: {counted(report.waiting, 'step')} left."
        if not report.steps:
            return "No steps yet: the detectors start with the first ones."
        checked = f"{counted(report.steps, 'step')} checked."
        return checked if report.active else f"No active alarm: {checked}"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ON_ALARM and self.is_mounted:
            return self.alarm is not None
        return super().check_action(action, parameters)

    NEEDS: ClassVar[Mapping[str, Need[AlarmsScreen]]] = {
        "set_head": Need(lambda view: (alarm := view.alarm) and alarm.before_id is not None),
    }

    @on(RowList.Opened)
    async def action_open(self) -> None:
        if (alarm := self.alarm) is not None:
            self.session.checkpoint_id = alarm.checkpoint_id
            if alarm.metric in self.run.series.keys:
                self.session.opened = alarm
            await self.app.switch_mode("live")

    @work(exclusive=True, group=OPENS)
    async def action_before_after(self) -> None:
        """What changed from the last healthy checkpoint before it to where it was raised."""
        alarm, run = self.alarm, self.run
        pair = None if alarm is None else alarm_pair(run.tree, alarm)
        if pair is None or run.model is None:
            self.notice("The step at which it began is not in the tree.")
            return
        before, after = (Side(run.tree, position, run.model.id) for position in pair)
        await show_changed(self.app, self.session, before, after)

    @work(exclusive=True, group="bisect")
    async def action_bisect(self) -> None:
        """Find the step that did it, from the last healthy checkpoint to the head."""
        alarm, tree = self.alarm, self.run.tree
        pair = None if alarm is None else alarm_pair(tree, alarm)
        if pair is None:
            self.notice("The step at which it began is not in the tree.")
            return
        good, bad = pair
        if tree.head is not None and tree.common_ancestor(tree.head, bad) == bad:
            bad = tree.head
        await bisect_and_serve(self, good, bad, self.note.update)

    def action_leave(self) -> None:
        self.app.switch_mode("live")

    def sheet(self) -> Sheet:
        return alarms_sheet(self.run)

    def action_acknowledge(self) -> None:
        if (alarm := self.alarm) is not None:
            self.session.alarms.book.acknowledge(alarm)
            self._renew()

    def action_snooze(self) -> None:
        if (alarm := self.alarm) is not None:
            self.session.alarms.book.snooze(alarm, self.run.alarms.steps)
            self._renew()

    def _renew(self) -> None:
        self.session.renew_alarms()
        self.show()

    def action_copy(self) -> None:
        if (alarm := self.alarm) is not None:
            told = alarm.headline, alarm.summary, alarm.meaning, alarm.advice
            self.copy("\n".join((*told, "")))

    def action_set_head(self) -> None:
        if (alarm := self.alarm) is not None:
            move_head(self, lambda: to_before(self.run, alarm), self.note.update)


# Rows of the list, and the text of one alarm.


TITLE_LEAST, TITLE_MOST = 18, 30
"""Width of the alarms' titles, cells."""
WIDE = 160
"""Width from which titles of detectors that were not evaluated are whole too, cells."""


STYLES = {Level.CRITICAL: "bold $error", Level.WARN: "$warning", Level.INFO: "$text-muted"}
LEFT, SKIPPED = "left:", "skipped:"
"""Prefix of the keys of those rows."""


@dataclass(frozen=True)
class AlarmLine:
    alarm: Alarm
    run: Run
    book: AlarmBook

    @property
    def style(self) -> str:
        quiet = self.alarm.id in self.run.alarms.quiet
        return STYLES[self.alarm.level] if self.alarm.active and not quiet else "$text-muted"


def _styled(text: Callable[[AlarmLine], str]) -> Callable[[AlarmLine], Content]:
    """A cell in the alarm's style."""
    return lambda line: Content.styled(text(line), line.style)


def _until(line: AlarmLine) -> str:
    if line.alarm.active:
        return "now" if line.run.holds_until(line.alarm) == "now" else "end"
    return "" if line.alarm.ended is None else str(line.alarm.ended)


def columns_of(report: Report, is_wide: bool = False) -> list[Column[AlarmLine]]:
    """The columns; the alarms' titles take what they need, for the evidence has the rest."""
    titles = [each.title for each in (*report.alarms, *report.left)]
    if is_wide:
        titles += [each.title for each in report.skipped]
    longest = max(map(len, titles), default=TITLE_MOST)
    width = min(max(longest, TITLE_LEAST), TITLE_MOST)
    return [
        Column("", 1, _styled(lambda line: _mark(line.alarm, line.run.alarms, line.book))),
        Column("level", 8, _styled(lambda line: line.alarm.level.word)),
        Column("alarm", width, _styled(lambda line: line.alarm.title)),
        Column("since", 5, lambda line: str(line.alarm.onset), right=True),
        Column("until", 5, _until, right=True, rank=2),
        Column("evidence", 0, lambda line: line.alarm.evidence_text, DIM),
    ]


def alarm_rows(run: Run, book: AlarmBook) -> list[Row]:
    """Active alarms, ended ones, those of abandoned lineages; detectors not evaluated."""
    report, columns = run.alarms, columns_of(run.alarms)

    def rows(alarms: Iterable[Alarm], kind: str = "") -> list[Row]:
        lines = (AlarmLine(alarm, run, book) for alarm in alarms)
        return [item_row(columns, kind + line.alarm.id, line) for line in lines]

    return [
        *rows(report.active),
        *_part("over", rows(alarm for alarm in report.alarms if not alarm.active)),
        *_part("on steps no longer in the head's lineage", rows(report.left, LEFT)),
        *_part("not evaluated", list(map(_skipped_row, report.skipped))),
    ]


def _skipped_row(detector: Skipped) -> Row:
    texts = ("", "", detector.title, "", "", detector.lacking)
    return Row(SKIPPED + detector.name, tuple(Content.styled(text, DIM) for text in texts))


def _part(title: str, rows: Sequence[Row]) -> list[Row]:
    if not rows:
        return []
    return [Row(f"heading:{title}", (Content(title),), heading=True), *rows]


def _mark(alarm: Alarm, report: Report, book: AlarmBook) -> str:
    """✔ for an acknowledged alarm, ⏸ for a snoozed detector, ⚑ for an active alarm."""
    if book.is_acknowledged(alarm):
        return "✔"
    if book.snoozed_until(alarm.name) > report.steps:
        return "⏸"
    return "⚑" if alarm.active else " "


def alarm_text(alarm: Alarm, run: Run, book: AlarmBook) -> Iterator[Content]:
    when = f"began at step {alarm.onset}, detected at {alarm.raised}"
    until = run.holds_until(alarm)
    state = {"now": "still active", "–": "left"}.get(until, f"until {until}")
    yield Content.assemble(
        (alarm.title, "bold"),
        (f"  {alarm.level.word}", STYLES[alarm.level]),
        (f"  {alarm.name}", "$text-muted"),
        (_answered(alarm, run.alarms, book, run.training), "$accent"),
    )
    yield Content.styled(f"{when}, {state}", "$text-muted")
    if alarm.cause:
        yield Content.styled(f"  follows from {alarm.cause_title}", "$text-muted")
    for evidence in alarm.evidence:
        limit = "" if evidence.limit is None else f"limit {short(evidence.limit)}"
        value = f"{short(evidence.value):<9}"
        yield labelled(32, f"  {evidence.name}", value, (limit, "$text-muted"))
    if alarm.easing:
        yield Content.styled(f"  {alarm.easing}", "$text-muted")
    yield Content(alarm.meaning)
    yield Content.assemble(("→ ", "$accent"), alarm.advice)


def _answered(alarm: Alarm, report: Report, book: AlarmBook, training: bool) -> str:
    """Whether the user acknowledged it or snoozed its detector; empty if neither."""
    until = book.snoozed_until(alarm.name)
    words = ["acknowledged"] if book.is_acknowledged(alarm) else []
    if until > report.steps:
        going = f"snoozed for {until - report.steps} more steps"
        words.append(going if training else f"snoozed until step {until}")
    return f"  {', '.join(words)}" if words else ""
