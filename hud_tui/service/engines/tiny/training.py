"""From datums to gradients and a new state: chunks of sequences, token weights from a loss, one
backward pass, AdamW, and the files of the result.

A chunk is a part as in `parts`. Turns that continue one another are one sequence, which is read
once.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from hud_tui.service.engines.base import BOUNDS, Adam, Datum, EngineError
from hud_tui.service.engines.tiny.model import Array, Config, Ids, Weights, shapes, zeros
from hud_tui.service.engines.tiny.parts import of_datums
from hud_tui.storage import write_atomic

# The losses, each as a weight w = −dC/dlogprob per token, so that all share one backward pass.
#
# With lp the current logprob, q the sampling policy's, r = exp(lp − q) and A the advantage:
#
#     cross_entropy         C = −Σ A·lp                       w = A
#     importance_sampling   C = −Σ r·A                        w = r·A
#     ppo                   C = −Σ min(r·A, clip(r)·A)        w = r·A where unclipped, else 0
#     cispo                 C = −Σ clip(r)·A·lp, clip fixed   w = clip(r)·A
#     dro                   C = −Σ A·lp − β/2·(lp − q)²       w = A − β·(lp − q)
#
# All are sums over tokens. On-policy r is 1 and the four policy losses have the same gradient; they
# differ for stale rollouts and further substeps.
#
# Source: Tinker's documentation of its losses (SDK 0.38); Schulman et al. 2017 (ppo,
# arXiv:1707.06347); MiniMax 2025 (cispo, arXiv:2506.13585); Richemond et al. 2024 (dro,
# arXiv:2405.19107).


Floats = NDArray[np.float64]

WIDEST = 80.0
"""Largest difference in logprob that counts in a ratio: beyond it, exp overflows."""


def ratios(lp: Floats, q: Floats) -> Floats:
    """Importance ratios, shape (R,), of current and sampling logprobs."""
    ratio: Floats = np.exp(np.minimum(lp - q, WIDEST))
    return ratio


RESIDUE = 2e-5
"""Rounding error between sampler and trainer. dro must ignore a difference in logprob below this:
Adam scales any gradient, however small, up to the learning rate."""


def token_weights(
    loss_fn: str, config: Mapping[str, float], lp: Floats, q: Floats, advantage: Floats
) -> tuple[Floats, Floats]:
    """Weights and costs of some tokens; every array has shape (R,).

    Args:
        loss_fn: One of `engines.base.LOSSES`.
        config: The loss's own keys, all present.
        lp: Current logprobs.
        q: Sampling logprobs; not read by cross_entropy.
        advantage: For cross_entropy, the weights.

    Returns:
        w and C per token.
    """
    if loss_fn == "cross_entropy":
        return advantage, -advantage * lp
    gap = np.where(np.abs(lp - q) < RESIDUE, 0.0, lp - q)
    if loss_fn == "dro":
        beta = config["beta"]
        return advantage - beta * gap, -(advantage * lp - beta / 2 * gap**2)
    ratio = np.exp(gap)
    gain = ratio * advantage
    if loss_fn == "importance_sampling":
        return gain, -gain
    clipped = np.clip(ratio, config["clip_low_threshold"], config["clip_high_threshold"])
    if loss_fn == "ppo":
        active = gain <= clipped * advantage
        return np.where(active, gain, 0.0), -np.minimum(gain, clipped * advantage)
    return clipped * advantage, -clipped * advantage * lp


def clipped(
    loss_fn: str, config: Mapping[str, float], lp: Floats, q: Floats, advantage: Floats
) -> NDArray[np.bool_]:
    """Which tokens the loss clips, shape (R,), with arguments as in `token_weights`: those whose
    gradient ppo drops, since their ratio is outside on the side that the advantage pulls it to,
    and those whose ratio cispo holds at a bound. The other losses clip none."""
    if loss_fn not in ("ppo", "cispo"):
        return np.zeros(len(lp), bool)
    ratio = ratios(lp, q)
    below, above = ratio < config["clip_low_threshold"], ratio > config["clip_high_threshold"]
    if loss_fn == "cispo":
        return below | above
    return np.where(advantage > 0, above, below & (advantage < 0))


# AdamW on a dict of weights.
#
# Source: Kingma and Ba 2015 (arXiv:1412.6980), algorithm 1; Loshchilov and Hutter 2019
# (arXiv:1711.05101), algorithm 2, for the decay apart from the gradient.


@dataclass
class Moments:
    """Adam's running means of the gradient and of its square, after t steps."""

    m: Weights
    v: Weights
    t: int = 0

    @classmethod
    def fresh(cls, weights: Weights) -> "Moments":
        return cls(zeros(weights), zeros(weights))


def norm(grads: Weights) -> float:
    """Euclidean length of the whole gradient."""
    return float(np.sqrt(sum(float(np.vdot(grad, grad)) for grad in grads.values())))


def adam_step(weights: Weights, grads: Weights, moments: Moments, adam: Adam) -> None:
    """Move the weights by one step, in place; grads are used up."""
    moments.t += 1
    short_m, short_v = 1 - adam.beta1**moments.t, 1 - adam.beta2**moments.t
    for name, grad in grads.items():
        m, v, weight = moments.m[name], moments.v[name], weights[name]
        m += (1 - adam.beta1) * (grad - m)
        grad *= grad
        v += (1 - adam.beta2) * (grad - v)
        step = (m / short_m) / (np.sqrt(v / short_v) + adam.eps)
        weight -= adam.learning_rate * (step + adam.weight_decay * weight)


Weigh = Callable[["Chunk", Floats], Floats]
"""Weights −dC/dlogprob of a chunk's output tokens, from their current logprobs; shape (R,)."""


@dataclass(frozen=True)
class Chunk:
    """Some datums, padded to the same length. R is the number of their output tokens, datum by
    datum."""

    which: list[int]
    """Index of each datum in the call, shape (K,)."""
    tokens: Ids
    """Prompt and output without the last token, shape (B, T); B is below K if turns of one
    conversation share a sequence."""
    rows: Ids
    """Flat index of the token before each output token, shape (R,)."""
    targets: Ids
    """The output tokens, shape (R,)."""
    temperature: Array
    """Shape (R, 1)."""
    offsets: Ids | None = None
    """First position of each sequence, shape (B,)."""

    def split(self, values: NDArray[Any], datums: Sequence[Datum]) -> list[NDArray[Any]]:
        """Values of the output tokens, shape (R,), as one array of shape (T,) per datum."""
        return np.split(values, np.cumsum([len(datums[i].output) for i in self.which])[:-1])


def chunks(datums: Sequence[Datum], offsets: Ids | None = None) -> Iterator[Chunk]:
    """Cut datums into chunks, short ones first."""
    for lines in of_datums(datums):
        last = datums[lines[-1][-1]]
        yield _chunk(datums, lines, len(last.prompt) + len(last.output) - 1, offsets)


def _chunk(
    datums: Sequence[Datum], lines: list[list[int]], length: int, offsets: Ids | None
) -> Chunk:
    tokens = np.zeros((len(lines), length), np.int64)
    rows: list[Ids] = []
    targets: list[int] = []
    temperature: list[float] = []
    for b, turns in enumerate(lines):
        last = datums[turns[-1]]
        line = [*last.prompt, *last.output[:-1]]
        tokens[b, : len(line)] = line
        for datum in (datums[i] for i in turns):
            start = b * length + len(datum.prompt) - 1
            rows.append(np.arange(start, start + len(datum.output)))
            targets.extend(datum.output)
            temperature.extend([datum.temperature] * len(datum.output))
    return Chunk(
        [i for turns in lines for i in turns],
        tokens,
        np.concatenate(rows),
        np.array(targets),
        np.array(temperature)[:, None],
        None if offsets is None else offsets[[turns[-1] for turns in lines]],
    )


def log_probabilities(logits: Array, temperature: Array) -> Array:
    """Tempered log-softmax, shape (R, V); temperature (R, 1)."""
    scaled: Array = logits / temperature.astype(logits.dtype)
    scaled -= scaled.max(axis=1, keepdims=True)
    scaled -= np.log(np.exp(scaled).sum(axis=1, keepdims=True))
    return scaled


class Network(Protocol):
    """What logprobs are computed by, for given weights: `model.Config` is one."""

    def forward(
        self, weights: Weights, tokens: Ids, rows: Ids, offsets: Ids | None = None
    ) -> tuple[Array, Any]:
        """Logits, and what `backward` needs to know; shapes as in `Chunk`."""

    def backward(self, weights: Weights, d_logits: Array, tape: Any, grads: Weights) -> None:
        """Add the gradient of every weight to grads, given d_logits (R, V)."""


def logprobs(
    weights: Weights, network: Network, datums: Sequence[Datum]
) -> tuple[list[Floats], list[Floats]]:
    """Current tempered logprobs of every datum's output, and the policy's entropy in nats at each
    token: one array of shape (T,) per datum each."""
    rows = [np.zeros(len(datum.output)) for datum in datums]
    entropies = list(rows)
    for chunk in chunks(datums):
        logits, _ = network.forward(weights, chunk.tokens, chunk.rows)
        logp = log_probabilities(logits, chunk.temperature)
        picked = logp[np.arange(len(logp)), chunk.targets].astype(np.float64)
        entropy = -np.einsum("rv,rv->r", np.exp(logp), logp).astype(np.float64)
        parts = zip(chunk.split(picked, datums), chunk.split(entropy, datums), strict=True)
        for i, part in zip(chunk.which, parts, strict=True):
            rows[i], entropies[i] = part
    return rows, entropies


def gradients(
    weights: Weights,
    network: Network,
    datums: Sequence[Datum],
    weigh: Weigh,
    offsets: Ids | None = None,
    zeroed: Callable[[Weights], Weights] = zeros,
) -> tuple[Weights | None, float]:
    """Gradient of the cost whose token weights `weigh` gives.

    Args:
        zeroed: Gives zeros shaped like the weights, in which the gradient is summed up.

    Returns:
        The gradient, or None if every weight is 0; and the entropy of the policy, in nats,
        summed over output tokens.
    """
    grads, entropy = None, 0.0
    for chunk in chunks(datums, offsets):
        logits, tape = network.forward(weights, chunk.tokens, chunk.rows, chunk.offsets)
        logp = log_probabilities(logits, chunk.temperature)
        here = np.arange(len(logp))
        w = weigh(chunk, logp[here, chunk.targets].astype(np.float64))
        d_logits = np.exp(logp)
        entropy -= float(np.einsum("rv,rv->", d_logits, logp))
        if not w.any():
            continue
        grads = zeroed(weights) if grads is None else grads
        d_logits[here, chunk.targets] -= 1
        d_logits *= (w[:, None] / chunk.temperature).astype(logits.dtype)
        network.backward(weights, d_logits, tape, grads)
    return grads, entropy


def flat(chunk: Chunk, per_datum: Sequence[Sequence[float]]) -> Floats:
    """A per-token value of a call's datums in the chunk's order, shape (R,)."""
    values: list[Any] = [value for i in chunk.which for value in per_datum[i]]
    return np.array(values, np.float64)


class Tally:
    """A pass's metrics, summed over tokens."""

    def __init__(self, config: Mapping[str, float], has_ratios: bool) -> None:
        """`has_ratios`: whether there are sampling logprobs to compare with."""
        self.low = config.get("clip_low_threshold", BOUNDS[0])
        self.high = config.get("clip_high_threshold", BOUNDS[1])
        self.has_ratios = has_ratios
        self.tokens = self.outside = self.clipped = 0
        self.cost = self.kl = self.ratio_max = 0.0

    def add(self, lp: Floats, q: Floats, cost: Floats, clips: NDArray[np.bool_] | None) -> None:
        """Count some tokens; every array has shape (R,). `clips` says which of them the loss
        clips; None without a loss."""
        ratio = ratios(lp, q)
        self.clipped += 0 if clips is None else int(clips.sum())
        self.tokens += len(lp)
        self.cost += float(cost.sum())
        self.kl += float((q - lp).sum())
        self.ratio_max = max(self.ratio_max, float(ratio.max()))
        self.outside += int(((ratio < self.low) | (ratio > self.high)).sum())

    def metrics(self, entropy: float) -> dict[str, float]:
        """Means over tokens, except loss:sum and ratio_max.

        kl_sample_train is the mean of q − lp: unbiased, so it may be slightly below 0.
        """
        tokens = max(1, self.tokens)
        metrics = {"loss:sum": self.cost, "entropy": entropy / tokens}
        metrics["num_tokens"] = float(self.tokens)
        if self.has_ratios:
            metrics |= {
                "kl_sample_train": self.kl / tokens,
                "ratio_max": self.ratio_max,
                "clip_fraction": self.clipped / tokens,
                "ratio_outside": self.outside / tokens,
            }
        return metrics


def weighing(
    datums: Sequence[Datum],
    worth: Sequence[Sequence[float]],
    loss_fn: str | None = None,
    config: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Tally, Weigh]:
    """The token weights of a pass, and the tally that they are counted in.

    Args:
        datums: The turns.
        worth: The advantage of each output token, one list of shape (T,) per datum; without a
            loss the weights themselves, and loss:sum is −Σ w·lp.
        loss_fn, config: As in `token_weights`.
    """
    tally = Tally(config, all(datum.logprobs for datum in datums))

    def weigh(chunk: Chunk, lp: Floats) -> Floats:
        q = flat(chunk, [datum.logprobs for datum in datums]) if tally.has_ratios else lp
        advantage = flat(chunk, worth)
        if loss_fn is None:
            tally.add(lp, q, -advantage * lp, None)
            return advantage
        w, cost = token_weights(loss_fn, config, lp, q, advantage)
        tally.add(lp, q, cost, clipped(loss_fn, config, lp, q, advantage))
        return w

    return tally, weigh


# Policies on disk: one safetensors file with weights and, once trained, Adam's moments.
#
# A base has fp16 weights only, a thinned state fp32 weights only. A full state has fp32 weights,
# ``m.*``, ``v.*`` and t, so that training continues bit for bit as if it had not been saved.


def save_base(path: Path, weights: Weights, config: Config) -> None:
    """Write weights as fp16, atomically."""
    half = {name: weight.astype(np.float16) for name, weight in weights.items()}
    write_atomic(path, save(half, _metadata(config)))


def new_path(directory: Path) -> Path:
    """Where a state may be saved."""
    return directory / f"{uuid4().hex}.safetensors"


def save_state(path: Path, weights: Weights, moments: Moments | None, config: Config) -> Path:
    """Write a full state, or a thinned one without moments; complete and fsynced on return."""
    tensors = dict(weights)
    if moments is not None:
        tensors["t"] = np.array(moments.t)
        for prefix, part in (("m", moments.m), ("v", moments.v)):
            tensors |= {f"{prefix}.{name}": values for name, values in part.items()}
    write_atomic(path, save(tensors, _metadata(config)))
    return path


def load(path: Path) -> tuple[Weights, Moments | None, Config]:
    """Read a base (no moments) or a state. Raises EngineError: no such file, or it is truncated, of
    another format or of another shape."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        config = Config(**json.loads(metadata["config"]))
        config = replace(config, shifted=int(config.shifted))  # one is written as true, too
        weights = _part(tensors, config, "")
        if "t" not in tensors:
            return weights, None, config
        m, v = _part(tensors, config, "m."), _part(tensors, config, "v.")
        moments = Moments(m, v, int(tensors["t"]))
    except FileNotFoundError as error:
        raise EngineError(f"no such state: {path.name}") from error
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise EngineError(f"{path.name} is not a whole state of this engine: {error}") from error
    return weights, moments, config


def _metadata(config: Config) -> dict[str, str]:
    """One entry only: several would be in random order, and the bytes must be reproducible."""
    named = {key: value for key, value in asdict(config).items() if value}
    return {"config": json.dumps(named)}


def _part(tensors: Weights, config: Config, prefix: str) -> Weights:
    """The tensors with a prefix as float32. Raises ValueError unless they have the right shapes."""
    part: Weights = {}
    for name, shape in shapes(config).items():
        tensor = tensors[prefix + name]
        if tensor.shape != shape:
            raise ValueError(f"{prefix + name} has shape {tensor.shape}, not {shape}")
        part[name] = tensor.astype(np.float32)
    return part
