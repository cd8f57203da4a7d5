"""TopLine: where we are, what is happening, how fresh it is."""

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from hud_tui.rl.metrics import short
from hud_tui.rl.progress import Liveness, State, progress
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line
from hud_tui.rl.tree import label


class TopLine(Widget):
    """One line at the top of every view."""

    run: reactive[Run] = reactive(Run)
    freshness: reactive[Liveness] = reactive(Liveness(State.CONNECTING, "connecting", None))

    def __init__(self, view: str) -> None:
        super().__init__()
        self.view = view

    def render(self) -> Text:
        left, right = self._where(), Text(fresh(self.freshness))
        gap = max(1, self.size.width - left.cell_len - right.cell_len)
        return Text.assemble(left, " " * gap, right)

    def _where(self) -> Text:
        model = self.run.model
        where = Text.assemble((f" {self.view.capitalize()} ", "bold reverse"))
        if model is None:
            return where
        where.append(f"  {one_line(model.model_name, 40)} ▶ {label(self.run.head)}")
        if self.run.head is not None:
            where.append(f" ({short(self.run.head.mean_reward)})")
        going = progress(self.run)
        if going is not None and self.run.training:
            where.append(f"  step {going.step}/{going.steps or '?'}")
        return where


def fresh(liveness: Liveness) -> str:
    """Freshness in a few words, e.g. ``↻ 0.3 s``."""
    match liveness.state:
        case State.CONNECTING:
            return "… connecting"
        case State.RECONNECTING:
            return "⚠ reconnecting"
        case State.STALLED:
            return f"⚠ stalled {liveness.age_s or 0:.0f} s"
        case State.LIVE:
            return f"↻ {liveness.source} {liveness.age_s or 0:.0f} s"
