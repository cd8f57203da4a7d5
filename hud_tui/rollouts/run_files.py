"""The files of a run that is driven from this machine: a folder in the state directory.

``order.json`` is what was requested, of which only parameters may change; ``state.json`` is the
progress, replaced atomically; ``groups.jsonl`` has the rollouts of the step in progress and those
sampled ahead, a line per group, so that a killed driver loses none of them. ``failures.jsonl`` has
the errors in the user's code; ``environment.log`` and ``driver.log`` the output.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from hud_tui.errors import HudUsage
from hud_tui.parameters import ROLLOUT_OPTIONS, Parameter, RolloutRows
from hud_tui.processes import holding, last_holder
from hud_tui.rl.text import counted, one_line
from hud_tui.service_file import ServicePlace
from hud_tui.storage import is_held, lock_of, open_or_make, read_regular, write_atomic
from hud_tui.wire import Body, no_items

if TYPE_CHECKING:  # those who list what was begun do without
    from hud_tui.rl.loop import LoopFacts

FOLDER = "driven"
EVALUATIONS = "evaluations"
MOST_BYTES = 256 << 20
MOST_ORDERS = 200
"""Most orders of trials and games that are kept."""
MOST_FAILURES = 1000
"""Most lines of failures.jsonl: further ones are not written."""

M = TypeVar("M", bound=BaseModel)
RESAMPLE, STOP = "resample", "stop"
"""Policies for failed rollouts, beside ``drop``; ``stop:N`` ends the run after N of them."""


class Options(Body, RolloutRows):
    """How rollouts are made, and of which tasks."""

    model_config = ConfigDict(extra="forbid")

    left_out: list[str] = Field(default_factory=no_items)
    """Slugs of tasks to leave out."""

    @model_validator(mode="before")
    @classmethod
    def _from_older_files(cls, values: Any) -> Any:
        """Reads ``named``, now ``env``, and ``stop_after``, now in ``failed``."""
        if not isinstance(values, dict) or not values.keys() & {"named", "stop_after"}:
            return values
        read = {key: value for key, value in values.items() if key not in ("named", "stop_after")}
        if "named" in values:
            read["env"] = values["named"]
        if values.get("failed") == STOP and "stop_after" in values:
            read["failed"] = f"{STOP}:{values['stop_after']}"
        return read

    @field_validator("runtime")
    @classmethod
    def _is_runtime(cls, text: str) -> str:
        kind, _, more = text.partition(":")
        if kind == "docker" and text != kind and not more.strip():
            message = "{text} has no image: write docker:IMAGE, or docker if its tasks name images"
            raise _refusal("runtime", message, text)
        is_plain = kind in ("subprocess", "local", "hud", "hosted") and not more
        is_address = kind == "tcp" and more.startswith("//") and ":" in more[2:]
        if not (is_plain or is_address or kind == "docker"):
            raise _refusal("runtime", "{text}: no such runtime", text)
        return text

    @field_validator("failed")
    @classmethod
    def _is_policy(cls, text: str) -> str:
        policy, colon, after = text.partition(":")
        is_count = policy == STOP and after.isascii() and after.isdigit() and len(after) < 7
        if policy not in ("drop", RESAMPLE, STOP) or (colon and not (is_count and int(after))):
            raise _refusal("failed", "{text}: no such policy", text)
        return text

    @field_validator("env")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not name.isidentifier():
                raise _refusal("env", "{text} is no name of a variable", name)
        return names

    @property
    def stop_after(self) -> int | None:
        """Failed rollouts after which the run ends; None: it goes on."""
        policy, _, after = self.failed.partition(":")
        return int(after or 1) if policy == STOP else None

    @property
    def flags(self) -> dict[str, Any]:
        """The options by the command's flags, without those that are empty."""
        options = self.model_dump(mode="json", include={row.name for row in ROLLOUT_OPTIONS})
        return {name: value for name, value in options.items() if value not in (None, [])}


def _refusal(option: str, message: Any, text: str) -> PydanticCustomError:
    """An error of an option's own check, as `wrong_value` takes them."""
    return PydanticCustomError(option, message, {"text": one_line(text)})


def read_option(row: Parameter, text: str) -> dict[str, Any]:
    """A typed option as a field of `Options`. Raises ValueError: it is invalid."""
    value: Any = text
    if row.kind == "words":
        value = text.replace(",", " ").split()
    elif row.is_number:
        value = row.read(text)
    elif row.is_optional:
        value = text or None
    return Options.model_validate({row.name: value}).model_dump(include={row.name})


def environment_name(source: str | Path) -> str:
    """What runs, tasks and evaluations on an environment are called by: ``sums`` for sums.py, for
    sums/env.py and for the directory sums."""
    path = Path(source)
    return path.parent.name if path.name == "env.py" else path.name.removesuffix(".py")


class Order(Options, ServicePlace):
    """A run that was requested: model, environment and parameters."""

    job_id: str
    """A UUID."""
    name: str
    model_id: str
    model: str
    """Its slug."""
    start: str | None = None
    """Id of the head that it starts from, or ``base``; None on HUD, and in older files."""
    source: str
    """The environment's file or directory, absolute."""
    parameters: dict[str, Any]
    """All parameters, by their wire names: steps, group_size, tasks_per_step, learning_rate …"""


class Batch(Body):
    """Rollouts to train on, with the keys of the training calls."""

    model_config = ConfigDict(frozen=False)

    parent: str | None
    """Id of the checkpoint that sampled them; once the step is sent, of the head that it is taken
    from. None for the weights that the model started from."""
    keys: list[str]
    """Keys of the gradient passes, in order."""
    step_key: str
    known: list[str] | None = None
    """Children of `parent` before the step was sent, for services without keys; None if it was not
    sent."""
    iteration: int | None = None
    """Of its groups; None in older files: that of the state."""
    substep: int = 0
    """Steps taken on it."""
    tasks: dict[str, float] = Field(default_factory=dict)
    """What the run knows of its tasks after it, as `Drawing.counts`; empty after the first step."""


def losses_text(failed: int, groups_lost: int) -> str:
    """E.g. ``2 rollouts failed, 1 group lost``."""
    return f"{counted(failed, 'rollout')} failed, {counted(groups_lost, 'group')} lost"


class State(Body):
    """Progress of a run."""

    model_config = ConfigDict(frozen=False)

    status: str = "queued"
    """A job's status; queued until its driver has begun."""
    step: int = 0
    """Optimizer steps taken."""
    iteration: int = 0
    """Batches of tasks dealt out so far, including those without a gradient."""
    attempt: int = 1
    """Attempt at the next step, from 1."""
    batch: Batch | None = None
    checkpoint_id: str | None = None
    """Id of its newest checkpoint."""
    flat: int = 0
    """Consecutive batches without a gradient."""
    flat_low: float | None = None
    flat_high: float | None = None
    ungraded: int = 0
    """Consecutive batches without any complete group."""
    solved: str | None = None
    """Why no further step is taken: the tasks are solved."""
    rollouts: int = 0
    """Number of rollouts made."""
    failed: int = 0
    """Number of failed ones among them."""
    groups_lost: int = 0
    busy_s: float = 0.0
    tokens: int = 0
    evaluated: list[int] = Field(default_factory=no_items)
    """Steps whose checkpoint was evaluated on the held-out tasks."""
    error: dict[str, Any] | None = None
    """Why it ended: code and message; for errors in the user's code also `failure`."""
    digest: str | None = None
    """Digest of the environment's files when they were loaded."""

    @property
    def facts(self) -> "LoopFacts":
        """What the loop is told."""
        from hud_tui.rl.loop import LoopFacts, Streak

        flat = Streak(self.flat)
        if self.flat_low is not None and self.flat_high is not None:
            flat = Streak(self.flat, self.flat_low, self.flat_high)
        return LoopFacts(
            step=self.step,
            iteration=self.iteration,
            attempt=self.attempt,
            flat=flat,
            ungraded=self.ungraded,
            has_batch=self.batch is not None,
            evaluated=frozenset(self.evaluated),
            solved=self.solved,
        )

    def take(self, facts: "LoopFacts") -> None:
        """Store what has happened, but for the batch."""
        self.step, self.iteration, self.attempt = facts.step, facts.iteration, facts.attempt
        self.flat, self.ungraded, self.solved = facts.flat.count, facts.ungraded, facts.solved
        self.flat_low = facts.flat.low if facts.flat.count else None
        self.flat_high = facts.flat.high if facts.flat.count else None
        self.evaluated = sorted(facts.evaluated)


class DriverFolder:
    """The folder of what is driven by a process of its own: logs, the process's lock, and requests
    to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment_log = path / "environment.log"
        """Output of the worker and of environments."""
        self.driver_log = path / "driver.log"
        self._lock, self._cancel = path / "driver.lock", path / "cancel"

    @contextmanager
    def starting(self) -> Iterator[bool]:
        """Let no other program start a driver meanwhile, which would write over what this one's
        stores; yields False if one does. Raises HudUsage: it cannot be locked."""
        with lock_of(self.path / "starting.lock", "the run's driver") as is_ours:
            yield is_ours

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Hold the lock, a file with this process's id. Raises HudUsage: another process drives
        it."""
        with holding(self._lock) as is_ours:
            if not is_ours:
                raise HudUsage(f"it is being driven by process {self.driver_pid()}")
            yield

    def driver_pid(self) -> int | None:
        """Id of the process that drives it, or did last."""
        driver = last_holder(self._lock)
        return driver.pid if driver is not None else None

    @property
    def is_driven(self) -> bool:
        """Whether a process drives it."""
        return is_held(self._lock)

    def ask_to_cancel(self) -> None:
        """Request an end, also where no service can pass that on."""
        write_atomic(self._cancel, "")

    def is_cancelled(self) -> bool:
        return self._cancel.exists()

    def forget_cancel(self) -> None:
        self._cancel.unlink(missing_ok=True)


class RunFolder(DriverFolder):
    def begin(self, order: Order) -> None:
        self.save(State())
        self.save_order(order)  # last: it makes the run known

    def save_order(self, order: Order) -> None:
        write_atomic(self.path / "order.json", order.model_dump_json(indent=1))

    def order(self) -> Order:
        """Raises HudUsage: the file cannot be read."""
        return self._read("order.json", Order)

    def state(self) -> State:
        """Raises HudUsage: the file cannot be read."""
        return self._read("state.json", State)

    def save(self, state: State) -> None:
        """Store the progress, fsynced."""
        write_atomic(self.path / "state.json", state.model_dump_json())

    def _read(self, name: str, kind: type[M]) -> M:
        try:
            return kind.model_validate_json(read_regular(self.path / name, MOST_BYTES))
        except (OSError, ValidationError) as error:
            raise HudUsage(f"{self.path / name} cannot be read: {error}") from error

    # The groups of the step in progress, and of those that are sampled ahead.

    def add_group(self, group: Mapping[str, Any]) -> None:
        """Append a complete group, fsynced."""
        self._append("groups.jsonl", group)

    def groups(self) -> list[dict[str, Any]]:
        """The stored groups; a truncated last line is ignored."""
        return list(_lines(self.path / "groups.jsonl"))

    def keep_groups(self, is_kept: Callable[[Mapping[str, Any]], bool]) -> None:
        """Delete the other groups."""
        kept = [group for group in self.groups() if is_kept(group)]
        text = "".join(json.dumps(group) + "\n" for group in kept)
        write_atomic(self.path / "groups.jsonl", text)

    # The rewards of all batches, by which tasks are drawn.

    def add_seen(self, iteration: int, groups: Mapping[str, Sequence[float]]) -> None:
        """Append a batch's rewards by task. One that is sampled again is appended again."""
        self._append("seen.jsonl", {"iteration": iteration, "groups": groups})

    def seen(self) -> Iterator[tuple[int, dict[str, list[float]]]]:
        """The batches, oldest first, each with its iteration."""
        for line in _lines(self.path / "seen.jsonl"):
            yield line["iteration"], line["groups"]

    # Failures, and logs.

    def add_failure(self, failure: Mapping[str, Any]) -> None:
        """Append an error in the user's code."""
        if sum(1 for _ in _lines(self.path / "failures.jsonl")) < MOST_FAILURES:
            self._append("failures.jsonl", failure)

    def failures(self) -> list[dict[str, Any]]:
        """Oldest first."""
        return list(_lines(self.path / "failures.jsonl"))

    def _append(self, name: str, line: Mapping[str, Any]) -> None:
        with open(open_or_make(self.path / name, os.O_APPEND), "ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with suppress(OSError):
        for line in read_regular(file, MOST_BYTES).splitlines():
            with suppress(ValueError):
                yield dict(json.loads(line))


def run_folder(state: Path, job_id: str) -> RunFolder:
    """A run's folder, which may not exist."""
    return RunFolder(state / FOLDER / job_id)


def evaluation_folder(state: Path, evaluation_id: str) -> DriverFolder:
    """The folder of an evaluation's process, beside the evaluation's file; it may not exist."""
    return DriverFolder(state / EVALUATIONS / evaluation_id)


def log_of_checks(state: Path, source: str) -> Path:
    """Log for an environment's output during checks; emptied for the next check."""
    name = f"{Path(source).stem}-{sha256(source.encode()).hexdigest()[:8]}.log"
    log = state / FOLDER / "checks" / name
    log.unlink(missing_ok=True)
    return log


def keep_order(state: Path, job_id: str, order: Order) -> None:
    """Store how rollouts of a job were made that is no run: a trial, or a game. Of the oldest
    beyond MOST_ORDERS it is forgotten."""
    folder = state / FOLDER / "checks"
    write_atomic(folder / f"{job_id}.json", order.model_dump_json())
    with suppress(OSError):  # another program may do the same
        stored = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
        for file in stored[:-MOST_ORDERS]:
            file.unlink(missing_ok=True)


def kept_order(state: Path, job_id: str) -> Order | None:
    """How the rollouts of such a job were made; None: that is not stored, or cannot be read."""
    try:
        text = read_regular(state / FOLDER / "checks" / f"{job_id}.json", MOST_BYTES)
        return Order.model_validate_json(text)
    except (OSError, ValidationError):
        return None


def known_runs(state: Path) -> dict[str, RunFolder]:
    """Every run that was begun from this state directory, by job id."""
    folder = state / FOLDER
    if not folder.is_dir():
        return {}
    folders = sorted(run for run in folder.iterdir() if (run / "order.json").is_file())
    return {run.name: RunFolder(run) for run in folders}
