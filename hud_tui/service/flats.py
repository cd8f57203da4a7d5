"""Batches that teach nothing, one after the other: when to give up, and what they say.

A batch without spread is sampled again. After `IN_A_ROW` of them there is no gradient left to
hope for: either the tasks are solved, which is how a run should end, or the rewards do not
tell the policy's answers apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isclose

IN_A_ROW = 20
"""Batches without anything to train on after which a run ends."""
FULL = 1.0
"""The reward of a task that is solved."""
CURE = "choose easier tasks, a larger group_size or a higher temperature"


@dataclass
class Flats:
    """The flat batches since the last step."""

    count: int = 0
    low: float = inf
    high: float = -inf
    """Of all their rewards."""

    def add(self, rewards: Sequence[float]) -> None:
        """One more batch had nothing to train on."""
        self.count += 1
        self.low, self.high = min(self.low, *rewards), max(self.high, *rewards)

    def clear(self) -> None:
        """A step was taken."""
        self.count, self.low, self.high = 0, inf, -inf

    @property
    def is_end(self) -> bool:
        """Whether it is time to give up."""
        return self.count >= IN_A_ROW

    @property
    def solved(self) -> bool:
        """Whether every rollout of theirs had the full reward."""
        return isclose(self.low, FULL, abs_tol=1e-6) and isclose(self.high, FULL, abs_tol=1e-6)

    @property
    def verdict(self) -> str:
        """What they say of the tasks, and what to do about it."""
        if self.solved:
            return (
                f"solved: every rollout of the last {self.count} batches scored {FULL};"
                " no gradient left"
            )
        if self.low == self.high:
            every = f"every rollout of the last {self.count} batches scored {round(self.low, 4)}"
            why = (
                "too hard for this model" if self.low <= 0 else "the reward tells no answers apart"
            )
            return f"{every}: {why}: {CURE}"
        every = f"the last {self.count} batches had rewards from {round(self.low, 4)}"
        every += f" to {round(self.high, 4)}, the same within each group"
        return f"{every}: each task is always solved or never: {CURE}"
