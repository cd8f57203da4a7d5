"""Turns: whose request a process of the engine is given next.

Claimants (`base.CLAIMANT`) take turns, however many requests each has waiting: the one whose last
turn is longest ago is next. So another's flood costs a step of training a turn for each of its
calls, not the whole queue. A step is a chain of calls, of which one waits at a time; what is at
work when the next one comes cannot be stopped. Therefore, while somebody trains, nothing of others
is sent ahead, and the first process, which alone takes steps, is kept free of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Literal

LATELY_S = 5.0
"""Seconds after a call that trains in which the next one of its claimant is expected."""

Kind = Literal["own", "part", "small"]
"""``own``: for the process that holds the policy's state; ``part``, of a large call, and ``small``:
for any."""


@dataclass(frozen=True)
class Turn:
    """What a claimant was given last."""

    kind: Kind
    trained_at: float
    """When it last changed weights or gradients."""


class Turns:
    """The last turn of each claimant. `now` is in seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._last: dict[str, Turn] = {}
        """The one longest ago first."""

    def next_of(self, claimants: Iterable[str]) -> str:
        """Whose turn it is: the first of those who had none yet, else whose last is longest ago."""
        order = {name: number for number, name in enumerate(self._last)}
        return min(claimants, key=lambda name: order.get(name, -1))

    def was_small(self, claimant: str) -> bool:
        """Whether its last turn was a small request."""
        turn = self._last.get(claimant)
        return turn is not None and turn.kind == "small"

    def take(self, claimant: str, kind: Kind, trains: bool, now: float) -> None:
        """Record that a claimant was given its turn. `trains`: whether that changes weights or
        gradients."""
        before = self._last.pop(claimant, None)
        trained_at = before.trained_at if before is not None else -inf
        self._last[claimant] = Turn(kind, now if trains else trained_at)

    def may_hold_up_training(self, claimant: str, now: float) -> bool:
        """Whether it trains itself, or nobody does."""
        since = now - LATELY_S
        trainers = {name for name, turn in self._last.items() if turn.trained_at > since}
        return not trainers or claimant in trainers
