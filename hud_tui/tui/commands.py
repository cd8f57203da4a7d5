"""What can be done now, for the help and for the palette: both made from the table of keys."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.dom import DOMNode

from hud_tui.keys import Action, of_view
from hud_tui.tui.screens.over import Leavable

if TYPE_CHECKING:
    from textual.events import Mount
    from textual.screen import Screen
    from textual.types import IgnoreReturnCallbackType


@dataclass(frozen=True)
class Doable:
    """An action, and what has its method."""

    action: Action
    where: DOMNode


def doable(screen: Screen[object]) -> list[Doable]:
    """A screen's actions, and under a view the app's, as far as they can be done now."""
    view: str | None = getattr(screen, "VIEW", None)
    app = screen.app
    found = [Doable(action, screen) for action in of_view(view or "")]
    if screen.focused is not None and hasattr(screen.focused, "action_move"):
        found += [Doable(action, screen.focused) for action in of_view("list")]
    if not screen.is_modal:  # over a view, the app's keys do not work
        found += [Doable(action, app) for action in of_view("app")]
    return [one for one in found if _can(one)]


def _can(one: Doable) -> bool:
    name, _, rest = one.action.name.partition("(")
    parameters = tuple(part.strip("'\" ") for part in rest.rstrip(")").split(",") if part)
    return bool(one.where.check_action(name, parameters))


class Palette(CommandPalette, Leavable[None]):
    """Textual's palette, for keys that come quickly."""

    def on_mount(self, event: Mount) -> None:
        """Where it was left before it was there, Textual's own finds no screen under it."""
        if self not in self.app.screen_stack:
            event.prevent_default()

    def _action_command_list(self, action: str) -> None:
        """Move in the list; before its rows have been laid out, Textual 8.2.8 has a KeyError."""
        with suppress(KeyError, IndexError):
            super()._action_command_list(action)


class ActionCommands(Provider):
    """The palette's commands."""

    def _all(self) -> Iterable[Doable]:
        hidden = ("command_palette", "interrupt")
        return (one for one in doable(self.screen) if one.action.name not in hidden)

    def _title(self, one: Doable) -> str:
        return f"{one.action.label.capitalize()}: {one.action.help}"

    async def discover(self) -> Hits:
        for one in self._all():
            yield DiscoveryHit(self._title(one), self._runner(one), help=one.action.all_shown)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for one in self._all():
            title = self._title(one)
            if (score := matcher.match(title)) > 0:
                yield Hit(score, matcher.highlight(title), self._runner(one), title, _keys(one))

    def _runner(self, one: Doable) -> IgnoreReturnCallbackType:
        return partial(self.app.run_action, one.action.name, one.where)


def _keys(one: Doable) -> str:
    return Content(one.action.all_shown).markup
