"""``preflight --sample``: whether the tasks teach this model, seen in rollouts."""

import argparse
import sys
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from hud_tui.client.client import HudClient
from hud_tui.client.measuring import ask_of, measure, size_of
from hud_tui.client.signal_cache import SignalCache
from hud_tui.headless.output import tell
from hud_tui.rl.preflight import Finding
from hud_tui.rl.signal_progress import Asked, Progress
from hud_tui.rl.signal_report import document, judge
from hud_tui.rl.tasks import Task
from hud_tui.settings import read_paths
from hud_tui.wire import JobParameters


async def signal(
    client: HudClient,
    args: argparse.Namespace,
    tasks: list[Task],
    origin: dict[str, Any],
    parameters: JobParameters,
    model_name: str,
) -> tuple[Finding, dict[str, Any]]:
    """Measure the signal; the finding of the whole set, and ``signal`` of the document."""
    model = await client.model(model_name)
    asked = await ask_of(client, model, parameters, args.sample)
    paths = read_paths(args.state_dir, args.data_dir)
    cache = SignalCache(paths.state / "signal", fresh=args.fresh)
    taskset_id = None if args.fresh else origin.get("taskset_id")
    last, shown = None, -1
    async with aclosing(measure(client, tasks, model, asked, cache, taskset_id)) as measured:
        async for last in measured:
            if last.done != shown:
                _show(last)
                shown = last.done
    assert last is not None
    size = size_of(model, parameters, asked, tasks)
    if last.trouble:
        tell(f"a rollout failed: {last.trouble}")
    found = document(last.signals, size, last.pace, _said(model.model_name, asked))
    return judge(last.signals, size), {"signal": found}


def _said(model: str, asked: Asked) -> dict[str, Any]:
    return {
        "model": model,
        "checkpoint": asked.checkpoint,
        "sampling": asked.sampling,
        "groups": asked.groups,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _show(progress: Progress) -> None:
    """A bar on a terminal's one line; elsewhere the beginning and the end."""
    done, total = progress.done, progress.total
    if not sys.stderr.isatty():
        if done == total:
            tell(f"{done} of {total} rollouts, {len(progress.signals)} tasks")
        return
    filled = round(24 * done / total) if total else 24
    bar = "█" * filled + "░" * (24 - filled)
    end = "\n" if done == total else ""
    print(f"\r\x1b[K{bar} {done}/{total} rollouts", end=end, file=sys.stderr, flush=True)
