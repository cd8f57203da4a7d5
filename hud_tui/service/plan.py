"""What a managed run will do: its parameters filled in, its rows read, every prompt rendered.

All that can be wrong with a submission is found here, before anything is queued.

Rollout j of task t in iteration i of seed s is sampled with the generator (s, i, t, j), so
it is the same whatever else runs. Tasks come in seeded epochs: a permutation is dealt out
in whole batches, and what is left over waits for the next one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hud_tui.errors import HudUsage
from hud_tui.rl.formats import read_rows
from hud_tui.rl.tasks import Task
from hud_tui.service.batches import check_loss
from hud_tui.service.engines.base import Base, Tokenizer
from hud_tui.service.environments import ENVIRONMENTS, Scenario
from hud_tui.service.refusals import Refused, bad_field
from hud_tui.wire import JobParameters

EFFORT = {"low": 0.6, "medium": 1.0, "high": 2.0}
"""max_tokens of each reasoning_effort, in those that the base starts from."""
MOST_TASKS = 10_000
HELDOUT_EVERY = 5


@dataclass(frozen=True)
class Planned:
    """One task, ready to be sampled and graded."""

    index: int
    task: Task
    scenario: Scenario
    question: str
    prompt: Sequence[int]

    def grade(self, completion: str) -> float:
        return float(self.scenario.grade(self.task.args, completion))


@dataclass(frozen=True)
class Plan:
    parameters: Mapping[str, Any]
    """Every parameter by the wire's name, none missing."""
    train: Sequence[Planned]
    heldout: Sequence[Planned]

    def tasks_of(self, iteration: int) -> list[Planned]:
        """The training tasks of one iteration, from 0; none comes twice."""
        count = min(self.parameters["tasks_per_step"], len(self.train))
        epoch, place = divmod(iteration, len(self.train) // count)
        order = list(range(len(self.train)))
        Random(f"{self.parameters['seed']} {epoch}").shuffle(order)
        return [self.train[i] for i in order[place * count : (place + 1) * count]]

    def heldout_of(self, iteration: int, last: bool) -> Sequence[Planned]:
        """The held-out tasks that are sampled in this iteration: all, or none."""
        due = last or iteration % self.parameters["heldout_every"] == 0
        return self.heldout if due else ()


def fill(given: JobParameters, base: Base) -> dict[str, Any]:
    """Every parameter of a run: as given, else the base's default.

    Raises:
        Refused: 422, an unknown loss, or no room for a completion.
    """
    defaults = base.defaults
    effort = effort_tokens(given.reasoning_effort, base)
    loss_fn = given.loss_fn or "importance_sampling"
    filled = {
        "reasoning_effort": given.reasoning_effort,
        "steps": given.steps or defaults.steps,
        "group_size": given.group_size or defaults.group_size,
        "tasks_per_step": given.tasks_per_step or defaults.tasks_per_step,
        "learning_rate": given.learning_rate or defaults.learning_rate,
        "loss_fn": loss_fn,
        "temperature": given.temperature or 1.0,
        "max_tokens": min(given.max_tokens or effort, base.context - 1),
        "seed": given.seed or 0,
        "heldout_every": given.heldout_every or HELDOUT_EVERY,
    }
    try:
        check_loss(loss_fn)
    except Refused as refused:
        raise bad_field("config.parameters.loss_fn", refused.detail[0]["msg"]) from refused
    return filled


def effort_tokens(effort: str | None, base: Base) -> int:
    """max_tokens of a reasoning_effort; the base's own where there is none."""
    return round(base.defaults.max_tokens * EFFORT.get(effort or "", 1.0))


def make_plan(
    parameters: Mapping[str, Any], rows: Sequence[dict[str, Any]], base: Base, tokens: Tokenizer
) -> Plan:
    """Read the rows and render every prompt.

    Raises:
        Refused: 422, naming the row: unreadable, unknown environment or scenario, args
            that do not fit, a prompt beyond the context, a slug twice; or none to train on.
    """
    if len(rows) > MOST_TASKS:
        raise bad_field("dataset.tasks", f"{len(rows)} tasks: at most {MOST_TASKS} in one run")
    try:
        tasks = read_rows(rows)
    except HudUsage as error:
        raise bad_field("dataset.tasks", f"{error.message} ({error.hint})") from error
    _refuse_twins(tasks)
    room = base.context - 1
    planned = [_plan_task(number, task, tokens, room) for number, task in enumerate(tasks)]
    train = [one for one in planned if not one.task.heldout]
    if not train:
        raise bad_field("dataset.tasks", "every row is held out: nothing to train on")
    return Plan(parameters, train, [one for one in planned if one.task.heldout])


def _plan_task(index: int, task: Task, tokens: Tokenizer, room: int) -> Planned:
    field = f"dataset.tasks.{index}"
    where = f"row {index + 1} ({task.slug})"
    environment = ENVIRONMENTS.get(task.env)
    if environment is None:
        known = ", ".join(ENVIRONMENTS)
        raise bad_field(field, f"{where}: no such environment: {task.env}; this has {known}")
    scenario = environment.scenarios.get(task.scenario)
    if scenario is None:
        known = ", ".join(environment.scenarios)
        message = f"{where}: {task.env} has no scenario {task.scenario}; it has {known}"
        raise bad_field(field, message)
    try:
        question = scenario.prompt(task.args)
    except ValueError as error:
        raise bad_field(field, f"{where}: {error}") from error
    prompt = tokens.render([{"role": "user", "content": question}])
    if len(prompt) > room:
        message = (
            f"{where}: the prompt's {len(prompt)} tokens leave no room for an answer in this"
            f" model's context of {room + 1}"
        )
        raise bad_field(field, message)
    return Planned(index, task, scenario, question, prompt)


def _refuse_twins(tasks: Sequence[Task]) -> None:
    seen: dict[str, int] = {}
    for number, task in enumerate(tasks, 1):
        first = seen.setdefault(task.slug, number)
        if first != number:
            message = f"row {number}: slug {task.slug} is row {first}'s already"
            raise bad_field(f"dataset.tasks.{number - 1}.slug", message)
