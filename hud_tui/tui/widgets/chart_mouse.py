"""ChartMouse: a chart in the hand: click, double click, wheel, and a span drawn with the button."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from textual.events import (
    Click,
    MouseDown,
    MouseMove,
    MouseScrollDown,
    MouseScrollLeft,
    MouseScrollRight,
    MouseScrollUp,
    MouseUp,
)
from textual.message import Message
from textual.reactive import reactive

from hud_tui.tui.widgets.run_chart import RunChart

NEARER = 0.75
"""What a notch of the wheel leaves of the steps in sight."""
DRAWN = 2
"""Cells from which on a span was meant, and not a click."""


class ChartMouse(RunChart):
    """It says what the user wants; its screen does it, as for a key."""

    band: reactive[tuple[int, int] | None] = reactive[tuple[int, int] | None](None, repaint=False)
    """Cells of the span that is being drawn, from left to right, both in it."""
    _from: int | None = None
    """The cell where the button was pressed."""
    _was_drawn = False
    """Whether the button went up at the end of a span, so that it is no click."""

    @dataclass
    class Pointed(Message):
        """The user wants the crosshair at this row."""

        row: int

    @dataclass
    class Opened(Message):
        """The user wants what enter does at the crosshair."""

    @dataclass
    class Scaled(Message):
        """The user wants `factor` times as many steps, this row where it is."""

        factor: float
        row: int
        share: float
        """How far along the chart it is, in [0, 1]."""

    @dataclass
    class Spanned(Message):
        """The user wants these rows to fill the chart, both ends among them."""

        first: int
        last: int

    @dataclass
    class Panned(Message):
        """The user wants earlier steps, or later ones."""

        halves: int

    @abstractmethod
    def row_at(self, cell: int, within: bool = True) -> int | None:
        """The step nearest to a cell; beside the curves None, or their end if not `within`."""

    @abstractmethod
    def share_at(self, cell: int) -> float:
        """How far along the curves a cell is, in [0, 1]."""

    def watch_band(self) -> None:
        self.redraw()

    def on_mouse_down(self, event: MouseDown) -> None:
        self._was_drawn = False
        if event.button == 1 and self.row_at(event.x) is not None:
            self._from = event.x
            self.capture_mouse()

    def on_mouse_move(self, event: MouseMove) -> None:
        if self._from is not None:
            left, right = sorted((self._from, event.x))
            self.band = (left, right) if right - left >= DRAWN or self.band else None

    def on_mouse_up(self, event: MouseUp) -> None:
        if self._from is None:
            return
        self.release_mouse()
        band, self.band, self._from = self.band, None, None
        self._was_drawn = band is not None
        if band is not None and band[1] - band[0] >= DRAWN:
            first, last = (self.row_at(cell, within=False) for cell in band)
            if first is not None and last is not None:
                self.post_message(self.Spanned(first, last))

    def on_click(self, event: Click) -> None:
        row = None if self._was_drawn else self.row_at(event.x)
        if row is not None and event.chain == 2:
            self.post_message(self.Opened())
        elif row is not None:
            self.post_message(self.Pointed(row))

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        self._wheel(event.x, NEARER, -1, pan=event.shift or event.ctrl)
        event.stop()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self._wheel(event.x, 1 / NEARER, 1, pan=event.shift or event.ctrl)
        event.stop()

    def on_mouse_scroll_left(self, event: MouseScrollLeft) -> None:
        self.post_message(self.Panned(-1))
        event.stop()

    def on_mouse_scroll_right(self, event: MouseScrollRight) -> None:
        self.post_message(self.Panned(1))
        event.stop()

    def _wheel(self, cell: int, factor: float, way: int, pan: bool) -> None:
        row = self.row_at(cell, within=False)
        if pan:
            self.post_message(self.Panned(way))
        elif row is not None:
            self.post_message(self.Scaled(factor, row, self.share_at(cell)))
