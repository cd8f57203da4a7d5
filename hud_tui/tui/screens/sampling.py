"""SamplingPanel: what is told by evaluations that are made step by step while the app is open."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import ClassVar, Generic, TypeVar, cast

from textual import work
from textual.app import App
from textual.content import Content
from textual.widgets import Static

from hud_tui.client.records import Record
from hud_tui.errors import HudError
from hud_tui.keys import keyed
from hud_tui.rl.text import one_line, spaced
from hud_tui.rl.work import weights_name
from hud_tui.tui.keys import FootLine
from hud_tui.tui.screens.base import WritePolicy
from hud_tui.tui.screens.dialogs import ConfirmDialog, Panel, show_error, show_notice
from hud_tui.tui.screens.evaluate import BudgetDialog
from hud_tui.tui.session import RunSession, Spending
from hud_tui.tui.widgets.table import RowList
from hud_tui.wire import WorkState

AGAIN_S = 0.5
"""Seconds between two looks at how the sampling goes on."""
SAMPLING = "sampling"
"""Group of the workers that sample."""
SAMPLES_OR_SERVES = frozenset({"evaluate", "resume_sampling", "cancel_sampling", "set_head"})
"""Actions that are not hinted at in read-only mode."""
T = TypeVar("T")
R = TypeVar("R", bound=Record)


async def _sample(
    app: App[None],
    session: RunSession,
    record: Record,
    spend: AsyncGenerator[WorkState, None],
    verdict: Callable[[], Awaitable[str]],
) -> None:
    spending = session.spending[record.id]
    try:
        async with aclosing(spend) as states:
            async for now in states:
                spending.under_way = now
        told = await verdict()
    except HudError as error:
        if spending.stopped:
            show_notice(app, "Stopped: the rollouts so far are kept.")
        else:
            show_error(app, error)
    else:
        show_notice(app, f"{told}.")
    finally:
        session.spending.pop(record.id, None)


async def may_leave_sampling(app: App[None], session: RunSession) -> bool:
    """Whether to quit although that cuts sampling short."""
    if not session.spending:
        return True
    lines = [
        "Rollouts so far are kept. The running evaluation goes on; no further one begins.",
        keyed("{ship.resume_sampling} in the same panel resumes it later."),
    ]
    dialog = ConfirmDialog("Quit while candidates are sampled", lines, "Quit", keep="Stay")
    return await app.push_screen_wait(dialog)


class SamplingPanel(Panel[T], Generic[T, R]):
    """A table, the verdict, and how the sampling goes on. Sampling continues when it is closed.

    A subclass shows what is known, and says how more is sampled.
    """

    HINTS: ClassVar[dict[str, str]] = {}
    """Its keys, by action, in the order in which they are shown."""
    record: R | None = None
    """What was sampled for this; None before anything was."""

    def __init__(
        self, title: str, session: RunSession, writes: WritePolicy, table: RowList
    ) -> None:
        super().__init__(title)
        self.session, self.writes, self.table = session, writes, table
        self.sentences = Static("reading the evaluations …", id="sampling-said", markup=False)
        self.progress = Static("", id="sampling-progress", markup=False)
        self._drawn: tuple[object, ...] = ()
        """What the last reading was of."""

    def body(self) -> tuple[RowList, Static, Static]:
        return self.table, self.sentences, self.progress

    def on_mount(self) -> None:
        self.table.focus()
        self.set_interval(AGAIN_S, self._look)
        self.read()

    @abstractmethod
    def is_for_this(self, record: Record) -> bool:
        """Whether a record is of what the panel shows."""

    @abstractmethod
    async def newest(self) -> R | None:
        """The newest record of what the panel shows. Raises HudError."""

    @abstractmethod
    async def read_record(self) -> None:
        """Read what is known by the record, and show it. Raises HudError."""

    @abstractmethod
    def budget_dialog(self) -> BudgetDialog:
        """Asks for a budget."""

    @abstractmethod
    def spend(self, record: R) -> AsyncGenerator[WorkState, None]:
        """Sample what is missing."""

    @abstractmethod
    async def verdict(self, record: R) -> str:
        """What the sampling has come to, in a sentence. Raises HudError."""

    @abstractmethod
    def state_text(self) -> str:
        """What the table is of, and what to press, while nothing is sampled."""

    @property
    def spending(self) -> Spending | None:
        """The sampling under way for this."""
        under_way = self.session.spending.values()
        return next((each for each in under_way if self.is_for_this(each.record)), None)

    def _look(self) -> None:
        spending = self.spending
        under_way = None if spending is None else spending.under_way
        now = (None if under_way is None else under_way.id, spending is None)
        if now != self._drawn:
            self._drawn = now
            self.read()
        self.show_progress()

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        try:
            spending, newest = self.spending, await self.newest()
            self.record = newest if spending is None else cast(R, spending.record)
            await self.read_record()
        except HudError as error:
            self.sentences.update(one_line(f"{error.message}; {error.hint}", 400))
        self.show_progress()

    def show_said(self, said: list[str]) -> None:
        head, *rest = (f"{sentence}." for sentence in said)
        text = "".join(f"\n{sentence}" for sentence in rest)
        self.sentences.update(Content.assemble((head, "bold"), text))

    def show_progress(self) -> None:
        self.progress.update(Content.styled(self._progress_text(), "$text-muted"))
        shut = SAMPLES_OR_SERVES if self.writes.read_only is not None else frozenset[str]()
        able = (name for name in self.HINTS if name not in shut and self.check_action(name, ()))
        hints = [self.HINTS[name] for name in able]
        foot = "   ".join([*hints, self.FOOT])
        self.query_one("#panel-foot", FootLine).show_text(foot)

    def _progress_text(self) -> str:
        spending = self.spending
        if spending is None:
            return self.state_text()
        now = spending.under_way
        which = "" if now is None else f": {weights_name(now)} {now.done} of {now.total}"
        return f"Sampling at most {spaced(spending.record.budget)} rollouts{one_line(which, 80)}"

    def start(self, record: R) -> None:
        """Sample to the end, whichever view is shown meanwhile."""
        self.session.spending[record.id] = Spending(record)
        sampling = _sample(
            self.app, self.session, record, self.spend(record), lambda: self.verdict(record)
        )
        self.app.run_worker(sampling, group=SAMPLING)
        self._look()

    # Keys.

    @work(exclusive=True, group="budget")
    async def action_evaluate(self) -> None:
        """Ask for a budget, and sample within it."""
        if self.writes.may_change():
            record = await self.app.push_screen_wait(self.budget_dialog())
            if record is not None:
                self.start(cast(R, record))

    def action_resume_sampling(self) -> None:
        if self.record is not None and self.writes.may_change():
            self.start(self.record)

    @work(exclusive=True, group="budget")
    async def action_cancel_sampling(self) -> None:
        """Stop after the rollouts under way; it can go on later."""
        spending = self.spending
        if spending is None or spending.under_way is None:
            return
        spending.stopped = True
        try:
            await self.session.evaluation_runner.cancel(spending.under_way.id)
        except HudError as error:
            show_error(self.app, error)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        spending, record = self.spending, self.record
        match action:
            case "evaluate":
                return spending is None
            case "resume_sampling":
                return spending is None and record is not None and not record.is_complete
            case "cancel_sampling":
                return spending is not None and spending.under_way is not None
        return True
