"""The SDK's own process: ``python -m hud_tui.service.engines.tinker.worker``.

Many requests at the same time, as in `hud_tui.pipes`; what is no answer reports the state of the
server's queue. It exits when stdin is closed, after releasing its runs, and ignores SIGINT, which a
terminal sends to all its processes. Only answers reach stdout, and stderr is a file, so no output
of the SDK reaches a terminal.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from hud_tui import pipes
from hud_tui.service.engines.base import (
    CLOSED,
    CODEC,
    NOTHING_ACCUMULATED,
    Adam,
    Datum,
    EngineError,
    EngineRefused,
    failure,
)
from hud_tui.service.engines.tinker.link import Pointer, pointed_states
from hud_tui.service.engines.tinker.run import Run, sample
from hud_tui.service.engines.tinker.server import Server, explain
from hud_tui.storage import open_or_make, read_regular, write_atomic

GOODBYE_S = 4.0


class Worker:
    """The open runs, and one method per request."""

    def __init__(self, send: Callable[[dict[str, Any]], None], directory: Path) -> None:
        """`directory`: for the journal."""
        self._send = send
        self._journal = Journal(directory / "intents.jsonl")
        self._runs: dict[str, Run] = {}
        self._ttl_s: int | None = None
        self._server: Server

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request: ``result``, or ``error`` and its ``kind``."""
        try:
            result = await getattr(self, f"do_{request['verb']}")(request)
            return {"id": request["id"], "result": result}
        except Exception as error:
            if not isinstance(error, EngineError):
                logging.exception("%s failed", request["verb"])
            return {"id": request["id"], **failure(explain(error, "the server"))}

    async def do_ping(self, request: dict[str, Any]) -> None:
        """Answer a ping."""

    async def do_connect(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Set the server; returns its models."""
        self._ttl_s = request["ttl_s"]
        self._server = Server(
            request["url"], request["keeps_samplers"], lambda state: self._send({"state": state})
        )
        return await self._server.models(request["patience_s"])

    async def do_open(self, request: dict[str, Any]) -> None:
        self._runs[request["handle"]] = Run(self._server, Pointer(**request["source"]))

    async def do_close(self, request: dict[str, Any]) -> None:
        run = self._runs.pop(request["handle"], None)
        if run is not None:
            await run.close()

    async def do_sample(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        return await sample(self._server, self._run(request), request["requests"])

    async def do_forward(self, request: dict[str, Any]) -> list[list[float]]:
        logprobs = await passes().forward(self._server, self._run(request), _datums(request))
        return [row.tolist() for row in logprobs]

    async def do_accumulate(self, request: dict[str, Any]) -> Any:
        given = (request["worth"], request["loss_fn"], request["config"])
        return await passes().accumulate(self._server, self._run(request), _datums(request), *given)

    async def do_optim_step(self, request: dict[str, Any]) -> dict[str, Any]:
        run = self._run(request)
        if not run.waiting:
            raise EngineRefused(NOTHING_ACCUMULATED)
        await run.trainer()
        name = request["name"]
        self._journal.intend(Intent(run.id, name))
        adam = Adam(**request["adam"])
        stepped = await passes().optim_step(self._server, run, adam, name, self._ttl_s)
        return {**vars(stepped), "rank": run.rank}

    async def do_stepped(self, request: dict[str, Any]) -> None:
        """Record that a step's pointer was written: the run is at that node."""
        run = self._run(request)
        run.stepped(Pointer(**request["source"]))
        if request["lost"]:
            await run.close()

    async def do_tidy(self, request: dict[str, Any]) -> None:
        """Delete what earlier processes saved and no checkpoint points to."""
        left = self._journal.take_left()
        try:
            counted = await asyncio.to_thread(pointed_states, Path(request["checkpoints"]))
        except (OSError, EngineError) as error:
            logging.info("nothing is tidied up: %s", error)
            return
        for intent in left:
            if f"tinker://{intent.run}/weights/{intent.name}" not in counted:
                await self._server.delete(intent.run, intent.name)
        self._journal.settle(left)

    async def goodbye(self) -> None:
        """Release all runs, for a limited time."""
        closing = [run.close() for run in self._runs.values()]
        try:
            async with asyncio.timeout(GOODBYE_S):
                await asyncio.gather(*closing, return_exceptions=True)
        except TimeoutError:
            logging.info("left %d runs to the server", len(closing))

    def _run(self, request: dict[str, Any]) -> Run:
        run = self._runs.get(request["handle"])
        if run is None:
            raise EngineError(CLOSED)
        return run


def passes() -> ModuleType:
    """The training module. It loads NumPy, which a process that only samples does not need."""
    from hud_tui.service.engines.tinker import training

    return training


def _datums(request: dict[str, Any]) -> list[Datum]:
    return [Datum(**row) for row in request["datums"]]


# Journal of intended steps, to find what a crash left on the server.
#
# A line is on disk before the request is sent. A step counts once a checkpoint here points to it.
# Names that no checkpoint points to are deleted from the server at the next start, since storage
# there costs money.


MOST_INTENTS_BYTES = 1 << 26
"""Maximum size of the file, bytes: about 500 000 steps."""


@dataclass(frozen=True)
class Intent:
    """A step that is about to be taken and saved."""

    run: str
    """The server's name of the training run."""
    name: str
    """Name of the state and of the sampler weights; never used twice."""


class Journal:
    def __init__(self, path: Path) -> None:
        """Reads what an earlier process left in the file."""
        self._path = path
        self._left = _intents(path)

    def take_left(self) -> list[Intent]:
        """Intents of earlier processes; returned only once."""
        left, self._left = self._left, []
        return left

    def intend(self, intent: Intent) -> None:
        """Append it to the file, fsynced. Raises OSError."""
        with open(open_or_make(self._path, os.O_APPEND), "a") as file:
            file.write(json.dumps(asdict(intent)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def settle(self, settled: Sequence[Intent]) -> None:
        """Remove intents that are settled."""
        done = {intent.name for intent in settled}
        unsettled = [intent for intent in _intents(self._path) if intent.name not in done]
        write_atomic(self._path, (json.dumps(asdict(intent)) + "\n" for intent in unsettled))


def _intents(path: Path) -> list[Intent]:
    """The complete lines; a crash may have truncated the last one."""
    try:
        lines = read_regular(path, MOST_INTENTS_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    intents = []
    for line in lines:
        try:
            intents.append(Intent(**json.loads(line)))
        except (ValueError, TypeError, RecursionError):
            continue
    return intents


async def serve(stdin: IO[bytes], answers: int, directory: Path) -> None:
    """Answer requests until stdin is closed. `answers`: file descriptor for the answers."""
    send = partial(pipes.reply, answers, codec=CODEC)
    worker = Worker(send, directory)

    async def answer(request: dict[str, Any]) -> None:
        send(await worker.answer(request))

    await pipes.answer_requests(stdin, answer, {}, CODEC)
    await worker.goodbye()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.dup(1)
    os.dup2(2, 1)  # anything printed goes into the log
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    for noisy in ("httpcore", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    warnings.simplefilter("ignore")
    asyncio.run(serve(sys.stdin.buffer, answers, Path(sys.argv[1])))
    sys.stderr.flush()
    os._exit(0)  # the SDK's threads may still be polling


if __name__ == "__main__":
    main()
