"""Every parameter of a run, an evaluation, a sweep, and of rollouts on an environment: a row each.

A row is a field: its name, type and default, and a `Parameter` with its bounds, meaning and takers.
All that takes, checks, sends, shows or documents a parameter is made from its row: the models that
are sent and stored, the flags, the app's form, comparisons, the command log, docs/parameters.md.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from math import inf
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

LARGEST = 2**63 - 1
"""The largest integer that all parts of a service can store."""
COOLEST = 0.01
"""The lowest temperature of sampling."""
OF_MODEL = "the model's"
"""The default of what each model has a default of its own for."""

Kind = Literal["whole", "number", "text", "choice", "switch", "config", "words"]
"""What is typed: a whole number or any, a text, one of some words, yes or no, ``KEY=NUMBER`` pairs,
several words."""
InForm = Literal["", "filled", "empty", "folded"]
"""Where the app's form has it: nowhere; in sight, with its default or empty; behind the fold, where
empty leaves the value to the service."""

RUN, TRAIN, EVAL, SWEEP, PLAY = "run", "train", "eval", "sweep", "play"
"""Commands that take parameters."""
ROLLOUTS = (TRAIN, EVAL)
PLAYED = (*ROLLOUTS, PLAY)


def flag_of(name: str) -> str:
    """The flag of a wire name, e.g. ``--group-size``."""
    return f"--{name.replace('_', '-')}"


@dataclass(frozen=True, eq=False, repr=False)
class Parameter:
    """One parameter; name, kind and default are those of its field."""

    meaning: str
    """What it is, in a clause."""
    _: KW_ONLY
    takers: tuple[str, ...] = (RUN, TRAIN)
    """Commands that have a flag for it."""
    metavar: str = ""
    """Empty: ``X`` of a number, else ``N``."""
    alias: str = ""
    """A second flag."""
    low: float = 0
    high: float | None = None
    """The largest number; None for LARGEST, the bound of all whole numbers."""
    above: bool = False
    """Whether `low` itself is not allowed."""
    below: bool = False
    """Whether `high` itself is not allowed."""
    usual: Any = None
    """The default, if that of the field is None."""
    choices: tuple[str, ...] = ()
    """What a text may be."""
    limits: str = ""
    """What is allowed, beside its field; empty for numbers that need no more than `range`."""
    example: str = ""
    label: str = ""
    """Display name, if it is not the name."""
    short: str = ""
    """A shorter display name, as of columns, if there is one."""
    unit: str = ""
    in_form: InForm = "folded"
    name: str = ""
    """Its wire name."""
    kind: Kind = "text"
    is_optional: bool = False
    """Whether its field in the form may be empty."""

    @property
    def flag(self) -> str:
        return flag_of(self.name)

    @property
    def title(self) -> str:
        """Display name, with its unit."""
        title = self.label or self.name.replace("_", " ")
        return f"{title} ({self.unit})" if self.unit else title

    @property
    def is_number(self) -> bool:
        return self.kind in ("whole", "number")

    @property
    def bounds(self) -> Mapping[str, float]:
        """The bounds of a number, by the names of the operators that hold."""
        low = {"gt" if self.above else "ge": self.low}
        high = LARGEST if self.high is None else self.high
        return low | {"lt" if self.below else "le": high}

    @property
    def range(self) -> str:
        """The allowed numbers, e.g. ``> 0 to 1``, ``at least 0`` or ``-1e6 to 1e6``."""
        if self.high is None:
            return f"{'> ' if self.above else 'at least '}{self._end(self.low)}"
        low = f"{'> ' * self.above}{self._end(self.low)}"
        return f"{low} to {'< ' * self.below}{self._end(self.high)}"

    def _end(self, end: float) -> str:
        return f"{end:.0f}" if self.kind == "whole" else f"{end:g}".replace("e+0", "e")

    @property
    def allowed(self) -> str:
        """What is allowed, beside its field."""
        return self.limits or (self.range if self.is_number else "")

    @property
    def usual_text(self) -> str:
        """The default as text, e.g. ``.9``, ``off``; empty if there is none."""
        if self.usual in (None, (), {}):
            return ""
        if self.usual is False:
            return "off"
        if isinstance(self.usual, str):
            return self.usual
        text = f"{self.usual:g}".replace("e-0", "e-")
        return text.removeprefix("0") if "." in text else text

    @property
    def help(self) -> str:
        """The text of ``--help``."""
        *others, last = self.choices or ("",)
        choices = f": {', '.join(others)} or {last}" if self.choices else ""
        usual = f"; {'default: ' * isinstance(self.usual, str)}{self.usual_text}"
        return self.meaning + choices + (usual if self.usual_text else "")

    def read(self, text: str) -> int | float | None:
        """Parse a typed number; None if it is empty and optional.

        Raises:
            ValueError: Not a number, or out of bounds; the message is what is allowed.
        """
        if self.is_optional and not text:
            return None
        is_whole = self.kind == "whole"
        try:
            value = int(text.replace(" ", "").replace("_", "")) if is_whole else float(text)
        except ValueError:
            raise ValueError(self.allowed) from None
        if not self.includes(value):
            raise ValueError(self.allowed)
        return value

    def includes(self, value: float) -> bool:
        """Whether a number is within the bounds; NaN is not."""
        return all(getattr(operator, name)(value, end) for name, end in self.bounds.items())

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """Makes models refuse numbers out of bounds."""
        schema = handler(source)
        number = schema["schema"] if schema["type"] == "nullable" else schema
        if number["type"] in ("int", "float"):
            number.update(self.bounds)
        return schema


# The rows, in the order of flags, fields and documents.


MAX_TOKENS = Parameter(
    "most tokens of one answer, or of one turn", low=1, usual=OF_MODEL, example="256"
)
TEMPERATURE = Parameter(
    "of the rollouts", low=COOLEST, high=5, example="1", short="temp", in_form="filled"
)


@dataclass(kw_only=True, init=False, eq=False, repr=False)
class RunRows:
    """Of a run's steps, and of its evaluations. None is not sent: the service decides."""

    steps: Annotated[
        int | None,
        Parameter(
            "optimizer steps", low=1, high=100_000, usual=OF_MODEL, example="60", in_form="filled"
        ),
    ] = None
    group_size: Annotated[
        int | None,
        Parameter(
            "rollouts per task and step",
            low=2,
            high=256,
            usual=OF_MODEL,
            example="8",
            short="group",
            in_form="filled",
        ),
    ] = None
    tasks_per_step: Annotated[
        int | None,
        Parameter(
            "groups per step",
            low=1,
            high=1024,
            usual=OF_MODEL,
            example="16",
            short="tasks",
            in_form="filled",
        ),
    ] = None
    learning_rate: Annotated[
        float | None,
        Parameter(
            "Adam's",
            alias="--lr",
            above=True,
            high=1,
            usual=OF_MODEL,
            example="1e-4",
            short="lr",
            in_form="filled",
        ),
    ] = None
    loss_fn: Annotated[
        str | None,
        Parameter(
            "the loss, e.g. ppo, cispo or dro",
            metavar="NAME",
            usual="importance_sampling",
            label="loss",
            in_form="filled",
        ),
    ] = None
    loss_fn_config: Annotated[
        dict[str, float] | None,
        Parameter(
            "the loss's own keys, e.g. clip_high_threshold=1.28,clip_low_threshold=.8",
            metavar="KEY=X,…",
            usual={},
            limits="KEY=NUMBER, with commas",
            example="beta=0.05",
            label="loss config",
        ),
    ] = None
    reward_scale: Annotated[
        float | None,
        Parameter(
            "factor of advantages (cross_entropy: of rewards)",
            low=-1e6,
            high=1e6,
            usual=1.0,
            example="1",
            short="scale",
        ),
    ] = None
    norm_adv_by_std: Annotated[
        bool | None,
        Parameter(
            "divide a group's advantages by its rewards' standard deviation",
            takers=(RUN,),
            usual=False,
        ),
    ] = None
    """As GRPO does; off by default, because it overweights tasks that are too easy or too hard (Liu
    et al. 2025, arXiv:2503.20783)."""
    beta1: Annotated[
        float | None,
        Parameter(
            "Adam's", high=1, below=True, usual=0.9, example=".9", label="Adam beta1", short="beta1"
        ),
    ] = None
    beta2: Annotated[
        float | None,
        Parameter(
            "Adam's",
            high=1,
            below=True,
            usual=0.95,
            example=".95",
            label="Adam beta2",
            short="beta2",
        ),
    ] = None
    eps: Annotated[
        float | None,
        Parameter(
            "Adam's", low=1e-16, high=1, usual=1e-8, example="1e-8", label="Adam eps", short="eps"
        ),
    ] = None
    weight_decay: Annotated[
        float | None, Parameter("Adam's", high=10, usual=0.0, example=".01", short="decay")
    ] = None
    temperature: Annotated[float | None, replace(TEMPERATURE, usual=1.0)] = None
    max_tokens: Annotated[int | None, MAX_TOKENS] = None
    seed: Annotated[
        int | None,
        Parameter(
            "of the order of the tasks, and of a managed run's sampling",
            usual=0,
            example="0",
            in_form="filled",
        ),
    ] = None
    draw: Annotated[
        Literal["uniform", "signal"] | None,
        Parameter(
            "how a step's tasks are drawn: all in turn, or by what they are expected to teach",
            metavar="HOW",
            usual="uniform",
            example="signal",
            label="draw tasks",
            short="draw",
        ),
    ] = None
    heldout_every: Annotated[
        int | None,
        Parameter(
            "sample the held-out tasks every N steps",
            takers=(),
            low=1,
            usual=5,
            label="held-out every",
            in_form="",
        ),
    ] = None
    eval_every: Annotated[
        int | None,
        Parameter(
            "evaluate the newest checkpoint on the held-out tasks every N steps",
            low=1,
            example="5",
            in_form="empty",
        ),
    ] = None
    eval_samples: Annotated[
        int | None,
        Parameter(
            "rollouts per task of these evaluations, and of the one at the end",
            metavar="K",
            low=1,
            high=256,
            usual=1,
            example="4",
            in_form="empty",
        ),
    ] = None
    max_staleness: Annotated[
        int | None,
        Parameter(
            "sample up to N batches ahead, while another one is trained on",
            low=0,
            high=64,
            usual=0,
            example="1",
            label="max staleness",
            short="stale",
        ),
    ] = None
    substeps: Annotated[
        int | None,
        Parameter(
            "optimizer steps on each batch", metavar="K", low=1, high=64, usual=1, example="2"
        ),
    ] = None
    """From the second one on the batch is off-policy, which is when ppo's clip does something."""
    kl_coef: Annotated[
        float | None,
        Parameter(
            "penalty of each token for its distance from the reference, times this",
            high=100,
            usual=0.0,
            example=".01",
            label="KL coef",
            in_form="",
        ),
    ] = None
    kl_reference: Annotated[
        str | None,
        Parameter(
            "the reference: a checkpoint of the model",
            metavar="CHECKPOINT",
            usual="base",
            label="reference policy",
            in_form="",
        ),
    ] = None
    reasoning_effort: Annotated[
        Literal["low", "medium", "high"] | None,
        Parameter(
            "how long an answer may be",
            takers=(RUN,),
            metavar="X",
            label="effort",
            in_form="filled",
        ),
    ] = None
    """HUD defines this one only; on the embedded service it sets max_tokens."""
    baseline: Annotated[
        bool | None,
        Parameter(
            "evaluate what the first step is taken from, too",
            takers=(RUN,),
            usual=False,
            in_form="filled",
        ),
    ] = None


@dataclass(kw_only=True, init=False, eq=False, repr=False)
class EvaluationRows:
    """Of the rollouts of an evaluation."""

    samples: Annotated[
        int,
        Parameter(
            "rollouts per task",
            takers=(EVAL,),
            metavar="K",
            low=1,
            high=256,
            example="4",
            label="samples per task",
        ),
    ] = 4
    max_tokens: Annotated[int | None, replace(MAX_TOKENS, takers=(EVAL, PLAY))] = None
    temperature: Annotated[float, replace(TEMPERATURE, takers=(EVAL, PLAY))] = 1.0
    seed: Annotated[
        int,
        Parameter(
            "checkpoints with the same seed get the same random numbers",
            takers=(EVAL,),
            example="0",
        ),
    ] = 0
    """So that two checkpoints differ by their weights more than by chance."""
    solved_at: Annotated[
        float,
        Parameter(
            "the reward from which on a rollout counts as solved",
            takers=(EVAL,),
            low=-inf,
            high=inf,
            limits="any number",
            example="1",
        ),
    ] = 1.0


@dataclass(kw_only=True, init=False, eq=False, repr=False)
class RolloutRows:
    """How rollouts on an environment of one's own are made, and of which tasks."""

    turns: Annotated[
        int, Parameter("most turns of a rollout", takers=PLAYED, low=1, high=1000, example="10")
    ] = 10
    rollout_timeout: Annotated[
        float,
        Parameter(
            "seconds after which a rollout has failed",
            takers=PLAYED,
            metavar="S",
            above=True,
            high=86_400,
            example="300",
            label="timeout",
            unit="s",
        ),
    ] = 300.0
    at_once: Annotated[
        int,
        Parameter(
            "rollouts at a time",
            takers=ROLLOUTS,
            low=1,
            high=1024,
            example="8",
            label="rollouts at once",
        ),
    ] = 8
    memory_mb: Annotated[
        int,
        Parameter(
            "MB of memory that one rollout's processes may use, 0 for no limit",
            takers=PLAYED,
            limits="0: no limit",
            example="4096",
            label="memory",
            unit="MB",
        ),
    ] = 4096
    failed: Annotated[
        str,
        Parameter(
            "what a failed rollout does to its group, or to the run after N failures",
            takers=(TRAIN,),
            metavar="POLICY",
            choices=("drop", "resample", "stop:N"),
            limits="stop:N, resample or drop",
            label="on failure",
        ),
    ] = "drop"
    runtime: Annotated[
        str,
        Parameter(
            "where environments run",
            takers=PLAYED,
            metavar="WHERE",
            choices=("subprocess", "local", "docker:IMAGE", "tcp://HOST:PORT", "hud", "hosted"),
            limits="local|hud|hosted|docker|tcp",
            example="docker:IMAGE or tcp://HOST:PORT",
        ),
    ] = "subprocess"
    python: Annotated[
        str | None,
        Parameter(
            "interpreter that has the environment and hud, or its virtual environment",
            takers=PLAYED,
            metavar="PATH",
            usual="the .venv beside ENV, else uv run, else this one",
            limits="– or a path",
        ),
    ] = None
    env: Annotated[
        tuple[str, ...],
        Parameter(
            "a variable that the environment gets; its value is shown nowhere; may be given again",
            takers=PLAYED,
            metavar="NAME",
            limits="– or names, with commas",
            label="variables",
        ),
    ] = ()
    tasks: Annotated[
        str | None,
        Parameter(
            "task file, .py file or taskset",
            takers=PLAYED,
            metavar="SOURCE",
            usual="the tasks in the environment",
            limits="– or a file, a taskset",
        ),
    ] = None


@dataclass(kw_only=True, init=False, eq=False, repr=False)
class SweepRows:
    """Of a sweep."""

    at_once: Annotated[
        int,
        Parameter(
            "of a sweep (comma-separated values): concurrent runs, each on its own fork",
            takers=(RUN, SWEEP),
            low=1,
            high=64,
            example="2",
            label="runs at once",
            in_form="filled",
        ),
    ] = 2


KINDS: Mapping[object, Kind] = {
    **{int: "whole", float: "number", str: "text", bool: "switch"},
    **{Literal: "choice", dict: "config", tuple: "words"},
}
"""By type, or its origin."""


def rows_of(table: type) -> tuple[Parameter, ...]:
    """The rows of one of the classes above, with the names, kinds and defaults of their fields."""
    hints = get_type_hints(table, include_extras=True)
    return tuple(_row(f.name, f.default, *get_args(hints[f.name])) for f in fields(table))


def _row(name: str, default: object, type_: Any, row: Parameter) -> Parameter:
    if get_origin(type_) in (Union, UnionType):
        type_ = get_args(type_)[0]
    choices = get_args(type_) if get_origin(type_) is Literal else row.choices
    kind = KINDS[get_origin(type_) or type_]
    return replace(
        row,
        name=name,
        kind=kind,
        metavar=row.metavar or ("X" if kind == "number" else "N"),
        choices=choices,
        usual=row.usual if default is None else default,
        is_optional=default is None and row.in_form in ("empty", "folded"),
    )


RUN_PARAMETERS = rows_of(RunRows)
EVALUATION_PARAMETERS = rows_of(EvaluationRows)
ROLLOUT_OPTIONS = rows_of(RolloutRows)
(RUNS_AT_ONCE,) = rows_of(SweepRows)
RECORDED_PARAMETERS = {
    row.name: row for row in (*EVALUATION_PARAMETERS, *ROLLOUT_OPTIONS, *RUN_PARAMETERS)
}
"""What is recorded of runs and evaluations, by wire name; where two have a name, the run's."""
USUAL = {row.name: row.usual for row in RUN_PARAMETERS if row.usual not in (None, OF_MODEL)}
"""Defaults of the embedded service for runs, beside the model's own."""


def taken_by(command: str, rows: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """The rows for which a command has flags."""
    return tuple(row for row in rows if command in row.takers)
