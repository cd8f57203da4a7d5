"""Playing from a policy's rollout: replayed turn by turn, until somebody takes over."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hud_tui.client.client import HudClient
from hud_tui.errors import HudNotFound, HudUsage
from hud_tui.rl.game import Game, recorded_turns
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.text import one_line
from hud_tui.rl.transcript import transcript_of
from hud_tui.rollouts.control import driven_here
from hud_tui.rollouts.evaluate import evaluation_files, order_of_evaluation
from hud_tui.rollouts.play import OwnWorld, Play
from hud_tui.rollouts.play_link import PlayLink
from hud_tui.rollouts.play_service import play_of, service_play
from hud_tui.rollouts.run_files import Options, Order, environment_name, kept_order
from hud_tui.wire import Model
from hud_tui.wire_rollouts import Trace


async def rollout_play(
    link: PlayLink,
    trace_id: str,
    state: Path,
    changed: Callable[[Game], object],
    source: str | None = None,
    model: Model | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Play:
    """A game on the task of a rollout, which is not begun; the rollout's turns can be replayed. The
    policy that goes on is the one that made it, with the weights that sampled it.

    Args:
        source: As of `play_of`; None for where it was made.
        model: Another one to go on.
        options: As of `own_play`.

    Raises:
        HudError: There is no such rollout, or it has no turns; or where it was made is not known.
    """
    client = link.client
    trace = await client.rollouts.trace(trace_id)
    events = (await client.rollouts.trace_events(trace.id)).events
    recorded = recorded_turns(transcript_of(events, trace.completion))
    if not recorded:
        raise HudUsage(f"rollout {one_line(trace.id, 40)} has no turns that are stored")
    sampler = model or await _sampler(client, trace)
    asked = trace.task_slug, sampler, options
    order = None if source is not None else order_of_job(state, trace.job_id or "")
    if source is not None:
        play = await play_of(link, source, state, changed, *asked)
    elif order is not None:
        chosen = {key: value for key, value in options.items() if key in Options.model_fields}
        sampled = {key: value for key, value in options.items() if key not in chosen}
        chosen |= {"model": sampler.model_name} if sampler is not None else {}
        chosen["parameters"] = {**order.parameters, **sampled}
        order = order.model_copy(update=chosen)
        world = OwnWorld(link, order, state, trace.task_slug)
        game = Game(environment_name(order.source), most=order.turns)
        play = Play(link, world, game, changed, order.model)
    elif trace.task is not None:
        [task] = read_rows([trace.task])
        play = await service_play(link, task, changed, sampler, options)
    else:
        hint = client.settings.command("play", "ENV.py", "--rollout", trace.id)
        message = f"where rollout {one_line(trace.id, 40)} was made is not known here"
        raise HudUsage(message, f"name its environment: {hint}")
    play.game = replace(play.game, upcoming=recorded)
    play.checkpoint = None if model is not None else trace.sampled_from
    return play


async def _sampler(client: HudClient, trace: Trace) -> Model | None:
    """The model that a rollout was sampled from, if it is there."""
    try:
        return await client.model(trace.model) if trace.model else None
    except (HudNotFound, HudUsage):
        return None


def order_of_job(state: Path, job_id: str) -> Order | None:
    """How the rollouts of a run, an evaluation, a trial or a game that was begun here are made;
    None: the service makes them, or it was begun elsewhere."""
    folder = driven_here(state, job_id)
    if folder is not None:
        return folder.order()
    stored = evaluation_files(state).read(job_id)
    if stored is not None and stored.environment is not None:
        return order_of_evaluation(stored)
    return kept_order(state, job_id)
