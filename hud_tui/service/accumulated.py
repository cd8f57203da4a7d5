"""Accumulated: what the gradients that wait for a step came from, or why there are none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from hud_tui.service.batches import (
    CROSS_ENTROPY,
    Batch,
    Trajectory,
    flat_groups,
    nothing_to_train,
)
from hud_tui.service.engines.base import Adam, Saved
from hud_tui.service.refusals import Refused
from hud_tui.service.step_metrics import of_step
from hud_tui.service.store.checkpoints import NewCheckpoint

TURNS, TOKENS = 2**18, 2**23
"""Most that may wait for one step: they are held in memory until then."""


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
    turns: int = 0
    tokens: int = 0
    """Of all batches, prompts and outputs together."""
    refused: bool = False
    """Whether a step was refused because no batch had anything to step on."""

    def add(self, batch: Batch, figures: dict[str, float], num_datums: int, loss_fn: str) -> None:
        """One more batch was passed."""
        self.batches.append(batch)
        self.passes.append(figures)
        self.num_datums += num_datums
        self.loss_fn = loss_fn
        turns, tokens = _size(batch)
        self.turns += turns
        self.tokens += tokens

    def holds(self, batch: Batch) -> bool:
        """Whether there is room for another batch."""
        turns, tokens = _size(batch)
        return self.turns + turns <= TURNS and self.tokens + tokens <= TOKENS

    def refuse_full(self, batch: Batch) -> None:
        """Raises Refused, 413, where there is no room for another batch."""
        if not self.holds(batch):
            cure = "call optim-step first" if self.batches else "send fewer inputs a call"
            limit = f"{TURNS} turns and {TOKENS} tokens are the most that wait for one step"
            raise Refused(413, f"{limit}, and {self.turns} and {self.tokens} do: {cure}")

    @property
    def trajectories(self) -> list[Trajectory]:
        return [trajectory for batch in self.batches for trajectory in batch.trajectories]

    def refuse_empty(self) -> None:
        """Raises Refused, 409, where there is no gradient to step on; it says why."""
        if self.num_datums:
            return
        if not self.batches:
            raise Refused(409, "nothing is accumulated: call forward-backward first")
        self.refused = True
        if self.loss_fn == CROSS_ENTROPY:
            raise Refused(409, "nothing to step on: every reward, and so every weight, is 0")
        raise nothing_to_train([group for batch in self.batches for group in flat_groups(batch)])

    def nothing_moved(self, why: str) -> Refused:
        """409 for a step that the engine refused, although turns were passed."""
        return Refused(
            409,
            f"no step was taken: {self.num_datums} turns were passed ({self.loss_fn}), but {why}",
        )

    def checkpoint(
        self,
        id_: str,
        place: tuple[str, str | None, str | None],
        adam: Adam,
        saved: Saved,
        figures: Mapping[str, float],
    ) -> NewCheckpoint:
        """The step that was taken on these gradients, for the tree.

        Args:
            id_: The checkpoint's.
            place: Ids of its model, its parent and its managed run.
            adam: What the optimizer was told.
            saved: Where the weights are.
            figures: Metrics beside those of batches and passes.
        """
        model_id, parent_id, job_id = place
        trajectories = self.trajectories
        return NewCheckpoint(
            id=id_,
            model_id=model_id,
            parent_id=parent_id,
            sampler_path=saved.sampler_path,
            state_path=saved.state_path,
            learning_rate=adam.learning_rate,
            loss_fn=self.loss_fn,
            num_traces=len(trajectories),
            num_datums=self.num_datums,
            num_tokens=sum(len(turn.output) for t in trajectories for turn in t.turns),
            mean_reward=fmean(t.reward for t in trajectories),
            metrics=of_step(self.batches, self.passes, adam.learning_rate, figures),
            groups=[group for batch in self.batches for group in batch.groups()],
            trace_ids=[t.trace_id for t in trajectories if t.trace_id],
            job_id=job_id,
        )


def _size(batch: Batch) -> tuple[int, int]:
    """A batch's turns, and their tokens."""
    turns = [turn for trajectory in batch.trajectories for turn in trajectory.turns]
    return len(turns), sum(len(turn.prompt) + len(turn.output) for turn in turns)
