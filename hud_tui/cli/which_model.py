"""The model that a command is about."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from hud_tui.cli.output import ask, print_notice
from hud_tui.client.client import HudClient, find_job
from hud_tui.errors import HudAmbiguous, HudUsage
from hud_tui.rl.checkpoint_tree import own_models
from hud_tui.rl.names import find_model
from hud_tui.rl.text import one_line
from hud_tui.wire import Model

LISTED = 50
"""Maximum models offered by number."""


async def choose_model(client: HudClient, args: argparse.Namespace) -> Model:
    """The named model, else the only trainable one, else one picked at the terminal. Raises
    HudUsage: there is none; or there are several, without a terminal."""
    if args.model:
        return await client.model(args.model)
    own = own_models(await client.models())
    if len(own) == 1:
        return own[0]
    if not own:
        fork = client.settings.command("fork", "SOURCE", "--name", "NAME")
        hint = f"fork one: {fork}; {client.settings.command('models')} lists sources"
        raise HudUsage("you have no trainable model", hint)
    if sys.stdin.isatty() and not getattr(args, "yes", False):
        return await _pick(own)
    names = ", ".join(one_line(model.model_name) for model in own[:5])
    raise HudUsage(f"you have {len(own)} trainable models", f"choose one with -m: {names}")


async def _pick(own: Sequence[Model]) -> Model:
    """Ask for a model by number or name.

    Raises:
        HudAmbiguous: The number of one model, and the name of another.
        HudUsage: Invalid answer.
    """
    print_notice(f"{len(own)} trainable models:")
    for number, model in enumerate(own[:LISTED], 1):
        steps = f"{model.checkpoint_count} checkpoints" if model.checkpoint_count else "untrained"
        print(f"  {number:3}  {one_line(model.model_name, 60)}  {steps}", file=sys.stderr)
    answer = await ask(f"which? [1-{min(LISTED, len(own))}, or a name] ")
    is_number = answer.isascii() and answer.isdigit()
    if not is_number or not 1 <= int(answer[:9]) <= min(LISTED, len(own)):
        return find_model(answer, own)
    numbered = own[int(answer) - 1]
    named = [model for model in own if answer in (model.name, model.model_name)]
    if named and numbered not in named:  # HUD has models with such names
        hint = f"name it by -m: {one_line(numbered.model_name)} or {answer}"
        raise HudAmbiguous(f"{answer} is a number in this list, and the name of a model", hint)
    return numbered


async def newest(client: HudClient) -> Model | None:
    """The model of the newest run, else the user's newest; None if there is none."""
    from hud_tui.rl.work import Work

    models, jobs = await asyncio.gather(client.models(), client.jobs(limit=20))
    by_id = {model.id: model for model in models}
    for job in jobs:
        model = by_id.get(Work.of(job).model_id or "")
        if model is not None:
            return model
    return next(iter(own_models(models)), None)


async def named(client: HudClient, ref: str) -> Model:
    """The model of this name, or the one that the job of this id trains.

    Raises:
        HudAmbiguous: Several.
        HudUsage: Neither.
    """
    models = await client.models()
    try:
        return find_model(ref, models)
    except HudAmbiguous:
        raise
    except HudUsage as unknown:
        job = await client.known_job(await _find_job(client, ref, unknown))
        name = job and (job.model_id or job.fine_tuned_model or job.model)
        if not name:
            raise HudUsage(f"job {one_line(ref)} does not train a model") from unknown
        return find_model(name, models)


async def _find_job(client: HudClient, ref: str, unknown: HudUsage) -> str:
    try:
        return await find_job(client, ref)
    except HudAmbiguous:
        raise
    except HudUsage as error:
        raise HudUsage(f"no model or job named {one_line(ref)}", unknown.hint) from error
