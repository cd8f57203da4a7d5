"""ShipPanel: which of a few candidates to serve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import ClassVar

from textual.binding import BindingType

from hud_tui.client.records import Asked, Record
from hud_tui.client.selection import Entry, Selection, Selector
from hud_tui.errors import HudUsage
from hud_tui.keys import keyed
from hud_tui.rl.ship import COLUMNS, Ranking, Standing, halving, rounds_text, short_names
from hud_tui.rl.ship import Column as StandingColumn
from hud_tui.rl.text import counted, one_line
from hud_tui.tui.keys import bindings
from hud_tui.tui.screens.base import WritePolicy
from hud_tui.tui.screens.evaluate import BudgetDialog
from hud_tui.tui.screens.sampling import SamplingPanel
from hud_tui.tui.session import RunSession
from hud_tui.tui.widgets.table import Column, Row, RowList, item_row
from hud_tui.wire import Model, WorkState

KNOWN = "By the evaluations there are, which may be why these are candidates."
TOGETHER = "The intervals hold for all pairs together."
SAMPLES = " {ship.evaluate} samples fresh rollouts of all."
HALVING = "Fresh rollouts, equally many of each; the better half goes on to the next round."
USUAL_BUDGET = 1000
"""Rollouts that are proposed."""


def _column(column: StandingColumn) -> Column[Standing]:
    return Column(
        column.title,
        column.width,
        lambda standing: one_line(column.text(standing), 200),
        right=column.right,
        rank=column.rank,
    )


TABLE = tuple(map(_column, COLUMNS))


class ShipPanel(SamplingPanel[Entry, Selection]):
    """Candidates in a table, and the verdict; closes with the one to serve."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("ship")
    HINTS: ClassVar[dict[str, str]] = {
        "cancel_sampling": "{ship.cancel_sampling} stop",
        "resume_sampling": "{ship.resume_sampling} go on",
        "evaluate": "{ship.evaluate} sample",
        "set_head": "{ship.set_head} set head",
        "compare": "{ship.compare} compare with it",
    }

    def __init__(
        self, session: RunSession, writes: WritePolicy, model: Model, entries: Sequence[Entry]
    ) -> None:
        """`model`: the one whose tasks they are sampled on unless others are typed."""
        table = RowList(TABLE, id="sampling-table", least=14)
        super().__init__(f"Which of {len(entries)} to ship", session, writes, table)
        self.model, self.entries = model, entries
        bases = [number for number, e in enumerate(entries) if e.checkpoint_id is None]
        self.reference = bases[0] if bases else 0
        self._selector = Selector(session.works, session.store.directory)
        self.ranking: Ranking | None = None

    @property
    def selector(self) -> Selector:
        """With the present client, which a reconnect replaces."""
        if self._selector.works is not self.session.works:
            self._selector = Selector(self.session.works, self.session.store.directory)
        return self._selector

    @property
    def standing(self) -> int | None:
        """Position of the candidate under the cursor."""
        return None if self.table.key is None else int(self.table.key)

    def is_for_this(self, record: Record) -> bool:
        keys = {entry.key for entry in self.entries}
        return isinstance(record, Selection) and {e.key for e in record.entries} == keys

    async def newest(self) -> Selection | None:
        return await self.selector.newest(self.entries)

    async def read_record(self) -> None:
        """Without a selection, by the rollouts there are."""
        ranking = await self.selector.ranking(self.entries, self.reference, self.record)
        await asyncio.to_thread(_computed, ranking)
        self.ranking = ranking
        names = short_names([entry.name for entry in self.entries])
        self.table.show([_row(each, names[each.position]) for each in ranking.standings])
        self.show_said(ranking.sentences())

    def state_text(self) -> str:
        if self.ranking is None:
            return ""
        if self.record is None:
            return keyed((KNOWN if self.ranking.leader is not None else "") + SAMPLES).strip()
        if self.record.is_complete:
            more = f"{TOGETHER} {{ship.evaluate}} samples others."
            return keyed(f"{self.record.spent_text} {more}")
        return keyed(f"Cut short of {self.record.spent_text} {{ship.resume_sampling}} goes on.")

    def budget_dialog(self) -> BudgetDialog:
        title = f"Sample {counted(len(self.entries), 'candidate')}"
        plan = HALVING, USUAL_BUDGET, self._foreseen, self._begin
        return BudgetDialog(self.session, self.model, title, *plan)

    def _foreseen(self, tasks: int, budget: int) -> tuple[str, int]:
        try:
            rounds = halving(len(self.entries), tasks, budget)
        except ValueError as error:
            raise HudUsage(str(error)) from None
        spent = sum(each.candidates * each.samples for each in rounds) * tasks
        return rounds_text(rounds), spent

    async def _begin(self, asked: Asked, budget: int) -> Record:
        return await self.selector.begin(self.entries, self.reference, asked, budget)

    def spend(self, record: Selection) -> AsyncGenerator[WorkState, None]:
        return self.selector.spend(record)

    async def verdict(self, record: Selection) -> str:
        return (await self.selector.fresh(record)).sentences()[0]

    # Keys.

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
        match action:
            case "set_head":
                return self._servable is not None
            case "compare":
                return self.standing is not None
        return super().check_action(action, parameters)


def _row(standing: Standing, name: str) -> Row:
    named = replace(standing, candidate=replace(standing.candidate, name=name))
    return item_row(TABLE, str(standing.position), named)


def _computed(ranking: Ranking) -> None:
    """Compute what is shown, which takes long."""
    ranking.sentences()
    for standing in ranking.standings:
        for column in COLUMNS:
            column.text(standing)
