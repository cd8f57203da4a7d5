"""The commands on models and their checkpoints."""

from hud_tui.commands.parser import Add, consent, whole_number


def add_models(add: Add) -> None:
    """Add them to the command line."""
    _status(add)
    _models(add)
    _fork(add)
    _checkpoints(add)
    _head(add)


def _status(add: Add) -> None:
    about = "the service, a model, its head, its job and its last metrics"
    parser = add("status", about, "--headless status", "--headless status arith-rl")
    parser.add_argument("ref", nargs="?", metavar="MODEL|JOB", help="default: the newest run's")
    about = "all that the service says, to fold, search and copy from; headless, with the tree"
    parser.add_argument("-v", "--verbose", action="store_true", help=about)


def _models(add: Add) -> None:
    add("models", "the catalog, all pages", "--headless models")


def _fork(add: Add) -> None:
    example = "--headless --local fork tiny/arith-0.2M --name arith-rl -y"
    parser = add("fork", "make a model of your own from another's head", example)
    parser.add_argument("source", metavar="SOURCE", help="the model to start from")
    parser.add_argument("--name", required=True, help="what to call the new one")
    consent(parser)


def _checkpoints(add: Add) -> None:
    about = "a model's checkpoint tree, oldest first"
    parser = add("checkpoints", about, "--headless checkpoints arith-rl")
    parser.add_argument("model", metavar="MODEL")


def _head(add: Add) -> None:
    parser = add(
        "head",
        "the checkpoint that is served; or serve another",
        "--headless head arith-rl",
        "--headless head arith-rl --back 1 -y",
        "--headless head arith-rl --set step-000012 -y",
    )
    parser.add_argument("model", metavar="MODEL")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--set", dest="checkpoint", metavar="ID", help="by id or name")
    which.add_argument(
        "--back", type=whole_number, metavar="N", help="N steps up the head's lineage"
    )
    consent(parser)
