"""``protect``: models that are changed only by who types their name."""

import argparse
import asyncio
from collections.abc import Callable

from hud_tui.client.client import HudClient
from hud_tui.errors import HudProtected, HudUsage
from hud_tui.headless.main import Connect
from hud_tui.headless.output import emit, tell
from hud_tui.protection import Protection
from hud_tui.rl.text import one_line
from hud_tui.settings import Paths


def protect(args: argparse.Namespace, paths: Callable[[], Paths], connect: Connect) -> int:
    """Protect a model, or no longer; or say which are.

    Raises:
        HudError: The service does not answer, or has no such model.
        HudProtected: It is to be protected no longer, and its name was not typed.
    """
    kept = Protection(lambda: paths().state)
    if args.model is not None:
        asyncio.run(_change(args, kept, connect))
    elif args.off:
        raise HudUsage("say which model", "see hud-tui protect")
    models = [{"id": id_, "name": name} for id_, name in kept.models.items()]
    if args.headless:
        emit("protect", {"protected": models})
        return 0
    for model in models:
        print(f"{one_line(model['name'], 100)}  {one_line(model['id'], 80)}")
    if not models:
        print("no model is protected on this machine")
    return 0


async def _change(args: argparse.Namespace, kept: Protection, connect: Connect) -> None:
    client = await connect("local" if args.local else "hud", None, tell)
    try:
        id_, name = await _named(client, args, kept)
    finally:
        await client.aclose()
    if args.off and id_ in kept.models and args.confirm not in (kept.models[id_], id_):
        raise HudProtected(one_line(kept.models[id_], 100), "protect it no longer")
    kept.protect(id_, name, not args.off)


async def _named(client: HudClient, args: argparse.Namespace, kept: Protection) -> tuple[str, str]:
    """A model's id and name; one that is gone is found among the protected."""
    if args.off and args.model in kept.models:
        return args.model, kept.models[args.model]
    model = await client.model(args.model)
    return model.id, model.model_name
