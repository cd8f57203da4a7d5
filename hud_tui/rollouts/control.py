"""Runs and evaluations driven from this machine: begin, stop and resume them, from any program."""

import json
from collections.abc import Mapping
from os.path import expanduser
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from uuid import uuid4

from pydantic import ValidationError

from hud_tui.change import Change, TaskSource
from hud_tui.client.client import HudClient
from hud_tui.client.works import WorkClient, tell_end
from hud_tui.errors import HudConflict, HudError, HudUsage
from hud_tui.parameters import USUAL
from hud_tui.patience import Looks
from hud_tui.rl.text import last_lines, one_line
from hud_tui.rl.work import SUCCEEDED, TRAINING, End, Work, driver_ended, has_ended
from hud_tui.rollouts.evaluate import (
    SAMPLED,
    environment_of,
    evaluation_files,
    latest_order,
    order_of_evaluation,
)
from hud_tui.rollouts.run_files import (
    DriverFolder,
    Options,
    Order,
    RunFolder,
    environment_name,
    evaluation_folder,
    known_runs,
    run_folder,
)
from hud_tui.service_file import daemon
from hud_tui.settings import read_variables
from hud_tui.storage import tail
from hud_tui.wire import JobError, Model, WorkState

START_S = 30.0
"""Longest wait for a driver to begin, seconds; usually it takes one."""
STOP_S = 20.0
"""Longest wait for a driver to stop, seconds: it discards rollouts and completes a step."""
POLL_S = 0.1
LOG_LINES = 5
HUD_USUAL: Mapping[str, Any] = {
    "steps": 10,
    "group_size": 8,
    "tasks_per_step": 4,
    "learning_rate": 1e-5,
    "max_tokens": 1024,
}
"""Defaults of HUD's public training scripts, for services that publish none."""


def parameters_of(model: Model, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of a run, with the service's defaults for the model, else those of HUD's
    scripts."""
    usual = dict(HUD_USUAL)
    if model.training_defaults is not None:
        usual = model.training_defaults.model_dump(include=set(HUD_USUAL))
    loss = {name: USUAL[name] for name in ("loss_fn", "temperature", "seed")}
    return {**usual, **loss, **{key: value for key, value in chosen.items() if value is not None}}


def mode_of(client: HudClient) -> Literal["local", "host", "hud"]:
    """How a driver finds the client's service: by its data directory, its URL with the stored key,
    or HUD's variables."""
    settings = client.settings
    return "local" if settings.local else "host" if settings.host else "hud"


def order_of(
    client: HudClient, model: Model, source: Path, chosen: Mapping[str, Any], **more: Any
) -> Order:
    """The order of a new run on an environment, with parameters by their wire names, and `more`
    fields of the order. Its paths are absolute: whoever reads it works elsewhere. Raises HudUsage:
    a field is out of bounds, or there is no such interpreter."""
    from hud_tui.rl.settings import wrong_value
    from hud_tui.rollouts.process import python_at

    fields = {key: value for key, value in more.items() if value is not None}
    if chosen.get("kl_coef") and mode_of(client) == "hud":
        raise HudUsage("HUD's training API has no KL penalty", "leave out --kl-coef")
    if "tasks" in fields:
        file = Path(expanduser(fields["tasks"])).absolute()
        if file.exists():  # else it is the name of a taskset
            fields["tasks"] = str(file)
    if "python" in fields:
        fields["python"] = python_at(fields["python"])
    try:
        return Order(
            job_id=str(uuid4()),
            name=fields.pop("name", f"{environment_name(source.absolute())} on {model.model_name}"),
            model_id=model.id,
            model=model.model_name,
            mode=mode_of(client),
            host=client.settings.host,
            data_dir=client.settings.data_dir,
            source=str(source.absolute()),
            parameters=parameters_of(model, chosen),
            **fields,
        )
    except ValidationError as error:
        raise wrong_value(error) from error


def evaluation_order(
    client: HudClient,
    model: Model,
    state: Path | None,
    source: Path | None,
    job_id: str | None = None,
    sampling: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> Order | None:
    """How an evaluation on an environment of the user's own makes its rollouts; None where the
    service makes them. What is not given is as in a run on it that was begun here.

    Args:
        source: The environment, of which the model's latest run counts, and whose own tasks are
            evaluated unless `options` name others; None for that of a run.
        job_id: The run, where there is no `source`.
        sampling: Values of `SAMPLED`.
        options: Fields of `Options`.

    Raises:
        HudUsage: As of `order_of`.
    """
    if source is not None:
        last = None if state is None else latest_order(state, model.id, source)
    else:
        folder = driven_here(state, job_id or "")
        if folder is None:
            return None
        last = folder.order()
        source = Path(last.source)
        options = {"tasks": last.tasks, "left_out": last.left_out} | options
    given = {key: value for key, value in sampling.items() if value is not None}
    if last is None:
        return order_of(client, model, source, given, **options)
    before = last.model_dump(include=Options.model_fields.keys() - {"tasks", "left_out"})
    chosen = {key: last.parameters.get(key) for key in SAMPLED} | given
    order = order_of(client, model, source, chosen, **before | options)
    return order.model_copy(update={"mode": last.mode, "host": last.host})


async def begin(client: HudClient, order: Order, state: Path) -> WorkState:
    """Store a new run, and start its driver in the background. Raises HudError: it did not begin;
    the message ends with the driver's log."""
    folder = run_folder(state, order.job_id)
    folder.begin(order.model_copy(update={"service": await client.service_id()}))
    url = client.wire.rl("/v1/training/jobs/{}/drive", order.job_id)
    body = json.dumps({"parameters": order.parameters, "options": order.flags}).encode()
    source = TaskSource(order.source, left_out=tuple(order.left_out))
    change = Change("train", order.model_id, made="id", source=source)
    written = client.wire.writing.begin(change, "PUT", url, body, "")
    try:
        status = await _drive(client, folder, state)
    except BaseException as error:
        client.wire.writing.failed(written, error)
        raise
    client.wire.writing.done(written, status, "id", "")
    return status


async def _drive(client: HudClient, folder: RunFolder, state: Path) -> WorkState:
    """Start a driver, and wait until the service, or the run's state, shows that it works."""
    logged, job_id = start_driver(client, folder, "driver", state), folder.path.name
    async for _ in Looks(POLL_S, START_S):
        if folder.state().status == "queued":
            continue
        status = await status_of(client, folder, job_id)
        if status.status == "running":
            return status
        if not folder.is_driven:  # so short that it has ended already, or the service refused it
            is_told = status.status == folder.state().status
            return status if is_told else status_from_files(client, folder)
    raise not_begun("the run's driver", folder, logged)


def start_driver(client: HudClient, folder: DriverFolder, module: str, state: Path) -> int:
    """Start the process that drives what the folder is of; returns the length of its log before.
    `module`: in this package; its arguments are the state directory and the folder's name."""
    logged = len(tail(folder.driver_log))
    command = [f"hud_tui.rollouts.{module}", str(state), folder.path.name]
    # HUD's variables may be set in a .env of the working directory, which is not the driver's
    daemon(folder.driver_log, command, {} if client.settings.embedded else read_variables()).wait()
    return logged


def not_begun(what: str, folder: DriverFolder, logged: int) -> HudError:
    """The error for a process that did not begin; it ends with what that has logged."""
    why = one_line(" · ".join(last_lines(tail(folder.driver_log)[logged:], LOG_LINES)), 600)
    return HudError(f"{what} did not begin: {why}", f"see {folder.driver_log}")


async def status_of(client: HudClient, folder: RunFolder, job_id: str) -> WorkState:
    """A run's status from the service; from its files if the service does not know such runs. One
    that has not noticed that the driver is gone is told, since nobody else can know."""
    is_driven = folder.is_driven  # asked first: a driver reports its end before it exits
    job = await client.known_job(job_id)
    if job is None:
        return status_from_files(client, folder)
    if is_driven and job.status == "interrupted":  # it was halted, and says so soon
        return job.model_copy(update={"status": "running", "error": None})
    if is_driven or has_ended(job.status):
        return job
    own = status_from_files(client, folder)
    if own.status == "interrupted":
        await tell_end(client, job_id, End(own.status, own.error))
    return job.model_copy(update={"status": own.status, "error": own.error})


def status_from_files(client: HudClient, folder: RunFolder) -> WorkState:
    order, state = folder.order(), folder.state()
    is_gone = state.status == "running" and not folder.is_driven
    error = state.error or {}
    if is_gone:
        again = client.settings.command("jobs", order.job_id, "--resume")
        error = driver_ended(again).model_dump()
    return WorkState(
        status="interrupted" if is_gone else state.status,
        model=order.model,
        id=order.job_id,
        name=order.name,
        model_id=order.model_id,
        step=state.step,
        steps=order.parameters.get("steps"),
        parameters=order.parameters,
        attempt=state.attempt,
        trained_tokens=state.tokens,
        error=JobError(code=error.get("code"), message=error.get("message")) if error else None,
    )


def driven_here(state: Path | None, job_id: str) -> RunFolder | None:
    """The files of a run that was begun from this state directory; None if it was not."""
    return None if state is None else known_runs(state).get(job_id)


async def exited(folder: DriverFolder) -> None:
    """Wait until no driver is left: it exits a little after it has reported its end."""
    async for _ in Looks(POLL_S, STOP_S):
        if not folder.is_driven:
            break


class ProcessDrivers:
    """The processes of a state directory that carry out runs and evaluations on environments of
    the user's own; `hud_tui.client.evaluation_ledger.Drivers`."""

    def __init__(self, state: Path | None) -> None:
        self._state = state

    def _folder(self, work_id: str) -> DriverFolder | None:
        """Where its process is; None if it was not begun here."""
        if self._state is None:
            return None
        return driven_here(self._state, work_id) or evaluation_folder(self._state, work_id)

    def is_active(self, work_id: str) -> bool:
        folder = self._folder(work_id)
        return folder is not None and folder.is_driven

    async def stop(self, work_id: str) -> None:
        folder = self._folder(work_id)
        if folder is not None and folder.is_driven:
            folder.ask_to_cancel()
            await exited(folder)

    async def start(self, client: HudClient, evaluation_id: str) -> None:
        from hud_tui.rollouts.environment import check_source

        files = evaluation_files(self._state)
        stored = files.read(evaluation_id)
        if stored is None or self._state is None:
            raise HudUsage(f"evaluation {evaluation_id} has no file")
        folder, order = evaluation_folder(self._state, evaluation_id), order_of_evaluation(stored)
        check_source(order.source)
        here = {"service": stored.service, "data_dir": client.settings.data_dir or order.data_dir}
        environment = environment_of(order.model_copy(update=here))
        files.write(stored.model_copy(update={"environment": environment}))
        folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.forget_cancel()
        logged = start_driver(client, folder, "evaluation_driver", self._state)
        async for _ in Looks(POLL_S, START_S):
            stored = files.read(evaluation_id)
            if folder.is_driven or (stored and has_ended(stored.evaluation.status)):
                return
        raise not_begun("the evaluation's process", folder, logged)

    async def state(self, client: HudClient, run_id: str) -> WorkState | None:
        folder = driven_here(self._state, run_id)
        return None if folder is None else await status_of(client, folder, run_id)

    async def resume(self, client: HudClient, run_id: str) -> WorkState | None:
        """Raises HudConflict: it is running, or has taken all its steps; HudUsage: its environment,
        interpreter or a variable is missing here, or another run trains the model; HudError: its
        driver did not begin."""
        from hud_tui.rollouts.environment import check_source, setting_of

        folder = driven_here(self._state, run_id)
        if folder is None or self._state is None:
            return None
        with folder.starting() as is_alone:  # until its driver holds a lock of its own
            before = folder.state()
            if not is_alone or folder.is_driven or before.status in SUCCEEDED:
                status = before.status if before.status in SUCCEEDED else "running"
                why = Work(run_id, TRAINING, f"run {run_id}", status).why_no_resume
                raise HudConflict(409, why)
            client.wire.guard.check("resume")
            order = await _order_here(client, folder)
            check_source(order.source)
            setting_of(order, client.settings, folder.environment_log)
            await require_absent_run(client, self._state, order.model_id)
            folder.forget_cancel()
            folder.save(before.model_copy(update={"status": "queued"}))
            return await _drive(client, folder, self._state)


def works_of(client: HudClient, state: Path | None) -> WorkClient:
    """The runs and evaluations of a service, with those that processes of this state directory
    carry out."""
    return WorkClient(client, evaluation_files(state), ProcessDrivers(state), state)


async def _order_here(client: HudClient, folder: RunFolder) -> Order:
    """A run's order, with the data directory where it lies now. Raises HudUsage: it is of another
    service."""
    order = folder.order()
    if order.service and not await client.is_of(order.service):
        where = {"local": order.data_dir, "host": order.host, "hud": order.service}[order.mode]
        message = f"run {order.job_id} was begun on another service: {one_line(where)}"
        raise HudUsage(message, "connect to that service")
    if order.mode == "local" and client.settings.data_dir not in ("", order.data_dir):
        order = order.model_copy(update={"data_dir": client.settings.data_dir})
        folder.save_order(order)
    if order.mode == "host" and client.settings.host not in ("", order.host):
        order = order.model_copy(update={"host": client.settings.host})
        folder.save_order(order)
    return order


async def require_absent_run(client: HudClient, state: Path, model_id: str) -> None:
    """Raises HudUsage: a driver on this machine trains the model already. The service is told of
    one that was killed, since it would refuse another one."""
    for job_id, folder in known_runs(state).items():
        is_driven = folder.is_driven
        was_killed = not is_driven and folder.state().status == "running"
        if not (is_driven or was_killed) or folder.order().model_id != model_id:
            continue
        if was_killed:
            await status_of(client, folder, job_id)
        else:
            cancel = client.settings.command("jobs", job_id, "--cancel")
            raise HudUsage(f"run {job_id} trains this model", f"cancel it first: {cancel}")


def report_of(folder: RunFolder) -> dict[str, Any]:
    """Fields of a document about a run driven here, in addition to its status."""
    state = folder.state()
    return {
        "driven": folder.is_driven,
        "driver_pid": folder.driver_pid(),
        "rollouts": state.rollouts,
        "failed_rollouts": state.failed,
        "groups_lost": state.groups_lost,
        "failures": folder.failures()[-20:],
        "logs": {"environment": str(folder.environment_log), "driver": str(folder.driver_log)},
    }
