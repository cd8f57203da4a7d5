"""Temperatures: how hot the newest answers were sampled, whether a trace keeps them or not.

A rollout that comes back inline says its tokens and logprobs, and not its temperature;
without it the current logprobs are tempered otherwise, and every ratio is wrong.
"""

from collections import OrderedDict
from collections.abc import Sequence

from hud_tui.service.store.turns import digest

KEPT = 65_536
"""Answers remembered, about 200 bytes each; the oldest goes first."""


class Temperatures:
    def __init__(self) -> None:
        self._kept: OrderedDict[str, float] = OrderedDict()

    def keep(
        self,
        prompt: Sequence[int],
        output: Sequence[int],
        logprobs: Sequence[float],
        temperature: float,
    ) -> None:
        """An answer was sampled."""
        key = digest(prompt, output, logprobs)
        self._kept[key] = temperature
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def find(
        self, prompt: Sequence[int], output: Sequence[int], logprobs: Sequence[float]
    ) -> float | None:
        """The temperature of an answer; None where it was not sampled here, or long ago."""
        return self._kept.get(digest(prompt, output, logprobs))
