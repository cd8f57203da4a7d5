"""Trees for tests: random ones for hypothesis, and chains."""

from collections.abc import Sequence

from hypothesis import strategies as st

from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.wire import Checkpoint

REWARDS = st.one_of(st.none(), st.floats(-1, 1), st.just(float("nan")))


@st.composite
def parents(draw: st.DrawFn, most: int = 40) -> list[int]:
    """The parent of each node: usually the one before it, else any older one, or ROOT."""
    chosen: list[int] = []
    for position in range(draw(st.integers(0, most))):
        fork = draw(st.integers(0, 3)) == 0
        chosen.append(draw(st.integers(ROOT, position - 1)) if fork else position - 1)
    return chosen


def checkpoint(position: int, parent: int, reward: float | None = None) -> Checkpoint:
    """The node at a position, named as the embedded service names them."""
    return Checkpoint(
        id=f"c{position}",
        name=f"step-{position + 1:06}",
        prev_model_checkpoint_id=None if parent == ROOT else f"c{parent}",
        mean_reward=position % 7 / 7 if reward is None else reward,
    )


def tree_of(parents: Sequence[int], head: int | None = None) -> Tree:
    """A tree with these parents."""
    tree = Tree.of(checkpoint(position, parent) for position, parent in enumerate(parents))
    return tree.with_head(None if head is None else f"c{head}")
