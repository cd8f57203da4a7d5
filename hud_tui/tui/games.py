"""Games, as views begin them: on a task, from a rollout, and as the command line asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hud_tui.client.client import HudClient
from hud_tui.rl.game import Game
from hud_tui.rl.tasks.task import Task
from hud_tui.rollouts.play import Play, own_play
from hud_tui.rollouts.play_keep import file_to_keep, keep, writable
from hud_tui.rollouts.play_link import PlayLink
from hud_tui.rollouts.play_rollout import rollout_play
from hud_tui.rollouts.play_service import play_of, service_play
from hud_tui.rollouts.run_files import environment_name
from hud_tui.tui.screens.play import PlayScreen
from hud_tui.tui.start import Start
from hud_tui.wire import Model


def game_on_task(
    newest: Callable[[], HudClient],
    task: Task,
    source: Path | None,
    state: Path,
    model: Model | None,
    options: Mapping[str, Any],
) -> PlayScreen:
    """A game on a task of an environment's source; None: of the service's own environments.
    `newest` gives the present client; the others as of `own_play`."""
    link = PlayLink(newest, waits=True)

    async def begin(changed: Callable[[Game], object]) -> Play:
        if source is None:
            return await service_play(link, task, changed, model, options)
        return await own_play(link, source, state, changed, task.slug, model, options)

    return PlayScreen(f"{task.env} {task.slug}", begin)


def game_from_rollout(newest: Callable[[], HudClient], trace_id: str, state: Path) -> PlayScreen:
    """A game from a policy's rollout."""
    begin = partial(rollout_play, PlayLink(newest, waits=True), trace_id, state)
    return PlayScreen(f"from rollout {trace_id[:8]}", begin)


def game_of_start(
    newest: Callable[[], HudClient], start: Start, model: Model | None, state: Path
) -> PlayScreen:
    """The game that the command line asks for. `model`: the selected one. Raises HudUsage: it
    cannot be kept where that is to be."""
    keeps = None if start.keep is None else partial(keep, writable(start.keep))
    link = PlayLink(newest, waits=True)

    async def begin(changed: Callable[[Game], object]) -> Play:
        if start.keep is not None:
            await file_to_keep(newest(), start.keep)
        if start.rollout is not None:
            asked = start.source, model if start.model else None, start.options
            return await rollout_play(link, start.rollout, state, changed, *asked)
        of_task = start.task, model, start.options
        return await play_of(link, start.source, state, changed, *of_task)

    name = environment_name(start.source) if start.source else f"from {start.rollout}"
    return PlayScreen(f"{name} {start.task or ''}".strip(), begin, start.replay, keeps)
