"""The engine's own process: ``python -m hud_tui.service.engines.tiny.worker``.

Frames on stdin and stdout. One request, one reply, in order. It ends when stdin does, so
it never outlives the service, and ignores SIGINT, which a terminal sends to everyone.

One BLAS thread, set before NumPy is loaded: it leaves a core to the screen, and the
same seed gives the same bits.
"""

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from hud_tui.service.engines.base import Adam, Datum, EngineError, SampleRequest
from hud_tui.service.engines.pipe import failure, frame, read_frame

if TYPE_CHECKING:
    from hud_tui.service.engines.tiny.learner import Learner

SINGLE = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class Worker:
    """The open policies, and one method per request."""

    def __init__(self) -> None:
        self.learners: dict[str, Learner] = {}

    def answer(self, request: dict[str, Any]) -> Any:
        """Carry out a request. Raises EngineError where it cannot be."""
        verb, handle = request["verb"], request["handle"]
        if verb == "ready":
            return None
        if verb == "open":
            return self.open(handle, Path(request["path"]))
        if verb == "slim":
            return self.slim(Path(request["path"]), Path(request["directory"]))
        if verb == "close":
            self.learners.pop(handle, None)
            return None
        learner = self.learners.get(handle)
        if learner is None:
            raise EngineError("this policy is closed: open it again")
        if verb == "sample":
            return learner.sample([SampleRequest(**row) for row in request["requests"]])
        if verb == "optim_step":
            return learner.optim_step(Adam(**request["adam"]), Path(request["directory"]))
        datums = [Datum(**row) for row in request["datums"]]
        if verb == "forward":
            return learner.forward(datums)
        if verb == "look":
            return learner.look(datums, request["config"])
        if request["slice"] == 0:
            learner.begin()
        try:
            if verb == "backward":
                return learner.backward(datums, request["weights"])
            return learner.forward_backward(datums, request["loss_fn"], request["config"])
        except EngineError:
            learner.undo()
            raise

    def open(self, handle: str, path: Path) -> dict[str, int]:
        """Open a policy under a handle; returns its sizes and whose handle it is."""
        from hud_tui.service.engines.tiny.learner import Learner

        learner = self.learners[handle] = Learner(path)
        config = learner.config
        return {"pid": os.getpid(), "context": config.context, "vocabulary": config.vocabulary}

    def slim(self, path: Path, directory: Path) -> str:
        """Write a state's weights alone into a directory; the new file's path."""
        from hud_tui.service.engines.tiny.state import load, not_written, save_weights

        weights, _, config = load(path)
        try:
            return str(save_weights(directory, weights, config))
        except OSError as error:
            raise not_written("the weights", error) from error


def reply(worker: Worker, body: bytes) -> dict[str, Any]:
    """What to send back: ``result``, or what `pipe.failure` makes of an error."""
    try:
        return {"result": worker.answer(orjson.loads(body))}
    except EngineError as error:
        return failure(error)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(dict.fromkeys(SINGLE, "1"))
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing but frames may reach the pipe
    worker = Worker()
    while (body := read_frame(stdin)) is not None:
        answer = frame(reply(worker, body))
        try:
            stdout.write(answer)
            stdout.flush()
        except BrokenPipeError:
            os._exit(0)  # the service is gone, and a closed pipe cannot be flushed at exit


if __name__ == "__main__":
    main()
