"""Where a run or a fork starts, read from the tree as one state and sent with the request."""

from dataclasses import dataclass

from hud_tui.client.client import HudClient
from hud_tui.errors import HudMalformed
from hud_tui.rl.checkpoint_tree import Tree, label, origin
from hud_tui.rl.names import is_shared
from hud_tui.wire import BASE, Checkpoint, Model


@dataclass(frozen=True)
class StartingPoint:
    """The weights that a run or a fork starts from, as they were when they were read."""

    ref: str | None
    """Id of a checkpoint, or `BASE`; None on HUD, which cannot be told, and of a base model, which
    has nothing else."""
    name: str
    """For display."""

    @classmethod
    def of_head(cls, head: Checkpoint | None, model: Model) -> "StartingPoint":
        """The head of a model, None for the weights that it started from itself."""
        name = label(head) if head is not None else origin(model) or "base weights"
        if model.training_defaults is None or is_shared(model):
            return cls(None, name)
        return cls(BASE if head is None else head.id, name)


async def read_start(client: HudClient, model: Model) -> StartingPoint:
    """Where a run of a model, or a fork, starts now. Raises HudError: the service does not answer,
    or names no head among the checkpoints."""
    if is_shared(model):
        return StartingPoint.of_head(None, model)
    tree = Tree.of(await client.checkpoints(model.id))
    if len(tree) and tree.served is None:
        raise HudMalformed(
            f"{model.model_name} has checkpoints, but the service says of none that it is the head",
            "try again; or set the head",
        )
    return StartingPoint.of_head(tree.served, model)
