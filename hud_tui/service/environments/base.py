"""Environments the service itself can roll out: a prompt from a task's args, a reward from a text.

A scenario is five short things: what it is called, what it takes (JSON Schema), what it
asks, what the right answer is, and how near a wrong one came. Add one to an environment's
list and it is in the registry, in preflight and in managed runs.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hud_tui.service.environments.schema import check_args

Args = Mapping[str, Any]

EXACT = 1.0
"""The bare answer and nothing else."""
CONTAINED = 0.2
"""The answer as a word in a longer text: right, but not in the form that was asked for."""
NEAR = 0.15
"""Most that a wrong answer in the right form can earn."""


@dataclass(frozen=True)
class Scenario:
    """One kind of task."""

    name: str
    description: str
    args_schema: dict[str, Any]
    """JSON Schema of the args: an object of integers and strings with their bounds."""
    ask: Callable[..., str]
    """Prompt of the args, given as keywords."""
    solve: Callable[..., str]
    """Right answer of the args, given as keywords."""
    nearness: Callable[[str, str], float]
    """How near (text, answer) is, in [0, 1]; only asked when the text is not the answer."""

    def prompt(self, args: Args) -> str:
        """The user message of a task.

        Raises:
            ValueError: The args do not fit the schema; the message names the field.
        """
        return self.ask(**check_args(self.args_schema, args))

    def answer(self, args: Args) -> str:
        """The text that earns 1.0. Raises ValueError as `prompt` does."""
        return self.solve(**check_args(self.args_schema, args))

    def grade(self, args: Args, completion: str) -> float:
        """Reward of a completion, in [0, 1]. Raises ValueError as `prompt` does."""
        answer, text = self.answer(args), completion.strip()
        if text == answer:
            return EXACT
        if re.search(rf"(?<![\w-]){re.escape(answer)}(?!\w)", text):
            return CONTAINED
        return round(NEAR * self.nearness(text, answer), 4)


@dataclass(frozen=True)
class Environment:
    """A named set of scenarios."""

    name: str
    description: str
    listed: tuple[Scenario, ...]

    @cached_property
    def scenarios(self) -> dict[str, Scenario]:
        """The scenarios by name, in the order they are listed."""
        return {scenario.name: scenario for scenario in self.listed}
