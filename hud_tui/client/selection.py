"""Selections: which of a few candidates to ship, and the rollouts spent on that.

A selection is a file with its candidates and the evaluations that were made for it, so that it goes
on where it stopped. Rounds follow from the budget; who goes on, from the finished evaluations.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from time import time
from typing import TYPE_CHECKING
from uuid import uuid4

from pydantic import BaseModel, Field, ValidationError

from hud_tui.audit_log import UNNAMED, TaskSource
from hud_tui.errors import HudError, HudUsage
from hud_tui.rl.checkpoint_tree import label
from hud_tui.rl.evaluation import Scores, evaluation_results
from hud_tui.rl.plan import TaskSplit
from hud_tui.rl.ship import Candidate, Ranking, Round, comparable, halving, survivors
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.work import SUCCEEDED, Work, trouble
from hud_tui.storage import held, read_regular, write_atomic
from hud_tui.wire import Checkpoint, Evaluation, Group, Json, Model, WorkState
from hud_tui.wire_runs import EvaluationParameters, SubmitEvaluation

if TYPE_CHECKING:
    from hud_tui.client.works import WorkClient

MOST_BYTES = 64 * 1024 * 1024
"""Maximum size of a file that is read."""
FOLDER = "selections"


class Entry(BaseModel, frozen=True):
    """A candidate: a checkpoint of a model."""

    model_id: str
    model: str
    """Its slug."""
    checkpoint_id: str | None
    """None for the weights that the model started from."""
    name: str

    @classmethod
    def of(cls, model: Model, node: Checkpoint | None, foreign: bool = False) -> "Entry":
        """`foreign`: whether the name begins with the model's."""
        name = f"{model.model_name}:{label(node)}" if foreign else label(node)
        id_ = None if node is None else node.id
        return cls(model_id=model.id, model=model.model_name, checkpoint_id=id_, name=name)

    @property
    def key(self) -> str:
        return f"{self.model_id} {self.checkpoint_id or ''}"


class Selection(BaseModel):
    """The content of a file."""

    id: str = Field(default_factory=lambda: uuid4().hex)
    service: str
    """`HudClient.service_id` of the service that has the candidates."""
    created_at: float = Field(default_factory=time)
    """Unix seconds."""
    entries: list[Entry]
    reference: int
    """Position of the candidate that the others are compared with."""
    body: SubmitEvaluation
    """What is submitted for each, but for its checkpoint, samples and seed."""
    environment: Json | None = None
    """How rollouts are made, if on an environment of the user's own."""
    num_tasks: int
    budget: int
    """Most rollouts to be spent."""
    evaluations: dict[str, list[str]] = Field(default_factory=dict)
    """Ids of the evaluations of each candidate, by its key; one for each of its rounds."""
    is_complete: bool = False
    """Whether all rounds are sampled."""

    @property
    def rounds(self) -> list[Round]:
        return halving(len(self.entries), self.num_tasks, self.budget)

    @property
    def planned(self) -> int:
        """Number of rollouts of all rounds."""
        return sum(each.candidates * each.samples for each in self.rounds) * self.num_tasks

    def evaluation(self, entry: Entry, number: int) -> str | None:
        """Id of a candidate's evaluation in a round; None if it has not begun."""
        ids = self.evaluations.get(entry.key, [])
        return ids[number] if number < len(ids) else None


class SelectionFiles:
    """The selections that were begun on this machine, one file each."""

    def __init__(self, state: Path | None) -> None:
        """`state`: the directory that has them; None: nothing is kept."""
        self._folder = None if state is None else state / FOLDER

    def newest(self, service: str, entries: Sequence[Entry]) -> Selection | None:
        """The newest selection among the same candidates; invalid files are skipped."""
        keys, matches = {entry.key for entry in entries}, list[Selection]()
        for file in () if self._folder is None else self._folder.glob("*.json"):
            try:
                selection = Selection.model_validate_json(read_regular(file, MOST_BYTES))
            except (OSError, ValueError, ValidationError):
                continue
            if selection.service == service and {e.key for e in selection.entries} == keys:
                matches.append(selection)
        return max(matches, key=lambda selection: selection.created_at, default=None)

    def keep(self, selection: Selection) -> None:
        """Store a selection. Raises HudUsage: it cannot be written."""
        file = self._file(selection.id)
        try:
            write_atomic(file, selection.model_dump_json())
        except OSError as error:
            raise HudUsage(f"{file} cannot be written: {error.strerror or error}") from error

    @contextmanager
    def driving(self, selection: Selection) -> Iterator[None]:
        """Let no other process sample for it meanwhile. Raises HudUsage: another one does."""
        file = self._file(selection.id)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with held(file.with_suffix(".lock")) as lock:
            if lock is None:
                raise HudUsage("another hud-tui samples for this selection", "wait for it")
            yield

    def _file(self, id_: str) -> Path:
        if self._folder is None:
            raise HudUsage("nothing is kept of this session", "start it with a --state-dir")
        return self._folder / f"{id_}.json"


class Selector:
    def __init__(self, works: "WorkClient", files: SelectionFiles) -> None:
        self.files = files
        self._works, self._evaluations = works, works.evaluations
        self._read: dict[str, WorkState] = {}
        """Finished evaluations with their rewards by task, by id."""

    async def known(self, entries: Sequence[Entry], reference: int) -> Ranking:
        """The candidates by the evaluations that there are, of whatever origin. Raises HudError:
        the service does not answer."""
        results = [await self._results(entry) for entry in entries]
        ids = comparable(results)
        return await self._ranking(entries, reference, ids)

    async def fresh(self, selection: Selection) -> Ranking:
        """The candidates by the evaluations that were made for the selection. Raises HudError: the
        service does not answer, or no longer has them."""
        ids = [selection.evaluations.get(entry.key, []) for entry in selection.entries]
        return await self._ranking(selection.entries, selection.reference, ids)

    async def newest(self, entries: Sequence[Entry]) -> Selection | None:
        """The newest selection among these candidates. Raises HudError: the service does not
        answer."""
        return self.files.newest(await self._works.client.service_id(), entries)

    async def begin(
        self,
        entries: Sequence[Entry],
        reference: int,
        body: SubmitEvaluation,
        budget: int,
        environment: Json | None = None,
    ) -> Selection:
        """A new selection, stored; its seed is one that none of the candidates was sampled with.

        Raises:
            HudUsage: The budget is too small, there are no tasks, or it cannot be stored.
            HudError: The service does not answer.
        """
        num_tasks = await self._count_tasks(entries[0], body)
        try:
            halving(len(entries), num_tasks, budget)
        except ValueError as error:
            raise HudUsage(f"a budget of {budget} is too small", str(error)) from None
        used = [e.seed for entry in entries for e in await self._results(entry) if e.seed]
        parameters = body.parameters
        if "seed" not in parameters.model_fields_set:
            parameters = parameters.model_copy(update={"seed": max(used, default=0) + 1})
        selection = Selection(
            service=await self._works.client.service_id(),
            entries=list(entries),
            reference=reference,
            body=body.model_copy(update={"parameters": parameters}),
            environment=environment,
            num_tasks=num_tasks,
            budget=budget,
        )
        self.files.keep(selection)
        return selection

    async def _count_tasks(self, entry: Entry, body: SubmitEvaluation) -> int:
        if body.tasks is not None:
            return len(TaskSplit.of(read_rows(body.tasks)).chosen(body.split)[0])
        model = await self._works.client.model(entry.model_id)
        usual = await self._evaluations.usual_tasks(model)
        if usual is None:
            raise HudUsage("say which tasks: no run of the model has any", "--source SOURCE")
        everything = usual.heldout + usual.train
        counts = {"heldout": usual.heldout, "train": usual.train, "all": everything}
        return counts[body.split] if body.split else usual.heldout or everything

    async def spend(
        self, selection: Selection, source: TaskSource = UNNAMED
    ) -> AsyncGenerator[WorkState, None]:
        """Sample round by round what is missing; yields the evaluation under way.

        Raises:
            HudUsage: Another process does so.
            HudError: The service refused, or an evaluation did not succeed.
        """
        with self.files.driving(selection):
            left = list(selection.entries)
            for number, each in enumerate(selection.rounds):
                if len(left) > each.candidates:
                    left = await self._better(selection, left, each.candidates, number)
                for entry in left:
                    evaluating = self._evaluated(selection, entry, number, each.samples, source)
                    async with aclosing(evaluating) as states:
                        async for now in states:
                            yield now
            selection.is_complete = True
            self.files.keep(selection)

    async def _evaluated(
        self, selection: Selection, entry: Entry, number: int, samples: int, source: TaskSource
    ) -> AsyncGenerator[WorkState, None]:
        """One candidate's evaluation of a round, begun or resumed, and followed to its end."""
        id_ = selection.evaluation(entry, number)
        if id_ is None:
            id_ = await self._submit(selection, entry, number, samples, source)
        elif not Work.of(now := await self._evaluations.get(id_, groups=False)).why_no_resume:
            await self._works.resume(now.id)
        async with aclosing(self._works.follow(id_)) as followed:
            async for now in followed:
                yield now
        if now.status not in SUCCEEDED:
            what = f"evaluation {now.id} of {entry.name} {now.status}"
            raise HudError(f"{what}: {trouble(now)}".rstrip(": "), "what is sampled is kept")

    async def _submit(
        self, selection: Selection, entry: Entry, number: int, samples: int, source: TaskSource
    ) -> str:
        asked = selection.body.parameters
        parameters = EvaluationParameters(
            **asked.model_dump(exclude={"samples", "seed"}, exclude_none=True),
            samples=samples,
            seed=asked.seed + number,
        )
        body = selection.body.model_copy(
            update={"checkpoint_id": entry.checkpoint_id, "parameters": parameters}
        )
        model = await self._works.client.model(entry.model_id)
        begun = await self._evaluations.submit(
            model, body, entry.name, source, selection.environment
        )
        selection.evaluations.setdefault(entry.key, []).append(begun.id)
        self.files.keep(selection)
        return begun.id

    async def _better(
        self, selection: Selection, left: Sequence[Entry], count: int, rounds: int
    ) -> list[Entry]:
        """The candidates that go on after so many rounds."""
        scores = {
            entry.key: await self._scores(selection.evaluations[entry.key][:rounds])
            for entry in left
        }
        keys = survivors(scores, count)
        return [entry for entry in left if entry.key in keys]

    async def _results(self, entry: Entry) -> list[Evaluation]:
        """The results of a candidate's evaluations, oldest first."""
        model = await self._works.client.model(entry.model_id)
        nodes = await self._works.client.checkpoints(model.id)
        jobs = await self._evaluations.of_model(model)
        results = evaluation_results(nodes, jobs)
        return [r.evaluation for r in results if r.checkpoint_id == entry.checkpoint_id]

    async def _ranking(
        self, entries: Sequence[Entry], reference: int, ids: Sequence[Sequence[str]]
    ) -> Ranking:
        scored = [
            Candidate(entry.name, await self._scores(own) if own else None)
            for entry, own in zip(entries, ids, strict=True)
        ]
        return Ranking(tuple(scored), reference)

    async def _scores(self, ids: Sequence[str]) -> Scores:
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
