"""AlarmBook: which alarms of a model the user has acknowledged or snoozed, kept in a JSON file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256

from textual.content import Content

from hud_tui.rl.alarms.alarm import Alarm, Level, Report, Skipped
from hud_tui.rl.alarms.monitor import AlarmMonitor
from hud_tui.rl.alarms.thresholds import Thresholds
from hud_tui.rl.metrics import short
from hud_tui.rl.run import Run
from hud_tui.storage import JsonStore
from hud_tui.tui.widgets.row_list import Column, Row

SNOOZE = 100
"""Steps for which a snoozed detector raises no alarm."""
MOST = 500
"""Acknowledged alarms that are remembered, the newest."""
EXPECTED = {list: "a list of alarms' ids", dict: "an object, {…}"}


class AlarmBook:
    """Acknowledged alarms and snoozed detectors of one model."""

    def __init__(self, store: JsonStore, model_id: str) -> None:
        self._store = store
        self._name = f"alarms-{sha256(model_id.encode()).hexdigest()[:16]}"
        kept = store.read(self._name)
        seen, snoozed = kept.get("acknowledged"), kept.get("snoozed")
        for name, kind in (("acknowledged", list), ("snoozed", dict)):
            if not isinstance(kept.get(name, kind()), kind):
                store.leave(self._name, f"{name}: expected {EXPECTED[kind]}")
        ids = seen if isinstance(seen, list) else []
        steps = snoozed if isinstance(snoozed, dict) else {}
        self._seen = dict.fromkeys(id_ for id_ in ids[-MOST:] if isinstance(id_, str))
        self._until = {name: n for name, n in steps.items() if type(n) is int}

    def quiet(self, report: Report) -> frozenset[str]:
        """Ids of the report's alarms that are acknowledged or snoozed now."""
        return frozenset(
            alarm.id
            for alarm in report.alarms
            if alarm.id in self._seen or self.snoozed_until(alarm.name) > report.steps
        )

    def is_acknowledged(self, alarm: Alarm) -> bool:
        return alarm.id in self._seen

    def snoozed_until(self, name: str) -> int:
        """The step count at which a detector raises alarms again; 0 where it is not snoozed."""
        return self._until.get(name, 0)

    def acknowledge(self, alarm: Alarm) -> bool:
        """Toggle whether an alarm is acknowledged; returns whether it is now."""
        if alarm.id in self._seen:
            del self._seen[alarm.id]
        else:
            self._seen[alarm.id] = None
        self._keep()
        return alarm.id in self._seen

    def snooze(self, alarm: Alarm, steps: int) -> int:
        """Snooze an alarm's detector after so many steps, or wake it; until when, 0 for awake."""
        if self.snoozed_until(alarm.name) > steps:
            del self._until[alarm.name]
        else:
            self._until[alarm.name] = steps + SNOOZE
        self._keep()
        return self.snoozed_until(alarm.name)

    def _keep(self) -> None:
        values = {"acknowledged": list(self._seen)[-MOST:], "snoozed": self._until}
        self._store.write(self._name, values)


# What the Alarms view shows of a report: its rows, and all that is known of one alarm.


COLUMNS = (
    Column("", 1),
    Column("level", 8),
    Column("alarm", 27),
    Column("since", 7, right=True),
    Column("until", 7, right=True, rank=2),
    Column("evidence", rank=0),
)
STYLES = {Level.CRITICAL: "bold $error", Level.WARN: "$warning", Level.INFO: "$text-muted"}
LEFT, SKIPPED = "left:", "skipped:"
"""Prefix of the keys of those rows."""


def alarm_rows(report: Report, book: AlarmBook) -> list[Row]:
    """Active alarms, ended ones, those of abandoned lineages; detectors not evaluated."""
    over = [alarm for alarm in report.alarms if not alarm.active]
    rows = [_row(alarm, report, book) for alarm in report.active]
    rows += _part("over", [_row(alarm, report, book) for alarm in over])
    left = [_row(alarm, report, book, LEFT) for alarm in report.left]
    rows += _part("on steps no longer in the head's lineage", left)
    return rows + _part("not evaluated", [_skipped(one) for one in report.skipped])


def _part(title: str, rows: Sequence[Row]) -> list[Row]:
    if not rows:
        return []
    return [Row(f"heading:{title}", (Content(title),), heading=True), *rows]


def _row(alarm: Alarm, report: Report, book: AlarmBook, kind: str = "") -> Row:
    ended = "" if alarm.ended is None else str(alarm.ended)
    style = STYLES[alarm.level] if alarm.active and alarm.id not in report.quiet else "$text-muted"
    return Row(
        kind + alarm.id,
        (
            Content.styled(_mark(alarm, report, book), style),
            Content.styled(alarm.level, style),
            Content.styled(alarm.title, style),
            Content(str(alarm.onset)),
            Content("now" if alarm.active else ended),
            Content.styled(alarm.summary, "$text-muted"),
        ),
    )


def _mark(alarm: Alarm, report: Report, book: AlarmBook) -> str:
    """✔ for an acknowledged alarm, ⏸ for a snoozed detector, ⚑ for an active alarm."""
    if book.is_acknowledged(alarm):
        return "✔"
    if book.snoozed_until(alarm.name) > report.steps:
        return "⏸"
    return "⚑" if alarm.active else " "


def _skipped(one: Skipped) -> Row:
    title = Content.styled(one.title, "$text-muted")
    said = Content.styled(one.summary, "$text-muted")
    return Row(SKIPPED + one.name, (Content(), Content(), title, Content(), Content(), said))


def alarm_text(alarm: Alarm, report: Report, book: AlarmBook, training: bool) -> Iterator[Content]:
    """All that is known of one alarm, a paragraph a piece of content.

    Args:
        alarm: One of the report's.
        report: Of the run.
        book: What the user has said of the model's alarms.
        training: Whether the run goes on.
    """
    since = f"since step {alarm.onset}{_seen(alarm)}"
    state = "now" if alarm.active else f"until step {alarm.ended}" if alarm.ended else "left"
    yield Content.assemble(
        (alarm.title, "bold"),
        (f"  {alarm.level}", STYLES[alarm.level]),
        (f"  {since}, detected at step {alarm.raised}, {state}", "$text-muted"),
    )
    for one in alarm.evidence:
        limit = "" if one.limit is None else f"limit {short(one.limit)}"
        yield Content.assemble(
            (f"  {one.name:<30}", "$text-muted"), f"{short(one.value):<9}", (limit, "$text-muted")
        )
    yield Content(alarm.meaning)
    yield Content.assemble(("→ ", "$accent"), alarm.advice)
    if said := _answered(alarm, report, book, training):
        yield Content.styled(said, "$text-muted")


def _seen(alarm: Alarm) -> str:
    """The step whose metrics show the alarm, where that is not its onset."""
    return f" (seen at {alarm.shown})" if alarm.shown != alarm.onset else ""


def _answered(alarm: Alarm, report: Report, book: AlarmBook, training: bool) -> str:
    """Whether the user acknowledged it or snoozed its detector."""
    until = book.snoozed_until(alarm.name)
    words = ["acknowledged"] if book.is_acknowledged(alarm) else []
    if until > report.steps:
        going = f"snoozed for {until - report.steps} more steps"
        words.append(going if training else f"snoozed until step {until}")
    return ", ".join(words)


def plain_text(alarm: Alarm) -> str:
    """One alarm as plain text, for the clipboard."""
    return (
        f"{alarm.level}: {alarm.title} since step {alarm.onset}{_seen(alarm)}\n{alarm.summary}\n"
        f"{alarm.meaning}\n{alarm.advice}\n"
    )


SLICE = 100
"""Steps judged at a time: about 5 ms."""


class AlarmWatch:
    """Detectors of one model's run, with what the user acknowledged and snoozed."""

    def __init__(self, thresholds: Thresholds | None, book: AlarmBook) -> None:
        self.book = book
        self.report = Report()
        self._monitor = AlarmMonitor(thresholds)
        self._silent_s: float | None = None
        self._loaded = False
        self._told: dict[str, Level] | None = None
        """Alarms already announced; None until the run was read for the first time."""

    @property
    def behind(self) -> bool:
        """Whether there are steps left to be judged."""
        return self._monitor.behind > 0

    def look(self, run: Run, silent_s: float | None) -> Report:
        """Judge the next slice; the same report where nothing is new.

        Args:
            run: As it is now.
            silent_s: Whole seconds since its last event; None where it does not train.
        """
        self._loaded = run.loaded
        fresh = self._monitor.follow(run.tree, run.job, SLICE)
        if fresh or silent_s != self._silent_s:
            self._silent_s = silent_s
            self.renew()
        return self.report

    def renew(self) -> None:
        """Make the report anew: a step was evaluated, or the user acknowledged or snoozed."""
        report = self._monitor.report(self._silent_s)
        report = replace(report, quiet=self.book.quiet(report))
        if report != self.report:
            self.report = report

    def news(self) -> list[Alarm]:
        """Alarms raised or worse since the last call; those of the first reading are none."""
        if self.behind or not self._loaded:
            return []
        found = [alarm for alarm in self.report.loud if alarm.level is not Level.INFO]
        told, self._told = self._told, {alarm.id: alarm.level for alarm in found}
        if told is None:
            return []
        return [
            alarm
            for alarm in found
            if alarm.id not in told or alarm.level.rank > told[alarm.id].rank
        ]
