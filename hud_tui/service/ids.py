"""Ids: 32 hex digits and canonical UUIDs name the same object; the store holds the latter."""

from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

from hud_tui.service.refusals import not_found


def new_id() -> str:
    """A fresh id, as a canonical UUID."""
    return str(uuid4())


def named_id(kind: str, name: str) -> str:
    """The id of something that ships with the service: the same in every data directory."""
    return str(uuid5(NAMESPACE_URL, f"hud-tui:{kind}:{name}"))


def rollout_id(job_id: str, *place: object) -> str:
    """The id of a managed run's rollout: the same when its place is sampled again."""
    return str(uuid5(UUID(job_id), " ".join(map(str, place))))


def canonical(text: str) -> str | None:
    """The canonical UUID of either spelling; None where it is neither."""
    try:
        return str(UUID(text)) if len(text) in (32, 36) else None
    except ValueError:
        return None


def wanted_id(kind: str, text: str) -> str:
    """The canonical id of a path's or body's id.

    Raises:
        Refused: 404, it is not an id at all.
    """
    found = canonical(text)
    if found is None:
        raise not_found(kind, text[:100])
    return found
