"""Settings of a run: its parameters with their limits and defaults; read, sent and shown."""

from collections.abc import Mapping
from dataclasses import dataclass

from hud_tui.rl.names import setting_label
from hud_tui.rl.text import one_line, write_loss_config
from hud_tui.wire import JobParameters, Model

Value = int | float | str | dict[str, float] | None
EFFORTS = ("default", "low", "medium", "high")
"""Values of reasoning_effort; the first leaves it to the service."""
DEFAULT = EFFORTS[0]
NO, YES = "no", "yes"
HUD_EFFORT = "medium"
"""Default of ``hud rl run`` (hud 0.5); HUD publishes no default of its own."""
UNBOUNDED = 2**31 - 1
"""An upper limit that is not displayed."""


@dataclass(frozen=True)
class NumberField:
    """A numeric parameter and its limits."""

    key: str
    """Its wire name."""
    low: float
    high: float
    whole: bool = True
    above: bool = False
    """Whether `low` itself is not allowed."""
    below: bool = False
    """Whether `high` itself is not allowed."""
    optional: bool = False
    """Whether the field may be empty."""
    named: str = ""
    """Its display name, if it is not the parameter's."""

    @property
    def label(self) -> str:
        """Its display name."""
        return self.named or setting_label(self.key)

    @property
    def limits(self) -> str:
        """The allowed values as text."""
        return f"– or {self.range}" if self.optional else self.range

    @property
    def range(self) -> str:
        """The allowed numbers as text, e.g. ``> 0 to 1`` or ``-1e6 to 1e6``."""
        if self.high == UNBOUNDED:
            return f"from {self.low:.0f}"
        if self.whole:
            return f"{self.low:.0f} to {self.high:.0f}"
        low, high = (f"{end:g}".replace("e+0", "e") for end in (self.low, self.high))
        return f"{'> ' * self.above}{low} to {'< ' * self.below}{high}"

    def read(self, text: str) -> int | float | None:
        """Parse a typed number; None if it is empty and optional.

        Raises:
            ValueError: Not a number, or out of the limits; the message is the limits.
        """
        if self.optional and not text:
            return None
        try:
            value = int(text.replace(" ", "").replace("_", "")) if self.whole else float(text)
        except ValueError:
            raise ValueError(self.limits) from None
        enough = value > self.low if self.above else value >= self.low
        if not (enough and (value < self.high if self.below else value <= self.high)):  # or NaN
            raise ValueError(self.limits)
        return value


NUMBERS = (
    NumberField("steps", 1, 100_000),
    NumberField("group_size", 2, 256),
    NumberField("tasks_per_step", 1, 1024),
    NumberField("learning_rate", 0, 1, whole=False, above=True),
    NumberField("temperature", 0.01, 5, whole=False),
    NumberField("seed", 0, UNBOUNDED),
    NumberField("eval_every", 1, UNBOUNDED, optional=True),
    NumberField("eval_samples", 1, 256, optional=True),
)
UPDATE_NUMBERS = (
    NumberField("reward_scale", -1e6, 1e6, whole=False),
    NumberField("beta1", 0, 1, whole=False, below=True),
    NumberField("beta2", 0, 1, whole=False, below=True),
    NumberField("eps", 1e-16, 1, whole=False),
    NumberField("weight_decay", 0, 10, whole=False),
)
"""Parameters of the optimizer update; most runs keep the defaults."""
UPDATE_DEFAULTS: Mapping[str, Value] = {
    "loss_fn_config": None,
    "norm_adv_by_std": False,
    **dict.fromkeys(spec.key for spec in UPDATE_NUMBERS),
}
"""Defaults of the update's fields: empty leaves the value to the engine; advantages are not divided
by the standard deviation."""


def defaults(model: Model) -> dict[str, Value]:
    """Default parameters of a run on this model, as far as the client chooses them."""
    usual = model.training_defaults
    if usual is None:
        return {"reasoning_effort": HUD_EFFORT}
    return {
        "steps": usual.steps,
        "group_size": usual.group_size,
        "tasks_per_step": usual.tasks_per_step,
        "learning_rate": usual.learning_rate,
        "temperature": 1.0,
        "seed": 0,
        "eval_every": None,
        "eval_samples": None,
        "loss_fn": "importance_sampling",
        "reasoning_effort": DEFAULT,
        "baseline": False,
    }


SERVICE_DEFAULTS: Mapping[str, object] = {
    "loss_fn_config": {},
    **{"reward_scale": 1.0, "norm_adv_by_std": False},
    **{"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.0},
    **{"temperature": 1.0, "seed": 0, "heldout_every": 5, "eval_samples": 1, "baseline": False},
    "loss_fn": "importance_sampling",
}
"""Defaults of the embedded service, beside the model's own."""


@dataclass(frozen=True)
class Setting:
    """One parameter of a run, as displayed."""

    label: str
    text: str
    """Its value; ``–`` if there is none."""
    usual: bool
    """Whether it has its default value."""


OF_MANAGED = frozenset(
    {"reasoning_effort", "norm_adv_by_std", "baseline", "heldout_every", "sweep"}
)
"""Parameters of managed runs only: a run whose steps a client takes has none of them."""


def settings(
    model: Model | None, values: Mapping[str, object], managed: bool = True
) -> list[Setting]:
    """Every parameter of a run, in the wire's order; unknown ones last.

    Args:
        model: The trained model, whose own defaults count; None if unknown.
        values: Parameters by wire name, as reported by the service or as sent.
        managed: Whether the service takes its steps.
    """
    own = {} if model is None or model.training_defaults is None else defaults(model)
    if own and model is not None and model.training_defaults is not None:
        own["max_tokens"] = model.training_defaults.max_tokens
    usual = {**SERVICE_DEFAULTS, **own}
    known = [key for key in JobParameters.model_fields if managed or key not in OF_MANAGED]
    extra = [key for key in values if key not in known]
    return [_setting(key, values, usual) for key in (*known, *extra)]


def _setting(key: str, values: Mapping[str, object], usual: Mapping[str, object]) -> Setting:
    value = values.get(key)
    value = usual.get(key) if value is None else value
    is_usual = values.get(key) is None or value == usual.get(key)
    known = isinstance(value, bool | int | float | str | dict)
    text = write(value) if known else ""  # type: ignore[arg-type]
    shown = "–" if value in (None, {}, DEFAULT) else one_line(text, 200)
    return Setting(setting_label(key), shown, is_usual)


def form_values(model: Model) -> dict[str, Value]:
    """The fields of the form for a run on this model, with their initial values."""
    usual = defaults(model)
    return usual if model.training_defaults is None else {**usual, **UPDATE_DEFAULTS}


def without_field(model: Model, values: Mapping[str, Value]) -> dict[str, Value]:
    """Parameters from the command line that have no field in the form."""
    known = JobParameters.model_fields.keys() - form_values(model).keys()
    return {key: value for key, value in values.items() if key in known}


def completed(model: Model, asked: JobParameters) -> JobParameters:
    """The parameters as sent: HUD gets a reasoning effort, as its own CLI sends one."""
    if model.training_defaults is not None or asked.reasoning_effort is not None:
        return asked
    return asked.model_copy(update={"reasoning_effort": HUD_EFFORT})


def parameters(values: Mapping[str, Value]) -> JobParameters:
    """The request's parameters from the form's values."""
    chosen = {key: value for key, value in values.items() if value is not False}  # but keep 0
    sent = {key: value for key, value in chosen.items() if value not in (None, DEFAULT)}
    return JobParameters.model_validate(sent)


def max_tokens(model: Model, values: Mapping[str, Value]) -> int | None:
    """Maximum tokens of one answer; None if the service decides, e.g. from a reasoning effort."""
    typed = values.get("max_tokens")
    if isinstance(typed, int):
        return typed
    own = model.training_defaults
    decided = values.get("reasoning_effort") not in (None, DEFAULT)
    return None if own is None or decided else own.max_tokens


def write(value: Value) -> str:
    """A value as displayed in its field, e.g. ``0.0003``, ``1e-8``."""
    if isinstance(value, bool):
        return YES if value else NO
    if isinstance(value, float):
        return f"{value:g}".replace("e-0", "e-")
    if isinstance(value, dict):
        return write_loss_config(value)
    return "" if value is None else str(value)
