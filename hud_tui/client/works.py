"""Runs and evaluations of a service: listed, read, followed, cancelled and resumed, whoever carries
them out.

The service carries out its own. Processes on this machine (`Drivers`) carry out those on
environments of the user's own. This program makes evaluations from hosted rollouts, while somebody
follows them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hud_tui.client.evaluation_files import EvaluationFiles, StoredEvaluation, without_groups
from hud_tui.errors import HudError, HudNotFound, HudRefused, HudUnreachable
from hud_tui.rl.work import End, has_ended
from hud_tui.wire import Job, WorkState
from hud_tui.wire_changes import CancelJobResult

if TYPE_CHECKING:  # a list of jobs is read without
    from hud_tui.client.client import HudClient
    from hud_tui.client.evaluate import Evaluations
    from hud_tui.client.evaluation_ledger import Drivers
    from hud_tui.client.runs import RunList
    from hud_tui.client.sweep_files import SweepFiles
    from hud_tui.notebook import Notebook

LOOK_S, LONGEST_LOOK_S, FAR_LOOK_S = 0.1, 0.5, 3.0
"""Seconds between two reads of an evaluation: at first; the longest for a service on this machine,
and for one elsewhere."""


class WorkClient:
    def __init__(
        self, client: HudClient, files: EvaluationFiles, drivers: Drivers, state: Path | None
    ) -> None:
        """
        Args:
            files: Has the evaluations that are made on this machine.
            drivers: Carry out what is on environments of the user's own.
            state: Has notes on runs, and sweeps; None: nothing is kept.
        """
        self.client = client
        self._files, self._drivers, self._state = files, drivers, state

    @cached_property
    def evaluations(self) -> Evaluations:
        from hud_tui.client.evaluate import Evaluations

        return Evaluations(self.client, self._files, self._drivers)

    @cached_property
    def notes(self) -> Notebook:
        """The user's notes on runs, by run id."""
        from hud_tui.notebook import Notebook, run_notes

        return Notebook(None) if self._state is None else run_notes(self._state)

    @cached_property
    def sweeps(self) -> SweepFiles:
        from hud_tui.client.sweep_files import SweepFiles

        return SweepFiles(self._state)

    @cached_property
    def runs(self) -> RunList:
        """All runs of the service."""
        from hud_tui.client.imported import ImportedFiles
        from hud_tui.client.runs import RunList

        # A run of the embedded service says its sweep.
        names = dict if self.client.settings.embedded else self.sweeps.names
        imported = ImportedFiles(self._state)
        return RunList(self.client, lambda: self.notes.notes, names, imported=imported)

    async def state(self, work_id: str) -> WorkState | None:
        """How a run or an evaluation stands; None if it is neither. If its process on this machine
        was killed, it is interrupted, and the service is told. Raises HudError: the service does
        not answer."""
        stored = await self._files.find(self.client, work_id)
        if stored is None:
            driven = await self._drivers.state(self.client, work_id)
            run = driven or await self.client.known_job(work_id)
            return run or await self.evaluations.known(work_id)
        now = self.evaluations.now(stored)
        if has_ended(now.status) and not has_ended(stored.evaluation.status):
            await tell_end(self.client, work_id, End(now.status, now.error))
        return without_groups(now)

    async def jobs(self) -> list[Job]:
        """The newest jobs. The service is told now of evaluations of this machine that ended while
        it was away. Raises HudError: it does not answer."""
        jobs = await self.client.jobs()
        return [await self._told(job) if job.status == "interrupted" else job for job in jobs]

    async def _told(self, job: Job) -> Job:
        stored = await self._files.find(self.client, job.id)
        ended = stored is not None and has_ended(stored.evaluation.status)
        if stored is None or not ended or stored.evaluation.status == job.status:
            return job
        if not self.client.wire.guard.shut:
            from hud_tui.client.evaluation_ledger import tell

            with suppress(HudError):  # else with the next list
                await tell(self.client, stored.evaluation)
        return job.model_copy(update={"status": stored.evaluation.status})

    async def follow(self, evaluation_id: str) -> AsyncGenerator[WorkState, None]:
        """Yield its state repeatedly; the last one has ended, and includes its rewards by task.

        An evaluation that is made from hosted rollouts progresses only in here. If this generator
        is closed or cancelled early, the service is told to stop open rollouts; the evaluation can
        be resumed. Others go on.
        """
        stored = await self._files.find(self.client, evaluation_id)
        if stored is not None and stored.environment is None:
            async with aclosing(self._make(stored)) as made:
                async for evaluation in made:
                    yield evaluation
            return
        look_s, longest_s, read = LOOK_S, LONGEST_LOOK_S, self.evaluations.get
        if stored is None and not self.client.settings.local:
            longest_s = FAR_LOOK_S
        while not has_ended((now := await read(evaluation_id, groups=False)).status):
            yield now
            await asyncio.sleep(look_s)
            look_s = min(1.25 * look_s, longest_s)
        yield await read(evaluation_id)

    async def cancel(self, work_id: str) -> CancelJobResult:
        """Stop anything between two steps or rollouts; what is finished is kept. A process of this
        machine is told itself, too, and waited for. No effect on what has ended. Raises HudError:
        the service refused, or did not answer."""
        stored = await self._files.find(self.client, work_id)
        driven = await self._drivers.state(self.client, work_id)
        now = driven if stored is None else stored.evaluation
        if now is not None and has_ended(now.status):
            return CancelJobResult(cancelled=0, status="not_running")
        passed: tuple[type[HudError], ...] = () if stored is None else (HudNotFound,)
        if self._drivers.is_active(work_id):  # it is told itself
            passed = HudRefused, HudUnreachable
        result = CancelJobResult(cancelled=1, status="cancelled")
        with suppress(*passed):
            answer = await self.client.cancel_job(work_id)
            if answer.cancelled or not passed:  # else it goes on without an open rollout
                result = answer
        await self._drivers.stop(work_id)
        left = None if stored is None else self._files.read(work_id)
        if left is not None and not has_ended(left.evaluation.status):
            self._files.write(left.ended("cancelled"))
            await tell_end(self.client, work_id, End("cancelled"))
        return result

    async def resume(self, work_id: str) -> WorkState:
        """Resume a run from its last step, or an evaluation with the missing rollouts; from hosted
        ones, once it is followed.

        Raises:
            HudNotFound: No such run or evaluation.
            HudConflict: It is active, or complete.
            HudUsage: As that, of what is made on this machine; or its environment, interpreter or a
                variable is missing here, or another run trains the model. It stays as it is.
            HudError: The service refused, or its process did not begin.
        """
        stored = await self._files.find(self.client, work_id)
        if stored is not None:
            return await self.evaluations.requeue(stored)
        driven = await self._drivers.resume(self.client, work_id)
        return driven or await self.client.resume_job(work_id)

    async def _make(self, stored: StoredEvaluation) -> AsyncGenerator[WorkState, None]:
        """Make the missing rollouts; yields the state after each part, and at last the outcome."""
        from hud_tui.client.evaluate import HostedMaker
        from hud_tui.client.evaluation_ledger import EvaluationLedger

        if has_ended(stored.evaluation.status):
            yield stored.evaluation
            return
        ledger = EvaluationLedger(self._files, stored, lambda ask: ask(self.client))

        async def make() -> None:
            async with ledger.ending():
                await ledger.fill(HostedMaker(self.client, stored.evaluation))

        making = asyncio.create_task(make())
        try:
            while not making.done():
                hearing = asyncio.create_task(ledger.news.wait())
                await asyncio.wait({making, hearing}, return_when=asyncio.FIRST_COMPLETED)
                hearing.cancel()
                ledger.news.clear()
                if not making.done():
                    yield ledger.stored.evaluation
            making.result()
        finally:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)
        yield ledger.stored.evaluation


async def tell_end(client: HudClient, work_id: str, end: End) -> None:
    """Tell the service how work ended whose process is gone, since nobody else can know."""
    if not client.wire.guard.shut:
        from hud_tui.wire_runs import DriveReport

        report = DriveReport.model_validate({"status": end.status, "error": end.error})
        with suppress(HudError):  # else it notices soon that reports are overdue
            await client.runs.report(work_id, report)
