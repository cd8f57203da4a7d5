"""Which model a run trains, and all that its submission sends, in words, on stderr."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from hud_tui.client.client import HudClient
from hud_tui.errors import HudUsage
from hud_tui.headless.consent import ask
from hud_tui.headless.output import tell
from hud_tui.rl.disk import where_stored
from hud_tui.rl.names import find_model
from hud_tui.rl.preflight import Finding
from hud_tui.rl.run_form import cost, defaults, max_tokens
from hud_tui.rl.status import trainable
from hud_tui.rl.tasks import Task, form_of
from hud_tui.rl.text import one_line
from hud_tui.rl.variables import find_variables
from hud_tui.variables import set_variables
from hud_tui.wire import JobParameters, Model

LISTED = 50
"""Models that are offered by number."""
LABEL = 16


async def choose_model(client: HudClient, args: argparse.Namespace) -> Model:
    """The model that was named, else the only one that can be trained, else the one that
    somebody at the terminal picks.

    Raises:
        HudUsage: There is none; or there are several, and nobody can be asked.
    """
    if args.model:
        return await client.model(args.model)
    own = trainable(await client.models())
    if len(own) == 1:
        return own[0]
    if not own:
        hint = "fork one: hud-tui fork SOURCE --name NAME; hud-tui models lists them"
        raise HudUsage("there is no model of yours to train", hint)
    if sys.stdin.isatty() and not getattr(args, "yes", False):
        return await _pick(own)
    names = ", ".join(one_line(model.model_name) for model in own[:5])
    raise HudUsage(f"there are {len(own)} models to train", f"say which with -m: {names}")


async def _pick(own: Sequence[Model]) -> Model:
    """Newest first, by number or name.

    Raises:
        HudUsage: The answer is neither.
    """
    tell(f"there are {len(own)} models to train:")
    for number, model in enumerate(own[:LISTED], 1):
        steps = f"{model.checkpoint_count} checkpoints" if model.checkpoint_count else "untrained"
        print(f"  {number:3}  {one_line(model.model_name, 60)}  {steps}", file=sys.stderr)
    answer = await ask(f"which? [1-{min(LISTED, len(own))}, or a name] ")
    if answer.isascii() and answer.isdigit() and 1 <= int(answer[:9]) <= min(LISTED, len(own)):
        return own[int(answer) - 1]
    return find_model(answer, own)


def say_what_is_sent(
    model: Model,
    tasks: Sequence[Task],
    origin: dict[str, Any],
    asked: JobParameters,
    findings: Iterable[Finding],
) -> None:
    """Everything that the submission sends, a line each."""
    train = sum(not task.heldout for task in tasks)
    held = f", {len(tasks) - train} held out" if train < len(tasks) else ""
    lines = [
        ("model", model.model_name),
        ("tasks", f"{train} to train on{held}, form {form_of(tasks)}"),
        ("from", f"{origin['loaded_from']} {origin['source']}"),
        ("environments", ", ".join(dict.fromkeys(task.env for task in tasks))),
    ]
    given = asked.model_dump(exclude_none=True)
    lines += [(name.replace("_", " "), json.dumps(value)) for name, value in given.items()]
    lines += [("all else", "as the service has it for this model")]
    filled = [one.name for one in find_variables(tasks, set_variables())]
    lines += [("filled in", ", ".join(filled))] if filled else []
    own = model.training_defaults
    values = {**(defaults(model) if own is not None else {}), **given}
    size = cost(values, tasks)
    rollouts = None if size is None else size.rollouts
    lines += where_stored(model, asked.steps, rollouts, max_tokens(model, values))
    lines += [(one.level, one.message) for one in findings if one.level != "ok"]
    for label, text in lines:
        print(f"  {label:<{LABEL}} {one_line(text, 200)}", file=sys.stderr, flush=True)
