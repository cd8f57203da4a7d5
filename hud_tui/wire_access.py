"""The wire: access keys and their roles, protected models, proposals for their heads, and the
service's log.

Embedded only.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from hud_tui.wire import Request, Response, no_items


class Role(StrEnum):
    """What a key may do; each role may also do what the ones before it may."""

    READ = "read"
    """See everything, and ask the served model."""
    TRAIN = "train"
    """Fork, train and evaluate, and end what it began."""
    STEER = "steer"
    """Move heads, and end what others began."""
    ADMIN = "admin"
    """Keys, and which models are protected."""

    def may(self, needed: "Role") -> bool:
        """Whether it includes another role."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


ADMIN_KEY = "admin"
"""Name of the key that a data directory is made with."""


def why_not(name: str, role: Role, needed: Role, what: str) -> str:
    """Why a key may not do something, e.g. ``move a head``."""
    return f"key {name} may not {what}: its role is {role}, and that needs {needed}"


KeyName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
"""Small letters, digits, dots, dashes and underscores; at most 40."""
YEAR_S = 366 * 86400.0


class KeyLimits(Response):
    """Bounds of one key; None: none."""

    max_work: int | None = None
    """Runs and evaluations at once."""
    max_disk: int | None = None
    """Bytes of what is stored for it."""
    max_calls: int | None = None
    """Requests per second."""


class NewKey(Request):
    """POST /v1/keys."""

    name: KeyName
    role: Role
    expires_s: Annotated[float | None, Field(gt=0, le=10 * YEAR_S)] = None
    """Seconds from now; None: never."""
    max_work: Annotated[int | None, Field(ge=1, le=1000)] = None
    max_disk: Annotated[int | None, Field(ge=1, le=2**60)] = None
    max_calls: Annotated[int | None, Field(ge=1, le=1000)] = None


class AccessKey(KeyLimits):
    """A row of GET /v1/keys. The key itself is not stored, only its hash."""

    name: str
    role: Role
    created_at: float
    by: str = ""
    """Name of the key that made it."""
    expires_at: float | None = None
    revoked_at: float | None = None
    work: int = 0
    """Its runs and evaluations that are queued or running."""
    disk: int = 0
    """Bytes of what is stored for it: checkpoints, rollouts, tasks and all else that it sent."""

    def state(self, now: float) -> Literal["valid", "revoked", "expired"]:
        """Whether it is accepted at a time, Unix seconds."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "valid"


class KeyMade(AccessKey):
    """The reply to POST /v1/keys."""

    key: str
    """What clients send; it is shown this once."""


class Protection(Response):
    """The reply to PUT and DELETE /v2/models/{model_id}/protection."""

    model_id: str
    protected_by: str | None = None
    """Name of the key that protected it; None: it is not protected."""


class Propose(Request):
    """POST /v2/models/{model_id}/head/proposals."""

    checkpoint_id: str
    note: Annotated[str, Field(max_length=300)] = ""


class Proposal(Response):
    """A head for a protected model, which another person has to approve."""

    id: str
    model_id: str
    checkpoint_id: str
    checkpoint: str
    """Its name."""
    previous: str | None = None
    """Id of the head when it was proposed; None for the weights that the model started from."""
    note: str = ""
    by: str
    """Name of the key that proposed it."""
    at: float
    status: Literal["open", "approved", "withdrawn", "overtaken", "expired"] = "open"
    """Overtaken: the head has moved otherwise since. Expired: it is too old, or its checkpoint has
    expired."""
    decided_by: str | None = None
    """None where nobody did."""
    decided_at: float | None = None


class ProposalCheck(Response):
    """GET /v2/models/{model_id}/head/proposals/check?checkpoint=ID: what proposing it comes to.
    Where that is refused, so is this."""

    checkpoint_id: str
    checkpoint: str
    """Its name."""
    proposal: Proposal | None = None
    """The caller's open proposal of it, which proposing it again would be."""


class Proposals(Protection):
    """GET /v2/models/{model_id}/head/proposals."""

    proposals: list[Proposal] = Field(default_factory=no_items)
    """Oldest first."""

    @property
    def open(self) -> list[Proposal]:
        """Those that nobody has decided."""
        return [asked for asked in self.proposals if asked.status == "open"]


class LogLine(Response):
    """A line of the service's log: one request that changed something, or was refused."""

    at: float
    key: str
    """Name of the key; empty if it sent none that is known."""
    role: str = ""
    address: str = ""
    program: str = ""
    """What the client says that it is."""
    what: str
    """E.g. ``move a head``."""
    method: str
    path: str
    status: int
    """Of the answer; 499: the client had gone."""
    about: dict[str, str] = Field(default_factory=dict)
    """Model, checkpoint, name and the like."""
    count: int = 1
    """Requests that this line stands for: of a flood of them a few have lines."""
    repeated: bool = False
    """Whether it was made before, perhaps by another key, and was answered again: nothing was
    done."""


class LogPage(Response):
    """GET /v1/log: newest first."""

    lines: list[LogLine]
    incomplete: bool = False
    """Whether older lines were rotated away, or could not be read."""
    cursor: str = ""
    """Where the page ends, for the one after it; empty if the service does not say."""
