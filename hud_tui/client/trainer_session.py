"""A model's training from the client's side: its tree, its head, and what became of a write."""

import asyncio
from asyncio import CancelledError
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self
from uuid import UUID, uuid4

from hud_tui.client.client import HudClient
from hud_tui.client.trainer_outcome import (
    Lost,
    Resumed,
    Seen,
    advice,
    head_of,
    judge,
    look,
)
from hud_tui.client.trainer_reports import Reports
from hud_tui.client.writing import untold
from hud_tui.command_log import CommandLog
from hud_tui.errors import HudRefused, HudUnclear
from hud_tui.rl.names import find_checkpoint
from hud_tui.settings import read_paths, read_settings
from hud_tui.wire import Checkpoint, Model, Settled

LOOKS_S = (0.5, 1.0, 2.0)
"""Seconds between looks for a lost step, or a head, that the tree does not show yet."""


class TrainingSession:
    """Base of `TrainingClient`: all but the training calls themselves."""

    def __init__(self, model: str, client: HudClient | None = None) -> None:
        """
        What it changes is kept in this machine's command log, for ``hud-tui log``, unless the
        client tells somebody else already.

        Args:
            model: Its id, name or slug.
            client: A service, which stays open; None for HUD by its settings (HUD_API_KEY …).

        Raises:
            HudNoKey: No client was given, and there is no key.
        """
        self.model = model
        self.client = client or HudClient(read_settings())
        if self.client.wire.writing.observe is untold:
            self.client.wire.writing.observe = CommandLog(read_paths().state, "python").add
        self.reports = Reports(self.client)
        """The loop's job, and its rollouts that were not graded yet."""
        self._is_own = client is None
        self._entry: Model | None = None
        self._seen: Seen | None = None
        self._lost: Lost | None = None

    async def __aenter__(self) -> Self:
        try:
            await self.entry()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the loop's job, and close the connections, unless they were given."""
        await self.reports.close()
        if self._is_own:
            await self.client.aclose()

    async def entry(self) -> Model:
        """The model's row of the catalog, looked up once.

        Raises:
            HudUsage: No such model, or several; names the close ones.
        """
        if self._entry is None:
            self._entry = await self.client.model(_canonical(self.model))
        return self._entry

    async def available_losses(self) -> list[str]:
        """The loss functions that this model's service has."""
        return await self.client.losses((await self.entry()).id)

    async def checkpoints(self) -> list[Checkpoint]:
        """The checkpoint tree, oldest first; each with its rewards and metrics."""
        return await self.client.checkpoints((await self.entry()).id)

    async def head(self) -> Checkpoint | None:
        """The checkpoint that the gateway serves; None for the base weights."""
        return head_of(await self.checkpoints())

    async def set_head(self, checkpoint: str) -> Checkpoint:
        """Serve a checkpoint; the next `optim_step` extends the tree from it. Sent once.

        Args:
            checkpoint: Its id, its name, or how its id begins.

        Raises:
            HudUsage: The tree has no such checkpoint.
            HudConflict: The head was set elsewhere while this was under way (embedded service).
            HudError: It was refused, or its answer was lost: see `resume`.
        """
        tree = await self.checkpoints()
        target = find_checkpoint(checkpoint, tree)
        async with self._once("set_head", target.id):
            seen = head_of(tree)
            model_id = (await self.entry()).id
            await self.client.set_head(model_id, target.id, seen.id if seen else None)
        served = [c.model_copy(update={"is_active": c.id == target.id}) for c in tree]
        self._seen, self._lost = look(served), None
        return target.model_copy(update={"is_active": True})

    async def resume(self) -> Resumed:
        """What became of the write whose answer was lost; it may be repeated until it succeeds.

        A service that keeps keys is asked by the call's own, and refuses the call should it
        arrive later; else, and for a set_head, the tree tells, which is looked at a few times.
        What it does not show yet is asked for again by the next `resume`, until another write.
        Where nothing was lost, where training stands.

        Raises:
            HudError: The service cannot be asked now.
        """
        settled = await self._settle()
        for wait_s in (0.0, *LOOKS_S):
            await asyncio.sleep(wait_s)
            tree = await self.checkpoints()
            found = judge(self._lost, self._seen, tree, settled)
            is_pending = found.landed is None and found.call in ("optim_step", "set_head")
            if not is_pending:
                self._lost, self._seen = None, look(tree)
                break
        return found

    async def _settle(self) -> Settled | None:
        """What the service knows of the lost call; None where it keeps no keys."""
        if self._lost is None or self._lost.call == "set_head":
            return None
        try:
            return await self.client.settle((await self.entry()).id, self._lost.key)
        except HudRefused as error:
            if error.status in (404, 405):
                return None
            raise

    async def _remember(self) -> None:
        """Know the tree before a step, so that a lost one can be told from those before."""
        if self._seen is None or self._lost is not None:
            self._seen = look(await self.checkpoints())
            self._lost = None

    @asynccontextmanager
    async def _once(self, call: str, asked: str | None = None) -> AsyncIterator[str]:
        """Send a write inside, with the key that is yielded; where its answer is lost, note
        that, and say what to do."""
        key = uuid4().hex
        try:
            yield key
        except CancelledError:
            self._lost = Lost(call, asked, key)
            raise
        except HudUnclear as error:
            self._lost = Lost(call, asked, key)
            error.hint = advice(call)
            raise


def _canonical(model: str) -> str:
    """An id in the catalog's spelling; a name as it is."""
    try:
        return str(UUID(model))
    except ValueError:
        return model
