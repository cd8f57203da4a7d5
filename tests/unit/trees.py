"""Trees for tests: random ones for hypothesis, and chains."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from hud_tui.events import CheckpointAdded
from hud_tui.rl.checkpoint_tree import ROOT, Tree
from hud_tui.rl.run import Run
from hud_tui.wire import Checkpoint, Group

REWARDS = st.one_of(st.none(), st.floats(-1, 1), st.just(float("nan")))


@st.composite
def parents(draw: st.DrawFn, most: int = 40, least: int = 0) -> list[int]:
    """The parent of each node: usually the one before it, else any older one, or ROOT."""
    chosen: list[int] = []
    for position in range(draw(st.integers(least, most))):
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
    tree = Tree.of(checkpoint(position, parent) for position, parent in enumerate(parents))
    return tree.with_head(None if head is None else f"c{head}")


def named(id_: str, parent: str | None = None, **fields: object) -> Checkpoint:
    """A checkpoint that is called as its id."""
    known = {"id": id_, "name": id_, "prev_model_checkpoint_id": parent}
    return Checkpoint.model_validate(known | fields)


def chain(*fields: Mapping[str, object], first: int = 0, head: bool = True) -> list[Checkpoint]:
    """Steps that follow each other, with these fields: c0, c1 and so on.

    Args:
        fields: Of each step.
        first: The number of the first.
        head: Whether the last one is the head.
    """
    return [
        named(
            f"c{number}",
            f"c{number - 1}" if number > first else None,
            **{"is_active": head and number == first + len(fields) - 1, **each},
        )
        for number, each in enumerate(fields, first)
    ]


def sampled(
    step: int, parent: int | None, tokens: int | None = None, **rewards: list[float]
) -> Checkpoint:
    """A step with its groups by task, each rollout with as many tokens where they are told."""
    groups = [
        Group(
            task_slug=slug,
            rewards=found,
            num_tokens=[tokens] * len(found) if tokens is not None else [],
        )
        for slug, found in rewards.items()
    ]
    return Checkpoint(
        id=f"c{step}",
        prev_model_checkpoint_id=None if parent is None else f"c{parent}",
        is_active=True,
        groups=groups,
        num_tokens=100,
    )


def grown(*nodes: Checkpoint) -> Run:
    """A run that was followed through these steps."""
    run = Run()
    for node in nodes:
        run = run.fold(CheckpointAdded(checkpoint=node))
    return run
