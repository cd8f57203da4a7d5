"""What is evaluated step by step: a selection, a bisection. Each is a file with the ids of the
evaluations that were made for it, so that it goes on where it stopped."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from pydantic import ConfigDict, Field

from hud_tui.change import UNNAMED, TaskSource
from hud_tui.client.kept_files import KeptFiles
from hud_tui.errors import HudError, HudUsage
from hud_tui.rl.evaluation import Scores
from hud_tui.rl.plan import TaskSplit
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.work import SUCCEEDED, Work, trouble
from hud_tui.storage import lock_of, write_atomic
from hud_tui.wire import Body, Evaluation, Group, Json, WorkState
from hud_tui.wire_runs import EvaluationParameters, SubmitEvaluation

if TYPE_CHECKING:
    from hud_tui.client.works import WorkClient


class Asked(Body):
    """What is asked of evaluations."""

    body: SubmitEvaluation
    """What is submitted for each of them, but for its checkpoint, samples and seed."""
    source: TaskSource = UNNAMED
    """What the tasks came from, for the command log."""
    environment: Json | None = None
    """How rollouts are made, if on an environment of the user's own."""

    def fresh(self, evaluations: Iterable[Evaluation]) -> "Asked":
        """The same with a seed that none of these evaluations has, unless it has one of its own:
        what led to a question is no evidence for its answer."""
        parameters = self.body.parameters
        if "seed" in parameters.model_fields_set:
            return self
        seed = 1 + max((evaluation.seed or 0 for evaluation in evaluations), default=0)
        parameters = parameters.model_copy(update={"seed": seed})
        body = self.body.model_copy(update={"parameters": parameters})
        return self.model_copy(update={"body": body})


class Record(Asked):
    """The content of a file."""

    model_config = ConfigDict(frozen=False)

    id: str = Field(default_factory=lambda: uuid4().hex)
    service: str
    """`HudClient.service_id` of the service that has the checkpoints."""
    created_at: float = Field(default_factory=time)
    """Unix seconds."""
    num_tasks: int
    budget: int
    """Most rollouts to be spent."""
    is_complete: bool = False
    """Whether all is sampled that is to be."""


R = TypeVar("R", bound=Record)


class RecordFiles(KeptFiles[R]):
    """The records of one kind that were begun on this machine."""

    def __init__(self, state: Path | None, folder: str, kind: type[R]) -> None:
        """`state`: the directory that has them; None: nothing is kept."""
        super().__init__(None if state is None else state / folder, kind)

    def newest(self, service: str, fits: Callable[[R], bool]) -> R | None:
        """The newest record of a service that fits."""
        matches = (record for record in self.all() if record.service == service and fits(record))
        return max(matches, key=lambda record: record.created_at, default=None)

    def keep(self, record: R) -> None:
        """Store a record. Raises HudUsage: it cannot be written."""
        file = self._file(record.id)
        try:
            write_atomic(file, record.model_dump_json())
        except OSError as error:
            raise HudUsage(f"{file} cannot be written: {error.strerror or error}") from error

    @contextmanager
    def driving(self, record: R) -> Iterator[None]:
        """Let no other process sample for it meanwhile; another may have until now, so the record
        becomes what is stored. Raises HudUsage: another one does, or it cannot be locked."""
        file = self._file(record.id)
        with lock_of(file.with_suffix(".lock"), "this sampling") as is_ours:
            if not is_ours:
                raise HudUsage("another hud-tui samples for this already", "wait for it")
            stored = self._read(file) or record
            for name in type(record).model_fields:
                setattr(record, name, getattr(stored, name))
            yield


class Sampler:
    """Makes the evaluations of records, and reads them."""

    def __init__(self, works: "WorkClient") -> None:
        self._works, self._evaluations = works, works.evaluations
        self._read: dict[str, WorkState] = {}
        """Finished evaluations with their rewards by task, by id."""

    async def count_tasks(self, model_id: str, body: SubmitEvaluation) -> int:
        """The number of tasks that an evaluation of a model would have. Raises HudUsage: there are
        none; HudReadOnly: nothing may be sampled; HudError: the service does not answer."""
        self._works.client.wire.guard.check("evaluate")
        if body.tasks is not None:
            return len(TaskSplit.of(read_rows(body.tasks)).chosen(body.split)[0])
        usual = await self._evaluations.usual_tasks(await self._works.client.model(model_id))
        if usual is None:
            raise HudUsage("say which tasks: no run of the model has any", "--source SOURCE")
        everything = usual.heldout + usual.train
        counts = {"heldout": usual.heldout, "train": usual.train, "all": everything}
        return counts[body.split] if body.split else usual.heldout or everything

    async def submit(
        self,
        record: Record,
        model_id: str,
        checkpoint_id: str | None,
        called: str,
        samples: int,
        seed: int,
    ) -> str:
        """Submit one evaluation; returns its id. `seed` is added to the record's. Raises as
        `Evaluations.submit` does."""
        asked = record.body.parameters
        parameters = EvaluationParameters(
            **asked.model_dump(exclude={"samples", "seed"}, exclude_none=True),
            samples=samples,
            seed=asked.seed + seed,
        )
        body = record.body.model_copy(
            update={"checkpoint_id": checkpoint_id, "parameters": parameters}
        )
        model = await self._works.client.model(model_id)
        begun = await self._evaluations.submit(
            model, body, called, record.source, record.environment
        )
        return begun.id

    async def follow(self, id_: str) -> AsyncGenerator[WorkState, None]:
        """Follow an evaluation to its end; one that was cut short is resumed. Raises HudError: it
        did not succeed."""
        now = await self._evaluations.get(id_, groups=False)
        if not Work.of(now).why_no_resume:
            await self._works.resume(id_)
        async with aclosing(self._works.follow(id_)) as followed:
            async for now in followed:
                yield now
        if now.status not in SUCCEEDED:
            what = f"evaluation {now.id} {now.status}"
            raise HudError(f"{what}: {trouble(now)}".rstrip(": "), "what is sampled is kept")

    async def scores(self, ids: Sequence[str]) -> Scores:
        """The rewards of finished evaluations of the same weights on the same tasks. Raises
        HudError: the service does not answer, or no longer has one."""
        groups, solved_at = list[Group](), 1.0
        for id_ in ids:
            if id_ not in self._read:
                evaluation = await self._evaluations.get(id_)
                if evaluation.result is None:  # under way, or cut short
                    continue
                self._read[id_] = evaluation
            groups += self._read[id_].groups
            solved_at = self._read[id_].parameters.get("solved_at", solved_at)
        return Scores.of(groups, solved_at)
