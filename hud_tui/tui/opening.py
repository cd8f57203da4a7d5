"""Opening: the view the app opens on, and the model it follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hud_tui.errors import HudError, HudRefused, HudUsage
from hud_tui.rl.checkpoint_tree import own
from hud_tui.rl.names import find_model
from hud_tui.rl.run import job_model_id
from hud_tui.rl.text import one_line
from hud_tui.wire import Job, Model

if TYPE_CHECKING:
    from hud_tui.client.client import HudClient
    from hud_tui.last_known import LastKnown
    from hud_tui.settings import Start
    from hud_tui.tui.layout import Layout


VIEWS = {
    "models": "models",
    "fork": "models",
    "preflight": "launch",
    "run": "launch",
    "status": "live",
    "checkpoints": "checkpoints",
    "head": "checkpoints",
    "jobs": "jobs",
    "traces": "jobs",
}


@dataclass(frozen=True)
class Opening:
    view: str
    model: Model | None
    """To follow; None where there is none of one's own yet."""
    trouble: HudError | None = None
    """Why it is not the one that was asked for."""
    models: tuple[Model, ...] = ()
    """The catalog, as it was read."""


async def opening(client: HudClient, start: Start, left: Layout) -> Opening:
    """Decide from what the command line named, then from how the app was left, then from the
    newest job, then the newest fork.

    Raises:
        HudError: The service cannot be asked.
    """
    models = await client.models()
    try:
        model = await _named(client, start, models) or _last(start, left, models)
    except (HudUsage, HudRefused) as error:
        return Opening("models", await _usual(client, models), error, tuple(models))
    model = model or await _usual(client, models)
    view = _view(start, left)
    if model is None and (start.again or view in ("live", "checkpoints")):
        view = "models"
    return Opening(view, model, models=tuple(models))


def _view(start: Start, left: Layout) -> str:
    return left.view if start.again else VIEWS.get(start.command, "live")


def _last(start: Start, left: Layout, models: list[Model]) -> Model | None:
    """The model that was followed last, unless the command is about the newest run's.

    Raises:
        HudUsage: It is gone, and the app was to open on it.
    """
    if not left.model or (start.command == "status" and not start.again):
        return None
    found = next((model for model in models if model.id == left.model), None)
    if found is None and start.again:
        name = one_line(left.model_name or left.model, 60)
        raise HudUsage(f"{name}, which was followed last, is gone: choose another model")
    return found


def opening_offline(known: LastKnown, start: Start, left: Layout) -> Opening:
    """The same of what was kept, where the service does not answer.

    Raises:
        HudUsage: The model that the command line names is not in it.
    """
    models = list(known.models) or [known.model]
    model = known.model
    if start.model or (start.ref and start.command == "status"):
        model = find_model(start.model or start.ref or "", models)
    return Opening(_view(start, left), model, models=tuple(models))


async def _named(client: HudClient, start: Start, models: list[Model]) -> Model | None:
    """The model that was named, or that of the job that was.

    Raises:
        HudUsage: Nothing is called so.
    """
    if start.model:
        return find_model(start.model, models)
    if not start.ref:
        return None
    try:
        return find_model(start.ref, models)
    except HudUsage:
        return _model_of(await client.job(start.ref), models)


async def _usual(client: HudClient, models: list[Model]) -> Model | None:
    try:
        jobs = await client.jobs(1)
    except HudRefused:
        jobs = []  # a service without jobs still has models
    found = _model_of(jobs[0], models) if jobs else None
    return found or next(iter(own(models)), None)


def _model_of(job: Job, models: list[Model]) -> Model | None:
    """The model that a managed run trains, where it is in the catalog."""
    wanted = job_model_id(job)
    return next((model for model in models if model.id == wanted), None)
