"""The moves of a model's head: from the service, else from what this machine has of them."""

from asyncio import to_thread
from collections.abc import Iterable, Iterator
from pathlib import Path
from platform import node

from hud_tui.audit_log import AuditEntry, CommandLog
from hud_tui.client.client import HudClient
from hud_tui.events import Act, Actor, HeadMoved, MovesRead
from hud_tui.notebook import Notebook, notebook_file
from hud_tui.rl.history import attributed, merged


async def read_moves(
    client: HudClient, model_id: str, state: Path | None, seen_from: float | None = None
) -> MovesRead:
    """All known moves of a model's head, with who made them.

    Args:
        state: The directory with the command log and the notebooks; None for neither.
        seen_from: Unix seconds since when the caller sees all moves itself; None if it does not.

    Raises:
        HudError: The service does not answer, or has no such model.
    """
    told = await client.moves(model_id)
    if told is not None and all(move.by is not None for move in told.moves):
        return told
    log: list[HeadMoved] = []
    if state is not None:
        entries, _ = await to_thread(CommandLog(state).read)
        log = list(logged_moves(entries, model_id))
    if told is not None:
        return told.model_copy(update={"moves": attributed(told.moves, log)})
    seen = () if state is None else Notebook(notebook_file(state, model_id)).moves
    return MovesRead(moves=merged([*log, *seen]), since=seen_from)


def logged_moves(entries: Iterable[AuditEntry], model_id: str) -> Iterator[HeadMoved]:
    """The moves of a model's head that this machine sent."""
    host = node()
    for entry in entries:
        if entry.verb != "set head" or entry.model != model_id or entry.outcome != "done":
            continue
        act = Act(entry.act) if entry.act in list(Act) else Act.SET
        by = Actor(program=entry.by, host=host)
        before = entry.before or None
        yield HeadMoved(
            at=entry.at, checkpoint_id=entry.after, previous=before, cause="set", act=act, by=by
        )
