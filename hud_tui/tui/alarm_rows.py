"""What the Alarms view shows of a report: its rows, and all that is known of one alarm."""

from collections.abc import Iterator, Sequence

from textual.content import Content

from hud_tui.rl.alarms.alarm import Alarm, Level, Report, Skipped
from hud_tui.rl.metrics import short
from hud_tui.tui.alarm_book import AlarmBook
from hud_tui.tui.widgets.row_list import Column, Row

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
"""What the keys of those rows begin with."""


def alarm_rows(report: Report, book: AlarmBook) -> list[Row]:
    """Alarms that hold, those that are over, those of left lineages; detectors without data."""
    over = [alarm for alarm in report.alarms if not alarm.active]
    rows = [_row(alarm, report, book) for alarm in report.active]
    rows += _part("over", [_row(alarm, report, book) for alarm in over])
    left = [_row(alarm, report, book, LEFT) for alarm in report.left]
    rows += _part("on steps that the head has left", left)
    return rows + _part("without data", [_skipped(one) for one in report.skipped])


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
            Content.styled(alarm.said, "$text-muted"),
        ),
    )


def _mark(alarm: Alarm, report: Report, book: AlarmBook) -> str:
    """✔ for an acknowledged alarm, ⏸ for a snoozed detector, ⚑ for one that holds."""
    if book.is_acknowledged(alarm):
        return "✔"
    if book.snoozed_until(alarm.name) > report.steps:
        return "⏸"
    return "⚑" if alarm.active else " "


def _skipped(one: Skipped) -> Row:
    title = Content.styled(one.name.replace("_", " "), "$text-muted")
    said = Content.styled(one.said, "$text-muted")
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
        (f"  {since}, said at {alarm.raised}, {state}", "$text-muted"),
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
    """The step whose numbers show what the one it began with did, where that is another."""
    return f" (seen at {alarm.shown})" if alarm.shown != alarm.onset else ""


def _answered(alarm: Alarm, report: Report, book: AlarmBook, training: bool) -> str:
    """What the user has said to it."""
    until = book.snoozed_until(alarm.name)
    words = ["acknowledged"] if book.is_acknowledged(alarm) else []
    if until > report.steps:
        going = f"snoozed for {until - report.steps} steps more"
        words.append(going if training else f"snoozed until step {until}, if it trains on")
    return ", ".join(words)


def plain_text(alarm: Alarm) -> str:
    """One alarm to be copied."""
    return (
        f"{alarm.level}: {alarm.title} since step {alarm.onset}{_seen(alarm)}\n{alarm.said}\n"
        f"{alarm.meaning}\n{alarm.advice}\n"
    )
