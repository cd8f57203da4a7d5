"""GroupScreen: one group of one step: its task, and its rollouts side by side."""

from __future__ import annotations

from asyncio import gather
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from hud_tui.errors import HudError
from hud_tui.rl.groups import group_stats
from hud_tui.rl.metrics import short
from hud_tui.rl.text import clean, one_line
from hud_tui.tui.bindings import bindings
from hud_tui.tui.group_reader import GroupReader, StepGroups
from hud_tui.tui.screens.over import Over
from hud_tui.tui.widgets.clickable_text import FootLine
from hud_tui.tui.widgets.reward_face import bars
from hud_tui.tui.widgets.rollout_columns import RolloutColumns, answers
from hud_tui.wire import Group

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

AT_ONCE = 4
"""Rollouts that are read at the same time."""
REPLAYED = "A replay keeps the rewards of a group, not its task and not what its rollouts said."
"""In the place of the task, for there is no service to ask."""
FOOT = (
    "{group.rollout.-1}{group.rollout.1} rollout  {group.move.-1}{group.move.1} scroll  "
    "{group.group.-1} {group.group.1} group  {group.copy} copy  "
    "{group.help} help  {group.leave} back"
)


class GroupScreen(Over[None]):
    """Reads the rollouts best first, and shows each as it comes."""

    VIEW: ClassVar = "group"
    BINDINGS: ClassVar[list[BindingType]] = bindings("group")
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012

    def __init__(self, client: HudClient | None, step: StepGroups) -> None:
        """
        Args:
            client: Reads the rollouts; None in a replay, which has none.
            step: The groups that { and } go through.
        """
        super().__init__()
        self.step, self.place, self.replayed = step, step.place, client is None
        self.reader = GroupReader(client, step)

    @property
    def group(self) -> Group:
        return self.step.groups[self.place]

    @property
    def columns(self) -> RolloutColumns:
        return self.query_one(RolloutColumns)

    def compose(self) -> ComposeResult:
        with Vertical(id="group") as box:
            box.border_title = "group"
            yield Static("", id="group-facts", markup=False)
            with VerticalScroll(id="group-task", can_focus=False):
                yield Static("", id="group-prompt", markup=False)
            yield RolloutColumns()
            yield FootLine(FOOT, id="group-foot")

    def on_mount(self) -> None:
        self.show_group()

    def show_group(self) -> None:
        """Show the group, then read its rollouts."""
        self.query_one("#group-facts", Static).update(facts(self.group, self.step.name))
        self.query_one("#group-prompt", Static).update(REPLAYED if self.replayed else "")
        self.columns.unread = "Not kept." if self.replayed else ""
        self.columns.picked = 0
        self.columns.answers = answers(self.group)
        self.columns.scroll_to(y=0, animate=False)
        self.columns.focus()
        if not self.replayed:
            self.read_rollouts()

    @work(exclusive=True, group="read")
    async def read_rollouts(self) -> None:
        """Some at a time, best first; a failure is told in its column."""
        try:
            known = answers(await self.reader.known(self.group))
        except HudError as error:
            self.query_one("#group-prompt", Static).update(one_line(error.message))
            return
        self.columns.answers = known
        for first in range(0, len(known), AT_ONCE):
            read = await gather(*map(self.reader.read, known[first : first + AT_ONCE]))
            now = list(self.columns.answers)
            now[first : first + AT_ONCE] = [one for one, _ in read]
            self.columns.answers = now
            if asked := next((asked for _, asked in read if asked), ""):
                self.query_one("#group-prompt", Static).update(clean(asked))

    def action_rollout(self, places: int) -> None:
        """To the next rollout, or the one before."""
        self.columns.move(places)

    def action_group(self, places: int) -> None:
        """To the next group of the step, or the one before."""
        place = self.place + places
        if 0 <= place < len(self.step.groups):
            self.place = place
            self.show_group()
        else:
            self.notify(f"That is the step's {'last' if places > 0 else 'first'} group.")

    def action_move(self, rows: int) -> None:
        self.columns.scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        self.columns.scroll_rows(pages * max(1, self.columns.body_rows))

    def action_copy(self) -> None:
        """What is selected; else the rollout under the cursor, by its id where it has no text."""
        one = self.columns.answers[self.columns.picked]
        text = self.get_selected_text() or one.text or one.trace_id
        if text:
            self.app.copy_to_clipboard(text)

    async def action_help(self) -> None:
        """All keys of the group; the one that is chosen there is done."""
        await self.app.run_action("app.help")

    def action_leave(self) -> None:
        self.dismiss()


def facts(group: Group, name: str) -> Content:
    """The group in a line: whose it is, its rewards, and what it teaches."""
    stats = group_stats(group.rewards)
    low, high = min(0.0, *group.rewards, 0.0), max(1.0, *group.rewards, 1.0)
    drawn = bars(group.rewards, low, high, Segment("·"))
    verdict = "all good" if stats.all_good else "all bad" if stats.all_bad else ""
    told = f"{verdict}: every advantage is 0, so it taught nothing" if verdict else ""
    return Content.assemble(
        (one_line(group.task_slug, 60), "bold"),
        (f"  {one_line(name, 40)}  ", "$text-muted"),
        f"{short(stats.mean)} ± {short(stats.spread)}  ",
        *((bar.text, _colour(bar)) for bar in drawn),
        (f"  {told}", "$warning"),
    )


def _colour(bar: Segment) -> str:
    colour = bar.style.color if bar.style is not None else None
    return colour.name if colour is not None else "$text-muted"
