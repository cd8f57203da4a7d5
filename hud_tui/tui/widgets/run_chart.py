"""RunChart: a pane of curves of the run; it is drawn anew when a step or the lens changed,
or why there is no step."""

from textual.reactive import reactive

from hud_tui.rl.progress import awaiting
from hud_tui.rl.run import Run
from hud_tui.tui.widgets.lens import Lens
from hud_tui.tui.widgets.lines import LinesView
from hud_tui.tui.widgets.sight import Sight


class RunChart(LinesView):
    run: reactive[Run] = reactive(Run, repaint=False)
    lens: reactive[Lens] = reactive(Lens, repaint=False)
    cursor: reactive[int | None] = reactive[int | None](None, repaint=False)
    """The row under the crosshair; None follows the newest."""

    def __init__(self, sight: Sight) -> None:
        """`sight` is shared by all charts of a screen."""
        super().__init__()
        self.sight = sight
        self._reach = (0.0, 0.0)

    @property
    def pointed(self) -> int | None:
        """The row under the crosshair, as far as there is such a row."""
        here = self.cursor
        return here if here is not None and here < self.run.series.length else None

    def watch_run(self, before: Run, run: Run) -> None:
        reach = self.sight.reach(run, self.lens)
        waits = awaiting(run) != awaiting(before)
        flags = run.alarms.onsets != before.alarms.onsets
        if run.series is not before.series or reach != self._reach or waits or flags:
            self._reach = reach
            self.redraw()

    def watch_lens(self) -> None:
        self.redraw()

    def watch_cursor(self) -> None:
        self.redraw()
