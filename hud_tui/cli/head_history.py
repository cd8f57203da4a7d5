"""``head --history``: what became of a model's head."""

import argparse
import asyncio

from hud_tui.cli.connect import paths_of
from hud_tui.cli.output import aligned, show
from hud_tui.client.client import HudClient
from hud_tui.client.history import read_moves
from hud_tui.events import EvaluationsRead, TreeRead
from hud_tui.rl.reflog import reflog
from hud_tui.rl.run import Run
from hud_tui.rl.text import moment
from hud_tui.wire import Model


async def show_history(client: HudClient, model: Model, args: argparse.Namespace) -> int:
    """Print the moves of the head, the steps between them, and evaluations."""
    tree, evaluations, moves = await asyncio.gather(
        client.checkpoints(model.id),
        client.evaluations(model.id),
        read_moves(client, model.id, paths_of(args).state),
    )
    run = Run(model=model).fold(TreeRead(checkpoints=tuple(tree)))
    run = run.fold(EvaluationsRead(evaluations=tuple(evaluations or ()))).fold(moves)
    lines, history = reflog(run), run.history
    cells = [(moment(line.at), line.what, line.before, line.after, line.by) for line in lines]
    table = [] if not cells else aligned([("when", "what", "from", "checkpoint", "by"), *cells])
    data = {"model": model.model_name, "complete": history.since == 0, "since": history.since}
    summary = f"moves of the head: {history.completeness}"
    show(args, "head_history", {**data, "lines": lines}, *table, summary)
    return 0
