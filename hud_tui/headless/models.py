"""``models`` and ``fork``."""

import argparse

from hud_tui.client.client import HudClient
from hud_tui.headless.consent import confirm, require_consent
from hud_tui.headless.output import emit


async def models(client: HudClient, args: argparse.Namespace) -> int:
    """The catalog, all pages."""
    emit("models", {"models": await client.models()})
    return 0


async def fork(client: HudClient, args: argparse.Namespace) -> int:
    """Fork a model and print the new one."""
    require_consent(args, client)
    source = await client.model(args.source)
    await confirm(args, f"fork {source.model_name} as {args.name}?")
    emit("model", {"model": await client.fork(source.id, args.name)})
    return 0
