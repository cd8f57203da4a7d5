"""Drive a run with the stand-in worker in a process of its own, which ends itself with SIGKILL at
a moment, the second time it comes to it. It is forked from one that has imported all this.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from hud_tui.client.run_calls import RunCalls
from hud_tui.client.training_calls import TrainingCalls
from hud_tui.rollouts.run_files import RunFolder, run_folder
from hud_tui.rollouts.service import connect_to
from hud_tui.settings import Settings, read_paths
from tests.rollouts.driving import driver_of

MOMENTS = {
    "a group is kept": (RunFolder, "add_group"),
    "the state is saved": (RunFolder, "save"),
    "the groups are cleared": (RunFolder, "keep_groups"),
    "a pass was answered": (TrainingCalls, "forward_backward"),
    "the step was answered": (TrainingCalls, "optim_step"),
    "a report was answered": (RunCalls, "report"),
}


def die_at(moment: str, is_before: bool) -> None:
    """Have this process killed at a call, before it is made or when it was answered."""
    owner, name = MOMENTS[moment]
    made, calls = getattr(owner, name), iter((False, True))

    def die() -> None:
        if next(calls, True):
            os.kill(os.getpid(), signal.SIGKILL)

    async def answered(answer: Awaitable[Any]) -> Any:
        result = await answer
        die()
        return result

    def replaced(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_before:
            die()
        result = made(self, *args, **kwargs)
        if not is_before and asyncio.iscoroutine(result):
            return answered(result)
        if not is_before:
            die()
        return result

    setattr(owner, name, replaced)


def driving(folder: RunFolder, *moment: str) -> ForkServerProcess:
    """A process that drives this run, and dies ``before`` or ``after`` a moment if it is given."""
    forks = get_context("forkserver")
    forks.set_forkserver_preload([__name__])
    process = forks.Process(target=_drive, args=(folder.path, dict(os.environ), *moment))
    process.start()
    return process


def _drive(path: Path, environ: dict[str, str], *moment: str) -> None:
    os.environ.clear()
    os.environ.update(environ)
    if moment:
        die_at(moment[0], moment[1] == "before")
    state = path.parent.parent
    folder = run_folder(state, path.name)
    order = folder.order()
    paths = read_paths(str(state), order.data_dir or None)

    def settings() -> Settings | None:
        client = connect_to(order, paths)
        return None if client is None else client.settings

    with folder.driving():
        sys.exit(int(asyncio.run(driver_of(folder, settings).run()) != "succeeded"))
