"""Status: one model's training in a few lines, and which model is meant when none is named."""

from collections.abc import Sequence
from dataclasses import dataclass

from hud_tui.rl.jobs import job_model_id
from hud_tui.rl.model_checks import is_shared
from hud_tui.wire import Checkpoint, Job, JobStatus, Model


@dataclass(frozen=True)
class Service:
    """Where the status is from."""

    label: str
    url: str


@dataclass(frozen=True)
class Status:
    """A model's state as just read."""

    service: Service
    model: Model | None
    """None where there is no model to speak of yet."""
    head: Checkpoint | None
    """The checkpoint being served; None for the base weights."""
    checkpoints: int
    """How many the tree has."""
    job: JobStatus | None
    """The model's current managed run, or the last one."""
    metrics: dict[str, float]
    """Of the newest step; empty before the first."""
    as_of: str
    """When it was read, ISO 8601 in UTC."""


def trainable(models: Sequence[Model]) -> list[Model]:
    """The models that a run may train: trainable and one's own, newest first."""
    own = [model for model in models if model.is_trainable and not is_shared(model)]
    return sorted(own, key=lambda model: model.created_at or "", reverse=True)


def current_model(models: Sequence[Model], jobs: Sequence[Job]) -> Model | None:
    """The model of the newest run, else the newest that can be trained.

    Args:
        models: The catalog.
        jobs: Newest first.
    """
    known = {model.id: model for model in models}
    for job in jobs:
        named = job_model_id(job)
        if named is not None and named in known:
            return known[named]
    return next(iter(trainable(models)), None)


def last_metrics(tree: Sequence[Checkpoint]) -> dict[str, float]:
    """The newest step's metrics, with its typed fields under the names of an event.

    Args:
        tree: Oldest first, shape (N,).
    """
    if not tree:
        return {}
    newest = tree[-1]
    typed = {"reward_mean": newest.mean_reward, "learning_rate": newest.learning_rate}
    return {name: value for name, value in typed.items() if value is not None} | newest.metrics
