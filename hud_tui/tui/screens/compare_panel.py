"""ComparePanel: two checkpoints side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from textual import on
from textual.content import Content
from textual.widget import Widget

from hud_tui.rl.compare import Comparison, GroupPair, MetricPair
from hud_tui.rl.counts import counted
from hud_tui.rl.head import name
from hud_tui.rl.metrics import metric, short, signed
from hud_tui.rl.own import REWARD
from hud_tui.rl.text import one_line
from hud_tui.tui.screens.panel import Panel
from hud_tui.tui.widgets.text_pane import TextPane
from hud_tui.wire import Checkpoint

TITLE, DELTA = 19, 10
"""Cells of a line's title, and of what tells the two apart, with the gap before it."""
VALUES = (10, 22)
"""Cells of one side's value, at least and at most."""
GROUPS_MOST = 12
"""Tasks that are named, of those that got better and of those that got worse."""
MADE = ("loss", "learning rate", "job", "group size", "groups", "state")
"""What is said of how each was made."""
MUTED = "$text-muted"
UNSAMPLED = "not sampled yet"


class ComparePanel(Panel[None]):
    FOOT = "↑ ↓ scroll   {panel.close} back"

    def __init__(self, both: Comparison) -> None:
        super().__init__(f"A {name(both.left)}   B {name(both.right)}")
        self.both = both
        self.pane = TextPane(id="compare-text")

    def body(self) -> Iterable[Widget]:
        yield self.pane

    def on_mount(self) -> None:
        self.pane.focus()

    @on(TextPane.Resized)
    def _lay_out(self) -> None:
        width = self.pane.width
        self.pane.show(lineage(self.both, width) + comparison_table(self.both, width))


def comparison_table(both: Comparison, width: int) -> list[Content]:
    """How they were made, their metrics, and the tasks that changed most, `width` cells wide."""
    least, most = VALUES
    value = min(most, max(least, (width - TITLE - DELTA) // 2))
    return [_row(line, value) for line in _lines(both)]


@dataclass(frozen=True)
class Line:
    """One line of the table; with nothing but a title it is a heading."""

    title: str = ""
    left: str = ""
    right: str = ""
    delta: str = ""
    style: str = MUTED
    """Of `delta`."""


def _lines(both: Comparison) -> Iterator[Line]:
    yield Line("", f"A {name(both.left)}", f"B {name(both.right)}", "B − A")
    for title, left, right in zip(MADE, _how(both.left), _how(both.right), strict=True):
        yield Line(title, left, right, "differs" if left != right else "")
    yield Line()
    yield Line("what their own weights scored")
    yield from _own(both)
    yield from map(_metric, both.metrics)
    yield Line()
    yield from _groups(both)
    yield Line()
    yield Line("of the steps that made them")
    for pair in both.steps:
        line = _metric(pair)
        yield replace(line, title="trained on reward") if pair.key == REWARD else line


def lineage(both: Comparison, width: int) -> list[Content]:
    """How the two are related, in a sentence, and a line of room."""
    return [*Content(relation(both)).wrap(max(8, width)), Content()]


def relation(both: Comparison) -> str:
    """How the two are related, in a sentence."""
    if both.left_steps == 0:
        return f"B descends from A: {counted(both.right_steps, 'step')} on."
    if both.right_steps == 0:
        return f"A descends from B: {counted(both.left_steps, 'step')} on."
    parted = "the base weights" if both.parted is None else name(both.parted)
    left, right = counted(both.left_steps, "step"), counted(both.right_steps, "step")
    return f"They parted at {parted}: A is {left} on, B {right}."


def _how(checkpoint: Checkpoint) -> Sequence[str]:
    return (
        one_line(checkpoint.loss_fn or "–", 40),
        short(checkpoint.learning_rate),
        one_line((checkpoint.job_id or "–")[:8], 8),
        _sizes(checkpoint),
        str(len(checkpoint.groups) or "–"),
        one_line(checkpoint.state or "–", 20),
    )


def _own(both: Comparison) -> Iterator[Line]:
    """How many rollouts the rewards are of; which of them to go by."""
    left, right = both.own
    counts = [f"{own.sampled} rollouts" if own.known else UNSAMPLED for own in both.own]
    yield Line("sampled", *counts)
    if left.heldout is not None and right.heldout is not None:
        counts = [f"{own.heldout_rollouts or '–'} rollouts" for own in both.own]
        yield Line("held-out", *counts)


def _sizes(checkpoint: Checkpoint) -> str:
    sizes = sorted({len(group.rewards) for group in checkpoint.groups})
    return "–" if not sizes else f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]}–{sizes[-1]}"


def _metric(pair: MetricPair) -> Line:
    style = {1: "bold $accent", -1: "bold $warning"}.get(pair.better, MUTED)
    values = short(pair.left), short(pair.right), signed(pair.delta)
    return Line(metric(pair.key).title, *values, style)


def _groups(both: Comparison) -> Iterator[Line]:
    tasks = len(both.better) + len(both.worse) + both.alike
    if not tasks:
        yield Line("No task is known that both sampled.")
        return
    yield Line(f"{counted(tasks, 'training task')} that both sampled")
    yield Line("rollouts", *map(str, both.rollouts))
    if None not in (own.heldout for own in both.own):
        yield Line("these were trained on: held-out says more")
    for word, pairs in (("better", both.better), ("worse", both.worse)):
        yield Line(f"{counted(len(pairs), 'task')} that B does {word}")
        yield from map(_group, pairs[:GROUPS_MOST])
        if len(pairs) > GROUPS_MOST:
            yield Line(f"… {len(pairs) - GROUPS_MOST} more")
    yield Line(f"{counted(both.alike, 'task')} without a difference beyond noise")


def _group(pair: GroupPair) -> Line:
    style = "bold $accent" if pair.delta > 0 else "bold $warning"
    return Line(pair.task_slug, short(pair.left), short(pair.right), signed(pair.delta), style)


def _row(line: Line, value: int) -> Content:
    title = Content(one_line(line.title, 200)).stylize(MUTED)
    if not line.left:
        return title
    title = title.truncate(TITLE - 1, ellipsis=True)
    style = "" if line.title else "bold"
    return Content.assemble(
        title.pad_right(TITLE - title.cell_length),
        _cell(line.left, value, style),
        _cell(line.right, value, style),
        "  ",
        (line.delta, line.style),
    )


def _cell(text: str, width: int, style: str) -> Content:
    shown = Content.styled(text, style).truncate(width - 2, ellipsis=True)
    return shown.pad_left(width - shown.cell_length)
