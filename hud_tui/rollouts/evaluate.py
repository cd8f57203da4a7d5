"""Evaluations on an environment of the user's own: their files, and how they are rolled out."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hud_tui.client.evaluation_files import EvaluationFiles, StoredEvaluation
from hud_tui.errors import HudUsage
from hud_tui.rollouts.run_files import EVALUATIONS, Order, known_runs
from hud_tui.wire import Json

if TYPE_CHECKING:
    from hud_tui.wire_runs import EvaluationParameters

SAMPLED = ("max_tokens", "temperature")
"""Parameters of an evaluation that a run has, too."""


def environment_of(order: Order) -> Json:
    """What is kept of how an evaluation's rollouts are made."""
    return {"order": order.model_dump(mode="json"), "flags": order.flags}


def latest_order(state: Path, model_id: str, source: Path) -> Order | None:
    """How the latest run of a model that was begun here on an environment makes its rollouts; None:
    there was no such run."""
    orders: list[tuple[float, Order]] = []
    for folder in known_runs(state).values():
        with suppress(HudUsage, OSError):  # a damaged run does not prevent an evaluation
            order, written = folder.order(), (folder.path / "order.json").stat().st_mtime
            if (order.model_id, order.source) == (model_id, str(source)):
                orders.append((written, order))
    return max(orders, key=lambda dated: dated[0], default=(0.0, None))[1]


def filled(asked: EvaluationParameters, order: Order) -> EvaluationParameters:
    """The parameters of an evaluation's rollouts: those that were not given are the order's. They
    are what an evaluation can be compared by."""
    given = {key for key in asked.model_fields_set if getattr(asked, key) is not None}
    usual = {key: order.parameters.get(key) for key in SAMPLED if key not in given}
    return asked.model_copy(update={k: value for k, value in usual.items() if value is not None})


def evaluation_files(state: Path | None) -> EvaluationFiles:
    return EvaluationFiles(None if state is None else state / EVALUATIONS)


def order_of_evaluation(stored: StoredEvaluation) -> Order:
    assert stored.environment is not None
    order = Order.model_validate(stored.environment["order"])
    sampled = {key: stored.evaluation.parameters.get(key) for key in SAMPLED}
    given = {key: value for key, value in sampled.items() if value is not None}
    return order.model_copy(update={"parameters": order.parameters | given})
