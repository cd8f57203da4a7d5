"""Checks of the model that a run is to train.

Source: ``hud rl run`` (hud 0.5) takes a model that is trainable, ready and not public; the
``hud`` SDK 0.6.21 samples a trainable one through its openai_compatible agent only.
"""

from hud_tui.rl.preflight import Finding
from hud_tui.rl.text import one_line
from hud_tui.wire import JobParameters, JobStatus, Model


def check_model(model: Model) -> list[Finding]:
    """Whether the model can be trained, by us."""
    name = one_line(model.model_name)
    if is_shared(model):
        fix = f"fork it: hud-tui fork {name} --name NAME"
        return [Finding("model", "failure", f"{name} is a shared base", name, fix)]
    if not model.is_trainable:
        fix = "choose a model that is trainable: hud-tui models"
        return [Finding("model", "failure", f"{name} is not trainable", name, fix)]
    return [Finding("model", "ok", f"{name} is trainable", name)]


def check_ready(model: Model, job: JobStatus | None) -> list[Finding]:
    """Whether it can be trained now; empty where the service does not say.

    Args:
        model: Its row of the catalog.
        job: A run that trains it, if there is one.
    """
    name, status = one_line(model.model_name), (model.model_extra or {}).get("status")
    if job is not None:
        which = one_line(job.id or job.name or "", 60)
        message = f"a run trains {name} already: {which or job.status}"
        fix = "wait for its end, or end it: hud-tui jobs JOB --cancel"
        return [Finding("ready", "warning", message, which, fix)]
    if status == "ready":
        return [Finding("ready", "ok", f"{name} is ready", name)]
    if not isinstance(status, str):
        return []
    message = f"{name} is {one_line(status, 40)}, not ready"
    return [Finding("ready", "failure", message, name, "wait until it is, or choose another")]


def check_tokens(model: Model) -> list[Finding]:
    """Whether its agent type can record the tokens that it samples, which are trained on."""
    name, kind = one_line(model.model_name), model.sdk_agent_type
    if kind == "openai_compatible":
        return [Finding("tokens", "ok", "its agent type records token ids", name)]
    message = f"the agent type is {one_line(kind or 'not stated', 40)}"
    fix = "choose a model whose sdk_agent_type is openai_compatible: only its token ids are kept"
    return [Finding("tokens", "failure" if kind else "warning", message, name, fix)]


def check_parameters(model: Model, asked: JobParameters) -> list[Finding]:
    """Whether the service defines what a run is asked for; empty where it does.

    HUD's reference has reasoning_effort only; the embedded service, which publishes what a run
    starts from, takes the rest.
    """
    given = asked.model_dump(exclude_none=True).keys() - {"reasoning_effort"}
    if model.training_defaults is not None or not given:
        return []
    listed = ", ".join(name for name in JobParameters.model_fields if name in given)
    message = f"HUD defines reasoning_effort only; it may refuse or ignore {listed}"
    return [Finding("model", "warning", message, listed, "leave that out")]


def is_shared(model: Model) -> bool:
    """Whether others are served by it: a public model, or a base of the embedded service."""
    public = (model.model_extra or {}).get("public") is True
    return public or (model.base_model is not None and model.forked_from is None)
