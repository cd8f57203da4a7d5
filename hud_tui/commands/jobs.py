"""The commands on jobs and their traces."""

from hud_tui.commands.parser import Add, consent, whole_number

WHICH_JOB = "its id, how that begins, or a model: then its latest run"


def add_jobs(add: Add) -> None:
    """Add them to the command line."""
    _jobs(add)
    _traces(add)


def _jobs(add: Add) -> None:
    parser = add(
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
    consent(parser)


def _traces(add: Add) -> None:
    examples = ("--headless traces JOB", "--headless traces JOB --step 12")
    parser = add("traces", "the rollouts of a job, the newest 1000", *examples)
    parser.add_argument("job", metavar="JOB", help=WHICH_JOB)
    parser.add_argument("--step", type=whole_number, metavar="N", help="only those of one step")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--limit", type=whole_number, metavar="N", help="the newest N")
    which.add_argument("--all", action="store_true", help="all, a document for each page of 1000")
