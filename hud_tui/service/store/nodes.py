"""Nodes: single checkpoints, as training and sampling need them."""

from dataclasses import dataclass

from hud_tui.service.refusals import Refused, not_found
from hud_tui.service.store import Db


@dataclass(frozen=True)
class Node:
    """A checkpoint as training and sampling need it."""

    id: str
    step: int
    name: str
    sampler_path: str
    """Its name for samplers; does not change."""
    state_path: str
    """Where its weights are."""
    state: str = "full"
    """What is kept of it: full, weights or expired; damaged, where its file is not whole."""

    def refuse_expired(self) -> None:
        """Raises Refused, 410, where its weights are gone."""
        if self.state == "expired":
            raise Refused(
                410,
                f"{self.name} has expired: its weights are kept no longer, be it for the disk"
                " limit here or by the server that had them. Choose one that is kept; pin those"
                " that must stay",
            )


def find(db: Db, model_id: str, ref: str) -> Node:
    """One of the model's checkpoints by id, name or sampler path.

    Raises:
        Refused: 404.
    """
    # By id first: a long tree is then not looked through.
    for which in ("id = :ref", ":ref IN (name, sampler_path)"):
        query = f"{_SELECT} WHERE model_id = :model AND {which}"
        row = db.execute(query, {"model": model_id, "ref": ref}).fetchone()
        if row is not None:
            return Node(*row)
    raise not_found("checkpoint", ref[:200])


STATE = "iif(damage IS NOT NULL AND state != 'expired', 'damaged', state)"
"""What a checkpoint's row says of its files."""
_SELECT = f"SELECT id, step, name, sampler_path, state_path, {STATE} FROM checkpoint"
