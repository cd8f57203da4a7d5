"""Replies to writes with an Idempotency-Key, so that none is carried out twice."""

from dataclasses import dataclass
from hashlib import blake2b

from hud_tui.service.http import Refused
from hud_tui.service.store.db import Db, drop, insert
from hud_tui.service.store.seals import intact

MOST_REPLIES = 1_000
"""Keys kept per scope; the oldest is dropped first."""
GIVEN_UP = "given up"
"""Call name of a key that was given up before its call arrived."""


@dataclass(frozen=True)
class Asked:
    """A write with a key."""

    key: str
    call: str
    """E.g. ``optim-step``."""
    digest: str
    """Digest of its body."""


@dataclass(frozen=True)
class StoredReply:
    """A completed write, and its answer."""

    asked: Asked
    body: bytes
    status: int = 200
    dropped: bool = False
    """Whether its gradients were dropped before a step was taken."""

    def refuse_other(self, asked: Asked) -> None:
        """Raises Refused if this is no answer to a request: 409, the key was given up, or its
        gradients were dropped; 422, the key belongs to another request."""
        if self.asked.call == GIVEN_UP:
            raise Refused(409, "this call was abandoned before it arrived: use a new key")
        if self.asked != asked:
            raise Refused(422, "this Idempotency-Key was sent with another request: use a new one")
        if self.dropped:
            detail = "this pass was done, and its gradients have been dropped since"
            raise Refused(409, f"{detail}: repeat the whole step with new keys")


def digest(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()


def keep(db: Db, scope: str, stored: StoredReply) -> None:
    """Store a reply, in the transaction of its write. `scope`: the id of a model, a job or a
    trace."""
    insert(
        db,
        "reply",
        scope=scope,
        key=stored.asked.key,
        call=stored.asked.call,
        digest=stored.asked.digest,
        status=stored.status,
        body=stored.body,
        name=db.caller.name or None,
    )
    where = """scope = :scope AND id <= (SELECT id FROM reply
        WHERE scope = :scope ORDER BY id DESC LIMIT 1 OFFSET :most)"""
    drop(db, "reply", where, {"scope": scope, "most": MOST_REPLIES})


def find(db: Db, scope: str, key: str) -> StoredReply | None:
    """The stored reply to a key; None if the key is unused."""
    query = f"""SELECT key, call, digest, body, status, {intact("reply")} FROM reply
        WHERE scope = ? AND key = ?"""
    row = db.execute(query, (scope, key)).fetchone()
    return None if row is None else StoredReply(Asked(*row[:3]), row["body"], row["status"])
