"""GroupScreen: one group of one step: its task, and its rollouts side by side."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from rich.segment import Segment
from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static
from textual.worker import Worker

from hud_tui.client.client import HudClient
from hud_tui.errors import HudError
from hud_tui.rl.groups import PLAIN, Advantages, group_stats
from hud_tui.rl.metrics import short
from hud_tui.rl.rollouts import known_group
from hud_tui.rl.text import clean, counted, one_line
from hud_tui.tui.keys import FootLine
from hud_tui.tui.rollout_reader import GroupReader, StepGroups
from hud_tui.tui.screens.dialogs import Over, show_notice
from hud_tui.tui.screens.rollout import RolloutScreen, counterpart
from hud_tui.tui.widgets.group_grid import GroupGrid, bars
from hud_tui.tui.widgets.rollout_columns import READING, Answer, RolloutColumns, answers
from hud_tui.wire import Group

AT_ONCE = 4
"""Rollouts that are read at the same time."""
UNNAMED = "The service does not say which rollout this is."
REPLAYED = "A replay has the rewards of a group, but neither its task nor its texts."
FOOT = (
    "{group.open} read  {group.compare} compare  "
    "{group.rollout.-1}{group.rollout.1} rollout  {group.group.-1}{group.group.1} group  "
    "{group.copy} copy  "
    "{group.help} help  {group.leave} back"
)


class GroupScreen(Over[None]):
    """Reads the rollouts best first, and shows each as it arrives."""

    VIEW = "group"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012

    def __init__(
        self,
        client: HudClient | None,
        step: StepGroups,
        grid: GroupGrid | None = None,
        trace_id: str | None = None,
    ) -> None:
        """`client` is None in a replay, which has no rollouts; `grid` is the pane that has new
        rollouts while the step is sampled, None if no more will come; `trace_id` is that of the
        rollout under the cursor at first."""
        super().__init__()
        self.step, self.index, self.replayed = step, step.index, client is None
        self.reader = GroupReader(client, step)
        self.client, self.grid, self._first = client, grid, trace_id
        self.rule: Advantages | None = None
        """How the run computes advantages; None until it is known."""
        job, node = (None if grid is None else grid.run.job), step.node
        if job is not None and (node is None or node.job_id == job.id):  # it takes the step
            self.rule = Advantages.of_run(job.parameters)
        self._reading: Worker[None] | None = None
        self._prompt = ""
        """The group's prompt, once it is read."""

    @property
    def group(self) -> Group:
        return self.step.groups[self.index]

    @property
    def columns(self) -> RolloutColumns:
        return self.query_one(RolloutColumns)

    def compose(self) -> ComposeResult:
        with Vertical(id="group") as box:
            box.border_title = "group"
            yield Static(self._facts(), id="group-facts", markup=False)
            with VerticalScroll(id="group-task", can_focus=False):
                yield Static(self._reads(), id="group-prompt", markup=False)
            yield RolloutColumns()
            yield FootLine(FOOT, id="group-foot")

    def on_mount(self) -> None:
        self.show_group()
        if self.step.node is None and self.grid is not None:
            self.watch(self.grid, "run", self.grow, init=False)

    def grow(self) -> None:
        """Show new rollouts, and their details once the step is taken."""
        waits = self.grid if self.step.node is None else None
        now = None if waits is None else waits.groups_of(self.group.task_slug)
        if now is None or now.step != self.step.step:
            return
        before, self.step, self.index = self.group, now, now.index
        self.reader = GroupReader(self.client, now)
        if before != self.group:
            self.show_facts()
            self.take(self.group)
            self.read_on()

    def show_facts(self) -> None:
        self.query_one("#group-facts", Static).update(self._facts())

    def _facts(self) -> Content:
        if self.step.sides:
            return compared_facts(self.group, self.step.sides)
        of = self.step.names[self.index] if self.step.names else self.step.name
        return facts(self.group, of, self._shown_rule)

    @property
    def _shown_rule(self) -> Advantages | None:
        """None for rollouts that are evaluated or compared; PLAIN until the run's rule is known."""
        return None if self.step.names or self.step.sides else self.rule or PLAIN

    def _reads(self) -> str:
        """Shown in place of the task until it is read."""
        size = len(self.group.rewards)
        return REPLAYED if self.replayed else f"reading {counted(size, 'rollout')} …" * bool(size)

    def take(self, group: Group) -> None:
        """Show a group's rollouts; texts read so far are kept, and so is the cursor."""
        columns, shown = self.columns, self.columns.answers
        number = shown[columns.picked].number if shown else None
        columns.answers = with_answers(answers(group, self._shown_rule, self.step.sides), shown)
        columns.unread = "Not recorded." if self.replayed else READING * self.reader.asks(group)
        numbers = [answer.number for answer in columns.answers]
        ids = [answer.trace_id for answer in columns.answers]
        if number in numbers:
            columns.picked = numbers.index(number)
        else:
            columns.picked = ids.index(self._first) if self._first in ids else 0

    def show_group(self) -> None:
        self.show_facts()
        self.query_one("#group-prompt", Static).update(self._reads())
        self.columns.answers, self.columns.picked = (), 0
        self.take(self.group)
        self.columns.scroll_to(y=0, animate=False)
        self.columns.focus()
        self._reading, self._prompt = None, ""
        self.read_on()

    def read_on(self) -> None:
        if not self.replayed and (self._reading is None or self._reading.is_finished):
            self._reading = self.read_rollouts()

    @work(exclusive=True, group="read")
    async def read_rollouts(self) -> None:
        """Read a few at a time, best first; an error is shown in its column."""
        if self.rule is None and self._shown_rule is not None:
            with suppress(HudError):  # if the rule cannot be read, the default is assumed
                self.rule = await self.reader.advantages()
                self.show_facts()
                self.take(self.group)
        if not self.reader.names(self.group):
            try:
                self.take(await self.reader.known(self.group))
            except HudError as error:
                self.query_one("#group-prompt", Static).update(one_line(error.message))
                self.columns.show_unread("")
                return
            self.columns.show_unread("")
        while unread := [
            answer
            for answer in self.columns.answers
            if answer.text is None and answer.trace_id is not None
        ]:
            read = await gather(*map(self.reader.read, unread[:AT_ONCE]))
            self.columns.answers = with_answers(
                self.columns.answers, [answer for answer, _ in read]
            )
            self._prompt = next((prompt for _, prompt in read if prompt), self._prompt)
            if self._prompt:
                self.query_one("#group-prompt", Static).update(clean(self._prompt))
        if not self._prompt:
            self.query_one("#group-prompt", Static).update("")

    def action_rollout(self, by: int) -> None:
        self.columns.move(by)

    def action_group(self, by: int) -> None:
        answer = self.index + by
        if 0 <= answer < len(self.step.groups):
            self.index = answer
            self.show_group()
        else:
            show_notice(self.app, f"This is the {'last' if by > 0 else 'first'} group of the step.")

    def action_open(self) -> None:
        self._open_reader(False)

    def action_compare(self) -> None:
        self._open_reader(True)

    def _open_reader(self, compares: bool) -> None:
        """Read the rollout under the cursor, alone or beside another one."""
        shown, picked = self.columns.answers, self.columns.picked
        trace_id = shown[picked].trace_id if picked < len(shown) else None
        if trace_id is None or self.client is None:
            show_notice(self.app, REPLAYED if self.replayed else UNNAMED)
            return
        ids = {answer.number: answer.trace_id or "" for answer in shown}
        named = self.group.model_copy(update={"trace_ids": [ids[n] for n in sorted(ids)]})
        group = known_group(
            named, self._shown_rule, self.step.step, bool(self.step.names), self.step.sides
        )
        reader = RolloutScreen(self.client, [group], trace_id, self.step.model_id)
        if compares:
            reader.beside = counterpart(group, reader.rollout(trace_id))
        self.app.push_screen(reader, self._pick)

    def _pick(self, trace_id: str | None) -> None:
        """Move the cursor to a rollout."""
        ids = [answer.trace_id for answer in self.columns.answers]
        if trace_id in ids:
            self.columns.picked = ids.index(trace_id)

    def action_move(self, rows: int) -> None:
        self.columns.scroll_rows(rows)

    def action_page(self, pages: int) -> None:
        self.columns.scroll_rows(pages * self.columns.page)

    def action_copy(self) -> None:
        """Copy the selection; else the rollout under the cursor, by its id if it has no text."""
        picked, shown = self.columns.picked, self.columns.answers
        answer = shown[picked] if picked < len(shown) else None
        text = self.get_selected_text() or (answer and (answer.text or answer.trace_id))
        if text:
            self.app.copy_to_clipboard(text)


def with_answers(shown: Sequence[Answer], read: Sequence[Answer]) -> list[Answer]:
    """Rollouts, with the texts of those already read."""
    texts = {
        answer.trace_id: answer for answer in read if answer.trace_id and answer.text is not None
    }
    return [
        replace(answer, text=other.text, tokens=other.tokens, ended=other.ended)
        if (other := texts.get(answer.trace_id or ""))
        else answer
        for answer in shown
    ]


def facts(group: Group, name: str, rule: Advantages | None = PLAIN) -> Content:
    """The group in one line: task, rewards, signal, and how advantages are computed; without a
    rule none are, as it was evaluated."""
    whose = (one_line(group.task_slug, 60), "bold"), (f"  {one_line(name, 40)}  ", "$text-muted")
    if not group.rewards:
        return Content.assemble(
            *whose, ("no rollouts yet: each appears once it is graded", "$text-muted")
        )
    stats = group_stats(group.rewards)
    low, high = min(0.0, *group.rewards, 0.0), max(1.0, *group.rewards, 1.0)
    drawn = bars(group.rewards, low, high, Segment("·"))
    verdict = "all solved" if stats.all_solved else "all failed" if stats.all_failed else ""
    note = ""
    if rule is None:
        note = f"{verdict} · evaluated, not trained on".removeprefix(" · ")
    elif verdict:
        note = f"{verdict}: every advantage is 0, no gradient"
    elif rule.formula_end:
        note = f"advantages: (reward − mean){rule.formula_end}"
    return Content.assemble(
        *whose,
        f"{short(stats.mean)} ± {short(stats.std)}  ",
        *((bar.text, _colour(bar)) for bar in drawn),
        (f"  {note}", "$warning"),
    )


def compared_facts(group: Group, sides: Sequence[tuple[str, int]]) -> Content:
    """The two sides of a task in one line: their mean rewards, and numbers of rollouts."""
    parts: list[Content | tuple[str, str]] = [(one_line(group.task_slug, 60), "bold")]
    start = 0
    for name, count in sides:
        rewards = group.rewards[start : start + count]
        mean = short(group_stats(rewards).mean) if rewards else "–"
        parts += [(f"   {one_line(name, 40)}  ", "$text-muted"), Content(mean)]
        parts.append((f" (n {count})", "$text-muted"))
        start += count
    return Content.assemble(*parts)


def _colour(bar: Segment) -> str:
    colour = bar.style.color if bar.style is not None else None
    return colour.name if colour is not None else "$text-muted"
