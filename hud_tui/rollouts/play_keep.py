"""Keeping what was played: as a demonstration to train on by cross_entropy.

A line of a file is a payload of `TrainingClient.forward_backward`: the person's turns, as tokens of
the model, and the reward, which weighs them. It names no trace: that one is never trained on.
"""

import asyncio
import os
from pathlib import Path

from hud_tui.client.client import HudClient
from hud_tui.errors import HudNotFound, HudUsage
from hud_tui.rl.text import one_line
from hud_tui.rollouts.play import Play
from hud_tui.storage import open_or_make
from hud_tui.wire_training import Payload, Sample

NOT_KEPT = "nothing is kept: only the embedded service writes what was said as tokens"
LEAVE_OUT = "leave out --keep"


async def file_to_keep(client: HudClient, text: str) -> Path:
    """The file of --keep. Raises HudUsage: a line cannot be appended to it, or the service is not
    the embedded one."""
    if await client.service_id() == client.settings.api_url:
        raise HudUsage(NOT_KEPT, LEAVE_OUT)
    return await asyncio.to_thread(writable, text)


def writable(text: str) -> Path:
    """A file that is there. Raises HudUsage: a line cannot be appended to it."""
    file = Path(text).expanduser()
    try:
        os.close(open_or_make(file, os.O_APPEND))
    except OSError as error:
        why = f"{one_line(file)} cannot be written: {error.strerror or error}"
        raise HudUsage(why, "name another file: --keep FILE") from error
    return file


async def keep(file: Path, play: Play) -> str:
    """Append a game that was graded to a file; returns what was done, in a line. Raises HudError:
    the service does not answer, or makes no tokens."""
    grade = play.game.grade
    if grade is None or not play.demonstrated:
        return "nothing is kept: you made no turn" if grade is not None else "nothing is kept"

    async def samples_of(client: HudClient) -> list[Sample]:
        model = await client.model(play.policy)
        calls = (client.training.demonstration(model.id, said) for said in play.demonstrated)
        return list(await asyncio.gather(*calls))

    try:
        samples = await play.link.call(samples_of)
    except HudNotFound as error:
        raise HudUsage(NOT_KEPT, LEAVE_OUT) from error
    payload = Payload(samples=samples, reward=grade.reward)
    line = payload.model_dump_json(exclude_none=True, exclude_unset=True) + "\n"
    await asyncio.to_thread(_append, file, line.encode())
    weight = "" if grade.reward else "without weight (reward 0) "
    return f"kept {weight}in {one_line(file)}"


def _append(file: Path, line: bytes) -> None:
    with open(open_or_make(file, os.O_APPEND), "ab") as opened:
        opened.write(line)
