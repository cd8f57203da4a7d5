"""Refused: the service will not do this, and says why."""

from typing import Any


class Refused(Exception):
    """Answered as ``{"detail": …}`` with this status; nothing was changed."""

    def __init__(self, status: int, detail: Any, code: str | None = None) -> None:
        super().__init__(str(detail))
        self.status = status
        self.detail = detail
        self.code = code
        """A machine's word for it, where the wire has one: ``context_length_exceeded``."""


def not_found(kind: str, name: object) -> Refused:
    """404 for one thing of a kind."""
    return Refused(404, f"no such {kind}: {name}")


def bad_field(field: str, message: str, kind: str = "value_error") -> Refused:
    """422 in the shape of a validation error; `field` is a path such as ``inputs.3.reward``."""
    loc = ["body", *(int(part) if part.isdigit() else part for part in field.split("."))]
    return Refused(422, [{"type": kind, "loc": loc, "msg": message}])
