"""Losses of one's own: from a forward pass to the gradients that `backward` sends.

A custom loss C is any torch expression over the policy's logprobs. Only its derivatives
travel: the service needs w = −dC/dlogprob for each token, the convention of Tinker's
cross-entropy backward pass.

Source: the ``hud`` SDK's TrainingClient.forward_backward_custom, 0.6.21.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from math import isfinite
from typing import Any

from hud_tui.errors import HudBadInput, HudUsage
from hud_tui.rl.text import one_line
from hud_tui.wire import ForwardDatum

CustomLoss = Callable[[list[ForwardDatum], list[Any]], tuple[Any, Mapping[str, float]]]
"""(N datums, N float32 tensors of their logprobs) → (a scalar tensor, metrics by name)."""


def load_torch() -> Any:
    """torch, which nothing else here needs.

    Raises:
        HudUsage: It is not installed.
    """
    try:
        return import_module("torch")
    except ImportError as error:
        raise HudUsage(
            "forward_backward_custom differentiates your loss with torch, which is not installed",
            "pip install torch; or compute −dC/dlogprob yourself, between forward and backward",
        ) from error


def differentiate(
    torch: Any, data: list[ForwardDatum], loss_fn: CustomLoss
) -> tuple[list[list[float]], dict[str, float]]:
    """Run a loss over a forward pass.

    Returns:
        −dC/dlogprob, a row a datum as long as its logprobs; and the loss's own metrics.

    Raises:
        HudBadInput: The loss does not depend on some datum's logprobs.
    """
    leaves = [
        torch.tensor(datum.logprobs, dtype=torch.float32).requires_grad_(True) for datum in data
    ]
    loss, metrics = loss_fn(data, leaves)
    loss.backward()
    for number, leaf in enumerate(leaves):
        if leaf.grad is None:
            raise HudBadInput(
                f"the loss does not depend on the logprobs of datum {number}",
                "let every datum take part: weigh it with 0 to leave it out",
            )
    weights = [(-leaf.grad).tolist() for leaf in leaves]
    return weights, {name: float(value) for name, value in metrics.items()}


def check_weights(weights: Sequence[Sequence[float]], metrics: Mapping[str, float]) -> None:
    """Refuse numbers that JSON cannot carry, and that no policy would survive.

    Raises:
        HudBadInput: A weight or a metric is not finite; it names the datum and the token.
    """
    for number, row in enumerate(weights):
        bad = next((place for place, weight in enumerate(row) if not isfinite(weight)), None)
        if bad is not None:
            raise HudBadInput(
                f"the weight of datum {number}, token {bad} is {row[bad]}",
                "look for a division by 0 or an overflow in the loss",
            )
    for name, value in metrics.items():
        if not isfinite(value):
            raise HudBadInput(f"the metric {one_line(name, 60)} is {value}", "it must be finite")
