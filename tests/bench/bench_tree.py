"""From a key to the repaint in a checkpoint tree, at 1 000 and at 100 000 checkpoints.

Measured is our own work on a screen of 120 × 40, every step unfolded: move the cursor a
row, work out the details, draw every line in sight, which is more than the two lines that
a key changes. What Textual then does with the lines is not ours.
"""

import asyncio
from collections.abc import Sequence
from time import perf_counter

from hud_tui.events import CheckpointAdded
from hud_tui.tui.screens.checkpoints import CheckpointsScreen
from hud_tui.tui.widgets.checkpoint_tree import CheckpointTree
from hud_tui.wire import Checkpoint
from tests.bench.timing import KEY, missed
from tests.tui import runs
from tests.tui.still import StillClient, still

SMALL, LARGE, KEYS = 1_000, 100_000, 60
GROWTH = 2.0
"""How much longer a key may take in the large tree."""


def chain(length: int) -> list[Checkpoint]:
    """A run that went straight on, but for a branch that was left in its middle."""
    nodes = list(runs.checkpoints(min(length, SMALL), tasks=4, grouped=SMALL))
    for i in range(len(nodes), length):
        # copied, not validated: a bench need not wait for what it does not measure
        like = nodes[i % SMALL]
        parent = nodes[i - 1 if i != length // 2 else i - 50].id
        new = {"id": f"{i:012}", "name": f"step-{i + 1:06}", "prev_model_checkpoint_id": parent}
        nodes.append(like.model_copy(update=new))
    return [*nodes[:-1], nodes[-1].model_copy(update={"is_active": True})]


def one_key(view: CheckpointsScreen, tree: CheckpointTree, rows: int) -> float:
    start = perf_counter()
    tree.action_move(rows)
    view.show_details(tree.cursor_moved)
    for y in range(tree.size.height):
        tree.render_line(y)
    return perf_counter() - start


def one_step(view: CheckpointsScreen, tree: CheckpointTree, number: int) -> float:
    head = view.run.head
    assert head is not None
    new = {"id": f"more-{number}", "prev_model_checkpoint_id": head.id, "is_active": True}
    event = CheckpointAdded(checkpoint=head.model_copy(update=new))
    start = perf_counter()
    view.run = view.run.fold(event)
    for y in range(tree.size.height):
        tree.render_line(y)
    return perf_counter() - start


async def measure(nodes: Sequence[Checkpoint]) -> tuple[float, float]:
    """Least seconds of a key, and of one more step, in a tree of these checkpoints."""
    app = still(StillClient(nodes))
    async with app.run_test(size=(120, 40)) as pilot:
        while not (app.shown_view and len(app.shown_view.run.tree)):
            await pilot.pause()
        view = app.shown_view
        assert isinstance(view, CheckpointsScreen)
        tree = view.query_one(CheckpointTree)
        while len(tree.rows) <= len(nodes):  # folded; the tree itself may come a moment later
            tree.fold_all()
            await pilot.pause()
        tree.go(len(nodes) // 2)
        await pilot.pause()
        keys = [one_key(view, tree, 1 if key % 20 < 10 else -1) for key in range(KEYS)]
        steps = [one_step(view, tree, number) for number in range(KEYS)]
        return min(keys), min(steps)


def main() -> int:
    (small, _), (large, step_) = (asyncio.run(measure(chain(n))) for n in (SMALL, LARGE))
    print(f"tree key, {LARGE} against {SMALL}: {large / small:.2f} times; goal {GROWTH:.2f}")
    found = [
        (f"tree key to repaint, {LARGE} checkpoints", large, KEY),
        (f"tree one more step, {LARGE} checkpoints", step_, KEY),
    ]
    return missed(found) or large > GROWTH * small
