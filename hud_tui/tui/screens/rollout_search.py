"""RolloutSearch: all rollouts of a step, a run or an evaluation that a filter keeps, as a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing

from textual import on, work
from textual.app import ComposeResult
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, Static

from hud_tui.client.client import HudClient
from hud_tui.client.rollout_search import Match, Searched, read_searched, search
from hud_tui.errors import HudError, HudUsage
from hud_tui.keys import Action, keyed
from hud_tui.rl.rollout_search import Needles, split_filter
from hud_tui.rl.text import counted, one_line
from hud_tui.tui.keys import KeyLine
from hud_tui.tui.rollout_reader import reward_cell
from hud_tui.tui.screens.base import Aside, PageTitle
from hud_tui.tui.screens.dialogs import Leavable, make_way, show_error, show_notice
from hud_tui.tui.widgets.form import FilterField
from hud_tui.tui.widgets.table import DIM, Column, RowList, item_row

MOST_MATCHES = 2000
"""Most matches that are listed."""
TERMS = "words, tool:order error reward<.2 turns>5 task:add is:cut; ! inverts one"


def _where(match: Match) -> str:
    return "" if match.place is None else match.place.where


def _text(match: Match) -> str:
    if match.place is not None:
        return match.place.excerpt
    return one_line(match.rollout.trace.completion or "", 200)


def _step(match: Match) -> str:
    step = match.rollout.trace.step
    return "" if step is None else str(step)


MATCHES: Sequence[Column[Match]] = (
    Column("step", 5, _step, DIM, right=True, rank=2),
    Column("task", 18, lambda match: one_line(match.rollout.trace.task_slug or "–", 40), rank=1),
    Column("#", 3, lambda match: str(match.rollout.number), DIM, right=True, rank=3),
    Column("reward", 7, lambda match: reward_cell(match.rollout.trace.reward), right=True),
    Column("where", 8, _where, DIM),
    Column("text", 0, _text),
)


class RolloutSearch(Leavable[None]):
    """Enter in the field searches; enter on a row reads the rollout, where the words stand."""

    VIEW = "search"

    def __init__(
        self,
        client: HudClient,
        reader: Callable[..., Screen[str]],
        job_id: str,
        step: int | None,
        text: str,
        aside: Callable[[], Aside],
    ) -> None:
        """
        Args:
            reader: Makes the screen that reads a rollout: `RolloutScreen`.
            step: Of the job, which is searched at first; None for all of the job.
            text: The filter at first.
        """
        super().__init__()
        self.client, self.job_id, self.step, self._aside = client, job_id, step, aside
        self._reader = reader
        self.is_whole = step is None
        """Whether all of the job is searched."""
        self.list = RowList(MATCHES, id="search-matches", least=20)
        self.filter_field = FilterField(TERMS, "search-filter", self.list)
        self.filter_field.value = text
        self.matches: list[Match] = []
        self.said = "Enter searches."
        self._searched: dict[bool, Searched] = {}
        """What is searched, by `is_whole`."""
        self._expression = text

    def compose(self) -> ComposeResult:
        yield PageTitle(self._aside, "search-title")
        yield self.filter_field
        yield Static(id="search-said", markup=False)
        yield self.list
        yield KeyLine(self.VIEW)

    def on_mount(self) -> None:
        self.filter_field.fill(self.filter_field.value)
        self.filter_field.focus()
        if self._expression:
            self.search()
        self.show()

    def watch_focused(self) -> None:
        self.call_after_refresh(make_way, self)

    def show(self) -> None:
        where = f"step {self.step}" if not self.is_whole else "all rollouts of the job"
        self.query_one(PageTitle).title = Content.assemble(
            (" search ", "bold"), f"{where}  ·  {one_line(self.job_id[:8], 8)}"
        )
        self.query_one("#search-said", Static).update(self.said)
        self.query_one(KeyLine).renew()

    def hints(self, actions: Sequence[Action]) -> Sequence[Action]:
        """The actions among these that can be done now: see `HudScreen.hints`."""
        idle = set[str]() if self.matches else {"open", "copy"}
        idle |= {"next_view"} if self.step is None else set()
        return [action for action in actions if action.name not in idle]

    # Searching.

    @on(Input.Submitted, "#search-filter")
    def _submitted(self) -> None:
        self._expression = self.filter_field.value.strip()
        if self._expression:
            self.search()

    @on(Input.Changed, "#search-filter")
    def _typed(self) -> None:
        """Say what is wrong with a filter while it is typed."""
        try:
            split_filter(self.filter_field.value)
        except HudUsage as error:
            self.said = one_line(f"{error.message}; {error.hint}", 300)
        else:
            self.said = "Enter searches."
        self.query_one("#search-said", Static).update(self.said)

    @work(exclusive=True, group="search")
    async def search(self) -> None:
        expression, self.matches, self.said = self._expression, [], "reading the rollouts …"
        self.list.show([])
        self.show()
        try:
            searched = await self._read()
            async with aclosing(search(self.client, searched.rollouts, expression)) as matching:
                async for progress in matching:
                    matches = progress.matches[: MOST_MATCHES - len(self.matches)]
                    self.matches += matches
                    self.list.add(item_row(MATCHES, m.rollout.trace.id, m) for m in matches)
                    self.said = _progress_text(
                        searched, progress.done, len(self.matches), progress.failed
                    )
                    self.show()
        except HudUsage as error:
            self.said = one_line(f"{error.message}; {error.hint}", 300)
        except HudError as error:
            self.said = ""
            show_error(self.app, error)
        self.show()

    async def _read(self) -> Searched:
        if self.is_whole not in self._searched:
            step = None if self.is_whole else self.step
            self._searched[self.is_whole] = await read_searched(self.client, self.job_id, step)
        return self._searched[self.is_whole]

    # Keys.

    @on(RowList.Opened)
    def action_open(self) -> None:
        """Read the rollout under the cursor; the reader goes through what was found."""
        key, searched = self.list.key, self._searched.get(self.is_whole)
        if key is None or searched is None:
            return
        ids = {match.rollout.trace.id for match in self.matches}
        needles = Needles.of(self._expression)
        reader = self._reader(
            self.client,
            searched.groups,
            key,
            searched.model_id,
            self._aside,
            search=next(iter((*needles.words, *needles.tools)), ""),
            listed=ids,
        )
        self.app.push_screen(reader, lambda shown: self.list.select(shown or key))

    def action_next_view(self) -> None:
        """Search the step, or all of the job."""
        if self.step is None:
            show_notice(self.app, "All rollouts of the job are searched.")
            return
        self.is_whole = not self.is_whole
        self.show()
        if self._expression:
            self.search()

    def action_filter(self) -> None:
        self.filter_field.focus()

    def action_refresh(self) -> None:
        self._searched.clear()
        if self._expression:
            self.search()

    def action_copy(self) -> None:
        if self.list.key is not None:
            self.app.copy_to_clipboard(self.list.key)

    def action_leave(self) -> None:
        if self.filter_field.has_focus and self.matches:
            self.list.focus()
        else:
            self.dismiss()


def _progress_text(searched: Searched, done: int, count: int, failed: int) -> str:
    """How far the search has come, and what it leaves out."""
    rollouts = searched.rollouts
    text = f"{count} of {counted(len(rollouts), 'rollout')}"
    if done < len(rollouts):
        text = f"{count} found in {done} of {counted(len(rollouts), 'rollout')} …"
    if count >= MOST_MATCHES:
        text += f"  ·  only the first {MOST_MATCHES} are listed"
    if searched.total > len(rollouts):
        text += f"  ·  only the newest of {counted(searched.total, 'rollout')}"
    if failed:
        text += f"  ·  {counted(failed, 'rollout')} could not be read"
    return text if count or done < len(rollouts) else keyed(f"No match. {text}")
