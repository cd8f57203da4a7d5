"""BrailleChart: one metric in a few cells, with its newest value and where it is going."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich.style import Style
from textual.strip import Strip

from hud_tui.rl.metrics import short, signed, title
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line
from hud_tui.tui.widgets import braille
from hud_tui.tui.widgets.lens import Lens, Sight, y_scale
from hud_tui.tui.widgets.lines import fit_text, line

NUMBERS = 10
"""Cells right of the curve, for the value and its change."""
TONES = {"line": "accent", "envelope": "faint", "blank": "plain"}


@dataclass(frozen=True)
class BrailleChart:
    """A metric's small multiple: a title over a curve with two numbers beside it."""

    key: str
    focused: bool = False
    """Whether this metric is the focus chart."""
    selected: bool = False
    """Whether the cursor is here."""

    def strips(
        self, run: Run, sight: Sight, lens: Lens, tones: Mapping[str, Style], width: int, rows: int
    ) -> list[Strip]:
        """The chart's lines, each of `width` cells: a title and `rows` of the curve."""
        columns = 2 * max(1, width - NUMBERS)
        buckets = sight.buckets(run, self.key, lens, columns)
        scale = y_scale(buckets, lens.log)
        drawing = braille.draw(buckets, scale, columns, 4 * rows, lens.weight > 0)
        readout = sight.curve(run, self.key, lens).readout(run.series.length)
        numbers = (short(readout.raw), signed(readout.delta))
        strips = [self._title(tones, width)]
        for row, runs in enumerate(braille.rows(drawing, rows)):
            number = (numbers[row] if row < len(numbers) else "").rjust(NUMBERS)
            parts = [(run.text, tones[TONES[run.kind]]) for run in runs]
            strips.append(line(*parts, (number, tones["dim" if row else "plain"])))
        return strips

    def _title(self, tones: Mapping[str, Style], width: int) -> Strip:
        mark = "●" if self.focused else "▸" if self.selected else " "
        text = fit_text(f"{mark} {one_line(title(self.key), 60)}", width)
        tone = "cursor" if self.selected else "strong" if self.focused else "dim"
        return line((text, tones[tone]))
