"""Move: somebody set the head from one checkpoint to another."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Move:
    """The head was set from one checkpoint to another."""

    before: str | None
    """Id; None where the base weights were served."""
    after: str
    ours: bool = True
    """Whether it was set here, and not by somebody else."""
    at: float = 0.0
    """Unix seconds; 0 where unknown."""
