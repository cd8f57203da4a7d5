"""Access: who calls, how much of them at once, and the keys that are made and revoked."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from hmac import compare_digest
from math import inf
from time import monotonic

from hud_tui.processes import boot_s
from hud_tui.service.caller import ADMIN, Caller
from hud_tui.service.http import Refused, now
from hud_tui.service.store import access
from hud_tui.service.store.db import Store
from hud_tui.wire_access import AccessKey, KeyMade, NewKey

AT_ONCE = 64
"""Requests of one key at once; the admin's key has no bounds."""
MOST_CALLS = 200
"""Requests per second of a key without a bound of its own. As many may come at once."""
READS = 1
"""Reads of one key that are carried out at once; its others wait in order. An answer with all
rollouts of a long run takes a tenth of a second, in which nobody else is answered: of 40 at once
each of the many turns of another's step would wait for all."""
PREFIX = "hud-tui-"
"""What the keys begin with that are made here, so that scanners of secrets know them."""


class Unknown(Exception):
    """No such key is accepted; the message says why."""


class Access:
    """The keys of a service in memory, by their digests: each request looks one up."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._callers: dict[str, Caller] = {}
        self._ends: dict[str, float] = {}
        """When each key ends by `boot_s`, by its name: a wall clock that is set back gives it no
        more time."""
        self._calls: Counter[str] = Counter()
        """Requests under way, by the name of their key."""
        self._reading: dict[str, asyncio.Semaphore] = {}
        self._spent: dict[str, tuple[float, float]] = {}
        """The same, requests of the past second, which are forgotten evenly, and when counted."""

    async def open(self, admin_key: str) -> None:
        """Read the keys. `admin_key`: that of the data directory."""
        self._admin = access.digest(admin_key)
        await self._renew()

    async def _renew(self) -> None:
        self._callers = await self._store.read(access.callers)
        for caller in self._callers.values():
            left_s = caller.expires_at - now()
            if left_s > 0:
                self._ends.setdefault(caller.name, boot_s() + left_s)

    def caller(self, authorization: bytes) -> Caller:
        """Who sends this header. Raises Unknown: it has no key that is accepted."""
        scheme, _, key = authorization.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            raise Unknown("missing or wrong API key: send Authorization: Bearer KEY")
        digest = access.digest(key.strip())
        if compare_digest(digest, self._admin):
            return ADMIN
        caller = self._callers.get(digest)
        if caller is None:
            raise Unknown("missing or wrong API key: send Authorization: Bearer KEY")
        if self._is_over(caller):
            raise Unknown(f"key {caller.name} has expired: ask an admin for another")
        return caller

    def accepts(self, caller: Caller) -> bool:
        """Whether the key of somebody who was let in is accepted still."""
        if caller is ADMIN:
            return True
        held = any(known.name == caller.name for known in self._callers.values())
        return held and not self._is_over(caller)

    def _is_over(self, caller: Caller) -> bool:
        return caller.expires_at <= now() or self._ends.get(caller.name, inf) <= boot_s()

    @contextmanager
    def calling(self, caller: Caller) -> Iterator[None]:
        """Count a request. Raises Refused, 429: too many of this key are under way, or came in the
        past second."""
        if caller is not ADMIN:
            self._refuse_many(caller)
        self._calls[caller.name] += 1
        try:
            yield
        finally:
            self._calls[caller.name] -= 1

    def reading(self, caller: Caller) -> AbstractAsyncContextManager[object]:
        """The turn of a read, until its answer is made."""
        if caller is ADMIN:
            return nullcontext()
        return self._reading.setdefault(caller.name, asyncio.Semaphore(READS))

    def _refuse_many(self, caller: Caller) -> None:
        name, most = caller.name, caller.limits.max_calls or MOST_CALLS
        (spent, since), at = self._spent.get(name, (0.0, 0.0)), monotonic()
        spent = max(0.0, spent - (at - since) * most)
        if self._calls[name] >= AT_ONCE:
            raise Refused(429, f"{AT_ONCE} requests of key {name} are under way: wait for some")
        if spent + 1 > most:
            why = f"key {name} sends more than {most} requests per second"
            raise Refused(429, f"{why}: send fewer, or ask an admin for a key with more")
        self._spent[name] = spent + 1, at

    async def add(self, new: NewKey) -> KeyMade:
        """Make a key. Raises Refused, 409: its name is taken."""
        key = PREFIX + secrets.token_urlsafe(32)
        row = await self._store.write(access.add, new, key)
        await self._renew()
        return KeyMade(**row.model_dump(), key=key)

    async def revoke(self, name: str) -> AccessKey:
        """Accept a key no more, from the next request on. Raises Refused, 404 or 409."""
        row = await self._store.write(access.revoke, name)
        # at once, also where the others cannot be read
        held = self._callers.items()
        self._callers = {digest: caller for digest, caller in held if caller.name != name}
        await self._renew()
        return row
