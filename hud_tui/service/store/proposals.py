"""Proposals: heads for protected models, which one person proposes and another approves.

Each move of the head ends those that are open (`access.overtake`). One that expires reads as ended
from that moment on; it is stored so, and those that ended long ago are dropped, when the next one
is made.
"""

import sqlite3

from hud_tui.service.http import Refused, canonical, new_id, now
from hud_tui.service.store import checkpoints
from hud_tui.service.store.access import protected_by
from hud_tui.service.store.db import Db, fetched, insert
from hud_tui.service.store.seals import intact
from hud_tui.wire_access import Proposal, ProposalCheck, Propose

MOST_OPEN = 50
"""Open proposals of a model."""
MOST_ENDED = 100
"""Ended proposals that are kept of a model; its history has every move that was approved."""
VALID_S = 30 * 86400.0
"""Seconds after which a proposal expires."""
_STATUS = """CASE WHEN proposal.status != 'open' THEN proposal.status
    WHEN proposal.at < :since OR checkpoint.state = 'expired' THEN 'expired'
    ELSE 'open' END"""
_PROPOSALS = f"""SELECT proposal.*, {intact("proposal")}, checkpoint.name AS checkpoint,
    {_STATUS} AS shown_status
    FROM proposal LEFT JOIN checkpoint ON checkpoint.id = proposal.checkpoint_id
    WHERE proposal.model_id = :model"""


def propose(db: Db, model_id: str, body: Propose) -> Proposal:
    """Store a proposal; an open one of the same person for the same checkpoint is that. Raises
    Refused, as `check`."""
    would = check(db, model_id, body.checkpoint_id)
    _settle(db, model_id)
    if would.proposal is not None:
        return would.proposal
    id_ = new_id()
    insert(
        db,
        "proposal",
        id=id_,
        model_id=model_id,
        checkpoint_id=would.checkpoint_id,
        previous=checkpoints.head_id(db, model_id),
        note=body.note,
        proposed_by=db.caller.name,
        at=now(),
        status="open",
    )
    return get(db, model_id, id_)


def check(db: Db, model_id: str, checkpoint_id: str) -> ProposalCheck:
    """What proposing a checkpoint comes to. Raises Refused, 404, no such checkpoint; 409, the model
    is not protected, that is its head, or too many are open; 410, the checkpoint has expired."""
    if protected_by(db, model_id) is None:
        raise Refused(409, "this model is not protected: set its head, nobody has to approve it")
    node = checkpoints.loadable(db, model_id, checkpoint_id)
    if node.id == checkpoints.head_id(db, model_id):
        raise Refused(409, f"{node.name} is the head already")
    waiting = [before for before in all_of(db, model_id) if before.status == "open"]
    own = (b for b in waiting if (b.by, b.checkpoint_id) == (db.caller.name, node.id))
    would = ProposalCheck(checkpoint_id=node.id, checkpoint=node.name, proposal=next(own, None))
    if would.proposal is None and len(waiting) >= MOST_OPEN:
        raise Refused(409, f"{MOST_OPEN} proposals are open: approve or withdraw some first")
    return would


def all_of(db: Db, model_id: str) -> list[Proposal]:
    """All proposals for a model's head, oldest first."""
    query = f"{_PROPOSALS} ORDER BY proposal.rowid"
    return [_proposal(row) for row in db.execute(query, _bound(model_id))]


def _bound(model_id: str, id_: str | None = None) -> dict[str, object]:
    return {"model": model_id, "since": now() - VALID_S, "id": id_}


def _settle(db: Db, model_id: str) -> None:
    """Store which proposals have ended by themselves, and drop those that ended long ago."""
    for row in db.execute(_PROPOSALS, _bound(model_id)).fetchall():
        if row["status"] != row["shown_status"]:
            query = "UPDATE proposal SET status = ?, decided_at = ? WHERE id = ?"
            db.execute(query, (row["shown_status"], now(), row["id"]))
    db.execute(
        "DELETE FROM proposal WHERE model_id = :model AND status != 'open' AND rowid NOT IN (SELECT"
        " rowid FROM proposal WHERE model_id = :model AND status != 'open'"
        " ORDER BY rowid DESC LIMIT :most)",
        {"model": model_id, "most": MOST_ENDED},
    )


def get(db: Db, model_id: str, id_: str) -> Proposal:
    """One of them. Raises Refused, 404."""
    return _proposal(_find(db, model_id, id_))


def _find(db: Db, model_id: str, id_: str) -> sqlite3.Row:
    query = f"{_PROPOSALS} AND proposal.id = :id"
    return fetched(db, "proposal", id_[:100], query, _bound(model_id, canonical(id_)))


def _proposal(row: sqlite3.Row) -> Proposal:
    columns = {**dict(row), "status": row["shown_status"], "by": row["proposed_by"]}
    return Proposal(**{name: columns[name] for name in Proposal.model_fields if name in columns})


def withdraw(db: Db, model_id: str, id_: str) -> Proposal:
    """End a proposal, one's own or another's. Raises Refused, 404; 409, it has ended."""
    asked = get(db, model_id, id_)
    _refuse_ended(asked.status, asked.decided_by)
    _end(db, asked.id, "withdrawn")
    return get(db, model_id, id_)


def approve(db: Db, model_id: str, id_: str) -> None:
    """Store that the caller agrees, in the transaction that has moved the head, which has overtaken
    all other proposals. Raises Refused, 403, it is the caller's own; 404; 409, it has ended."""
    row = _find(db, model_id, id_)
    _refuse_ended(row["shown_status"], row["decided_by"])
    if row["proposed_by"] == db.caller.name:
        raise Refused(403, "another person has to approve what you proposed")
    _end(db, row["id"], "approved")


def _refuse_ended(status: str, decided_by: str | None) -> None:
    """Raises Refused, 409, unless it is open."""
    if status == "expired":
        raise Refused(409, "this proposal has expired: propose the head again")
    if status != "open":
        by = f" by {decided_by}" if decided_by else ": the head has moved since"
        raise Refused(409, f"this proposal was {status}{by}")


def _end(db: Db, id_: str, status: str) -> None:
    query = "UPDATE proposal SET status = ?, decided_by = ?, decided_at = ? WHERE id = ?"
    db.execute(query, (status, db.caller.name, now(), id_))
