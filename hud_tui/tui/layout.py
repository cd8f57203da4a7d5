"""The layout of the app, restored at the next start; stored in a JSON file.

One file per account of a service. Missing fields have their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
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

FILE = "charts"
MOST = 2000
"""Maximum number of metric names stored."""


@dataclass(frozen=True)
class Choices:
    """The user's choices for the charts. Metrics without a choice are shown, after the others."""

    order: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    smoothing: int = 2
    log: bool = False
    axis: Axis = Axis.STEP
    clip: bool = False
    envelope: bool = True

    @property
    def chart_view(self) -> ChartView:
        return ChartView(self.smoothing, self.log, self.axis, self.clip, self.envelope)

    def seen_through(self, chart_view: ChartView) -> Choices:
        """The same charts with this view's smoothing, scales and axis."""
        return replace(
            self,
            smoothing=chart_view.smoothing,
            log=chart_view.log,
            axis=chart_view.axis,
            clip=chart_view.clip,
            envelope=chart_view.envelope,
        )

    def arranged(self, keys: Sequence[str]) -> list[str]:
        """All metrics of a run: those that the user has ordered first, then the others by rank."""
        places = {key: place for place, key in enumerate(self.order)}
        known = sorted((key for key in keys if key in places), key=places.__getitem__)
        return known + ranked([key for key in keys if key not in places])

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

    def moved(self, keys: Sequence[str], key: str, places: int) -> Choices:
        """With this metric moved by `places`, later if positive."""
        order = self.arranged(keys)
        here = order.index(key)
        order.insert(max(0, min(len(order) - 1, here + places)), order.pop(here))
        return replace(self, order=tuple(order)[:MOST])


def read_choices(store: JsonStore) -> Choices:
    """Read the stored choices; an invalid field gets its default."""
    found = store.read(FILE)
    good = {name: found[name] for name, (check, _) in _FIELDS.items() if check(found.get(name))}
    if bad := [name for name in found if name in _FIELDS and name not in good]:
        store.leave(FILE, f"{bad[0]}: expected {_FIELDS[bad[0]][1]}")
    names = {name: _names(good.pop(name, ())) for name in ("order", "hidden")}
    return Choices(**{**good, **names, "axis": Axis(good.get("axis", Axis.STEP))})


def write_choices(store: JsonStore, choices: Choices, before: Choices | None = None) -> None:
    """Store the choices that changed since `before`; another app may have changed the others."""
    was = {} if before is None else asdict(before)
    now = asdict(choices)
    store.write(
        FILE, {name: now[name] for name in now if name not in was or was[name] != now[name]}
    )


def _names(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value))[:MOST]


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_smoothing(value: object) -> bool:
    return type(value) is int and 0 <= value < len(WEIGHTS)


_FIELDS: dict[str, tuple[Callable[[object], bool], str]] = {
    **dict.fromkeys(("order", "hidden"), (_are_names, "a list of metrics' names")),
    **dict.fromkeys(("log", "clip", "envelope"), (_is_flag, "true or false")),
    "smoothing": (_is_smoothing, f"a number from 0 to {len(WEIGHTS) - 1}"),
    "axis": (list(Axis).__contains__, f"one of {', '.join(Axis)}"),
}
"""What each field has to be."""


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
    """Id of the last selected model; empty if there was none."""
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
    """Unfolded parts of the tree, by model id."""
    pane: Literal["metrics", "groups", "events"] = "metrics"
    """The focused pane in Live."""
    full_pane: bool = False
    """Whether that pane fills the view."""
    chart: Line = "reward_mean"
    """Metric of the large chart, if the run has it."""
    face: Face = Face.REWARDS
    """Content of the groups pane."""
    order: Order = Order.SIGNAL


def file_name(scope: str) -> str:
    return f"layout-{scope}"


def read_layout(store: JsonStore, scope: str) -> Layout:
    """Read the stored layout; defaults and a warning if it is invalid."""
    try:
        return TypeAdapter(Layout).validate_python(store.read(file_name(scope)))
    except ValidationError as error:
        first = error.errors()[0]
        where = one_line(".".join(map(str, first["loc"])), 60)
        store.leave(file_name(scope), f"{where}: {one_line(first['msg'], 120)}")
        return Layout()


def write_layout(store: JsonStore, scope: str, layout: Layout, before: Layout) -> None:
    """Store what changed since `before`; another app may have changed the rest."""
    was = asdict(before)
    changed = {name: value for name, value in asdict(layout).items() if was[name] != value}
    store.write(file_name(scope), changed)


class LayoutStore:
    """The layout of one account's app, stored whenever it changes."""

    def __init__(self, store: JsonStore, scope: str | None) -> None:
        """
        Args:
            store: Where to store it.
            scope: Name of the service's account; None to store nothing.
        """
        self._store, self._scope = store, scope
        self.now = Layout() if scope is None else read_layout(store, scope)
        self.edition = 0
        """Incremented when the layout is reset."""

    def arrange(self, **changes: Any) -> None:
        """Change fields of the `Layout`, and store them."""
        self._change(replace(self.now, **changes))

    def reset(self) -> None:
        """Reset the layout, except for the selected model and view."""
        was = self.now
        self._change(Layout(model=was.model, model_name=was.model_name, view=was.view))
        write_choices(self._store, Choices())
        self.edition += 1

    def _change(self, layout: Layout) -> None:
        before, self.now = self.now, layout
        if self._scope is not None and layout != before:
            write_layout(self._store, self._scope, layout, before)
