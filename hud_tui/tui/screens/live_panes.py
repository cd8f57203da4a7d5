"""LivePanes: the panes of the Live view: which has the focus, and what they show is kept."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.events import DescendantFocus
from textual.reactive import reactive
from textual.widget import Widget

from hud_tui.rl.group_rows import Order
from hud_tui.tui.screens.charting import ChartingScreen
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.widgets.event_log import EventLog
from hud_tui.tui.widgets.focus_chart import FocusChart
from hud_tui.tui.widgets.group_grid import Face, GroupGrid
from hud_tui.tui.widgets.lines import LinesView
from hud_tui.tui.widgets.metric_grid import MetricGrid

KINDS: dict[str, type[LinesView]] = {
    "metrics": MetricGrid,
    "groups": GroupGrid,
    "events": EventLog,
}
PANES = tuple(KINDS)
"""Names of the panes, in the order of Tab."""


class LivePanes(ChartingScreen):
    """One pane has the focus, and may have all of the view."""

    AUTO_FOCUS: ClassVar[str | None] = ""
    """None by itself: the one that had it last time has it."""

    pane: reactive[str] = reactive(PANES[0], repaint=False)
    """The pane that has the focus; where there is room for one only, the one that is seen."""

    full: reactive[bool] = reactive(False, repaint=False)
    """Whether that pane has all of the view."""

    @property
    def metrics(self) -> MetricGrid:
        return self.query_one(MetricGrid)

    @property
    def focused_pane(self) -> LinesView:
        """The pane that the arrows move in."""
        return self.query_one(KINDS[self.pane])

    def on_mount(self) -> None:
        groups = self.query_one(GroupGrid)
        self.watch(groups, "face", self._keep_face, init=False)
        self.watch(groups, "order", self._keep_order, init=False)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        if self.is_mounted and self.focused is None:
            self.show_pane(self.pane)

    def lay_out(self) -> None:
        super().lay_out()
        kept, groups = self.hud.layout, self.query_one(GroupGrid)
        self.full, groups.face, groups.order = kept.full_pane, kept.face, kept.order
        self.show_pane(kept.pane)

    def _keep_face(self, face: Face) -> None:
        self.hud.arrange(face=face)

    def _keep_order(self, order: Order) -> None:
        self.hud.arrange(order=order)

    def watch_pane(self, pane: str) -> None:
        for name in PANES:
            self.set_class(name == pane, f"-on-{name}")

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        names: dict[type[Widget], str] = {kind: name for name, kind in KINDS.items()}
        self.pane = names.get(type(event.widget), self.pane)
        if self.pane != "groups":
            self.query_one(GroupGrid).pinned = None
        self.hud.arrange(pane=self.pane)

    def action_pane(self, step: int) -> None:
        """Go to the next pane, or the one before."""
        self.show_pane(PANES[(PANES.index(self.pane) + step) % len(PANES)])

    def action_full(self) -> None:
        """Give the pane all of the view, or fold it back."""
        self.full = not self.full

    def watch_full(self, full: bool) -> None:
        self.set_class(full, "-full")
        if self.is_mounted:
            self.hud.arrange(full_pane=full)

    def action_leave(self) -> None:
        """One layer out: the full pane, the step of the groups, the crosshair, the comparison."""
        groups = self.query_one(GroupGrid)
        if self.full:
            self.full = False
        elif groups.pinned is not None:
            groups.pinned = None
        elif self.cursor is not None:
            self.action_last()
        else:
            self.compare(None)

    def action_last(self) -> None:
        super().action_last()
        self.query_one(GroupGrid).pinned = None

    def action_groups(self) -> None:
        self.show_pane("groups")

    def show_pane(self, pane: str) -> None:
        """Bring a pane into sight, and give it the focus."""
        self.pane = pane
        if self.is_attached and (found := self.query_one_optional(KINDS[pane])):
            found.focus()

    def action_move(self, columns: int, rows: int) -> None:
        """Move among the metrics, or scroll the other panes."""
        if self.pane == "metrics":
            self.metrics.move(columns, rows)
        elif self.pane == "groups":
            self.query_one(GroupGrid).move(rows)
        else:
            self.focused_pane.scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        rows = pages * max(1, self.focused_pane.body_rows)
        if self.pane == "metrics":
            self.metrics.move_page(pages)
        elif self.pane == "groups":
            self.query_one(GroupGrid).move(rows)
        else:
            self.focused_pane.scroll_rows(rows)

    @on(FocusChart.Opened)
    @on(MetricGrid.Opened)
    def action_open(self) -> None:
        """From the charts to the groups of the step; from there into a group."""
        if self.pane == "groups":
            self.query_one(GroupGrid).open()
        else:
            self.show_pane("groups")

    def action_face(self) -> None:
        """The groups of the step, of many steps, or what they wasted."""
        groups = self.query_one(GroupGrid)
        groups.face = groups.face.following

    def action_order(self) -> None:
        groups = self.query_one(GroupGrid)
        groups.order = Order.TASK if groups.order is Order.TEACHES else Order.TEACHES

    @on(GroupGrid.Pointed)
    def point_at_step(self, message: GroupGrid.Pointed) -> None:
        self.point(message.row)

    @on(GroupGrid.Opened)
    def open_group(self, message: GroupGrid.Opened) -> None:
        """Read a group; while its step is sampled, as its rollouts come."""
        client = None if self.hud.replays else self.hud.client
        self.app.push_screen(GroupScreen(client, message.found, self.query_one(GroupGrid)))
