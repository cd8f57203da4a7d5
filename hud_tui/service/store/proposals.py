"""Proposals: heads for protected models, which one person proposes and another approves."""

import sqlite3
from collections.abc import Mapping
from typing import Any

from hud_tui.service.http import Refused, canonical, new_id, not_found, now
from hud_tui.service.store import checkpoints
from hud_tui.service.store.access import protected_by
from hud_tui.service.store.db import Db, insert
from hud_tui.service.store.seals import intact
from hud_tui.wire_access import Proposal, Propose

_PROPOSALS = f"""SELECT proposal.*, {intact("proposal")}, checkpoint.name AS checkpoint
    FROM proposal LEFT JOIN checkpoint ON checkpoint.id = proposal.checkpoint_id"""


def propose(db: Db, model_id: str, body: Propose) -> Proposal:
    """Store a proposal; an open one of the same person for the same checkpoint is that, unless the
    head has moved since. Raises Refused, 404, no such checkpoint; 409, the model is not protected,
    or that is its head; 410, the checkpoint has expired."""
    if protected_by(db, model_id) is None:
        raise Refused(409, "this model is not protected: set its head, nobody has to approve it")
    ref = canonical(body.checkpoint_id) or body.checkpoint_id
    node = checkpoints.loadable(db, model_id, ref)
    head = checkpoints.head_id(db, model_id)
    if node.id == head:
        raise Refused(409, f"{node.name} is the head already")
    for before in all_of(db, model_id):
        is_same = (before.by, before.checkpoint_id) == (db.caller.name, node.id)
        if is_same and before.status == "open":
            if before.previous == head:
                return before
            _end(db, before, "overtaken")
    id_ = new_id()
    columns = {"checkpoint_id": node.id, "previous": head, "note": body.note, "at": now()}
    insert(
        db,
        "proposal",
        id=id_,
        model_id=model_id,
        proposed_by=db.caller.name,
        status="open",
        **columns,
    )
    return get(db, model_id, id_)


def all_of(db: Db, model_id: str) -> list[Proposal]:
    """All proposals for a model's head, oldest first."""
    query = f"{_PROPOSALS} WHERE proposal.model_id = ? ORDER BY proposal.rowid"
    return [_proposal(row) for row in db.execute(query, (model_id,))]


def get(db: Db, model_id: str, id_: str) -> Proposal:
    """One of them. Raises Refused, 404."""
    query = f"{_PROPOSALS} WHERE proposal.model_id = ? AND proposal.id = ?"
    row = db.execute(query, (model_id, canonical(id_))).fetchone()
    if row is None:
        raise not_found("proposal", id_[:100])
    return _proposal(row)


def _proposal(row: sqlite3.Row) -> Proposal:
    columns: Mapping[str, Any] = dict(row)
    return Proposal(
        **{name: columns[name] for name in Proposal.model_fields if name in columns},
        by=columns["proposed_by"],
    )


def withdraw(db: Db, model_id: str, id_: str) -> Proposal:
    """End a proposal, one's own or another's. Raises Refused, 404; 409, it has ended."""
    _end(db, _open(db, model_id, id_), "withdrawn")
    return get(db, model_id, id_)


def approve(db: Db, model_id: str, id_: str) -> None:
    """Store that the caller agrees, in the transaction that moves the head, which overtakes all
    other proposals. Raises Refused, 403, it is the caller's own; 404; 409, it has ended."""
    asked = _open(db, model_id, id_)
    if asked.by == db.caller.name:
        raise Refused(403, "another person has to approve what you proposed")
    _end(db, asked, "approved")
    for other in all_of(db, model_id):
        if other.status == "open":
            _end(db, other, "overtaken")


def _open(db: Db, model_id: str, id_: str) -> Proposal:
    asked = get(db, model_id, id_)
    if asked.status != "open":
        raise Refused(409, f"this proposal was {asked.status} by {asked.decided_by}")
    return asked


def _end(db: Db, asked: Proposal, status: str) -> None:
    query = "UPDATE proposal SET status = ?, decided_by = ?, decided_at = ? WHERE id = ?"
    db.execute(query, (status, db.caller.name, now(), asked.id))
