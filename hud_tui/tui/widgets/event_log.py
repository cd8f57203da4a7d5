"""EventLog: what happened, newest first, by this machine's clock."""

from datetime import datetime

from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.rl.run import Entry, Run
from hud_tui.rl.text import one_line
from hud_tui.tui.widgets.lines import LinesView, fit_text, line


class EventLog(LinesView):
    """What is being read stays in place while newer events arrive above it."""

    run: reactive[Run] = reactive(Run, repaint=False)

    def watch_run(self, before: Run, run: Run) -> None:
        if run.log is before.log:
            return
        fresh = _fresh(before.log, run.log)
        self.redraw()
        if self.scroll_offset.y:
            self.scroll_rows(fresh)

    def title(self, width: int) -> str:
        return "events"

    @property
    def count(self) -> int:
        return len(self.run.log) or 1

    def draw(self, width: int, rows: range) -> list[Strip]:
        if not self.run.log:
            return [line((" Nothing has happened yet.", self.tone("dim")))]
        return [self._entry(self.run.log[-1 - row], width) for row in rows]

    def _entry(self, entry: Entry, width: int) -> Strip:
        text = fit_text(one_line(entry.text), max(0, width - 11))
        return line((f" {local_time(entry.at)}  ", self.tone("dim")), (text, self.tone("plain")))


def local_time(at: float) -> str:
    """Unix seconds as ``07:12:41``, by this machine's clock; dashes where unknown."""
    try:
        return datetime.fromtimestamp(at).strftime("%H:%M:%S") if at else "--:--:--"
    except (OverflowError, OSError, ValueError):
        return "--:--:--"


def _fresh(before: tuple[Entry, ...], now: tuple[Entry, ...]) -> int:
    """How many entries were added at the end."""
    if not before:
        return len(now)
    places = (place for place in range(len(now) - 1, -1, -1) if now[place] is before[-1])
    return len(now) - 1 - next(places, -1)
