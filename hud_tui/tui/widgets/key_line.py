"""KeyLine: the keys that work here and now, most used first, on one line.

It shows what fits and drops the rest; ``? help`` is always there, and lists them all.
"""

from collections.abc import Sequence

from textual.content import Content
from textual.events import Click
from textual.reactive import reactive
from textual.screen import Screen
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Input

from hud_tui.keys import WRITES, Action, of_view
from hud_tui.tui.clickable import click, shows_view

GAP = Content("  ")
QUIET = "does"
"""Says in a style what a click does, where that is to look as muted as it is."""


class KeyLine(Widget):
    """The bottom line of a view. A click on a key does what the key does."""

    ALLOW_SELECT = False

    actions: reactive[tuple[Action, ...]] = reactive(())
    """The view's actions that can be done now."""
    typing: reactive[bool] = reactive(False)
    """Whether the focus is in a field, where letters are text."""

    def __init__(self, view: str) -> None:
        super().__init__()
        self.view = view

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)
        self._bindings_changed(self.screen)

    def _bindings_changed(self, screen: Screen[object]) -> None:
        if screen is self.screen and screen.is_current:
            self.typing = isinstance(screen.focused, Input)
            known = {active.binding.id for active in screen.active_bindings.values()}
            own = (action for action in of_view(self.view) if action.footer or self.typing)
            shut = getattr(self.app, "read_only", None) is not None
            can = (action for action in own if not (shut and action.id in WRITES))
            self.actions = tuple(action for action in can if action.id in known)

    async def on_click(self, event: Click) -> None:
        if action := event.style.meta.get(QUIET):
            await self.run_action(action)

    def render(self) -> Content:
        return key_line(self.actions, self.size.width, self.typing)


def key_line(actions: Sequence[Action], width: int, typing: bool = False) -> Content:
    """The view's keys at the left, the app's at the right, `width` cells at most.

    Args:
        actions: The view's, most used first.
        width: Cells of the line.
        typing: Whether letters are text; then only other keys are shown.
    """
    own = [_key(action) for action in actions if not typing or len(action.shown) > 1]
    right = _typing_keys() if typing else _app_keys(width, _width(own) + 4)
    while own and _width(own) + 2 + right.cell_length > width:
        own.pop()
    left = _join(own)
    room = max(0, width - left.cell_length - right.cell_length)
    return Content.assemble(left, " " * room, right)


def _app_keys(width: int, taken: int) -> Content:
    """Every view where there is room for them, else how to reach them, else only the help."""
    app = of_view("app")
    help_ = _join([_key(action) for action in app if action.name == "help"])
    views = [action for action in app if shows_view(action)]
    menu = Content.assemble((_range(views), "bold"), (" views", "$text-muted"))
    folded = _join([menu.stylize(Style.from_meta({QUIET: "app.views"})), help_])
    wide = _join([*map(_key, views), help_])
    if wide.cell_length + taken <= width:
        return wide
    return folded if folded.cell_length <= width else help_


def _range(views: Sequence[Action]) -> str:
    keys = [action.shown for action in views]
    if "".join(keys) in "123456789":
        return f"{keys[0]}-{keys[-1]}"
    return "/".join(keys)


def _help_in_fields() -> str:
    """The help's first key that is no letter: a field would take that."""
    written = next(action.all_shown.split() for action in of_view("app") if action.name == "help")
    return next((key for key in written if len(key) > 1), written[0])


def _typing_keys() -> Content:
    next_ = Content.assemble(("tab", "bold"), (" next", "$text-muted"))
    help_ = Content.assemble((_help_in_fields(), "bold"), (" help", "$text-muted"))
    next_ = next_.stylize(Style.from_meta({QUIET: "app.focus_next"}))
    return _join([next_, help_.stylize(Style.from_meta({QUIET: "app.help"}))])


def _key(action: Action) -> Content:
    shown = Content.assemble((action.shown, "bold"), (f" {action.label}", "$text-muted"))
    return shown.stylize(click(action))


def _join(keys: list[Content]) -> Content:
    return GAP.join(keys)


def _width(keys: list[Content]) -> int:
    return _join(keys).cell_length if keys else 0
