"""Caller: by whose key a request came, and so who made what it makes.

A context variable: tasks that a request begins, a managed run above all, have it too, and
`Store.write` gives it to the transaction.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf

from hud_tui.service.engines.base import CLAIMANT
from hud_tui.wire_access import ADMIN_KEY, KeyLimits, Role


@dataclass(frozen=True)
class Caller:
    """Somebody with a key."""

    name: str
    role: Role
    expires_at: float = inf
    """Unix seconds."""
    limits: KeyLimits = field(default_factory=KeyLimits)


ADMIN = Caller(ADMIN_KEY, Role.ADMIN)
SERVICE = Caller("", Role.ADMIN)
"""The service itself, e.g. when it starts."""
CALLER: ContextVar[Caller] = ContextVar("caller", default=SERVICE)


@contextmanager
def called_by(caller: Caller) -> Iterator[None]:
    """Around a request: what it makes is the caller's, and the engine gives them their turns."""
    token, claim = CALLER.set(caller), CLAIMANT.set(caller.name)
    try:
        yield
    finally:
        CLAIMANT.reset(claim)
        CALLER.reset(token)
