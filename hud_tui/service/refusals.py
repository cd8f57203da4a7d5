"""Refused: the service will not do this, and says why."""

from typing import Any


class Refused(Exception):
    """Answered as ``{"detail": …}`` with this status; nothing was changed."""

    def __init__(
        self, status: int, detail: Any, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(_sentence(detail))
        self.status = status
        self.detail = detail
        self.code = code
        """A machine's word for it, where the wire has one: ``context_length_exceeded``."""
        self.param = param or (_place(detail[0]) if isinstance(detail, list) and detail else None)
        """The field that is to blame, e.g. ``messages.0.role``; None where it is none."""


def not_found(kind: str, name: object) -> Refused:
    """404 for one thing of a kind."""
    return Refused(404, f"no such {kind}: {name}")


def bad_field(field: str, message: str, kind: str = "value_error") -> Refused:
    """422 in the shape of a validation error; `field` is a path such as ``inputs.3.reward``."""
    loc = ["body", *(int(part) if part.isdigit() else part for part in field.split("."))]
    return Refused(422, [{"type": kind, "loc": loc, "msg": message}])


def _sentence(detail: Any) -> str:
    """What a detail says, in words: validation errors have theirs, and the field's name."""
    if not isinstance(detail, list):
        return str(detail)
    said = (": ".join(filter(None, (_place(one), str(one.get("msg", ""))))) for one in detail)
    return "; ".join(said)


def _place(error: dict[str, Any]) -> str | None:
    """The field of a validation error, without the part of the request that has it."""
    return ".".join(str(part) for part in error.get("loc", ())[1:]) or None
