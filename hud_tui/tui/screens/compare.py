"""ComparePanel: two checkpoints side by side."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from textual import on, work
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from hud_tui.client.client import HudClient
from hud_tui.errors import HudError
from hud_tui.rl.compare import Comparison, GroupPair, MetricPair
from hud_tui.rl.head import name
from hud_tui.rl.metrics import metric, short, signed
from hud_tui.rl.own_numbers import REWARD
from hud_tui.rl.text import clean, counted, one_line
from hud_tui.tui.screens.dialogs import Panel
from hud_tui.tui.widgets.lines import TextPane
from hud_tui.wire import Checkpoint, Model
from hud_tui.wire_training import Chat, ChatReply

TITLE, DELTA = 19, 10
"""Cells of a line's title, and of what tells the two apart, with the gap before it."""
VALUES = (10, 22)
"""Cells of one side's value, at least and at most."""
GROUPS_MOST = 12
"""Improved tasks, and regressed ones, listed at most."""
MADE = ("loss", "learning rate", "job", "group size", "groups", "state")
"""Rows on how each checkpoint was trained."""
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
    """Training settings, metrics, and the tasks that changed most, `width` cells wide."""
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
    yield Line("evaluated with their own weights")
    yield from _own(both)
    yield from map(_metric, both.metrics)
    yield Line()
    yield from _groups(both)
    yield Line()
    yield Line("training batch of the step")
    for pair in both.steps:
        line = _metric(pair)
        yield replace(line, title="trained on reward") if pair.key == REWARD else line


def lineage(both: Comparison, width: int) -> list[Content]:
    """The relation in a sentence, and an empty line."""
    return [*Content(relation(both)).wrap(max(8, width)), Content()]


def relation(both: Comparison) -> str:
    """How the two are related, in a sentence."""
    if both.left_steps == 0:
        return f"B is {counted(both.right_steps, 'step')} after A."
    if both.right_steps == 0:
        return f"A is {counted(both.left_steps, 'step')} after B."
    parted = "the base weights" if both.common is None else name(both.common)
    left, right = counted(both.left_steps, "step"), counted(both.right_steps, "step")
    return f"They diverged at {parted}: A is {left} after it, B {right}."


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
    """How many rollouts each reward averages."""
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
        yield Line("No task was sampled by both.")
        return
    yield Line(f"{counted(tasks, 'training task')} sampled by both")
    yield Line("rollouts", *map(str, both.rollouts))
    if None not in (own.heldout for own in both.own):
        yield Line("trained on: prefer held-out")
    for word, pairs in (("better", both.better), ("worse", both.worse)):
        yield Line(f"{counted(len(pairs), 'task')} {word} in B")
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


ANSWERS = 4
"""Answers of each, where the service gives several at once."""
LONGEST = 256
"""Tokens of an answer, where the model does not say how long they are in training."""


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
        """Number of the current prompt; answers to older ones are dropped."""

    def body(self) -> Iterable[Widget]:
        yield self.prompt
        with Horizontal(id="try-sides"):
            for side, pane in zip(self.sides, self.panes, strict=True):
                with Vertical(classes="try-side"):
                    yield Static(_title(side), markup=False, classes="try-title")
                    yield pane

    def on_mount(self) -> None:
        self.prompt.focus()
        self._propose()

    @work
    async def _propose(self) -> None:
        """A prompt that the second one was trained on, unless the user types one."""
        text = ""
        try:
            traces = await self.client.checkpoint_traces(
                self.model.id, self.sides[1].checkpoint.id, limit=1
            )
            for trace in traces[:1]:
                events = (await self.client.trace_events(trace.trace_id)).events
                asked = (event.text for event in events if event.kind == "user_message")
                text = next(asked, None) or ""
        except HudError:
            text = ""  # a prompt can still be typed
        self.prompt.placeholder = "type a prompt"
        if text and not self.prompt.value:
            self.prompt.value = one_line(text, 2000).replace("⏎", "\\n")
            self.prompt.select_all()  # what is typed takes its place

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
            reply = await self.client.chat(self._request(number, text, round_))
            said = answers(reply)
        except HudError as error:
            said = [f"⚠ {clean(error.message, 600)} {clean(error.hint, 200)}".rstrip()]
        if round_ == self._round:
            self._texts[number] = said
            self._show()

    def _request(self, number: int, text: str, round_: int) -> Chat:
        """The same for both but for the checkpoint; the service's own temperature."""
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
    """The distinct answers with their counts, most frequent first."""
    counts: dict[str, int] = {}
    for choice in reply.choices:
        text = choice.message.content or ""
        cut = " … (truncated)" if choice.finish_reason == "length" else ""
        said = (text.strip() or "(empty)") + cut
        counts[said] = counts.get(said, 0) + 1
    ranked = sorted(counts.items(), key=lambda one: -one[1])
    total = len(reply.choices)
    return [f"{count} of {total}\n{text}" if total > 1 else text for text, count in ranked]


def _title(side: Tried) -> Content:
    served = ("  ▶ served", "$accent") if side.served else ""
    return Content.assemble((f"{side.mark} {name(side.checkpoint)}", "bold"), served)
