"""How a managed run can end, and what is written of it."""

from dataclasses import dataclass

from hud_tui.service.disk import refusal
from hud_tui.service.engines.base import EngineError
from hud_tui.service.refusals import Refused
from hud_tui.wire import JobError

INTERRUPTED = JobError(
    code="interrupted",
    message="the service stopped during the run: resume it to go on from the head",
)


@dataclass(frozen=True)
class End:
    """A run's last status."""

    status: str
    error: JobError | None = None
    """Why it ended badly."""
    reason: str | None = None
    """Why it ended well before its last step."""


class Stopped(Exception):
    """The run was asked to end."""


class Solved(Exception):
    """Nothing is left to learn from the tasks."""


class NoSpread(Exception):
    """Too many batches in a row had nothing to train on."""


def stopped(ends_as: str) -> End:
    """The end of a run that was asked to stop, with the status that it was to have."""
    return End(ends_as, INTERRUPTED if ends_as == "interrupted" else None)


def failed(error: Exception) -> End:
    """The end of a run that could not go on."""
    full = refusal(error)
    if full is not None:
        return End("failed", JobError(code="disk", message=f"{full.detail} (resume the run)"))
    match error:
        case NoSpread():
            code = "no_spread"
        case EngineError():
            code = "engine"
        case Refused():
            code = "refused"
        case _:
            return End("failed", JobError(code="internal", message=_bug(error)))
    return End("failed", JobError(code=code, message=str(error)))


def _bug(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
