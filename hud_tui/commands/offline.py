"""The commands that work with files, not with a service: their flags and their help."""

from hud_tui.commands.parser import Add, whole_number

OFFLINE = (
    *("doctor", "keys", "init", "convert"),
    *("export", "report", "log", "protect"),
)
"""Commands that run the same with the app or without."""

SHEETS = ("metrics", "checkpoints", "groups", "alarms", "models", "jobs")
"""What can be exported as a table."""


def add_offline(add: Add) -> None:
    """Add them to the command line."""
    _doctor(add)
    _keys(add)
    _init(add)
    _convert(add)
    _export(add)
    _report(add)
    _log(add)
    _protect(add)


def _doctor(add: Add) -> None:
    parser = add(
        "doctor",
        "what is set, what answers, what this machine has, and what to do about it",
        "doctor",
        "doctor --local",
        "--headless doctor --fail-on warning",
    )
    choices = ("warning", "failure")
    parser.add_argument("--fail-on", choices=choices, default="failure", help="default: failure")


def _keys(add: Add) -> None:
    about = "every key of the app: its action's id for [keys] of the config file, and what it does"
    parser = add("keys", about, "keys", "keys live", "--headless keys")
    parser.add_argument("view", nargs="?", metavar="VIEW", help="only this one's, e.g. live")


def _init(add: Add) -> None:
    parser = add(
        "init",
        "write a hud-vf-gym configuration for an environment, or show one",
        "init ./environments/text_2048",
        "init hud.lock.yaml -o configs/mine.yaml --force",
        "--headless --local init arith",
        "init --show configs/mine.yaml",
    )
    about = "a directory with hud.lock.yaml, that file, or an environment of the service"
    parser.add_argument("environment", nargs="?", metavar="ENV", help=about)
    parser.add_argument("-o", "--output", metavar="FILE", help="default: configs/NAME.yaml")
    parser.add_argument("--force", action="store_true", help="write over a file that exists")
    parser.add_argument("--show", metavar="FILE", help="read this configuration; run nothing in it")


def _convert(add: Add) -> None:
    parser = add(
        "convert",
        "write tasks as a Hugging Face data set, and push it",
        "convert tasks.json --name my-org/my-tasks",
        "convert tasks.json --name my-org/my-tasks --private -y",
        "--headless convert tasks.jsonl --name my-tasks --no-push -o data/my-tasks",
    )
    parser.add_argument(
        "tasks", metavar="TASKS", help="a .json, .jsonl or .parquet, or a directory"
    )
    parser.add_argument("--name", required=True, metavar="ORG/NAME", help="the data set's")
    parser.add_argument("--private", action="store_true", help="only its owner may read it")
    parser.add_argument("--no-push", action="store_true", help="keep it on this machine")
    parser.add_argument("-o", "--output", metavar="DIR", help="default: NAME, here")
    parser.add_argument(
        "-y",
        "--yes",
        action="store_true",
        help="do not ask; pushing without a terminal needs it",
    )


def _export(add: Add) -> None:
    parser = add(
        "export",
        "write a run to new files: its metrics, its tree, its groups or its alarms",
        "export arith-rl",
        "export arith-rl --what checkpoints --format json -o tree.json",
        "--headless --local export --what jobs",
    )
    about = "by name or id; default: that of the newest run"
    parser.add_argument("ref", nargs="?", metavar="MODEL", help=about)
    about = "default: metrics, of every step of the head's lineage"
    parser.add_argument("--what", choices=SHEETS, default="metrics", help=about)
    parser.add_argument("--format", choices=("csv", "json"), default="csv", help="default: csv")
    about = "a new file, or a directory; default: the config's [export] directory, else here"
    parser.add_argument("-o", "--output", metavar="PATH", help=about)


def _report(add: Add) -> None:
    parser = add(
        "report",
        "write a run as a page of Markdown with its charts, in a new folder",
        "report arith-rl",
        "--headless --local report arith-rl -o reports",
    )
    about = "by name or id; default: that of the newest run"
    parser.add_argument("ref", nargs="?", metavar="MODEL", help=about)
    about = "where the folder goes; default: the config's [export] directory, else here"
    parser.add_argument("-o", "--output", metavar="DIR", help=about)


def _log(add: Add) -> None:
    about = "what was changed from this machine, and how to do it again"
    parser = add("log", about, "log", "log 'set head' --limit 5", "--headless log arith-rl")
    about = "only entries with these words: a verb, a model, an id, an outcome"
    parser.add_argument("text", nargs="?", metavar="TEXT", help=about)
    parser.add_argument(
        "--limit", type=whole_number, default=50, metavar="N", help="the newest N; 50"
    )


def _protect(add: Add) -> None:
    about = "models that are changed only by who types their name; or protect one"
    examples = ("protect", "protect arith-rl", "protect arith-rl --off --confirm arith-rl")
    parser = add("protect", about, *examples)
    parser.add_argument("model", nargs="?", metavar="MODEL", help="default: say which are")
    parser.add_argument("--off", action="store_true", help="protect it no longer")
    parser.add_argument("--confirm", metavar="NAME", help="its name, which --off needs")
