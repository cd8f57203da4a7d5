"""Selections: which of a few candidates to ship, and the rollouts spent on that.

Rounds follow from the budget; who goes on, from the finished evaluations.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from hud_tui.client.records import Asked, Record, RecordFiles, Sampler
from hud_tui.errors import HudUsage
from hud_tui.rl.checkpoint_tree import Tree, label
from hud_tui.rl.evaluation import EvaluationResult, evaluation_results
from hud_tui.rl.ship import (
    Candidate,
    Ranking,
    Round,
    comparable,
    halving,
    rounds_text,
    survivors,
    usual_candidates,
)
from hud_tui.rl.text import counted, seconds
from hud_tui.wire import Body, Checkpoint, Evaluation, Model, WorkState

if TYPE_CHECKING:
    from hud_tui.client.works import WorkClient


class Entry(Body):
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


class Selection(Record):
    """The content of a file."""

    entries: list[Entry]
    reference: int
    """Position of the candidate that the others are compared with."""
    evaluations: dict[str, list[str]] = Field(default_factory=dict)
    """Ids of the evaluations of each candidate, by its key; one for each of its rounds."""

    @property
    def rounds(self) -> list[Round]:
        return halving(len(self.entries), self.num_tasks, self.budget)

    @property
    def planned(self) -> int:
        """Number of rollouts of all rounds."""
        return sum(each.candidates * each.samples for each in self.rounds) * self.num_tasks

    @property
    def spent_text(self) -> str:
        """E.g. ``576 fresh rollouts: 3 candidates × 2 rollouts of each task, then 2 × 5.``"""
        return f"{counted(self.planned, 'fresh rollout')}: {rounds_text(self.rounds)}."

    def evaluation(self, entry: Entry, number: int) -> str | None:
        """Id of a candidate's evaluation in a round; None if it has not begun."""
        ids = self.evaluations.get(entry.key, [])
        return ids[number] if number < len(ids) else None


class Selector:
    def __init__(self, works: "WorkClient", state: Path | None) -> None:
        self.works, self._sampler = works, Sampler(works)
        self.files = RecordFiles(state, "selections", Selection)

    async def known(self, entries: Sequence[Entry], reference: int) -> Ranking:
        """The candidates by the evaluations that there are, of whatever origin. Raises HudError:
        the service does not answer."""
        results = await self._results(entries)
        return await self._ranking(entries, reference, comparable(results))

    async def fresh(self, selection: Selection) -> Ranking:
        """The candidates by the evaluations that were made for the selection. Raises HudError: the
        service does not answer, or no longer has them."""
        ids = [selection.evaluations.get(entry.key, []) for entry in selection.entries]
        return await self._ranking(selection.entries, selection.reference, ids)

    async def ranking(
        self, entries: Sequence[Entry], reference: int, selection: Selection | None
    ) -> Ranking:
        """The candidates, in the order given, by the rollouts of their selection; by the
        evaluations that there are while it has not sampled two of them. Raises HudError: as
        `fresh`."""
        if selection is not None:
            ids = [selection.evaluations.get(entry.key, []) for entry in entries]
            fresh = await self._ranking(entries, reference, ids)
            if fresh.leader is not None:
                return fresh
        return await self.known(entries, reference)

    async def newest(self, entries: Sequence[Entry]) -> Selection | None:
        """The newest selection among these candidates. Raises HudError: the service does not
        answer."""
        keys = {entry.key for entry in entries}
        service = await self.works.client.service_id()
        return self.files.newest(service, lambda made: {e.key for e in made.entries} == keys)

    async def usual(self, model: Model, tree: Tree, trained_since: bool = False) -> list[Entry]:
        """Who is compared if nobody is named: the candidates of the newest selection among the
        model's checkpoints, because ☆ may have moved with its rollouts; else those of
        `usual_candidates`. Raises HudError: the service does not answer. `trained_since`: whether
        the selection counts also if steps were taken after it."""
        service, stamp = await self.works.client.service_id(), 0.0
        newest = self.files.newest(
            service, lambda made: {entry.model_id for entry in made.entries} == {model.id}
        )
        if len(tree) and not trained_since:
            stamp = seconds(tree[len(tree) - 1].created_at) or 0.0
        if newest is not None and newest.created_at >= stamp:
            return newest.entries
        return [Entry.of(model, tree.node(position)) for position in usual_candidates(tree)]

    async def begin(
        self, entries: Sequence[Entry], reference: int, asked: Asked, budget: int
    ) -> Selection:
        """A new selection, stored; its seed is one that none of the candidates was sampled with.

        Raises:
            HudUsage: The budget is too small, there are no tasks, or it cannot be stored.
            HudError: The service does not answer, or nothing may be sampled.
        """
        num_tasks = await self._sampler.count_tasks(entries[0].model_id, asked.body)
        try:
            halving(len(entries), num_tasks, budget)
        except ValueError as error:
            raise HudUsage(f"a budget of {budget} is too small", str(error)) from None
        fresh = asked.fresh(e for results in await self._results(entries) for e in results)
        selection = Selection(
            service=await self.works.client.service_id(),
            entries=list(entries),
            reference=reference,
            **dict(fresh),
            num_tasks=num_tasks,
            budget=budget,
        )
        self.files.keep(selection)
        return selection

    async def spend(self, selection: Selection) -> AsyncGenerator[WorkState, None]:
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
                    id_ = selection.evaluation(entry, number)
                    if id_ is None:
                        id_ = await self._sampler.submit(
                            selection,
                            entry.model_id,
                            entry.checkpoint_id,
                            entry.name,
                            each.samples,
                            number,
                        )
                        selection.evaluations.setdefault(entry.key, []).append(id_)
                        self.files.keep(selection)
                    async with aclosing(self._sampler.follow(id_)) as states:
                        async for now in states:
                            yield now
            selection.is_complete = True
            self.files.keep(selection)

    async def _better(
        self, selection: Selection, left: Sequence[Entry], count: int, rounds: int
    ) -> list[Entry]:
        """The candidates that go on after so many rounds."""
        scores = {
            entry.key: await self._sampler.scores(selection.evaluations[entry.key][:rounds])
            for entry in left
        }
        keys = survivors(scores, count)
        return [entry for entry in left if entry.key in keys]

    async def _results(self, entries: Sequence[Entry]) -> list[list[Evaluation]]:
        """The results of the evaluations of each candidate, oldest first."""
        by_model: dict[str, list[EvaluationResult]] = {}
        for id_ in dict.fromkeys(entry.model_id for entry in entries):
            model = await self.works.client.model(id_)
            jobs = await self.works.evaluations.of_model(model)
            by_model[id_] = evaluation_results(await self.works.client.checkpoints(id_), jobs)
        return [
            [r.evaluation for r in by_model[e.model_id] if r.checkpoint_id == e.checkpoint_id]
            for e in entries
        ]

    async def _ranking(
        self, entries: Sequence[Entry], reference: int, ids: Sequence[Sequence[str]]
    ) -> Ranking:
        scored = [
            Candidate(entry.name, await self._sampler.scores(own) if own else None)
            for entry, own in zip(entries, ids, strict=True)
        ]
        return Ranking(tuple(scored), reference)
