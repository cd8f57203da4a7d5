"""The flags of commands whose parameters are rows of `hud_tui.parameters`, which take as long to
load as the rest of the command line."""

import argparse

from hud_tui.cli.flags import Taker, add_flag, add_flags
from hud_tui.cli.parser import Add, Parser, consent, finite_number, of_model, whole_number
from hud_tui.cli.remote_flags import RENTING, rented_run
from hud_tui.errors import HudUsage
from hud_tui.parameters import (
    EVAL,
    EVALUATION_PARAMETERS,
    PLAY,
    RECORDED_PARAMETERS,
    ROLLOUT_OPTIONS,
    RUN,
    RUN_PARAMETERS,
    RUNS_AT_ONCE,
    TRAIN,
    flag_of,
)


def preflight(add: Add) -> None:
    about = "check a taskset, and a model for it, before a run"
    parser = add(about, "--headless preflight tasks.jsonl -m arith-rl")
    _source(parser)
    choices, about = ("warning", "failure"), "lowest level with exit code 5"
    parser.add_argument("--fail-on", choices=choices, default="failure", help=about)
    add_flag(parser, RECORDED_PARAMETERS["group_size"], "group size of the planned run")
    about = "also roll out K groups with the model, to see which tasks give signal"
    parser.add_argument("--sample", type=whole_number, metavar="K", help=about)
    parser.add_argument("--fresh", action="store_true", help="ignore cached rollouts")


def run(add: Add) -> None:
    parser = add(
        "check a taskset, then submit a managed run",
        "--headless --local run arith -m arith-rl --steps 60 -y --follow",
        "run tasks.jsonl -m arith-rl",
        "--headless --local run arith -m arith-rl --lr 1e-4,3e-4 --group-size 8,16 --dry-run",
        "--local run tasks.json --config configs/text_2048.yaml -m my-model --dry-run",
        "run tasks.jsonl -m my-model --gpus 2xH100 --max-price 6 --hours 4 --dry-run",
    )
    _source(parser)
    add_flags(parser, RUN, (*RUN_PARAMETERS, RUNS_AT_ONCE))
    about = "train on SOURCE with the actions, prompt and rubric of this hud-vf-gym configuration: "
    about += "they become an environment, NAME/env.py; see docs/legacy-files.md"
    parser.add_argument("--config", metavar="FILE", help=about)
    about = "with --config: parent folder of the environment; default: this one"
    parser.add_argument("-o", "--output", metavar="DIR", help=about)
    _digest(parser)
    _logged(parser)
    about = "check, and say what would be sent and what it costs; send nothing"
    parser.add_argument("--dry-run", action="store_true", help=about)
    _followed(parser)
    consent(parser, changes=lambda args: not args.dry_run)
    about = "on a machine that is rented for it: rent, set up, run; see docs/rent-a-gpu.md"
    rented_run(parser.add_argument_group(about))


def check_run(args: argparse.Namespace) -> None:
    """Raises HudUsage: a flag of ``run`` without the one that it belongs to."""
    flags = vars(args)
    given = [name for name in RENTING if flags.get(name) not in (None, [])]
    if given and "gpus" not in given:
        raise HudUsage(f"{flag_of(given[0])} is of a machine that is rented", "add --gpus NxTYPE")
    if flags["output"] is not None and flags["config"] is None:
        raise HudUsage("--output is of an environment that is made", "add --config FILE")


def train(add: Add) -> None:
    parser = add(
        "train on an environment of your own: rollouts by the hud SDK, steps from here",
        "train env.py -m my-model",
        "train env.py -m my-model --check",
        "--headless --local train env.py -m my-model --steps 20 -y --follow",
        "train envs/shop --tasks tasks.jsonl --python .venv --env SHOP_TOKEN --turns 6",
    )
    about = "a Python file with a hud Environment, or a directory of them"
    parser.add_argument("source", metavar="ENV", help=about)
    _trained_model(parser)
    add_flags(parser, TRAIN, ROLLOUT_OPTIONS)
    add_flags(parser, TRAIN, RUN_PARAMETERS)
    parser.add_argument("--name", metavar="TEXT", help="name of the run")
    _logged(parser)
    about = "check, and roll out a few tasks with the head; train nothing"
    parser.add_argument("--check", action="store_true", help=about)
    about = "rollouts of each of up to 4 tasks before the run; default: 4"
    parser.add_argument("--check-rollouts", type=whole_number, metavar="N", help=about)
    about = "begin although no group of those rollouts would have a gradient"
    parser.add_argument("--anyway", action="store_true", help=about)
    about = "skip the rollouts before the run"
    parser.add_argument("--no-trial", action="store_true", help=about)
    _followed(parser)
    consent(parser, changes=lambda args: not args.check)


def play(add: Add) -> None:
    parser = add(
        "be the policy of one rollout: see what it sees, call its tools, be graded",
        "play env.py",
        "play sums/env.py total --turns 4",
        "--local play arith add-86-34",
        "play --rollout 3f2a91bc --replay 2",
        "--headless --local play env.py -m my-model",
    )
    about = "a Python file with a hud Environment, or a directory of them; or a taskset, or a file "
    about += "of tasks, of the service's own environments"
    parser.add_argument("source", nargs="?", metavar="SOURCE", help=about)
    about = "slug of a task, or a template; default: the first task"
    parser.add_argument("task", nargs="?", metavar="TASK", help=about)
    about = "a policy's rollout, to be replayed: by id; SOURCE is then where it was made"
    parser.add_argument("--rollout", metavar="ID", help=about)
    about = "append your turns to a file, to train on by cross_entropy; see docs/play.md"
    parser.add_argument("--keep", metavar="FILE", help=about)
    about = "turns of it to replay at once"
    parser.add_argument("--replay", type=whole_number, default=0, metavar="N", help=about)
    about = "who goes on if you let it; default: your only trainable model, else a base"
    parser.add_argument("-m", "--model", "--model-id", metavar="MODEL", help=about)
    add_flags(parser, PLAY, ROLLOUT_OPTIONS)
    add_flags(parser, PLAY, EVALUATION_PARAMETERS)


EVALUATED = (
    "file, directory, or taskset, or an environment of your own (.py); default: the tasks of the "
    "model's latest run"
)


def evaluate(add: Add) -> None:
    parser = add(
        "evaluate checkpoints: mean reward and pass@k with confidence intervals",
        "eval arith -m arith-rl",
        "eval arith -m arith-rl --checkpoint base --checkpoint head --samples 8",
        "--headless eval -m arith-rl --checkpoint best --fail-under .8",
        "--headless eval arith -m arith-rl --fail-if-worse-than step-000030",
        "eval --resume ID",
        "eval -m arith-rl --list",
        "--local eval sums/env.py -m sums --checkpoint best --turns 4",
    )
    parser.add_argument("source", nargs="?", metavar="SOURCE", help=EVALUATED)
    _trained_model(parser)
    about = (
        "an id, a name, head (the default), best, or base: what the model started from; given "
        "again, each is compared with the first"
    )
    parser.add_argument("--checkpoint", action="append", metavar="ID", help=about)
    _split(parser)
    _digest(parser)
    add_flags(parser, EVAL, EVALUATION_PARAMETERS)
    _logged(parser)
    about = "exit code 6 where the mean reward is less"
    parser.add_argument("--fail-under", type=finite_number, metavar="X", help=about)
    about = (
        "exit code 6 where the mean reward is lower than this evaluation's or checkpoint's beyond "
        "chance: the whole interval of the difference on the tasks of both is below 0"
    )
    parser.add_argument("--fail-if-worse-than", metavar="ID", help=about)
    own = parser.add_argument_group("on an environment of your own")
    add_flags(own, EVAL, ROLLOUT_OPTIONS)
    which = parser.add_mutually_exclusive_group()
    about = "resume a cancelled or interrupted evaluation; nothing is sampled twice"
    which.add_argument("--resume", metavar="ID", help=about)
    which.add_argument("--list", action="store_true", help="the model's evaluations, oldest first")


def ship(add: Add) -> None:
    parser = add(
        "which of a few checkpoints to serve: compared on the same tasks, beyond chance",
        "ship arith-rl",
        "ship arith-rl --candidates head step-000030 base --budget 1200",
        "ship arith-rl --candidates head warm-rl:head cold-rl:head --reference warm-rl:head",
        "--headless ship arith-rl --budget 600 --fail-if-undecided",
        "ship arith-rl --resume",
    )
    of_model(parser, about="by name or id; default: your only trainable model")
    about = (
        "2 to 8 of: an id, a name, head, best, or base (what the model started from); MODEL:NAME "
        "of another model; default: head, best, the newest, and base"
    )
    parser.add_argument("--candidates", nargs="+", metavar="ID", help=about)
    about = "the candidate that the others are shown beside; default: base, or the first"
    parser.add_argument("--reference", metavar="ID", help=about)
    which = parser.add_mutually_exclusive_group()
    about = (
        "sample at most this many fresh rollouts, by successive halving: each round samples those "
        "that are left equally, and the better half goes on"
    )
    which.add_argument("--budget", type=whole_number, metavar="ROLLOUTS", help=about)
    about = "go on with the newest selection among these candidates; nothing is sampled twice"
    which.add_argument("--resume", action="store_true", help=about)
    about = "exit code 6 unless one is better than each other beyond chance"
    parser.add_argument("--fail-if-undecided", action="store_true", help=about)
    _sampled(parser)


def bisect(add: Add) -> None:
    parser = add(
        "find the step that did the damage: evaluate where it tells the most",
        "bisect arith-rl --good step-000010 --bad head",
        "--headless bisect arith-rl --good base --bad step-000120 --budget 1500",
        "bisect arith-rl --good step-000010 --bad head --resume",
    )
    of_model(parser, about="by name or id; default: your only trainable model")
    about = "a checkpoint before the damage: id, name, best, or base (what the model started from)"
    parser.add_argument("--good", metavar="ID", required=True, help=about)
    about = "one after it, of the same lineage; default: head"
    parser.add_argument("--bad", metavar="ID", default="head", help=about)
    which = parser.add_mutually_exclusive_group()
    about = "most rollouts; default: 2000"
    which.add_argument("--budget", type=whole_number, metavar="ROLLOUTS", help=about)
    about = "go on with the newest bisection of this lineage; nothing is sampled twice"
    which.add_argument("--resume", action="store_true", help=about)
    about = "sample nothing: say what is known of the newest bisection of this lineage"
    which.add_argument("--show", action="store_true", help=about)
    _sampled(parser)


def sweep(add: Add) -> None:
    parser = add(
        "list the sweeps of this machine; show, cancel or resume one",
        "sweep",
        "sweep arith-rl-sweep",
        "sweep arith-rl-sweep --cancel -y",
        "--headless --local sweep arith-rl-sweep --resume -y",
    )
    about = "by name or id; hud-tui run … --lr 1e-4,3e-4 starts one"
    parser.add_argument("sweep", nargs="?", metavar="SWEEP", help=about)
    which = parser.add_mutually_exclusive_group()
    about = "cancel its runs, and start no others"
    which.add_argument("--cancel", action="store_true", help=about)
    about = "start waiting runs, and resume cancelled or interrupted ones"
    which.add_argument("--resume", action="store_true", help=about)
    parser.add_argument("--follow", action="store_true", help="stay until all runs have ended")
    add_flag(parser, RUNS_AT_ONCE, "concurrent runs, from now on")
    _logged(parser)
    consent(parser, changes=lambda args: args.cancel or args.resume)


def _source(parser: Parser) -> None:
    about = "file, directory, or taskset; default: the primary_dataset of hud.lock.yaml here"
    parser.add_argument("source", nargs="?", metavar="SOURCE", help=about)
    _trained_model(parser)


def _trained_model(parser: Parser) -> None:
    about = "by name or id; default: your only trainable model"
    parser.add_argument("-m", "--model", "--model-id", metavar="MODEL", help=about)


def _followed(parser: Parser) -> None:
    """Flags of a command that starts a run and may follow it."""
    about = "do not use this task; may be given again"
    parser.add_argument("--leave-out", action="append", default=[], metavar="SLUG", help=about)
    about = "print events until the run ends; it continues if this is interrupted"
    parser.add_argument("--follow", action="store_true", help=about)
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        choices=("warning", "failure", "warn", "critical"),
        help="warning: exit code 5 at a preflight warning; warn, critical: exit code 6 at an alarm "
        "of the followed run; may be given twice",
    )


def _logged(parser: Parser) -> None:
    """Where what a command begins is logged, too."""
    about = "log to this project of Weights & Biases, PROJECT or ENTITY/PROJECT; see docs/wandb.md"
    parser.add_argument("--wandb", metavar="PROJECT", help=about)


def _digest(parser: Parser) -> None:
    about = "refuse if the tasks have changed: their digest, as the command log has it"
    parser.add_argument("--digest", metavar="HEX", help=about)


def _split(parser: Taker) -> None:
    about = "default: heldout, or all if no task is held out"
    parser.add_argument("--split", choices=("heldout", "train", "all"), help=about)


def _sampled(parser: Parser) -> None:
    """How `ship` and `bisect` make rollouts."""
    sampled = parser.add_argument_group("how they are sampled")
    sampled.add_argument("--source", metavar="SOURCE", help=EVALUATED)
    _split(sampled)
    parser.set_defaults(digest=None)
    add_flags(sampled, EVAL, [row for row in EVALUATION_PARAMETERS if row.name != "samples"])
    add_flags(sampled, EVAL, ROLLOUT_OPTIONS)
