"""Lookup: what became of a write when no answer says so; it is never sent again.

A service that keeps keys says it of every call, and refuses the call should it arrive later.
Elsewhere the client reads what the write would have made, a few times, as it may still arrive.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from hud_tui.client.bodies import parse
from hud_tui.errors import HudError, HudRefused, HudUnclear, HudUnreachable
from hud_tui.wire import Settled

if TYPE_CHECKING:
    from hud_tui.client.http import Connection

T = TypeVar("T")
LOOKS_S = (0.0, 0.5, 1.0, 2.0)
"""Seconds before each look."""
ASKS_S = (0.0, 0.5, 1.0)
"""Seconds before each time that the service is asked; asking again changes nothing."""


async def _nothing() -> None:
    """There is nothing to read that would tell."""


@dataclass(frozen=True)
class Lookup(Generic[T]):
    """How to find out about one write."""

    settle: str = ""
    """URL at which the service is asked by the request's key, with ``{}`` for that."""
    look: Callable[[], Awaitable[T | None]] = _nothing
    """Reads what the write would have made, as its answer; None where it is not there."""
    hint: str = ""
    """What to do where neither tells."""


async def find_out(wire: "Connection", error: HudUnclear, kind: type[T], lookup: Lookup[T]) -> T:
    """The write's answer, or what stands for it, where it was done.

    Args:
        wire: What it was sent by.
        error: How it failed.
        kind: Of its answer.
        lookup: How to find out.

    Raises:
        HudUnclear: It may have happened, and may yet; the hint says what to do.
        HudUnreachable: It was not done, and never will be.
    """
    settled = await _settled(wire, lookup.settle, error.key) if lookup.settle else None
    if settled is not None and settled.state == "done":
        return parse(kind, json.dumps(settled.reply).encode(), "its answer")
    if settled is not None:
        never = HudUnreachable(f"{error.message}; it was not done", "try again")
        never.outcome = "not_done"
        raise never from error
    for wait_s in LOOKS_S if lookup.look is not _nothing else ():
        await asyncio.sleep(wait_s)
        try:
            found = await lookup.look()
        except HudError:
            break  # what was lost is to be told, not that this is lost too
        if found is not None:
            return found
    error.hint = lookup.hint or error.hint
    raise error


async def _settled(wire: "Connection", url: str, key: str) -> Settled | None:
    """What the service knows of the call; None where it keeps no keys, or cannot be asked."""
    for wait_s in ASKS_S:
        await asyncio.sleep(wait_s)
        try:
            return await wire.write("POST", url.format(key), Settled, None)
        except HudError as error:
            if isinstance(error, HudRefused) and (error.status or 0) < 500:
                return None
    return None
