"""The moves of a model's head, from whatever source, and what undo and redo do next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from hud_tui.events import Act, Actor, HeadMoved
from hud_tui.rl.text import moment, one_line

SAME_S = 60.0
"""Seconds by which two sources' times of one move may differ: the command log has the time of
sending, a poll that of its read."""
PROGRAMS = {"headless": "command line", "python": "Python", "driver": "training loop"}
"""Words for the programs that this package's clients name."""


@dataclass(frozen=True)
class History:
    """The moves of a head that somebody made; training steps move it too, and are in the tree."""

    moves: tuple[HeadMoved, ...] = ()
    """Oldest first."""
    since: float | None = None
    """Unix seconds since when none is missing; 0: from the beginning, None: some may be."""

    def with_moves(self, moves: Iterable[HeadMoved]) -> History:
        return History(merged([*self.moves, *moves]), self.since)

    @property
    def to_undo(self) -> HeadMoved | None:
        """The last move that is not undone."""
        done, _ = self._stacks
        return done[-1] if done else None

    @property
    def to_redo(self) -> HeadMoved | None:
        """The move that was undone last, unless the head was set anew since."""
        _, undone = self._stacks
        return undone[-1] if undone else None

    @cached_property
    def _stacks(self) -> tuple[list[HeadMoved], list[HeadMoved]]:
        """Moves that are done, and those that are undone, each with the next to take last."""
        done: list[HeadMoved] = []
        undone: list[HeadMoved] = []
        for move in self.moves:
            to = move.checkpoint_id
            if move.act is Act.UNDO and done and done[-1].previous == to:
                undone.append(done.pop())
            elif move.act is Act.REDO and undone and undone[-1].checkpoint_id == to:
                done.append(undone.pop())
            else:
                done.append(move)
                undone.clear()
        return done, undone

    @property
    def completeness(self) -> str:
        """Since when no move is missing, as text."""
        if self.since is None:
            return "only moves that this machine sent or saw"
        return f"complete since {moment(self.since)}" if self.since else "complete"


def merged(moves: Iterable[HeadMoved]) -> tuple[HeadMoved, ...]:
    """Moves from several sources, oldest first, each once.

    Two that lead to the same checkpoint, with none between them, are one if their times differ by
    at most SAME_S and one of them says not who made it.
    """
    result: list[HeadMoved] = []
    for move in sorted(moves, key=lambda move: move.at):
        if result and _is_same(result[-1], move):
            result[-1] = _joined(result[-1], move)
        else:
            result.append(move)
    return tuple(result)


def attributed(moves: Sequence[HeadMoved], log: Iterable[HeadMoved]) -> tuple[HeadMoved, ...]:
    """The moves of a service, which keeps all, with who made those that it does not know of."""
    keys = {(move.at, move.checkpoint_id) for move in moves}
    return tuple(m for m in merged([*moves, *log]) if (m.at, m.checkpoint_id) in keys)


def _is_same(move: HeadMoved, other: HeadMoved) -> bool:
    if move.checkpoint_id != other.checkpoint_id:
        return False
    apart = abs(move.at - other.at)
    if move.by is other.by is None:
        return apart <= SAME_S and move.previous == other.previous
    return not apart or (apart <= SAME_S and None in (move.by, other.by))


def _joined(move: HeadMoved, other: HeadMoved) -> HeadMoved:
    """One move from two: when and where from is as its witness says, the rest as its author."""
    witness, author = (move, other) if move.by is None else (other, move)
    return witness.model_copy(update={"act": author.act, "by": author.by})


def who(by: Actor | None) -> str:
    """Who made a move, e.g. ``ana: command line on laptop``."""
    if by is None:
        return "unknown"
    program = PROGRAMS.get(by.program) or one_line(by.program, 40) or "unknown program"
    where = f"{program} on {one_line(by.host, 40)}" if by.host else program
    whose = f"{one_line(by.key, 40)}: {where}" if by.key else where
    return f"{whose}, proposed by {one_line(by.proposed_by, 40)}" if by.proposed_by else whose
