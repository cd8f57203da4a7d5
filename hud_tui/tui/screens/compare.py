"""ComparePanel: what changed between two checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from textual import on, work
from textual.app import App
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from hud_tui.client.changed import ChangeReader
from hud_tui.errors import HudError
from hud_tui.keys import keyed
from hud_tui.rl.changed import (
    Comparison,
    MetricPair,
    heldout_sentences,
    made_sentences,
    sampled_names,
    training_sentences,
)
from hud_tui.rl.evaluation import TaskChange
from hud_tui.rl.head import name
from hud_tui.rl.metrics import metric, reading, short, signed
from hud_tui.rl.own_numbers import HELDOUT, REWARD, Own, count_rollouts, reward_of
from hud_tui.rl.rollouts import known_group
from hud_tui.rl.settings import setting_label
from hud_tui.rl.sides import Side
from hud_tui.rl.text import counted, one_line
from hud_tui.rl.work import Work
from hud_tui.tui.keys import OPENS
from hud_tui.tui.rollout_reader import StepGroups
from hud_tui.tui.screens.dialogs import Panel, show_error, show_notice
from hud_tui.tui.screens.evaluate import Evaluated, ask_evaluation
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.screens.rollout import RolloutScreen, counterpart
from hud_tui.tui.session import RunSession
from hud_tui.tui.widgets.lines import TextPane
from hud_tui.tui.widgets.table import Column, Row, RowList, item_row
from hud_tui.wire import Checkpoint, Group

TITLE, DELTA = 19, 10
"""Width of a line's title, and of the difference with the gap before it, cells."""
VALUES = (10, 22)
"""Smallest and largest width of one side's value, cells."""
MADE = ("loss", "learning rate", "job", "group size", "groups", "state")
MUTED = "$text-muted"
HELD, TRAINED, STEP = "heldout ", "training ", "step "
"""Beginnings of the keys of rows: held-out tasks, training tasks, and steps."""
EVALUATES = "{compare.evaluate} evaluates both on the same tasks."
OTHER_MODELS = "{checkpoints.evaluate} in Checkpoints evaluates either."


def _change_style(delta: float) -> str:
    if not delta:
        return MUTED
    return "bold $accent" if delta > 0 else "bold $warning"


def _delta(change: TaskChange) -> Content:
    return Content.styled(signed(change.delta), _change_style(change.delta))


def _solved(change: TaskChange) -> str:
    sides = change.before, change.after
    return " → ".join(f"{side.solved}/{len(side.rewards)}" for side in sides)


CHANGES: Sequence[Column[TaskChange]] = (
    Column("task", 0, lambda change: one_line(change.slug, 200)),
    Column("A", 7, lambda change: short(change.before.mean), right=True),
    Column("B", 7, lambda change: short(change.after.mean), right=True),
    Column("B − A", 8, _delta, right=True),
    Column("solved", 17, _solved, MUTED, right=True, rank=1),
)


def _step_row(step: Checkpoint) -> Row:
    """A step between the two: its name, and what it was trained on."""
    least = min((len(group.rewards) for group in step.groups), default=0)
    of = f"{len(step.groups)}×{least}" if least else f"{count_rollouts(step) or ''}"
    trained = Content.styled(f"{of} reward {short(reward_of(step))}".lstrip(), MUTED)
    cells = Content(one_line(name(step), 200)), Content(), Content(), Content(), trained
    return Row(f"{STEP}{step.id}", cells)


class ComparePanel(Panel[bool]):
    """What is stored of two checkpoints: conclusions, the tasks that moved, the steps between them,
    and their metrics. Enter on a task or a step opens its rollouts. Closes with True if both are
    to be evaluated."""

    VIEW = "compare"

    def __init__(self, both: Comparison, reader: ChangeReader, session: RunSession) -> None:
        super().__init__(f"A {both.left.name}   B {both.right.name}")
        self.both, self.reader, self.session = both, reader, session
        evaluate = "{compare.evaluate} evaluate both   " * self.can_evaluate
        self.FOOT = (
            f"{{compare.open}} rollouts   {{compare.compare}} side by side   "
            f"{evaluate}tab next   {{panel.close}} back"
        )
        self.sentences = Static("", id="compare-said", markup=False)
        self.tasks = RowList(CHANGES, id="compare-tasks", least=20)
        self.pane = TextPane(id="compare-text")

    @property
    def can_evaluate(self) -> bool:
        is_followed = self.both.left.tree is self.both.right.tree
        return is_followed and not self.session.replays

    def body(self) -> Iterable[Widget]:
        yield self.sentences
        yield self.tasks
        yield self.pane

    def on_mount(self) -> None:
        offer = EVALUATES if self.can_evaluate else "" if self.session.replays else OTHER_MODELS
        self.sentences.update(_sentences(self.both, offer))
        self.tasks.show(change_rows(self.both))
        self.tasks.display = bool(self.tasks.rows)
        (self.tasks if self.tasks.rows else self.pane).focus()

    @on(RowList.Opened)
    def action_open(self) -> None:
        self._open(False)

    def action_compare(self) -> None:
        self._open(True)

    @work(exclusive=True, group=OPENS)
    async def _open(self, compares: bool) -> None:
        """Show the rollouts of the row under the cursor, or a rollout of A beside one of B."""
        if (row := self.tasks.key) is None or not self.tasks.has_focus:
            return
        try:
            step = await self._opened(row)
        except HudError as error:
            show_error(self.app, error)
            return
        client = None if self.session.replays else self.session.client
        if step is None:
            show_notice(self.app, "The service does not have its rollouts by task.")
        elif compares and client is not None and step.sides and step.groups[0].trace_ids:
            group = known_group(step.groups[0], None, sides=step.sides)
            first = group.rollouts[0]
            reader = RolloutScreen(
                client, [group], first.trace.id, beside=counterpart(group, first)
            )
            await self.app.push_screen(reader)
        else:
            await self.app.push_screen(GroupScreen(client, step))

    async def _opened(self, row: str) -> StepGroups | None:
        """The rollouts of a row; None if the service does not have them. Raises HudError."""
        if row.startswith(STEP):
            return await self._step(row.removeprefix(STEP))
        is_heldout = row.startswith(HELD)
        slug = row.removeprefix(HELD if is_heldout else TRAINED)
        read = self.reader.heldout if is_heldout else self.reader.training
        groups, names = await read(self.both, slug), sampled_names(self.both, is_heldout)
        joined = Group(
            task_slug=slug,
            rewards=[reward for group in groups for reward in group.rewards],
            trace_ids=[id_ for group in groups for id_ in group.trace_ids],
        )
        counts = [len(group.rewards) for group in groups]
        sides = tuple(zip(names, counts, strict=True))
        return StepGroups(names[1], [joined], 0, sides=sides)

    async def _step(self, step_id: str) -> StepGroups | None:
        steps = (step for batches in self.both.batches for step in batches.steps)
        step = next(step for step in steps if step.id == step_id)
        side = self.both.right
        groups = await self.reader.batch(side, step)
        if not groups:
            return None
        return StepGroups(name(step), groups, 0, model_id=side.model_id, node=step, step=step.step)

    def action_evaluate(self) -> None:
        self.dismiss(True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        return action != "evaluate" or self.can_evaluate

    @on(TextPane.Resized)
    def _lay_out(self) -> None:
        self.pane.show(comparison_table(self.both, self.pane.width))


async def show_changed(
    app: App[None],
    session: RunSession,
    left: Side,
    right: Side,
    runs: Sequence[Work] | None = None,
) -> None:
    """Show what changed between two checkpoints, and evaluate both if the user asks for it. From a
    worker. `runs`: those that made them, if they are known."""
    reader = ChangeReader(session.client, session.evaluations)
    both = await reader.compare(left, right, runs)
    if await app.push_screen_wait(ComparePanel(both, reader, session)):
        label = f"A {left.name} and B {right.name}"
        await ask_evaluation(app, session, [Evaluated(label, (left.node, right.node))])


def _sentences(both: Comparison, offer: str) -> Content:
    lines = [Content(" ".join(made_sentences(both)))]
    for title, said in (
        ("held-out", heldout_sentences(both)),
        ("training", training_sentences(both)),
    ):
        *verdicts, last = said
        for verdict in verdicts:
            lines.append(Content.assemble((f"{title}  ", MUTED), verdict))
        lines.append(Content.styled(last if verdicts else f"{title}  {last}", MUTED))
    if both.heldout is None and offer:
        lines.append(Content.styled(keyed(offer), MUTED))
    return Content("\n").join(lines)


def change_rows(both: Comparison) -> list[Row]:
    """The tasks that moved, the steps between the two, and the other tasks."""
    rows: list[Row] = []
    told = [(TRAINED, "training task", both.tasks)]
    if both.heldout is not None:
        told.insert(0, (HELD, "held-out task", both.heldout.difference))
    for prefix, kind, delta in told:
        if delta is not None:
            rows += _task_rows(prefix, kind, ("regresses", "regress"), delta.worse)
            rows += _task_rows(prefix, kind, ("improves", "improve"), delta.better)
    for batches in both.batches:
        rows.append(_heading(f"{counted(len(batches.steps), 'step')} {batches.title}"))
        rows += map(_step_row, batches.steps)
    for prefix, kind, delta in told:
        if delta is not None:
            rows += _task_rows(prefix, kind, ALIKE, delta.alike)
    return rows


ALIKE = ("does not differ beyond chance", "do not differ beyond chance individually")


def _task_rows(
    prefix: str, kind: str, verbs: tuple[str, str], changes: Sequence[TaskChange]
) -> Iterator[Row]:
    """Tasks under a heading; `verbs` are of one and of several."""
    if changes:
        yield _heading(f"{counted(len(changes), kind)} {verbs[len(changes) > 1]}")
    for change in changes:
        yield item_row(CHANGES, f"{prefix}{change.slug}", change)


def _heading(title: str) -> Row:
    return Row(f"heading {title}", (Content(title),), heading=True)


def comparison_table(both: Comparison, width: int) -> list[Content]:
    """Training settings and metrics, `width` cells wide."""
    least, most = VALUES
    value = min(most, max(least, (width - TITLE - DELTA) // 2))
    return [_line(line, value) for line in _lines(both)]


@dataclass(frozen=True)
class Line:
    """One line of the table; a heading if it has only a title."""

    title: str = ""
    left: str = ""
    right: str = ""
    delta: str = ""
    style: str = MUTED


def _lines(both: Comparison) -> Iterator[Line]:
    yield Line("", f"A {both.left.name}", f"B {both.right.name}", "B − A")
    nodes = both.left.node, both.right.node
    for title, left, right in zip(MADE, *map(_how, nodes), strict=True):
        yield Line(title, left, right, "differs" if left != right else "")
    yield from _settings(both)
    yield Line()
    yield from _own(both)
    yield Line()
    yield Line("training batch of the step")
    for pair in both.steps:
        line = _metric(pair)
        yield replace(line, title="batch reward") if pair.key == REWARD else line


def _settings(both: Comparison) -> Iterator[Line]:
    """Parameters of the two runs that differ, but for those that the steps report."""
    if both.settings is None:
        return
    (_, left), (_, right) = both.settings.rows
    for key, before, after in zip(both.settings.keys, left, right, strict=True):
        if setting_label(key) not in MADE:
            yield Line(setting_label(key), before, after, "differs")


def _how(checkpoint: Checkpoint | None) -> Sequence[str]:
    if checkpoint is None:
        return ("–",) * len(MADE)
    sizes = sorted({len(group.rewards) for group in checkpoint.groups})
    ends = dict.fromkeys((*sizes[:1], *sizes[-1:]))
    return (
        one_line(checkpoint.loss_fn or "–", 40),
        short(checkpoint.learning_rate),
        one_line((checkpoint.job_id or "–")[:8], 8),
        "–".join(f"{size}" for size in ends) or "–",
        str(len(checkpoint.groups) or "–"),
        one_line(checkpoint.state or "–", 20),
    )


def _own(both: Comparison) -> Iterator[Line]:
    """What was sampled from each: held-out and training rollouts, and how many."""
    held = [pair for pair in both.metrics if pair.key == HELDOUT]
    if held:
        yield Line("held-out rollouts sampled from it")
        yield Line("sampled", *(own.over or "–" for own in both.own))
        yield from map(_metric, held)
        if not all(pair.compares for pair in held):
            yield Line("on other tasks or under other conditions: not comparable")
        yield Line()
    yield Line("training rollouts sampled from it")
    yield Line("sampled", *map(_sampled, both.own))
    yield from (_metric(pair) for pair in both.metrics if pair.key != HELDOUT)
    if not both.same_tasks:
        yield Line("on other tasks: not comparable")


def _sampled(own: Own) -> str:
    if own.reward is None:
        return "not sampled yet"
    return counted(own.sampled, "rollout") if own.sampled else "–"


def _metric(pair: MetricPair) -> Line:
    left, right = (reading(pair.key, value) for value in (pair.left, pair.right))
    values = left, right, signed(pair.delta)
    return Line(metric(pair.key).title, *values, _change_style(pair.better))


def _line(line: Line, value: int) -> Content:
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
