"""The engine's own process: ``python -m hud_tui.service.engines.tiny.worker``.

Frames on stdin and stdout. One request, one reply, in order. It ends when stdin does, so
it never outlives the service, and ignores SIGINT, which a terminal sends to everyone.

One BLAS thread, set before NumPy is loaded: it leaves a core to the screen, and the
same seed gives the same bits.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from errno import EDQUOT, EFBIG, ENOSPC
from math import isfinite
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import orjson
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from hud_tui.service.engines.base import (
    BOUNDS,
    BROKEN,
    Adam,
    Datum,
    DiskFull,
    EngineError,
    EngineRefused,
    NotFinite,
    Sampled,
    SampleRequest,
    Saved,
    distinct,
    failure,
    frame,
    read_frame,
)
from hud_tui.service.engines.tiny import training
from hud_tui.service.engines.tiny import training as training_module
from hud_tui.service.engines.tiny.model import (
    MASKED,
    Array,
    Config,
    Ids,
    Weights,
    forward,
    rms_norm,
    shapes,
    softmax_in_place,
)
from hud_tui.service.engines.tiny.tokenizer import END
from hud_tui.service.engines.tiny.training import (
    Chunk,
    Floats,
    Moments,
    log_probabilities,
    token_weights,
)
from hud_tui.storage import write_atomic

# Sampling many completions at once, with cached keys and values.
#
# Every request draws from its own generator, one number a token, so its tokens do not
# depend on what else is in the batch. Prompts that occur more than once, as in a group,
# are read once.


DENSE = 0.75
"""Share of active rows below which the batch is compacted."""


@dataclass
class Cache:
    """What the layers remember of each row. Shapes (L, B, H, T, D/H) and (B,)."""

    keys: Array
    values: Array
    length: Ids

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Forget the other rows."""
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]
        self.length = self.length[rows]


class Row:
    """One completion being written."""

    def __init__(self, request: SampleRequest, context: int) -> None:
        self.stop = [*map(list, request.stop), [END]]
        self.room = min(request.max_tokens, context - len(request.prompt))
        self.chances = np.random.default_rng(request.seed).random(self.room)
        self.temperature = request.temperature
        self.top_p, self.top_logprobs = request.top_p, request.top_logprobs
        self.sampled = Sampled([], [], "length")

    def chance(self) -> float:
        """The number in [0, 1) that the next token is drawn with."""
        return float(self.chances[min(len(self.sampled.tokens), self.room - 1)])

    def add(self, token: int, logp: Array) -> bool:
        """Append a token, given all tokens' logprobs, shape (V,); whether it goes on."""
        tokens = self.sampled.tokens
        tokens.append(token)
        self.sampled.logprobs.append(float(logp[token]))
        if self.top_logprobs:
            likeliest = np.argsort(-logp, kind="stable")[: self.top_logprobs]
            self.sampled.top.append([(int(one), float(logp[one])) for one in likeliest])
        if any(tokens[-len(stop) :] == stop for stop in self.stop):
            self.sampled = replace(self.sampled, finish_reason="stop")
            return False
        return len(tokens) < self.room


def sample(weights: Weights, config: Config, requests: Sequence[SampleRequest]) -> list[Sampled]:
    """One completion a request; each ends with END, a stop sequence or its last token.

    Prompts are shorter than the context, and every request wants at least one token.
    """
    everyone = rows = [Row(request, config.context) for request in requests]
    live = np.ones(len(rows), bool)
    logits, cache = _read(weights, config, requests)
    while True:
        tokens, logp = _draw(logits, rows)
        for b in np.flatnonzero(live):
            live[b] = rows[b].add(int(tokens[b]), logp[b])
        if not live.any():
            return [row.sampled for row in everyone]
        if live.mean() < DENSE:
            cache.keep(live)
            rows, tokens = [rows[b] for b in np.flatnonzero(live)], tokens[live]
            live = np.ones(len(rows), bool)
        logits = _extend(weights, config, cache, tokens)


def _read(
    weights: Weights, config: Config, requests: Sequence[SampleRequest]
) -> tuple[Array, Cache]:
    """Read the prompts, each different one once; logits of what follows, shape (B, V)."""
    prompts = [tuple(request.prompt) for request in requests]
    places = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompts))}
    lengths = np.array([len(prompt) for prompt in places])
    tokens = np.zeros((len(places), lengths.max()), np.int64)
    for prompt, place in places.items():
        tokens[place, : len(prompt)] = prompt
    last = np.arange(len(places)) * tokens.shape[1] + lengths - 1
    logits, tape = forward(weights, config, tokens, last)
    which = [places[prompt] for prompt in prompts]
    longest = max(len(r.prompt) + r.max_tokens for r in requests)
    grown = min(longest, config.context) - tokens.shape[1]
    widen = ((0, 0), (0, 0), (0, 0), (0, max(0, grown)), (0, 0))
    keys, values = (
        np.pad(np.stack([layer[1][part] for layer in tape[0]])[:, which], widen) for part in (2, 3)
    )
    keys, values = keys.astype(logits.dtype), values.astype(logits.dtype)
    return logits[which], Cache(keys, values, lengths[which])


def _extend(weights: Weights, config: Config, cache: Cache, tokens: Ids) -> Array:
    """Read one more token a row, shape (B,); logits of what follows, shape (B, V)."""
    batch, size = len(tokens), config.width // config.heads
    here, at = np.arange(batch), np.minimum(cache.length, cache.keys.shape[3] - 1)
    unseen = np.where(np.arange(cache.keys.shape[3]) > at[:, None], MASKED, 0)[:, None]
    unseen = unseen.astype(cache.keys.dtype)
    x = weights["token"][tokens] + weights["position"][at]
    for i in range(config.layers):
        normed, _ = rms_norm(x, weights[f"{i}.norm1"])
        split = (normed @ weights[f"{i}.qkv"]).reshape(batch, 3, config.heads, size)
        cache.keys[i][here, :, at] = split[:, 1]
        cache.values[i][here, :, at] = split[:, 2]
        share = (cache.keys[i] @ split[:, 0, :, :, None])[..., 0]
        share *= size**-0.5
        share += unseen
        softmax_in_place(share)
        mixed = (share[:, :, None] @ cache.values[i]).reshape(batch, config.width)
        x += mixed @ weights[f"{i}.out"]
        normed, _ = rms_norm(x, weights[f"{i}.norm2"])
        x += np.maximum(normed @ weights[f"{i}.up"], 0) ** 2 @ weights[f"{i}.down"]
    cache.length = cache.length + 1
    normed, _ = rms_norm(x, weights["norm"])
    logits: Array = normed @ weights["head"]
    return logits


def _draw(logits: Array, rows: Sequence[Row]) -> tuple[Ids, Array]:
    """The next token of each row, shape (B,), and all tokens' tempered logprobs, (B, V)."""
    temperature = np.array([row.temperature for row in rows])[:, None]
    greedy = temperature[:, 0] == 0
    logp = log_probabilities(logits, np.where(temperature == 0, 1.0, temperature))
    chances = np.exp(logp.astype(np.float64))
    top_p = np.array([row.top_p for row in rows])
    if (top_p < 1).any():
        chances = _nucleus(chances, top_p)
    total = np.cumsum(chances, axis=1)
    chance = np.array([row.chance() for row in rows])
    drawn = (total < chance[:, None] * total[:, -1:]).sum(axis=1)
    return np.where(greedy, logp.argmax(axis=1), drawn), logp


def _nucleus(chances: Floats, top_p: Floats) -> Floats:
    """Chances, shape (B, V), without the tokens beyond the fewest that have `top_p`, shape (B,),
    of them together.

    Source: Holtzman et al. 2020 (arXiv:1904.09751), section 3.1.
    """
    order = np.argsort(-chances, axis=1, kind="stable")
    ranked = np.take_along_axis(chances, order, axis=1)
    likelier = np.cumsum(ranked, axis=1) - ranked
    # The likeliest stays; where all are wanted, rounding takes none of them.
    beyond = (likelier >= top_p[:, None] * ranked.sum(axis=1, keepdims=True)) & (likelier > 0)
    beyond &= top_p[:, None] < 1
    kept = chances.copy()
    np.put_along_axis(kept, order, np.where(beyond, 0.0, ranked), axis=1)
    return kept


# Policies on disk: one safetensors file with weights and, once trained, Adam's moments.
#
# A base holds fp16 weights only; a thinned state fp32 weights only. A whole state holds fp32
# weights, ``m.*``, ``v.*`` and t, so that loading it and going on is bit for bit the same as
# never having stopped.


def save_base(path: Path, weights: Weights, config: Config) -> None:
    """Write weights as fp16, whole or not at all."""
    half = {name: weight.astype(np.float16) for name, weight in weights.items()}
    write_atomic(path, save(half, _metadata(config)))


def save_state(directory: Path, weights: Weights, moments: Moments, config: Config) -> Path:
    """Write a state under a new name; it is whole on disk when this returns."""
    tensors: Weights = {**weights, "t": np.array(moments.t)}
    for prefix, part in (("m", moments.m), ("v", moments.v)):
        tensors |= {f"{prefix}.{name}": values for name, values in part.items()}
    path = directory / f"{uuid4().hex}.safetensors"
    write_atomic(path, save(tensors, _metadata(config)))
    return path


def save_weights(directory: Path, weights: Weights, config: Config) -> Path:
    """Write fp32 weights without moments under a new name; whole on disk on return."""
    path = directory / f"{uuid4().hex}.safetensors"
    write_atomic(path, save(weights, _metadata(config)))
    return path


def load(path: Path) -> tuple[Weights, Moments | None, Config]:
    """Read a base (no moments) or a state.

    Raises:
        EngineError: No such file, or it is cut off, foreign or of another shape.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        config = Config(**json.loads(metadata["config"]))
        weights = _part(tensors, config, "")
        if "t" not in tensors:
            return weights, None, config
        moments = Moments(_part(tensors, config, "m."), _part(tensors, config, "v."))
        moments.t = int(tensors["t"])
    except FileNotFoundError as error:
        raise EngineError(f"no such state: {path.name}") from error
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise EngineError(f"{path.name} is not a whole state of this engine: {error}") from error
    return weights, moments, config


def not_written(what: str, error: OSError) -> EngineError:
    """What is raised where a file could not be saved."""
    kind = DiskFull if error.errno in (ENOSPC, EDQUOT, EFBIG) else EngineError
    return kind(f"{what} could not be written: {error.strerror}")


def _metadata(config: Config) -> dict[str, str]:
    """One entry only: the order of several is random, and bytes are to be the same."""
    return {"config": json.dumps(asdict(config))}


def _part(tensors: Weights, config: Config, prefix: str) -> Weights:
    """The tensors under a prefix as float32 of the wanted shapes; ValueError where not."""
    part: Weights = {}
    for name, shape in shapes(config).items():
        tensor = tensors[prefix + name]
        if tensor.shape != shape:
            raise ValueError(f"{prefix + name} has shape {tensor.shape}, not {shape}")
        part[name] = tensor.astype(np.float32)
    return part


# Learner: one open policy, with the gradients it has accumulated.


WIDEST = 80.0
"""A wider gap in logprob counts as this in ratio_max: beyond it lies infinity."""


class Learner:
    """Weights, Adam's moments (once there are any) and gradients (until the next step)."""

    def __init__(self, path: Path) -> None:
        """Open a base or a state. Raises EngineError as `state.load` does."""
        self.weights, self.moments, self.config = load(path)
        self.grads: Weights | None = None
        self._before: Weights | None = None

    def begin(self) -> None:
        """A pass of several slices begins: `undo` goes back to here."""
        grads = self.grads
        self._before = grads and {name: grad.copy() for name, grad in grads.items()}

    def undo(self) -> None:
        """A slice failed: forget those of its pass that went before."""
        self.grads = self._before

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sampled]:
        """Raises NotFinite: these weights compute no numbers."""
        found = sample(self.weights, self.config, requests)
        if not all(isfinite(value) for one in found for value in one.logprobs):
            raise NotFinite(BROKEN)
        return found

    def forward(self, datums: Sequence[Datum]) -> list[list[float]]:
        """Raises NotFinite: these weights compute no numbers."""
        found, _ = training.logprobs(self.weights, self.config, datums)
        if not all(np.isfinite(row).all() for row in found):
            raise NotFinite(BROKEN)
        return [row.tolist() for row in found]

    def forward_backward(
        self, datums: Sequence[Datum], loss_fn: str, config: Mapping[str, float]
    ) -> dict[str, float]:
        """Accumulate a loss's gradient; figures over these datums as `Tally` has them."""
        tally = Tally(config, all(datum.logprobs for datum in datums))
        advantages = [[datum.advantage] * len(datum.output) for datum in datums]

        def weigh(chunk: Chunk, lp: Floats) -> Floats:
            q = training.flat(chunk, [d.logprobs for d in datums]) if tally.ratios else lp
            w, cost = token_weights(loss_fn, config, lp, q, training.flat(chunk, advantages))
            tally.add(lp, q, cost)
            return w

        entropy = self._accumulate(datums, weigh)
        return tally.metrics(entropy)

    def backward(
        self, datums: Sequence[Datum], weights: Sequence[Sequence[float]]
    ) -> dict[str, float]:
        """Accumulate for given weights; loss:sum is −Σ w·lp."""
        tally = Tally({}, all(datum.logprobs for datum in datums))

        def weigh(chunk: Chunk, lp: Floats) -> Floats:
            w = training.flat(chunk, weights)
            q = training.flat(chunk, [d.logprobs for d in datums]) if tally.ratios else lp
            tally.add(lp, q, -w * lp)
            return w

        entropy = self._accumulate(datums, weigh)
        return tally.metrics(entropy)

    def look(self, datums: Sequence[Datum], config: Mapping[str, float]) -> dict[str, float]:
        """The figures of turns that are not trained on; loss:sum is 0."""
        tally = Tally(config, all(datum.logprobs for datum in datums))
        each, which = distinct(datums)
        found, entropies = training.logprobs(self.weights, self.config, each)
        entropy = 0.0
        for datum, place in zip(datums, which, strict=True):
            lp = found[place]
            q = np.asarray(datum.logprobs, np.float64) if tally.ratios else lp
            tally.add(lp, q, np.zeros_like(lp))
            entropy += float(entropies[place].sum())
        return tally.metrics(entropy)

    def optim_step(self, adam: Adam, directory: Path) -> Saved:
        """Step, and save. Where saving fails the step is undone, gradients and all.

        Raises:
            EngineRefused: Nothing was accumulated.
            NotFinite: The weights, or what they compute, would not be finite; the gradients are
                dropped.
            DiskFull: There is no room for the state.
            EngineError: The state could not be written.
        """
        if self.grads is None:
            raise EngineRefused(
                "nothing was accumulated: no token has a gradient. If the loss clips"
                " every token, sample again from the head"
            )
        weights, moments = self._copies()
        grads = {name: grad.copy() for name, grad in self.grads.items()}
        metrics = {"grad_norm": training_module.norm(grads)}
        with np.errstate(over="ignore", invalid="ignore"):
            training_module.adam_step(weights, grads, moments, adam)
        if not _is_finite(weights, self.config):
            self.grads = None
            raise NotFinite(
                "no step was taken, for the weights or what they compute would not be finite:"
                f" lower the learning rate of {adam.learning_rate}, the weight decay of"
                f" {adam.weight_decay} or the rewards (the gradient's norm is"
                f" {metrics['grad_norm']:.3g}). The pending gradients are dropped"
            )
        try:
            path = str(save_state(directory, weights, moments, self.config))
        except OSError as error:
            raise not_written("the state", error) from error
        self.weights, self.moments, self.grads = weights, moments, None
        return Saved(path, path, metrics)

    def _copies(self) -> tuple[Weights, training_module.Moments]:
        weights = {name: weight.copy() for name, weight in self.weights.items()}
        if self.moments is None:
            return weights, training_module.Moments.fresh(weights)
        m, v = (
            {name: values.copy() for name, values in part.items()}
            for part in (self.moments.m, self.moments.v)
        )
        return weights, training_module.Moments(m, v, self.moments.t)

    def _accumulate(self, datums: Sequence[Datum], weigh: training.Weigh) -> float:
        """Add to the gradients, all or nothing; returns the summed entropy in nats."""
        with np.errstate(over="ignore", invalid="ignore"):
            grads, entropy = training.gradients(self.weights, self.config, datums, weigh)
            length = training_module.norm(grads) if grads is not None else 0.0
        if grads is None:
            return entropy
        if not np.isfinite(length):
            raise EngineError("the gradient is not finite: nothing was accumulated")
        if self.grads is None:
            self.grads = grads
        else:
            for name, grad in grads.items():
                self.grads[name] += grad
        return entropy


def _is_finite(weights: Weights, config: Config) -> bool:
    """Whether a policy can be kept: weights of a finite size may still overflow in a forward pass,
    which is tried on every token of the vocabulary."""
    if not all(np.isfinite(weight).all() for weight in weights.values()):
        return False
    count = -(-config.vocabulary // config.context)
    tokens = np.resize(np.arange(config.vocabulary), (count, config.context))
    with np.errstate(over="ignore", invalid="ignore"):
        logits, _ = forward(weights, config, tokens, np.arange(tokens.size))
    return bool(np.isfinite(logits).all())


class Tally:
    """A pass's metrics, summed up token by token."""

    def __init__(self, config: Mapping[str, float], ratios: bool) -> None:
        """`ratios`: whether sampling logprobs are there to compare with."""
        self.low = config.get("clip_low_threshold", BOUNDS[0])
        self.high = config.get("clip_high_threshold", BOUNDS[1])
        self.ratios = ratios
        self.tokens = self.outside = 0
        self.cost = self.kl = self.ratio_max = 0.0

    def add(self, lp: Floats, q: Floats, cost: Floats) -> None:
        """Count some tokens; every array has shape (R,)."""
        ratio = np.exp(np.minimum(lp - q, WIDEST))
        self.tokens += len(lp)
        self.cost += float(cost.sum())
        self.kl += float((q - lp).sum())
        self.ratio_max = max(self.ratio_max, float(ratio.max()))
        self.outside += int(((ratio < self.low) | (ratio > self.high)).sum())

    def metrics(self, entropy: float) -> dict[str, float]:
        """Means over tokens, but for loss:sum and ratio_max.

        kl_sample_train is the mean of q − lp: unbiased, so it may be a little below 0.
        """
        tokens = max(1, self.tokens)
        metrics = {"loss:sum": self.cost, "entropy": entropy / tokens}
        metrics["num_tokens"] = float(self.tokens)
        if self.ratios:
            metrics |= {
                "kl_sample_train": self.kl / tokens,
                "ratio_max": self.ratio_max,
                "clip_fraction": self.outside / tokens,
            }
        return metrics


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

        learner = self.learners[handle] = Learner(path)
        config = learner.config
        return {"pid": os.getpid(), "context": config.context, "vocabulary": config.vocabulary}

    def slim(self, path: Path, directory: Path) -> str:
        """Write a state's weights alone into a directory; the new file's path."""

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
            os._exit(0)  # the service has exited, and a closed pipe cannot be flushed


if __name__ == "__main__":
    main()
