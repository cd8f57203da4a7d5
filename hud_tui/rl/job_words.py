"""HUD's words for how a job stands. One list: what has not ended goes on."""

SUCCEEDED = frozenset({"succeeded", "completed"})
"""A job that ended as it should."""
ENDED = SUCCEEDED | {"failed", "error", "cancelled", "interrupted"}
"""All words for a job that takes no further step by itself."""


def has_ended(status: str | None) -> bool:
    """Whether a job takes no further step by itself."""
    return status in ENDED


def is_active(status: str | None) -> bool:
    """Whether a job still goes on; a word that is not known is no end."""
    return status is not None and status not in ENDED
