"""FilterField: where a list's filter is typed; it is in sight for as long as it has a text."""

from textual.events import Blur, Click
from textual.widgets import Input


class FilterField(Input):
    """It has the focus only where it was asked to: a list that has no rows for a moment, as while
    they are read, would leave the focus to it, and keys that act would be typed."""

    def __init__(self, placeholder: str, id: str) -> None:
        super().__init__(placeholder=placeholder, id=id, compact=True)
        self.can_focus = False

    def focus(self, scroll_visible: bool = True) -> "FilterField":
        """Be typed into, until it is left."""
        self.can_focus = self.display = True
        super().focus(scroll_visible)
        return self

    def on_click(self, event: Click) -> None:
        self.focus()

    def on_blur(self, event: Blur) -> None:
        if self.app.app_focus:  # not where another window has the keys for a while
            self.can_focus = False
