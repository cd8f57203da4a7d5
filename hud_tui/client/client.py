"""HudClient: one coroutine per endpoint of HUD's wire; here those of models, trees and jobs."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from platform import node
from time import time
from types import EllipsisType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlencode

import httpx
from pydantic import ValidationError

from hud_tui.change import Change
from hud_tui.client.guard import Guard, ignore_write
from hud_tui.client.transport import Arrived, Connection, Lookup, if_there
from hud_tui.client.tree_reader import TreeReader
from hud_tui.errors import HudNotFound, HudRefused, HudUsage
from hud_tui.rl.names import find_job as find_among
from hud_tui.rl.names import find_model
from hud_tui.rl.text import one_line
from hud_tui.settings import DEFAULTS, Settings, is_loopback
from hud_tui.wire import Checkpoint, Identity, Job, Model, WorkState

if TYPE_CHECKING:
    from hud_tui.audit_log import AuditEntry
    from hud_tui.client.access_calls import AccessCalls
    from hud_tui.client.feed import Feed
    from hud_tui.client.rollout_calls import RolloutCalls
    from hud_tui.client.run_calls import RunCalls
    from hud_tui.client.task_calls import TaskCalls
    from hud_tui.client.training_calls import TrainingCalls
    from hud_tui.events import Act, Actor, HeadMoved, MovesRead
    from hud_tui.wire_changes import CancelJobResult

PASSED_ON = ("api", "telemetry")
"""The hosts to which `pass_on` sends, by the first part of its target."""
TREES = 2
"""Maximum number of models whose tree is cached."""


class HudClient:
    """A client of a HUD service, with one method for each endpoint. Every failure is a `HudError`;
    reads retry, writes are sent once."""

    def __init__(
        self,
        settings: Settings,
        transport: httpx.AsyncBaseTransport | None = None,
        guard: Guard | None = None,
        observe: Callable[[AuditEntry], object] = ignore_write,
    ) -> None:
        """
        Args:
            transport: Replaces the network, for tests.
            guard: Checks requests that change something; None allows all.
            observe: Called with each request that changed something, or may have.
        """
        self.settings = settings
        self.wire = Connection(settings, transport, guard or Guard(), observe)
        self.on_names: Callable[[str, list[str]], object] = lambda kind, names: None
        """Called with the ``models`` or ``jobs`` that were read, when they are others than
        before."""
        self._names: dict[str, list[str]] = {}
        self.identity: Identity | None = None
        """Who the service said last that this is; None if it was not asked."""
        self._service_id: str | None = None
        self._trees: dict[str, TreeReader] = {}
        """By model id, most recently read last."""

    @property
    def is_observed(self) -> bool:
        """Whether writes are reported to an observer."""
        return self.wire.writing.observe is not ignore_write

    def observed(self, observe: Callable[[AuditEntry], object]) -> Self:
        """This client with another observer of writes; closing either closes both."""
        twin = copy(self)
        twin.wire = self.wire.observed(observe)
        return twin

    def continue_as(self, other: HudClient) -> None:
        """Be the same client as another one from now on, for those who have this one, which is
        closed."""
        self.settings, self.wire, self.identity = other.settings, other.wire, other.identity
        self._service_id, self._trees = other._service_id, other._trees

    @property
    def actor(self) -> Actor:
        """Who makes this client's moves of a head."""
        from hud_tui.events import Actor

        return Actor(program=self.settings.by, host=one_line(node(), 60))

    def feed(self, model_id: str) -> Feed:
        """Events of a model; the first one is its tree."""
        from hud_tui.client.feed import Feed

        return Feed(self, model_id)

    # The rest of the endpoints. What they send and read takes as long to load as all of the above,
    # and most commands need none of it.

    @property
    def training(self) -> TrainingCalls:
        """Gradient passes, optimizer steps, and chat."""
        from hud_tui.client.training_calls import TrainingCalls

        return TrainingCalls(self.wire)

    @property
    def runs(self) -> RunCalls:
        """Managed runs and work that this client makes; the list of runs."""
        from hud_tui.client.run_calls import RunCalls

        return RunCalls(self.wire)

    @property
    def rollouts(self) -> RolloutCalls:
        """Traces, and rollouts that this client makes or has made."""
        from hud_tui.client.rollout_calls import RolloutCalls

        return RolloutCalls(self.wire)

    @property
    def tasks(self) -> TaskCalls:
        """Tasksets, and the environments that their tasks name."""
        from hud_tui.client.task_calls import TaskCalls

        return TaskCalls(self.wire)

    @property
    def access(self) -> AccessCalls:
        """Access keys, protected models, proposals for their heads, and the service's log."""
        from hud_tui.client.access_calls import AccessCalls

        return AccessCalls(self.wire, self._move_headers())

    async def aclose(self) -> None:
        """Close the connections; pending requests fail."""
        await self.wire.http.aclose()

    async def pass_on(self, method: str, target: str, content: bytes) -> bytes:
        """`Connection.pass_on` to one of the hosts `PASSED_ON`, e.g. ``api/v2/trace/x/enter``."""
        name, _, rest = target.partition("/")
        host = self.settings.telemetry_url if name == "telemetry" else self.settings.api_url
        return await self.wire.pass_on(method, f"{host}/{rest}", content)

    # Models and their checkpoint trees.

    async def whoami(self) -> Identity:
        """The owner of the key; kept as `identity`."""
        self.identity = await self.wire.get(self.wire.api("/v2/auth/me"), Identity)
        return self.identity

    async def service_id(self) -> str:
        """What the service is known by on disk: the id of the embedded one's data directory, at
        whatever address it is served; else its URL. Raises HudError: it does not answer."""
        if self._service_id is None:
            try:
                identity: Identity | None = await self.whoami()
            except HudNotFound:
                identity = None
            self._service_id = (identity and identity.data_id) or self.settings.api_url
        return self._service_id

    async def is_of(self, service: str) -> bool:
        """Whether what is stored under a service's name is of this one. Older files have its URL,
        which says nothing of an embedded one: its port changes."""
        if service == self.settings.api_url or (self.settings.local and is_loopback(service)):
            return True
        return service == await self.service_id()

    async def models(self) -> list[Model]:
        """The whole catalog, all pages."""
        models = await self.wire.pages(self.wire.api("/v2/models"), Model)
        self.wire.writing.names |= {model.id: model.model_name for model in models}
        self._note("models", [model.model_name for model in models])
        return models

    def _note(self, kind: str, names: list[str]) -> None:
        if names != self._names.get(kind):
            self._names[kind] = names
            self.on_names(kind, names)

    async def model(self, name: str) -> Model:
        """A model by id, name, slug or the last part of its slug; case-insensitive. Raises
        HudUsage: no such model, or several; the hint names similar ones."""
        return find_model(name, await self.models())

    async def fork(self, source_id: str, name: str, checkpoint_id: str | None = None) -> Model:
        """Fork a model. Sent once.

        Args:
            checkpoint_id: Checkpoint to start from, or `BASE` (embedded service); None, on HUD,
                for the source's head.

        Raises:
            HudUsage: Invalid name.
            HudConflict: The name is taken.
            HudNotFound: No such checkpoint, or its weights were deleted.
            HudUnclear: The outcome is unknown, and no new model of this name was found.
        """
        from hud_tui.wire_changes import Fork

        try:
            body = Fork(source_model_id=source_id, name=name, checkpoint_id=checkpoint_id)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_context=False)[0]["msg"]
            raise HudUsage(f"the name {one_line(name, 40)!r}: {one_line(problem)}") from error
        change = Change("fork", source_id, name, before=checkpoint_id or "", made="id")
        url, ids = self.wire.api("/v2/models/fork"), set(self.wire.writing.names)

        async def find() -> Model | None:
            new = (model for model in await self.models() if ids and model.id not in ids)
            return next((m for m in new if _same_name(m.name or m.model_name, name)), None)

        listed = self.settings.command("models")
        hint = f"check for a model of this name ({listed}) before you fork again"
        lookup = Lookup(self.wire.settle_url(source_id), find, hint)
        made = await self.wire.write("POST", url, Model, change, body, lookup=lookup)
        self.wire.writing.names[made.id] = made.model_name
        return made

    async def checkpoints(self, model_id: str) -> list[Checkpoint]:
        """`tree` as a list; unchanged rows are the same objects as in the last read."""
        return list(await self.tree(model_id))

    async def tree(self, model_id: str, arrived: Arrived | None = None) -> tuple[Checkpoint, ...]:
        """The model's checkpoint tree, oldest first; the same tuple object while nothing changes.
        `arrived` is called with the progress; see `hud_tui.client.transport`."""
        reader = self._trees.pop(model_id, None) or TreeReader()
        self._trees[model_id] = reader
        if len(self._trees) > TREES:
            del self._trees[next(iter(self._trees))]
        url = self.wire.api("/v2/models/{}/checkpoints", model_id)
        async with reader.lock:  # a concurrent caller then reads only what has changed since
            answer = await self.wire.fetch(url, etag=reader.etag, arrived=arrived)
            return reader.rows if answer.unchanged else await reader.read(answer.body, answer.etag)

    async def evaluations(self, model_id: str) -> list[WorkState] | None:
        """The service's evaluations of a model; None if it makes none."""
        url = self.wire.rl("/v1/models/{}/evaluations", model_id)
        return await if_there(self.wire.get(url, list[WorkState]))

    async def set_head(
        self,
        model_id: str,
        checkpoint_id: str,
        seen: str | EllipsisType | None = ...,
        was: str | None = None,
        act: Act | None = None,
    ) -> HeadMoved:
        """Set the head to this checkpoint; the next optim_step branches from it. Sent once.
        Returns the move. Its `previous`, None for the base weights, is as the service says it, else
        `was`; it is the checkpoint itself if that was the head already.

        Args:
            seen: Id of the head that the user saw, None for the base weights: the embedded
                service refuses if the head was moved elsewhere since; training steps from
                there are allowed. Omitted: not checked, as on HUD.
            was: Id of the head that was read last, if known.
            act: Whether it undoes or redoes a move; None: neither.

        Raises:
            HudNotFound: No such checkpoint, or its weights were deleted.
            HudConflict: The head has moved since `seen`; the message names the new head.
            HudUnclear: The outcome is unknown; read the tree.
        """
        from hud_tui.events import Act, HeadMoved
        from hud_tui.wire_changes import HeadSet, SetHead

        act = act or Act.SET
        body = SetHead(checkpoint_id=checkpoint_id)
        url = self.wire.api("/v2/models/{}/head", model_id)
        headers = {} if seen is ... else {"If-Match": f'"{seen or "none"}"'}
        headers |= self._move_headers(act)
        left = was or (seen if isinstance(seen, str) else "") or ""
        change = Change(
            "set head",
            model_id,
            before=left,
            after=checkpoint_id,
            replaced="previous",
            act="" if act is Act.SET else act,
        )
        lookup = Lookup[HeadSet](self.wire.settle_url(model_id))
        answer = await self.wire.write(
            "PUT", url, HeadSet, change, body, headers=headers, lookup=lookup
        )
        previous = answer.previous if "previous" in answer.model_fields_set else was
        return HeadMoved(
            at=answer.moved_at or time(),
            checkpoint_id=checkpoint_id,
            previous=previous,
            cause="set",
            act=act,
            by=self.actor,
        )

    def _move_headers(self, act: Act | None = None) -> dict[str, str]:
        """Who moves a head; HUD keeps no moves."""
        if self.settings.api_url == DEFAULTS["HUD_API_URL"]:
            return {}
        who = {"program": self.actor.program, "host": self.actor.host}
        return {"HUD-TUI-Move": urlencode(who if act is None else {**who, "act": act})}

    async def moves(self, model_id: str) -> MovesRead | None:
        """All moves of a model's head that somebody made (embedded service); None if the service
        keeps none."""
        from hud_tui.events import MovesRead

        url = self.wire.api("/v2/models/{}/head/moves", model_id)
        return await if_there(self.wire.get(url, MovesRead))

    async def pin(self, model_id: str, checkpoint_id: str, pinned: bool) -> Checkpoint:
        """Pin or unpin a checkpoint (embedded service). The service keeps the state of a pinned one
        beyond its disk limit. Returns the checkpoint's row. Raises HudNotFound: no such checkpoint,
        or its state is deleted already."""
        url = self.wire.api("/v2/models/{}/checkpoints/{}/pin", model_id, checkpoint_id)
        change = Change("pin" if pinned else "unpin", model_id, checkpoint_id)

        async def find() -> Checkpoint | None:
            matches = (
                checkpoint
                for checkpoint in await self.tree(model_id)
                if checkpoint.id == checkpoint_id
            )
            return next((checkpoint for checkpoint in matches if checkpoint.pinned == pinned), None)

        method = "PUT" if pinned else "DELETE"
        return await self.wire.write(method, url, Checkpoint, change, lookup=Lookup(find=find))

    # Jobs: managed runs, evaluations, and those of clients.

    async def job_status(self, ref: str) -> WorkState:
        """A managed run, by its id, or by its model's id for that model's latest run. Raises
        HudNotFound: no such run, or the model had none."""
        return await self.wire.get(self.wire.rl("/v1/training/jobs/{}/raw-status", ref), WorkState)

    async def known_job(self, ref: str) -> WorkState | None:
        """`job_status`, or None if there is no such run. Services without managed runs, or with
        other references, answer 400 or 405; that gives None too."""
        try:
            return await self.job_status(ref)
        except HudRefused as error:
            if isinstance(error, HudNotFound) or error.status in (400, 405):
                return None
            raise

    async def resume_job(self, job_id: str) -> WorkState:
        """Resume an interrupted run from the model's head, or an evaluation with the rollouts that
        are missing (embedded service)."""
        from hud_tui.rl.work import has_ended

        url = self.wire.rl("/v1/training/jobs/{}/resume", job_id)
        change = Change("resume", await self.guarded_model(job_id), job_id, made="status")

        async def find() -> WorkState | None:
            run = await self.known_job(job_id)
            return None if run is None or has_ended(run.status) else run

        shown = self.settings.command("jobs", job_id)
        hint = f"check whether it is active before you resume it again: {shown}"
        lookup = Lookup[WorkState](self.settle_job_url(job_id), find, hint)
        return await self.wire.write("POST", url, WorkState, change, lookup=lookup)

    def settle_job_url(self, job_id: str) -> str:
        """URL that reports the outcome of a job's call by its key (embedded service)."""
        return self.wire.rl("/v1/training/jobs/{}/calls/", job_id) + "{}/settle"

    async def guarded_model(self, job_id: str) -> str:
        """Id of the protected model that a job trains; empty if it trains none.

        The service is only asked if a model is protected.
        """
        protected = self.wire.guard.protected
        job = await self.known_job(job_id) if protected else None
        trained = set() if job is None else {job.model, job.fine_tuned_model}
        for id_, name in protected.items():
            if {id_, name, self.wire.writing.names.get(id_, name)} & (trained - {None, ""}):
                return id_
        return ""

    async def jobs(self, limit: int = 200, taskset_id: str | None = None) -> list[Job]:
        """The newest jobs, at most `limit`; with `taskset_id` only those of one taskset."""
        asked = {} if taskset_id is None else {"taskset_id": taskset_id}
        url = self.wire.api("/v2/jobs")
        jobs = await self.wire.pages(url, Job, min(limit, 100), limit, asked)
        if not asked:
            self._note("jobs", [job.id for job in jobs])
        return jobs

    async def rename_job(self, job_id: str, name: str) -> Job:
        """Rename a job, which also names its run. Sent once."""
        from hud_tui.wire_changes import RenameJob

        url, body = self.wire.api("/v2/jobs/{}", job_id), RenameJob(name=name)
        change = Change("rename", "", job_id, after=name)

        async def find() -> Job | None:
            job = await self.job(job_id)
            return job if job.name == name else None

        return await self.wire.write("PATCH", url, Job, change, body, lookup=Lookup(find=find))

    async def job(self, job_id: str) -> Job:
        return await self.wire.get(self.wire.api("/v2/jobs/{}", job_id), Job)

    async def cancel_job(self, job_id: str) -> CancelJobResult:
        """Cancel a job between two rollouts. A job that has ended does not change. Sent once."""
        from hud_tui.rl.work import has_ended
        from hud_tui.wire_changes import CancelJob, CancelJobResult

        url = self.wire.api("/v2/rollouts/cancel_job")
        change = Change("cancel", await self.guarded_model(job_id), job_id, made="status")

        async def find() -> CancelJobResult | None:
            run = await self.known_job(job_id)
            status = run.status if run is not None else (await self.job(job_id)).status or ""
            if not has_ended(status):
                return None
            return CancelJobResult(cancelled=int(status == "cancelled"), status=status)

        shown = self.settings.command("jobs", job_id)
        hint = f"check whether it is active before you cancel it again: {shown}"
        lookup, body = Lookup(self.settle_job_url(job_id), find, hint), CancelJob(job_id=job_id)
        return await self.wire.write("POST", url, CancelJobResult, change, body, lookup=lookup)


def _same_name(name: str, other: str) -> bool:
    return " ".join(name.split()).casefold() == " ".join(other.split()).casefold()


LOOKED_THROUGH = 1000
"""Number of newest jobs that are searched for a prefix."""


async def find_job(client: HudClient, ref: str) -> str:
    """The id of a job, found by id, prefix, or model (its latest run). Raises HudUsage: none or
    several match; the hint lists ids."""
    try:
        return (await client.job(ref)).id
    except HudRefused as error:
        if error.status not in (400, 404, 405, 422):
            raise
    status = await client.known_job(ref)
    if status is not None:
        return status.id or ref
    return find_among(ref, await client.jobs(LOOKED_THROUGH)).id
