"""RolloutPane: one rollout as it was said, token by token, in which one can search."""

from textual.content import Content

from hud_tui.tui.widgets.rollout_text import Reading, rollout_lines
from hud_tui.tui.widgets.text_pane import TextPane
from hud_tui.wire import Trace, TraceEvents

LEAST = 20
"""Cells that its lines are laid out for at least."""
HIT, AT = "reverse", "bold reverse $warning"
"""Styles of what was found, and of the one that the cursor is on."""


class RolloutPane(TextPane):
    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rollout: tuple[Trace, TraceEvents | None, Reading] | None = None
        self._plain: list[Content] = []
        self.wanted = ""
        """The text that is looked for."""
        self.hits: list[tuple[int, int]] = []
        """Where the text was found: its line, and the character there."""
        self.hit = 0
        """Which of them is looked at."""

    def show_rollout(self, trace: Trace, turns: TraceEvents | None, reading: Reading) -> None:
        """Show a rollout; its turns are None while they are being read."""
        other = self._rollout is None or self._rollout[0].id != trace.id
        self._rollout = trace, turns, reading
        self.lay_out()
        if other:
            self.hit = 0
            self.scroll_home(animate=False)

    def lay_out(self) -> None:
        """Break the lines anew for the pane's width."""
        if self._rollout is not None:
            self._plain = rollout_lines(*self._rollout, max(LEAST, self.width))
            self._search()

    def find(self, text: str) -> None:
        """Look for a text, in any case; an empty one is found nowhere."""
        if text != self.wanted:
            self.wanted, self.hit = text, 0
            self._search()
            self._reveal()

    def next_hit(self, way: int) -> None:
        """Go to the next place where the text was found, or to the one before; round the end."""
        if self.hits:
            self.hit = (self.hit + way) % len(self.hits)
            self._paint()
            self._reveal()

    def _search(self) -> None:
        wanted = self.wanted.casefold()
        self.hits = []
        for number, line in enumerate(self._plain if wanted else ()):
            text, at = line.plain.casefold(), -1
            while (at := text.find(wanted, at + 1)) >= 0:
                self.hits.append((number, at))
        self.hit = min(self.hit, max(0, len(self.hits) - 1))
        self._paint()

    def _paint(self) -> None:
        lines, length = list(self._plain), len(self.wanted)
        for number, (line, at) in enumerate(self.hits):
            style = AT if number == self.hit else HIT
            lines[line] = lines[line].stylize(style, at, at + length)
        self.show(lines)

    def _reveal(self) -> None:
        if self.hits:
            line, top = self.hits[self.hit][0], self.scroll_offset.y
            if not top <= line < top + self.size.height:
                self.scroll_to(y=max(0, line - self.size.height // 2), animate=False)
