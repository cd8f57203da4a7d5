"""A plot in cells with axes, crosshair and flags.

plotext draws the axes. It gets shares of the plot's area instead of the data, so no value is too
large for it and it does no scaling; the axes are drawn again only when a label moves.

Source: plotext 5.3; its figure is one global, so two are never drawn at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import plotext
from rich.style import Style
from textual.strip import Strip

from hud_tui.rl.plot import BLANK, CROSSHAIR, Plot, Sketch, Span, Tick, crossed, put
from hud_tui.tui.widgets.lines import line

LABEL = 5
"""Least width of the y axis' labels, cells, so that the plot stays in place."""
AXIS_ROWS = 2
AXES, POINTER = "axes", "pointer"
"""Names of the styles of the axes and of the crosshair's foot."""
FIGURE_TONES = {BLANK: "plain", CROSSHAIR: "dim", AXES: "dim", POINTER: "strong"}
"""The tone of each part of a figure but its layers and flags."""
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class PlotFigure:
    """A plot with its axes."""

    plot: Plot
    rows: Sequence[Sequence[Span]]
    """Top first; the last two are the x axis and its labels."""
    left: int
    """Cells of the y axis and its labels."""

    @property
    def cells(self) -> int:
        return self.plot.columns // 2

    def flagged(self) -> PlotFigure:
        *body, axis, labels = self.rows
        for flag in self.plot.flags:
            axis = put(axis, self.left + flag.column // 2, Span(flag.glyph, flag.name))
        return replace(self, rows=[*body, axis, labels])

    def pointed(self, cell: int | None) -> PlotFigure:
        """The figure with the crosshair in a cell of the curves; None for nowhere."""
        if cell is None:
            return self
        *body, axis, labels = self.rows
        body = [crossed(row, self.left + cell) for row in body]
        axis = put(axis, self.left + cell, Span("▲", POINTER))
        return replace(self, rows=[*body, axis, labels])


def figure(
    sketch: Sketch, plot_of: Callable[[int, int], Plot], width: int, height: int
) -> PlotFigure:
    """A plot with its axes, in `width` cells and `height` > AXIS_ROWS rows. `plot_of` makes the
    plot for so many cells and rows; it may be called twice: the scale's labels take room."""
    rows = height - AXIS_ROWS
    plot = plot_of(_area(width, []), rows)
    room = _area(width, plot.scale.labels)
    if 2 * room != plot.columns:
        plot = plot_of(room, rows)
    drawn = axes(tuple(plot.x_ticks), tuple(plot.y_ticks), width, height)
    left = width - plot.columns // 2
    bodies = zip(drawn, sketch.cells(plot, rows), strict=False)
    body = [[Span(text[:left], AXES), *spans] for text, spans in bodies]
    return PlotFigure(plot, [*body, *([Span(text, AXES)] for text in drawn[rows:])], left)


@lru_cache(32)
def axes(
    x_ticks: tuple[Tick, ...], y_ticks: tuple[Tick, ...], width: int, height: int
) -> tuple[str, ...]:
    """The lines of an empty figure of `width` × `height` cells."""
    drawing: Any = plotext
    labels = [label for _, label in y_ticks]
    wide = _label_width(labels)
    drawing.clear_figure()
    drawing.limit_size(False, False)
    drawing.theme("clear")
    drawing.plotsize(width, height)
    drawing.plot([0], [0], marker=" ")  # without any point plotext draws no axes
    drawing.xlim(0, 1)
    drawing.ylim(0, 1)
    drawing.xticks([x for x, _ in x_ticks], [label for _, label in x_ticks])
    drawing.yticks([y for y, _ in y_ticks], [label.rjust(wide) for label in labels])
    drawing.xaxes(True, False)
    drawing.yaxes(True, False)
    return tuple(_ESCAPE.sub("", drawing.build()).splitlines()[:height])


def _area(width: int, labels: Sequence[str]) -> int:
    return max(1, width - _label_width(labels) - 1)


def _label_width(labels: Sequence[str]) -> int:
    return max(LABEL, *map(len, labels)) if labels else LABEL


def styled(row: Sequence[Span], styles: Mapping[str, Style]) -> Strip:
    """A row of spans as a strip; `styles` by name."""
    return line(*((span.text, styles[span.name]) for span in row))
