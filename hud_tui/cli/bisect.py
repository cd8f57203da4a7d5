"""``bisect``: which step of a lineage did the damage."""

import argparse
from typing import Any

from hud_tui.cli.connect import paths_of
from hud_tui.cli.evaluate import Evaluating, followed
from hud_tui.cli.models import named_position, read_tree
from hud_tui.cli.output import aligned, emit, print_notice
from hud_tui.cli.which_model import choose_model
from hud_tui.client.bisection import Bisector, Lineage
from hud_tui.client.client import HudClient
from hud_tui.errors import HudUsage
from hud_tui.rl.bisect import USUAL_BUDGET, Bisection, path_between
from hud_tui.rl.metrics import estimate_text
from hud_tui.rl.text import counted, one_line, percent
from hud_tui.rollouts.control import works_of


async def bisect(client: HudClient, args: argparse.Namespace) -> int:
    """Evaluate checkpoints of a lineage until the step is found, or the budget is spent. Raises
    HudError: the service does not answer, or refuses; or a name is unknown."""
    model = await choose_model(client, args)
    tree = await read_tree(client, model)
    positions = path_between(tree, named_position(args.good, tree), named_position(args.bad, tree))
    state = paths_of(args).state
    bisector = Bisector(works_of(client, state), state)
    nodes = [tree.node(position) for position in positions]
    lineage = None
    if args.resume or args.show:
        lineage = await bisector.newest(model, [None if n is None else n.id for n in nodes])
        if lineage is None:
            raise HudUsage("this lineage was not bisected yet", "leave --resume or --show out")
    else:
        asked = await Evaluating(client, args).asked(model)
        budget = USUAL_BUDGET if args.budget is None else args.budget
        lineage = await bisector.begin(model, tree, positions, asked, budget)
        steps, tasks = counted(len(positions) - 1, "step"), counted(lineage.num_tasks, "task")
        print_notice(f"{steps}, {tasks}, at most {counted(budget, 'rollout')}")
    if not args.show:
        words = ["bisect", model.model_name, "--good", args.good, "--bad", args.bad, "--resume"]
        await followed(bisector.spend(lineage), client.settings.command(*words))
    bisection = await bisector.state(lineage)
    explain = None
    if bisection.step is not None:
        step = lineage.names[bisection.step]
        explain = client.settings.command("compare", step, "-m", model.model_name)
    if args.headless:
        emit("bisect", _document(lineage, bisection) | {"explain": explain})
    else:
        lines = _lines(lineage, bisection)
        lines += [f"{explain} says what changed there", ""] if explain else []
        print("\n".join(one_line(line, 300) for line in lines))
    return 0


def _document(lineage: Lineage, bisection: Bisection) -> dict[str, Any]:
    search, step = bisection.search, bisection.step
    between = None if search is None else [lineage.names[p] for p in search.range]
    return {
        "model": lineage.model,
        "good": lineage.names[0],
        "bad": lineage.names[-1],
        "verdict": bisection.kind,
        "step": None if step is None else lineage.names[step],
        "step_id": None if step is None else lineage.path[step],
        "last_good": None if step is None else lineage.names[step - 1],
        "last_good_id": None if step is None else lineage.path[step - 1],
        "probability": None if search is None else search.near(search.step),
        "slow_decline": None if search is None else search.slow,
        "between": between,
        "drop": None if bisection.drop is None else bisection.drop.reward,
        "rollouts": bisection.rollouts,
        "budget": lineage.budget,
        "evaluated": [
            {
                "name": lineage.names[position],
                "checkpoint_id": lineage.path[position],
                "reward": scores.mean,
                "rollouts": scores.rollouts,
            }
            for position, scores in sorted(bisection.scores.items())
        ],
        "summary": bisection.sentences(lineage.names.__getitem__),
        "bisection": lineage.id,
    }


def _lines(lineage: Lineage, bisection: Bisection) -> list[str]:
    """What was evaluated, in the order of the lineage, and the verdict."""
    rows = [("checkpoint", "mean reward", "rollouts", "damage done before it")]
    search = bisection.search
    for position, scores in sorted(bisection.scores.items()):
        done = "–" if search is None else percent(search.done(position))
        reward = estimate_text(scores.mean)
        rows.append((lineage.names[position], reward, str(scores.rollouts), done))
    verdict = bisection.sentences(lineage.names.__getitem__)
    spent = f"{counted(bisection.rollouts, 'rollout')} of at most {lineage.budget}"
    return [*aligned(rows, (2, 3)), "", spent, *verdict, ""]
