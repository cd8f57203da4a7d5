"""The command log's rows, and all that is known of one entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from textual.content import Content

from hud_tui.rl.ages import age
from hud_tui.rl.retold import as_hud
from hud_tui.rl.text import one_line
from hud_tui.rl.written import Written, change_text
from hud_tui.tui.widgets.row_list import Column, Row

COLUMNS = (
    Column("when", 6, right=True),
    Column("", 1),
    Column("what", 16),
    Column("model", 18, rank=1),
    Column("before → after", 0),
    Column("by", 8, rank=2),
)
MARKS = {"done": ("✔", "$accent"), "refused": ("✘", "bold $error")}
UNKNOWN = ("?", "bold $warning")
REPEATED = frozenset({"rollout", "enter trace", "exit trace", "forward-backward"})
"""What comes in dozens: such a series is one row."""
SAID = {
    "done": "done",
    "refused": "refused",
    "unknown": "no answer: it may have happened",
}


def folded(log: Sequence[Written]) -> list[tuple[Written, int]]:
    """Newest first; of a series of the same, its newest and how many there are."""
    found: list[tuple[Written, int]] = []
    for one in reversed(log):
        last = found[-1][0] if found else None
        if last is not None and _same(last, one):
            found[-1] = (last, found[-1][1] + 1)
        else:
            found.append((one, 1))
    return found


def _same(one: Written, other: Written) -> bool:
    if one.verb not in REPEATED:
        return False
    return (one.verb, one.outcome, one.by, one.service) == (
        other.verb,
        other.outcome,
        other.by,
        other.service,
    )


def log_rows(entries: Sequence[tuple[Written, int]], now: float) -> list[Row]:
    """A row each; its key is its place, counted from the oldest so that it stays."""
    last = len(entries) - 1
    return [_row(str(last - place), *entry, now) for place, entry in enumerate(entries)]


def _row(key: str, one: Written, count: int, now: float) -> Row:
    mark, style = MARKS.get(one.outcome, UNKNOWN)
    times = f" ×{count}" if count > 1 else ""
    model = one.name or one.model[:8]
    return Row(
        key,
        (
            Content.styled(age(one.at, now), "$text-muted"),
            Content.styled(mark, style),
            Content.styled(one_line(one.verb, 14) + times, "bold"),
            Content(one_line(model, 40)),
            Content(one_line(change_text(one), 80)),
            Content.styled(one_line(one.by, 8), "$text-muted"),
        ),
    )


def entry_text(one: Written) -> Iterator[Content]:
    """What there is to know of one, in lines."""
    mark, style = MARKS.get(one.outcome, UNKNOWN)
    when = datetime.fromtimestamp(one.at).isoformat(" ", "seconds")
    where = f"   {when} · {one_line(one.service, 40)} · {one_line(one.by, 20)}"
    said = SAID.get(one.outcome, one_line(one.outcome, 20))
    yield Content.assemble((f"{mark} {said}", style), (where, "$text-muted"))
    if one.before or one.after:
        change = f"{one_line(one.before, 80) or '–'} → {one_line(one.after, 80) or '–'}"
        yield _field("changed", change)
    if one.subject:
        yield _field("of", one_line(one.subject, 120))
    if one.said:
        yield _field("said", one_line(one.said, 300))
    request = f" · request {one_line(one.request_id, 60)}" if one.request_id else ""
    yield _field("sent", f"{one_line(one.method, 8)} {one_line(one.url, 200)}{request}")
    again = as_hud(one)
    if again:
        yield _field("again", one_line(again, 300))


def _field(name: str, value: str) -> Content:
    return Content.assemble((f"{name:<9}", "$text-muted"), value)
