"""What reinforcement learning does to ``tiny/agent-1M`` on 2048, without a service.

Run: python -m tests.live.games_2048 SEED [--steps 25] [--learning-rate 1e-4]

Plays the games of HUD's train_2048 (same prompt, same answers of the tool; 40 moves, target 256,
groups of 16, importance_sampling, one group a step), and prints the mean reward and best tile of
games of their own seed before and after, sampled and greedy, beside a random player's; each with
its standard error. A step takes about 13 s of processor time.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log2, sqrt
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any

from hud_tui.rl.groups import group_advantages
from hud_tui.service.engines.base import Adam, Datum, SampleRequest
from hud_tui.service.engines.tiny.engine import pairs_path, weights_path
from hud_tui.service.engines.tiny.tokenizer import BpeTokenizer
from tests.learner import Learner
from tests.pretrain import lessons
from tests.pretrain.talks import schema

BASE, TARGET, MOVES, GROUP, EXAMINED = "tiny/agent-1M", 256, 40, 16, 64
AT_ONCE = 32
"""Games played at a time: for about as many the learner keeps keys and values between turns."""
TOKENIZER = BpeTokenizer.read(pairs_path(BASE))
TOOL: dict[str, Any] = schema("move", direction="string")


@dataclass
class Game:
    """A game, and the policy's turns in it."""

    random: Random
    board: lessons.Board = field(init=False)
    score: int = 0
    prompt: list[int] = field(init=False)
    turns: list[Datum] = field(default_factory=list)
    over: bool = False

    def __post_init__(self) -> None:
        empty = [[0] * 4 for _ in range(4)]
        self.board = lessons.spawned(self.random, lessons.spawned(self.random, empty))
        shown = lessons.shown(self.board, 0)
        opening = lessons.OPENING_2048.format(target=TARGET, board=shown)
        self.prompt = TOKENIZER.render([{"role": "user", "content": opening}], [TOOL])

    def best(self) -> int:
        return max(map(max, self.board))

    def reward(self) -> float:
        """The public environment's: 0 for a 2, 1 for the target."""
        return min(1.0, (log2(self.best()) - 1) / (log2(TARGET) - 1))

    def hears(self, output: list[int], logprobs: list[float]) -> None:
        """A turn of the policy. An answer without a call that can be read ends the game."""
        self.turns.append(Datum(self.prompt, output, logprobs))
        way = called(output)
        if way is None:
            self.over = True
            return
        heard = TOKENIZER.render([{"role": "tool", "content": self.move(way)}])
        self.prompt = [*self.prompt, *output, *heard]

    def move(self, way: str) -> str:
        """What the tool answers."""
        if way not in lessons.DIRECTIONS:
            shown = lessons.shown(self.board, self.score)
            return f"invalid direction {way!r}; use one of up/down/left/right\n{shown}"
        after, note = lessons.slid(self.board, way), ""
        if after == self.board:
            note = " (no tiles moved \u2014 try another direction)"
        else:
            self.score += lessons._gained(self.board, after)
            self.board = lessons.spawned(self.random, after)
        over = "" if lessons.legal(self.board) else "\nGAME OVER"
        return f"{lessons.shown(self.board, self.score)}{note}{over}"


def called(output: Sequence[int]) -> str | None:
    """The direction that an answer calls for, if it can be read."""
    try:
        return str(json.loads(TOKENIZER.calls(output)[1][0].arguments)["direction"]).strip().lower()
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def played(learner: Learner, count: int, seed: str, temperature: float = 1.0) -> list[Game]:
    games = [Game(Random(f"{seed} {n}")) for n in range(count)]
    for start in range(0, count, AT_ONCE):
        _play(
            learner,
            games[start : start + AT_ONCE],
            f"{seed} {start}" if start else seed,
            temperature,
        )
    return games


def _play(learner: Learner, games: Sequence[Game], seed: str, temperature: float) -> None:
    for turn in range(MOVES):
        live = [game for game in games if not game.over]
        asked = [
            SampleRequest(game.prompt, 64, temperature, seed=(turn, n, *seed.encode()))
            for n, game in enumerate(live)
        ]
        for game, one in zip(live, learner.sample(asked), strict=True):
            game.hears(one.tokens, one.logprobs)


def learnt(learner: Learner, games: Sequence[Game], rate: float, folder: Path) -> None:
    """One step on one group."""
    advantages = group_advantages([game.reward() for game in games])
    datums = [
        Datum(turn.prompt, turn.output, turn.logprobs, advantage)
        for game, advantage in zip(games, advantages, strict=True)
        for turn in game.turns
        if advantage
    ]
    if datums:
        learner.forward_backward(datums, "importance_sampling", {})
        Path(learner.optim_step(Adam(rate), folder).state_path).unlink()


def at_random(count: int) -> list[Game]:
    """What a player reaches who names any direction."""
    games = [Game(Random(n)) for n in range(count)]
    for game in games:
        for _ in range(MOVES):
            game.move(game.random.choice(lessons.DIRECTIONS))
    return games


def told(name: str, games: Sequence[Game]) -> None:
    reward, best = (_mean(list(map(of, games))) for of in (Game.reward, Game.best))
    print(f"{name}: mean reward {reward}, mean best tile {best}, n = {len(games)}", flush=True)


def _mean(values: Sequence[float]) -> str:
    """With its standard error."""
    error = stdev(values) / sqrt(len(values))
    return f"{fmean(values):.3g} ± {error:.2g}"


def examined(name: str, learner: Learner, seed: int) -> None:
    told(f"{name}, sampled", played(learner, EXAMINED, f"examined {seed}"))
    told(f"{name}, greedy", played(learner, EXAMINED, f"greedy {seed}", temperature=0.0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    args = parser.parse_args()
    learner = Learner(weights_path(BASE))
    told("random player", at_random(500))
    examined("before", learner, args.seed)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(args.steps):
            games = played(learner, GROUP, f"{args.seed} step {step}")
            told(f"step {step + 1}", games)
            learnt(learner, games, args.learning_rate, Path(folder))
    examined("after", learner, args.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
