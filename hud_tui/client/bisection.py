"""Bisections of lineages: the evaluations that find the step that did the damage."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from hud_tui.client.records import Asked, Record, RecordFiles, Sampler
from hud_tui.errors import HudUsage
from hud_tui.rl.bisect import FIRST, Bisection
from hud_tui.rl.checkpoint_tree import Tree, label
from hud_tui.wire import Body, Model, WorkState, no_items

if TYPE_CHECKING:
    from hud_tui.client.works import WorkClient


class Made(Body):
    """An evaluation that was begun."""

    position: int
    """In the lineage."""
    id: str


class Lineage(Record):
    """The content of a file: a lineage that is bisected."""

    model_id: str
    model: str
    """Its slug."""
    path: list[str | None]
    """Ids of the checkpoints from the good one to the bad one; None for the weights that the model
    started from."""
    names: list[str]
    evaluations: list[Made] = Field(default_factory=no_items)

    def ids(self, position: int) -> list[str]:
        return [made.id for made in self.evaluations if made.position == position]


class Bisector:
    def __init__(self, works: "WorkClient", state: Path | None) -> None:
        self.works, self._sampler = works, Sampler(works)
        self.files = RecordFiles(state, "bisections", Lineage)

    async def newest(self, model: Model, path: Sequence[str | None]) -> Lineage | None:
        """The newest bisection of this lineage. Raises HudError: the service does not answer."""
        service = await self.works.client.service_id()
        return self.files.newest(
            service, lambda made: (made.model_id, made.path) == (model.id, list(path))
        )

    async def begin(
        self, model: Model, tree: Tree, positions: Sequence[int], asked: Asked, budget: int
    ) -> Lineage:
        """A new bisection, stored.

        Args:
            positions: From the good one to the bad one, as `path_between` gives them.

        Raises:
            HudUsage: The budget is too small, there are no tasks, or it cannot be stored.
            HudError: The service does not answer.
        """
        num_tasks = await self._sampler.count_tasks(model.id, asked.body)
        least = 2 * FIRST * num_tasks
        if budget < least or not num_tasks:
            what = f"{num_tasks} tasks of the good and the bad one: at least {least} rollouts"
            raise HudUsage(f"a budget of {budget} is too small", what)
        nodes = [tree.node(position) for position in positions]
        evaluated = (tree.base_evaluations, *(node.evaluations for node in nodes if node))
        fresh = asked.fresh(e for evaluations in evaluated for e in evaluations)
        lineage = Lineage(
            service=await self.works.client.service_id(),
            model_id=model.id,
            model=model.model_name,
            path=[None if node is None else node.id for node in nodes],
            names=[label(node) for node in nodes],
            **dict(fresh),
            num_tasks=num_tasks,
            budget=budget,
        )
        self.files.keep(lineage)
        return lineage

    async def state(self, lineage: Lineage) -> Bisection:
        """What its finished evaluations say. Raises HudError: the service does not answer, or no
        longer has one."""
        positions = sorted({made.position for made in lineage.evaluations})
        scores = {p: await self._sampler.scores(lineage.ids(p)) for p in positions}
        sampled = {position: each for position, each in scores.items() if each.tasks}
        return Bisection(len(lineage.path), sampled)

    async def spend(self, lineage: Lineage) -> AsyncGenerator[WorkState, None]:
        """Evaluate what tells the most until it is decided; yields the evaluation under way.

        Raises:
            HudUsage: Another process does so.
            HudError: The service refused, or an evaluation did not succeed.
        """
        with self.files.driving(lineage):
            while True:
                for made in lineage.evaluations[-2:]:  # those that may have been cut short
                    async with aclosing(self._sampler.follow(made.id)) as states:
                        async for now in states:
                            yield now
                asks = (await self.state(lineage)).asks(lineage.budget)
                for ask in asks:
                    id_ = await self._sampler.submit(
                        lineage,
                        lineage.model_id,
                        lineage.path[ask.position],
                        lineage.names[ask.position],
                        ask.samples,
                        len(lineage.ids(ask.position)),
                    )
                    lineage.evaluations.append(Made(position=ask.position, id=id_))
                    self.files.keep(lineage)
                if not asks:
                    break
            lineage.is_complete = True
            self.files.keep(lineage)
