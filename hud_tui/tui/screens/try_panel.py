"""TryPanel: one prompt, answered by two checkpoints side by side."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual import on, work
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from hud_tui.errors import HudError
from hud_tui.rl.head import name
from hud_tui.rl.text import clean, one_line
from hud_tui.tui.screens.panel import Panel
from hud_tui.tui.widgets.text_pane import TextPane
from hud_tui.wire import Chat, ChatReply, Checkpoint

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient
    from hud_tui.wire import Model

ANSWERS = 4
"""Answers of each, where the service gives several at once."""
LONGEST = 256
"""Tokens of an answer, where the model does not say how long they are in training."""


@dataclass(frozen=True)
class Tried:
    """One side: a checkpoint, and why it cannot be sampled or what it answered."""

    checkpoint: Checkpoint
    mark: str
    """``A`` or ``B``."""
    served: bool


class TryPanel(Panel[None]):
    FOOT = "enter samples both   tab to the answers   {panel.close} back"

    def __init__(self, client: HudClient, model: Model, left: Tried, right: Tried) -> None:
        super().__init__(f"The same prompt to {name(left.checkpoint)} and {name(right.checkpoint)}")
        self.client, self.model, self.sides = client, model, (left, right)
        self.prompt = Input(placeholder="reading a prompt of its rollouts …", id="try-prompt")
        self.panes = TextPane(id="try-left"), TextPane(id="try-right")
        self._texts: list[list[str]] = [[], []]
        self._round = 0
        """Tells the answers to this prompt from those to the one before."""

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
    """What was answered, with a count of those that said the same, commonest first."""
    counts: dict[str, int] = {}
    for choice in reply.choices:
        text = choice.message.content or ""
        cut = " … (cut off)" if choice.finish_reason == "length" else ""
        said = (text.strip() or "(nothing)") + cut
        counts[said] = counts.get(said, 0) + 1
    ranked = sorted(counts.items(), key=lambda one: -one[1])
    total = len(reply.choices)
    return [f"{count} of {total}\n{text}" if total > 1 else text for text, count in ranked]


def _title(side: Tried) -> Content:
    served = ("  ▶ served", "$accent") if side.served else ""
    return Content.assemble((f"{side.mark} {name(side.checkpoint)}", "bold"), served)
