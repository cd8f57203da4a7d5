"""Makes an evaluation on an environment of the user's own, in a process of its own.

Finished rollouts are in the evaluation's file, or on the service; whatever is killed, resuming
makes only the rest. One evaluation of a state directory makes rollouts at a time; the others wait.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from hud_tui.client.client import HudClient
from hud_tui.client.evaluation_files import EvaluationFiles, StoredEvaluation
from hud_tui.client.evaluation_ledger import EvaluationLedger
from hud_tui.errors import HudError, HudUsage
from hud_tui.processes import holding
from hud_tui.rl.text import one_line
from hud_tui.rollouts.driver import log_to_stderr
from hud_tui.rollouts.evaluate import evaluation_files, order_of_evaluation
from hud_tui.rollouts.run_files import DriverFolder, evaluation_folder
from hud_tui.rollouts.service import ServiceLink, connect_to
from hud_tui.rollouts.worker_rollouts import EvaluationMaker, WorkerHost, report_until_stopped
from hud_tui.settings import read_paths
from hud_tui.wire import BASE, WorkState
from hud_tui.wire_rollouts import JobEnter
from hud_tui.wire_runs import DriveReport

log = logging.getLogger("hud_tui.driver")

TURN_S = 0.2
"""Seconds between two attempts to get the turn."""


class EvaluationDriver:
    """One evaluation, from the state in its file on."""

    def __init__(
        self,
        files: EvaluationFiles,
        stored: StoredEvaluation,
        folder: DriverFolder,
        connect: Callable[[], HudClient | None],
    ) -> None:
        """`connect` returns a client of the evaluation's service; None if none runs now."""
        self._stored, self._folder = stored, folder
        self._stopping = asyncio.Event()
        self._service = ServiceLink(connect, self._stopping.is_set)
        self._host = WorkerHost(
            order_of_evaluation(stored), self._service, folder.environment_log, self._stopping
        )
        self._ledger = EvaluationLedger(files, stored, self._service.call)

    async def run(self) -> str:
        """Make it until its end, a cancel, or until the service is gone; returns its status."""
        making = asyncio.create_task(self._make())
        beating = asyncio.create_task(self._beat(making))
        try:
            await asyncio.wait({making})
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            await self._host.close()
            await self._service.close()
        self._folder.forget_cancel()
        if not making.cancelled() and (error := making.exception()) is not None:
            if not isinstance(error, HudError):
                raise error
            log.warning("%s", one_line(error.message))
        return self._ledger.stored.evaluation.status

    async def _make(self) -> None:
        """Raises HudError: it failed, which its file says."""
        evaluation = self._stored.evaluation
        async with self._ledger.ending(), self._turn():
            listed = await self._service.call(lambda c: c.evaluations(evaluation.model_id))
            self._ledger.is_told = listed is not None
            checkpoint = evaluation.checkpoint_id or (BASE if listed is not None else None)
            maker = EvaluationMaker(self._host, evaluation.id, checkpoint, self._ledger.tell)
            await self._service.call(lambda c: enter(c, evaluation))
            await self._ledger.fill(maker)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait for the turn to make rollouts, and hold it."""
        while True:
            with holding(self._folder.path.parent / "turn.lock") as is_ours:
                if is_ours:
                    yield
                    return
            await asyncio.sleep(TURN_S)

    async def _beat(self, making: asyncio.Task[None]) -> None:
        """End the making if that is requested here or of the service."""
        await report_until_stopped(self._host, self._folder, self._is_asked_to_stop)
        making.cancel()

    async def _is_asked_to_stop(self) -> bool:
        if not self._ledger.has_begun:
            return False
        told = self._service.client.runs.report(self._stored.evaluation.id, DriveReport())
        return (await told).asked == "cancel"


async def enter(client: HudClient, evaluation: WorkState) -> None:
    """Have the service know of the job of its rollouts."""
    checkpoint = evaluation.checkpoint or evaluation.checkpoint_id or "base"
    name = f"evaluation of {checkpoint} of {evaluation.model}"
    entered = JobEnter(name=one_line(name, 200), group=evaluation.samples)
    await client.rollouts.enter_job(evaluation.id.replace("-", ""), entered)


def main() -> int:
    """``python -m hud_tui.rollouts.evaluation_driver STATE_DIR ID``; returns 0 if it succeeded."""
    state, evaluation_id = sys.argv[1:]
    log_to_stderr()
    files, folder = evaluation_files(Path(state)), evaluation_folder(Path(state), evaluation_id)
    with folder.driving():
        stored = files.read(evaluation_id)
        if stored is None:
            raise HudUsage(f"evaluation {evaluation_id} has no file")
        order = order_of_evaluation(stored)
        paths = read_paths(state, order.data_dir or None)
        driver = EvaluationDriver(files, stored, folder, lambda: connect_to(order, paths))
        status = asyncio.run(driver.run())
    return 0 if status == "succeeded" else 1


if __name__ == "__main__":
    sys.exit(main())
