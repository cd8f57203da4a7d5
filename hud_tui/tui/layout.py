"""The layout of the app, restored at the next start; stored in a JSON file.

One file per account of a service. Missing fields have their defaults.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from hud_tui.keys import VIEWS
from hud_tui.rl.axes import Axis
from hud_tui.rl.compare import ChartView
from hud_tui.rl.curves import WEIGHTS
from hud_tui.rl.groups import Order
from hud_tui.rl.metrics import ranked
from hud_tui.rl.text import one_line
from hud_tui.storage import JsonStore
from hud_tui.tui.widgets.group_grid import Face
from hud_tui.wire import adapter

FILE = "charts"
MOST = 2000
"""Maximum number of metric names stored."""
SEEN = ("smoothing", "log", "axis", "clip", "envelope")
"""The choices that are a chart view's."""
Names = Annotated[tuple[str, ...], AfterValidator(lambda names: tuple(dict.fromkeys(names))[:MOST])]
Switch = Annotated[bool, Field(strict=True)]


@dataclass(frozen=True)
class Choices:
    """The user's choices for the charts. Metrics without a choice are shown, after the others."""

    order: Names = ()
    hidden: Names = ()
    smoothing: Annotated[int, Field(strict=True, ge=0, lt=len(WEIGHTS))] = 2
    log: Switch = False
    axis: Axis = Axis.STEP
    clip: Switch = False
    envelope: Switch = True

    @property
    def chart_view(self) -> ChartView:
        return ChartView(**{name: getattr(self, name) for name in SEEN})

    def seen_through(self, chart_view: ChartView) -> Choices:
        """The same charts with this view's smoothing, scales and axis."""
        return replace(self, **{name: getattr(chart_view, name) for name in SEEN})

    def arranged(self, keys: Sequence[str]) -> list[str]:
        """All metrics of a run: those that the user has ordered first, then the others by rank."""
        ordered = [key for key in self.order if key in keys]
        return ordered + ranked([key for key in keys if key not in ordered])

    def shown(self, keys: Sequence[str]) -> list[str]:
        """The metrics that are not hidden; all of them if none would be left."""
        arranged, hidden = self.arranged(keys), set(self.hidden)
        return [key for key in arranged if key not in hidden] or arranged

    def unchosen(self) -> Choices:
        """All charts in their default order."""
        return replace(self, order=(), hidden=())

    def toggled(self, key: str) -> Choices:
        """With this metric's visibility toggled."""
        if key in self.hidden:
            return replace(self, hidden=tuple(name for name in self.hidden if name != key))
        return replace(self, hidden=(*self.hidden, key)[-MOST:])

    def moved(self, keys: Sequence[str], key: str, steps: int) -> Choices:
        """With this metric moved by `steps`, later if positive."""
        order = self.arranged(keys)
        here = order.index(key)
        order.insert(max(0, min(len(order) - 1, here + steps)), order.pop(here))
        return replace(self, order=tuple(order)[:MOST])


Line = Annotated[str, Field(max_length=1000)]
Runs = Annotated[tuple[tuple[Line, Line], ...], Field(max_length=200)]
"""Ids of the oldest and the newest checkpoint of each run of steps."""


def _known(view: str) -> str:
    if view not in VIEWS:
        raise PydanticCustomError("view", f"expected one of {', '.join(VIEWS)}")
    return view


View = Annotated[str, AfterValidator(_known)]


@dataclass(frozen=True)
class Layout:
    model: Line = ""
    model_name: Line = ""
    view: View = "live"
    models_filter: Line = ""
    jobs_filter: Line = ""
    runs_filter: Line = ""
    runs_columns: Line = ""
    """As `hud_tui.rl.run_columns.columns` parses it; `runs_sort` and `runs_group` likewise."""
    runs_sort: Line = ""
    runs_group: Line = ""
    tree_filter: Line = ""
    details: bool | None = None
    """Whether a checkpoint's details are shown; None: if there is space."""
    unfolded: Annotated[dict[Line, Runs], Field(max_length=20)] = field(default_factory=dict)
    """Unfolded parts of the tree, by model id; of a model that is not here, as there is room."""
    pane: Literal["metrics", "groups", "events"] = "metrics"
    """The focused pane in Live."""
    full_pane: bool = False
    """Whether that pane fills the view."""
    chart: Line = "reward_mean"
    """Metric of the large chart, if the run has it."""
    face: Face = Face.REWARDS
    order: Order = Order.SIGNAL


# Reading and writing them.


T = TypeVar("T", Choices, Layout)


def read_valid(store: JsonStore, file: str, kind: type[T]) -> T:
    """What is stored; an invalid field has its default, and is told of."""
    stored, validator = store.read(file), adapter(cast(Hashable, kind))
    try:
        return cast(T, validator.validate_python(stored))
    except ValidationError as error:
        errors = error.errors()
    where = one_line(".".join(map(str, errors[0]["loc"])), 60)
    store.leave(file, f"{where}: {one_line(errors[0]['msg'], 120)}")
    invalid = {each["loc"][0] for each in errors}
    valid = {name: value for name, value in stored.items() if name not in invalid}
    return cast(T, validator.validate_python(valid))


def write_changes(store: JsonStore, file: str, now: T, before: T | None = None) -> None:
    """Store what changed since `before`; another app may have changed the rest."""
    was: dict[str, object] = {} if before is None else asdict(before)
    changed = {k: value for k, value in asdict(now).items() if k not in was or was[k] != value}
    store.write(file, changed)


def read_choices(store: JsonStore) -> Choices:
    return read_valid(store, FILE, Choices)


class LayoutStore:
    """The layout of one account's app, stored whenever it changes."""

    def __init__(self, store: JsonStore, scope: str | None) -> None:
        """`scope`: name of the service's account; None to store nothing."""
        self._store = store
        self._file = None if scope is None else f"layout-{scope}"
        self.now = Layout() if self._file is None else read_valid(store, self._file, Layout)
        self.edition = 0
        """Incremented when the layout is reset."""

    def arrange(self, **changes: Any) -> None:
        self._change(replace(self.now, **changes))

    def reset(self) -> None:
        """Reset the layout, except for the selected model and view."""
        was = self.now
        self._change(Layout(model=was.model, model_name=was.model_name, view=was.view))
        write_changes(self._store, FILE, Choices())
        self.edition += 1

    def _change(self, layout: Layout) -> None:
        before, self.now = self.now, layout
        if self._file is not None and layout != before:
            write_changes(self._store, self._file, layout, before)
