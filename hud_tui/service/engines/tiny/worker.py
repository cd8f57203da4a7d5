"""A process of the engine: ``python -m hud_tui.service.engines.tiny.worker MEMORY``, the descriptor
of the shared memory.

Requests as in `hud_tui.pipes`, one after the other; only that a caller has left is heard at once,
and ends the completions that were sampled for it. It exits when stdin is closed, so it never
outlives the service, and ignores SIGINT, which a terminal sends to all its processes.

One BLAS thread, which the package sets before NumPy is loaded.
"""

import fcntl
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from math import isfinite, prod
from mmap import mmap
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from hud_tui import pipes
from hud_tui.service.engines.base import (
    BROKEN,
    CLOSED,
    CODEC,
    COOLEST,
    NO_OPTIONS,
    NOTHING_ACCUMULATED,
    Adam,
    Datum,
    EngineError,
    EngineRefused,
    NotFinite,
    Sampled,
    SampleRequest,
    Saved,
    distinct,
    failure,
    not_written,
)
from hud_tui.service.engines.tiny import training
from hud_tui.service.engines.tiny.model import Array, Config, Weights, greatest, shapes, zeros
from hud_tui.service.engines.tiny.sampling import After, Asked, Beginning, Row, sample
from hud_tui.service.engines.tiny.training import Floats, Tally, load, new_path, save_state

# Policy: what does not change weights.


class Policy:
    """Some weights, and what is computed from them alone. They are not changed."""

    def __init__(self, weights: Weights, config: Config) -> None:
        self.weights, self.config = weights, config

    def sample(self, asked: Sequence[Asked], after: After | None = None) -> list[Sampled]:
        """Raises NotFinite: the weights give values that are not finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            answers = sample(self.weights, self.config, asked, after)
        if not all(isfinite(value) for answer in answers for value in answer.logprobs):
            raise NotFinite(BROKEN)
        return answers

    def forward(self, datums: Sequence[Datum]) -> list[list[float]]:
        """Raises NotFinite: the weights give values that are not finite."""
        return [row.tolist() for row in self._logprobs(datums)[0]]

    def _logprobs(self, datums: Sequence[Datum]) -> tuple[list[Floats], list[Floats]]:
        """As `training.logprobs`. Raises NotFinite as `forward`."""
        with np.errstate(over="ignore", invalid="ignore"):
            rows, entropies = training.logprobs(self.weights, self.config, datums)
        if not all(np.isfinite(row).all() for row in rows):
            raise NotFinite(BROKEN)
        return rows, entropies

    def gradients(
        self,
        datums: Sequence[Datum],
        worth: Sequence[Sequence[float]],
        loss_fn: str | None = None,
        config: Mapping[str, float] = NO_OPTIONS,
        zeroed: Callable[[Weights], Weights] = zeros,
    ) -> tuple[Weights | None, dict[str, float]]:
        """The gradient of a loss, or of given weights, with arguments as in `training.weighing`
        and `training.gradients`; None if every weight is 0. And the metrics of `Tally`. Raises
        NotFinite as `forward`."""
        tally, weigh = training.weighing(datums, worth, loss_fn, config)
        with np.errstate(over="ignore", invalid="ignore"):
            grads, entropy = training.gradients(
                self.weights, self.config, datums, weigh, zeroed=zeroed
            )
        if not isfinite(entropy):
            raise NotFinite(BROKEN)
        return grads, tally.metrics(entropy)

    def measure(self, datums: Sequence[Datum], config: Mapping[str, float]) -> dict[str, float]:
        """The metrics of turns that are not trained on; loss:sum is 0. Raises NotFinite as
        `forward`."""
        tally = Tally(config, all(datum.logprobs for datum in datums))
        each, which = distinct(datums)
        rows, entropies = self._logprobs(each)
        entropy = 0.0
        for datum, index in zip(datums, which, strict=True):
            lp = rows[index]
            q = np.asarray(datum.logprobs, np.float64) if tally.has_ratios else lp
            tally.add(lp, q, np.zeros_like(lp), None)
            entropy += float(entropies[index].sum())
        return tally.metrics(entropy)


# Learner: one open policy, with the gradients it has accumulated.


Place = Callable[[Weights], Weights]
"""Copies weights to where they are to lie."""


def copied(weights: Weights) -> Weights:
    return {name: weight.copy() for name, weight in weights.items()}


class Learner:
    """Weights, Adam's moments (after the first step) and gradients (until the next step)."""

    def __init__(self, path: Path) -> None:
        """Open a base or a state. Raises EngineError as `load` does."""
        self.weights, self.moments, self.config = load(path)
        self.grads: Weights | None = None
        self._before: Weights | None = None

    def begin(self) -> None:
        """Begin a pass of several slices; `undo` returns to this point."""
        self._before = self.grads and copied(self.grads)

    def undo(self) -> None:
        """Discard the earlier slices of a pass after one has failed."""
        self.grads = self._before

    def add(self, parts: Iterable[Weights]) -> None:
        """Add the gradients of a slice's parts, in their order, all or nothing. Raises EngineError:
        their sum is not finite."""
        whole: Weights | None = None
        with np.errstate(over="ignore", invalid="ignore"):
            for part in parts:
                if whole is None:
                    whole = copied(part)
                else:
                    _add(whole, part)
            if whole is None:
                return
            length = training.norm(whole)
        if not isfinite(length):
            raise EngineError("the gradient is not finite: nothing was accumulated")
        if self.grads is None:
            self.grads = whole
        else:
            _add(self.grads, whole)

    def optim_step(
        self,
        adam: Adam,
        directory: Path,
        place: Place = copied,
        stepped: Callable[[Path], object] = lambda path: None,
    ) -> Saved:
        """Step, and save; the new weights lie where `place` puts them, from when `stepped` is told
        where they are about to be saved. If saving fails, the step is undone and the gradients are
        kept.

        Raises:
            EngineRefused: Nothing was accumulated.
            NotFinite: The weights, or their outputs, would not be finite; the gradients are
                dropped.
            DiskFull: There is no room for the state.
            EngineError: The state could not be written.
        """
        if self.grads is None:
            raise EngineRefused(NOTHING_ACCUMULATED)
        weights, moments, grads = place(self.weights), self._moments(), copied(self.grads)
        with np.errstate(over="ignore", invalid="ignore"):
            metrics = {"grad_norm": training.norm(grads)}
            training.adam_step(weights, grads, moments, adam)
        # the norm is infinite where a square is, which the moments keep for good
        if not (isfinite(metrics["grad_norm"]) and _is_finite(weights, self.config)):
            self.grads = None
            raise NotFinite(
                "no step was taken, for the weights or what they compute would not be finite:"
                f" lower the learning rate of {adam.learning_rate}, the weight decay of"
                f" {adam.weight_decay} or the rewards (the gradient's norm is"
                f" {metrics['grad_norm']:.3g}). The pending gradients are dropped"
            )
        start, state = perf_counter(), new_path(directory)
        stepped(state)
        try:
            path = str(save_state(state, weights, moments, self.config))
        except OSError as error:
            raise not_written("the state", error) from error
        self.weights, self.moments, self.grads = weights, moments, None
        return Saved(path, path, metrics, perf_counter() - start)

    def _moments(self) -> training.Moments:
        """A copy of Adam's moments."""
        if self.moments is None:
            return training.Moments.fresh(self.weights)
        return training.Moments(copied(self.moments.m), copied(self.moments.v), self.moments.t)


def _add(sums: Weights, more: Weights) -> None:
    for name, values in more.items():
        sums[name] += values


LARGEST = float(np.finfo(np.float32).max) * COOLEST / 4
"""Bound of what a forward pass may compute: the lowest temperature scales logits up, the softmax
takes their differences, and sums are rounded."""


def _is_finite(weights: Weights, config: Config) -> bool:
    """Whether the weights give finite logprobs for any tokens at any temperature, on any
    processor."""
    with np.errstate(over="ignore", invalid="ignore"):
        return greatest(weights, config) <= LARGEST


# Shared memory, as `memory` describes it: what lies where is said with each request.


LINE = 64
"""Bytes to whose multiples tensors are aligned."""


class Mapped:
    """The arrays of a shared memory, float32."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._all = np.empty(0, np.float32)
        """As much of it as there was when it was looked at last."""

    def array(self, start: int, shape: tuple[int, ...]) -> Array:
        first, size = start // 4, prod(shape)
        if first + size > len(self._all):
            self._all = np.frombuffer(mmap(self._descriptor, 0), np.float32)
        return self._all[first : first + size].reshape(shape)

    def tensors(self, start: int, config: Config) -> Weights:
        """Arrays shaped like a policy's weights, one after the other."""
        room, views, end = self.array(start, (size_of(config) // 4,)), {}, 0
        for name, shape in shapes(config).items():
            size = prod(shape)
            views[name] = room[end : end + size].reshape(shape)
            end += _aligned(size)
        return views

    def placing(self, start: int, config: Config) -> Place:
        """Copies weights into the memory."""

        def place(weights: Weights) -> Weights:
            views = self.tensors(start, config)
            for name, view in views.items():
                view[:] = weights[name]
            return views

        return place

    def asked(
        self,
        config: Config,
        request: dict[str, Any],
        before: tuple[int, int, int] | None,
        keep: int | None,
    ) -> Asked:
        """A completion to sample, with the conversation that it continues and the place for its
        own, as `conversations.Known` says them."""
        shape = (2, config.layers, config.heads, 0, config.width // config.heads)

        def write(keys: Array, values: Array) -> None:
            if keep is not None:
                region = self.array(keep, (*shape[:3], keys.shape[2], shape[4]))
                region[0], region[1] = keys, values

        beginning = None
        if before is not None:
            keys, values = self.array(before[0], (*shape[:3], before[1], shape[4]))
            beginning = Beginning(keys, values, before[2])
        return Asked(SampleRequest(**request), beginning, None if keep is None else write)


def size_of(config: Config) -> int:
    """Size of a policy's tensors in shared memory, bytes."""
    return 4 * sum(_aligned(prod(shape)) for shape in shapes(config).values())


def _aligned(size: int) -> int:
    """Numbers that a tensor of so many numbers takes."""
    each = LINE // 4
    return -(-size // each) * each


# Callers: who waits for the completions of a request, is told of them, and may leave.


TELL_S = 0.01
"""Least time between two reports of one request's tokens, seconds."""


class Callers:
    """Those whose completions are sampled by one request."""

    def __init__(
        self,
        callers: Sequence[tuple[int, int, bool]],
        gone: Callable[[], Collection[int]],
        say: Callable[[dict[str, Any]], object],
    ) -> None:
        """
        Args:
            callers: The number of each, of its completions, and whether it is told of them.
            gone: The numbers of those who left.
            say: Sends a document.
        """
        self._gone, self._say = gone, say
        self._rows = [
            (number, index, tells) for number, count, tells in callers for index in range(count)
        ]
        self._told = [0] * len(self._rows)
        self._tells = any(tells for _, _, tells in callers)
        self._due_at = 0.0

    def after(self, rows: Sequence[Row]) -> bool:
        """As of `sampling.sample`."""
        gone, left = self._gone(), False
        if gone:
            for (number, _, _), row in zip(self._rows, rows, strict=True):
                if number in gone:
                    row.wanted, left = False, True
        if self._tells and perf_counter() >= self._due_at:
            if news := list(self._news(rows)):
                self._say({"event": "tokens", "news": news})
            self._due_at = perf_counter() + TELL_S
        return left

    def _news(self, rows: Sequence[Row]) -> Iterator[tuple[Any, ...]]:
        """The caller, the index among its completions, the number of tokens told before, and new
        tokens, logprobs and top logprobs."""
        for position, ((number, index, tells), row) in enumerate(
            zip(self._rows, rows, strict=True)
        ):
            told, sampled = self._told[position], row.sampled
            logprobs = sampled.logprobs[told:]
            if tells and row.wanted and logprobs and all(map(isfinite, logprobs)):
                self._told[position] = len(sampled.tokens)
                yield number, index, told, sampled.tokens[told:], logprobs, sampled.top[told:]


# Worker: the requests. The first process of an engine holds the learners; what is computed from
# weights alone is asked of any of its processes.


class Worker:
    """The open policies, and one method per request."""

    def __init__(self, memory: Mapped, end: int, say: Callable[[dict[str, Any]], object]) -> None:
        """`end`: the file descriptor that requests arrive at; `say`: sends a document."""
        self.inbox = pipes.Inbox(end, CODEC, self._hear)
        self.learners: dict[str, Learner] = {}
        self._gone: set[int] = set()
        """Callers who left."""
        self._memory, self._say = memory, say
        self._policy: tuple[Any, Policy] | None = None
        """The policy that was asked for last, after how it was named."""

    def answer(self, request: dict[str, Any]) -> Any:
        """Carry out a request. Raises EngineError if it fails."""
        if "policy" in request:
            return self._compute(request["verb"], self._named(request["policy"]), request)
        verb, handle = request["verb"], request["handle"]
        if verb == "ready":
            return None
        if verb == "open":
            return self.open(handle, Path(request["path"]), request["weights"])
        if verb == "slim":
            return self.slim(Path(request["path"]), Path(request["directory"]))
        if verb == "close":
            self.learners.pop(handle, None)
            return None
        learner = self.learners.get(handle)
        if learner is None:
            raise EngineError(CLOSED)
        if verb == "optim_step":
            place = self._memory.placing(request["weights"], learner.config)
            return learner.optim_step(
                Adam(**request["adam"]), Path(request["directory"]), place, self._say_stepped
            )
        if verb == "undo":
            return learner.undo()
        if request["slice"] == 0:
            learner.begin()
        config = learner.config
        try:
            return learner.add(self._memory.tensors(start, config) for start in request["parts"])
        except EngineError:
            learner.undo()
            raise

    def _say_stepped(self, path: Path) -> None:
        self._say({"event": "stepped", "path": str(path)})

    def _hear(self, document: dict[str, Any]) -> bool:
        """Hear that a caller has left; other documents are requests."""
        if document["verb"] != "leave":
            return False
        self._gone.add(document["caller"])
        return True

    def _look_for_gone(self) -> Collection[int]:
        self.inbox.look()
        return self._gone

    def _named(self, name: dict[str, Any]) -> Policy:
        """The policy whose weights lie at ``weights``, with the sizes ``config``."""
        if self._policy is None or self._policy[0] != name:
            config = Config(**name["config"])
            weights = self._memory.tensors(name["weights"], config)
            self._policy = name, Policy(weights, config)
        return self._policy[1]

    def _compute(self, verb: str, policy: Policy, request: dict[str, Any]) -> Any:
        """Carry out what depends on weights alone. Raises EngineError."""
        if verb == "sample":
            none = [None] * len(request["requests"])
            known = zip(request.get("before", none), request.get("keep", none), strict=True)
            callers = Callers(request["callers"], self._look_for_gone, self._say)
            try:
                return policy.sample(
                    [
                        self._memory.asked(policy.config, asked, before, keep)
                        for asked, (before, keep) in zip(request["requests"], known, strict=True)
                    ],
                    callers.after,
                )
            finally:
                self._gone.difference_update(number for number, *_ in request["callers"])
                if not self.inbox.waits:  # whoever else has left had an answer already
                    self._gone.clear()
        datums = [Datum(**row) for row in request["datums"]]
        if verb == "forward":
            return policy.forward(datums)
        if verb == "measure":
            return policy.measure(datums, request["config"])

        def zeroed(weights: Weights) -> Weights:
            views = self._memory.tensors(request["into"], policy.config)
            for view in views.values():
                view[:] = 0
            return views

        given = (request["worth"], request["loss_fn"], request["config"])
        grads, metrics = policy.gradients(datums, *given, zeroed)
        return {"metrics": metrics, "moves": grads is not None}

    def open(self, handle: str, path: Path, weights: int) -> dict[str, Any]:
        """Open a policy under a handle; returns its sizes and the worker's process id."""
        learner = self.learners[handle] = Learner(path)
        config = learner.config
        learner.weights = self._memory.placing(weights, config)(learner.weights)
        return {
            "pid": os.getpid(),
            "config": asdict(config),
            "weights_bytes": size_of(config),
            "token_bytes": 8 * config.layers * config.width,
            "parameters": sum(weight.size for weight in learner.weights.values()),
        }

    def slim(self, path: Path, directory: Path) -> str:
        """Write a state's weights without moments into a directory; returns the new file's path."""
        weights, _, config = load(path)
        try:
            return str(save_state(new_path(directory), weights, None, config))
        except OSError as error:
            raise not_written("the weights", error) from error


def answer(worker: Worker, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request: ``result``, or the error as in `failure`."""
    try:
        return {"id": request["id"], "result": worker.answer(request)}
    except EngineError as error:
        return {"id": request["id"], **failure(error)}


REPLY_BYTES = 1 << 20
"""Room in the pipe for answers, bytes: the worker goes on before the service has read them."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = sys.stdout.fileno()
    if hasattr(fcntl, "F_SETPIPE_SZ"):  # Linux
        with suppress(OSError):  # the system allows less
            fcntl.fcntl(answers, fcntl.F_SETPIPE_SZ, REPLY_BYTES)
    sys.stdout = sys.stderr  # only answers may be written to the pipe
    say = partial(pipes.reply, answers, codec=CODEC)
    worker = Worker(Mapped(int(sys.argv[1])), sys.stdin.fileno(), say)
    while (request := worker.inbox.next()) is not None:
        say(answer(worker, request))


if __name__ == "__main__":
    main()
