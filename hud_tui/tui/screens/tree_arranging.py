"""TreeArranging: what is seen of the tree, the filter and what is folded, is kept."""

from __future__ import annotations

from collections.abc import Mapping

from textual import on

from hud_tui.rl.lanes import Lanes
from hud_tui.tui.screens.tree_filtering import TreeFiltering
from hud_tui.tui.widgets.tree import CheckpointTree

MODELS = 20
"""Models whose folds are remembered."""
RUNS = 200
"""Unfolded runs that are remembered of each, the newest."""


class TreeArranging(TreeFiltering):
    """It is laid out once its model's tree is there: a filter may ask for the run's metrics."""

    def __init__(self) -> None:
        super().__init__()
        self._arranged_for: str | None = None
        """Id of the model whose tree is laid out as it was left."""
        self._folds: tuple[Lanes | None, int] = (None, 0)
        """The lanes, and the edition of their folds that is kept."""

    def lay_out(self) -> None:
        super().lay_out()
        self._show_details_pane()
        self._arranged_for = None
        self._arrange()

    @on(CheckpointTree.Moved)
    def _arrange(self) -> None:
        """Lay a tree out that has just come; of one that was, keep what is folded."""
        model = self.run.model
        lanes = self.tree_list.lanes
        if model is None or not len(lanes.tree):
            return
        if self._arranged_for != model.id or lanes is not self._folds[0]:
            self._arranged_for = model.id
            self._lay_out_tree(model.id)
            self._folds = (lanes, lanes.edition)
        elif self._folds[1] != lanes.edition:
            self._folds = (lanes, lanes.edition)
            self._keep_folds(model.id)

    def _lay_out_tree(self, model_id: str) -> None:
        kept = self.hud.layout
        self.filter_field.value = kept.tree_filter
        self.filter_field.display = bool(kept.tree_filter)
        self._filter()
        self.tree_list.unfold_only(kept.unfolded.get(model_id, ()))

    def _keep_folds(self, model_id: str) -> None:
        others: Mapping[str, object] = self.hud.layout.unfolded
        newest = [item for item in others.items() if item[0] != model_id][1 - MODELS :]
        runs = tuple(self.tree_list.cursor.unfolded)[-RUNS:]
        self.hud.arrange(unfolded=dict([*newest, (model_id, runs)] if runs else newest))

    def action_details(self) -> None:
        """Show or hide the details."""
        self.hud.arrange(details=not self.details_pane.display)
        self._show_details_pane()
        self.tree_list.focus()

    def _show_details_pane(self) -> None:
        wanted = self.hud.layout.details
        self.set_class(wanted is True, "-details")
        self.set_class(wanted is False, "-no-details")
