"""Accumulated: what the gradients that wait for a step came from, or why there are none."""

from dataclasses import dataclass, field

from hud_tui.service.batches import (
    CROSS_ENTROPY,
    Batch,
    Trajectory,
    flat_groups,
    nothing_to_train,
)
from hud_tui.service.refusals import Refused


@dataclass
class Accumulated:
    batches: list[Batch] = field(default_factory=list)
    passes: list[dict[str, float]] = field(default_factory=list)
    """The engine's figures, one dict a batch."""
    num_datums: int = 0
    """Turns that moved the gradient."""
    loss_fn: str = ""
    seconds: float = 0.0
    """Spent in passes."""

    def add(self, batch: Batch, figures: dict[str, float], num_datums: int, loss_fn: str) -> None:
        """One more batch was passed."""
        self.batches.append(batch)
        self.passes.append(figures)
        self.num_datums += num_datums
        self.loss_fn = loss_fn

    @property
    def trajectories(self) -> list[Trajectory]:
        return [trajectory for batch in self.batches for trajectory in batch.trajectories]

    def refuse_empty(self) -> None:
        """Raises Refused, 409, where there is no gradient to step on; it says why."""
        if self.num_datums:
            return
        if not self.batches:
            raise Refused(409, "nothing is accumulated: call forward-backward first")
        if self.loss_fn == CROSS_ENTROPY:
            raise Refused(409, "nothing to step on: every reward, and so every weight, is 0")
        raise nothing_to_train([group for batch in self.batches for group in flat_groups(batch)])
