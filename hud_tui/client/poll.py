"""Poller: the events of a model's training, made from what changed between two readings."""

from time import monotonic
from typing import TYPE_CHECKING

from hud_tui.client.answer import Arrived
from hud_tui.client.changes import changes
from hud_tui.client.groups import GroupReader
from hud_tui.events import Event, JobChanged, StepTaken, TreeRead
from hud_tui.rl.job_words import is_active
from hud_tui.wire import Checkpoint, JobStatus

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient

BUSY_S, IDLE_S = 1.0, 3.0
"""Seconds between two readings while a job runs, and while none does. A reading that takes
longer is followed by as long a rest: polling takes half of a line at most."""


class Poller:
    """Reads one model's tree and job, and says what is new."""

    def __init__(
        self, client: "HudClient", model_id: str, arrived: Arrived = lambda size, total: None
    ) -> None:
        """
        Args:
            client: The service.
            model_id: The model's.
            arrived: Is told of every piece of a tree that comes.
        """
        self._client, self._arrived = client, arrived
        self._took_s = 0.0
        """Of the last reading."""
        self._model_id = model_id
        self._groups = GroupReader(client, model_id)
        self._tree: tuple[Checkpoint, ...] | None = None
        self._job: JobStatus | None = None

    @property
    def interval_s(self) -> float:
        """Seconds to wait before the next `news`."""
        busy = self._job is not None and is_active(self._job.status)
        return max(BUSY_S if busy else IDLE_S, self._took_s)

    async def whole(self) -> list[Event]:
        """The tree as it is, and the model's latest job where there is one."""
        job = await self._client.known_job(self._model_id)
        tree = await self._read()
        self._tree, self._job = tree, job
        first: list[Event] = [TreeRead(checkpoints=tree)]
        return first if job is None else [*first, JobChanged(job=job)]

    async def news(self) -> list[Event]:
        """What happened since the last call; the first time, `whole`.

        Raises:
            HudError: A reading failed; nothing is lost, the next call finds it.
        """
        if self._tree is None:
            return await self.whole()
        # The job before the tree: of one that has ended, the tree then has every step.
        job = await self._client.known_job(self._model_id)
        tree = await self._read()
        events = [] if tree is self._tree else changes(self._tree, tree)
        self._tree = tree
        events = await self._with_groups(events)
        if job is not None and job != self._job:
            events.append(JobChanged(job=job))
        self._job = job
        return events

    async def _read(self) -> tuple[Checkpoint, ...]:
        began = monotonic()
        tree = await self._client.tree(self._model_id, self._arrived)
        self._took_s = monotonic() - began
        return tree

    async def _with_groups(self, events: list[Event]) -> list[Event]:
        """The newest step with its rewards by task; older ones went by while nobody looked."""
        for index in range(len(events) - 1, -1, -1):
            event = events[index]
            if not isinstance(event, StepTaken):
                continue
            checkpoint = next(c for c in self._tree or () if c.id == event.checkpoint_id)
            groups = await self._groups.groups(checkpoint)
            events[index] = event.model_copy(update={"groups": groups})
            break
        return events
