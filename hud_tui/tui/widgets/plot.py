"""Plot: one figure by plotext, as lines of styled text.

plotext is loaded when the first figure is drawn. It gets shares of the plot's area and
not the data, so no value is too large for it and it has nothing left to scale.

Source: plotext 5.3; its figure is one global, so two are never drawn at a time.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.segment import Segment
from rich.style import Style

LABEL = 5
"""Least cells of the labels left of the y axis, so that the plot does not move with them."""
_ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")
_COLOUR = re.compile(r"(?:^|;)38;5;(\d+)$")


@dataclass(frozen=True)
class Signal:
    """One line of the figure; NaN in `ys` breaks it."""

    xs: Sequence[float]
    """In dots from the left, two a cell."""
    ys: Sequence[float]
    """From 0 at the foot to 1 at the top."""
    style: Style


Tick = tuple[float, str]
"""(place, label): in dots on the x axis, a share on the y axis."""


def area(width: int, labels: Sequence[str]) -> int:
    """Cells across that a figure of `width` has for its curves."""
    return max(1, width - label_width(labels) - 1)


def label_width(labels: Sequence[str]) -> int:
    """Cells that the y axis' labels take."""
    return max(LABEL, *map(len, labels)) if labels else LABEL


def plot(
    signals: Sequence[Signal],
    x_ticks: Sequence[Tick],
    y_ticks: Sequence[Tick],
    width: int,
    height: int,
    axis: Style,
) -> list[list[Segment]]:
    """Draw a figure of `width` × `height` cells, its axes at the left and below included."""
    import plotext

    figure: Any = plotext
    figure.clear_figure()
    figure.limit_size(False, False)
    figure.theme("clear")
    figure.plotsize(width, height)
    for colour, signal in enumerate(signals, start=1):
        figure.plot(signal.xs, signal.ys, marker="braille", color=colour)
    labels = [label for _, label in y_ticks]
    figure.xlim(0, 2 * area(width, labels) - 1)
    figure.ylim(0, 1)
    figure.xticks([place for place, _ in x_ticks], [label for _, label in x_ticks])
    wide = label_width(labels)
    figure.yticks([place for place, _ in y_ticks], [label.rjust(wide) for label in labels])
    figure.xaxes(True, False)
    figure.yaxes(True, False)
    styles = {str(colour): signal.style for colour, signal in enumerate(signals, start=1)}
    return [segments(text, styles, axis) for text in figure.build().splitlines()[:height]]


def segments(text: str, styles: Mapping[str, Style], plain: Style) -> list[Segment]:
    """One line of text with escape sequences as styled text without any.

    Args:
        text: As plotext builds it.
        styles: What to draw instead of each of its colours, by number.
        plain: The style of all else.
    """
    found, style = [], plain
    for place, part in enumerate(_ESCAPE.split(text)):
        if place % 2:
            colour = _COLOUR.search(part)
            style = styles.get(colour[1], plain) if colour else plain
        elif part:
            found.append(Segment(part, style))
    return found
