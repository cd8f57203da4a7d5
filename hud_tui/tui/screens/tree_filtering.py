"""TreeFiltering: the field in which the tree is filtered."""

from __future__ import annotations

from textual import on
from textual.content import Content
from textual.widgets import Input

from hud_tui.errors import HudUsage
from hud_tui.rl.filter import Predicate, parse
from hud_tui.rl.series import metrics_of
from hud_tui.tui.screens.tree_view import TreeView

LIVE_FILTER = 5000
"""Checkpoints up to which the filter acts with each key; above, on Enter."""


class TreeFiltering(TreeView):
    def __init__(self) -> None:
        super().__init__()
        self._misread = False
        """Whether what the line says is that the filter cannot be read."""
        self._good: Predicate | None = None
        """The last filter that let something through."""

    def action_filter(self) -> None:
        self.filter_field.focus()

    def action_leave(self) -> None:
        """Esc: out of the filter's field, then the filter, then the details' focus."""
        if self.focused is self.filter_field:
            self.tree_list.focus()
        elif self.filter_field.value:
            self.filter_field.value = ""
            self._filter()
        else:
            self.tree_list.focus()
            self.say(Content())
        self.filter_field.display = bool(self.filter_field.value)

    @on(Input.Changed, "#tree-filter")
    def _typed(self) -> None:
        if len(self.run.tree) <= LIVE_FILTER:
            self._filter()

    @on(Input.Submitted, "#tree-filter")
    def _submitted(self) -> None:
        if self._filter():
            self.tree_list.focus()
            self.filter_field.display = bool(self.filter_field.value)

    def _filter(self) -> bool:
        """List what the field says; where that cannot be read, say why and list what was."""
        self.hud.arrange(tree_filter=self.filter_field.value)
        text, tree = self.filter_field.value.strip(), self.tree_list
        try:
            keep = self._read(text) if text else None
        except HudUsage as error:
            self._misread = True
            tree.filter(self._good)
            self.warn(f"{error.message}; {error.hint}")
            return False
        tree.filter(keep)
        if keep is None or len(tree.rows):
            self._good = keep
        self.say(Content() if self._misread else None)
        self._misread = False
        return True

    def _read(self, text: str) -> Predicate:
        tree = self.run.tree
        newest = metrics_of(tree[len(tree) - 1]) if len(tree) else {}
        metrics = {*self.run.series.keys, *newest}
        return parse(text, metrics, self.hud.notebook.notes, self.run.alarms.onsets)
