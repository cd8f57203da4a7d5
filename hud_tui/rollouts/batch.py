"""What one step of a run is made of: its tasks, and the bodies of its gradient passes."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from hud_tui.client.trainer import forward_backward_body
from hud_tui.rl.tasks.task import Task
from hud_tui.wire_training import ForwardBackward, Payload

MOST_TOKENS = 400_000
"""Most numbers in the body of one pass: about 4 MB."""


def tasks_of(tasks: Sequence[Task], per_step: int, seed: int, iteration: int) -> list[Task]:
    """The tasks of one iteration (from 0), in seeded epochs, as for managed runs."""
    count = min(per_step, len(tasks))
    epoch, place = divmod(iteration, len(tasks) // count)
    order = list(range(len(tasks)))
    Random(f"{seed} {epoch}").shuffle(order)
    return [tasks[i] for i in order[place * count : (place + 1) * count]]


def chunks_of(groups: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Groups that are sent together: HUD's service refuses bodies of tens of megabytes."""
    found: list[list[Mapping[str, Any]]] = [[]]
    size = 0
    for group in groups:
        own = sum(
            len(sample.get("prompt_token_ids") or ()) + 2 * len(sample["output_token_ids"])
            for run in group["runs"]
            for sample in run["samples"]
        )
        if found[-1] and size + own > MOST_TOKENS:
            found.append([])
            size = 0
        found[-1].append(group)
        size += own
    return found


def pass_body(
    groups: Sequence[Mapping[str, Any]], size: int, parameters: Mapping[str, Any]
) -> ForwardBackward:
    """The request of a pass; the same bytes for the same groups, so that its key stays valid."""
    inputs: list[Any] = []
    for group in groups:
        for run in group["runs"]:
            if run["samples"]:
                given = {"samples": run["samples"], "reward": run["reward"]}
                inputs.append(Payload.model_validate(given | {"trace_id": run["trace_id"]}))
            else:
                inputs.append(run["trace_id"])
    more = {"loss_fn_config": parameters.get("loss_fn_config") or None}
    more["reward_scale"] = parameters.get("reward_scale") or 1.0
    loss_fn = parameters.get("loss_fn") or "importance_sampling"
    return forward_backward_body(inputs, size, loss_fn, **more)
