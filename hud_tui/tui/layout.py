"""Layout: how the app was left, so that the next one opens like it; kept on the shelf.

One file an account of a service. What it does not name is as it comes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from hud_tui.rl.group_rows import Order
from hud_tui.rl.text import one_line
from hud_tui.tui.shelf import Shelf
from hud_tui.tui.widgets.group_grid import Face

Line = Annotated[str, Field(max_length=1000)]
Runs = Annotated[tuple[tuple[Line, Line], ...], Field(max_length=200)]
"""The ids of the oldest and the newest checkpoint of each."""


@dataclass(frozen=True)
class Layout:
    model: Line = ""
    """Id of the model that was followed last; empty where none was."""
    model_name: Line = ""
    view: Literal["models", "launch", "live", "checkpoints", "jobs", "alarms"] = "live"
    models_filter: Line = ""
    jobs_filter: Line = ""
    tree_filter: Line = ""
    details: bool | None = None
    """Whether a checkpoint's details are seen; None where there is room."""
    unfolded: Annotated[dict[Line, Runs], Field(max_length=20)] = field(default_factory=dict)
    """Straight runs of the tree that are shown step by step, by the model's id."""
    pane: Literal["metrics", "groups", "events"] = "metrics"
    """The one that has the focus in Live."""
    full_pane: bool = False
    """Whether it has all of the view."""
    chart: Line = "reward_mean"
    """The metric of the large chart, where the run has it."""
    face: Face = Face.REWARDS
    """What the groups' pane shows."""
    order: Order = Order.TASK


def file_name(scope: str) -> str:
    """The name on the shelf of an account's layout."""
    return f"layout-{scope}"


def read_layout(shelf: Shelf, scope: str) -> Layout:
    """What was kept; the defaults where it makes no sense, which is said."""
    try:
        return TypeAdapter(Layout).validate_python(shelf.read(file_name(scope)))
    except ValidationError as error:
        first = error.errors()[0]
        where = one_line(".".join(map(str, first["loc"])), 60)
        shelf.leave(file_name(scope), f"{where}: {one_line(first['msg'], 120)}")
        return Layout()


def write_layout(shelf: Shelf, scope: str, layout: Layout, before: Layout) -> None:
    """Keep what is not as it was `before`; the rest may be another app's, and stays."""
    was = asdict(before)
    changed = {name: value for name, value in asdict(layout).items() if was[name] != value}
    shelf.write(file_name(scope), changed)
