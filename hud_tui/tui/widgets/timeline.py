"""TimelinePane: the parts of the loop in lanes over the time of some steps, and its rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from textual import events
from textual.message import Message
from textual.strip import Strip

from hud_tui.rl.plot import Sketch
from hud_tui.rl.text import counted, duration
from hud_tui.rl.time_plot import (
    CHOSEN,
    DISCARDED,
    DONE,
    EDGE,
    EVALUATED,
    TRAINED_ON,
    WAITING,
    Timeline,
    lasts_text,
)
from hud_tui.tui.widgets.figure import AXIS_ROWS, FIGURE_TONES, PlotFigure, figure, styled
from hud_tui.tui.widgets.lines import LinesView
from hud_tui.wire_time import TimedRollouts

TONES = {
    DONE: "accent",
    EVALUATED: "second",
    WAITING: "dim",
    TRAINED_ON: "plain",
    DISCARDED: "warm",
    CHOSEN: "cursor",
    EDGE: "faint",
    **FIGURE_TONES,
}
"""The tone of each part."""


class TimelinePane(LinesView, can_focus=True):
    """Its rollouts are chosen one by one, in the order in which they began."""

    class Chosen(Message):
        """Another rollout is chosen."""

    class Opened(Message):
        """The timeline was clicked twice."""

    def __init__(self) -> None:
        super().__init__(id="timeline")
        self.timeline = Timeline(())
        self._sketch = Sketch()

    def show(self, timeline: Timeline) -> None:
        """Show other steps, or the same further on; the chosen rollout stays chosen."""
        self.timeline = replace(timeline, chosen=self.timeline.chosen)
        if self.chosen is None:
            self.timeline = timeline
        self.redraw()

    @property
    def count(self) -> int:
        return self.body_rows

    def title(self, width: int) -> str:
        times, spent = self.timeline.times, self.timeline.account
        if not times:
            return "timeline"
        first = times[0]
        if len(times) == 1:
            state = "" if first.checkpoint_id else " so far"
            named = f"step {first.step} of the run · {lasts_text(spent.seconds)}{state}"
        else:
            taken = [time for time in times if time.checkpoint_id] or times
            mean = lasts_text(sum(time.end - time.start for time in taken) / len(taken))
            named = f"steps {first.step} – {taken[-1].step} of the run · {mean} each"
        rollouts = counted(spent.rollouts, "rollout")
        return f"{named} · {rollouts}" if spent.rollouts else named

    def draw(self, width: int, rows: range) -> Sequence[Strip]:
        drawn = self._figure
        if drawn is None:
            return []
        tones = {name: self.tone(tone) for name, tone in TONES.items()}
        return [styled(row, tones) for row in drawn.rows][rows.start : rows.stop]

    @property
    def _figure(self) -> PlotFigure | None:
        """None if there is nothing to draw, or no room for it."""
        if self.body_rows <= AXIS_ROWS + 1 or not self.timeline.times:
            return None
        return figure(self._sketch, self.timeline.plot, self.width, self.body_rows)

    @property
    def chosen(self) -> TimedRollouts | None:
        """The chosen rollout, if it is shown."""
        chosen = self.timeline.chosen
        return next((bar for _, bar in self.timeline.bars if bar.trace_id == chosen), None)

    def choose(self, by: int) -> None:
        """Choose the rollout so many places further on; at first the first or the last one."""
        bars = [bar.trace_id for _, bar in self.timeline.bars]
        if not bars:
            return
        here = bars.index(self.timeline.chosen) if self.chosen is not None else -1
        place = here + by if here >= 0 else 0 if by > 0 else len(bars) - 1
        self._choose(bars[max(0, min(len(bars) - 1, place))])

    def _choose(self, trace_id: str) -> None:
        self.timeline = replace(self.timeline, chosen=trace_id)
        self.redraw()
        self.post_message(self.Chosen())

    def on_click(self, event: events.Click) -> None:
        """Choose the rollout that is drawn there, or near."""
        row, drawn = event.y - self.headed, self._figure
        if row < 0 or drawn is None:
            return
        rows = self.body_rows - AXIS_ROWS
        near = self.timeline.at(event.x - drawn.left, row, drawn.cells, rows)
        if near is not None:
            self._choose(near)
            if event.chain == 2:
                self.post_message(self.Opened())


def about(bar: TimedRollouts, trained: str = "trained on") -> str:
    """A rollout in a line: its task, how long it took and for what, and what became of it."""
    name = bar.task_slug or "rollout"
    if bar.number > 1:
        name += f" ({bar.number} rollouts)"
    parts = [f"{name} · {_took(bar.seconds)}"]
    known = (("sampling", bar.sampling_s), ("grading", bar.grading_s))
    shares = [f"{what} {lasts_text(seconds)}" for what, seconds in known if seconds]
    if shares:
        parts.append(", ".join(shares))
    parts.append(bar.reason or trained)
    return " · ".join(parts)


def _took(seconds: float) -> str:
    return lasts_text(seconds) if seconds < 60 else duration(seconds)
