"""ShipPanel: which of a few candidates to serve, and rollouts spent on that while the app is
open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import ClassVar

from textual import work
from textual.app import App
from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from hud_tui.audit_log import UNNAMED, TaskSource
from hud_tui.client.selection import Entry, Selection, Selector
from hud_tui.errors import HudError
from hud_tui.keys import keyed
from hud_tui.rl.ship import COLUMNS, Ranking, Standing, rounds_text
from hud_tui.rl.ship import Column as StandingColumn
from hud_tui.rl.text import counted, one_line, spaced
from hud_tui.rl.work import weights_name
from hud_tui.tui.keys import FootLine, bindings
from hud_tui.tui.screens.base import WritePolicy
from hud_tui.tui.screens.dialogs import Panel, show_error, show_notice
from hud_tui.tui.screens.evaluate import BudgetDialog
from hud_tui.tui.session import RunSession, Spending
from hud_tui.tui.widgets.table import Column, RowList, item_row
from hud_tui.wire import Model

AGAIN_S = 0.5
"""Seconds between two looks at how the sampling goes on."""
SELECTIONS = "selections"
"""Group of the workers that sample for selections."""
MUTED = "$text-muted"
KNOWN = "By the evaluations there are, which may be why these are candidates."
BUDGET = " {ship.evaluate} samples fresh rollouts of all."


HINTS = {
    "cancel_sampling": "{ship.cancel_sampling} stop",
    "resume_sampling": "{ship.resume_sampling} go on",
    "evaluate": "{ship.evaluate} sample",
    "set_head": "{ship.set_head} set head",
    "compare": "{ship.compare} compare with it",
}


def _column(column: StandingColumn) -> Column[Standing]:
    return Column(
        column.title,
        column.width,
        lambda standing: one_line(column.text(standing), 200),
        right=column.right,
        rank=column.rank,
    )


TABLE = tuple(map(_column, COLUMNS))


def selector_of(session: RunSession) -> Selector:
    return Selector(session.works, session.store.directory)


def start_sampling(
    app: App[None], session: RunSession, selection: Selection, source: TaskSource = UNNAMED
) -> None:
    """Sample for a selection to its end, whichever view is shown meanwhile."""
    session.spending[selection.id] = Spending(selection)
    app.run_worker(_sample(app, session, selection, source), group=SELECTIONS)


async def _sample(
    app: App[None], session: RunSession, selection: Selection, source: TaskSource
) -> None:
    spending, selector = session.spending[selection.id], selector_of(session)
    try:
        async with aclosing(selector.spend(selection, source)) as states:
            async for now in states:
                spending.under_way = now
        verdict = (await selector.fresh(selection)).sentences()[0]
    except HudError as error:
        if spending.stopped:
            show_notice(app, "Stopped sampling: what is sampled is kept.")
        else:
            show_error(app, error)
    else:
        show_notice(app, f"{verdict}.")
    finally:
        session.spending.pop(selection.id, None)


@dataclass(frozen=True)
class Shown:
    """What the panel shows."""

    ranking: Ranking
    selection: Selection | None
    """The selection that its rollouts were sampled for; None: of whatever origin."""


class ShipPanel(Panel[Entry]):
    """Candidates in a table, and the verdict; closes with the one to serve."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("ship")
    FOOT = "{panel.close} back"

    def __init__(
        self, session: RunSession, writes: WritePolicy, model: Model, entries: Sequence[Entry]
    ) -> None:
        """`model`: the one whose tasks they are sampled on unless others are typed."""
        super().__init__(f"Which of {len(entries)} to ship")
        self.session, self.writes, self.model, self.entries = session, writes, model, entries
        bases = [number for number, e in enumerate(entries) if e.checkpoint_id is None]
        self.reference = bases[0] if bases else 0
        self.selector = selector_of(session)
        self.sentences = Static("reading their evaluations …", id="ship-said", markup=False)
        self.table = RowList(TABLE, id="ship-table", least=14)
        self.progress = Static("", id="ship-progress", markup=False)
        self.shown: Shown | None = None
        self._drawn: tuple[object, ...] = ()
        """What the last reading was of."""

    def body(self) -> Iterable[Widget]:
        yield self.table
        yield self.sentences
        yield self.progress

    def on_mount(self) -> None:
        self.table.focus()
        self.set_interval(AGAIN_S, self._look)
        self.read()

    @property
    def spending(self) -> Spending | None:
        """The sampling under way among these candidates."""
        keys = {entry.key for entry in self.entries}
        under_way = self.session.spending.values()
        return next((s for s in under_way if {e.key for e in s.selection.entries} == keys), None)

    @property
    def standing(self) -> int | None:
        """Position of the candidate under the cursor."""
        return None if self.table.key is None else int(self.table.key)

    def _look(self) -> None:
        spending = self.spending
        under_way = None if spending is None else spending.under_way
        now = (None if under_way is None else under_way.id, spending is None)
        if now != self._drawn:
            self._drawn = now
            self.read()
        self._show_progress()

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Read the rollouts of the newest selection among them; without one, those there are."""
        try:
            spending = self.spending
            selection = spending.selection if spending else await self.selector.newest(self.entries)
            if selection is not None:
                reference = self.entries[self.reference].key
                self.entries = selection.entries
                self.reference = [entry.key for entry in self.entries].index(reference)
            ranking = await self.selector.known(self.entries, self.reference)
            if selection is not None and selection.evaluations:
                selection.reference = self.reference
                fresh = await self.selector.fresh(selection)
                ranking = fresh if fresh.leader is not None else ranking
        except HudError as error:
            self.sentences.update(one_line(f"{error.message}; {error.hint}", 400))
            return
        await asyncio.to_thread(_computed, ranking)
        self.shown = Shown(ranking, selection)
        self._show()

    def _show(self) -> None:
        if self.shown is None:
            return
        rows = [
            item_row(TABLE, str(standing.position), standing)
            for standing in self.shown.ranking.standings
        ]
        self.table.show(rows)
        said = self.shown.ranking.sentences()
        head = Content.styled("\n".join(f"{sentence}." for sentence in said[:1]), "bold")
        rest = "".join(f"\n{sentence}." for sentence in said[1:])
        self.sentences.update(Content.assemble(head, rest))
        self._show_progress()

    def _show_progress(self) -> None:
        self.progress.update(Content.styled(self._progress_text(), MUTED))
        self.query_one("#panel-foot", FootLine).show_text(self._foot())

    def _foot(self) -> str:
        """The keys that do something now."""
        hints = [hint for name, hint in HINTS.items() if self.check_action(name, ())]
        return "   ".join([*hints, self.FOOT])

    def _progress_text(self) -> str:
        spending, shown = self.spending, self.shown
        if spending is not None:
            now = spending.under_way
            at = "" if now is None else f": {weights_name(now)} {now.done} of {now.total}"
            return f"Sampling {spaced(spending.selection.planned)} rollouts{one_line(at, 80)}"
        if shown is None:
            return ""
        if shown.selection is None:
            return keyed((KNOWN if shown.ranking.leader is not None else "") + BUDGET).strip()
        selection = shown.selection
        spent = f"{counted(selection.planned, 'fresh rollout')}: {rounds_text(selection.rounds)}."
        if selection.is_complete:
            return keyed(f"{spent} {{ship.evaluate}} samples others.")
        return keyed(f"Cut short of {spent} {{ship.resume_sampling}} goes on.")

    # Keys.

    @work(exclusive=True, group="budget")
    async def action_evaluate(self) -> None:
        """Ask for a budget, and sample within it."""
        if not self.writes.may_change():
            return
        dialog = BudgetDialog(self.session, self.selector, self.model, self.entries, self.reference)
        selection = await self.app.push_screen_wait(dialog)
        if selection is not None:
            start_sampling(self.app, self.session, selection)
            self._look()

    def action_resume_sampling(self) -> None:
        if self.shown is not None and self.shown.selection is not None:
            start_sampling(self.app, self.session, self.shown.selection)
            self._look()

    @work(exclusive=True, group="budget")
    async def action_cancel_sampling(self) -> None:
        """Stop after the rollouts under way; the selection can go on later."""
        spending = self.spending
        if spending is None or spending.under_way is None:
            return
        spending.stopped = True
        try:
            await self.session.evaluation_runner.cancel(spending.under_way.id)
        except HudError as error:
            show_error(self.app, error)

    def action_compare(self) -> None:
        """Show the others beside the candidate under the cursor."""
        if self.standing is not None:
            self.reference = self.standing
            self.read()

    def action_set_head(self) -> None:
        if (entry := self._servable) is not None:
            self.dismiss(entry)

    @property
    def _servable(self) -> Entry | None:
        """The candidate under the cursor, if it is a checkpoint."""
        entry = None if self.standing is None else self.entries[self.standing]
        return None if entry is None or entry.checkpoint_id is None else entry

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        selection = None if self.shown is None else self.shown.selection
        match action:
            case "evaluate":
                return self.spending is None
            case "resume_sampling":
                return self.spending is None and selection is not None and not selection.is_complete
            case "cancel_sampling":
                return self.spending is not None and self.spending.under_way is not None
            case "set_head":
                return self._servable is not None
            case "compare":
                return self.standing is not None
        return True


def _computed(ranking: Ranking) -> None:
    """Compute what is shown, which takes long."""
    ranking.sentences()
    for standing in ranking.standings:
        for column in COLUMNS:
            column.text(standing)
