"""Flags of the parameters of runs, evaluations and rollouts."""

import argparse
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from hud_tui.cli.parser import Parser, finite_number, short_text, whole_number
from hud_tui.rl.text import read_loss_config

Row = tuple[str, Callable[[str], Any], str, str]
"""A flag that takes a value: its names (space-separated), type, metavar and help."""


def add_flags(parser: Parser | argparse._ArgumentGroup, rows: Iterable[Row]) -> None:
    for names, kind, metavar, about in rows:
        parser.add_argument(*names.split(), type=kind, metavar=metavar, help=about)


EFFORTS = ("low", "medium", "high")


def _effort(text: str) -> str:
    if text not in EFFORTS:
        raise argparse.ArgumentTypeError(f"{short_text(text)}: choose from {', '.join(EFFORTS)}")
    return text


EFFORT: Row = (
    *("--reasoning-effort", _effort, "X"),
    f"{', '.join(EFFORTS)}: how long an answer may be",
)
UPDATE: tuple[Row, ...] = (
    ("--steps", whole_number, "N", "optimizer steps; default: the model's"),
    ("--group-size", whole_number, "N", "rollouts per task and step; default: the model's"),
    ("--tasks-per-step", whole_number, "N", "groups per step; default: the model's"),
    ("--learning-rate --lr", finite_number, "X", "Adam's; default: the model's"),
    ("--loss-fn", str, "NAME", "importance_sampling (default), ppo, cispo, dro …"),
    ("--reward-scale", finite_number, "X", "multiply advantages by this; 1"),
    ("--beta1", finite_number, "X", "Adam's; .9"),
    ("--beta2", finite_number, "X", "Adam's; .95"),
    ("--eps", finite_number, "X", "Adam's; 1e-8"),
    ("--weight-decay", finite_number, "X", "Adam's; 0"),
    ("--temperature", finite_number, "X", "of the rollouts; 1"),
    ("--max-tokens", whole_number, "N", "of one answer, or of one turn; default: the model's"),
    ("--seed", whole_number, "N", "of the order of the tasks, and of a managed run's sampling; 0"),
)
"""Parameters of a run that may be swept, managed or not."""
EVALUATION: tuple[Row, ...] = (
    (
        *("--eval-every", whole_number, "N"),
        "evaluate the newest checkpoint on the held-out tasks every N steps",
    ),
    ("--eval-samples", whole_number, "K", "rollouts per task of an evaluation; 1"),
)
PARAMETERS = (
    *(row[0].split()[0][2:].replace("-", "_") for row in (EFFORT, *UPDATE, *EVALUATION)),
    *("loss_fn_config", "norm_adv_by_std", "baseline"),
)
"""Wire names of the parameters."""


def add_parameters(parser: Parser, managed: bool) -> None:
    """The flags of a run's parameters; those of a managed run take several values."""
    of_run = several if managed else single
    rows = (EFFORT, *UPDATE) if managed else UPDATE
    add_flags(parser, ((names, of_run(kind), value, about) for names, kind, value, about in rows))
    about = "the loss's own keys, e.g. clip_high_threshold=1.28,clip_low_threshold=.8"
    parser.add_argument("--loss-fn-config", type=_config, metavar="KEY=X,…", help=about)
    add_flags(parser, EVALUATION)
    if managed:
        switches = {
            "--norm-adv-by-std": "divide a group's advantages by its rewards' standard deviation",
            "--baseline": "evaluate what the first step is taken from, too",
        }
        for name, about in switches.items():
            action = argparse.BooleanOptionalAction
            parser.add_argument(name, action=action, help=f"{about}; off")


def _config(text: str) -> dict[str, float]:
    try:
        return read_loss_config(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parameters(args: argparse.Namespace) -> dict[str, Any]:
    """Run parameters given on the command line, by wire name; of several values the first."""
    given = vars(args)
    found = {name: given[name] for name in PARAMETERS if given.get(name) is not None}
    return {key: one[0] if isinstance(one, tuple) else one for key, one in found.items()}


def swept(args: argparse.Namespace) -> dict[str, tuple[Any, ...]]:
    """The parameters with several values, by their wire names."""
    given = vars(args)
    found = {name: given.get(name) for name in PARAMETERS}
    return {name: values for name, values in found.items() if isinstance(values, tuple)}


T = TypeVar("T")


def several(kind: Callable[[str], T]) -> Callable[[str], T | tuple[T, ...]]:
    """Type of a flag that takes one value, or several comma-separated ones."""

    def read(text: str) -> T | tuple[T, ...]:
        values = tuple(kind(word.strip()) for word in text.split(","))
        return values if len(values) > 1 else values[0]

    return read


def single(kind: Callable[[str], T]) -> Callable[[str], T]:
    """Type of a flag of one run, which takes no comma-separated values."""

    def read(text: str) -> T:
        if "," in text:
            what = f"expected one value, found {short_text(text)}: sweeps are of hud-tui run"
            raise argparse.ArgumentTypeError(what)
        return kind(text)

    return read


ROLLOUTS: tuple[Row, ...] = (
    (
        *("--tasks", str, "SOURCE"),
        "task file, .py file or taskset; default: the tasks in the environment",
    ),
    (
        *("--python", str, "PATH"),
        "interpreter that has the environment and hud, or its virtual environment; default: the "
        ".venv beside ENV, else uv run, else this one",
    ),
    (
        *("--runtime", str, "WHERE"),
        "subprocess (default), local, docker:IMAGE, tcp://HOST:PORT, hud or hosted",
    ),
    ("--turns", whole_number, "N", "most turns of a rollout; 10"),
    ("--rollout-timeout", finite_number, "S", "seconds after which a rollout has failed; 300"),
    ("--at-once", whole_number, "N", "rollouts at a time; 8"),
    (
        *("--memory-mb", whole_number, "N"),
        "MB of memory that one rollout's processes may use; 4096, 0 for no limit",
    ),
)


def add_rollout_flags(parser: Parser | argparse._ArgumentGroup) -> None:
    """Flags for where and how rollouts are made."""
    add_flags(parser, ROLLOUTS)
    about = "a variable that the environment gets; its value is shown nowhere; may be given again"
    parser.add_argument("--env", action="append", metavar="NAME", help=about)


OF_EVAL: tuple[Row, ...] = (
    ("--samples", whole_number, "K", "rollouts per task; 4"),
    ("--max-tokens", whole_number, "N", "of one answer"),
    ("--temperature", finite_number, "X", "of the rollouts; 1"),
    ("--seed", whole_number, "N", "0; checkpoints with the same seed get the same random numbers"),
    ("--solved-at", finite_number, "X", "the reward from which on a rollout counts as solved; 1"),
    ("--fail-under", finite_number, "X", "exit code 6 where the mean reward is less"),
    (
        *("--fail-if-worse-than", str, "ID"),
        "exit code 6 where the mean reward is lower than this evaluation's or checkpoint's beyond "
        "chance: the whole interval of the difference on the tasks of both is below 0",
    ),
)
