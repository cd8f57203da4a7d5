"""TreeComparing: two checkpoints marked, compared, and tried on the same prompt."""

from __future__ import annotations

from textual import work

from hud_tui.client.groups import GroupReader
from hud_tui.rl.compare import Comparison, compare
from hud_tui.rl.head import refusal
from hud_tui.tui.screens.compare_panel import ComparePanel
from hud_tui.tui.screens.tree_view import TreeView
from hud_tui.tui.screens.try_panel import Tried, TryPanel
from hud_tui.tui.type_ahead import OPENS
from hud_tui.wire import Group

STEPS_MOST = 4
"""Steps from one checkpoint whose rollouts are read, the newest."""
NEED_TWO = "Mark two checkpoints with m, or put the cursor on one that is not served."


class TreeComparing(TreeView):
    def action_mark(self) -> None:
        """Mark the checkpoint under the cursor as A, the next one as B; or unmark it."""
        node = self.selected
        if node is None:
            self.warn("Only a checkpoint can be marked: put the cursor on one.")
            return
        kept = [id_ for id_ in self.marked if id_ != node.id]
        self.marked = tuple(kept if len(kept) < len(self.marked) else [*kept[-1:], node.id])
        self.show_marks()

    def pair(self) -> tuple[int, int] | None:
        """What is compared: the two that are marked, else the one that is, or the head, with
        the cursor's; None where those are not two."""
        found = (self.run.tree.find(id_) for id_ in self.marked)
        marked = [position for position in found if position is not None]
        if len(marked) == 2:
            return marked[0], marked[1]
        here = None if self.selected is None else self.at.position
        others = [position for position in (*marked, self.run.tree.head) if position != here]
        return None if here is None or not others or others[0] is None else (others[0], here)

    def action_compare(self) -> None:
        """Metrics, how they were trained, how they are related, and what got better or worse."""
        pair = self.pair()
        if pair is None:
            self.warn(NEED_TWO)
        else:
            self._compare(*pair)

    @work(exclusive=True, group=OPENS)
    async def _compare(self, left: int, right: int) -> None:
        model = self.run.model
        if model is None:
            return
        both = compare(self.run.tree, left, right)
        if not (self.run.tree.own_groups(left) and self.run.tree.own_groups(right)):
            both = await self._with_groups(model.id, left, right)
        await self.app.push_screen(ComparePanel(both))

    async def _with_groups(self, model_id: str, left: int, right: int) -> Comparison:
        """The same with the rewards by task, of a service whose tree does not carry them."""
        reader, tree = GroupReader(self.client, model_id), self.run.tree
        sides: list[list[Group]] = []
        for position in (left, right):
            steps = tree.steps(position)[:STEPS_MOST]
            sides.append([group for step in steps for group in await reader.groups(step)])
        return compare(tree, left, right, (sides[0], sides[1]))

    def action_try(self) -> None:
        """Sample one prompt from both, to see them side by side."""
        pair, model = self.pair(), self.run.model
        if pair is None or model is None:
            self.warn(NEED_TWO)
            return
        nodes = [self.run.tree[position] for position in pair]
        why = next((why for why in map(refusal, nodes) if why), "")
        if why:
            self.warn(why)
            return
        left, right = (
            Tried(node, mark, position == self.run.tree.head)
            for node, mark, position in zip(nodes, "AB", pair, strict=True)
        )
        self.app.push_screen(TryPanel(self.client, model, left, right))

    def action_unmark(self) -> None:
        """Take both marks off."""
        self.marked = ()
        self.show_marks()
