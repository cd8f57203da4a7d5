"""A metric's curve as SVG: small, the same for the same numbers, and legible on any page.

The picture brings its own paper, light or dark as the reader prefers, so that no page can
make its lines vanish. A line is a bias-corrected moving average over the range of the raw
values; a metric that only some steps have is drawn as it is.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from statistics import median

from hud_tui.rl.axis import Axis, marks
from hud_tui.rl.scale import Scale, fit
from hud_tui.rl.smoothing import Ema
from hud_tui.rl.text import one_line

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 60, 16, 34, 26
"""Room around the curves, in pixels."""
MOST = 330
"""Points of a line; two pixels each."""
WEIGHT = 0.8
"""Of the past in each step of the average."""
LETTER = 7.3
"""Pixels of a letter, about."""
SMOOTHED_FROM = 20
"""Steps from which there is something to average."""
STYLE = """\
.p{fill:#fff}.i{fill:#1f2328;font-weight:bold}.f{fill:#59636e}.g{stroke:#d1d9e0}.a{stroke:#0969da}.b{stroke:#bc4c00}
.ea{fill:#0969da}.eb{fill:#bc4c00}.m{stroke:#cf222e}.t{fill:#cf222e}
@media(prefers-color-scheme:dark){.p{fill:#0d1117}.i{fill:#f0f6fc}.f{fill:#9198a1}.g{stroke:#3d444d}
.a{stroke:#58a6ff}.b{stroke:#f0883e}.ea{fill:#58a6ff}.eb{fill:#f0883e}.m{stroke:#ff7b72}.t{fill:#ff7b72}}
text{font:12px ui-monospace,Menlo,Consolas,monospace}.l{fill:none;stroke-width:1.6}"""
_INVALID = re.compile(r"[\ufffe\uffff]")


@dataclass(frozen=True)
class Line:
    """One metric."""

    name: str
    values: Sequence[float]
    """One a step, shape (N,); NaN where a step has none."""


@dataclass(frozen=True)
class Mark:
    """An upright line at a step."""

    row: int
    """From 0."""
    text: str


@dataclass(frozen=True)
class Point:
    """Some steps of a line, drawn as one point."""

    row: int
    """The last of them that has a number."""
    low: float
    high: float
    value: float


def chart(title: str, about: str, lines: Sequence[Line], at: Sequence[Mark] = ()) -> str:
    """Draw one line or two over the same steps.

    Args:
        title: What stands above it.
        about: What it shows, for who cannot see it.
        lines: Of the same length; those without any number are left out.
        at: Steps to be pointed out.
    """
    drawn = [(line, points(line.values)) for line in lines]
    drawn = [(line, found) for line, found in drawn if found]
    lows = [point.low for _, found in drawn for point in found]
    highs = [point.high for _, found in drawn for point in found]
    steps = max((len(line.values) for line, _ in drawn), default=1)
    scale = fit(min(lows), max(highs), intervals=4) if drawn else fit(0.0, 1.0, intervals=4)
    plot = Plot(scale, steps)
    named = list(zip("ab", drawn, strict=False))
    body = [
        f'<rect class="p" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        *plot.frame(),
        *(part for mark in at for part in plot.mark(mark)),
        *(part for name, (_, found) in named for part in plot.line(name, found)),
        *_names(title, [line.name for line, _ in drawn] if len(drawn) > 1 else []),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img">\n'
        f"<title>{xml(title)}</title>\n<desc>{xml(about)}</desc>\n<style>{STYLE}</style>\n"
        + "\n".join(body)
        + "\n</svg>\n"
    )


def points(values: Sequence[float]) -> list[Point]:
    """A line in at most MOST points, each with the range of its steps."""
    known = sum(map(isfinite, values))
    smooth = known >= max(SMOOTHED_FROM, len(values) / 2)
    average = Ema(WEIGHT if smooth else 0.0)
    average.extend(values, len(values))
    count = min(len(values), MOST)
    edges = [place * len(values) // count for place in range(count + 1)] if count else []
    found = []
    for start, stop in pairwise(edges):
        rows = [row for row in range(start, stop) if isfinite(values[row])]
        if rows:
            part = [values[row] for row in rows]
            value = average.at(values, rows[-1])
            found.append(Point(rows[-1], min(*part, value), max(*part, value), value))
    return found


@dataclass(frozen=True)
class Plot:
    """Where steps and values stand."""

    scale: Scale
    steps: int

    def x(self, row: int) -> str:
        share = row / (self.steps - 1) if self.steps > 1 else 0.5
        return _px(LEFT + share * (WIDTH - LEFT - RIGHT))

    def y(self, value: float) -> str:
        return _px(HEIGHT - BOTTOM - self.scale.share(value) * (HEIGHT - TOP - BOTTOM))

    def frame(self) -> Iterator[str]:
        """The grid and what its lines are worth."""
        for tick, said in zip(self.scale.ticks, self.scale.labels, strict=True):
            y = self.y(tick)
            yield f'<path class="g" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>'
            yield _text("f", LEFT - 8, float(y) + 4, "end", said)
        for step, said in marks(Axis.STEP, 1, self.steps, 8):
            yield _text("f", float(self.x(round(step) - 1)), HEIGHT - 8, "middle", said)

    def mark(self, mark: Mark) -> Iterator[str]:
        x, foot = self.x(mark.row), HEIGHT - BOTTOM
        yield f'<path class="m" stroke-dasharray="3 3" d="M{x} {TOP}V{foot}">'
        yield f"<title>{xml(mark.text)}</title></path>"
        yield f'<path class="t" d="M{x} {TOP}l7 4-7 4z"/>'

    def line(self, name: str, found: Sequence[Point]) -> Iterator[str]:
        """The range behind the line, and the line; a step alone is a dot."""
        for part in _unbroken(found):
            top = [f"{self.x(p.row)} {self.y(p.high)}" for p in part]
            foot = [f"{self.x(p.row)} {self.y(p.low)}" for p in reversed(part)]
            if any(point.low < point.high for point in part):
                edge = "L".join(top + foot)
                yield f'<path class="e{name}" fill-opacity=".18" d="M{edge}Z"/>'
            places = [f"{self.x(point.row)} {self.y(point.value)}" for point in part]
            yield f'<path class="l {name}" d="M{"L".join(places)}"/>'
            if len(part) == 1:
                x, y = places[0].split()
                yield f'<circle class="e{name}" cx="{x}" cy="{y}" r="2.5"/>'


def _unbroken(found: Sequence[Point]) -> list[list[Point]]:
    """The parts of a line between its gaps: where far more is missing than is usual for it."""
    apart = [later.row - point.row for point, later in pairwise(found)]
    most = 2.5 * median(apart) if apart else 0
    parts = [[found[0]]]
    for gap, point in zip(apart, found[1:], strict=True):
        if gap > most:
            parts.append([])
        parts[-1].append(point)
    return parts


def _names(title: str, names: Sequence[str]) -> Iterator[str]:
    yield _text("i", LEFT, 22, "start", title)
    x = float(WIDTH - RIGHT)
    for name, said in reversed(list(zip("ab", names, strict=False))):
        yield _text(f"e{name}", x, 22, "end", said)
        x -= LETTER * (len(said) + 2)


def _text(kind: str, x: float, y: float, anchor: str, said: str) -> str:
    place = f'x="{_px(x)}" y="{_px(y)}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{xml(said)}</text>'


def xml(text: object) -> str:
    """A text inside an element."""
    safe = allowed(one_line(text, 200))
    return safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def allowed(text: str) -> str:
    """A text without the characters that no XML may have, where control characters are gone."""
    return _INVALID.sub("?", text)


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
