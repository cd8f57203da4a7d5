"""The command line: the commands and their flags, functions and views."""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from hud_tui.cli.parser import (
    Add,
    Parser,
    consent,
    finite_number,
    global_flags,
    new_command,
    of_model,
    whole_number,
)

# Commands on jobs and their traces.


WHICH_JOB = "id or prefix of it; or a model, for its latest run"


def _jobs(add: Add) -> None:
    parser = add(
        "list jobs, newest first; show, cancel or resume one",
        "--headless jobs",
        "--headless jobs JOB",
        "--headless jobs JOB --cancel -y",
    )
    parser.add_argument("job", nargs="?", metavar="JOB", help=WHICH_JOB)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--cancel", action="store_true", help="cancel it between two rollouts")
    which.add_argument("--resume", action="store_true", help="resume an interrupted run")
    consent(parser, changes=lambda args: args.cancel or args.resume)


def _traces(add: Add) -> None:
    parser = add(
        "list rollouts of a job, by default the newest 1000; or search in them",
        "--headless traces JOB",
        "--headless traces JOB --step 12",
        "--headless traces JOB --filter 'tool:order error reward<.2'",
    )
    parser.add_argument("job", metavar="JOB", help=WHICH_JOB)
    parser.add_argument("--step", type=whole_number, metavar="N", help="of one step only")
    about = "words, tool:NAME, task:NAME, reward<.2, turns>5, is:error; all must hold"
    parser.add_argument("--filter", metavar="TERMS", help=about)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--limit", type=whole_number, metavar="N", help="the newest N; 1000")
    which.add_argument("--all", action="store_true", help="all, one document per page of 1000")


def _time(add: Add) -> None:
    examples = ("--headless time JOB", "--headless time JOB --step 12")
    about = "show where the time of a run's steps went, and why rollouts were discarded"
    parser = add(about, *examples, "--headless time arith-rl --last 5 --discarded 100")
    parser.add_argument("ref", nargs="?", metavar="JOB", help=f"{WHICH_JOB}; default: the newest")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--step", type=whole_number, metavar="N", help="of one step of the run")
    which.add_argument("--last", type=whole_number, metavar="N", help="of the newest N; 20")
    about = "also the newest N rollouts that no step was trained on"
    parser.add_argument("--discarded", type=whole_number, metavar="N", help=about)


# Commands on models and their checkpoints.


def _status(add: Add) -> None:
    about = "show service, model, head, job, last metrics and alarms"
    parser = add(about, "--headless status", "--headless status arith-rl")
    of_model(parser, "ref", "MODEL|JOB", "default: the model of the newest run")
    about = "everything that the service reports, as JSON; headless: with the tree"
    parser.add_argument("-v", "--verbose", action="store_true", help=about)


def _models(add: Add) -> None:
    add("list the catalog", "--headless models")


def _fork(add: Add) -> None:
    example = "--headless --local fork tiny/arith-0.2M --name arith-rl -y"
    parser = add("fork a model from another model's head, or from a checkpoint", example)
    parser.add_argument("source", metavar="SOURCE", help="the model to start from")
    parser.add_argument("--name", required=True, help="name of the new model")
    about = "start here instead of at its head: by id or name (embedded service)"
    parser.add_argument("--checkpoint", metavar="ID", help=about)
    about = "print the model of this name if there is one, and fork nothing"
    parser.add_argument("--if-not-exists", action="store_true", help=about)
    about = "say what would be forked; send nothing"
    parser.add_argument("--dry-run", action="store_true", help=about)
    consent(parser, changes=lambda args: not args.dry_run)


def _checkpoints(add: Add) -> None:
    about = "list a model's checkpoints, oldest first"
    parser = add(about, "--headless checkpoints arith-rl")
    of_model(parser, about="by name or id", required=True)


def _head(add: Add) -> None:
    parser = add(
        "show the head (the served checkpoint), or move it",
        "--headless head arith-rl",
        "--headless head arith-rl --back 1 -y",
        "--headless head arith-rl --set step-000012 -y",
        "--headless head arith-rl --history",
        "--headless head arith-rl --propose step-000012 --note 'best of three' -y",
        "--headless head arith-rl --approve -y",
    )
    of_model(parser, about="by name or id", required=True)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--set",
        dest="checkpoint",
        metavar="ID",
        help="move it to this checkpoint: an id, a name, or best",
    )
    which.add_argument("--back", type=whole_number, metavar="N", help="roll back N steps")
    which.add_argument("--history", action="store_true", help="who moved it, where and when")
    about = "of a model that is protected for all: propose this checkpoint as its head"
    which.add_argument("--propose", metavar="ID", help=about)
    which.add_argument("--approve", action="store_true", help="approve what another proposed")
    which.add_argument("--withdraw", action="store_true", help="withdraw the proposal")
    parser.add_argument("--note", metavar="TEXT", help="with --propose: why")
    about = "say what would be served, proposed, approved or withdrawn; send nothing"
    parser.add_argument("--dry-run", action="store_true", help=about)
    consent(parser, changes=lambda args: _moves(args) and not args.dry_run)


def _moves(args: argparse.Namespace) -> bool:
    given = (args.checkpoint, args.back, args.propose)
    return args.approve or args.withdraw or any(value is not None for value in given)


# Commands on files, without a service.


SHEETS = (
    *("metrics", "checkpoints", "evaluations", "groups", "alarms", "time", "discarded"),
    *("models", "jobs"),
)
"""Tables that can be exported."""


def _doctor(add: Add) -> None:
    parser = add(
        "check settings, hosts and this machine, with a fix for each problem",
        "doctor",
        "doctor --local",
        "doctor --host https://gpu.example.com:8443",
        "--headless doctor --fail-on warning",
    )
    choices = ("warning", "failure")
    parser.add_argument("--fail-on", choices=choices, default="failure", help="default: failure")


def _login(add: Add) -> None:
    parser = add(
        "store the key of a hud-tui service elsewhere, for --host; it is read from the terminal, or"
        " from stdin",
        "login https://gpu.example.com:8443",
        "login https://gpu.example.com:8443 --ca team-ca.pem",
    )
    parser.add_argument("url", nargs="?", metavar="URL", help="of the service (HUD_TUI_HOST)")
    about = "certificates (PEM) to verify the service's by, instead of those that the system"
    about += " trusts: of the authority that signed it, or its own"
    parser.add_argument("--ca", metavar="FILE", help=about)


def _logout(add: Add) -> None:
    parser = add("forget the key of a service elsewhere", "logout https://gpu.example.com:8443")
    parser.add_argument("url", nargs="?", metavar="URL", help="of the service (HUD_TUI_HOST)")


def _keys(add: Add) -> None:
    about = "list every key of the app, with its action's id for [keys] of the config file"
    parser = add(about, "keys", "keys live", "--headless keys")
    parser.add_argument("view", nargs="?", metavar="VIEW", help="of this view only, e.g. live")


def _completion(add: Add) -> None:
    parser = add(
        "print what completes commands, flags, models and jobs in a shell",
        "completion bash",
        "completion fish",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")


def _man(add: Add) -> None:
    add("print the manual page", "man")


def _init(add: Add) -> None:
    parser = add(
        "write a hud-vf-gym configuration for an environment, or show one",
        "init ./environments/text_2048",
        "init hud.lock.yaml -o configs/mine.yaml --force",
        "init hudpython/hud-text-2048:latest",
        "--headless init my-shop:dev --env SHOP_TOKEN --dry-run",
        "--headless --local init arith",
        "init --show configs/mine.yaml",
    )
    about = "a directory with hud.lock.yaml, that file, an image with its tag, or an environment "
    about += "of the service"
    parser.add_argument("environment", nargs="?", metavar="ENV", help=about)
    parser.add_argument("-o", "--output", metavar="FILE", help="default: configs/NAME.yaml")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    about = "of an image: say which tools and resources it has, and write nothing"
    parser.add_argument("--dry-run", action="store_true", help=about)
    about = "of an image: a variable that its container gets; may be given again"
    parser.add_argument("--env", action="append", default=[], metavar="NAME", help=about)
    parser.add_argument(
        "--show", metavar="FILE", help="show this configuration; nothing in it is run"
    )


def _convert(add: Add) -> None:
    parser = add(
        "write tasks as a Hugging Face data set, and push it",
        "convert tasks.json --name my-org/my-tasks",
        "convert tasks.json --name my-org/my-tasks --private -y",
        "--headless convert tasks.jsonl --name my-tasks --no-push -o data/my-tasks",
    )
    parser.add_argument(
        "tasks", metavar="TASKS", help="a .json, .jsonl or .parquet, or a directory"
    )
    parser.add_argument("--name", required=True, metavar="ORG/NAME", help="name of the data set")
    parser.add_argument("--private", action="store_true", help="make it private")
    parser.add_argument("--no-push", action="store_true", help="write it locally only")
    parser.add_argument("-o", "--output", metavar="DIR", help="new folder; default: NAME")
    consent(parser, "", lambda args: not args.no_push)


def _export(add: Add) -> None:
    parser = add(
        "export metrics, tree, groups or alarms of a run to a new file",
        "export arith-rl",
        "export arith-rl --what checkpoints --format json -o tree.json",
        "--headless --local export --what jobs",
    )
    of_model(parser, "ref", about="by name or id; default: that of the newest run")
    about = "default: metrics of every step of the head's lineage"
    parser.add_argument("--what", choices=SHEETS, default="metrics", help=about)
    parser.add_argument("--format", choices=("csv", "json"), default="csv", help="default: csv")
    about = "new file, or directory; default: [export] directory of the config, else here"
    parser.add_argument("-o", "--output", metavar="PATH", help=about)


def _report(add: Add) -> None:
    parser = add(
        "write a Markdown report of a run with charts to a new folder",
        "report arith-rl",
        "--headless --local report arith-rl -o reports",
    )
    of_model(parser, "ref", about="by name or id; default: that of the newest run")
    about = "parent directory; default: [export] directory of the config, else here"
    parser.add_argument("-o", "--output", metavar="DIR", help=about)


def _log(add: Add) -> None:
    about = "show changes made from this machine, with commands to repeat them"
    examples = ("log", "log 'set head' --limit 5", "--headless log arith-rl", "log --server")
    parser = add(about, *examples)
    about = "those of everybody, as the service logs them"
    parser.add_argument("--server", action="store_true", help=about)
    about = "entries with these words only: a verb, a model, an id, an outcome"
    parser.add_argument("text", nargs="?", metavar="TEXT", help=about)
    parser.add_argument(
        "--limit", type=whole_number, default=50, metavar="N", help="the newest N; 50"
    )


def _protect(add: Add) -> None:
    about = "protect a model: changes then need its name; or list protected models"
    parser = add(
        about,
        "protect",
        "protect arith-rl",
        "protect arith-rl --off --confirm arith-rl",
        "protect arith-rl --for-all -y",
    )
    of_model(parser, about="default: list them")
    parser.add_argument("--off", action="store_true", help="remove the protection")
    about = "on the service, not this machine: two people move its head (needs the role admin)"
    parser.add_argument("--for-all", action="store_true", help=about)
    consent(parser, "", lambda args: args.for_all and args.model is not None)
    about = "its name, required by --off on this machine"
    parser.add_argument("--confirm", metavar="NAME", help=about)


def _access(add: Add) -> None:
    parser = add(
        "list the keys of a service, make or revoke one (needs the role admin)",
        "access",
        "access add ana --role train --expires 30d --runs 2",
        "access add dashboard --role read",
        "access revoke ana -y",
    )
    parser.add_argument("action", nargs="?", choices=("add", "revoke"), help="default: list them")
    parser.add_argument("name", nargs="?", metavar="NAME", help="of the key: whose it is")
    roles = ("read", "train", "steer", "admin")
    about = "read: see; train: fork, train, evaluate; steer: move heads too; admin: everything"
    parser.add_argument("--role", choices=roles, help=about)
    about = "how long it is accepted, e.g. 30d, 12h; default: until it is revoked"
    parser.add_argument("--expires", metavar="TIME", help=about)
    about = "runs and evaluations at once"
    parser.add_argument("--runs", type=whole_number, metavar="N", help=about)
    about = "what is stored for it: checkpoints, rollouts, tasks; e.g. 20GB"
    parser.add_argument("--disk", metavar="SIZE", help=about)
    about = "requests per second; 200"
    parser.add_argument("--calls", type=whole_number, metavar="N", help=about)
    consent(parser, "", lambda args: args.action is not None)


# Commands on runs and evaluations.


def _init_env(add: Add) -> None:
    about = "write a small environment to edit and train on: tools, three templates, tests"
    parser = add(
        about,
        "init-env sums",
        "init-env shop --kind lookup",
        "train sums/env.py -m my-model --check",
    )
    parser.add_argument("name", metavar="NAME", help="of the environment and its new folder")
    about = "sums: arithmetic (default); lookup: tools that no base has seen"
    parser.add_argument("--kind", choices=("sums", "lookup"), default="sums", help=about)
    parser.add_argument("-o", "--output", metavar="DIR", help="parent folder; default: this one")


def _compare(add: Add) -> None:
    parser = add(
        "say what changed between two checkpoints or two runs, by the rollouts that are stored",
        "compare step-000012 -m arith-rl",
        "compare step-000010 head -m arith-rl",
        "--headless --local compare 3f2a 91bc",
    )
    about = "with -m: a checkpoint (id, name, head, best or base); alone, its parent and itself; "
    about += "without: two runs, by id, name or model"
    parser.add_argument("ref", nargs="+", metavar="REF", help=about)
    parser.add_argument("-m", "--model", "--model-id", metavar="MODEL", help="by name or id")


def _runs(add: Add) -> None:
    parser = add(
        "list runs of all models, custom training loops included; or compare some of them",
        "runs",
        "runs --filter 'lr:3e-4 reward>.8 state:running mixed' --sort -reward",
        "runs --group differs --columns +tokens,-age",
        "runs 3f2a 91bc",
        "runs 3f2a --name 'lower lr' -y",
        "--headless --local runs --sort -heldout --limit 5",
    )
    about = "id or a prefix of it, name, or model (its newest run); several: what differs"
    parser.add_argument("run", nargs="*", metavar="RUN", help=about)
    about = "comma-separated; +KEY adds to the default, -KEY removes; param.NAME is a parameter"
    parser.add_argument("--columns", metavar="KEYS", help=about)
    about = "columns, comma-separated; -KEY is descending; default: newest first"
    parser.add_argument("--sort", metavar="KEYS", help=about)
    about = "space-separated, all must hold: a word, KEY>X, KEY:A..B, is:running, is:alarm, !TERM"
    parser.add_argument("--filter", metavar="TERMS", help=about)
    about = "by columns, e.g. sweep or model; differs: by whatever differs but the seed"
    parser.add_argument("--group", metavar="KEYS", help=about)
    parser.add_argument("--limit", type=whole_number, default=50, metavar="N", help="most rows; 50")
    parser.add_argument("--name", metavar="TEXT", help="rename one run")
    parser.add_argument("--note", metavar="TEXT", help="note on one run, kept on this machine")
    consent(parser, changes=lambda args: args.name is not None)


def _import(add: Add) -> None:
    parser = add(
        "read offline runs of other trainers into the table of runs, read only",
        "import wandb ./wandb",
        "--headless import wandb outputs/run-1/wandb/offline-run-20261128_110519-abc123",
        "import wandb --remove abc123",
    )
    parser.add_argument("form", choices=("wandb",), help="what wrote them: Weights & Biases")
    which = parser.add_mutually_exclusive_group()
    about = "a .wandb file, or a folder: all below it are read"
    which.add_argument("path", nargs="?", metavar="DIR", help=about)
    about = "forget an imported run, by id or name; its files stay"
    which.add_argument("--remove", metavar="RUN", help=about)


def _watch(add: Add) -> None:
    parser = add(
        "print events and alarms until the run ends, reaches a step, or has an alarm",
        "--headless watch arith-rl",
        "--headless watch arith-rl --until step=100 --fail-on critical",
        "--headless watch arith-rl --until alarm",
    )
    of_model(parser, "ref", "MODEL|JOB", "by name or id", required=True)
    about = "done (default), step=N or alarm (warn or critical)"
    parser.add_argument("--until", default="done", metavar="WHAT", help=about)
    about = "exit with code 6 at the first alarm of this level"
    parser.add_argument("--fail-on", choices=("warn", "critical"), help=about)


def _replay(add: Add) -> None:
    about = "play a recording of --record in the app"
    parser = add(about, "replay session.jsonl --speed 20")
    parser.add_argument("file", metavar="FILE", help="what --record wrote")
    parser.add_argument(
        "--speed", type=finite_number, default=1.0, metavar="X", help="play it X times as fast; 1"
    )


# Commands on the embedded service.


def _stop(add: Add) -> None:
    add("stop the embedded service that runs in the background", "stop")


def _serve(add: Add) -> None:
    about = "run the embedded service in the foreground"
    examples = (
        "serve",
        "serve --port 8900 --data-dir ./hud-data",
        "serve --engine tinker",
        "serve --host 0.0.0.0 --port 8443 --cert fullchain.pem --key privkey.pem",
    )
    parser = add(about, *examples)
    from hud_tui.cores import MOST_CORES  # for this command alone
    from hud_tui.service.entrance import add_flags

    add_flags(parser, whole_number)
    parser.add_argument(
        "--engine",
        default="tiny",
        metavar="ENGINE",
        help="tiny: on this machine's CPU; tinker: language models on Tinker (TINKER_API_KEY) or a "
        "compatible server (TINKER_BASE_URL)",
    )
    parser.add_argument(
        "--max-disk",
        metavar="SIZE",
        help="thin out the oldest checkpoints beyond this, e.g. 20GB (HUD_TUI_MAX_DISK; 10GB)",
    )
    parser.add_argument(
        "--cores",
        metavar="N",
        help="processes that tiny computes in (HUD_TUI_CORES; as many as it has cores, at most"
        f" {MOST_CORES}); no number depends on it",
    )


# Commands on other machines; their flags are added when one of them is used.


def _remote(add: Add) -> None:
    parser = add(
        "set up, use and remove machines that are reached over ssh",
        "remote add gpubox",
        "remote add me@10.0.0.7 -p 2222 --model Qwen/Qwen3-4B-Instruct-2507 --send HF_TOKEN",
        "remote use gpubox",
        "--headless remote status gpubox",
    )
    parser.later = "remote_flags:remote"


def _pods(add: Add) -> None:
    parser = add(
        "rent machines from Prime Intellect by the hour, and end them",
        "pods --gpus 2xH100",
        "pods create --gpus 2xH100 --max-price 6 --hours 4",
        "--headless pods list",
        "pods terminate hud-h10080gb-1a2b3c",
    )
    parser.later = "remote_flags:pods"


# The registry: every command, with its parser, its function and its view.


class Command(NamedTuple):
    """One command of ``hud-tui``."""

    add: Callable[[Add], None]
    """Adds its parser: flags and help."""
    function: str = ""
    """``MODULE:FUNCTION`` under `hud_tui.cli`, imported when it runs: a coroutine function of
    (client, args), or a function of (args,); returns the exit code. Empty for commands of the app
    only."""
    view: str = ""
    """The app's view without ``--headless``; empty if the app has no part in it."""

    def load(self, args: argparse.Namespace | None = None) -> Callable[..., Any]:
        """The function, or that of a flag; only its module is imported."""
        flags = {} if args is None else vars(args)
        others = [function for flag, function in OF_FLAG.items() if flags.get(flag) is not None]
        module, _, name = [*others, self.function][0].partition(":")
        work: Callable[..., Any] = getattr(import_module(f"hud_tui.cli.{module}"), name)
        return work


OF_FLAG = {"gpus": "rent_run:run_rented", "config": "gym_run:run_config"}
"""Flags of ``run`` with which another function carries it out; the first one that is given. That of
``gpus`` has no service yet: it takes the arguments only."""


def _with_parameters(name: str) -> Callable[[Add], None]:
    """Adds the parser of a command that has parameters."""

    def add_parser(add: Add) -> None:
        from hud_tui.cli import run_flags

        getattr(run_flags, name)(add)

    return add_parser


COMMANDS = {
    "status": Command(_status, "status:status", "live"),
    "models": Command(_models, "models:models", "models"),
    "fork": Command(_fork, "models:fork", "models"),
    "checkpoints": Command(_checkpoints, "models:checkpoints", "checkpoints"),
    "head": Command(_head, "models:head", "checkpoints"),
    "preflight": Command(_with_parameters("preflight"), "runs:preflight", "launch"),
    "run": Command(_with_parameters("run"), "runs:run", "launch"),
    "train": Command(_with_parameters("train"), "train:train"),
    "play": Command(_with_parameters("play"), "play:play", "launch"),
    "init-env": Command(_init_env, "train:init_env"),
    "eval": Command(_with_parameters("evaluate"), "evaluate:evaluate"),
    "compare": Command(_compare, "compare:compare"),
    "ship": Command(_with_parameters("ship"), "ship:ship"),
    "bisect": Command(_with_parameters("bisect"), "bisect:bisect"),
    "watch": Command(_watch, "watch:watch", "live"),
    "sweep": Command(_with_parameters("sweep"), "runs:sweep"),
    "runs": Command(_runs, "run_table:runs"),
    "import": Command(_import, "imports:import_runs"),
    "replay": Command(_replay, view="live"),
    "jobs": Command(_jobs, "jobs:jobs", "jobs"),
    "traces": Command(_traces, "traces:traces", "jobs"),
    "time": Command(_time, "timing:time", "live"),
    "doctor": Command(_doctor, "doctor:doctor"),
    "keys": Command(_keys, "keys:keys"),
    "completion": Command(_completion, "completion:completion"),
    "man": Command(_man, "completion:man"),
    "init": Command(_init, "init:init"),
    "convert": Command(_convert, "convert:convert"),
    "export": Command(_export, "export:export"),
    "report": Command(_report, "export:report"),
    "log": Command(_log, "log:log"),
    "protect": Command(_protect, "models:protect"),
    "access": Command(_access, "access:access"),
    "remote": Command(_remote, "remote:remote"),
    "pods": Command(_pods, "remote_pods:pods"),
    "login": Command(_login, "login:login"),
    "logout": Command(_logout, "login:logout"),
    "serve": Command(_serve, "main:serve"),
    "stop": Command(_stop, "connect:stop"),
}
"""By name, in the order of ``hud-tui --help``."""


# The whole command line.


EXIT_CODES = """\
exit codes with --headless:
  0 ok   1 refused, or the job failed   2 usage   3 unreachable   4 not authorised
  5 preflight failed   6 an alarm or an evaluation, as --fail-… says
  7 unknown whether a write was done   8 stdout cannot be written, stderr says what was done
  130 interrupted   141 stdout was closed   143 ended by SIGTERM"""


def build_parser(argv: Sequence[str] = ()) -> Parser:
    """The command line; of the commands only the one that `argv` begins with, if it does, since
    most of the time goes into the others."""
    parser = Parser(
        "hud-tui",
        description="A terminal cockpit for reinforcement-learning post-training on HUD. Without "
        "--headless a command that only reads opens the app on its view, or prints text if it has "
        "none; one that changes something asks first, and says what was done.",
        epilog="examples:\n  hud-tui --local\n  hud-tui --headless --local status\n\n" + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    global_flags(parser, False)
    app = parser.add_argument_group("the app")
    app.add_argument("--record", metavar="FILE", help="record the session's events to a new file")
    app.add_argument(
        "--demo",
        metavar="NAME",
        nargs="?",
        const="",
        help="play a demo run; no service needed; without a name, list them",
    )
    parser.set_defaults(command="status", ref=None, verbose=False, state_dir=None, data_dir=None)
    parser.set_defaults(service_url=None)
    parser.set_defaults(again=True, changes=lambda args: False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    before = zip(("", *argv), argv, strict=False)
    flags = ("--headless", "--local", "--host")
    first = next((word for last, word in before if word not in flags and last != "--host"), "")
    for name in [first] if first in COMMANDS else COMMANDS:
        COMMANDS[name].add(partial(new_command, commands, name))
    return parser
