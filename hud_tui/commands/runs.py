"""The commands that check a run, submit it and follow it, and a run's parameters."""

import argparse
from typing import Any

from hud_tui.commands.parser import Add, Parser, consent, finite_number, whole_number

PARAMETERS = (
    "reasoning_effort",
    "steps",
    "group_size",
    "tasks_per_step",
    "learning_rate",
    "loss_fn",
    "temperature",
    "max_tokens",
    "seed",
)


def add_runs(add: Add) -> None:
    """Add them to the command line."""
    _preflight(add)
    _run(add)
    _watch(add)
    _replay(add)


def parameters(args: argparse.Namespace) -> dict[str, Any]:
    """The run's parameters that were given, by their wire names."""
    given = vars(args)
    return {name: given[name] for name in PARAMETERS if given.get(name) is not None}


def _preflight(add: Add) -> None:
    about = "check a taskset, and a model for it, before anything is spent"
    parser = add("preflight", about, "--headless preflight tasks.jsonl -m arith-rl")
    _source(parser)
    _fail_on(parser)
    parser.add_argument(
        "--group-size", type=whole_number, metavar="N", help="of the run that is meant"
    )
    about = "then roll out K groups with the model, and say which tasks teach"
    parser.add_argument("--sample", type=whole_number, metavar="K", help=about)
    parser.add_argument("--fresh", action="store_true", help="sample again what is known")


def _run(add: Add) -> None:
    parser = add(
        "run",
        "check a taskset, then submit a managed run",
        "--headless --local run arith -m arith-rl --steps 60 -y --follow",
        "run tasks.jsonl -m arith-rl",
    )
    _source(parser)
    parser.add_argument("--reasoning-effort", choices=("low", "medium", "high"))
    parser.add_argument("--steps", type=whole_number, metavar="N", help="optimizer steps")
    parser.add_argument(
        "--group-size", type=whole_number, metavar="N", help="rollouts of one task a step"
    )
    parser.add_argument("--tasks-per-step", type=whole_number, metavar="N", help="groups a step")
    parser.add_argument("--learning-rate", type=finite_number, metavar="X")
    parser.add_argument("--loss-fn", metavar="NAME", help="e.g. importance_sampling, ppo, cispo")
    parser.add_argument("--temperature", type=finite_number, metavar="X", help="of the rollouts")
    parser.add_argument("--max-tokens", type=whole_number, metavar="N", help="of one answer")
    parser.add_argument("--seed", type=whole_number, metavar="N")
    parser.add_argument("--follow", action="store_true", help="print events until the run ends")
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        choices=("warning", "failure", "warn", "critical"),
        help="warning: of preflight, exit code 5; warn, critical: of an alarm of a run that is "
        "followed, exit code 6; may be given twice",
    )
    consent(parser)


def _watch(add: Add) -> None:
    parser = add(
        "watch",
        "print a run's events and alarms until it ends, has a step, or has an alarm",
        "--headless watch arith-rl",
        "--headless watch arith-rl --until step=100 --fail-on critical",
        "--headless watch arith-rl --until alarm",
    )
    parser.add_argument("ref", metavar="MODEL|JOB")
    about = "done (the default), step=N or alarm (of warn or worse)"
    parser.add_argument("--until", default="done", metavar="WHAT", help=about)
    about = "end with exit code 6 at the first alarm this bad"
    parser.add_argument("--fail-on", choices=("warn", "critical"), help=about)


def _replay(add: Add) -> None:
    about = "play what --record wrote in the app, as if it happened now"
    parser = add("replay", about, "replay session.jsonl --speed 20")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument(
        "--speed", type=finite_number, default=1.0, metavar="X", help="times as fast"
    )


def _source(parser: Parser) -> None:
    about = "file, directory, or taskset; default: the primary_dataset of hud.lock.yaml here"
    parser.add_argument("source", nargs="?", metavar="SOURCE", help=about)
    about = "by name or id; default: your only trainable one"
    parser.add_argument("-m", "--model", "--model-id", metavar="MODEL", help=about)


def _fail_on(parser: Parser) -> None:
    parser.add_argument(
        "--fail-on",
        choices=("warning", "failure"),
        default="failure",
        help="the least that is exit code 5",
    )
