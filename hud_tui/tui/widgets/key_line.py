"""KeyLine: the keys that work here and now, most used first, on one line.

It shows what fits and drops the rest; ``? help`` is always there, and lists them all.
"""

from textual.content import Content
from textual.reactive import reactive
from textual.screen import Screen
from textual.style import Style
from textual.widget import Widget

from hud_tui.tui.keys import Action, of_view

GAP = Content("  ")


class KeyLine(Widget):
    """The bottom line of a view. A click on a key does what the key does."""

    actions: reactive[tuple[Action, ...]] = reactive((), layout=False)
    """The view's actions that can be done now."""

    def __init__(self, view: str) -> None:
        super().__init__()
        self.view = view

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)
        self._bindings_changed(self.screen)

    def _bindings_changed(self, screen: Screen[object]) -> None:
        if screen is self.screen and screen.is_current:
            known = {active.binding.id for active in screen.active_bindings.values()}
            own = (action for action in of_view(self.view) if action.footer)
            self.actions = tuple(action for action in own if action.id in known)

    def render(self) -> Content:
        return key_line(self.actions, self.size.width)


def key_line(actions: tuple[Action, ...], width: int) -> Content:
    """The view's keys at the left, the app's at the right, `width` cells at most."""
    views = [action for action in of_view("app") if action.name.startswith("view(")]
    [help_] = [action for action in of_view("app") if action.name == "help"]
    own = [_key(action) for action in actions]
    wide = _join([*(_key(view) for view in views), _key(help_)])
    narrow = _join([Content.assemble(("1-5", "bold"), (" views", "$text-muted")), _key(help_)])
    right = wide if _width(own) + 4 + wide.cell_length <= width else narrow
    if right.cell_length > width:
        right = _key(help_)
    while own and _width(own) + 2 + right.cell_length > width:
        own.pop()
    left = _join(own)
    return Content.assemble(left, " " * max(0, width - left.cell_length - right.cell_length), right)


def _key(action: Action) -> Content:
    space = "app" if action.view == "app" else "screen"
    shown = Content.assemble((action.shown, "bold"), (f" {action.label}", "$text-muted"))
    return shown.stylize(Style.from_meta({"@click": f"{space}.{action.name}"}))


def _join(keys: list[Content]) -> Content:
    return GAP.join(keys)


def _width(keys: list[Content]) -> int:
    return _join(keys).cell_length if keys else 0
