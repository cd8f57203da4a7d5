"""The embedded service's data directory: whether a start would take it, and what starts left."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from hud_tui.doctor.report import Finding
from hud_tui.doctor.storage import size_text, used
from hud_tui.rl.preflight import count
from hud_tui.rl.text import one_line

PATIENCE_S = 30.0


def look_into(data_dir: Path) -> dict[str, Any]:
    """What the service itself says of a directory that it does not serve now, asked in a process
    of its own; empty where there is nothing to look at."""
    if not (data_dir / "service.db").exists() and not (data_dir / "checkpoints").exists():
        return {}
    command = [sys.executable, "-P", "-m", "hud_tui.service", "--check", "--data-dir"]
    try:
        asked = subprocess.run(
            [*command, str(data_dir)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=True,
        )
        return dict(json.loads(asked.stdout))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {"refusal": f"{data_dir} could not be looked into: {error}"}


def check_data(said: dict[str, Any]) -> list[Finding]:
    """What to do about it."""
    if not said:
        return []
    if said["refusal"]:
        what, _, fix = one_line(said["refusal"], 1000).partition(". ")
        return [Finding("service", "failure", f"the service would not start: {what}", fix, code=1)]
    findings = []
    if said["damaged"]:
        damaged = count(said["damaged"], "damaged checkpoint")
        message = f"{damaged}: files are missing or corrupted"
        fix = "put them back from a backup; is:damaged in Checkpoints (/) shows which"
        findings.append(Finding("service", "warning", message, fix))
    if said["unknown"]:
        message = f"files of {count(said['unknown'], 'checkpoint')} that service.db does not know"
        fix = (
            "a crash left them, or service.db is an older copy: put the newer one back before the"
            " next start, which moves them to leftovers-DATE in the data directory"
        )
        findings.append(Finding("service", "warning", message, fix))
    return findings or [Finding("service", "ok", "database and checkpoints belong together")]


def check_leftovers(data_dir: Path) -> list[Finding]:
    """What starts moved aside."""
    fix = (
        "remove it where nothing in it is missed; or stop the service, put back the service.db that"
        " knows them, and move them to checkpoints"
    )
    return [
        Finding(
            "service",
            "warning",
            f"{one_line(place, 400)} holds {size_text(used(place))} that service.db did not know",
            fix,
        )
        for place in sorted(data_dir.glob("leftovers-*"))
        if place.is_dir()
    ]
