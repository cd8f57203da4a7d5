"""Choices: which charts are shown, in which order, and how; kept on the shelf."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hud_tui.rl.axis import Axis
from hud_tui.rl.metrics import ranked
from hud_tui.rl.smoothing import WEIGHTS
from hud_tui.tui.shelf import Shelf
from hud_tui.tui.widgets.lens import Lens

FILE = "charts"
MOST = 2000
"""Names of metrics that are remembered."""


@dataclass(frozen=True)
class Choices:
    """Of metrics that were never chosen nothing is kept: they come last, and are shown."""

    order: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    smoothing: int = 2
    log: bool = False
    axis: Axis = Axis.STEP
    clip: bool = False
    envelope: bool = True

    @property
    def lens(self) -> Lens:
        return Lens(self.smoothing, self.log, self.axis, self.clip, self.envelope)

    def seen_through(self, lens: Lens) -> Choices:
        """The same charts, looked at like this."""
        return replace(
            self,
            smoothing=lens.smoothing,
            log=lens.log,
            axis=lens.axis,
            clip=lens.clip,
            envelope=lens.envelope,
        )

    def arranged(self, keys: Sequence[str]) -> list[str]:
        """All of a run's metrics: those once put in order first, then the others by rank."""
        places = {key: place for place, key in enumerate(self.order)}
        known = sorted((key for key in keys if key in places), key=places.__getitem__)
        return known + ranked([key for key in keys if key not in places])

    def shown(self, keys: Sequence[str]) -> list[str]:
        """Those that are not hidden; all where none would be left."""
        arranged, hidden = self.arranged(keys), set(self.hidden)
        return [key for key in arranged if key not in hidden] or arranged

    def unchosen(self) -> Choices:
        """All charts, in the order they come in."""
        return replace(self, order=(), hidden=())

    def toggled(self, key: str) -> Choices:
        """With this metric hidden; or shown again."""
        if key in self.hidden:
            return replace(self, hidden=tuple(name for name in self.hidden if name != key))
        return replace(self, hidden=(*self.hidden, key)[-MOST:])

    def moved(self, keys: Sequence[str], key: str, places: int) -> Choices:
        """With this metric so many places later, or earlier where below 0."""
        order = self.arranged(keys)
        here = order.index(key)
        order.insert(max(0, min(len(order) - 1, here + places)), order.pop(here))
        return replace(self, order=tuple(order)[:MOST])


def read_choices(shelf: Shelf) -> Choices:
    """What was kept; of a field that makes no sense its default."""
    found, default = shelf.read(FILE), Choices()
    smoothing = found.get("smoothing")
    if type(smoothing) is not int or not 0 <= smoothing < len(WEIGHTS):
        smoothing = default.smoothing
    axis = found.get("axis")
    return Choices(
        order=_names(found.get("order")),
        hidden=_names(found.get("hidden")),
        smoothing=smoothing,
        log=_flag(found, "log", default.log),
        axis=Axis(axis) if axis in list(Axis) else default.axis,
        clip=_flag(found, "clip", default.clip),
        envelope=_flag(found, "envelope", default.envelope),
    )


def write_choices(shelf: Shelf, choices: Choices) -> None:
    shelf.write(FILE, asdict(choices))


def _names(value: Any) -> tuple[str, ...]:
    found: Iterable[Any] = value if isinstance(value, list) else ()
    return tuple(dict.fromkeys(name for name in found if isinstance(name, str)))[:MOST]


def _flag(found: dict[str, Any], name: str, default: bool) -> bool:
    value = found.get(name)
    return value if isinstance(value, bool) else default
