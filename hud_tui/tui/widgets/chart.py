"""BrailleChart: one metric in a few cells, with its value and where it is going."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.style import Style
from textual.strip import Strip

from hud_tui.rl.metrics import metric, outside, short, signed, title
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line
from hud_tui.tui.widgets import braille
from hud_tui.tui.widgets.lens import Lens
from hud_tui.tui.widgets.lines import fit_text, line
from hud_tui.tui.widgets.sight import Sight, y_scale

NUMBERS = 10
"""Cells right of the curve, for the value and its change."""
TONES = {
    "line": "accent",
    "other": "plain",
    "envelope": "faint",
    "blank": "plain",
    "cross": "dim",
}
"""How each layer of a drawing is drawn."""


@dataclass
class BrailleChart:
    """A metric's small multiple: a title over a curve with two numbers beside it.

    The curve is kept, so that moving the crosshair draws no curve anew.
    """

    key: str
    _stamp: object = None
    _rows: list[list[braille.Run]] = field(default_factory=list)

    def strips(
        self,
        run: Run,
        sight: Sight,
        lens: Lens,
        tones: Mapping[str, Style],
        size: tuple[int, int],
        cursor: int | None,
        selected: bool,
    ) -> list[Strip]:
        """The chart's lines: a title and the curve.

        Args:
            run: Whose metric it is.
            sight: Where its curve is.
            lens: How to look at it.
            tones: Styles by name; ``cursor`` is that of a selected title.
            size: Cells across, and rows of the curve.
            cursor: The row under the crosshair; None reads the newest.
            selected: Whether this metric is the one in the focus chart.
        """
        width, height = size
        cells = max(1, width - NUMBERS)
        column = None if cursor is None else sight.column(run, lens, cursor, 2 * cells)
        readout = sight.curve(run, self.key, lens).readout(
            run.series.length if cursor is None else cursor + 1, exact=cursor is not None
        )
        ill = outside(metric(self.key), readout.raw)
        numbers = [(short(readout.raw), "warm" if ill else "plain"), (signed(readout.delta), "dim")]
        numbers += [("", "dim")] * height
        strips = [self._title(tones, width, selected)]
        for runs, (text, tone) in zip(
            self._curve(run, sight, lens, cells, height), numbers, strict=False
        ):
            crossed = braille.crossed(runs, None if column is None else column // 2)
            parts = [(run.text, tones[TONES[run.kind]]) for run in crossed]
            strips.append(line(*parts, (text.rjust(NUMBERS), tones[tone])))
        return strips

    def _curve(
        self, run: Run, sight: Sight, lens: Lens, cells: int, height: int
    ) -> list[list[braille.Run]]:
        stamp = (run.series, sight.reach(run, lens), lens, cells, height)
        if stamp != self._stamp:
            self._stamp = stamp
            columns = 2 * cells
            buckets = sight.buckets(run, self.key, lens, columns)
            others = sight.others(run, self.key, lens, columns)
            scale = y_scale([*buckets, *others], lens)
            drawing = braille.draw(
                buckets, scale, columns, 4 * height, lens.weight > 0, lens.ranged, others
            )
            self._rows = braille.rows(drawing, height)
        return self._rows

    def _title(self, tones: Mapping[str, Style], width: int, selected: bool) -> Strip:
        text = fit_text(f"{'●' if selected else ' '} {one_line(title(self.key), 60)}", width)
        return line((text, tones["cursor" if selected else "dim"]))
