"""Conversations as lessons."""

import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from hud_tui.service.engines.base import Datum
from hud_tui.service.engines.tiny.tokenizer import ASSISTANT, CALL, END, TOOL, USER, BpeTokenizer

SUMS: Mapping[str, tuple[str, str, Callable[[int, int], int]]] = {
    "add": ("add {} and {}", "Add two numbers.", lambda a, b: a + b),
    "plus": ("add {} and {}", "Add two numbers.", lambda a, b: a + b),
    "minus": ("subtract {1} from {0}", "Subtract b from a.", lambda a, b: a - b),
    "times": ("multiply {} by {}", "Multiply two numbers.", lambda a, b: a * b),
}
"""Tools that calculate: what is asked for, a description, and the result."""


class Talk:
    """A growing conversation, and the datums that teach it."""

    def __init__(
        self,
        tokenizer: BpeTokenizer,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        read: float = 0.0,
    ) -> None:
        """`read`: loss weight of the prompt's last message."""
        self.tokenizer = tokenizer
        self.ids = tokenizer.render(messages, tools)
        self.datums: list[Datum] = []
        if read:
            start = len(self.ids) - 1 - self.ids[::-1].index(USER)
            self.datums.append(Datum(self.ids[: start + 1], self.ids[start + 1 :], advantage=read))

    def asks(self, text: str) -> None:
        """The user goes on."""
        self.ids = [*self.ids, USER, *self.tokenizer.encode(text), END, ASSISTANT]

    def says(self, text: str) -> None:
        """The assistant answers."""
        self._learn([*self.tokenizer.encode(text), END], 1.0)

    def calls(
        self, name: str, arguments: Mapping[str, Any], text: str = "", weight: float = 1.0
    ) -> None:
        """The assistant calls a tool, after some text."""
        call = name + json.dumps(arguments, separators=(",", ":"))
        spoken = self.tokenizer.encode(text)
        self._learn([*spoken, CALL, *self.tokenizer.encode(call), END], weight)

    def hears(self, text: str, weight: float = 0.0) -> None:
        """A tool answers."""
        self.ids = [*self.ids, TOOL]
        answer = [*self.tokenizer.encode(text), END]
        if weight:
            self._learn(answer, weight)
        else:
            self.ids = [*self.ids, *answer]
        self.ids = [*self.ids, ASSISTANT]

    def works_out(
        self, random: Random, name: str, operands: Mapping[str, int], result: int, rash: float
    ) -> None:
        """The assistant has a tool calculate, and says the result; or guesses it, with the
        probability `rash`."""
        if random.random() < rash:
            self.says(str(result + random.choice((-10, -1, 0, 1, 10))))
            return
        self.calls(name, operands)
        self.hears(str(result))
        self.says(random.choice(("{}", "{}", "The answer is {}.")).format(result))

    def _learn(self, output: list[int], weight: float) -> None:
        self.datums.append(Datum(self.ids, output, advantage=weight))
        self.ids = [*self.ids, *output]


def schema(name: str, about: str = "", /, **types: str) -> dict[str, Any]:
    """A tool in OpenAI's format; an argument of several choices has them separated by bars."""
    properties = {
        key: {"enum": kind.split("|")} if "|" in kind else {"type": kind}
        for key, kind in types.items()
    }
    function: dict[str, Any] = {"name": name, "parameters": {"properties": properties}}
    return {"function": function | ({"description": about} if about else {})}
