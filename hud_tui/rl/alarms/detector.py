"""Detector: reads rows, judges each, and keeps what its gate let through."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import isfinite
from typing import ClassVar, Generic, TypeVar

from hud_tui.rl.alarms.alarm import Alarm, Evidence, Level, Skipped
from hud_tui.rl.alarms.context import Context
from hud_tui.rl.alarms.gate import Episode, Gate
from hud_tui.rl.alarms.rows import Role, Row
from hud_tui.rl.alarms.thresholds import Limits
from hud_tui.rl.alarms.tuning import Tuning
from hud_tui.rl.metrics import of_weights

T = TypeVar("T", bound=Tuning)
BELOW_CRITICAL = 2.8
"""The severity of what is bad enough to warn of and is not critical, whatever its size."""
BELOW_WARN = 1.8
"""The severity of what is not to be warned of, in a detector without a level of info."""


class Detector(ABC, Generic[T]):
    """One kind of alarm. It is pure: what it says follows from its thresholds and its rows."""

    NAME: ClassVar[str]
    TITLE: ClassVar[str]
    NEEDS: ClassVar[str]
    """The metric without which it says nothing, under HUD's name."""
    READS: ClassVar[Role]
    """The metric that it judges by. Where that is of rollouts, what it shows was done by the
    update before (`hud_tui.rl.metrics.of_weights`)."""
    MEANING: ClassVar[str]
    ADVICE: ClassVar[str]

    def __init__(self, tuning: T) -> None:
        self.tuning = tuning
        self.gate = Gate(tuning, self._levels())

    def _levels(self) -> tuple[Level, ...]:
        has_info = isinstance(self.tuning, Limits) and self.tuning.info is not None
        return (*([Level.INFO] if has_info else []), Level.WARN, Level.CRITICAL)

    @abstractmethod
    def judge(self, row: Row, context: Context) -> float | None:
        """The row's severity (see `hud_tui.rl.alarms.gate`); None where it tells nothing."""

    @abstractmethod
    def evidence(self, context: Context) -> tuple[Evidence, ...]:
        """The numbers that the last row was judged by."""

    def onset(self, episode: Episode) -> int:
        """The row that showed it first; by default where its level was first reached."""
        return episode.onset

    def meaning(self) -> str:
        return self.MEANING

    def advice(self) -> str:
        return self.ADVICE

    def read(self, row: Row, context: Context) -> None:
        """Take in the next row."""
        severity = self.judge(row, context)
        if severity is not None and self.gate.push(row.place, severity):
            episode = self.gate.episodes[-1]
            episode.evidence = self._told(context)
            episode.onset = min(episode.onset, self.onset(episode))

    def alarms(self, context: Context, row_at: Callable[[int], Row]) -> list[Alarm]:
        """Its episodes as alarms.

        Args:
            context: As of the last row.
            row_at: The row at a place, for step numbers and checkpoints.
        """
        return [self._alarm(episode, context, row_at) for episode in self.gate.episodes]

    def skipped(self) -> Skipped | None:
        """Why it has said nothing, where it could not."""
        return None if self.gate.seen else Skipped(self.NAME, self.NEEDS)

    def _alarm(self, episode: Episode, context: Context, row_at: Callable[[int], Row]) -> Alarm:
        place = max(0, episode.onset - of_weights(self.READS.key))
        onset, shown = row_at(place), row_at(episode.onset)
        return Alarm(
            name=self.NAME,
            title=self.TITLE,
            level=episode.level,
            active=episode.ended is None,
            row=place,
            onset=onset.step,
            checkpoint_id=onset.checkpoint_id,
            before_id=row_at(place - 1).checkpoint_id if place else None,
            shown=shown.step,
            shown_id=shown.checkpoint_id,
            raised=row_at(episode.raised).step,
            ended=None if episode.ended is None else row_at(episode.ended).step,
            evidence=(episode.ended is None and self._told(context)) or episode.evidence,
            meaning=self.meaning(),
            advice=self.advice(),
        )

    def _told(self, context: Context) -> tuple[Evidence, ...]:
        return tuple(e for e in self.evidence(context) if isfinite(e.value))
