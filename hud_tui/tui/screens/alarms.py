"""AlarmsScreen: alarms of the run, with evidence and advice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on, work
from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from hud_tui.errors import HudError, HudUsage
from hud_tui.keys import keyed
from hud_tui.rl.alarms.alarm import Alarm
from hud_tui.rl.export import Sheet, alarms_sheet
from hud_tui.rl.head import HeadMove, Outcome, name, to_before
from hud_tui.rl.run import Run
from hud_tui.tui.alarms import COLUMNS, LEFT, alarm_rows, alarm_text, plain_text
from hud_tui.tui.keys import bindings
from hud_tui.tui.screens.base import HudScreen, ViewContext
from hud_tui.tui.screens.set_head import steer
from hud_tui.tui.widgets.row_list import RowList

ON_ALARM = frozenset({"open", "set_head", "acknowledge", "snooze", "copy"})
"""Actions that need an alarm under the cursor."""


class AlarmsScreen(HudScreen):
    VIEW = "alarms"
    BINDINGS: ClassVar[list[BindingType]] = bindings("alarms")

    def __init__(self, context: ViewContext) -> None:
        super().__init__(context)
        self.list = RowList(COLUMNS, id="alarms", least=20)
        self.text = Static("", id="alarm-text", markup=False)
        self.note = Static("", id="alarm-note", markup=False)
        self._steering = False

    def body(self) -> Iterable[Widget]:
        yield self.list
        yield self.text
        yield self.note

    def on_mount(self) -> None:
        self.list.focus()
        self.show()

    def watch_run(self, before: Run, run: Run) -> None:
        same = run.alarms is before.alarms and run.model is before.model
        if self.is_mounted and not (same and run.training == before.training):
            self.show()

    @property
    def alarm(self) -> Alarm | None:
        """The one under the cursor."""
        key, report = self.list.key, self.run.alarms
        if key is None:
            return None
        if key.startswith(LEFT):
            return next((one for one in report.left if LEFT + one.id == key), None)
        return next((one for one in report.alarms if one.id == key), None)

    def show(self) -> None:
        """The rows, and what is known of the one under the cursor."""
        if self.run.model is not None:
            self.list.show(alarm_rows(self.run.alarms, self.session.alarms.book))
        self._show_text()

    @on(RowList.Moved)
    def _show_text(self) -> None:
        alarm = self.alarm
        text = Content.styled(self._calm(), "$text-muted")
        if alarm is not None:
            report, book = self.run.alarms, self.session.alarms.book
            text = Content("\n").join(alarm_text(alarm, report, book, self.run.training))
        self.text.update(text)
        self.refresh_bindings()

    def _calm(self) -> str:
        """The empty state."""
        report = self.run.alarms
        if self.run.model is None:
            return keyed("No model selected. Press {app.view.models} to choose one.")
        if report.waiting:
            return f"Checking the run: {report.waiting} steps left."
        if not report.steps:
            return "No steps yet: the detectors start with the first ones."
        return (
            f"{report.steps} steps checked."
            if report.active
            else (f"No active alarm: {report.steps} steps checked.")
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ON_ALARM and self.is_mounted:
            return self.alarm is not None
        return super().check_action(action, parameters)

    def can(self, action: str) -> bool:
        if action == "set_head":
            return self.alarm is not None and self.alarm.before_id is not None
        return True

    @on(RowList.Opened)
    async def action_open(self) -> None:
        """Go to the step that it began with, in Live."""
        if (alarm := self.alarm) is not None:
            self.session.at = alarm.checkpoint_id
            await self.app.switch_mode("live")

    async def action_leave(self) -> None:
        await self.app.switch_mode("live")

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
            self.copy(plain_text(alarm))

    def action_set_head(self) -> None:
        """Preview serving the last checkpoint before it."""
        alarm = self.alarm
        if alarm is None or self._steering:
            return
        try:
            wanted = to_before(self.run, alarm)
        except HudUsage as error:
            self._say(Outcome(False, error.message))
            return
        self._steering = True
        self._steer(wanted)

    @work(group="steer")
    async def _steer(self, wanted: HeadMove) -> None:
        try:
            became = await steer(self, wanted, self.note.update)
        except HudError as error:
            self.tell(error)
            became = Outcome(False, f"refused: the head is {name(self.run.head)}")
        finally:
            self._steering = False
        if became is not None:
            self._say(became)

    def _say(self, became: Outcome) -> None:
        mark, style = ("✔", "$accent") if became.done else ("⚠", "bold $warning")
        self.note.update(Content.styled(f"{mark} {became.text}", style))
