"""The service's clock, in the two forms the wire wants."""

from datetime import UTC, datetime


def now() -> float:
    """Unix seconds."""
    return datetime.now(UTC).timestamp()


def iso(at: float) -> str:
    """ISO 8601 in UTC with microseconds: sorts as text in the order of time."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")
