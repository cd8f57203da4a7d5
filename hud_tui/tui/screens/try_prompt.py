"""TryPanel: one prompt, answered by two checkpoints side by side."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Iterable
from dataclasses import dataclass

from textual import on, work
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from hud_tui.client.client import HudClient
from hud_tui.errors import HudError
from hud_tui.rl.head import name
from hud_tui.rl.text import clean, one_line
from hud_tui.tui.screens.dialogs import Panel
from hud_tui.tui.widgets.lines import TextPane
from hud_tui.wire import Checkpoint, Model
from hud_tui.wire_training import Chat, ChatReply

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
    FOOT = "enter sample both   tab answers   {panel.close} back"

    def __init__(self, client: HudClient, model: Model, left: Tried, right: Tried) -> None:
        super().__init__(f"The same prompt to {name(left.checkpoint)} and {name(right.checkpoint)}")
        self.client, self.model, self.sides = client, model, (left, right)
        self.prompt = Input(placeholder="reading a prompt from its rollouts …", id="try-prompt")
        self.panes = TextPane(id="try-left"), TextPane(id="try-right")
        self._texts: list[list[str]] = [[], []]
        self._round = 0
        """Number of the current prompt."""

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
            self._sample(text)

    @work(exclusive=True, group="try")
    async def _sample(self, text: str) -> None:
        self._texts = [["sampling …"], ["sampling …"]]
        self._show()
        await gather(*(self._answer(number, text) for number in range(2)))

    async def _answer(self, number: int, text: str) -> None:
        try:
            reply = await self.client.training.chat(self._request(number, text))
            self._texts[number] = answers(reply)
        except HudError as error:
            why = f"⚠ {clean(error.message, 600)} {clean(error.hint, 200)}".rstrip()
            self._texts[number] = [why]
        self._show()

    def _request(self, number: int, text: str) -> Chat:
        """The same for both but the checkpoint, at the service's default temperature."""
        defaults, local = self.model.training_defaults, self.client.settings.embedded
        return Chat(
            model=self.model.model_name,
            messages=[{"role": "user", "content": text}],
            checkpoint=self.sides[number].checkpoint.id,
            max_tokens=LONGEST if defaults is None else defaults.max_tokens,
            seed=self._round,
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
