"""``play``: be the policy of one rollout, line by line."""

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from threading import Thread
from typing import Any

from hud_tui.cli.connect import paths_of
from hud_tui.cli.flags import given
from hud_tui.cli.output import emit, emit_error, flags_of, print_notice
from hud_tui.client.client import HudClient
from hud_tui.errors import HudError, HudUsage
from hud_tui.parameters import EVALUATION_PARAMETERS, ROLLOUT_OPTIONS
from hud_tui.rl.game import FORMS, BadMove, Game, Phase, Turn
from hud_tui.rl.text import one_line
from hud_tui.rollouts.play import GameFailed, Play
from hud_tui.rollouts.play_keep import file_to_keep, keep
from hud_tui.rollouts.play_link import PlayLink
from hud_tui.rollouts.play_rollout import rollout_play
from hud_tui.rollouts.play_service import play_of

THE_POLICY, REPLAY, THIS_TURN, TO_THE_END = "policy", "replay", "turn", "rest"


async def play(client: HudClient, args: argparse.Namespace) -> int:
    """Play a task by the lines of stdin; prints each turn, then the grade. Raises HudError: it
    cannot begin; the environment failed; stdin ended before the game."""
    file = None if args.keep is None else await file_to_keep(client, args.keep)
    model = await client.model(args.model) if args.model else None
    options = given(args, (*ROLLOUT_OPTIONS, *EVALUATION_PARAMETERS))
    link = PlayLink(lambda: client)
    states, state = asyncio.Queue[Game](), paths_of(args).state
    changed = states.put_nowait
    if args.rollout is not None:
        asked = args.source, model, options
        session = await rollout_play(link, args.rollout, state, changed, *asked)
    else:
        asked = args.task, model, options
        session = await play_of(link, args.source, state, changed, *asked)
    game = session.game
    print_notice(f"starting {one_line(game.source)}; the policy is {one_line(session.policy)}")
    session.is_kept = file is not None
    session.replay(args.replay)
    running = asyncio.ensure_future(session.run())
    lines = lines_of_stdin()
    told = 0
    try:
        while not (game := await states.get()).is_over:
            if game.waits and told < game.number:
                told = game.number
                _tell(game)
            if game.notice:
                emit_error(HudError(game.notice), True)
            if session.game is game and game.phase is Phase.YOURS:  # else it is replayed
                moving = asyncio.ensure_future(_move(session, lines, args))
                await asyncio.wait({moving, running}, return_when=asyncio.FIRST_COMPLETED)
                moving.cancel()  # if the environment has ended meanwhile
                with suppress(asyncio.CancelledError):
                    await moving
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    if game.grade is None:
        raise session.error or GameFailed(game)
    turns = [turn_row(turn) for turn in game.turns]
    emit("played", {**_about(game), "model": session.policy, "turns": turns})
    if file is not None:
        print_notice(await keep(file, session))
    return 0


def _tell(game: Game) -> None:
    """Print what the player can know now; what does not change only with the first turn."""
    document: dict[str, Any] = {"turn": game.number, "of": game.most}
    if not game.turns:
        document |= {
            "task": game.task,
            "prompt": game.prompt,
            "tools": [
                {"name": tool.name, "description": tool.about, "schema": tool.schema}
                for tool in game.tools
            ],
        }
    if game.upcoming:
        document["recorded"] = turn_row(game.upcoming[0])
    emit("turn", document | {"last": turn_row(game.turns[-1]) if game.turns else None})


def _about(game: Game) -> dict[str, Any]:
    about: dict[str, Any] = {"environment": game.source, "task": game.task}
    if game.grade is not None:
        about |= {"reward": game.grade.reward, "stop_reason": game.grade.stop, **game.grade.result}
    return about | {"trace_id": game.trace_id}


def turn_row(turn: Turn) -> dict[str, Any]:
    """A turn as it is printed."""
    calls = [asdict(call) for call in turn.move.calls]
    return {"by": turn.by, "text": turn.move.text, "calls": calls, "replies": turn.replies}


async def _move(
    session: Play, lines: "asyncio.Queue[bytes | None]", args: argparse.Namespace
) -> None:
    """Make the turn by the next line that says one; other lines are answered with an error."""
    while True:
        line = await lines.get()
        if line is None:
            what = f"stdin ended at turn {session.game.number}, before the game"
            raise HudUsage(what, FORMS)
        try:
            read = _read(line)
            if isinstance(read, Mapping) and THE_POLICY in read:
                session.let_policy(_is_to_the_end(read))
            elif isinstance(read, Mapping) and REPLAY in read:
                session.replay(_turns(read, len(session.game.upcoming)))
            else:
                session.move(session.game.read_move(read))
        except BadMove as error:
            emit_error(error, True, flags_of(args))
            continue
        return


def _read(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadMove("", f"no JSON: {error}", FORMS) from error


def _is_to_the_end(read: Mapping[str, Any]) -> bool:
    if len(read) > 1 or read[THE_POLICY] not in (THIS_TURN, TO_THE_END):
        hint = f'{{"{THE_POLICY}": "{THIS_TURN}"}} or {{"{THE_POLICY}": "{TO_THE_END}"}}'
        raise BadMove(THE_POLICY, "expected one of turn, rest, and nothing else", hint)
    return bool(read[THE_POLICY] == TO_THE_END)


def _turns(read: Mapping[str, Any], recorded: int) -> int:
    """How many recorded turns are to be replayed. Raises BadMove: there are none, or it is no
    number of turns."""
    turns = read[REPLAY]
    if not recorded:
        raise BadMove(REPLAY, "no recorded turn is left", NOT_LEFT)
    if turns == TO_THE_END and len(read) == 1:
        return recorded
    if len(read) > 1 or isinstance(turns, bool) or not isinstance(turns, int) or turns < 1:
        hint = f'{{"{REPLAY}": 1}} or {{"{REPLAY}": "{TO_THE_END}"}}'
        raise BadMove(REPLAY, "expected a number of turns, or rest, and nothing else", hint)
    return turns


NOT_LEFT = "the rollout has ended, went otherwise, or none is played: hud-tui play --rollout ID"


def lines_of_stdin() -> "asyncio.Queue[bytes | None]":
    """The lines of stdin that are not blank, as they come; None at its end. A thread reads them,
    since not every stdin can be waited for."""
    lines, loop = asyncio.Queue[bytes | None](), asyncio.get_running_loop()

    def put(line: bytes | None) -> None:
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(lines.put_nowait, line)

    def read() -> None:
        try:
            for line in sys.stdin.buffer:
                if line.strip():
                    put(line)
        except (AttributeError, OSError, ValueError):
            pass  # there is no stdin, or it was closed
        finally:
            put(None)

    Thread(target=read, name="stdin", daemon=True).start()
    return lines
