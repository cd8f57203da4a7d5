"""BrailleChart: one metric in a few cells, with its value and where it is going."""

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True)
class Look:
    """What all charts of a frame share."""

    run: Run
    sight: Sight
    lens: Lens
    tones: Mapping[str, Style]
    """Styles by name; ``cursor`` is that of a chosen title."""
    cursor: int | None
    """The row under the crosshair; None reads the newest."""
    width: int
    """Cells of a chart."""
    height: int
    """Rows of its curve."""

    @property
    def cells(self) -> int:
        """Cells of the curve."""
        return max(1, self.width - NUMBERS)


@dataclass
class BrailleChart:
    """A metric's small multiple: a title over a curve with two numbers beside it.

    The curve is kept, so that moving the crosshair draws no curve anew.
    """

    key: str
    last: Sequence[Strip] = ()
    """The lines as they were last drawn."""
    _stamp: object = None
    _rows: list[list[braille.Run]] = field(default_factory=list)

    def drawn(self, look: Look) -> bool:
        """Whether its last lines have the size that is asked for."""
        wanted = look.height + 1
        return len(self.last) == wanted and self.last[0].cell_length == look.width

    def strips(self, look: Look, chosen: bool) -> Sequence[Strip]:
        """The chart's lines: a title and the curve.

        Args:
            look: How to draw it.
            chosen: Whether this metric is the one in the focus chart.
        """
        run, sight, lens, tones, cursor = look.run, look.sight, look.lens, look.tones, look.cursor
        column = None if cursor is None else sight.column(run, lens, cursor, 2 * look.cells)
        readout = sight.curve(run, self.key, lens).readout(
            run.series.length if cursor is None else cursor + 1, exact=cursor is not None
        )
        ill = outside(metric(self.key), readout.raw)
        numbers = [(short(readout.raw), "warm" if ill else "plain"), (signed(readout.delta), "dim")]
        numbers += [("", "dim")] * look.height
        strips = [self._title(tones, look.width, chosen)]
        for runs, (text, tone) in zip(self._curve(look), numbers, strict=False):
            crossed = braille.crossed(runs, None if column is None else column // 2)
            parts = [(run.text, tones[TONES[run.kind]]) for run in crossed]
            strips.append(line(*parts, (text.rjust(NUMBERS), tones[tone])))
        self.last = strips
        return strips

    def _curve(self, look: Look) -> list[list[braille.Run]]:
        run, sight, lens = look.run, look.sight, look.lens
        stamp = (run.series, sight.reach(run, lens), lens, look.cells, look.height)
        if stamp != self._stamp:
            self._stamp = stamp
            columns, dots = 2 * look.cells, 4 * look.height
            buckets = sight.buckets(run, self.key, lens, columns)
            others = sight.others(run, self.key, lens, columns)
            scale = y_scale([*buckets, *others], lens)
            smoothed = lens.weight > 0
            drawing = braille.draw(buckets, scale, columns, dots, smoothed, lens.ranged, others)
            self._rows = braille.rows(drawing, look.height)
        return self._rows

    def _title(self, tones: Mapping[str, Style], width: int, chosen: bool) -> Strip:
        text = fit_text(f"{'●' if chosen else ' '} {one_line(title(self.key), 60)}", width)
        return line((text, tones["cursor" if chosen else "dim"]))
