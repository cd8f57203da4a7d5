"""Hand: a mouse over the app, as the terminal's driver hands its events to it."""

from rich.cells import cell_len
from textual.events import MouseDown, MouseEvent, MouseMove, MouseScrollDown, MouseScrollUp, MouseUp
from textual.widget import Widget

from tests.tui.conftest import Opened

Place = tuple[int, int]
"""Column and row of the screen, from 0."""


class Hand(Opened):
    """Points at texts as they are on the screen, or at cells of a widget."""

    @property
    def lines(self) -> list[str]:
        size = self.app.screen.size
        return [strip.text for strip in self.app.screen._compositor.render_strips(size)]

    def find(self, text: str, nth: int = 0) -> Place:
        """Where a text begins; of several, counted from the top."""
        found = [(cell_len(line[: line.index(text)]), y) for y, line in self._with(text)]
        assert found, f"{text!r} is not in\n" + "\n".join(self.lines)
        return found[nth]

    def _with(self, text: str) -> list[tuple[int, str]]:
        return [(y, line) for y, line in enumerate(self.lines) if text in line]

    @staticmethod
    def cell(widget: Widget, x: int, y: int) -> Place:
        return widget.content_region.x + x, widget.content_region.y + y

    async def click(self, place: Place | str, times: int = 1) -> None:
        """Click at a place, or on a text; all of it within a moment."""
        at = self.find(place) if isinstance(place, str) else place
        for _ in range(times):
            self._post(MouseDown, at, button=1)
            self._post(MouseUp, at, button=1)
        await self.pilot.pause()

    async def drag(self, start: Place, end: Place) -> None:
        """Press, go there, let go."""
        self._post(MouseDown, start, button=1)
        await self.pilot.pause()
        for x in (start[0] + 1, end[0]):
            self._post(MouseMove, (x, end[1]), button=1)
            await self.pilot.pause()
        self._post(MouseUp, end, button=1)
        await self.pilot.pause()

    async def wheel(self, place: Place, notches: int, shift: bool = False) -> None:
        """Turn the wheel down, or up where below 0."""
        kind = MouseScrollDown if notches > 0 else MouseScrollUp
        for _ in range(abs(notches)):
            self._post(kind, place, shift=shift)
        await self.pilot.pause()

    def _post(
        self, kind: type[MouseEvent], at: Place, button: int = 0, shift: bool = False
    ) -> None:
        x, y = at
        event = kind(None, x, y, 0, 0, button, shift, False, False, x, y)
        self.app.post_message(event)
