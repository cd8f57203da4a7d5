"""The wire: one pydantic model per JSON body, with the wire's own field names.

A response keeps fields that it does not know (``extra="allow"``): HUD's service sends more than its
SDK reads, and a newer server must not break an older client. A request forbids them, so a misspelt
field fails here and not on the server.

Here is what most commands read: models, checkpoints and jobs. What only some read or send is built
by the modules beside it: `hud_tui.wire_changes`, `wire_runs`, `wire_rollouts`, `wire_tasks` and
`wire_training`.

Source: the request and reply models of the public ``hud`` SDK, 0.6.21. Fields marked "embedded" are
sent by the embedded service only; they are None or empty on HUD.
"""

import sys
from array import array
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache, lru_cache
from itertools import accumulate
from math import copysign, isfinite, nan
from types import ModuleType
from typing import Annotated, Any, Generic, Self, TypeVar, cast, overload

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    GetCoreSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

T = TypeVar("T")


class _FailFast(FailFast):
    __hash__ = object.__hash__  # typing hashes the members of a union


HUGE = 1e100
"""A larger reward of a rollout is read as this one: no sum and no square of them overflows."""


def bounded(number: float) -> float:
    """A number from a service, a file or an environment, clamped to ±`HUGE`; NaN for infinities,
    which are no rewards."""
    if -HUGE <= number <= HUGE or number != number:
        return number
    return copysign(HUGE, number) if isfinite(number) else nan


def all_bounded(numbers: list[float]) -> list[float]:
    """The numbers, each as `bounded`."""
    # a NaN at the front fails both comparisons, any other one is passed over
    if not numbers or (min(numbers) >= -HUGE and max(numbers) <= HUGE):
        return numbers
    return [*map(bounded, numbers)]


MOST_COUNT = 2**62
"""A larger count is read as this one: JSON's integers have no end, floats have one."""


def _counted(number: int) -> int:
    return max(-MOST_COUNT, min(number, MOST_COUNT))


def _all_counted(numbers: list[int]) -> list[int]:
    if not numbers or (min(numbers) >= -MOST_COUNT and max(numbers) <= MOST_COUNT):
        return numbers
    return [*map(_counted, numbers)]


Count = Annotated[int, AfterValidator(_counted)]
Counts = Annotated[list[int], AfterValidator(_all_counted)]
Reward = Annotated[float, AfterValidator(bounded)]
Rewards = Annotated[list[float], AfterValidator(all_bounded)]
Many = Annotated[list[T], _FailFast()]
"""A list that may be long: validation stops at the first invalid item."""
Json = dict[str, Any]


def no_items() -> list[Any]:
    """An empty list, as a default. Pydantic looks at the signature of a factory, and that of `list`
    is a text for which Python builds its tokenizer: a fifth of the time to build `Checkpoint`."""
    return []


_NO_PLUGINS = ModuleType("pydantic.plugin._loader")
_NO_PLUGINS.get_plugins = tuple  # type: ignore[attr-defined]


@contextmanager
def without_plugins() -> Iterator[None]:
    """While a validator is built: pydantic looks for its plugins in every installed distribution,
    which takes longer than to build all that a command needs.

    Its only switch is a variable, which processes that are started meanwhile would inherit, and an
    environment of the user's may have plugins. So its module that looks for them is replaced, no
    longer than this: other libraries in this process may have some, too.
    """
    loader = _NO_PLUGINS.__name__
    replaced = sys.modules.get(loader)
    if replaced is _NO_PLUGINS:
        yield
        return
    sys.modules[loader] = _NO_PLUGINS
    try:
        yield
    finally:
        if replaced is None:
            sys.modules.pop(loader, None)
        else:
            sys.modules[loader] = replaced


@cache
def adapter(kind: Hashable) -> TypeAdapter[Any]:
    """The validator of a type, built on first use."""
    with without_plugins():
        validator = TypeAdapter(cast(Any, kind))
        validator.rebuild()  # if its models are built late, so is it
    return validator


def first_misfit(error: ValidationError) -> str:
    """The first field that does not fit and why, e.g. ``samples.0: Field required``; text of others
    that is not yet safe to print."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))


class Body(BaseModel):
    """What bodies and events have in common: they are immutable, and built when first used."""

    model_config = ConfigDict(frozen=True, protected_namespaces=(), defer_build=True)

    @classmethod
    def model_rebuild(cls, **how: Any) -> bool | None:
        """As pydantic, which calls this for the first value."""
        with without_plugins():
            return super().model_rebuild(**how)


class Response(Body):
    model_config = ConfigDict(extra="allow")


class Request(Body):
    model_config = ConfigDict(extra="forbid")


class OpenRequest(Request):
    """A request whose unknown fields are ignored: the SDK sends more than a service reads."""

    model_config = ConfigDict(extra="ignore")


class Page(Response, Generic[T]):
    """One page of a collection under /v2."""

    items: list[T]
    total: Count
    limit: Count = 0
    offset: Count = 0


class Identity(Response):
    """GET /v2/auth/me."""

    user_id: str
    team_id: str
    version: str = ""
    """Embedded: version of the service, and digest of its files."""
    build: str = ""
    data_id: str | None = None
    """Embedded: id of the data directory, by which its service is known wherever it runs."""
    key: str | None = None
    """Embedded: name of the caller's key, its role (`wire_access.Role`), and when it expires, Unix
    seconds."""
    role: str | None = None
    expires_at: float | None = None


# Checkpoints, evaluations, and the head.


class Group(Response):
    """The rollouts of one task in one step."""

    task_slug: str
    rewards: Rewards
    """Shape (G,), in the taskset's reward unit."""
    trace_ids: list[str] = Field(default_factory=no_items)
    """Shape (G,), in the order of `rewards`."""
    num_tokens: Counts = Field(default_factory=no_items)
    """Generated tokens of each rollout, shape (G,)."""


class PackedGroups(Sequence[Group]):
    """The groups of a step in a few bytes a rollout, because a run keeps those of all of its steps.
    A group is made when it is read."""

    __slots__ = ("_levels", "_rewards", "_slugs", "_stops", "_tokens", "_trace_ids")

    def __init__(self, groups: Sequence[Group]) -> None:
        """`groups`: all of them with trace ids and tokens, or none."""
        self._slugs = _shared(tuple(group.task_slug for group in groups))
        self._stops = _shared(tuple(accumulate(len(group.rewards) for group in groups)))
        self._levels, self._rewards = _coded([r for group in groups for r in group.rewards])
        self._tokens = _narrow("BHIQ", [count for group in groups for count in group.num_tokens])
        self._trace_ids = tuple(id_ for group in groups for id_ in group.trace_ids)

    def __len__(self) -> int:
        return len(self._slugs)

    @overload
    def __getitem__(self, index: int) -> Group: ...

    @overload
    def __getitem__(self, index: slice) -> list[Group]: ...

    def __getitem__(self, index: int | slice) -> Group | list[Group]:
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        number = range(len(self))[index]
        rollouts = slice(self._stops[number - 1] if number else 0, self._stops[number])
        return Group(
            task_slug=self._slugs[number],
            rewards=self._rewards_of(rollouts),
            trace_ids=list(self._trace_ids[rollouts]),
            num_tokens=list(self._tokens[rollouts]),
        )

    def _rewards_of(self, rollouts: slice) -> list[float]:
        own = self._rewards[rollouts]
        return [self._levels[level] for level in own] if self._levels else list(own)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def plain(self, left_out: Collection[str] = ()) -> list[Json]:
        """The groups as JSON has them, without these fields."""
        lists = {
            "rewards": self._rewards_of(slice(None)),
            "trace_ids": self._trace_ids,
            "num_tokens": self._tokens,
        }
        kept = [(name, values) for name, values in lists.items() if name not in left_out]
        starts = (0, *self._stops)
        return [
            {"task_slug": slug, **{name: list(values[start:stop]) for name, values in kept}}
            for slug, start, stop in zip(self._slugs, starts, self._stops, strict=False)
        ]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        listed = handler.generate_schema(list[Group])
        as_list = core_schema.wrap_serializer_function_ser_schema(
            _as_list,
            info_arg=True,
            schema=listed,
            return_schema=core_schema.list_schema(core_schema.dict_schema()),
        )
        return core_schema.no_info_after_validator_function(packed, listed, serialization=as_list)


def _as_list(
    groups: Sequence[Group], serialized: SerializerFunctionWrapHandler, info: SerializationInfo
) -> Any:
    """Packed groups without a value of pydantic for each, which takes five times as long."""
    exclude: Any = info.exclude or {}
    if isinstance(groups, PackedGroups) and not info.include and exclude.keys() <= {"__all__"}:
        return groups.plain(exclude.get("__all__", ()))
    return serialized(list(groups))


def packed(groups: list[Group]) -> Sequence[Group]:
    """The groups packed, unless some rollouts only have ids or tokens, or a newer service has sent
    more of them."""
    rollouts = [len(group.rewards) for group in groups]
    ids = [len(group.trace_ids) for group in groups]
    tokens = [len(group.num_tokens) for group in groups]
    ragged = any(any(counts) and counts != rollouts for counts in (ids, tokens))
    if ragged or any(group.model_extra for group in groups):
        return groups
    return PackedGroups(groups)


@lru_cache(256)
def _shared(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same tuple for equal ones: steps on the same tasks have the same slugs."""
    return values


_shared_levels = lru_cache(256)(tuple[float, ...])
"""As `_shared`, which would take the integers of one for the floats of another."""


@lru_cache(256)
def _shared_names(names: frozenset[str]) -> set[str]:
    return set(names)


class PackedMetrics(Mapping[str, float]):
    """The metrics of a step in eight bytes each: steps with the same metrics share their names."""

    __slots__ = ("_places", "_values")

    def __init__(self, metrics: Mapping[str, float]) -> None:
        self._places = _numbered(tuple(metrics))
        self._values = array("d", metrics.values())

    def __getitem__(self, name: str) -> float:
        return self._values[self._places[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(dict(self))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        mapped = handler.generate_schema(dict[str, float])
        as_dict = core_schema.plain_serializer_function_ser_schema(dict, return_schema=mapped)
        return core_schema.no_info_after_validator_function(cls, mapped, serialization=as_dict)


@lru_cache(256)
def _numbered(names: tuple[str, ...]) -> dict[str, int]:
    """The place of each name."""
    return {name: index for index, name in enumerate(names)}


FEW = 16
"""Most different rewards of a step whose rollouts take a byte each."""


def _coded(rewards: list[float]) -> tuple[tuple[float, ...], Sequence[Any]]:
    """The different rewards, which steps share, and the place of each rollout's own there; without
    them the rewards themselves, where many differ or two are equal and not the same."""
    levels = tuple(sorted(set(map(float, rewards))))
    is_exact = all(copysign(1.0, reward) > 0 for reward in rewards if not reward)
    if len(levels) > FEW or not is_exact or not isfinite(sum(levels)):
        return (), _narrow("fd", rewards)
    indices = {reward: index for index, reward in enumerate(levels)}
    return _shared_levels(levels), bytes(map(indices.__getitem__, rewards))


def _narrow(codes: str, numbers: list[Any]) -> Sequence[Any]:
    """Numbers in the first of these types of `array` that has them exactly."""
    for code in codes:
        with suppress(OverflowError):
            narrow = array(code, numbers)
            if narrow.tolist() == numbers:
                return narrow.tobytes() if code == "B" else narrow
    return tuple(numbers)


_NO_EXTRA: Json = {}
"""Of all rows without unknown fields."""


class JobError(Response):
    code: str | None = None
    message: str | None = None
    param: str | None = None


class Estimate(Response):
    """A mean over tasks with its 95 % interval, by bootstrap over the tasks."""

    value: float
    low: float | None = None
    """None if there is only one task; so is `high`."""
    high: float | None = None


class Evaluation(Response):
    """Result of evaluating a checkpoint's own weights on some tasks."""

    split: str = "heldout"
    """Tasks of the taskset: ``heldout``, ``train`` or ``all``."""
    mean_reward: float
    """Mean over all rollouts, in the taskset's reward unit."""
    num_tasks: Count
    num_traces: Count
    """Number of rollouts: tasks × samples per task."""
    job_id: str | None = None
    """The job of its rollouts."""
    created_at: str | None = None
    id: str | None = None
    """Id for requesting its rewards by task. Absent in old rows, as are all fields below."""
    samples: Count | None = None
    """Rollouts per task."""
    mean: Estimate | None = None
    """`mean_reward` with its interval."""
    pass_at: dict[int, Estimate] = Field(default_factory=dict)
    """pass@k by k, from 1 to `samples`: probability that one of k rollouts of a task solves it."""
    solved_at: float = 1.0
    """Reward from which a rollout counts as solved."""
    name: str | None = None
    """Name of the tasks, e.g. the taskset's."""
    tasks_digest: str | None = None
    """Hash of the tasks: equal for two evaluations on the same tasks."""
    max_tokens: Count | None = None
    """Maximum tokens of one answer."""
    temperature: float | None = None
    seed: Count | None = None
    """Evaluations of the same weights with the same seed have the same rollouts; None if the
    service does not support seeds."""

    @property
    def estimate(self) -> Estimate:
        """The mean reward, with its interval if there is one."""
        return self.mean or Estimate(value=self.mean_reward)

    @property
    def samples_per_task(self) -> int:
        """`samples`, at least 1; of an old row by the number of all rollouts."""
        return self.samples or max(1, self.num_traces // max(1, self.num_tasks))


class Checkpoint(Response):
    """A node of a model's checkpoint tree. Every optim-step appends one."""

    id: str
    name: str | None = None
    """E.g. ``step-000012``."""
    checkpoint_name: str | None = None
    """The sampler path, which the chat's ``checkpoint`` accepts (as it does an id)."""
    prev_model_checkpoint_id: str | None = None
    """The parent; None if the step started from the base weights."""
    is_active: bool = False
    """Whether this is the head, whose weights the gateway serves."""
    created_at: str | None = None
    num_traces: Count | None = None
    num_datums: Count | None = None
    num_tokens: Count | None = None
    num_discarded: Count | None = None
    """Embedded: rollouts of the run that were sampled for this step, and that no step was trained
    on, e.g. of a batch without variance."""
    mean_reward: float | None = None
    """Mean over the rollouts that the step was trained on, in the taskset's reward unit. They were
    sampled before the step, so this is the reward of the step, not of the checkpoint."""
    learning_rate: float | None = None
    loss_fn: str | None = None
    metrics: Annotated[Mapping[str, float], PackedMetrics] = Field(default_factory=dict)
    """The step's metrics; an open set of keys."""
    step: Count | None = None
    """Embedded: number of the optimizer step, counted over the whole tree from 1."""
    job_id: str | None = None
    """Embedded: the managed run that took the step."""
    tasks_digest: str | None = None
    """Embedded: hash of the run's tasks; equal for two steps on the same tasks."""
    groups: Annotated[Sequence[Group], PackedGroups] = Field(default_factory=no_items)
    """Embedded: the step's rewards by task."""
    state: str | None = None
    """Embedded: what is stored of it. ``full``; ``weights`` (can be served; training from it starts
    with fresh Adam moments); ``expired`` (nothing); ``damaged`` (its file is missing or was
    changed)."""
    pinned: bool = False
    """Embedded: whether its state is kept beyond the disk limit."""
    pinned_by: str | None = None
    """Embedded: name of the key by which it was pinned."""
    evaluations: list[Evaluation] = Field(default_factory=no_items)
    """Embedded: results of its evaluations, oldest first."""
    sampled_from: dict[str, int] | None = None
    """Embedded: how many of the step's rollouts were sampled by which checkpoint, by its id or
    ``base``; None if the parent sampled all whose sampler is known."""
    draw: str | None = None
    """Embedded: how the tasks of the step's batch were chosen. ``signal``: by what they were
    expected to teach, so that their mean reward is no estimate for the taskset; None: in turn."""

    @model_validator(mode="after")
    def _share_names(self) -> Self:
        """Most rows have the same fields: 2 kB of a row would be their names. Copies of a row have
        their own."""
        names = _shared_names(frozenset(self.model_fields_set))
        object.__setattr__(self, "__pydantic_fields_set__", names)
        if not self.model_extra:
            object.__setattr__(self, "__pydantic_extra__", _NO_EXTRA)
        if not self.evaluations:
            object.__setattr__(self, "evaluations", _NO_EVALUATIONS)
        return self


_NO_EVALUATIONS: list[Evaluation] = []
"""Of all rows without any."""


# Models, and the state of their engine and disk.


class Provider(Response):
    name: str | None = None


class TrainingDefaults(Response):
    """Default parameters of a run on this model."""

    learning_rate: float
    group_size: Count
    max_tokens: Count
    tasks_per_step: Count
    steps: Count


class Disk(Response):
    """A model's checkpoints on the service's disk, and what that has free (embedded)."""

    checkpoint_bytes: Count
    """Size of one checkpoint, as last measured."""
    used_bytes: Count
    """Used by the checkpoints of all models."""
    max_bytes: Count
    """Limit beyond which the oldest checkpoints are thinned out."""
    free_bytes: Count | None = None


class TokenPrices(Response):
    """US dollars per million tokens."""

    prompt: float
    sampled: float
    trained: float

    def sampling(self, prompt: float, sampled: float) -> float:
        """US dollars for rollouts of so many tokens that are not trained on."""
        return (prompt * self.prompt + sampled * self.sampled) / 1e6

    def cost(self, prompt: float, sampled: float) -> float:
        """US dollars for rollouts of so many tokens, each of which is trained on once."""
        return self.sampling(prompt, sampled) + (prompt + sampled) * self.trained / 1e6


class EngineState(Response):
    """The engine that samples and trains a model, and where."""

    engine: str
    """``tiny`` or ``tinker``."""
    server: str | None = None
    """URL of the server that has its weights; None for this machine."""
    place: str = ""
    """Display name of that server, e.g. ``gpubox · 2×H100``; empty: its URL is displayed."""
    queue: str = "active"
    """``active``, or what requests are waiting for, in words."""
    slots: Count = 0
    """Number of training runs that are open on the server."""
    ttl_s: Count | None = None
    """Seconds for which the server keeps a checkpoint; None: until it is deleted."""
    prices: TokenPrices | None = None
    """What the server charges, as far as the service was told; None if unknown."""
    saves_per_step: Count = 0
    """Number of checkpoints that each optimizer step stores on `server`, which may bill for them; 0
    without a server. The tree, metrics, rewards and rollouts are stored on this machine in either
    case; with a server, a checkpoint's local file only contains its path there."""


class Model(Response):
    """A row of the catalog, GET /v2/models; also the reply to a fork."""

    id: str
    model_name: str
    """The slug under which the gateway serves it."""
    name: str | None = None
    description: str | None = None
    """Embedded: what a base can do, what it cannot, and what training did to it."""
    sdk_agent_type: str | None = None
    is_trainable: bool = False
    provider: Provider | None = None
    created_at: str | None = None
    checkpoint_count: Count | None = None
    training_defaults: TrainingDefaults | None = None
    """Embedded."""
    base_model: str | None = None
    """Embedded: the base with the same architecture and vocabulary."""
    context_length: Count | None = None
    """Embedded: maximum tokens of prompt and answer together."""
    forked_from: str | None = None
    """Embedded: slug of the source, with ``@checkpoint-name`` if it had a head."""
    disk: Disk | None = None
    """Embedded; None if checkpoints are stored on a server (`engine.server`)."""
    engine: EngineState | None = None
    """Embedded."""
    by: str | None = None
    """Embedded: name of the key by which it was forked."""
    protected_by: str | None = None
    """Embedded: name of the key that protected it; its head moves by proposals."""


BASE = "base"
"""In place of a checkpoint: the weights that the model started from (embedded)."""


# Work: managed runs and evaluations, and jobs.


LATEST = 2e11
"""Unix seconds in the year 8307."""


def _unix_s(given: object) -> object:
    """Unix seconds of an ISO 8601 time; None for numbers that no calendar has; other values as they
    are."""
    if isinstance(given, str):
        return datetime.fromisoformat(given).timestamp()
    if isinstance(given, int | float) and not abs(given) < LATEST:
        return None
    return given


def _error(given: object) -> object:
    """An error that HUD sends as a text, as the others."""
    return (JobError(message=given) if given else None) if isinstance(given, str) else given


Moment = Annotated[float | None, BeforeValidator(_unix_s)]
Text = Annotated[str, BeforeValidator(lambda given: given or "")]


class WorkState(Response):
    """How a managed run or an evaluation stands: the reply of GET
    /v1/training/jobs/{model id or job id}/raw-status, of which HUD defines `status` to `error`, and
    of all calls of the embedded service on either. Its JSON has what its kind has."""

    status: str
    """HUD's words; the embedded service adds ``interrupted`` (resumable)."""
    model: str | None = None
    """Its slug."""
    fine_tuned_model: str | None = None
    created_at: Moment = None
    """Unix seconds, as the two below; in the JSON of an evaluation ISO 8601."""
    finished_at: Moment = None
    estimated_finish: float | None = None
    trained_tokens: Count | None = None
    """Embedded: generated tokens with a gradient, summed over all steps."""
    error: Annotated[JobError | None, BeforeValidator(_error)] = None
    id: Text = ""
    """Embedded, as are all fields below; also the id of the job with its rollouts."""
    kind: str = "training"
    """``training``; ``evaluation``; ``reported``: a training loop outside the service."""
    name: str | None = None
    """E.g. ``mixed on arith-rl``; of an evaluation, the name of its tasks."""
    model_id: Text = ""
    parameters: Annotated[Json, BeforeValidator(lambda given: given or {})] = Field(
        default_factory=dict
    )
    """Every parameter in use, including defaults."""
    by: str | None = None
    """Name of the key by which it was begun."""
    resumed_by: str | None = None
    """Name of the key by which it was resumed last, if that is another one: it counts for that."""
    driver: str | None = None
    """Machine and process that carry it out, e.g. ``laptop:4711``; None: the service does."""
    asked: str | None = None
    """``cancel``: its driver has been asked to stop but has not stopped yet."""
    # Of a run.
    step: Count | None = None
    """Steps taken so far, of `steps`."""
    step_s: float | None = None
    """Median seconds between its newest steps; `estimated_finish` goes by it."""
    steps: Count | None = None
    reason: str | None = None
    """Why it ended early without an error; after an error see `error`."""
    note: str | None = None
    """Why its step is being sampled again."""
    attempt: Count | None = None
    """Number of the next sampling of the next step, from 1."""
    waits: str | None = None
    """Why the engine's server delays it; None if it does not."""
    # Of an evaluation; those that `Evaluation` has too are as there.
    checkpoint_id: str | None = None
    """None for the weights that the model started from; so is `checkpoint`, its name."""
    checkpoint: str | None = None
    job_id: str | None = None
    """The run that requested it; else equal to `id`."""
    split: str = "heldout"
    samples: Count = 1
    num_tasks: Count = 0
    done: Count = 0
    """Number of finished rollouts, of `total`."""
    total: Count = 0
    mean_reward: float | None = None
    """Of the finished rollouts."""
    seconds: float | None = None
    """Duration of the finished rollouts, without waiting for other work; None if unknown."""
    result: Evaluation | None = None
    """None until it has succeeded."""
    groups: list[Group] = Field(default_factory=no_items)
    """Rewards by task of the finished rollouts; empty in lists and events."""

    @property
    def is_evaluation(self) -> bool:
        return self.kind == "evaluation"

    @model_serializer(mode="wrap")
    def _of_its_kind(self, handler: SerializerFunctionWrapHandler) -> Json:
        others = OF_A_RUN if self.is_evaluation else OF_AN_EVALUATION
        body = {name: value for name, value in handler(self).items() if name not in others}
        for name in ("created_at", "finished_at"):
            if self.is_evaluation and body.get(name) is not None:
                moment = datetime.fromtimestamp(body[name], UTC)
                body[name] = moment.isoformat(timespec="microseconds")
        return body


OF_A_RUN = frozenset(
    {
        *("fine_tuned_model", "estimated_finish", "trained_tokens"),
        *("step", "step_s", "steps", "reason", "note", "attempt", "waits"),
    }
)
OF_AN_EVALUATION = frozenset(
    {
        *("checkpoint_id", "checkpoint", "job_id", "split", "samples", "num_tasks", "done"),
        *("total", "mean_reward", "seconds", "result", "groups"),
    }
)


class Job(Response):
    """A row of GET /v2/jobs."""

    id: str
    name: str | None = None
    status: str | None = None
    created_at: str | None = None
    group_size: Count | None = None
    taskset_id: str | None = None
    taskset_name: str | None = None
    metadata: Json | None = None
    """Embedded, for managed runs: kind ``training``, model_id, model, step, steps, attempt,
    reason, and sampled_step: the newest step that rollouts were sampled for, whether or not it
    was taken."""
    num_traces: Count | None = None
    """Embedded: number of rollouts, including batches that were sampled again."""
    by: str | None = None
    """Embedded: name of the key by which it was begun."""
    resumed_by: str | None = None
    """Embedded: as in `WorkState`."""
