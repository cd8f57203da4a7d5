"""Whether a run or an evaluation is logged to Weights & Biases: by the flag, else the config file;
and whether that works here."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hud_tui.audit_log import AuditEntry
from hud_tui.cli.streams import tell
from hud_tui.client.probe import probe_url
from hud_tui.config import config_dir, project_problem, read_config
from hud_tui.errors import HudUsage
from hud_tui.rl.findings import Finding
from hud_tui.rl.text import counted, one_line
from hud_tui.settings import Paths, VariableSource
from hud_tui.sinks.orders import (
    INSTALL,
    KEY,
    MODULE,
    begin_sink,
    host,
    key_origin,
    require_sdk,
    unfinished,
)

TRY_S = 60.0
"""Longest wait for the SDK to write a row, seconds; usually it takes three."""


def require_project(project: str) -> None:
    """Raises HudUsage: no name of a project, or the SDK is not installed."""
    if problem := project_problem(project):
        raise HudUsage(f"--wandb {problem}")
    require_sdk()


def log_work(paths: Paths, change: AuditEntry, project: str | None) -> None:
    """Begin to log what a change began. The run goes on whether that works or not: why not is told
    on stderr. `project`: the flag's value; None: that of the config file."""
    try:
        if project is None:
            project = read_config(config_dir(os.environ)).sinks.wandb
        begin_sink(paths, change, project)
    except HudUsage as error:
        tell(f"not logged to Weights & Biases: {error.message}: {error.hint}")
    except OSError as error:
        tell(f"not logged to Weights & Biases: {error.strerror or error}")


# ``doctor``.


def check_wandb(
    installed: str | None,
    sources: Sequence[VariableSource],
    state: Path,
    environ: Mapping[str, str],
) -> Finding:
    """Whether runs would be logged to Weights & Biases: the SDK writes a row here and it is read
    back; with a key, its host answers.

    Args:
        installed: The SDK's version.
        sources: Where a key may be set.
        state: The state directory.
    """
    variables = {name: v for part in reversed(sources) for name, v in part.variables.items()}
    variables |= {name: value for name, value in environ.items() if name.startswith("WANDB_")}
    project, key = _project(environ), key_origin(variables)
    if installed is None and project:
        what = f"[sinks] wandb is {one_line(project, 60)}, but the SDK is not installed"
        return Finding("wandb", "warning", what, fix=INSTALL)
    if installed is None:
        unused = f"; nothing uses {KEY}" if key == KEY else ""
        off = f"Weights & Biases: the SDK is not installed; only --wandb needs it{unused}"
        return Finding("wandb", "ok", off)
    if problem := _try_sdk():
        what = f"wandb {installed} cannot write here: {problem}"
        return Finding("wandb", "warning", what, fix=f"{INSTALL} --upgrade")
    to = f"to {one_line(project, 60)}" if project else "where --wandb names a project"
    works = f"wandb {installed} writes here; runs are logged {to}"
    if waiting := len(unfinished(state)):
        works += f"; {counted(waiting, 'log')} not complete or not synced yet"
    if not key:
        return Finding("wandb", "ok", f"{works}, to files on this machine: no key to sync them")
    return _with_host(works, key, host(variables))


def _with_host(works: str, key: str, url: str) -> Finding:
    asked = probe_url("wandb", url, "://127." in url or "://localhost" in url)
    answer = asyncio.run(asked)
    if not answer.reachable or (answer.status or 0) >= 500:
        detail = answer.detail or f"HTTP {answer.status}"
        what = f"{works}, but {url} does not answer: {detail}"
        return Finding("wandb", "warning", what, fix="files stay here, and are synced later")
    return Finding("wandb", "ok", f"{works}, and synced to {url} with the key of {one_line(key)}")


def _project(environ: Mapping[str, str]) -> str:
    try:
        return read_config(config_dir(environ)).sinks.wandb
    except HudUsage:  # which is a finding of its own
        return ""


def _try_sdk() -> str:
    """Why the SDK cannot write here; empty if it can."""
    command = [sys.executable, "-P", "-m", MODULE, "--check"]
    try:
        tried = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRY_S, check=True
        )
        return str(json.loads(tried.stdout)["problem"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        return one_line(error, 300)
