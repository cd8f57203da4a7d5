"""Comparisons: two checkpoints side by side, and several runs in one chart."""

from __future__ import annotations

from asyncio import Semaphore, gather
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from hud_tui.client.changed import ChangeReader
from hud_tui.client.client import HudClient
from hud_tui.client.runs import RunList
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
from hud_tui.rl.compare import RunSeries
from hud_tui.rl.curves import WEIGHTS
from hud_tui.rl.evaluation import Paired, TaskChange
from hud_tui.rl.head import name
from hud_tui.rl.metrics import TABLE, metric, reading, short, signed
from hud_tui.rl.metrics import title as metric_title
from hud_tui.rl.names import setting_label
from hud_tui.rl.own_numbers import HELDOUT, REWARD, Own, count_rollouts, reward_of
from hud_tui.rl.sides import Side
from hud_tui.rl.text import clean, counted, one_line
from hud_tui.rl.work import Work
from hud_tui.tui.keys import OPENS, FootLine, bindings
from hud_tui.tui.rollout_reader import StepGroups
from hud_tui.tui.screens.chart_settings import ListBox
from hud_tui.tui.screens.dialogs import Over, Panel, show_error, show_notice
from hud_tui.tui.screens.evaluate import Evaluated, ask_evaluation
from hud_tui.tui.screens.group import GroupScreen
from hud_tui.tui.session import RunSession
from hud_tui.tui.widgets.lines import TextPane
from hud_tui.tui.widgets.run_curves import Compared, RunCurves, RunLegend
from hud_tui.tui.widgets.table import Column, Row, RowList, item_row
from hud_tui.wire import Checkpoint, Group, Model
from hud_tui.wire_training import Chat, ChatReply

TITLE, DELTA = 19, 10
"""Width of a line's title, and of the difference with the gap before it, cells."""
VALUES = (10, 22)
"""Smallest and largest width of one side's value, cells."""
MADE = ("loss", "learning rate", "job", "group size", "groups", "state")
MUTED = "$text-muted"
UNSAMPLED = "not sampled yet"
HELD, TRAINED, STEP = "heldout ", "training ", "step "
"""Beginnings of the keys of rows: held-out tasks, training tasks, and steps."""
EVALUATES = "{compare.evaluate} evaluates both on the same tasks."
OTHER_MODELS = "{checkpoints.evaluate} in Checkpoints evaluates either."


def _change_style(delta: float) -> str:
    if not delta:
        return MUTED
    return "bold $accent" if delta > 0 else "bold $warning"


@dataclass(frozen=True)
class Moved:
    """A row of the list: a task on both sides, or a step between them."""

    title: str
    before: float | None
    after: float | None
    delta: float | None
    rollouts: str

    @classmethod
    def of_task(cls, change: TaskChange) -> Moved:
        before, after = change.before, change.after
        solved = " → ".join(f"{side.solved}/{len(side.rewards)}" for side in (before, after))
        return cls(change.slug, before.mean, after.mean, change.delta, solved)

    @classmethod
    def of_step(cls, step: Checkpoint) -> Moved:
        least = min((len(group.rewards) for group in step.groups), default=0)
        of = f"{len(step.groups)}×{least}" if least else f"{count_rollouts(step) or ''}"
        text = f"{of} reward {short(reward_of(step))}".lstrip()
        return cls(name(step), None, None, None, text)


CHANGES: Sequence[Column[Moved]] = (
    Column("task", 0, lambda moved: one_line(moved.title, 200)),
    Column("A", 7, lambda moved: "" if moved.before is None else short(moved.before), right=True),
    Column("B", 7, lambda moved: "" if moved.after is None else short(moved.after), right=True),
    Column(
        "B − A",
        8,
        lambda moved: Content.styled(signed(moved.delta), _change_style(moved.delta or 0.0)),
        right=True,
    ),
    Column("solved", 17, lambda moved: moved.rollouts, MUTED, right=True, rank=1),
)


class ComparePanel(Panel[bool]):
    """What is stored of two checkpoints: conclusions, the tasks that moved, the steps between them,
    and their metrics. Enter on a task or a step opens its rollouts. Closes with True if both are
    to be evaluated."""

    VIEW: ClassVar = "compare"
    BINDINGS: ClassVar[list[BindingType]] = bindings("compare")

    def __init__(self, both: Comparison, reader: ChangeReader, session: RunSession) -> None:
        super().__init__(f"A {both.left.name}   B {both.right.name}")
        self.both, self.reader, self.session = both, reader, session
        evaluate = "{compare.evaluate} evaluate both   " * self.can_evaluate
        self.FOOT = (
            f"{{compare.open}} rollouts   {evaluate}tab next   ↑ ↓ scroll   {{panel.close}} back"
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
    @work(exclusive=True, group=OPENS)
    async def action_open(self) -> None:
        if (row := self.tasks.key) is None or not self.tasks.has_focus:
            return
        try:
            step = await self._opened(row)
        except HudError as error:
            show_error(self.app, error)
            return
        if step is None:
            show_notice(self.app, "The service does not have its rollouts by task.")
        else:
            client = None if self.session.replays else self.session.client
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


def said_of(paired: Paired, before: str, after: str) -> list[str]:
    """What their evaluations tell about two checkpoints, in sentences."""
    return [f"{sentence}." for sentence in paired.difference.sentences(before, after)]


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
        rows += [
            item_row(CHANGES, f"{STEP}{step.id}", Moved.of_step(step)) for step in batches.steps
        ]
    for prefix, kind, delta in told:
        if delta is not None:
            rows += _task_rows(prefix, kind, ALIKE, delta.alike)
    return rows


ALIKE = ("is within chance by itself", "are within chance by themselves")


def _task_rows(
    prefix: str, kind: str, verbs: tuple[str, str], changes: Sequence[TaskChange]
) -> Iterator[Row]:
    """Tasks under a heading; `verbs` are of one and of several."""
    if changes:
        yield _heading(f"{counted(len(changes), kind)} {verbs[len(changes) > 1]}")
    for change in changes:
        yield item_row(CHANGES, f"{prefix}{change.slug}", Moved.of_task(change))


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
        yield replace(line, title="trained on reward") if pair.key == REWARD else line


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
            yield Line("of other tasks or conditions: they do not compare")
        yield Line()
    yield Line("training rollouts sampled from it")
    yield Line("sampled", *map(_sampled, both.own))
    yield from (_metric(pair) for pair in both.metrics if pair.key != HELDOUT)
    if not both.same_tasks:
        yield Line("of other tasks: they do not compare")


def _sampled(own: Own) -> str:
    if own.reward is None:
        return UNSAMPLED
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


ANSWERS = 4
"""Answers per side, if the service gives several in one request."""
LONGEST = 256
"""Most tokens of an answer, if the model has no limit of its own."""


@dataclass(frozen=True)
class Tried:
    """One side: a checkpoint and its label."""

    checkpoint: Checkpoint
    mark: str
    """``A`` or ``B``."""
    served: bool


class TryPanel(Panel[None]):
    """One prompt, answered by two checkpoints side by side."""

    FOOT = "enter sample both   tab answers   {panel.close} back"

    def __init__(self, client: HudClient, model: Model, left: Tried, right: Tried) -> None:
        super().__init__(f"The same prompt to {name(left.checkpoint)} and {name(right.checkpoint)}")
        self.client, self.model, self.sides = client, model, (left, right)
        self.prompt = Input(placeholder="reading a prompt from its rollouts …", id="try-prompt")
        self.panes = TextPane(id="try-left"), TextPane(id="try-right")
        self._texts: list[list[str]] = [[], []]
        self._round = 0
        """Number of the current prompt; answers to earlier ones are dropped."""

    def body(self) -> Iterable[Widget]:
        yield self.prompt
        with Horizontal(id="try-sides"):
            for side, pane in zip(self.sides, self.panes, strict=True):
                with Vertical(classes="try-side"):
                    served = ("  ▶ served", "$accent") if side.served else ""
                    title = (f"{side.mark} {name(side.checkpoint)}", "bold")
                    heading = Content.assemble(title, served)
                    yield Static(heading, markup=False, classes="try-title")
                    yield pane

    def on_mount(self) -> None:
        self.prompt.focus()
        self._propose()

    @work
    async def _propose(self) -> None:
        """Suggest a prompt from the second one's training, unless the user types one."""
        text = ""
        try:
            traces = await self.client.rollouts.checkpoint_traces(
                self.model.id, self.sides[1].checkpoint.id, limit=1
            )
            for trace in traces[:1]:
                events = (await self.client.rollouts.trace_events(trace.trace_id)).events
                prompts = (event.text for event in events if event.kind == "user_message")
                text = next(prompts, None) or ""
        except HudError:
            text = ""  # a prompt can still be typed
        self.prompt.placeholder = "type a prompt"
        if text and not self.prompt.value:
            self.prompt.value = one_line(text, 2000).replace("⏎", "\\n")
            self.prompt.select_all()  # the user's text has precedence

    @on(Input.Submitted, "#try-prompt")
    def _submitted(self) -> None:
        text = self.prompt.value.replace("\\n", "\n").strip()
        if text:
            self._round += 1
            self._sample(text, self._round)

    @work(exclusive=True, group="try")
    async def _sample(self, text: str, round_: int) -> None:
        self._texts = [["sampling …"], ["sampling …"]]
        self._show()
        await gather(*(self._answer(number, text, round_) for number in range(2)))

    async def _answer(self, number: int, text: str, round_: int) -> None:
        try:
            reply = await self.client.training.chat(self._request(number, text, round_))
            lines = answers(reply)
        except HudError as error:
            lines = [f"⚠ {clean(error.message, 600)} {clean(error.hint, 200)}".rstrip()]
        if round_ == self._round:
            self._texts[number] = lines
            self._show()

    def _request(self, number: int, text: str, round_: int) -> Chat:
        """The same for both but the checkpoint, at the service's default temperature."""
        defaults, local = self.model.training_defaults, self.client.settings.local
        return Chat(
            model=self.model.model_name,
            messages=[{"role": "user", "content": text}],
            checkpoint=self.sides[number].checkpoint.id,
            max_tokens=LONGEST if defaults is None else defaults.max_tokens,
            seed=round_,
            n=ANSWERS if local else None,
        )

    @on(TextPane.Resized)
    def _show(self) -> None:
        for pane, texts in zip(self.panes, self._texts, strict=True):
            lines: list[Content] = []
            for text in texts:
                wrapped = Content(clean(text).replace("\t", "    ")).wrap(max(8, pane.width))
                lines += [*wrapped, Content()]
            pane.show(lines)


def answers(reply: ChatReply) -> list[str]:
    counts: dict[str, int] = {}
    for choice in reply.choices:
        text = choice.message.content or ""
        cut = " … (truncated)" if choice.finish_reason == "length" else ""
        answer = (text.strip() or "(empty)") + cut
        counts[answer] = counts.get(answer, 0) + 1
    ranked = sorted(counts.items(), key=lambda ranked_pair: -ranked_pair[1])
    total = len(reply.choices)
    return [f"{count} of {total}\n{text}" if total > 1 else text for text, count in ranked]


# Runs laid over each other in one chart, and beside it what they differ in.


METRICS_TOLD: Sequence[Column[str]] = (
    Column("metric", 22, metric_title),
    Column("what it means", 0, lambda key: metric(key).meaning, MUTED),
)


class MetricList(ListBox[str | None]):
    """Closes with the chosen metric."""

    VIEW: ClassVar = "overlays"
    BINDINGS: ClassVar[list[BindingType]] = bindings("overlays")
    HEADING = "metric"
    COLUMNS = METRICS_TOLD
    FOOT = "{overlays.choose} show  {overlays.leave} back"

    def __init__(self, keys: Sequence[str], chosen: str) -> None:
        super().__init__()
        self.keys, self.chosen = keys, chosen

    def on_mount(self) -> None:
        self.rows.show([item_row(METRICS_TOLD, key, key) for key in self.keys])
        self.rows.select(self.chosen)

    @on(RowList.Opened)
    def action_choose(self) -> None:
        self.dismiss(self.rows.key)


AT_ONCE = 4
"""Runs that are read at the same time."""
AGAIN_S, POLLED_S = 1.0, 10.0
"""Seconds between two reads of active runs; on a service that is polled."""
METRICS = tuple(definition.key for definition in TABLE)
COMPARED_FOOT = (
    "{compared.cursor.-1} {compared.cursor.1} step  {compared.move.-1} {compared.move.1} run  "
    "{compared.next_view} metric  {compared.charts} all metrics  {compared.axis} x axis  "
    "{compared.smooth.1} {compared.smooth.-1} smooth  {compared.show_or_hide} hide  "
    "{compared.open} Live  {compared.jump} tree  {compared.help} help  {compared.leave} back"
)


@dataclass(frozen=True)
class Destination:
    """Where to go after the comparison."""

    row: Work
    view: str
    checkpoint_id: str | None
    """The step under the crosshair; None without one."""


class RunComparison(Over[Destination | None]):
    """Runs in one chart, aligned at their beginnings; active ones are updated."""

    VIEW: ClassVar = "compared"
    BINDINGS: ClassVar[list[BindingType]] = bindings("compared")
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012

    def __init__(
        self,
        rows: Callable[[], Sequence[Work]],
        source: RunList,
        session: RunSession,
        first: Compared,
        names: Mapping[str, str],
    ) -> None:
        """`source` reads the steps of the runs, `session` has the crosshair of all views, `first`
        is the initial display, and `names` are those of the runs, by id."""
        super().__init__()
        self.rows_now, self.source, self.session = rows, source, session
        self.compared, self.names = first, names
        self.curves = RunCurves()
        self.legend = RunLegend(self.curves)
        self._unread = ""
        """Why a run could not be read."""

    def compose(self) -> ComposeResult:
        with Vertical(id="compared") as box:
            box.border_title = f"compare {counted(len(self.rows_now()), 'run')}"
            with Horizontal(id="compared-panes"):
                yield self.curves
                yield self.legend
            yield Static("reading the runs …", id="compared-note", markup=False)
            yield FootLine(COMPARED_FOOT, id="compared-foot")

    def on_mount(self) -> None:
        self.legend.focus()
        self.read(point=True)
        again = POLLED_S if self.source.polls else AGAIN_S
        self.set_interval(again, self._again)

    def _again(self) -> None:
        if any(run.is_active for run in self.rows_now()):
            self.read()

    @work(exclusive=True, group="read")
    async def read(self, point: bool = False) -> None:
        turn, rows, key = Semaphore(AT_ONCE), self.rows_now(), self.compared.key
        series_of: dict[str, RunSeries] = {}

        async def read_run(row: Work) -> None:
            async with turn:
                try:
                    series_of[row.id] = await self.source.series(row.id, (key,))
                except HudError as error:
                    self._unread = f"{row.title}: {one_line(error.message, 200)}"
            if (
                len(series_of) < len(rows)
                and len(series_of) % AT_ONCE == 0
                and not self.compared.runs
            ):
                self.show_note(f"reading the runs … {len(series_of)} of {len(rows)}")

        await gather(*map(read_run, rows))
        runs = tuple((row, series_of[row.id]) for row in rows if row.id in series_of)
        steps = tuple(len(series) for _, series in runs)
        self.change(runs=runs, steps=steps)
        if point:
            self._find()

    def change(self, **changes: object) -> None:
        chosen, before = self.legend.chosen, self.compared
        self.compared = now = replace(before, **changes)  # type: ignore[arg-type]
        rows = now.ranked
        order = [row.id for row, _ in rows]
        if chosen not in order:
            chosen = order[0] if order else ""
        self.curves.show(now, [row.id for row, _ in now.runs], chosen)
        self.legend.show(rows, self.names)
        none = (
            f"No run reports {metric_title(now.key)}: {{compared.next_view}} shows the next metric."
        )
        self.show_note(self._unread or ("" if now.is_reported or not rows else none))

    def show_note(self, text: str) -> None:
        note = self.query_one("#compared-note", Static)
        note.update(keyed(text))
        note.display = bool(text)

    def _find(self) -> None:
        """Move the crosshair to that of the other views, if one of the runs made that step."""
        checkpoint_id = self.session.checkpoint_id
        for row, _ in self.legend.rows:
            series = self.compared.series(row.id)
            if checkpoint_id is not None and checkpoint_id in series.ids:
                self.legend.select(row.id)
                self.change(crosshair=series.x(self.compared.axis)[series.ids.index(checkpoint_id)])

    @property
    def chosen(self) -> RunSeries:
        return self.compared.series(self.legend.chosen)

    @property
    def crosshair_step(self) -> int | None:
        """Index of that run's step under the crosshair; None without one."""
        x, xs = self.compared.crosshair, self.chosen.x(self.compared.axis)
        if x is None or not len(self.chosen):
            return None
        return max(0, bisect_right(xs, x) - 1)

    @property
    def checkpoint_id(self) -> str | None:
        step = self.crosshair_step
        return None if step is None else self.chosen.ids[step]

    def point(self, step: int | None) -> None:
        """Move the crosshair to a step of the run under the cursor, in every view."""
        series = self.chosen
        if step is None or not len(series):
            self.change(crosshair=None)
            self.session.checkpoint_id = None
            return
        step = max(0, min(len(series) - 1, step))
        self.change(crosshair=series.x(self.compared.axis)[step])
        self.session.checkpoint_id = series.ids[step]

    # What the keys do.

    def action_cursor(self, steps: int) -> None:
        """Move the crosshair by steps; past the newest it disappears."""
        here = len(self.chosen) if self.crosshair_step is None else self.crosshair_step
        there = here + steps
        self.point(None if there >= len(self.chosen) else there)

    def action_first(self) -> None:
        self.point(0)

    def action_last(self) -> None:
        self.point(None)

    def action_move(self, by: int) -> None:
        self.legend.action_move(by)

    @on(RunLegend.Moved)
    def _moved(self) -> None:
        self.change()
        if self.compared.crosshair is not None and (id_ := self.checkpoint_id):
            self.session.checkpoint_id = id_

    def action_axis(self) -> None:
        """Use the next x axis; the crosshair stays on its step."""
        step = self.crosshair_step
        self.change(axis=self.compared.axis.following, crosshair=None)
        if step is not None:
            self.change(crosshair=self.chosen.x(self.compared.axis)[step])

    def action_smooth(self, step: int) -> None:
        self.change(smoothing=min(len(WEIGHTS) - 1, max(0, self.compared.smoothing + step)))

    def action_log(self) -> None:
        self.change(log=not self.compared.log)

    def action_show_or_hide(self) -> None:
        self.change(hidden=self.compared.hidden ^ {self.legend.chosen})

    def action_next_view(self) -> None:
        keys = self.metrics
        self.choose(keys[(keys.index(self.compared.key) + 1) % len(keys)])

    @property
    def metrics(self) -> list[str]:
        own = (key for _, series in self.compared.runs for key in series.keys)
        return list(dict.fromkeys([*METRICS, *own]))

    def choose(self, key: str) -> None:
        self.change(key=key)
        self.read()

    @work(exclusive=True, group="choose")
    async def action_charts(self) -> None:
        key = await self.app.push_screen_wait(MetricList(self.metrics, self.compared.key))
        if key is not None:
            self.choose(key)

    def _leave_for(self, view: str) -> None:
        row = next((row for row, _ in self.legend.rows if row.id == self.legend.chosen), None)
        if row is not None:
            self.dismiss(Destination(row, view, self.checkpoint_id))

    @on(RunLegend.Opened)
    def action_open(self) -> None:
        self._leave_for("live")

    def action_jump(self) -> None:
        self._leave_for("checkpoints")

    async def action_help(self) -> None:
        await self.app.run_action("app.help")

    def action_leave(self) -> None:
        if self.compared.crosshair is not None:
            self.point(None)
        else:
            self.dismiss(None)
