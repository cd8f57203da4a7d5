"""HudClient: one coroutine per endpoint of HUD's wire."""

import asyncio
import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from json import JSONDecodeError, JSONDecoder
from types import EllipsisType
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import quote
from uuid import UUID

import httpx
from pydantic import ValidationError

from hud_tui.audit_log import UNNAMED, AuditEntry, Change, TaskSource
from hud_tui.client.guard import Guard, ignore_write
from hud_tui.client.transport import SUBMIT_S, TRAIN_S, Arrived, Connection, Lookup, malformed
from hud_tui.errors import HudMalformed, HudNotFound, HudRefused, HudUsage
from hud_tui.rl.names import find_job as find_among
from hud_tui.rl.names import find_model
from hud_tui.rl.text import one_line
from hud_tui.rl.work import has_ended
from hud_tui.settings import Settings, is_loopback
from hud_tui.wire import (
    CancelJob,
    CancelJobResult,
    Checkpoint,
    EvaluationJob,
    Fork,
    HeadSet,
    Identity,
    Job,
    JobStatus,
    Json,
    Model,
    Page,
    RenameJob,
    Request,
    SetHead,
    Settled,
    WorkState,
)
from hud_tui.wire_rollouts import (
    CheckpointTrace,
    JobEnter,
    SubmitRollout,
    SubmittedRollout,
    Trace,
    TraceEnter,
    TraceExit,
)
from hud_tui.wire_runs import (
    DriveReport,
    DriveRun,
    KeepEvaluation,
    RunPage,
    RunSteps,
    SubmitJob,
    SubmittedJob,
)
from hud_tui.wire_tasks import (
    EnvironmentConfig,
    RegistryItem,
    ScenarioRecord,
    Taskset,
    TasksetExport,
    TasksetRef,
    UploadResult,
    UploadTasks,
)
from hud_tui.wire_training import (
    Backward,
    Chat,
    ChatReply,
    Forward,
    ForwardBackward,
    ForwardBackwardResult,
    ForwardResult,
    Losses,
    OptimStep,
    OptimStepResult,
    TraceEvents,
)

if TYPE_CHECKING:
    from hud_tui.client.feed import Feed

# Reading a checkpoint tree repeatedly, decoding only the rows that changed.
#
# A tree grows at its end, and a head move changes two rows in the middle. Rows that are equal,
# byte for byte, are reused from the last read; the others are validated a few at a time, so that
# the screen stays responsive with ten thousand checkpoints.
#
# The end of a row is guessed to be before the next text that looks like the start of a row. If
# the guess parses it was right, since no JSON object is a prefix of another; if not, the full
# decoder finds the end. Guessing is five times as fast.


CHUNK = 65_536
"""Characters decoded per turn of the event loop: about 1 ms."""
MANY = 1000
"""Number of new rows from which garbage collection is suspended."""
LONGER, LONG = 4, 65_536
"""Where to search for the end of a row: within LONGER times the previous row's length plus LONG."""
WHAT = "GET checkpoints"
_BLANK = re.compile(r"[ \t\r\n]*")
_BEGINNING = re.compile(r'\{[ \t\r\n]*"[^"\\]*"[ \t\r\n]*:')
_DECODER = JSONDecoder()


class TreeReader:
    """Reads one model's tree. If the body is unchanged, the same tuple object is returned."""

    def __init__(self) -> None:
        self._text = ""
        self._ends: list[int] = []
        """End of each row in `_text`, shape (N,)."""
        self.rows: tuple[Checkpoint, ...] = ()
        """Rows of the last read, oldest first."""
        self.etag = ""
        """ETag of the last read; empty if there is none."""
        self.lock = asyncio.Lock()
        """Held from a request until its body is decoded."""

    async def read(self, body: bytes, etag: str = "") -> tuple[Checkpoint, ...]:
        """The checkpoints of a JSON array, oldest first, shape (N,).

        Args:
            etag: Its ETag, if any.

        Raises:
            HudMalformed: Not a JSON array of checkpoints; the last read is kept.
        """
        try:
            text = body.decode("utf-8")
            if text == self._text and text:
                self.etag = etag
                return self.rows
            shared = self._shared(text)
            rows, ends = list(self.rows[:shared]), self._ends[:shared]
            await self._decode(text, rows, ends)
        except ValidationError as error:
            raise malformed(WHAT, error) from error
        except (UnicodeDecodeError, JSONDecodeError, RecursionError) as error:
            raise HudMalformed(f"{WHAT}: the answer is not JSON: {error}") from error
        self._text, self._ends, self.rows, self.etag = text, ends, tuple(rows), etag
        return self.rows

    def _shared(self, text: str) -> int:
        """Number of leading rows that both bodies share."""
        low, high = 0, len(self._ends)
        while low < high:
            middle = (low + high + 1) // 2
            start = self._ends[low - 1] if low else 0
            end = self._ends[middle - 1]
            if self._text[start:end] == text[start:end]:
                low = middle
            else:
                high = middle - 1
        return low

    async def _decode(self, text: str, rows: list[Checkpoint], ends: list[int]) -> None:
        """Append the rows after the last of `ends`, and their ends."""
        at = ends[-1] if ends else _after(text, 0, "[")
        was, was_ends, known = self._text, self._ends, self.rows
        between, turn = "", at + CHUNK
        with _uncollected() as fresh:
            while (at := _skip(text, at)) < len(text) and text[at] != "]":
                if rows:
                    at = _skip(text, _after(text, at, ","))
                    between = between or _between(text, ends[-1], at)
                place = len(rows)
                before = _row(was, was_ends, place) if place < len(known) else ""
                if before and text.startswith(before, at):
                    rows.append(known[place])
                    at += len(before)
                else:
                    row, at = _read(text, at, between, ends[-1] - ends[-2] if place > 1 else 0)
                    rows.append(row)
                    fresh.append(place)
                ends.append(at)
                if at >= turn:
                    turn = at + CHUNK
                    await asyncio.sleep(0)
        if _skip(text, _after(text, at, "]")) != len(text):
            raise JSONDecodeError("Extra data", text, at)


@contextmanager
def _uncollected() -> Iterator[list[int]]:
    """Suspend garbage collection while new rows are decoded.

    Collecting ten thousand rows with their groups would block the screen for nearly a second
    each time, and they contain no cycles.
    """
    fresh: list[int] = []
    watched = gc.isenabled()
    gc.disable()
    try:
        yield fresh
        if len(fresh) >= MANY:
            gc.freeze()
    finally:
        if watched:
            gc.enable()


def _between(text: str, end: int, at: int) -> str:
    """The text from the last character of a row to the start of the next row's first value."""
    first = _BEGINNING.match(text, at)
    return "" if first is None else text[end - 1 : first.end()]


def _read(text: str, at: int, between: str, size: int) -> tuple[Checkpoint, int]:
    """The row at `at`, and its end.

    Args:
        between: Text between two rows; empty if unknown.
        size: Length of the previous row.
    """
    most = at + LONGER * size + LONG
    end = text.find(between, at, most) if between else -1
    if end < 0 and most >= len(text):
        end = text.rfind("}", at)
    if end >= at:
        with suppress(ValidationError):
            return Checkpoint.model_validate_json(text[at : end + 1]), end + 1
    value, end = _DECODER.raw_decode(text, at)
    return Checkpoint.model_validate(value), end


def _row(text: str, ends: list[int], place: int) -> str:
    """The text of a row in a body that was read before."""
    before = _after(text, 0, "[") if place == 0 else _after(text, ends[place - 1], ",")
    return text[_skip(text, before) : ends[place]]


def _after(text: str, at: int, expected: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] != expected:
        raise JSONDecodeError(f"Expecting '{expected}'", text, at)
    return at + 1


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return at if blank is None else blank.end()


# The client: models and trees, training, jobs and rollouts, tasksets.


T = TypeVar("T")


TREES = 2
"""Maximum number of models whose tree is cached."""
RUNS = 2000
"""Maximum number of runs per page."""
ROLLOUT = ("args", "agent", "runtime_config", "verifier")
"""Fields of a rollout's body that the command log leaves out, because they come from its task."""


class HudClient:
    """A client of a HUD service, with one method for each endpoint. Every failure is a `HudError`;
    reads retry, writes are sent once."""

    def __init__(
        self,
        settings: Settings,
        transport: httpx.AsyncBaseTransport | None = None,
        guard: Guard | None = None,
        observe: Callable[[AuditEntry], None] = ignore_write,
    ) -> None:
        """
        Args:
            transport: Replaces the network, for tests.
            guard: Checks requests that change something; None allows all.
            observe: Called with each request that changed something, or may have.
        """
        self.settings = settings
        self.wire = Connection(settings, transport, guard or Guard(), observe)
        self._service_id: str | None = None
        self._trees: dict[str, TreeReader] = {}
        """By model id, most recently read last."""

    @property
    def is_observed(self) -> bool:
        """Whether writes are reported to an observer."""
        return self.wire.writing.observe is not ignore_write

    def observed(self, observe: Callable[[AuditEntry], None]) -> Self:
        """This client with another observer of writes; closing either closes both."""
        twin = copy(self)
        twin.wire = self.wire.observed(observe)
        return twin

    def feed(self, model_id: str) -> "Feed":
        """Events of a model; the first one is its tree."""
        from hud_tui.client.feed import Feed  # most headless commands do not need it

        return Feed(self, model_id)

    async def aclose(self) -> None:
        """Close the connections; pending requests fail."""
        await self.wire.http.aclose()

    def api(self, path: str, *names: str) -> str:
        """A URL of the platform; each ``{}`` in the path is replaced by a quoted name."""
        return self.settings.api_url + _fill(path, names)

    def rl(self, path: str, *names: str) -> str:
        """A URL of the training service; names as for `api`."""
        return self.settings.rl_url + _fill(path, names)

    async def pages(
        self,
        url: str,
        row: type[T],
        size: int = 100,
        most: int | None = None,
        params: Mapping[str, str | int] | None = None,
    ) -> list[T]:
        """All rows of a paged collection, or the first `most`.

        Raises:
            HudMalformed: A page was empty although the total was not reached.
        """
        rows: dict[str, T] = {}
        offset = 0
        while True:
            asked = {**(params or {}), "limit": size, "offset": offset}
            page: Page[T] = await self.wire.get(url, Page[row], asked)  # type: ignore[valid-type]
            rows |= {
                getattr(item, "id", str(offset + i)): item for i, item in enumerate(page.items)
            }
            offset += len(page.items)
            if offset >= (page.total if most is None else min(most, page.total)):
                return list(rows.values())[:most]
            if not page.items:
                raise HudMalformed(
                    f"GET {url}: {offset} of {page.total} rows came, then an empty page",
                    "try again: the list may be changing",
                )

    # Models and their checkpoint trees.

    async def whoami(self) -> Identity:
        """The owner of the key."""
        return await self.wire.get(self.api("/v2/auth/me"), Identity)

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
        found = await self.pages(self.api("/v2/models"), Model)
        self.wire.writing.names |= {model.id: model.model_name for model in found}
        return found

    async def model(self, name: str) -> Model:
        """A model by id, name, slug or the last part of its slug; case-insensitive.

        Raises:
            HudUsage: No such model, or several; the hint names similar ones.
        """
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
        try:
            body = Fork(source_model_id=source_id, name=name, checkpoint_id=checkpoint_id)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_context=False)[0]["msg"]
            raise HudUsage(f"the name {one_line(name, 40)!r}: {one_line(problem)}") from error
        change = Change("fork", source_id, name, before=checkpoint_id or "", made="id")
        url, known = self.api("/v2/models/fork"), set(self.wire.writing.names)

        async def find() -> Model | None:
            new = (model for model in await self.models() if known and model.id not in known)
            return next((m for m in new if _same_name(m.name or m.model_name, name)), None)

        listed = self.settings.command("models")
        hint = f"check for a model of this name ({listed}) before you fork again"
        lookup = Lookup(self.settle_url(source_id), find, hint)
        made = await self.wire.write("POST", url, Model, change, body, lookup=lookup)
        self.wire.writing.names[made.id] = made.model_name
        return made

    async def checkpoints(self, model_id: str) -> list[Checkpoint]:
        """`tree` as a list; unchanged rows are the same objects as in the last read."""
        return list(await self.tree(model_id))

    async def tree(self, model_id: str, arrived: Arrived | None = None) -> tuple[Checkpoint, ...]:
        """The model's checkpoint tree, oldest first; the same tuple object while nothing changes.

        Args:
            arrived: Called with the progress; see `hud_tui.client.transport`.
        """
        reader = self._trees.pop(model_id, None) or TreeReader()
        self._trees[model_id] = reader
        if len(self._trees) > TREES:
            del self._trees[next(iter(self._trees))]
        url = self.api("/v2/models/{}/checkpoints", model_id)
        async with reader.lock:  # a concurrent caller then reads only what has changed since
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
        seen: str | EllipsisType | None = ...,
        was: str | None = None,
    ) -> str | None:
        """Set the head to this checkpoint; the next optim_step branches from it. Sent once.
        Returns the id of the head that it replaced, None for the base weights: as the service says
        it, else `was`.

        Args:
            seen: Id of the head that the user saw, None for the base weights: the embedded
                service refuses if the head was moved elsewhere since; training steps from
                there are allowed. Omitted: not checked, as on HUD.
            was: Id of the head that was read last, if known.

        Raises:
            HudNotFound: No such checkpoint, or its weights were deleted.
            HudConflict: The head has moved since `seen`; the message names the new head.
            HudUnclear: The outcome is unknown; read the tree.
        """
        body = SetHead(checkpoint_id=checkpoint_id)
        url = self.api("/v2/models/{}/head", model_id)
        match = {} if seen is ... else {"If-Match": f'"{seen or "none"}"'}
        left = was or (seen if isinstance(seen, str) else "") or ""
        change = Change("set head", model_id, before=left, after=checkpoint_id, replaced="previous")
        lookup = Lookup[HeadSet](self.settle_url(model_id))
        answer = await self.wire.write(
            "PUT", url, HeadSet, change, body, headers=match, lookup=lookup
        )
        return answer.previous if "previous" in answer.model_fields_set else was

    async def pin(self, model_id: str, checkpoint_id: str, pinned: bool) -> Checkpoint:
        """Pin or unpin a checkpoint (embedded service). The service keeps the state of a pinned one
        beyond its disk limit. Returns the checkpoint's row.

        Raises:
            HudNotFound: No such checkpoint, or its state is deleted already.
        """
        url = self.api("/v2/models/{}/checkpoints/{}/pin", model_id, checkpoint_id)
        change = Change("pin" if pinned else "unpin", model_id, checkpoint_id)

        async def find() -> Checkpoint | None:
            found = (row for row in await self.tree(model_id) if row.id == checkpoint_id)
            return next((row for row in found if row.pinned == pinned), None)

        method = "PUT" if pinned else "DELETE"
        return await self.wire.write(method, url, Checkpoint, change, lookup=Lookup(find=find))

    def settle_url(self, model_id: str) -> str:
        """URL that reports the outcome of a model's call by its key (embedded service)."""
        return self.rl("/v1/models/{}/train/calls/", model_id) + "{}/settle"

    # Training: gradient passes, optimizer steps and managed runs. `key` is a write's
    # Idempotency-Key, needed to `settle` it; by default a fresh one is used. `run` is the id of the
    # run whose steps this client takes (embedded service).

    async def losses(self, model_id: str) -> Losses:
        """The loss functions this model can be trained with."""
        return await self.wire.get(self.rl("/v1/models/{}/train/losses", model_id), Losses)

    async def forward_backward(
        self, model_id: str, body: ForwardBackward, key: str | None = None, run: str | None = None
    ) -> ForwardBackwardResult:
        """Accumulate a batch's gradients for the next optim_step."""
        change = Change("forward-backward", model_id, omitted=("inputs",))
        return await self._train("forward-backward", change, ForwardBackwardResult, body, key, run)

    async def forward(self, model_id: str, body: Forward) -> ForwardResult:
        """Current logprobs of a batch, for a custom loss."""
        url = self.rl("/v1/models/{}/train/forward", model_id)
        return await self.wire.write("POST", url, ForwardResult, None, body, TRAIN_S)

    async def backward(
        self, model_id: str, body: Backward, key: str | None = None
    ) -> ForwardBackwardResult:
        """Accumulate gradients from −dC/dlogprob for the batch of a `forward`."""
        change = Change("backward", model_id, omitted=("weights",))
        return await self._train("backward", change, ForwardBackwardResult, body, key)

    async def optim_step(
        self, model_id: str, body: OptimStep, key: str | None = None, run: str | None = None
    ) -> OptimStepResult:
        """Step on the accumulated gradients; the new checkpoint becomes the head."""
        change = Change("optim step", model_id, made="checkpoint_id")
        return await self._train("optim-step", change, OptimStepResult, body, key, run)

    async def _train(
        self,
        call: str,
        change: Change,
        kind: type[T],
        body: Request,
        key: str | None,
        run: str | None = None,
    ) -> T:
        url = self.rl("/v1/models/{}/train/{}", change.model, call)
        sent = {"Idempotency-Key": key, "Hud-Tui-Run": run}
        headers = {name: value for name, value in sent.items() if value is not None}
        return await self.wire.write("POST", url, kind, change, body, TRAIN_S, headers)

    async def settle(self, model_id: str, key: str) -> Settled:
        """Outcome of a training write, by its key (embedded service). Safe to repeat.

        Raises:
            HudNotFound: The service does not store keys.
        """
        url = self.rl("/v1/models/{}/train/calls/{}/settle", model_id, key)
        return await self.wire.write("POST", url, Settled, None)

    async def drive(self, job_id: str, body: DriveRun) -> JobStatus:
        """Begin or continue a run whose steps this client takes (embedded service). Safe to repeat.

        Raises:
            HudNotFound: The service does not have such runs.
        """
        url = self.rl("/v1/training/jobs/{}/drive", job_id)
        return await self.wire.write("PUT", url, JobStatus, None, body)

    async def report(self, work_id: str, body: DriveReport) -> WorkState:
        """Report the state of such a run, or of an evaluation that this client makes; the answer
        says whether to cancel it. Repeating it adds `wasted` again; otherwise it is safe to repeat.

        Raises:
            HudConflict: It has ended.
        """
        url = self.rl("/v1/training/jobs/{}/drive", work_id)
        kind: type[WorkState] = WorkState  # type: ignore[assignment]
        return await self.wire.write("PATCH", url, kind, None, body)

    async def keep_evaluation(self, evaluation_id: str, body: KeepEvaluation) -> EvaluationJob:
        """Store the state of an evaluation whose rollouts this client makes (embedded service).
        Safe to repeat."""
        url = self.rl("/v1/evaluations/{}", evaluation_id)
        return await self.wire.write("PUT", url, EvaluationJob, None, body)

    async def submit(self, body: SubmitJob, source: TaskSource = UNNAMED) -> SubmittedJob:
        """Start a managed run.

        Args:
            source: What its tasks came from, for the command log.

        Raises:
            HudUnclear: The outcome is unknown; see `job_status` of the model.
        """
        url = self.rl("/v1/training/jobs")
        omitted = ("dataset",)
        change = Change("submit", body.model_id, made="job_id", omitted=omitted, source=source)
        lookup = Lookup[SubmittedJob](self.settle_url(body.model_id))
        write = self.wire.write
        return await write("POST", url, SubmittedJob, change, body, SUBMIT_S, lookup=lookup)

    async def job_status(self, ref: str) -> JobStatus:
        """A managed run, by its id, or by its model's id for that model's latest run.

        Raises:
            HudNotFound: No such run, or the model had none.
        """
        return await self.wire.get(self.rl("/v1/training/jobs/{}/raw-status", ref), JobStatus)

    async def known_job(self, ref: str) -> JobStatus | None:
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
        url = self.rl("/v1/training/jobs/{}/resume", job_id)
        change = Change("resume", await self.guarded_model(job_id), job_id, made="status")

        async def find() -> WorkState | None:
            run = await self.known_job(job_id)
            return None if run is None or has_ended(run.status) else run

        shown = self.settings.command("jobs", job_id)
        hint = f"check whether it is active before you resume it again: {shown}"
        lookup = Lookup[WorkState](self.settle_job_url(job_id), find, hint)
        kind: type[WorkState] = WorkState  # type: ignore[assignment]
        return await self.wire.write("POST", url, kind, change, lookup=lookup)

    def settle_job_url(self, job_id: str) -> str:
        """URL that reports the outcome of a job's call by its key (embedded service)."""
        return self.rl("/v1/training/jobs/{}/calls/", job_id) + "{}/settle"

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

    # Jobs, their traces, and chat with a model.

    async def jobs(self, limit: int = 200, taskset_id: str | None = None) -> list[Job]:
        """The newest jobs, at most `limit`; with `taskset_id` only those of one taskset."""
        asked = {} if taskset_id is None else {"taskset_id": taskset_id}
        return await self.pages(self.api("/v2/jobs"), Job, min(limit, 100), limit, asked)

    async def run_page(self, since: int = 0, offset: int = 0) -> RunPage:
        """Runs of all models and forks, newest first (embedded service).

        Args:
            since: A revision; only runs that have changed after it. 0 for all.
            offset: Number of runs to skip.

        Raises:
            HudNotFound: The service has no such list (HUD).
        """
        asked = {"since": since, "offset": offset, "limit": RUNS}
        return await self.wire.get(self.rl("/v1/runs"), RunPage, asked)

    async def run_steps(self, run_id: str, after: int, keys: Sequence[str]) -> RunSteps:
        """The steps of a run after the first `after`, in columns (embedded service).

        Raises:
            HudNotFound: No such run, or no such endpoint (HUD).
        """
        asked: dict[str, str | int] = {"after": after, "keys": ",".join(keys)}
        return await self.wire.get(self.rl("/v1/runs/{}/steps", run_id), RunSteps, asked)

    async def rename_job(self, job_id: str, name: str) -> Job:
        """Rename a job, which also names its run. Sent once."""
        url, body = self.api("/v2/jobs/{}", job_id), RenameJob(name=name)
        change = Change("rename", "", job_id, after=name)

        async def find() -> Job | None:
            found = await self.job(job_id)
            return found if found.name == name else None

        return await self.wire.write("PATCH", url, Job, change, body, lookup=Lookup(find=find))

    async def job(self, job_id: str) -> Job:
        return await self.wire.get(self.api("/v2/jobs/{}", job_id), Job)

    async def trace_page(self, job_id: str, limit: int, offset: int) -> Page[Trace]:
        """A page of a job's traces in the order in which they began, with the total."""
        asked = {"limit": limit, "offset": offset}
        return await self.wire.get(self.api("/v2/jobs/{}/traces", job_id), Page[Trace], asked)

    async def job_traces(self, job_id: str, step: int | None = None) -> list[Trace]:
        """All of a job's traces; with `step`, those of one step.

        If the service cannot filter by step, the others are dropped here.
        """
        url = self.api("/v2/jobs/{}/traces", job_id)
        if step is None:
            return await self.pages(url, Trace, 1000)
        traces = await self.pages(url, Trace, 1000, params={"step": step})
        return [trace for trace in traces if trace.step == step]

    async def trace(self, trace_id: str) -> Trace:
        return await self.wire.get(self.api("/v2/trace/{}", trace_id), Trace)

    async def trace_events(self, trace_id: str) -> TraceEvents:
        """A rollout's turns: prompt, completion, tool calls."""
        url = self.api("/v2/trace/{}/events", trace_id)
        return await self.wire.get(url, TraceEvents, {"since_seq": -1})

    async def cancel_job(self, job_id: str) -> CancelJobResult:
        """Cancel a job between two rollouts. A job that has ended does not change. Sent once."""
        url = self.api("/v2/rollouts/cancel_job")
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

    async def submit_rollout(self, body: SubmitRollout) -> SubmittedRollout:
        """Have the service sample and grade one task. Sent once.

        Raises:
            HudRefused: 404 or 422: something is wrong with the model, the environment, the scenario
                or its args.
        """
        url = self.api("/v2/rollouts/submit")
        change = Change("rollout", subject=body.job_id, made="trace_id", omitted=ROLLOUT)

        async def find() -> SubmittedRollout | None:
            try:
                found = await self.trace(body.trace_id)
            except HudNotFound:
                return None
            status = found.status or ""
            return SubmittedRollout(job_id=body.job_id, trace_id=body.trace_id, status=status)

        lookup = Lookup(find=find)
        return await self.wire.write("POST", url, SubmittedRollout, change, body, lookup=lookup)

    async def chat(self, body: Chat, trace_id: str | None = None) -> ChatReply:
        """A completion by a model's head, or by the checkpoint that `body` pins. Sent once.

        Args:
            trace_id: The rollout it belongs to; the service stores its tokens under it.
        """
        url = f"{self.settings.gateway_url}/chat/completions"
        trace = {} if trace_id is None else {"Trace-Id": trace_id}
        return await self.wire.write("POST", url, ChatReply, None, body, TRAIN_S, trace)

    async def enter_job(self, job_id: str, body: JobEnter) -> None:
        """Report the start of an own job. Idempotent."""
        url, change = self.api("/v2/trace/job/{}/enter", job_id), Change("enter job", "", job_id)
        await self.wire.write("POST", url, Json, change, body)

    async def enter_trace(self, trace_id: str, body: TraceEnter) -> None:
        """Report the start of a rollout. Idempotent."""
        url, change = self.api("/v2/trace/{}/enter", trace_id), Change("enter trace", "", trace_id)
        await self.wire.write("POST", url, Json, change, body)

    async def exit_trace(self, trace_id: str, body: TraceExit) -> None:
        """Report the end of a rollout."""
        url, change = self.api("/v2/trace/{}/exit", trace_id), Change("exit trace", "", trace_id)
        await self.wire.write("POST", url, Json, change, body)

    # Tasksets and the environments their tasks name.

    async def tasksets(self) -> list[Taskset]:
        """The tasksets the service lists; empty if it has no such list (HUD)."""
        try:
            return await self.pages(self.api("/v2/tasksets"), Taskset)
        except HudRefused as error:
            if error.status in (404, 405):
                return []
            raise

    async def taskset(self, name: str) -> TasksetExport:
        """A taskset's rows, by its name or id.

        Raises:
            HudNotFound: No such taskset.
        """
        try:
            url = self.api("/v2/tasksets/by-name/{}", name)
            id_ = (await self.wire.get(url, TasksetRef)).taskset_id
        except HudNotFound:
            id_ = canonical_id(name)
            if not id_:
                raise
        return await self.wire.get(self.api("/v2/tasksets/{}/export", id_), TasksetExport)

    async def upload(self, body: UploadTasks) -> UploadResult:
        """Create a taskset, or add and change rows of one. Sent once."""
        name = body.taskset_name or body.taskset_id or ""
        change = Change("upload", subject=name, made="taskset_id", omitted=("tasks",))
        hint = "upload them again: existing rows are not changed"
        lookup = Lookup[UploadResult](hint=hint)
        url = self.api("/v2/tasks/upload")
        return await self.wire.write("POST", url, UploadResult, change, body, lookup=lookup)

    async def environment(self, name: str) -> EnvironmentConfig | None:
        """An environment's configuration; None if it does not exist."""
        try:
            url = self.api("/environments/{}/mcp-config", name)
            return await self.wire.get(url, EnvironmentConfig)
        except HudNotFound:
            return None

    async def registry(self, search: str) -> list[RegistryItem]:
        """Environments whose names contain this text."""
        url = self.api("/v2/registry")
        return await self.pages(url, RegistryItem, 500, params={"search": search})

    async def scenarios(self, registry_id: str) -> list[ScenarioRecord]:
        """An environment's scenarios, with the schemas of their args."""
        url = self.api("/v2/registry/{}/scenarios", registry_id)
        return await self.wire.get(url, list[ScenarioRecord])


def _fill(path: str, names: tuple[str, ...]) -> str:
    return path.format(*(quote(name, safe="") for name in names))


def _same_name(one: str, other: str) -> bool:
    return " ".join(one.split()).casefold() == " ".join(other.split()).casefold()


def canonical_id(name: str) -> str:
    """The canonical form of a name that is a UUID; else empty."""
    try:
        return str(UUID(name))
    except ValueError:
        return ""


LOOKED_THROUGH = 1000
"""Number of newest jobs that are searched for a prefix."""


async def find_job(client: HudClient, ref: str) -> str:
    """The id of a job, found by id, prefix, or model (its latest run).

    Raises:
        HudUsage: None or several match; the hint lists ids.
    """
    try:
        return (await client.job(ref)).id
    except HudRefused as error:
        if error.status not in (400, 404, 405, 422):
            raise
    status = await client.known_job(ref)
    if status is not None:
        return status.id or ref
    return find_among(ref, await client.jobs(LOOKED_THROUGH)).id
