"""Reason: why a run ended, or why there is no news of it, in as many lines as that takes."""

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from hud_tui.keys import keyed
from hud_tui.rl.progress import Liveness, State
from hud_tui.rl.run import Run, trouble
from hud_tui.rl.text import LIMIT, one_line

CONNECTING = Liveness(State.CONNECTING, "connecting", None)


class Reason(Widget):
    """Out of sight while nothing went wrong. What its style leaves no room for is in the events."""

    run: reactive[Run] = reactive(Run, repaint=False)
    freshness: reactive[Liveness] = reactive(CONNECTING, repaint=False)
    text: reactive[str] = reactive("", layout=True)

    def watch_run(self) -> None:
        self._write()

    def watch_freshness(self) -> None:
        self._write()

    def _write(self) -> None:
        self.text = reason(self.run, self.freshness)
        self.display = bool(self.text)

    def render(self) -> Content:
        lines, room = Content(self.text).wrap(max(1, self.size.width)), self.size.height
        if len(lines) > room > 0:
            lines[room - 1 :] = [Content(keyed("… all of it is in the events ({live.pane.1})"))]
        return Content("\n").join(lines)


def reason(run: Run, freshness: Liveness) -> str:
    """What went wrong with the connection, else with the run; empty where nothing did."""
    if freshness.state is State.RECONNECTING and freshness.trouble:
        return f"no news of the run: {one_line(freshness.trouble, LIMIT)}"
    if run.job is None or not (why := trouble(run.job)):
        return ""
    return f"{one_line(run.job.status, 20)}: {one_line(why, LIMIT)}"
