"""Bindings: the table of keys as Textual has it. What a keymap changes, Textual does by id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.binding import Binding, BindingType

from hud_tui.keys import ACTIONS, remap

if TYPE_CHECKING:
    from textual.app import App

    from hud_tui.keymap import Keymap


def bindings(view: str) -> list[BindingType]:
    """The bindings of one view, of the app, or of a common widget."""
    return [
        Binding(
            action.keys,
            action.name,
            action.label,
            show=action.footer,
            priority=action.priority,
            id=action.id,
        )
        for action in ACTIONS
        if action.view == view
    ]


def use_keymap(app: App[None], keymap: Keymap) -> None:
    """Other keys, in this app and in all that is said of keys; before it runs."""
    remap(keymap)
    app.set_keymap(keymap)
