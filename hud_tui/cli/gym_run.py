"""``run --config``: a hud-vf-gym configuration and its tasks become an environment, which is
trained on."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import join
from typing import Any

from hud_tui.cli.commands import build_parser
from hud_tui.cli.connect import command_of
from hud_tui.cli.flags import swept
from hud_tui.cli.output import print_notice, require_consent, show
from hud_tui.cli.runs import is_refused, plan_stream, print_facts, print_finding
from hud_tui.cli.streams import changed
from hud_tui.cli.train import train_with
from hud_tui.client.client import HudClient
from hud_tui.client.preflight import choose_tasks, load_source
from hud_tui.errors import HudError, HudPreflightFailed, HudUsage
from hud_tui.legacy.dataset import check_dataset, to_rows
from hud_tui.legacy.gym import GymConfig, gym_warnings, open_gym
from hud_tui.legacy.gym_served import ServedAction, ServedGym, Taken, dataset_of, serve_gym
from hud_tui.legacy.lock_file import find_lock, load_lock, primary_source, read_bounded
from hud_tui.parameters import RUN, RUN_PARAMETERS, RUNS_AT_ONCE, TRAIN, Parameter
from hud_tui.rl.findings import Finding, verdict
from hud_tui.rl.tasks.legacy import find_variables
from hud_tui.rl.tasks.task import HELD_OUT, Task, form_of
from hud_tui.rl.text import one_line
from hud_tui.rollouts.gym_template import HUD_KEY, gym_environment, task_rows
from hud_tui.rollouts.template import write_files
from hud_tui.settings import every_variable

SHARED = (
    *("model", "yes", "headless", "local", "service_url", "read_only", "insecure", "version"),
    *("state_dir", "data_dir", "confirm", "follow", "fail_on", "leave_out", "wandb"),
    *(row.name for row in RUN_PARAMETERS if TRAIN in row.takers),
)
"""Flags of ``run`` that ``train`` has, too."""
ONLY_RUN = tuple(row for row in RUN_PARAMETERS if RUN in row.takers and TRAIN not in row.takers)


@dataclass(frozen=True)
class Prepared:
    """A configuration and its tasks, read and checked; nothing is written."""

    file: Path
    gym: ServedGym
    tasks: Sequence[Task]
    source: str
    folder: Path
    """Of the environment."""
    notes: Sequence[str]
    findings: Sequence[Finding]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What the environment has: labels and texts."""
        actions = [f"{a.name}({', '.join(p.name for p in a.parameters)})" for a in self.gym.actions]
        parts = [f"{weight:g} {name}" for name, weight in self.gym.weights.items()]
        return [
            ("environment", str(self.folder / "env.py")),
            ("actions", ", ".join(actions)),
            ("reward", " + ".join(parts)),
            ("turns", str(self.gym.turns)),
            ("tasks", f"{len(self.tasks)}, {_held_out(self.tasks)} held out, of {self.source}"),
            *(("starts", server) for server in _servers(self.tasks)),
        ]

    @property
    def document(self) -> dict[str, Any]:
        return {
            "config": str(self.file),
            "environment": str(self.folder / "env.py"),
            "actions": [_action(action) for action in self.gym.actions],
            "weights": self.gym.weights,
            "prompt": self.gym.prompt,
            "turns": self.gym.turns,
            "tasks": len(self.tasks),
            "heldout": _held_out(self.tasks),
            "servers": _servers(self.tasks),
            "notes": list(self.notes),
            "findings": self.findings,
            "verdict": verdict(list(self.findings)),
        }


async def prepare(client: HudClient, args: argparse.Namespace) -> Prepared:
    """Read and check what ``--config`` names; what is wrong with the tasks is printed. Raises
    HudUsage: something cannot be served."""
    _check_flags(args)
    file = Path(args.config)
    document, config = open_gym(str(file), read_bounded(file))
    lock = find_lock(file.parent, Path())
    gym = serve_gym(document, config, load_lock(lock).tools if lock else ())
    everything, origin = await load_source(client, args.source or _source(config))
    tasks, _ = choose_tasks(everything, origin, args.leave_out, args.digest)
    findings = [print_finding(finding) for finding in _checked(tasks)]
    folder = Path(args.output or ".") / gym.name
    notes = [*gym_warnings(document, config), *gym.notes]
    return Prepared(file, gym, tasks, origin["source"], folder, notes, findings)


async def run_config(client: HudClient, args: argparse.Namespace) -> int:
    """Write the environment, and train on it; returns the exit code.

    Raises:
        HudUsage: The configuration, or what the tasks need, cannot be served; nothing was written.
        HudError: As ``train``.
    """
    if not args.dry_run:
        require_consent(args, client)
    made = await prepare(client, args)
    document = {**made.document, "written": False}
    if is_refused(args.fail_on, list(made.findings)):
        show(args, "config", document, "nothing was written: the tasks failed")
        return HudPreflightFailed.exit_code
    variables = variables_of(made.tasks, client.settings.embedded)
    print_facts(made.facts, plan_stream(args))
    for note in made.notes:
        print_notice(note)
    if args.dry_run:
        show(args, "config", document, "nothing was written: --dry-run")
        return 0
    written = write_files(made.folder, gym_environment(made.gym, made.tasks))
    if written:
        changed(f"write {', '.join(one_line(path) for path in written)}")
    file = made.folder / "env.py"
    show(args, "config", {**document, "written": True}, f"wrote {one_line(file)}")
    return await _train(client, args, made.gym, file, variables)


def _check_flags(args: argparse.Namespace) -> None:
    """Raises HudUsage: a flag that runs on an environment do not take."""
    flags = vars(args)
    wrong: list[Parameter] = [row for row in ONLY_RUN if flags.get(row.name) is not None]
    wrong += [RUNS_AT_ONCE] if flags.get(RUNS_AT_ONCE.name) is not None else []
    if wrong:
        raise HudUsage(f"{wrong[0].flag} is not for --config", "leave it out")
    if several := swept(args):
        hint = "write the environment by one run, then train on it for each"
        raise HudUsage(f"--config takes one value of {', '.join(several)}", hint)


def _source(config: GymConfig) -> str:
    """What the tasks are read from where SOURCE is not given. Raises HudUsage: nothing says it."""
    try:
        return primary_source(Path())
    except HudUsage:
        if (dataset := dataset_of(config)) is not None:
            return dataset
        raise


def _checked(tasks: Sequence[Task]) -> list[Finding]:
    """Raises HudUsage: the tasks are of a form that has no servers and calls."""
    others = [task for task in tasks if task.form != "v4"]
    if others:
        what = f"{one_line(others[0].where)}: a task of the form {form_of(others)}"
        raise HudUsage(
            f"{what}, and --config takes prompt, mcp_config, setup_tool and evaluate_tool",
            "leave out --config to train on tasks of the service's own environments",
        )
    _, rows = to_rows(tasks)
    return check_dataset(tasks, rows, every_variable())


def variables_of(tasks: Sequence[Task], local: bool) -> list[str]:
    """Names of the variables that the tasks' servers get. `local`: whether the service is the
    embedded one. Raises HudUsage: a variable is not set."""
    asked = find_variables(tasks, os.environ.keys())
    names = [variable.name for variable in asked]
    missing = [variable.name for variable in asked if variable.missing]
    if "HUD_API_KEY" in names:
        names.remove("HUD_API_KEY")
        missing = [name for name in missing if name != "HUD_API_KEY"]
        names += [HUD_KEY] if HUD_KEY in os.environ else []
        if local and HUD_KEY not in os.environ:
            what = "the tasks' servers want a key of HUD's, and this is the embedded service"
            raise HudUsage(what, f"export {HUD_KEY}=…, a key of HUD's")
    if missing:
        what = f"the tasks' servers use {', '.join(map(one_line, missing))}: not set here"
        raise HudUsage(what, f"export {one_line(missing[0])}=…")
    return [name for name in names if name in os.environ]


def _servers(tasks: Sequence[Task]) -> list[str]:
    """What the tasks' servers are, each once: an address, or a program that rollouts start."""
    servers = [server for task in tasks for server in task.more["mcp_config"].values()]
    programs = (server.get("url") or _program(server) for server in servers)
    return list(dict.fromkeys(programs))


def _action(action: ServedAction) -> dict[str, Any]:
    """An action as in a configuration."""
    made = {
        key: {"from_arg": value.name} if isinstance(value, Taken) else {"static": value}
        for key, value in action.arguments.items()
    }
    parameters = [asdict(parameter) for parameter in action.parameters]
    return {"name": action.name, "tool": action.tool, "parameters": parameters, "arguments": made}


def _held_out(tasks: Sequence[Task]) -> int:
    """How many tasks the environment holds out."""
    rows = task_rows(tasks).values()
    return sum(row["columns"].get("split") == HELD_OUT for row in rows)


def _program(server: Mapping[str, Any]) -> str:
    args = server.get("args")
    return join([server["command"], *map(str, args if isinstance(args, list) else ())])


async def _train(
    client: HudClient, args: argparse.Namespace, gym: ServedGym, file: Path, env: Sequence[str]
) -> int:
    """Train on the environment as ``train`` does. An error says how it goes on."""
    parsed = vars(build_parser(["train"]).parse_args(["train", str(file)]))
    given = {name: vars(args)[name] for name in SHARED if name in vars(args)}
    more = {"turns": gym.turns, "env": list(env), "name": gym.title or None}
    words = ["train", file, *(word for name in env for word in ("--env", name))]
    again = command_of(args, *words, "-m", args.model or "MODEL", "--turns", gym.turns)
    try:
        code = await train_with(client, argparse.Namespace(**{**parsed, **given, **more}))
    except HudError as error:
        error.hint = f"{error.hint}; go on: {again}" if error.hint else f"go on: {again}"
        raise
    if code == HudPreflightFailed.exit_code:
        print_notice(f"its flags are those of train: {again}")
    return code
