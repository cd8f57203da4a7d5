"""Journal: where one model's head was set in this session, so that it can be undone.

A training step moves the head too, but is no entry: undoing it is rolling back.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from time import monotonic
from typing import TYPE_CHECKING

from hud_tui.rl.moves import Move

if TYPE_CHECKING:
    from hud_tui.events import HeadMoved

OURS_S = 60.0
"""Seconds in which the news of our own set_head is taken for ours."""


class Act(StrEnum):
    """What the user pressed; each leaves its own trace in the journal."""

    SET = "set"
    UNDO = "undo"
    REDO = "redo"


class Journal:
    """The moves of one model's head, and those that were undone."""

    def __init__(
        self,
        clock: Callable[[], float] = monotonic,
        tell: Callable[[Move], None] = lambda move: None,
    ) -> None:
        """
        Args:
            clock: Seconds.
            tell: Is told of every move of the head, undone and redone ones too.
        """
        self.done: list[Move] = []
        self.undone: list[Move] = []
        self._clock, self._tell = clock, tell
        self._ours: dict[str, tuple[float, bool]] = {}
        """Until when, and whether it is a new move, by the checkpoint it goes to."""
        self._left: dict[str, str | None] = {}
        """What our move left, where the service told so before we took the move down."""

    def expect(self, checkpoint_id: str, new: bool = True) -> None:
        """We are about to set the head to this: the news of it is no news.

        `new` says that it is neither an undoing nor a redoing.
        """
        self._ours[checkpoint_id] = (self._clock() + OURS_S, new)
        self._left.pop(checkpoint_id, None)

    def heard(self, event: HeadMoved) -> Move | None:
        """Take down a move made by somebody else; None for our own and for a step's."""
        target = event.checkpoint_id
        if event.cause != "set" or target is None or target == event.previous:
            return None
        until, new = self._ours.pop(target, (0.0, False))
        if until > self._clock():
            if new and event.at > 0:  # sent by the service, not made of two readings
                self._correct(target, event.previous)
            return None
        move = Move(event.previous, target, ours=False, at=event.at)
        self._push(move)
        return move

    def moved(self, before: str | None, after: str, at: float = 0.0) -> None:
        """We set the head. What we left is what we read last, or what the service says."""
        self._push(Move(self._left.pop(after, before), after, at=at))

    def _correct(self, target: str, left: str | None) -> None:
        """Training may take a step between our last reading and the move."""
        if self.done and self.done[-1].ours and self.done[-1].after == target:
            self.done[-1] = Move(left, target, at=self.done[-1].at)
        else:
            self._left[target] = left

    def undid(self, at: float = 0.0) -> None:
        """The last move was undone."""
        move = self.done.pop()
        self.undone.append(move)
        if move.before is not None:
            self._tell(Move(move.after, move.before, at=at))

    def redid(self, at: float = 0.0) -> None:
        """The last undone move was done again."""
        move = self.undone.pop()
        self.done.append(move)
        self._tell(Move(move.before, move.after, at=at))

    def _push(self, move: Move) -> None:
        self.done.append(move)
        self.undone.clear()
        self._tell(move)
