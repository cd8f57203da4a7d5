"""HeadDialog: asks before the head is set, and follows it as long as it is open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from textual import work
from textual.content import Content
from textual.widgets import Button, Static

from hud_tui.errors import HudError
from hud_tui.rl.head import HeadChange, Outcome, head_change, only_trained
from hud_tui.rl.run import Run
from hud_tui.rl.text import one_line
from hud_tui.tui.moves import moved_note
from hud_tui.tui.screens.dialogs import ConfirmDialog
from hud_tui.tui.screens.head_preview import COMPARED, preview

if TYPE_CHECKING:
    from hud_tui.tui.moves import Wanted
    from hud_tui.tui.screens.base import HudScreen

FRAME = 20
"""Lines of a screen that the dialog needs for all but the compared metrics."""
LOW = 18
"""Lines of a screen where the dialog goes without margins."""
NARROW = 70
"""Columns of a screen without room for the table."""
READING = "reading the tree …"


class HeadDialog(ConfirmDialog):
    """Ask before set_head. While it is open it shows the head as it is at the moment.

    It opens at once with what was known, and can be agreed to when the tree has been read.
    `shown` is the run that it shows, so that the caller can tell what was agreed to.
    """

    def __init__(
        self, view: HudScreen, wanted: Wanted, read: Callable[[], Awaitable[str | Outcome]]
    ) -> None:
        """
        Args:
            view: The view under it, whose run it follows.
            wanted: The checkpoint that will be served.
            read: Reads the tree: what the user should know first, or why there is nothing
                to ask.
        """
        self.VERTICAL_BREAKPOINTS = [(0, "-low"), (LOW, "-high")]
        self.view, self.target, self.read = view, wanted.target, read
        self.change: HeadChange | None = None
        """What it previews; None where nothing was known of the target."""
        self.current = False
        """Whether the tree has been read, so that it can be agreed to."""
        self.instead: Outcome | HudError | None = None
        """Why there was nothing to ask, after it has closed."""
        self.shown = view.run
        self._note = self._moved = ""
        model = view.run.model
        title = f"Set the head of {one_line(model.model_name, 60) if model else 'the model'}"
        if self._known(self.shown):
            self.change = head_change(self.shown, self.target)
        super().__init__(title, [READING], "Set head")

    def on_mount(self) -> None:
        self._update()
        self.query_one("#confirm", Button).disabled = True
        self.watch(self.view, "run", self._run_changed, init=False)
        self._begin()

    @work
    async def _begin(self) -> None:
        try:
            said = await self.read()
        except HudError as error:
            self.instead = error
        else:
            if isinstance(said, str):
                self._preview(said)
                return
            self.instead = said
        self.dismiss(False)

    def _preview(self, note: str) -> None:
        self._note, self.shown, self.current = note, self.view.run, True
        self.change = head_change(self.shown, self.target)
        self.query_one("#confirm", Button).disabled = False
        self.refresh_bindings()
        self._update()

    def _run_changed(self, run: Run) -> None:
        """Show the head as it moves; warn where it moved otherwise than by training."""
        if not self.current or run.tree.find(self.target) is None:
            return
        before, self.change = self.change, head_change(run, self.target)
        if not only_trained(self.shown, run):
            hud = self.view.hud
            self._moved = moved_note(self.shown, run, hud.journal, hud.clock())
        self.shown = run
        if before != self.change:
            self._update()

    def _update(self) -> None:
        """Say what it previews, if the dialog is still there."""
        for line in self.query(".dialog-line").results(Static):
            line.update(self._text(self.change))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        return action != "confirm" or self.current

    def _text(self, change: HeadChange | None) -> Content | str:
        if change is None:
            return READING
        narrow = self.view.size.width < NARROW
        note = f"{self._note} {self._moved}".strip()
        compared = max(1, min(COMPARED, self.view.size.height - FRAME))
        known = preview(change, note, self.view.hud.clock(), narrow, compared)
        if self.current:
            return known
        return Content("\n").join([known, Content.styled(READING, "$text-muted")])

    def _known(self, run: Run) -> bool:
        position = run.tree.find(self.target)
        return position is not None and position != run.tree.head
