"""The line above the focus chart: what the crosshair, or the newest step, reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.style import Style
from textual.strip import Strip

from hud_tui.rl.axis import Axis
from hud_tui.rl.counts import counted
from hud_tui.rl.curves import DELTA_STEPS, Readout
from hud_tui.rl.metrics import change, metric, outside, short, signed, title
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line
from hud_tui.rl.tree import label
from hud_tui.tui.widgets.lens import Lens
from hud_tui.tui.widgets.lines import fit_text, line
from hud_tui.tui.widgets.sight import Sight

DELTA, RAW = f"Δ{DELTA_STEPS}", "raw"
OTHER = "vs "
"""How the overlay's number is called, with its name after it."""
SPARED = (OTHER, RAW, DELTA)
"""What a narrow line can do without, the last of them first."""


@dataclass(frozen=True)
class Heading:
    """The parts of the line, most important first."""

    title: str
    numbers: Sequence[tuple[str, str, str]]
    """Name, number, and tone of the number."""
    meaning: str
    words: Sequence[str]
    """Where the crosshair is, and what is not as usual."""

    def strip(self, tones: Mapping[str, Style], width: int) -> Strip:
        """The line in exactly `width` cells; what has no room is left out."""
        words, numbers = list(self.words), list(self.numbers)
        parts = self._left(numbers, tones)
        where = len(words[0]) + 3 if words else 0
        while len(numbers) > 1 and line(*parts).cell_length + where > width:
            numbers.remove(max(numbers, key=_spared))
            parts = self._left(numbers, tones)
        left = line(*parts)
        while words and left.cell_length + len(" · ".join(words)) + 3 > width:
            words.pop()
        right = " · ".join(reversed(words)) + " "
        room = max(0, width - left.cell_length - len(right))
        meaning = f"  {self.meaning}" if len(self.meaning) + 4 <= room else ""
        return line(*parts, (fit_text(meaning, room), tones["dim"]), (right, tones["dim"])).crop(
            0, width
        )

    def _left(
        self, numbers: Sequence[tuple[str, str, str]], tones: Mapping[str, Style]
    ) -> list[tuple[str, Style]]:
        parts = [(f" {self.title} ", tones["strong"])]
        for name, text, tone in numbers:
            parts += [(f"  {name} ", tones["dim"]), (text.ljust(6), tones[tone])]
        return parts


def _spared(number: tuple[str, str, str]) -> int:
    name = OTHER if number[0].startswith(OTHER) else number[0]
    return SPARED.index(name) if name in SPARED else -1


def focus_heading(
    key: str, run: Run, sight: Sight, lens: Lens, cursor: int | None, off: int
) -> Heading:
    """What there is to say of a metric of the run.

    Args:
        key: The metric.
        run: Whose it is.
        sight: Where its curve is.
        lens: How it is looked at.
        cursor: The row under the crosshair; None for the newest.
        off: Columns with a value that the chart leaves out.
    """
    curve, known = sight.curve(run, key, lens), metric(key)
    length = run.series.length if cursor is None else cursor + 1
    readout = curve.readout(length, exact=cursor is not None)
    tone = "warm" if outside(known, readout.raw) else "plain"
    numbers = [
        (RAW, short(readout.raw), tone),
        (DELTA, signed(readout.delta), "plain"),
    ]
    if lens.weight:
        numbers.insert(0, (f"ema {lens.weight:g}", short(readout.smooth), "plain"))
    numbers += _compared(key, sight, lens, length, readout)
    missing = curve.missing
    words = [
        _where(run, sight, lens, cursor),
        f"⚠ {missing} missing" if missing else "",
        "log" if lens.log else "",
        _axis_said(run, sight, lens),
        f"clipped: {counted(off, 'column')} beyond" if off else "clipped" if lens.clip else "",
        _zoom_said(run, lens),
    ]
    return Heading(
        one_line(title(key), 40),
        [number for number in numbers if number[1]],
        known.meaning,
        [word for word in words if word],
    )


def _compared(
    key: str, sight: Sight, lens: Lens, length: int, own: Readout
) -> list[tuple[str, str, str]]:
    """The overlay's number at the same place, and how far the run's own is from it."""
    other = lens.overlay
    if other is None:
        return []
    steps = min(length - other.shift, other.run.series.length)
    if steps < 1 or key not in other.run.series.keys:
        return [("vs", one_line(other.name, 24), "plain"), ("", "–", "plain")]
    there = sight.other_curve(other, key, lens).readout(steps)
    theirs, ours = (there.smooth, own.smooth) if lens.weight else (there.raw, own.raw)
    apart = signed(change(theirs, ours))
    return [(f"{OTHER}{one_line(other.name, 24)}", f"{short(theirs)} {apart}", "plain")]


def _where(run: Run, sight: Sight, lens: Lens, cursor: int | None) -> str:
    if cursor is None:
        return steps_said(run)
    position = run.tree.find(run.series.id_at(cursor))
    name = f"step {cursor + 1}" if position is None else one_line(label(run.tree[position]), 24)
    return f"┊ {name}{sight.x_said(run, lens, cursor)}"


def steps_said(run: Run) -> str:
    """How many steps the curves are long; their last one by name where it has another number."""
    length, head = run.series.length, run.head
    if head is None or head.step in (None, length):
        return f"step {length}"
    return f"{length} steps up to {one_line(label(head), 24)}"


def _axis_said(run: Run, sight: Sight, lens: Lens) -> str:
    if lens.axis is Axis.STEP:
        return ""
    known = sight.axis(run, lens) is lens.axis
    return f"by {lens.axis}" if known else f"by step: no {lens.axis} known"


def _zoom_said(run: Run, lens: Lens) -> str:
    if lens.span is None:
        return ""
    start, stop = lens.rows(run.series.length)
    return f"steps {start + 1}–{stop}"
