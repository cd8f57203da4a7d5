"""Calls on access keys, protected models, proposals for their heads, and the service's log."""

from collections.abc import AsyncGenerator, Mapping

from hud_tui.change import Change
from hud_tui.client.transport import Connection
from hud_tui.errors import HudMalformed, HudNotFound, HudUsage
from hud_tui.wire_access import (
    AccessKey,
    KeyMade,
    LogPage,
    NewKey,
    Proposal,
    ProposalCheck,
    Proposals,
    Propose,
    Protection,
)


class AccessCalls:
    """Calls on who may do what (embedded service)."""

    def __init__(self, wire: Connection, headers: Mapping[str, str]) -> None:
        """`headers`: which say who approves a head."""
        self._wire, self._headers = wire, headers

    async def keys(self) -> list[AccessKey]:
        """All keys that were made, oldest first. Raises HudUsage: the service has none (HUD);
        HudForbidden: the caller is no admin."""
        try:
            return await self._wire.get(self._wire.rl("/v1/keys"), list[AccessKey])
        except HudNotFound as error:
            why = "this service makes no keys of its own"
            raise HudUsage(why, "those of HUD are made on its web page") from error

    async def add(self, new: NewKey) -> KeyMade:
        """Make a key; the answer is the only one that has it. Sent once: if the answer is lost,
        revoke it and make another. Raises HudConflict: the name is taken."""
        change = Change("make key", subject=new.name, after=new.role)
        return await self._wire.write("POST", self._wire.rl("/v1/keys"), KeyMade, change, new)

    async def revoke(self, name: str) -> AccessKey:
        """Accept a key no more. Safe to repeat. Raises HudNotFound: there is none of this name."""
        url, change = self._wire.rl("/v1/keys/{}", name), Change("revoke key", subject=name)
        return await self._wire.write("DELETE", url, AccessKey, change)

    async def log(self, limit: int, after: LogPage | None = None) -> LogPage:
        """The newest lines of the service's log, newest first; those after a page, which has some.
        Raises HudUsage: the service has none (HUD)."""
        asked: dict[str, str | int] = {"limit": limit}
        if after is not None:
            asked["before"] = repr(after.lines[-1].at)
        if after is not None and after.cursor:
            asked["cursor"] = after.cursor
        try:
            return await self._wire.get(self._wire.rl("/v1/log"), LogPage, asked)
        except HudNotFound as error:
            hint = "without --server: what this machine changed"
            raise HudUsage("this service has no log that can be read", hint) from error

    async def log_pages(self, size: int) -> AsyncGenerator[LogPage, None]:
        """The whole log by page, newest first. Raises HudUsage: as `log`."""
        page = await self.log(size)
        yield page
        while len(page.lines) == size:
            before, page = page, await self.log(size, page)
            goes_back = not page.lines or page.lines[-1].at < before.lines[-1].at
            if not goes_back and page.cursor == before.cursor:
                raise HudMalformed("the service's log repeats itself", "update the service")
            yield page

    async def protect(self, model_id: str, on: bool) -> Protection:
        """Protect a model, or end that. Safe to repeat. Raises HudConflict: it is in training."""
        url = self._wire.api("/v2/models/{}/protection", model_id)
        change = Change("protect" if on else "unprotect", model_id)
        return await self._wire.write("PUT" if on else "DELETE", url, Protection, change)

    async def proposals(self, model_id: str) -> Proposals:
        """Whether a model is protected, and what was proposed for its head; none where the service
        knows no proposals."""
        url = self._wire.api("/v2/models/{}/head/proposals", model_id)
        try:
            return await self._wire.get(url, Proposals)
        except HudNotFound:
            return Proposals(model_id=model_id)

    async def propose(self, model_id: str, body: Propose) -> Proposal:
        """Propose a head. Repeated, it is the same proposal. Raises HudConflict: the model is not
        protected, or that is its head."""
        url = self._wire.api("/v2/models/{}/head/proposals", model_id)
        change = Change("propose", model_id, after=body.checkpoint_id)
        return await self._wire.write("POST", url, Proposal, change, body)

    async def check_proposal(self, model_id: str, checkpoint_id: str) -> ProposalCheck:
        """What proposing a checkpoint would come to. Raises what `propose` would raise."""
        url = self._wire.api("/v2/models/{}/head/proposals/check", model_id)
        return await self._wire.get(url, ProposalCheck, {"checkpoint": checkpoint_id})

    async def approve(self, asked: Proposal) -> Proposal:
        """Move the head as somebody else proposed. Raises HudForbidden: it is one's own proposal;
        HudConflict: it has ended, or the head has moved since."""
        url = self._wire.api("/v2/models/{}/head/proposals/{}/approve", asked.model_id, asked.id)
        change = Change(
            "approve", asked.model_id, before=asked.previous or "", after=asked.checkpoint_id
        )
        return await self._wire.write("POST", url, Proposal, change, headers=self._headers)

    async def withdraw(self, asked: Proposal) -> Proposal:
        """End a proposal. Raises HudConflict: it has ended."""
        url = self._wire.api("/v2/models/{}/head/proposals/{}/withdraw", asked.model_id, asked.id)
        change = Change("withdraw", asked.model_id, subject=asked.checkpoint_id)
        return await self._wire.write("POST", url, Proposal, change)
