"""The flags of ``remote`` and ``pods``, whose actions have flags of their own."""

import argparse
from collections.abc import Callable

from hud_tui.cli.flags import Taker
from hud_tui.cli.parser import Parser, consent, finite_number, global_flags, whole_number


def _actions(parser: Parser) -> Callable[..., Parser]:
    """Returns a function (name, about) → the parser of one action."""
    group = parser.add_subparsers(title="actions", metavar="ACTION")

    def add(name: str, about: str) -> Parser:
        flags = group.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
        global_flags(flags)
        flags.set_defaults(action=name)
        return flags

    return add


MACHINE = "its name: hud-tui remote list"


def remote(parser: Parser) -> None:
    """The actions of ``remote``."""
    parser.set_defaults(action="list")
    action = _actions(parser)
    _remote_add(action("add", "check a machine, and set a training server up on it"))
    action("list", "list the machines that are known here")
    flags = action("status", "ask a machine how it is: GPUs, disk, server, tunnel")
    flags.add_argument("name", metavar="NAME", help=MACHINE)
    flags = action("log", "show the end of its server's log, or what its set-up printed")
    flags.add_argument("name", metavar="NAME", help=MACHINE)
    flags.add_argument("--setup", action="store_true", help="of its set-up")
    _lines(flags)
    flags = action("use", "train on a machine from now on, through a tunnel; or here again")
    flags.add_argument("name", nargs="?", metavar="NAME", help=MACHINE)
    flags.add_argument("--off", action="store_true", help="train on this machine again")
    flags = action("remove", "stop its server, and remove everything that was put there")
    flags.add_argument("name", metavar="NAME", help=MACHINE)
    about = "only forget it here; for a machine that is gone"
    flags.add_argument("--forget", action="store_true", help=about)
    about = "even if another client uses it: its models and checkpoints there are lost"
    flags.add_argument("--force", action="store_true", help=about)
    consent(flags, "")


def _lines(parser: Parser) -> None:
    about = "the last N; 100"
    parser.add_argument("--lines", type=whole_number, default=100, metavar="N", help=about)


def _remote_add(parser: Parser) -> None:
    about = "anything that `ssh HOST` understands: an alias, a name, user@name"
    parser.add_argument("host", metavar="HOST", help=about)
    parser.add_argument("-p", "--port", type=whole_number, metavar="N", help="sshd's port")
    parser.add_argument("-i", "--identity", metavar="FILE", help="private key; default: ssh's own")
    parser.add_argument("--name", help="its name here; default: from HOST")
    _setup_flags(parser)
    about = "only say what is found there and what would be done"
    parser.add_argument("--dry-run", action="store_true", help=about)
    consent(parser, "")


def _setup_flags(parser: Parser) -> None:
    """Flags for the set-up of a machine."""
    _engine(parser)
    about = "a model of the Hub, or a folder there; default: by the GPUs' memory"
    parser.add_argument("--model", metavar="MODEL", help=about)
    about = "folder there for everything; default: ~/.hud-tui/NAME"
    parser.add_argument("--root", metavar="DIR", help=about)
    about = "a Python environment there that has the engine; default: one is made"
    parser.add_argument("--env", metavar="DIR", help=about)
    about = "install this requirement instead of the pinned engine"
    parser.add_argument("--package", metavar="REQ", help=about)
    _send(parser)


def _engine(parser: Taker) -> None:
    about = "skyrl-gpu, skyrl-ray, skyrl-cpu or hud-tui; default: by its GPUs"
    parser.add_argument("--engine", metavar="E", help=about)


def _send(parser: Taker) -> None:
    about = "also send this variable, to a file that only you can read there: HF_TOKEN, \
WANDB_API_KEY, HUD_API_KEY or PRIME_API_KEY"
    parser.add_argument("--send", action="append", default=[], metavar="NAME", help=about)


POD = "its name: hud-tui pods list"


def pods(parser: Parser) -> None:
    """The actions of ``pods``."""
    parser.set_defaults(action="available")
    _offer_flags(parser)
    action = _actions(parser)
    _offer_flags(action("available", "list what can be rented, cheapest first"))
    _pod_create(action("create", "rent one machine, wait for it, and set it up"))
    _pod_setup(action("setup", "continue a renting or set-up that was interrupted"))
    action("list", "list what is rented, what it costs, and what has ended")
    about = {
        "status": "ask Prime how a pod is",
        "log": "show the end of what a pod's set-up printed",
        "ssh": "open a shell on a pod",
        "protect": "require a pod's name to terminate it",
    }
    parsers = {name: action(name, text) for name, text in about.items()}
    for flags in parsers.values():
        flags.add_argument("name", metavar="POD", help=POD)
    _lines(parsers["log"])
    _identity(parsers["ssh"])
    flags = action("terminate", "end a pod, and its costs; what is on it is lost")
    flags.add_argument("name", metavar="POD", help=POD)
    consent(flags, "pod")


RENTING = (
    *("gpus", "provider", "region", "spot", "max_price", "disk", "hours", "idle", "identity"),
    *("engine", "base", "send"),
)
"""Flags of a run on a machine that is rented for it."""


def rented_run(parser: Taker) -> None:
    """The flags of ``run`` for a machine that is rented for it."""
    _offer_flags(parser)
    _budget_flags(parser)
    _identity(parser)
    _engine(parser)
    about = "what MODEL is forked from there; default: by the GPUs' memory"
    parser.add_argument("--base", metavar="MODEL", help=about)
    _send(parser)


def _offer_flags(parser: Taker) -> None:
    """Flags that select offers."""
    absent = argparse.SUPPRESS
    about = "e.g. 2xH100, or A100 for any number"
    parser.add_argument("--gpus", metavar="NxTYPE", default=absent, help=about)
    parser.add_argument("--provider", metavar="P", default=absent, help="of this provider only")
    about = "e.g. united_states, or a country's code; may be given again"
    parser.add_argument("--region", metavar="R", action="append", default=absent, help=about)
    about = "only machines that may be taken away at any time; or none of them"
    parser.add_argument("--spot", action=argparse.BooleanOptionalAction, default=absent, help=about)
    about = "dollars per hour at most"
    parser.add_argument("--max-price", type=finite_number, metavar="X", default=absent, help=about)
    parser.add_argument(
        "--disk", type=whole_number, metavar="GB", default=absent, help="size of its disk"
    )


def _budget_flags(parser: Taker, hours: float | None = None, idle: int | None = None) -> None:
    """Flags of what a machine may cost, with their defaults."""
    about = "end it after so many hours; 4"
    parser.add_argument("--hours", type=finite_number, default=hours, metavar="X", help=about)
    about = "end it after so many minutes without use; 60, 0: never"
    parser.add_argument("--idle", type=whole_number, default=idle, metavar="MIN", help=about)


def _pod_create(parser: Parser) -> None:
    _offer_flags(parser)
    _budget_flags(parser, 4.0, 60)
    parser.add_argument("--image", metavar="I", help="system image; default: one with CUDA")
    _identity(parser)
    about = "name of the pod; given again, its renting and set-up continue"
    parser.add_argument("--name", help=about)
    about = "only rent it, and set nothing up"
    parser.add_argument("--bare", action="store_true", help=about)
    about = "rent one more, though another is not set up yet"
    parser.add_argument("--another", action="store_true", help=about)
    _setup_flags(parser)
    about = "only say what would be rented, and what it costs"
    parser.add_argument("--dry-run", action="store_true", help=about)
    consent(parser, "")


def _pod_setup(parser: Parser) -> None:
    parser.add_argument("name", metavar="POD", help=POD)
    _identity(parser)
    _send(parser)
    consent(parser, "")


def _identity(parser: Taker) -> None:
    about = "private key, its public half in the account; default: that of the renting, else \
PRIME_SSH_KEY_PATH, else the prime CLI's, else ~/.ssh/id_rsa"
    parser.add_argument("-i", "--identity", metavar="FILE", help=about)
