"""The grammar of the command line: commands, flags and their help."""

import argparse
from functools import partial
from math import isfinite
from typing import Any, NoReturn

from hud_tui.errors import HudUsage
from hud_tui.offline_commands import add_offline

EXIT_CODES = """\
exit codes with --headless:
  0 ok   1 refused, or the job failed   2 usage   3 unreachable   4 not authorised
  5 preflight failed   6 an alarm, as --fail-on says   130 interrupted"""

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

MAX_SEED = 2**63 - 1
"""The largest integer that every part of a service can store."""


class Parser(argparse.ArgumentParser):
    """A parser that raises where argparse would exit, and takes no flag for another."""

    def __init__(self, prog: str | None = None, **more: Any) -> None:
        super().__init__(prog, allow_abbrev=False, **more)

    def error(self, message: str) -> NoReturn:
        raise HudUsage(message, f"see {self.prog} --help")


def build_parser() -> Parser:
    """The whole command line."""
    parser = Parser(
        "hud-tui",
        description="A terminal cockpit for reinforcement-learning post-training on HUD. Without "
        "--headless it opens the app on the command's screen.",
        epilog="examples:\n  hud-tui --local\n  hud-tui --headless --local status\n\n" + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    given = {"headless": False, "local": False, "read_only": False, "version": False}
    _global_flags(parser, given)
    app = parser.add_argument_group("the app")
    app.add_argument("--record", metavar="FILE", help="write the session's events to a new file")
    app.add_argument("--demo", metavar="NAME", help="play a run that goes wrong: no service needed")
    parser.set_defaults(command="status", ref=None, verbose=False, state_dir=None, data_dir=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for add in (
        _status,
        _models,
        _fork,
        _checkpoints,
        _head,
        _preflight,
        _run,
        _watch,
        _replay,
        _jobs,
        _traces,
    ):
        add(commands)
    _serve(commands)
    add_offline(partial(_command, commands))
    _command(commands, "stop", "stop the embedded service that runs in the background", "stop")
    return parser


Commands = argparse._SubParsersAction  # argparse gives it no public name


def _command(commands: "Commands[Parser]", name: str, about: str, *examples: str) -> Parser:
    parser = commands.add_parser(
        name,
        help=about,
        description=about[0].upper() + about[1:] + ".",
        epilog="examples:\n" + "\n".join(f"  hud-tui {example}" for example in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _global_flags(parser)
    parser.set_defaults(command=name)
    return parser


def _global_flags(parser: Parser, defaults: dict[str, bool] | None = None) -> None:
    """Flags that may stand before or after the command; absent ones stay as they were."""
    flags = parser.add_argument_group("connection and output")
    about = {
        "headless": "print JSON on stdout instead of opening the app",
        "local": "use the embedded service: no key, no network; started where none runs",
        "read_only": "send nothing that changes the service or that it computes "
        "(HUD_TUI_READ_ONLY)",
        "version": "print the version",
    }
    for name, text in about.items():
        default = defaults[name] if defaults else argparse.SUPPRESS
        flags.add_argument(flag(name), action="store_true", default=default, help=text)
    for name, text in (("state", "service.json and logs"), ("data", "models and checkpoints")):
        flags.add_argument(
            f"--{name}-dir",
            metavar="DIR",
            default=argparse.SUPPRESS,
            help=f"where the embedded service keeps its {text} (HUD_TUI_{name.upper()}_DIR)",
        )


def _consent(parser: Parser) -> None:
    parser.add_argument(
        "-y", "--yes", action="store_true", help="do not ask; needed without a terminal"
    )
    about = "the name of a protected model, to change it all the same"
    parser.add_argument("--confirm", metavar="NAME", help=about)


def _status(commands: "Commands[Parser]") -> None:
    about = "the service, a model, its head, its job and its last metrics"
    parser = _command(commands, "status", about, "--headless status", "--headless status arith-rl")
    parser.add_argument("ref", nargs="?", metavar="MODEL|JOB", help="default: the newest run's")
    about = "all that the service says, to fold, search and copy from; headless, with the tree"
    parser.add_argument("-v", "--verbose", action="store_true", help=about)


def _models(commands: "Commands[Parser]") -> None:
    _command(commands, "models", "the catalog, all pages", "--headless models")


def _fork(commands: "Commands[Parser]") -> None:
    example = "--headless --local fork tiny/arith-0.2M --name arith-rl -y"
    parser = _command(commands, "fork", "make a model of your own from another's head", example)
    parser.add_argument("source", metavar="SOURCE", help="the model to start from")
    parser.add_argument("--name", required=True, help="what to call the new one")
    _consent(parser)


def _checkpoints(commands: "Commands[Parser]") -> None:
    about = "a model's checkpoint tree, oldest first"
    parser = _command(commands, "checkpoints", about, "--headless checkpoints arith-rl")
    parser.add_argument("model", metavar="MODEL")


def _head(commands: "Commands[Parser]") -> None:
    parser = _command(
        commands,
        "head",
        "the checkpoint that is served; or serve another",
        "--headless head arith-rl",
        "--headless head arith-rl --back 1 -y",
        "--headless head arith-rl --set step-000012 -y",
    )
    parser.add_argument("model", metavar="MODEL")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--set", dest="checkpoint", metavar="ID", help="by id or name")
    which.add_argument("--back", type=int, metavar="N", help="N steps up the head's lineage")
    _consent(parser)


def _preflight(commands: "Commands[Parser]") -> None:
    about = "check a taskset, and a model for it, before anything is spent"
    parser = _command(commands, "preflight", about, "--headless preflight tasks.jsonl -m arith-rl")
    _source(parser)
    _fail_on(parser)
    parser.add_argument("--group-size", type=int, metavar="N", help="of the run that is meant")
    about = "then roll out K groups with the model, and say which tasks teach"
    parser.add_argument("--sample", type=int, metavar="K", help=about)
    parser.add_argument("--fresh", action="store_true", help="sample again what is known")


def _run(commands: "Commands[Parser]") -> None:
    parser = _command(
        commands,
        "run",
        "check a taskset, then submit a managed run",
        "--headless --local run arith -m arith-rl --steps 60 -y --follow",
        "run tasks.jsonl -m arith-rl",
    )
    _source(parser)
    parser.add_argument("--reasoning-effort", choices=("low", "medium", "high"))
    parser.add_argument("--steps", type=int, metavar="N", help="optimizer steps")
    parser.add_argument("--group-size", type=int, metavar="N", help="rollouts of one task a step")
    parser.add_argument("--tasks-per-step", type=int, metavar="N", help="groups a step")
    parser.add_argument("--learning-rate", type=_finite, metavar="X")
    parser.add_argument("--loss-fn", metavar="NAME", help="e.g. importance_sampling, ppo, cispo")
    parser.add_argument("--temperature", type=_finite, metavar="X", help="of the rollouts")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="of one answer")
    about = "an RL configuration of hud 0.4 to take parameters from; flags win"
    parser.add_argument("--config", metavar="FILE", help=about)
    parser.add_argument("--seed", type=_seed, metavar="N")
    parser.add_argument("--follow", action="store_true", help="print events until the run ends")
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        choices=("warning", "failure", "warn", "critical"),
        help="warning: of preflight, exit code 5; warn, critical: of an alarm of a run that is "
        "followed, exit code 6; may be given twice",
    )
    _consent(parser)


def _watch(commands: "Commands[Parser]") -> None:
    parser = _command(
        commands,
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


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number")
    return number


def _seed(text: str) -> int:
    number = int(text)
    if number > MAX_SEED:
        raise argparse.ArgumentTypeError(f"{text} is above {MAX_SEED}")
    return number


def _source(parser: Parser) -> None:
    about = "file, directory, or taskset; default: the primary_dataset of hud.lock.yaml here"
    parser.add_argument("source", nargs="?", metavar="SOURCE", help=about)
    parser.add_argument("-m", "--model", metavar="MODEL", help="default: your only trainable one")


WHICH_JOB = "its id, how that begins, or a model: then its latest run"


def _replay(commands: "Commands[Parser]") -> None:
    about = "play what --record wrote in the app, as if it happened now"
    parser = _command(commands, "replay", about, "replay session.jsonl --speed 20")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--speed", type=_finite, default=1.0, metavar="X", help="times as fast")


def _jobs(commands: "Commands[Parser]") -> None:
    parser = _command(
        commands,
        "jobs",
        "jobs, newest first; or one of them",
        "--headless jobs",
        "--headless jobs JOB",
        "--headless jobs JOB --cancel -y",
    )
    parser.add_argument("job", nargs="?", metavar="JOB", help=WHICH_JOB)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--cancel", action="store_true", help="stop it between two rollouts")
    which.add_argument("--resume", action="store_true", help="continue an interrupted run")
    _consent(parser)


def _traces(commands: "Commands[Parser]") -> None:
    examples = ("--headless traces JOB", "--headless traces JOB --step 12")
    parser = _command(commands, "traces", "the rollouts of a job, the newest 1000", *examples)
    parser.add_argument("job", metavar="JOB", help=WHICH_JOB)
    parser.add_argument("--step", type=int, metavar="N", help="only those of one step")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--limit", type=int, metavar="N", help="the newest N")
    which.add_argument("--all", action="store_true", help="all, a document for each page of 1000")


def _serve(commands: "Commands[Parser]") -> None:
    about = "run the embedded service in the foreground"
    examples = ("serve", "serve --port 8900 --data-dir ./hud-data", "serve --engine tinker")
    parser = _command(commands, "serve", about, *examples)
    parser.add_argument("--host", default="127.0.0.1", help="loopback unless you know better")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="0 takes a free one")
    parser.add_argument(
        "--engine",
        default="tiny",
        choices=("tiny", "tinker"),
        help="what samples and trains: this machine's CPU, or language models on Tinker "
        "(TINKER_API_KEY) or on a server with its wire (TINKER_BASE_URL)",
    )
    parser.add_argument(
        "--max-disk",
        metavar="SIZE",
        help="thin the oldest checkpoints beyond this, e.g. 20GB (HUD_TUI_MAX_DISK; 10GB)",
    )


def _fail_on(parser: Parser) -> None:
    parser.add_argument(
        "--fail-on",
        choices=("warning", "failure"),
        default="failure",
        help="the least that is exit code 5",
    )


def flag(field: str) -> str:
    """The flag of a run's parameter, e.g. ``--group-size``."""
    return "--" + field.replace("_", "-")


def parameters(args: argparse.Namespace) -> dict[str, Any]:
    """The run's parameters that were given, by their wire names."""
    given = vars(args)
    flags = {name: given[name] for name in PARAMETERS if given.get(name) is not None}
    return {**given.get("config_parameters", {}), **flags}
