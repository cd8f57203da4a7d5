"""RolloutColumns: the rollouts of a group side by side, best first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import ceil

from rich.segment import Segment
from textual.content import Content
from textual.events import Click
from textual.reactive import reactive
from textual.strip import Strip

from hud_tui.rl.groups import PLAIN, Advantages
from hud_tui.rl.metrics import short, with_sign
from hud_tui.rl.text import clean, count_unsafe, one_line
from hud_tui.tui.theme import reward_style
from hud_tui.tui.widgets.lines import LinesView, fit_text, line
from hud_tui.wire import Group

LEAST_COLUMN, MOST_COLUMN = 24, 60
"""Smallest and largest width of a column, cells."""
GAP = 2
FACTS = 3
"""Lines above a rollout's text."""


@dataclass(frozen=True)
class Answer:
    """One rollout of the group."""

    number: int
    """Its place in the group, from 1."""
    reward: float
    advantage: float | None
    """None if it is not trained on."""
    trace_id: str | None = None
    """None if the service does not give it."""
    tokens: int | None = None
    text: str | None = None
    """Its text; None until it is read."""
    ended: str = ""
    """Why it ended, as the service says."""
    of: str = ""
    """The side that it is of, if two are compared: ``A step-000012``."""


def answers(
    group: Group, rule: Advantages | None = PLAIN, sides: Sequence[tuple[str, int]] = ()
) -> list[Answer]:
    """A group's rollouts, highest reward first, with advantages as its run makes them.

    Args:
        rule: None for rollouts that are not trained on.
        sides: If the group is of two sides that are compared: the name of each and its number of
            rollouts, in their order. Those of the two then take turns.
    """
    size = len(group.rewards)
    ids = group.trace_ids if len(group.trace_ids) == size else [None] * size
    tokens = group.num_tokens if len(group.num_tokens) == size else [None] * size
    advantages: Sequence[float | None] = [None] * size
    if rule is not None and group.rewards:
        advantages = rule.of(group.rewards)
    facts = zip(group.rewards, advantages, ids, tokens, strict=True)
    read = [Answer(number, *fact) for number, fact in enumerate(facts, start=1)]
    if not sides:
        return sorted(read, key=lambda answer: -answer.reward)
    return [answer for pair in zip_longest(*_by_side(read, sides)) for answer in pair if answer]


def _by_side(read: Sequence[Answer], sides: Sequence[tuple[str, int]]) -> Iterator[list[Answer]]:
    """The rollouts of each side, highest reward first."""
    start = 0
    for name, count in sides:
        own = [replace(answer, of=name) for answer in read[start : start + count]]
        yield sorted(own, key=lambda answer: -answer.reward)
        start += count


READING = "reading …"


class RolloutColumns(LinesView, can_focus=True):
    """A group's rollouts side by side. ←/→ move between them; up and down scroll all texts
    together.

    Short texts are shown in several rows of columns.
    """

    answers: reactive[Sequence[Answer]] = reactive[Sequence[Answer]]((), repaint=False)
    picked: reactive[int] = reactive(0, repaint=False)
    unread = ""
    """Shown in place of the texts if they cannot be read, or nobody has asked for them yet."""

    def show_unread(self, text: str) -> None:
        """Show this in place of the texts, or what each has to say."""
        self.unread = text
        self.redraw()

    watch_answers = watch_picked = LinesView.redraw

    @property
    def across(self) -> int:
        """Number of visible columns."""
        return max(1, min(len(self.answers), (self.width + GAP) // (LEAST_COLUMN + GAP)))

    @property
    def cell(self) -> int:
        return min(MOST_COLUMN, (self.width + GAP) // self.across - GAP)

    @property
    def tall(self) -> int:
        return FACTS + max((len(self._text(answer)) for answer in self.answers), default=0)

    @property
    def banks(self) -> int:
        """Number of rows of columns; more than one only for short texts."""
        needed = ceil(len(self.answers) / self.across)
        return max(1, min(needed, (self.body_rows + 1) // (self.tall + 1)))

    @property
    def first(self) -> int:
        """Index of the first visible rollout."""
        seen = self.across * self.banks
        return max(0, min(self.picked - seen // 2, len(self.answers) - seen))

    @property
    def count(self) -> int:
        return self.banks * (self.tall + 1) - 1

    def title(self, width: int) -> str:
        size, last = len(self.answers), self.first + self.across * self.banks
        more = f" · {self.first + 1}–{last} shown" if size > last - self.first else ""
        order = "A and B in turn, best first" if self.compares else "best first"
        return f"{size} rollouts, {order}{more}"

    @property
    def compares(self) -> bool:
        """Whether they are of two sides."""
        return any(answer.of for answer in self.answers)

    def draw(self, width: int, rows: range) -> list[Strip]:
        across, tall = self.across, self.tall
        last = min(len(self.answers), self.first + across * self.banks)
        drawn = [self._column(number) for number in range(self.first, last)]
        blank, gap = Strip([Segment(" " * self.cell)]), Strip([Segment(" " * GAP)])

        def line_of(row: int) -> Strip:
            bank, y = divmod(row, tall + 1)
            beside = drawn[bank * across : (bank + 1) * across]
            parts = [(lines[y] if y < len(lines) else blank, gap) for lines in beside]
            return Strip.join([part for pair in parts for part in pair][:-1])

        return [line_of(row) for row in rows]

    def _column(self, index: int) -> list[Strip]:
        answer, cell = self.answers[index], self.cell
        picked = index == self.picked
        number = f"{'▸' if picked else ' '}{answer.number}"
        reward = f"reward {short(answer.reward)}"
        head = fit_text(f"{number:<5}{reward}", cell - 2)
        worth = one_line(answer.of, 60) or "evaluated, not trained on"
        if answer.advantage is not None:
            worth = f"advantage {with_sign(answer.advantage)}"
        tokens = "" if answer.tokens is None else f"{answer.tokens} tokens"
        unsafe = count_unsafe(answer.text or "")
        removed = f"␛ removed ×{unsafe}" if unsafe else ""
        facts = "  ".join(part for part in (tokens, removed, answer.ended) if part)
        dim = self.tone("dim")
        strong = self.tone("cursor" if picked else "strong")
        style = self.tone("dim" if answer.text is None else "plain")
        rewards = [answer.reward for answer in self.answers]
        low, high = min(0.0, *rewards, 0.0), max(1.0, *rewards, 1.0)
        return [
            line((head, strong), (" █", reward_style(answer.reward, low, high))),
            line((fit_text(f"  {worth}", cell), self.tone("plain"))),
            line((fit_text(f"  {facts}", cell), self.tone("warm") if removed else dim)),
            *(line((fit_text(f"  {text}", cell), style)) for text in self._text(answer)),
        ]

    def _text(self, answer: Answer) -> list[str]:
        if answer.text is None:
            reason = (
                READING if answer.trace_id else "The service does not say which rollout this is."
            )
            text = self.unread or reason
        else:
            text = clean(answer.text).replace("\t", "    ") or "(nothing)"
        return [part.plain for part in Content(text).wrap(max(1, self.cell - 2))]

    def move(self, steps: int) -> None:
        self.picked = max(0, min(len(self.answers) - 1, self.picked + steps))

    def on_click(self, event: Click) -> None:
        bank = (self.scroll_offset.y + max(0, event.y - 1)) // (self.tall + 1)
        number = self.first + bank * self.across + event.x // (self.cell + GAP)
        if number < len(self.answers):
            self.picked = number
