"""Rollouts on the user's environment: its worker, replaced when it exits, and what it is asked."""

import asyncio
import logging
from asyncio import FIRST_COMPLETED, create_task
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid5

from hud_tui.client.evaluation_ledger import Graded
from hud_tui.errors import HudConflict, HudError, HudUnreachable
from hud_tui.patience import rest
from hud_tui.rl.plan import MissingRollouts
from hud_tui.rl.tasks.task import Task
from hud_tui.rl.text import one_line
from hud_tui.rl.work import End
from hud_tui.rollouts.environment import Loaded, digest_of, load, rollout_of, setting_of
from hud_tui.rollouts.process import (
    EnvironmentFailed,
    OnRollout,
    Setting,
    WorkerGone,
    WorkerProcess,
)
from hud_tui.rollouts.run_files import DriverFolder, Order
from hud_tui.rollouts.service import ServiceLink
from hud_tui.rollouts.watched import error_text
from hud_tui.wire import JobError

log = logging.getLogger("hud_tui.driver")

DEATHS_IN_A_ROW = 5
"""Consecutive ends of the worker, without rollouts in between, after which it counts as broken."""

BEAT_S = 2.0
"""Seconds between two reports; the service counts a driver as gone after 30 s."""
R = TypeVar("R")
MakeWorker = Callable[[Setting, OnRollout], WorkerProcess]
OnLoad = Callable[[Loaded, str], None]


class Ended(Exception):
    """What is driven ends early."""

    def __init__(self, status: str, error: JobError | None = None):
        super().__init__(status)
        self.end = End(status, error)


class Away(Exception):
    """The service went away while rollouts were made, so they failed through no fault of their
    own."""


class WorkerHost:
    """An order's worker: started when it is needed, replaced when it exits or the environment's
    files change."""

    def __init__(
        self,
        order: Order,
        service: ServiceLink,
        output: Path,
        stopping: asyncio.Event,
        make_worker: MakeWorker = WorkerProcess,
        on_load: OnLoad = lambda loaded, digest: None,
    ) -> None:
        """`output`: file for the output of worker and environments; `stopping` is set when what is
        driven has to end. `on_load` is called with what was loaded, and the digest of the
        environment's files; it may raise."""
        self.order, self.service, self.stopping = order, service, stopping
        self.away = asyncio.Event()
        """Set while the service does not answer."""
        self._output, self._make_worker, self._on_load = output, make_worker, on_load
        self._worker: WorkerProcess | None = None
        self._loaded: Loaded | None = None
        self._digest = ""
        self._deaths = 0

    async def close(self) -> None:
        if self._worker is not None:
            await self._worker.close()

    def stop_if_asked(self) -> None:
        """Raises Ended: a stop was requested."""
        if self.stopping.is_set():
            raise Ended("cancelled")

    async def load(self) -> Loaded:
        """The environment from its present files, in a running worker. Raises EnvironmentFailed: an
        error in the user's code; or the worker exits repeatedly."""
        while True:
            try:
                return await self._try_to_load()
            except WorkerGone as error:
                await self.replace(error)

    async def _try_to_load(self) -> Loaded:
        digest = await asyncio.to_thread(digest_of, self.order.source)
        if self._worker is not None and self._loaded is not None and digest == self._digest:
            return self._loaded
        if self._worker is None:
            setting = setting_of(self.order, self.service.client.settings, self._output)
            self._worker = self._make_worker(setting, _log_failure)
            await self._worker.start()
        loaded = await load(self._worker, self.service.client, self.order)
        self._on_load(loaded, digest)
        self._loaded, self._digest = loaded, digest
        return loaded

    async def roll_out(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The worker's report of each rollout of a request.

        Raises:
            WorkerGone: The worker exited.
            Away: The service went away meanwhile.
            EnvironmentFailed: The request cannot be fulfilled.
        """
        if self._worker is None:
            raise WorkerGone("the worker ended")
        try:
            runs: list[dict[str, Any]] = (await self._worker.call("roll_out", **request))["runs"]
        except EnvironmentFailed:
            await self._see_service()  # the SDK's message for a service that is gone
            raise
        if any(run["error"] is not None for run in runs):
            await self._see_service()
        return runs

    async def _see_service(self) -> None:
        """After a failure, check whether the service answers. Raises Away."""
        try:
            await self.service.client.whoami()
        except HudUnreachable:
            self.away.set()
        if self.away.is_set():
            raise Away

    def succeed(self) -> None:
        """Rollouts were made: the worker works."""
        self._deaths = 0

    async def replace(self, error: WorkerGone) -> None:
        """Have the next request start another worker. Raises EnvironmentFailed: it exits
        repeatedly."""
        self._deaths += 1
        log.warning("%s (%d in a row)", error.message, self._deaths)
        if self._deaths > DEATHS_IN_A_ROW:
            message = f"the worker ended {self._deaths} times in a row: {error.message}"
            raise EnvironmentFailed({"type": "ProcessEnded", "message": message}) from error
        await self.kill()

    async def kill(self) -> None:
        if self._worker is not None:
            await self._worker.kill()
        self._worker = None

    async def await_service(self) -> None:
        """Wait until the service is back, perhaps with another address. Raises HudError: it was
        away for too long."""
        await self.kill()
        await self.service.call(lambda client: client.whoami())
        self.away.clear()


async def report_until_stopped(
    host: WorkerHost, folder: DriverFolder, is_asked_to_stop: Callable[[], Awaitable[bool]]
) -> None:
    """Report regularly until a stop is requested: in the folder, or by the service, which
    `is_asked_to_stop` reports to."""
    while not host.stopping.is_set():
        try:
            if folder.is_cancelled() or await is_asked_to_stop():
                host.stopping.set()
        except HudConflict as error:
            log.warning("the service has ended it: %s", one_line(error.message))
            host.stopping.set()
        except HudUnreachable as error:
            log.warning("not reported: %s", one_line(error.message))
            host.away.set()
            await host.service.forget()
        except HudError as error:
            log.warning("not reported: %s", one_line(error.message))
        await rest(BEAT_S, host.stopping)


def _log_failure(event: Mapping[str, Any]) -> None:
    run = event["run"]
    if run["error"] is not None:
        log.info("rollout %s failed: %s", run["trace_id"], one_line(error_text(run)))


@dataclass(frozen=True)
class WorkerMaker(Generic[R]):
    """Makes rollouts with a worker, several at a time."""

    host: WorkerHost
    roll_out: Callable[[MissingRollouts[Task]], Awaitable[R | None]]
    """Requests rollouts of a task; None if there is nothing to store."""
    on_return: Callable[[], Awaitable[object]]
    """Called when the service is back after it was away."""
    most: int | None = None
    """Most rollouts that are requested at a time, each by itself; None: whole groups, all at once,
    since the worker limits its rollouts."""

    async def make(self, missing: Sequence[MissingRollouts[Task]]) -> AsyncGenerator[R, None]:
        """Raises Ended: a stop was requested; WorkerGone; Away; EnvironmentFailed."""
        await self.host.load()
        waiting, most = list(missing), len(missing)
        if self.most is not None:
            waiting, most = [single for group in missing for single in group.singly], self.most
        waiting.reverse()
        open_: set[asyncio.Future[Any]] = set()
        events: list[asyncio.Future[Any]] = [
            create_task(each.wait()) for each in (self.host.stopping, self.host.away)
        ]
        try:
            while waiting or open_:
                while waiting and len(open_) < most:
                    open_.add(asyncio.ensure_future(self.roll_out(waiting.pop())))
                await asyncio.wait({*open_, *events}, return_when=FIRST_COMPLETED)
                done = [request for request in open_ if request.done()]
                # what has failed comes last: what was made beside it is kept
                for request in sorted(done, key=lambda each: each.exception() is not None):
                    open_.discard(request)
                    part: R | None = request.result()
                    if part is not None:
                        self.host.succeed()
                        yield part
                self.host.stop_if_asked()
                if self.host.away.is_set():
                    raise Away
        finally:
            for each in (*open_, *events):
                each.cancel()
            await asyncio.gather(*open_, *events, return_exceptions=True)

    async def recover(self, error: Exception, losses: int) -> None:
        """Replace a worker that exited, or wait for a service that went away. Raises the error: it
        is another; EnvironmentFailed: the worker exits repeatedly."""
        match error:
            case WorkerGone():
                await self.host.replace(error)
            case Away():
                await self.host.await_service()
                await self.on_return()
            case _:
                raise error


class EvaluationMaker:
    """Makes the rollouts of an evaluation with a worker, each requested by itself."""

    def __init__(
        self,
        host: WorkerHost,
        evaluation_id: str,
        checkpoint: str | None,
        on_return: Callable[[], Awaitable[object]],
    ) -> None:
        """
        Args:
            checkpoint: What completions are asked of: its id, or `BASE`; None for the model as it
                is served.
            on_return: As `WorkerMaker` takes it.
        """
        self.trouble = ""
        """Error of the last rollout that failed."""
        self._host, self._id, self._checkpoint = host, evaluation_id, checkpoint
        ahead = 2 * host.order.at_once  # one waits in the worker for each that is made
        maker = WorkerMaker(host, self._roll_out, on_return, ahead)
        self.make, self.recover = maker.make, maker.recover

    async def _roll_out(self, missing: MissingRollouts[Task]) -> list[Graded] | None:
        request = rollout_of(self._host.order, self._id, missing.task, missing.count)
        request["checkpoint"] = self._checkpoint
        request["group_id"] = uuid5(UUID(self._id), missing.task.slug).hex
        [run] = await self._host.roll_out(request)
        if run["error"] is not None:
            self.trouble = error_text(run)
            return None
        return [(missing.task.slug, float(run["reward"]))]
