"""What moved nothing: rollouts and tokens without gradient, task by task, worst first."""

from dataclasses import dataclass

from textual.strip import Strip

from hud_tui.rl.metrics import short
from hud_tui.rl.text import one_line
from hud_tui.rl.waste import TaskWaste, Total
from hud_tui.tui.widgets.lines import Toned, fit_text, line
from hud_tui.tui.widgets.palette import ALL_BAD, ALL_GOOD

BAR = 10
NARROW = 74
"""Cells across below which only the shares are shown."""


@dataclass(frozen=True)
class WasteFace:
    """Draws tasks with a pane's tones."""

    tone: Toned
    exact: bool
    """Whether the tokens were counted, not shared out evenly."""

    def names(self, width: int) -> Strip:
        """What the columns are."""
        slug = _slug_width(width)
        text = f" {'task':<{slug}} {'no gradient':<{BAR + 6}}"
        if width >= NARROW:
            text += f" {'rollouts':>13}  {'tokens':>6}  {ALL_GOOD} good  {ALL_BAD} bad"
        return line((text, self.tone("faint")))

    def row(self, task: TaskWaste, width: int, picked: bool) -> Strip:
        full = round(task.share * BAR)
        name = f" {fit_text(one_line(task.task_slug, 60), _slug_width(width))} "
        parts = [
            (name, self.tone("cursor" if picked else "plain")),
            ("━" * full, self.tone("warm")),
            ("─" * (BAR - full), self.tone("faint")),
            (f" {task.share:>4.0%} ", self.tone("plain")),
        ]
        if width >= NARROW:
            rollouts = f"{short(task.idle)} of {short(task.rollouts)}"
            tokens = f"{'' if self.exact else '≈'}{short(round(task.idle_tokens))}"
            counts = f"  {short(task.all_good):>6}  {short(task.all_bad):>5}"
            parts.append((f" {rollouts:>13}  {tokens:>6}{counts}", self.tone("dim")))
        return line(*parts)


def said(total: Total, exact: bool) -> str:
    """The sums in a line, e.g. ``12 % of 18k rollouts and 14 % of tokens had no gradient``."""
    if not total.rollouts:
        return ""
    of_tokens = f"{'' if exact else '≈ '}{total.token_share:.0%} of {short(total.tokens)} tokens"
    rollouts = f"{total.share:.0%} of {short(total.rollouts)} rollouts"
    return f"no gradient from {rollouts}" + (f", {of_tokens}" if total.tokens else "")


def _slug_width(width: int) -> int:
    return max(6, width - BAR - 9) if width < 45 else 24 if width >= 100 else 16
