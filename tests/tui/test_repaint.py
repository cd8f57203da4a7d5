"""What is rendered and written of the screen where a part of it changed."""

from collections.abc import Iterable
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from hud_tui.tui.repaint import ThinCompositor, ThinUpdate
from hud_tui.tui.widgets.lines import LinesView
from tests.tui import runs
from tests.tui.stage import Stage, staged

PARTS = (
    [Region(3, 2, 1, 1)],
    [Region(0, 0, 120, 1), Region(58, 20, 9, 3)],
    [Region(118, 5, 2, 30), Region(0, 39, 5, 1)],
    [Region(20, 10, 30, 2), Region(40, 11, 30, 2), Region(0, 0, 120, 40)],
)


def written(stage: Stage, part: Iterable[Region], compositor: type[Compositor]) -> str:
    """What is written of a part of the screen that has to be repainted."""
    own = stage.screen._compositor
    own._dirty_regions = set(part)
    update = compositor.render_partial_update(own)
    thin = ThinUpdate.of(update) if isinstance(update, ChopsUpdate) else update
    assert thin is not None
    console = Console(file=StringIO(), force_terminal=True, color_system="truecolor")
    return thin.render_segments(console)


async def test_a_part_of_the_screen_is_written_as_textual_would() -> None:
    async with staged(runs.run_of(60)) as (stage, _):
        for part in PARTS:
            assert written(stage, part, ThinCompositor) == written(stage, part, Compositor)
            assert stage.screen._compositor.render_partial_update() is None


async def test_of_a_part_only_its_lines_of_its_widget_are_rendered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged(runs.run_of(60)) as (stage, _):
        grid = stage.live.groups
        rendered: list[tuple[Widget, int]] = []
        for kind in (Widget, LinesView):
            render = kind.render_lines

            def counted(widget: Any, crop: Region, render: Any = render) -> list[Strip]:
                rendered.append((widget, crop.height))
                return list(render(widget, crop))

            monkeypatch.setattr(kind, "render_lines", counted)
        written(stage, [Region(grid.region.x, grid.region.y + 1, 4, 2)], ThinCompositor)
        assert rendered == [(grid, 2)]


async def test_a_pane_is_drawn_again_where_its_styles_have_changed_and_only_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged(runs.run_of(60)) as (stage, pilot):
        drawn, redraw = list[str](), LinesView.redraw

        def counted(pane: LinesView) -> None:
            drawn.append(type(pane).__name__)
            redraw(pane)

        monkeypatch.setattr(LinesView, "redraw", counted)
        stage.screen.update_node_styles()
        await pilot.pause()
        assert drawn == []
        stage.live.groups.styles.background = "red"
        stage.live.groups.update_node_styles()
        await pilot.pause()
        assert drawn == ["GroupGrid"]
        stage.theme = "textual-light"
        await pilot.pause()
        assert {"GroupGrid", "MetricGrid"} <= {*drawn[1:]}
