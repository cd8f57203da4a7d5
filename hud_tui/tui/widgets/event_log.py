"""EventLog: what happened, newest first, by this machine's clock; each entry whole."""

from datetime import datetime
from functools import lru_cache

from textual.content import Content
from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.rl.run import Entry, Run
from hud_tui.rl.text import LIMIT, one_line
from hud_tui.tui.widgets.lines import LinesView, line

MARGIN = 11
"""Cells left of a text, for its time."""


class EventLog(LinesView):
    """What is being read stays in place while newer events arrive above it."""

    run: reactive[Run] = reactive(Run, repaint=False)

    def watch_run(self, before: Run, run: Run) -> None:
        if run.log is before.log:
            return
        fresh = _fresh(before.log, run.log)
        self.redraw()
        if self.scroll_offset.y:
            newest = run.log[len(run.log) - fresh :]
            self.scroll_rows(sum(len(self._wrapped(entry)) for entry in newest))

    def title(self, width: int) -> str:
        return "events"

    @property
    def count(self) -> int:
        return sum(len(self._wrapped(entry)) for entry in self.run.log) or 1

    def draw(self, width: int, rows: range) -> list[Strip]:
        if not self.run.log:
            return [line((" Nothing has happened yet.", self.tone("dim")))]
        drawn: list[Strip] = []
        passed = 0
        for entry in reversed(self.run.log):
            texts = self._wrapped(entry)
            if passed + len(texts) > rows.start:
                lines = [self._line(entry, nth, text) for nth, text in enumerate(texts)]
                drawn += lines[max(0, rows.start - passed) :]
            passed += len(texts)
            if passed >= rows.stop:
                break
        return drawn[: len(rows)]

    def _line(self, entry: Entry, nth: int, text: str) -> Strip:
        time = " " * MARGIN if nth else f" {local_time(entry.at)}  "
        return line((time, self.tone("dim")), (text, self.tone("plain")))

    def _wrapped(self, entry: Entry) -> tuple[str, ...]:
        return wrapped(entry.text, max(1, self.width - MARGIN))


@lru_cache(1024)
def wrapped(text: str, width: int) -> tuple[str, ...]:
    """Text from anywhere as lines of at most `width` cells, all of it; at least one line."""
    lines = Content(one_line(text, LIMIT)).wrap(width)
    return tuple(line.plain for line in lines) or ("",)


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
