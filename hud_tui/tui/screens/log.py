"""LogScreen: the command log; each entry can be copied as a command."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input, Static

from hud_tui.audit_log import (
    AuditEntry,
    CommandLog,
    as_curl,
    as_hud,
    as_hud_tui,
    as_python,
    change_text,
    document,
    key_variable,
    local_time,
    matching,
    sent_to,
)
from hud_tui.client.client import HudClient
from hud_tui.client.submit import omitted_tasks
from hud_tui.keys import keyed
from hud_tui.rl.text import age, counted, one_line
from hud_tui.tui.keys import KeyLine
from hud_tui.tui.screens.base import Aside, PageTitle
from hud_tui.tui.screens.dialogs import ChoiceDialog, Leavable, show_notice
from hud_tui.tui.screens.json import JsonScreen
from hud_tui.tui.widgets.form import FilterField
from hud_tui.tui.widgets.lines import labelled
from hud_tui.tui.widgets.table import DIM, Column, RowList, item_row

# Rows of the command log, and the details of one entry.


MARKS = {"done": ("✔", "$accent"), "refused": ("✘", "bold $error")}
UNKNOWN = ("?", "bold $warning")
REPEATED = frozenset({"rollout", "enter trace", "exit trace", "forward-backward"})
"""Verbs that are often repeated; a series is shown as one row."""
SAID = {"done": "done", "refused": "refused", "unknown": "no answer: it may have been done"}


def folded(log: Sequence[AuditEntry]) -> list[tuple[AuditEntry, int]]:
    series = [[*alike] for _, alike in groupby(reversed(log), _series)]
    return [(alike[0], len(alike)) for alike in series]


def _series(entry: AuditEntry) -> object:
    """Equal for entries that are shown as one row."""
    return (
        (entry.verb, entry.outcome, entry.by, entry.service) if entry.verb in REPEATED else object()
    )


@dataclass(frozen=True)
class LogLine:
    """An entry in the list, how many it stands for, and the time in Unix seconds."""

    entry: AuditEntry
    count: int
    now: float


def _verb(line: LogLine) -> str:
    times = f" ×{line.count}" if line.count > 1 else ""
    return one_line(line.entry.verb, 14) + times


COLUMNS: Sequence[Column[LogLine]] = (
    Column("when", 6, lambda line: age(line.entry.at, line.now), DIM, right=True),
    Column("", 1, lambda line: Content.styled(*MARKS.get(line.entry.outcome, UNKNOWN))),
    Column("what", 16, _verb, "bold"),
    Column("model", 18, lambda line: one_line(line.entry.name or line.entry.model[:8], 40), rank=1),
    Column("before → after", 0, lambda line: one_line(change_text(line.entry), 80)),
    Column("by", 8, lambda line: one_line(line.entry.by, 8), DIM, rank=2),
)


def entry_text(entry: AuditEntry, flags: str = "") -> Iterator[Content]:
    """The details of one entry, in lines. `flags`: as of `as_hud_tui`."""
    mark, style = MARKS.get(entry.outcome, UNKNOWN)
    where = f"   {local_time(entry)} · {one_line(entry.service, 40)} · {one_line(entry.by, 20)}"
    outcome = SAID.get(entry.outcome, one_line(entry.outcome, 20))
    yield Content.assemble((f"{mark} {outcome}", style), (where, "$text-muted"))
    if entry.before or entry.after:
        change = f"{one_line(entry.before, 80) or '–'} → {one_line(entry.after, 80) or '–'}"
        yield _field("changed", change)
    if entry.subject:
        yield _field("of", one_line(entry.subject, 120))
    if entry.message:
        yield _field("message", one_line(entry.message, 300))
    request = f" · request {one_line(entry.request_id, 60)}" if entry.request_id else ""
    if entry.url or entry.request_id:
        yield _field("sent", f"{one_line(entry.method, 8)} {one_line(entry.url, 200)}{request}")
    if command := as_hud_tui(entry, flags):
        yield _field("command", one_line(command, 1000))


_field = partial(labelled, 9)


EMPTY = (
    "No changes were made from this machine yet. Forks, submissions, head changes, "
    "cancellations, pins and set-ups of machines are logged here; reads are not."
)
ON_ENTRY = frozenset({"open", "copy", "copy_as"})
NO_PYTHON = "Not available as Python: the request body is not kept."
AGAIN_S = 1.0
"""Seconds between two looks at whether anything was added."""
NO_COMMAND = "hud-tui has no command for it: {log.copy_as} copies the request."


class LogScreen(Leavable[None]):
    VIEW = "log"

    def __init__(
        self,
        state: Path | None,
        clock: Callable[[], float],
        client: HudClient,
        aside: Callable[[], Aside],
    ) -> None:
        """`state` has the log; `client` reads again what a submission's tasks came from; `aside` is
        what costs money."""
        super().__init__()
        self._aside = aside
        self._log = None if state is None else CommandLog(state)
        self._clock, self._client, self._bad = clock, client, 0
        self._flags = client.settings.flags
        self._stamp: object = None
        self._all: list[AuditEntry] | None = None
        self._shown: list[tuple[AuditEntry, int]] = []
        self.list = RowList(COLUMNS, id="log", least=16)
        self.filter_field = FilterField("a verb, model, id, outcome", "log-filter", self.list)

    def compose(self) -> ComposeResult:
        yield PageTitle(self._aside, "log-title")
        yield self.filter_field
        yield self.list
        yield Static(id="log-text", markup=False)
        yield KeyLine(self.VIEW)

    def on_mount(self) -> None:
        self.list.focus()
        self.read()
        self.set_interval(AGAIN_S, self._again)

    def _again(self) -> None:
        if self._log is not None and self._stamp not in (None, self._log.stamp):
            self.read()

    @property
    def entry(self) -> AuditEntry | None:
        key = self.list.key
        index = len(self._shown) - 1 - int(key) if key is not None else -1
        return self._shown[index][0] if 0 <= index < len(self._shown) else None

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        if self._log is not None:
            stamp = self._log.stamp
            self._all, self._bad = await to_thread(self._log.read)
            self._stamp = stamp
        else:
            self._all = []
        self.show()

    def show(self) -> None:
        matches = matching(self._all or [], self.filter_field.value)
        self._shown = folded(matches)
        now, last = self._clock(), len(self._shown) - 1
        lines = [LogLine(entry, count, now) for entry, count in self._shown]
        # counted from the oldest: such a key does not change
        self.list.show(
            [item_row(COLUMNS, str(last - number), line) for number, line in enumerate(lines)]
        )
        bad = f" · {counted(self._bad, 'line')} cannot be read" if self._bad else ""
        count = f"  {counted(len(matches), 'request')}{bad}"
        title = Content.assemble((" Command log", "bold"), (count, "$text-muted"))
        self.query_one(PageTitle).title = title
        self._show_text()

    @on(RowList.Moved)
    def _show_text(self) -> None:
        entry = self.entry
        text = Content.styled(self._calm(), "$text-muted")
        if entry is not None:
            text = Content("\n").join(entry_text(entry, self._flags))
        self.query_one("#log-text", Static).update(text)
        self.refresh_bindings()

    def _calm(self) -> str:
        """Text of an empty list."""
        if self._log is None:
            return "No state directory: nothing is logged."
        if self._all is None:
            return "reading the log …"
        return keyed("No entry matches · {log.leave} shows all") if self._all else EMPTY

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        return action not in ON_ENTRY or self.entry is not None

    @on(RowList.Opened)
    def action_open(self) -> None:
        entry = self.entry
        if entry is not None:
            title = f"{one_line(entry.verb, 20)}: whole entry"
            self.app.push_screen(JsonScreen(title, document(entry, self._flags), self._aside))

    def action_copy(self) -> None:
        text = as_hud_tui(self.entry, self._flags) if self.entry is not None else ""
        if text:
            self.app.copy_to_clipboard(text)
        else:
            show_notice(self.app, keyed(NO_COMMAND), "warning")

    @work(exclusive=True, group="copy")
    async def action_copy_as(self) -> None:
        entry = self.entry
        if entry is None:
            return
        rest, why = await omitted_tasks(self._client, entry)
        settings = self._client.settings
        if entry.local and settings.local:
            entry = sent_to(entry, settings.api_url)
        forms = {
            "curl": ("curl", as_curl(entry, rest)),
            "hud": ("hud", as_hud(entry)),
            "python": ("Python", as_python(entry)),
        }
        choices = [(name, label) for name, (label, text) in forms.items() if text]
        if not choices and why:
            show_notice(self.app, f"Nothing to copy: {why}.", "warning")
            return
        if not choices:  # nothing was sent: a command on this machine
            self.action_copy()
            return
        lines = [
            f"A command that sends the same request; it reads the key from ${key_variable(entry)}."
        ]
        lines += [f"Not available as curl: {why}."] * bool(why)
        lines += [NO_PYTHON] * (not forms["python"][1])
        chosen = await self.app.push_screen_wait(
            ChoiceDialog("Copy the request as", lines, choices, choices[0][0], safe=True)
        )
        if chosen is not None:
            self.app.copy_to_clipboard(forms[chosen][1])

    def action_filter(self) -> None:
        self.filter_field.focus()

    @on(Input.Changed, "#log-filter")
    def _filtering(self) -> None:
        self.show()

    def action_refresh(self) -> None:
        self.read()

    def action_leave(self) -> None:
        if not self.filter_field.leave():
            self.dismiss()
