"""RolloutColumns: a group's rollouts side by side, best first, each with its advantage."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.events import Click
from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.rl.advantage import group_advantages
from hud_tui.rl.metrics import short
from hud_tui.rl.text import clean, count_unsafe, one_line
from hud_tui.tui.widgets.lines import LinesView, fit_text, line
from hud_tui.tui.widgets.palette import reward_style
from hud_tui.wire import Group

LEAST, MOST = 24, 60
"""Cells of a column."""
GAP = 2
FACTS = 3
"""Lines above a rollout's text."""


@dataclass(frozen=True)
class Answer:
    """One rollout of the group."""

    number: int
    """Its place in the group, from 1."""
    reward: float
    advantage: float
    trace_id: str | None = None
    """None where the service does not say."""
    tokens: int | None = None
    text: str | None = None
    """What it said; None until it is read."""
    ended: str = ""
    """Why it ended, as the service says."""


def answers(group: Group) -> list[Answer]:
    """A group's rollouts, highest reward first."""
    size = len(group.rewards)
    ids = group.trace_ids if len(group.trace_ids) == size else [None] * size
    tokens = group.num_tokens if len(group.num_tokens) == size else [None] * size
    advantages = group_advantages(group.rewards) if group.rewards else ()
    found = [
        Answer(number, *facts)
        for number, facts in enumerate(
            zip(group.rewards, advantages, ids, tokens, strict=True), start=1
        )
    ]
    return sorted(found, key=lambda one: -one.reward)


class RolloutColumns(LinesView, can_focus=True):
    """←/→ go from one to the next; up and down scroll all texts together.

    Where they are short, what has no room beside the others is shown below them.
    """

    answers: reactive[Sequence[Answer]] = reactive[Sequence[Answer]]((), repaint=False)
    picked: reactive[int] = reactive(0, repaint=False)
    unread = ""
    """Stands in place of the texts where none can be read."""

    def watch_answers(self) -> None:
        self.redraw()

    def watch_picked(self) -> None:
        self.redraw()

    @property
    def across(self) -> int:
        """Columns in sight."""
        return max(1, min(len(self.answers), (self.width + GAP) // (LEAST + GAP)))

    @property
    def cell(self) -> int:
        """Cells of a column."""
        return min(MOST, (self.width + GAP) // self.across - GAP)

    @property
    def tall(self) -> int:
        """Lines of the longest rollout."""
        return FACTS + max((len(self._text(one)) for one in self.answers), default=0)

    @property
    def banks(self) -> int:
        """Rows of rollouts, one below another: more than one only where they are short."""
        needed = ceil(len(self.answers) / self.across)
        return max(1, min(needed, (self.body_rows + 1) // (self.tall + 1)))

    @property
    def first(self) -> int:
        """The first in sight."""
        seen = self.across * self.banks
        return max(0, min(self.picked - seen // 2, len(self.answers) - seen))

    @property
    def count(self) -> int:
        return self.banks * (self.tall + 1) - 1

    def title(self, width: int) -> str:
        size, last = len(self.answers), self.first + self.across * self.banks
        more = f" · {self.first + 1}–{last} in sight" if size > last - self.first else ""
        return f"{size} rollouts, best first{more}"

    def draw(self, width: int, rows: range) -> list[Strip]:
        across, tall = self.across, self.tall
        last = min(len(self.answers), self.first + across * self.banks)
        drawn = [self._column(place) for place in range(self.first, last)]
        blank, gap = Strip([Segment(" " * self.cell)]), Strip([Segment(" " * GAP)])

        def line_of(row: int) -> Strip:
            bank, at = divmod(row, tall + 1)
            beside = drawn[bank * across : (bank + 1) * across]
            parts = [(lines[at] if at < len(lines) else blank, gap) for lines in beside]
            return Strip.join([part for pair in parts for part in pair][:-1])

        return [line_of(row) for row in rows]

    def _column(self, place: int) -> list[Strip]:
        one, cell = self.answers[place], self.cell
        picked = place == self.picked
        number = f"{'▸' if picked else ' '}{one.number}"
        reward = f"reward {short(one.reward)}"
        head = fit_text(f"{number:<5}{reward}", cell - 2)
        signed = f"{'+' if one.advantage > 0 else ''}{short(one.advantage)}"
        tokens = "" if one.tokens is None else f"{one.tokens} tokens"
        removed = f"␛ removed ×{count_unsafe(one.text or '')}" if _unsafe(one) else ""
        facts = "  ".join(part for part in (tokens, one_line(one.ended, 20), removed) if part)
        dim = self.tone("dim")
        strong = self.tone("cursor" if picked else "strong")
        return [
            line((head, strong), (" █", reward_style(one.reward, *self._scale))),
            line((fit_text(f"  advantage {signed}", cell), self.tone("plain"))),
            line((fit_text(f"  {facts}", cell), self.tone("warm") if removed else dim)),
            *(self._said(text, one) for text in self._text(one)),
        ]

    @property
    def _scale(self) -> tuple[float, float]:
        known = [one.reward for one in self.answers]
        return min(0.0, *known, 0.0), max(1.0, *known, 1.0)

    def _said(self, text: str, one: Answer) -> Strip:
        style: Style = self.tone("dim" if one.text is None else "plain")
        return line((fit_text(f"  {text}", self.cell), style))

    def _text(self, one: Answer) -> list[str]:
        if one.text is None:
            told = "reading …" if one.trace_id else "The service does not say which rollout."
            said = self.unread or told
        else:
            said = clean(one.text).replace("\t", "    ") or "(nothing)"
        return [part.plain for part in Content(said).wrap(max(1, self.cell - 2))]

    def move(self, places: int) -> None:
        self.picked = max(0, min(len(self.answers) - 1, self.picked + places))

    def on_click(self, event: Click) -> None:
        bank = (self.scroll_offset.y + max(0, event.y - 1)) // (self.tall + 1)
        place = self.first + bank * self.across + event.x // (self.cell + GAP)
        if place < len(self.answers):
            self.picked = place


def _unsafe(one: Answer) -> bool:
    return bool(one.text) and count_unsafe(one.text or "") > 0
