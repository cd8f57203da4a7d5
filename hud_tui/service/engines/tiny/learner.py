"""Learner: one open policy, with the gradients it has accumulated."""

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path

import numpy as np

from hud_tui.service.engines.base import (
    BROKEN,
    Adam,
    Datum,
    EngineError,
    EngineRefused,
    NotFinite,
    Sampled,
    SampleRequest,
    Saved,
)
from hud_tui.service.engines.figures import BOUNDS, distinct
from hud_tui.service.engines.tiny import optimiser, training
from hud_tui.service.engines.tiny.losses import token_weights
from hud_tui.service.engines.tiny.policy import Config, Weights, forward
from hud_tui.service.engines.tiny.sampling import sample
from hud_tui.service.engines.tiny.state import load, not_written, save_state
from hud_tui.service.engines.tiny.training import Chunk, Floats

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
                "nothing was accumulated: no token moved the policy. Where the loss clips"
                " every token, sample again from the head"
            )
        weights, moments = self._copies()
        grads = {name: grad.copy() for name, grad in self.grads.items()}
        metrics = {"grad_norm": optimiser.norm(grads)}
        with np.errstate(over="ignore", invalid="ignore"):
            optimiser.adam_step(weights, grads, moments, adam)
        if not _is_finite(weights, self.config):
            self.grads = None
            raise NotFinite(
                "no step was taken, for the weights or what they compute would not be finite:"
                f" lower the learning rate of {adam.learning_rate}, the weight decay of"
                f" {adam.weight_decay} or the rewards (the gradient's norm is"
                f" {metrics['grad_norm']:.3g}). The gradients that waited are dropped"
            )
        try:
            path = str(save_state(directory, weights, moments, self.config))
        except OSError as error:
            raise not_written("the state", error) from error
        self.weights, self.moments, self.grads = weights, moments, None
        return Saved(path, path, metrics)

    def _copies(self) -> tuple[Weights, optimiser.Moments]:
        weights = {name: weight.copy() for name, weight in self.weights.items()}
        if self.moments is None:
            return weights, optimiser.Moments.fresh(weights)
        m, v = (
            {name: values.copy() for name, values in part.items()}
            for part in (self.moments.m, self.moments.v)
        )
        return weights, optimiser.Moments(m, v, self.moments.t)

    def _accumulate(self, datums: Sequence[Datum], weigh: training.Weigh) -> float:
        """Add to the gradients, all or nothing; returns the summed entropy in nats."""
        with np.errstate(over="ignore", invalid="ignore"):
            grads, entropy = training.gradients(self.weights, self.config, datums, weigh)
            length = optimiser.norm(grads) if grads is not None else 0.0
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
