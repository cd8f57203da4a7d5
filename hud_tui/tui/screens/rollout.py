"""RolloutScreen: the reader of one rollout, or of two side by side, wherever it is opened."""

from __future__ import annotations

from asyncio import sleep
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from textual import on, work
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input, Static

from hud_tui.client.client import HudClient
from hud_tui.client.transcripts import (
    ReadRollout,
    read_alternatives,
    read_newer,
    read_rollout,
)
from hud_tui.errors import HudError, HudNotFound
from hud_tui.keys import Action, keyed
from hud_tui.patience import backoff
from hud_tui.rl.outcome import Outcome, outcome_of, stop_text
from hud_tui.rl.rollouts import Rollout, RolloutGroup, Shade
from hud_tui.rl.text import one_line, pictures
from hud_tui.rl.transcript import Transcript, Turn
from hud_tui.rl.transcript_forms import FORMS, Copied
from hud_tui.rl.work import is_active
from hud_tui.tui.keys import ClickableText, KeyLine, does
from hud_tui.tui.rollout_reader import SIBLINGS, rollout_title, sibling_columns, sibling_rows
from hud_tui.tui.screens.base import Aside, PageTitle
from hud_tui.tui.screens.dialogs import (
    ChoiceDialog,
    Leavable,
    PlayRollout,
    make_way,
    show_error,
    show_notice,
)
from hud_tui.tui.screens.rollout_search import RolloutSearch
from hud_tui.tui.theme import RAMP, eighth, ramp_index
from hud_tui.tui.widgets.form import FilterField
from hud_tui.tui.widgets.passages import Alternative, Colouring, legend
from hud_tui.tui.widgets.table import RowList, Table
from hud_tui.tui.widgets.transcript import TranscriptView
from hud_tui.tui.widgets.transcript_blocks import Side
from hud_tui.wire_rollouts import Trace
from hud_tui.wire_training import Forward

KEPT = 16
"""Rollouts that are kept after they were read."""
SEARCH = "find in this rollout; then n: next, N: previous"
NOT_SEARCHED = "No search yet: {rollout.filter} starts one."
VIEWS = (None, Shade.SURPRISE, Shade.RATIO, Shade.ADVANTAGE)
MUTED = "$text-muted"
WEIGHTS_GONE = "No alternatives: the weights that sampled this rollout are deleted."
LATE_LOOKS = 2
"""Looks at a rollout after it has ended, whose turns may be uploaded later."""
UNHURRIED = 2
"""Failed attempts after which one would wait as long as between two looks for new turns."""


class RolloutScreen(Leavable[str]):
    """Closes with the id of the rollout that was shown last."""

    VIEW = "rollout"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (140, "-wide")]  # noqa: RUF012

    def __init__(
        self,
        client: HudClient,
        groups: Sequence[RolloutGroup],
        trace_id: str,
        model_id: str | None = None,
        aside: Callable[[], Aside] = Aside,
        beside: str | None = None,
        search: str = "",
        listed: Collection[str] = (),
    ) -> None:
        """
        Args:
            groups: Whole groups; one of them has the rollout.
            model_id: The model whose present policy importance ratios compare with; None if there
                is none.
            beside: Id of the rollout that is shown beside it at first.
            search: Text that is searched at first.
            listed: Ids of the rollouts that `{` and `}` go through; empty: all.
        """
        super().__init__()
        self.client, self.groups, self.model_id, self._aside = client, groups, model_id, aside
        self.trace_id, self.beside = trace_id, beside
        self._listed = frozenset(listed)
        self.view = TranscriptView(id="transcript")
        self.filter_field = FilterField(SEARCH, "rollout-filter", self.view)
        self.filter_field.value = search
        self.list = RowList(SIBLINGS, id="siblings")
        self.list.display = False
        self.shade: Shade | None = None
        self._read: dict[str, ReadRollout] = {}
        self._failed: dict[str, str] = {}
        self._removed: dict[str, Counter[str]] = {}
        self._now: dict[str, dict[int, list[float]]] = {}
        """Logprobs under the current policy, by trace and turn; a trace is absent until read."""
        self._detailed: dict[str, set[int]] = {}
        """Numbers of the turns whose tokens are listed, by trace."""
        self._alternatives: dict[str, dict[int, list[Alternative] | str]] = {}
        """By trace and turn; or why there are none."""
        self._shown: tuple[str | None, ...] = ()

    def compose(self) -> ComposeResult:
        yield PageTitle(self._aside, "rollout-title")
        yield self.filter_field
        yield ClickableText(id="rollout-group")
        yield Static(id="rollout-legend", markup=False)
        yield self.view
        yield self.list
        yield KeyLine(self.VIEW)

    def on_mount(self) -> None:
        self.filter_field.fill(self.filter_field.value)
        self.view.focus()
        self.show()
        self.read()

    def watch_focused(self) -> None:
        self.call_after_refresh(make_way, self)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_lines)

    # What is shown.

    @property
    def listed(self) -> list[Rollout]:
        """The rollouts to go through, in the order of the list."""
        every = [rollout for group in self.groups for rollout in group.rollouts]
        ids = self._listed | {self.trace_id, self.beside}
        return [r for r in every if r.trace.id in ids] if self._listed else every

    def group_of(self, trace_id: str) -> RolloutGroup:
        return next(g for g in self.groups if any(r.trace.id == trace_id for r in g.rollouts))

    @property
    def group(self) -> RolloutGroup:
        return self.group_of(self.trace_id)

    def rollout(self, trace_id: str) -> Rollout:
        return next(r for r in self.group_of(trace_id).rollouts if r.trace.id == trace_id)

    @property
    def active(self) -> str:
        """The rollout that has the cursor."""
        return self.trace_id if self.beside is None or not self.view.side else self.beside

    @property
    def transcript(self) -> Transcript | None:
        """What the rollout with the cursor says; None until it was read."""
        read = self._read.get(self.active)
        return None if read is None else read.transcript

    def _side(self, trace_id: str) -> Side:
        rollout, group = self.rollout(trace_id), self.group_of(trace_id)
        read, trace = self._read.get(trace_id), self._trace(trace_id)
        most = max((abs(r.advantage) for r in group.rollouts if r.advantage is not None), default=0)
        stopped = stop_text(trace.stop_reason)
        why = f"stopped: {stopped}" if stopped else ""
        return Side(
            None if read is None else read.transcript,
            self._outcome(trace_id),
            Colouring(
                self.shade,
                rollout.advantage,
                most,
                self._now.get(trace_id, {}),
                frozenset(self._detailed.get(trace_id, ())),
                self._alternatives.get(trace_id, {}),
            ),
            self._which(trace_id),
            "still running: new turns are added" if is_active(trace.status) else why,
            self._removed.get(trace_id, Counter()),
        )

    def _trace(self, trace_id: str) -> Trace:
        """As it was read, else as it is listed."""
        read = self._read.get(trace_id)
        return self.rollout(trace_id).trace if read is None else read.trace

    def _outcome(self, trace_id: str) -> Outcome:
        rollout, group = self.rollout(trace_id), self.group_of(trace_id)
        outcome = outcome_of(
            self._trace(trace_id), rollout.advantage, group.rule.formula_end, group.evaluated
        )
        reward = rollout.trace.reward if outcome.reward is None else outcome.reward
        return replace(outcome, reward=reward)

    def _which(self, trace_id: str) -> str:
        """Which of two it is; empty if it is alone."""
        if self.beside is None:
            return ""
        group = self.group_of(trace_id)
        number = [r.trace.id for r in group.rollouts].index(trace_id) + 1
        side = f"{one_line(group.side_of(number - 1), 40)}, " if group.sides else ""
        return f"{side}rollout {number} of {len(group.rollouts)}"

    def show(self) -> None:
        ids = (self.trace_id,) if self.beside is None else (self.trace_id, self.beside)
        shown = tuple(id_ if id_ in self._read else None for id_ in ids)
        self.view.failure = next((self._failed[id_] for id_ in ids if id_ in self._failed), "")
        is_other = shown != self._shown
        self.view.show([self._side(id_) for id_ in ids], is_other)
        self._shown = shown
        self.view.find(self.filter_field.value, is_other)
        self._show_lines()

    @on(TranscriptView.SideChosen)
    def _show_lines(self) -> None:
        """The title, the group's line, and its list."""
        width, pane = self.size.width - 2, self.view
        hit = (pane.hit + 1, len(pane.hits)) if pane.search_text else None
        trace = self.rollout(self.active).trace
        removed = self._removed.get(self.active, Counter()).total()
        title = rollout_title(self.group_of(self.active), trace, width, removed, hit)
        self.query_one(PageTitle).title = Content(" ") + title
        self.query_one("#rollout-group", ClickableText).update(self._strip(width))
        line = self.query_one("#rollout-legend", Static)
        line.display = self.shade is not None
        line.update(legend(self._side(self.active).colouring))
        with self.prevent(Table.Moved):
            self.list.lay(sibling_columns(self.group))
            self.list.show(sibling_rows(self.group, self.trace_id, self.beside))
            self.list.select(self.beside or self.trace_id)
        self.query_one(KeyLine).renew()

    def _strip(self, width: int) -> Content:
        """The rewards of the group as bars, with the shown rollouts marked; a click shows one."""
        group, rollouts = self.group, self.group.rollouts
        rewards = [r.trace.reward for r in rollouts]
        high = max([1.0, *group.rewards])
        ids = [r.trace.id for r in rollouts]
        begin = ids.index(self.trace_id)
        stat = group.mean_text or "no rewards yet"
        room = max(8, width - len(stat) - 12)
        first = max(0, min(begin - room // 2, len(ids) - room))
        parts = [Content.styled(" group ", MUTED)]
        for number in range(first, min(len(ids), first + room)):
            bar = _bar(rewards[number], high)
            if ids[number] in (self.trace_id, self.beside):
                bar = Content.styled("▸", "bold $accent") + bar
            parts.append(bar.stylize(does(f"screen.show_rollout({number})")))
        return Content("").join([*parts, Content.styled(f"  {stat}", MUTED)])

    # Reading.

    @work(exclusive=True, group="read")
    async def read(self, again: bool = False) -> None:
        for trace_id in filter(None, (self.trace_id, self.beside)):
            if trace_id in self._read and not again:
                continue
            try:
                read = await read_rollout(self.client, trace_id, self.rollout(trace_id).trace)
            except HudError as error:
                self._failed[trace_id] = one_line(f"Cannot be read: {error.message}", 400)
                self.show()
                continue
            self._keep(trace_id, read)
            self.show()
        self.read_ratios()
        self.follow()

    @work(exclusive=True, group="follow")
    async def follow(self) -> None:
        """Read on what is shown while it runs, less often the longer nothing comes; and a little
        longer what was not graded yet: a client may upload its turns after it has ended."""
        quiet = late = 0
        while growing := [
            read
            for read in self._shown_reads
            if read.is_running or (late < LATE_LOOKS and not read.transcript.grading)
        ]:
            await sleep(backoff(UNHURRIED + quiet))
            late = 0 if any(read.is_running for read in growing) else late + 1
            quiet += 1
            for read in growing:
                with suppress(HudError):  # it is tried again
                    if newer := await read_newer(self.client, read):
                        quiet = 0
                        self._keep(read.trace.id, newer)
                        self.show()

    @property
    def _shown_reads(self) -> list[ReadRollout]:
        return [self._read[i] for i in (self.trace_id, self.beside) if i in self._read]

    def _keep(self, trace_id: str, read: ReadRollout) -> None:
        self._failed.pop(trace_id, None)
        self._read.pop(trace_id, None)
        self._read[trace_id] = read
        if is_active(self.rollout(trace_id).trace.status):  # in the list that it was opened from
            self.groups = [group.with_trace(read.trace) for group in self.groups]
        self.call_later(self._count_removed, trace_id, read)
        for old in list(self._read)[:-KEPT]:
            if old not in (self.trace_id, self.beside):
                del self._read[old]

    def _count_removed(self, trace_id: str, read: ReadRollout) -> None:
        """Count the symbols that stand for control characters, once it is in sight."""
        counts = Counter(symbol for text in read.transcript.texts() for symbol in pictures(text))
        if counts != self._removed.get(trace_id, Counter()):
            self._removed[trace_id] = counts
            self.show()

    def show_trace(self, trace_id: str) -> None:
        """Show another rollout: in place of the one beside, if there is one."""
        if self.beside is not None:
            self.beside = trace_id
        else:
            self.trace_id = trace_id
        self.show()
        self.read()

    # Keys.

    def hints(self, actions: Sequence[Action]) -> Sequence[Action]:
        """The actions among these that can be done now: see `HudScreen.hints`."""
        idle: set[str] = set() if self.view.hits else {"match(1)", "match(-1)"}
        idle |= set() if len(self.listed) > 1 else {"rollout(1)", "rollout(-1)"}
        idle |= set() if len(self.group.rollouts) > 1 else {"compare", "pane(1)"}
        idle |= set() if self._turn is not None else {"details"}
        block, labels = self.view.block, {}
        if self.beside is not None and not self.view.side:
            labels["pane(1)"] = "to the right"
        if block is not None and block.is_open:
            labels["fold"] = "fold"
        if self.view.is_all_open:
            labels["fold_all"] = "fold all"
        able = (action for action in actions if action.name not in idle)
        return [replace(each, label=labels.get(each.name, each.label)) for each in able]

    @on(Table.Moved, "#transcript")
    def _renew(self) -> None:
        self.query_one(KeyLine).renew()

    @on(TranscriptView.Opened)
    def action_fold(self) -> None:
        if self.list.has_focus:
            self.view.focus()
        else:
            self.view.fold()
            self._renew()

    def action_fold_all(self) -> None:
        self.view.fold_all()
        self._renew()

    def action_rollout(self, way: int) -> None:
        listed = self.listed if self.beside is None else self.group_of(self.beside).rollouts
        keys = [r.trace.id for r in listed if r.trace.id != (self.beside and self.trace_id)]
        index = keys.index(self.beside or self.trace_id) + way
        if 0 <= index < len(keys):
            self.show_trace(keys[index])
        else:
            show_notice(self.app, f"This is the {'last' if way > 0 else 'first'} rollout.")

    def action_show_rollout(self, number: int) -> None:
        self.show_trace(self.group.rollouts[number].trace.id)

    @on(RowList.Moved, "#siblings")
    def _moved(self, moved: RowList.Moved) -> None:
        if moved.key is not None and moved.key not in (self.trace_id, self.beside):
            self.show_trace(moved.key)

    @on(RowList.Opened, "#siblings")
    def action_pane(self, by: int = 1) -> None:
        """To the other rollout of two; then show the group as a list and go there; then back."""
        if self.list.has_focus:
            self.list.display = False
            self.view.to_side(0)
            self.view.focus()
        elif self.beside is not None and not self.view.side:
            self.view.to_side(1)
        else:
            self.list.display = True
            self.list.focus()
        self.call_after_refresh(self._show_lines)

    def action_compare(self) -> None:
        """Show another rollout of the group beside this one, the one with the most different
        reward; or this one alone."""
        if self.beside is not None:
            self.beside = None
        else:
            self.beside = counterpart(self.group, self.rollout(self.trace_id))
            if self.beside is None:
                show_notice(self.app, "Its group has no other rollout.")
                return
        self.show()
        self.read()

    def action_next_view(self) -> None:
        """The next measure that colours the tokens; of an evaluation only surprise."""
        views = VIEWS if self.group.compared and not self.group.heldout else VIEWS[:2]
        index = views.index(self.shade) if self.shade in views else 0
        self.shade = views[(index + 1) % len(views)]
        self.show()
        self.read_ratios()

    def action_search(self) -> None:
        """Search in all rollouts of the step, or of the job if it has no steps."""
        trace = self._trace(self.trace_id)
        if trace.job_id is None:
            show_notice(self.app, "The service does not say which job it is of.")
        else:
            text = self.filter_field.value
            search = RolloutSearch(
                self.client, RolloutScreen, trace.job_id, trace.step, text, self._aside
            )
            self.app.push_screen(search)

    def action_filter(self) -> None:
        self.filter_field.focus()

    @on(Input.Changed, "#rollout-filter")
    def _typed(self) -> None:
        self.view.find(self.filter_field.value)
        self._show_lines()

    def action_match(self, way: int) -> None:
        if not self.view.hits:
            text = "No match in this rollout." if self.view.search_text else keyed(NOT_SEARCHED)
            show_notice(self.app, text)
        self.view.next_hit(way)
        self._show_lines()

    def action_play(self) -> None:
        self.post_message(PlayRollout(self.active))

    def action_refresh(self) -> None:
        self.read(again=True)

    @work(exclusive=True, group="copy")
    async def action_copy(self) -> None:
        """Copy what is selected, else the rollout in a form that the user chooses."""
        if text := self.get_selected_text():
            self.app.copy_to_clipboard(text)
            return
        trace_id, read = self.active, self._read.get(self.active)
        if read is None:
            return
        choices = [(name, label) for name, (label, _) in FORMS.items()]
        lines = ["Text, Markdown, JSON: the whole rollout with its tool calls and its reward."]
        which = self._which(trace_id)
        title = f"Copy {which} as" if which else "Copy the rollout as"
        dialog = ChoiceDialog(title, lines, choices, "text", safe=True)
        form = await self.app.push_screen_wait(dialog)
        if form is not None:
            outcome = self._outcome(trace_id)
            copied = Copied(read.trace, read.transcript, outcome, read.events)
            self.app.copy_to_clipboard(FORMS[form][1](copied))

    def action_leave(self) -> None:
        if not self.filter_field.leave():
            self.dismiss(self.trace_id)

    # What the service computes on request.

    def read_ratios(self) -> None:
        """Request the current logprobs, if they are needed and unknown."""
        ids = [id_ for id_ in (self.trace_id, self.beside) if id_ and id_ not in self._now]
        if self.shade is Shade.RATIO and ids:
            self._read_now(ids)

    @work(exclusive=True, group="ratios")
    async def _read_now(self, trace_ids: Sequence[str]) -> None:
        """A forward pass over each of these rollouts: it changes nothing. While a run trains the
        model the service refuses it, which is shown."""
        if self.model_id is None:
            text = "No model selected to compare with: {app.view.models} chooses one."
            show_notice(self.app, keyed(text))
            return
        for trace_id in trace_ids:
            forward = Forward(inputs=[trace_id])
            try:
                passed = await self.client.training.forward(self.model_id, forward)
            except HudError as error:
                show_error(self.app, error)
                return
            self._now[trace_id] = {
                turn: [p for p, mask in zip(datum.logprobs, datum.mask, strict=False) if mask > 0]
                for turn, datum in enumerate(passed.data)
            }
            self.show()

    @work(exclusive=True, group="alternatives")
    async def action_details(self) -> None:
        """List the tokens of the turn under the cursor, or not; and ask for the likeliest ones in
        place of its least likely ones."""
        trace_id, read, turn = self.active, self._read.get(self.active), self._turn
        if read is None or turn is None or turn.number is None:
            show_notice(self.app, "This block has no tokens: move to a turn that was sampled.")
            return
        self.shade = self.shade or Shade.SURPRISE
        detailed = self._detailed.setdefault(trace_id, set())
        detailed ^= {turn.number}
        self.show()
        self.view.unfold(turn)
        alternatives = self._alternatives.setdefault(trace_id, {})
        if turn.number in detailed and turn.number not in alternatives:
            asked = read_alternatives(self.client, read.trace, turn)
            try:
                told = [Alternative(index, others) for index, others in await asked]
            except HudNotFound:
                alternatives[turn.number] = WEIGHTS_GONE
            except HudError as error:
                show_error(self.app, error)
            else:
                alternatives[turn.number] = told
            self.show()

    @property
    def _turn(self) -> Turn | None:
        """The turn under the cursor; None if it has no tokens."""
        block = self.view.block
        turn = None if block is None else block.sources[self.view.side]
        return turn if isinstance(turn, Turn) and turn.sample is not None else None


def _bar(reward: float | None, high: float) -> Content:
    if reward is None or reward != reward:
        return Content.styled("·", MUTED)
    return Content.styled(eighth(max(reward, 1e-6) / high), RAMP[ramp_index(reward, 0.0, high)])


def counterpart(group: RolloutGroup, rollout: Rollout) -> str | None:
    """The rollout of its group whose reward differs most, of the other side if there are two; None
    if it is alone."""
    own = rollout.trace.reward or 0.0
    sides = {r.trace.id: group.side_of(n) for n, r in enumerate(group.rollouts)}
    others = [r for r in group.rollouts if r.trace.id != rollout.trace.id]
    across = [r for r in others if sides[r.trace.id] != sides[rollout.trace.id]] or others
    farthest = max(across, key=lambda r: abs((r.trace.reward or 0.0) - own), default=None)
    return None if farthest is None else farthest.trace.id
