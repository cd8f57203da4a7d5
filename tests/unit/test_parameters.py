"""Parameters: each has one row, which models, flags and commands follow."""

from math import inf, isfinite, nextafter
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from hud_tui.cli.commands import build_parser
from hud_tui.parameters import (
    EVAL,
    EVALUATION_PARAMETERS,
    LARGEST,
    OF_MODEL,
    ROLLOUT_OPTIONS,
    RUN,
    RUN_PARAMETERS,
    RUNS_AT_ONCE,
    TRAIN,
    USUAL,
    Parameter,
)
from hud_tui.rollouts.run_files import Options
from hud_tui.service.engines.base import LOSSES, Adam
from hud_tui.wire_runs import EvaluationParameters, JobParameters

MODELS: dict[type[BaseModel], tuple[Parameter, ...]] = {
    JobParameters: RUN_PARAMETERS,
    EvaluationParameters: EVALUATION_PARAMETERS,
    Options: ROLLOUT_OPTIONS,
}
NUMBERS = [(model, row) for model, rows in MODELS.items() for row in rows if row.is_number]
PARSER = build_parser()
EXAMPLES = {"config": "beta=0.05", "text": "ppo", "words": "SHOP"}


def ends(row: Parameter) -> tuple[list[float], list[float]]:
    """The smallest and the largest allowed number, and the next ones beyond."""
    if row.kind == "whole":
        high = LARGEST if row.high is None else int(row.high)
        return [int(row.low), high], [int(row.low) - 1, high + 1]
    assert row.high is not None
    above, below = nextafter(row.low, inf), nextafter(row.high, -inf)
    within = [above if row.above else row.low, below if row.below else row.high]
    beyond = [
        row.low if row.above else nextafter(row.low, -inf),
        row.high if row.below else nextafter(row.high, inf),
    ]
    return within, [end for end in beyond if isfinite(row.low)]


@pytest.mark.parametrize(("model", "row"), NUMBERS, ids=lambda one: getattr(one, "name", ""))
def test_a_number_has_the_same_bounds_in_its_field_and_in_what_is_sent(
    model: type[BaseModel], row: Parameter
) -> None:
    within, beyond = ends(row)
    for number in within:
        assert row.read(str(number)) == number
        assert getattr(model.model_validate({row.name: number}), row.name) == number
    for wrong in (*beyond, "nan", "x"):
        with pytest.raises(ValueError, match=r"to|from|least|no limit|any number"):
            row.read(str(wrong))
        with pytest.raises(ValidationError):
            model.model_validate({row.name: float("nan") if wrong == "nan" else wrong})


def test_what_is_sent_has_a_row() -> None:
    """But for the name of a sweep, and the tasks that are left out, which have flags of their
    own."""
    for model, rows in MODELS.items():
        apart = model.model_fields.keys() - {row.name for row in rows}
        assert apart <= {"sweep", "left_out"}


@pytest.mark.parametrize("command", [RUN, TRAIN, EVAL])
def test_a_command_takes_the_flags_of_its_rows_and_no_others(command: str) -> None:
    tables = (RUN_PARAMETERS, ROLLOUT_OPTIONS)
    if command == EVAL:
        tables = (EVALUATION_PARAMETERS, ROLLOUT_OPTIONS)
    for row in (row for table in tables for row in table):
        value = str(max(1, int(row.low))) if row.kind == "whole" else EXAMPLES.get(row.kind, "0.5")
        value = row.choices[-1] if row.kind == "choice" else value
        flag = row.flag if row.kind == "switch" else f"{row.flag}={value}"
        arguments = [command, "source", flag]
        if command not in row.takers and not (command == RUN and row.name == RUNS_AT_ONCE.name):
            with pytest.raises(Exception, match="unrecognized arguments"):
                PARSER.parse_args(arguments)
            continue
        assert getattr(PARSER.parse_args(arguments), row.name) is not None
        assert getattr(PARSER.parse_args(arguments[:2]), row.name) is None


@pytest.mark.parametrize(
    ("flag", "values"),
    [
        ("--eval-every=5,10", (5, 10)),
        ("--eval-samples=2,4", (2, 4)),
        ("--reasoning-effort=low,high", ("low", "high")),
        ("--lr=1e-4,3e-4", (1e-4, 3e-4)),
    ],
)
def test_what_the_form_can_sweep_the_command_line_can(flag: str, values: tuple[Any, ...]) -> None:
    args = vars(PARSER.parse_args(["run", "source", flag]))
    assert values in args.values()


def test_the_defaults_of_a_step_are_those_of_the_engine() -> None:
    for name in ("beta1", "beta2", "eps", "weight_decay"):
        assert USUAL[name] == getattr(Adam(1e-3), name)
    assert USUAL["loss_fn"] == LOSSES[0]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (Parameter("a share", usual=0.95, kind="number"), "a share; .95"),
        (Parameter("steps", usual=OF_MODEL, kind="whole"), "steps; default: the model's"),
        (Parameter("by std", usual=False, kind="switch"), "by std; off"),
        (Parameter("effort", choices=("low", "high"), kind="choice"), "effort: low or high"),
        (Parameter("small", usual=1e-8, kind="number"), "small; 1e-8"),
    ],
)
def test_help_says_choices_and_the_default(row: Parameter, text: str) -> None:
    assert row.help == text
