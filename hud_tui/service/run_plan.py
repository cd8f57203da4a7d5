"""The plan of a managed run: parameters with defaults, parsed rows, rendered prompts.

Everything that can be wrong with a submission is found here, before it is queued.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from hud_tui.errors import HudUsage
from hud_tui.parameters import USUAL
from hud_tui.rl.plan import TaskSplit
from hud_tui.rl.tasks.formats import read_rows
from hud_tui.rl.tasks.task import Task
from hud_tui.service.batches import check_loss
from hud_tui.service.engines.base import Base, EngineRefused, Tokenizer, loss_config
from hud_tui.service.environments import Scenario, find_scenario
from hud_tui.service.http import Refused, bad_field
from hud_tui.wire_runs import JobParameters

T = TypeVar("T")
UPDATE: Mapping[str, Any] = {
    name: USUAL[name]
    for name in ("reward_scale", "norm_adv_by_std", "beta1", "beta2", "eps", "weight_decay")
}
"""Default parameters of a step."""
EFFORT = {"low": 0.6, "medium": 1.0, "high": 2.0}
"""max_tokens of each reasoning_effort, in multiples of the base's default."""
MOST_TASKS = 10_000


@dataclass(frozen=True)
class Planned:
    """One task, ready to be sampled and graded."""

    index: int
    task: Task
    scenario: Scenario
    question: str
    prompt: Sequence[int]

    @property
    def slug(self) -> str:
        return self.task.slug

    @cached_property
    def heldout(self) -> bool:
        return self.task.heldout

    def grade(self, completion: str) -> float:
        return float(self.scenario.grade(self.task.args, completion))


@dataclass(frozen=True)
class Plan:
    parameters: Mapping[str, Any]
    """All parameters, by their wire names."""
    train: Sequence[Planned]
    heldout: Sequence[Planned]


def fill(asked: JobParameters, base: Base) -> dict[str, Any]:
    """All parameters of a run: the given ones, and the base's defaults. Raises Refused, 422, an
    unknown loss, or no room for a completion."""
    defaults = base.defaults
    effort = effort_tokens(asked.reasoning_effort, base)
    loss_fn = asked.loss_fn or str(USUAL["loss_fn"])
    filled = {
        "reasoning_effort": asked.reasoning_effort,
        "steps": asked.steps or defaults.steps,
        "group_size": asked.group_size or defaults.group_size,
        "tasks_per_step": asked.tasks_per_step or defaults.tasks_per_step,
        "learning_rate": asked.learning_rate or defaults.learning_rate,
        "loss_fn": loss_fn,
        "loss_fn_config": checked_config(loss_fn, asked.loss_fn_config, "config.parameters"),
        **{name: _or(getattr(asked, name), usual) for name, usual in UPDATE.items()},
        "temperature": asked.temperature or USUAL["temperature"],
        "max_tokens": min(asked.max_tokens or effort, base.context - 1),
        "seed": _or(asked.seed, USUAL["seed"]),
        "heldout_every": asked.heldout_every or USUAL["heldout_every"],
    }
    optional = {"draw", "eval_every", "eval_samples", "baseline", "max_staleness", "substeps"}
    optional |= {"kl_coef", "kl_reference"}
    chosen = asked.model_dump(include=optional)
    filled |= {name: value for name, value in chosen.items() if value is not None}
    return filled if asked.sweep is None else {**filled, "sweep": asked.sweep}


def checked_config(loss_fn: str, asked: Mapping[str, float] | None, field: str) -> dict[str, float]:
    """All keys of the loss's config. Raises Refused, 422: no such loss, key or value; it names what
    is wrong within `field`."""
    try:
        check_loss(loss_fn)
    except Refused as refused:
        raise bad_field(f"{field}.loss_fn", refused.detail[0]["msg"]) from refused
    try:
        return loss_config(loss_fn, asked)
    except EngineRefused as refused:
        raise bad_field(f"{field}.loss_fn_config", str(refused)) from refused


def _or(value: T | None, usual: T) -> T:
    return usual if value is None else value


def planned_before(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a run that an older version queued, with those that it did not have."""
    return {"loss_fn_config": None, **UPDATE, **parameters}


def effort_tokens(effort: str | None, base: Base) -> int:
    """max_tokens of a reasoning_effort; the base's default for None."""
    return round(base.defaults.max_tokens * EFFORT.get(effort or "", 1.0))


def make_plan(
    parameters: Mapping[str, Any], rows: Sequence[dict[str, Any]], base: Base, tokens: Tokenizer
) -> Plan:
    """Parse the rows and render every prompt. Raises Refused, 422, naming the row: unreadable,
    unknown environment or scenario, args that do not fit, a prompt beyond the context, a duplicate
    slug; or no training task."""
    split = TaskSplit.of(plan_tasks(rows, base, tokens, "dataset.tasks"))
    if not split.train:
        raise bad_field("dataset.tasks", "every row is held out: nothing to train on")
    return Plan(parameters, split.train, split.heldout)


def plan_tasks(
    rows: Sequence[dict[str, Any]], base: Base, tokens: Tokenizer, field: str
) -> list[Planned]:
    """Parse rows and render every prompt. Raises Refused as `make_plan`, with `field` in its
    name."""
    if len(rows) > MOST_TASKS:
        raise bad_field(field, f"{len(rows)} tasks: at most {MOST_TASKS} in one run")
    try:
        tasks = read_rows(rows)
    except HudUsage as error:
        raise bad_field(field, error.in_one) from error
    if twin := twin_of(tasks):
        raise bad_field(f"{field}.{twin[0]}.slug", twin[1])
    room = base.context - 1
    return [
        _plan_task(number, task, tokens, room, f"{field}.{number}")
        for number, task in enumerate(tasks)
    ]


def _plan_task(index: int, task: Task, tokens: Tokenizer, room: int, field: str) -> Planned:
    where = f"row {index + 1} ({task.slug})"
    try:
        scenario = find_scenario(task.env, task.scenario)
        question = scenario.prompt(task.args)
    except (LookupError, ValueError) as error:
        raise bad_field(field, f"{where}: {error}") from error
    prompt = tokens.render([{"role": "user", "content": question}])
    if len(prompt) > room:
        message = (
            f"{where}: the prompt's {len(prompt)} tokens leave no room for an answer in this"
            f" model's context of {room + 1}"
        )
        raise bad_field(field, message)
    return Planned(index, task, scenario, question, prompt)


def twin_of(tasks: Sequence[Task]) -> tuple[int, str] | None:
    """Index of the first row with the slug of another one, and what is wrong with it; None if there
    is none."""
    seen: dict[str, int] = {}
    for number, task in enumerate(tasks, 1):
        first = seen.setdefault(task.slug, number)
        if first != number:
            return number - 1, f"row {number}: slug {task.slug} is row {first}'s already"
    return None
