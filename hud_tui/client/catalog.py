"""Models and their checkpoint trees."""

from enum import Enum

from pydantic import ValidationError

from hud_tui.client.answer import Arrived
from hud_tui.client.calls import Calls
from hud_tui.client.lookup import Lookup
from hud_tui.client.tree import TreeReader
from hud_tui.errors import HudUsage
from hud_tui.rl.names import find_model
from hud_tui.rl.text import one_line
from hud_tui.rl.written import Change
from hud_tui.wire import Checkpoint, CheckpointTrace, Fork, Identity, Model, SetHead


class Unset(Enum):
    """The type of `UNSET`: what was not said, where None says something."""

    UNSET = "unset"


UNSET = Unset.UNSET


TREES = 2
"""Models whose tree is kept as it was read last."""


class CatalogCalls(Calls):
    def __init__(self) -> None:
        self._trees: dict[str, TreeReader] = {}
        """By model, the one that was read last at the end."""

    async def whoami(self) -> Identity:
        """Whose key this is."""
        return await self.wire.get(self.api("/v2/auth/me"), Identity)

    async def models(self) -> list[Model]:
        """The whole catalog, all pages."""
        found = await self.pages(self.api("/v2/models"), Model)
        self.wire.writing.names |= {model.id: model.model_name for model in found}
        return found

    async def model(self, name: str) -> Model:
        """One model by id, name, slug or the slug's tail, in any case.

        Raises:
            HudUsage: No such model, or several; names the close ones.
        """
        return find_model(name, await self.models())

    async def fork(self, source_id: str, name: str, checkpoint_id: str | None = None) -> Model:
        """A model of one's own that starts at the source's head. Sent once.

        Args:
            source_id: The model to fork.
            name: What the fork will be called.
            checkpoint_id: Where it starts instead (embedded service).

        Raises:
            HudUsage: It cannot be a name.
            HudConflict: The name is taken.
            HudNotFound: No such checkpoint, or its weights are kept no longer.
            HudUnclear: No answer says whether it was made, and no new model of this name is
                to be seen.
        """
        try:
            body = Fork(source_model_id=source_id, name=name, checkpoint_id=checkpoint_id)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_context=False)[0]["msg"]
            raise HudUsage(f"the name {one_line(name, 40)!r}: {one_line(problem)}") from error
        change = Change("fork", source_id, name, before=checkpoint_id or "", made="id")
        url, known = self.api("/v2/models/fork"), set(self.wire.writing.names)

        async def look() -> Model | None:
            new = (model for model in await self.models() if known and model.id not in known)
            return next((m for m in new if _same_name(m.name or m.model_name, name)), None)

        hint = "look whether there is a model of this name (hud-tui models) before you fork again"
        lookup = Lookup(self._settle_url(source_id), look, hint)
        made = await self.wire.write("POST", url, Model, change, body, lookup=lookup)
        self.wire.writing.names[made.id] = made.model_name
        return made

    async def checkpoints(self, model_id: str) -> list[Checkpoint]:
        """The model's checkpoint tree, oldest first.

        Rows that have not changed since the last reading of it are the same objects.
        """
        return list(await self.tree(model_id))

    async def tree(self, model_id: str, arrived: Arrived | None = None) -> tuple[Checkpoint, ...]:
        """`checkpoints`; the very same tuple as long as the service answers the same.

        Args:
            model_id: The model's.
            arrived: Is told of every piece of it that comes; see `hud_tui.client.http`.
        """
        reader = self._trees.pop(model_id, None) or TreeReader()
        self._trees[model_id] = reader
        if len(self._trees) > TREES:
            del self._trees[next(iter(self._trees))]
        url = self.checkpoints_url(model_id)
        async with reader.lock:  # who asks meanwhile needs only what is new since
            answer = await self.wire.fetch(url, etag=reader.etag, arrived=arrived)
            return reader.rows if answer.unchanged else await reader.read(answer.body, answer.etag)

    async def checkpoint_traces(
        self, model_id: str, checkpoint_id: str, limit: int = 1000
    ) -> list[CheckpointTrace]:
        """The rollouts that a step was trained on."""
        url = self.api("/v2/models/{}/checkpoints/{}/traces", model_id, checkpoint_id)
        return await self.wire.get(url, list[CheckpointTrace], {"limit": limit})

    async def set_head(
        self,
        model_id: str,
        checkpoint_id: str,
        seen: str | Unset | None = UNSET,
        was: str | None = None,
    ) -> None:
        """Serve this checkpoint; the next optim_step extends the tree from it. Sent once.

        Args:
            model_id: The model's.
            checkpoint_id: The new head's.
            seen: Id of the head that was seen, None for the base weights: then the embedded
                service refuses where the head has been set elsewhere since. Steps taken
                from there do not count. Unset, nothing is asked, as on HUD.
            was: Id of the head that is left, as far as it is known, for who keeps a log.

        Raises:
            HudNotFound: No such checkpoint, or its weights are kept no longer.
            HudConflict: The head has moved since it was seen; the message says where to.
            HudUnclear: No answer says whether it was set; read the tree.
        """
        body = SetHead(checkpoint_id=checkpoint_id)
        url = self.api("/v2/models/{}/head", model_id)
        match = {} if seen is UNSET else {"If-Match": f'"{seen or "none"}"'}
        left = was or (seen if isinstance(seen, str) else "") or ""
        change = Change("set head", model_id, before=left, after=checkpoint_id)
        lookup = Lookup[Model](self._settle_url(model_id))
        await self.wire.write("PUT", url, Model, change, body, headers=match, lookup=lookup)

    async def pin(self, model_id: str, checkpoint_id: str, pinned: bool) -> Checkpoint:
        """Keep a checkpoint's state whatever the service's disk limit, or no longer (embedded
        service). Its row as it is then.

        Raises:
            HudNotFound: No such checkpoint, or there is nothing left to keep.
        """
        url = self.api("/v2/models/{}/checkpoints/{}/pin", model_id, checkpoint_id)
        change = Change("pin" if pinned else "unpin", model_id, checkpoint_id)

        async def look() -> Checkpoint | None:
            found = (row for row in await self.tree(model_id) if row.id == checkpoint_id)
            return next((row for row in found if row.pinned == pinned), None)

        method = "PUT" if pinned else "DELETE"
        return await self.wire.write(method, url, Checkpoint, change, lookup=Lookup(look=look))

    def _settle_url(self, model_id: str) -> str:
        """Where a service that keeps keys says what became of a model's call (embedded)."""
        return self.rl("/v1/models/{}/train/calls/", model_id) + "{}/settle"

    def checkpoints_url(self, model_id: str) -> str:
        return self.api("/v2/models/{}/checkpoints", model_id)


def _same_name(one: str, other: str) -> bool:
    return " ".join(one.split()).casefold() == " ".join(other.split()).casefold()
