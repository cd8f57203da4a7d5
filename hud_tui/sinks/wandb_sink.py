"""Logs one run or evaluation to Weights & Biases: ``python -m hud_tui.sinks.wandb_sink STATE ID``.

A process of its own that reads the service as any client does, so whatever happens to it, the run
does not notice. The SDK writes to files on this machine; they are synced at the end if a key is
there. What is on disk says what is written: a process that was killed is replaced by one that goes
on after it.

Source: wandb 0.31; ``wandb sync --help``.
"""

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryDirectory
from time import time
from typing import Any

from hud_tui import __version__
from hud_tui.client.client import HudClient
from hud_tui.client.guard import Guard
from hud_tui.client.history import read_moves
from hud_tui.client.transport import origin_of
from hud_tui.config import ReadOnly, config_dir, read_config
from hud_tui.errors import HudError, HudNotFound, HudUsage
from hud_tui.events import EvaluationsRead, TreeRead
from hud_tui.patience import Looks, Patience
from hud_tui.processes import holding, process, read_process
from hud_tui.rl.alarms.monitor import AlarmMonitor
from hud_tui.rl.run import Run
from hud_tui.rl.sink_rows import RECORD, STEP, SinkRow, rows_of_evaluation, rows_of_run, settings_of
from hud_tui.rl.text import last_lines, one_line
from hud_tui.rl.wandb_file import read_logged_run
from hud_tui.rl.work import SUCCEEDED, has_ended
from hud_tui.rollouts.control import works_of
from hud_tui.rollouts.descendants import children
from hud_tui.rollouts.driver import log_to_stderr
from hud_tui.rollouts.service import ServiceLink, connect_to
from hud_tui.settings import Paths, read_paths
from hud_tui.sinks.orders import BASE_URL, KEY, SinkFolder, SinkOrder, key_origin
from hud_tui.storage import read_regular, write_atomic
from hud_tui.wire import Model, WorkState

log = logging.getLogger("hud_tui.sink")

LOCAL_S, HUD_S = 1.0, 15.0
"""Seconds between two reads of the service."""
LOCK_S = 10.0
"""Longest wait for the process before to end, seconds."""
WRITERS_S = 20.0
"""Longest wait for the SDK's processes of one that was killed, seconds; then they are ended."""
ALONE_S = 900.0
"""Seconds without a rollout after which nobody makes an evaluation that a program of the user's
makes while it is followed. An open rollout is given up earlier."""
SYNC_S = 600.0
BINS = 20
ONLY_READS = ReadOnly("this process only reads", "")
SYNCED = frozenset({KEY, BASE_URL, "WANDB_ENTITY", "WANDB_HTTP_TIMEOUT"})
"""Variables of the SDK that a sync gets; writing gets none."""


class WandbLog:
    """The SDK, writing to files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._run: Any = None
        self._next = 0

    def open(self, described: Mapping[str, Any], first: int) -> None:
        """Begin, with the arguments of ``wandb.init``; `first` is the number of the next row."""
        import wandb

        settings = wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            disable_code=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_save_requirements=False,
        )
        run = wandb.init(dir=self._folder, mode="offline", settings=settings, **described)
        run.define_metric(STEP)
        run.define_metric("*", step_metric=STEP)
        self._run, self._next = run, first

    def write(self, row: SinkRow) -> None:
        import wandb

        values: dict[str, Any] = {k: value for k, value in row.values.items() if value is not None}
        for name, numbers in row.histograms.items():
            values[name] = wandb.Histogram(numbers, num_bins=BINS)
        for name, table in row.tables.items():
            rows = [list(cells) for cells in table.rows]
            values[name] = wandb.Table(list(table.columns), rows, allow_mixed_types=True)
        self._run.log({**values, RECORD: row.record}, step=self._next)
        self._next += 1

    def close(self, exit_code: int) -> None:
        if self._run is not None:
            import wandb

            self._run.finish(exit_code=exit_code)
            wandb.teardown(exit_code)  # its own process has then written all
        self._run = None


@dataclass
class Facts:
    work: WorkState
    model: Model | None
    run: Run = field(default_factory=Run)
    """Empty for an evaluation."""
    group: str | None = None
    """The sweep that it is part of."""


class Reader:
    """Reads one run or evaluation, as often as it is asked to."""

    def __init__(self, order: SinkOrder, state: Path, link: ServiceLink) -> None:
        self._order, self._state, self._link = order, state, link
        self._model: Model | None = None
        self._run = Run()
        self._patience, self._done = Patience(ALONE_S), -1
        self._monitor = AlarmMonitor(read_config(config_dir(os.environ)).alarms)

    async def read(self) -> Facts | None:
        """As it stands now; None if the service does not know it. Raises HudError: no answer for
        too long, refused, or nobody makes its rollouts any more."""
        order = self._order

        async def work_of(client: HudClient) -> WorkState | None:
            works = works_of(client, self._state)
            work = await works.state(order.work_id)
            if work is None or not work.is_evaluation:
                return work
            if has_ended(work.status):
                return await works.evaluations.get(order.work_id)  # with its rewards by task
            if works.evaluations.is_made_here(order.work_id):
                self._refuse_alone(work)
            return work

        # its status is read first: the tree that is read afterwards then has all of its steps
        work = await self._link.call(work_of)
        if work is None:
            return None
        if self._model is None:
            models = await self._link.call(lambda client: client.models())
            self._model = next((model for model in models if model.id == order.model_id), None)
        if not work.is_evaluation:
            await self._link.call(lambda client: self._read_run(client, work))
        sweeps = works_of(self._link.client, self._state).sweeps.names()
        group = work.parameters.get("sweep") or sweeps.get(order.work_id)
        return Facts(work, self._model, self._run, group)

    def _refuse_alone(self, work: WorkState) -> None:
        """Raises HudUsage: the program that made its rollouts has gone."""
        if work.done != self._done:
            self._done = work.done
            self._patience.renew()
        if self._patience.is_over():
            what = f"nobody makes the rollouts of evaluation {work.id} any more"
            raise HudUsage(what, "resume it: then it is logged on")

    async def _read_run(self, client: HudClient, work: WorkState) -> None:
        model_id, run = self._order.model_id, self._run
        run = run.fold(TreeRead(checkpoints=await client.tree(model_id)))
        run = run.fold(await read_moves(client, model_id, self._state))
        if (listed := await client.evaluations(model_id)) is not None:
            run = run.fold(EvaluationsRead(evaluations=tuple(listed)))
        self._monitor.follow(run.tree, work)
        alarms = self._monitor.report()
        self._run = replace(run, model=self._model, job=work, alarms=alarms)


class Sink:
    """Writes what is missing until the end is written."""

    def __init__(
        self,
        folder: SinkFolder,
        order: SinkOrder,
        read: Callable[[], Any],
        to: WandbLog,
        pause_s: float = LOCAL_S,
    ) -> None:
        """`read`: as `Reader.read`."""
        self._folder, self._order, self._read, self._to = folder, order, read, to
        self._pause_s = pause_s
        self._written: set[str] = set()
        self._rows = 0
        self._is_open = False
        self._has_end = False
        """Whether the newest file on disk says how it ended."""

    async def run(self) -> bool:
        """Follow it to its end; returns whether its end is written. Raises HudError: the service
        was away for too long, or refused."""
        for logged in self._folder.logged():
            self._rows += len(logged.history)
            self._written |= {str(row[RECORD]) for row in logged.history if RECORD in row}
            self._has_end = logged.exit_code is not None
        exit_code = 1
        try:
            while True:
                facts = await self._read()
                if facts is None:
                    log.warning("the service has no such run: %s", self._order.work_id)
                    return True
                self._write(facts)
                if has_ended(facts.work.status):
                    exit_code = 0 if facts.work.status in SUCCEEDED else 1
                    return True
                await asyncio.sleep(self._pause_s)
        finally:
            self._to.close(exit_code)

    def _write(self, facts: Facts) -> None:
        work = facts.work
        rows = rows_of_run(facts.run, work, self._written)
        if work.is_evaluation:
            rows = rows_of_evaluation(work)
        new = [row for row in rows if row.record not in self._written]
        if not new and (self._is_open or (self._has_end and has_ended(work.status))):
            return
        if not self._is_open:
            self._to.open(self._described(facts), self._rows)
            self._is_open = True
            writers = [str(process(pid)) for pid in children(os.getpid())]
            write_atomic(self._folder.writers, "\n".join(writers))
        for row in new:
            self._to.write(row)
            self._written.add(row.record)

    def _described(self, facts: Facts) -> dict[str, Any]:
        work, parts = facts.work, self._order.project.split("/")
        kind = "eval" if work.is_evaluation else "train"
        name = work.name
        if work.is_evaluation:
            name = f"evaluation of {work.checkpoint or 'base'} of {work.model}"
        return {
            "entity": parts[0] if len(parts) == 2 else None,
            "project": parts[-1],
            "id": work.id.replace("-", "") or self._order.work_id.replace("-", ""),
            "name": one_line(name or work.id, 128),
            "group": facts.group,
            "job_type": kind,
            "tags": ["hud-tui", kind],
            "config": {**settings_of(work, facts.model), "hud_tui": __version__},
            "resume": "allow",
        }


async def wait_for_writers(folder: SinkFolder) -> None:
    """Wait until the SDK's processes have written what a killed process left them."""
    try:
        lines = read_regular(folder.writers, 10_000).decode("ascii", "replace").splitlines()
    except OSError:
        return
    writers = [writer for line in lines if (writer := read_process(line)) is not None]
    async for _ in Looks(0.1, WRITERS_S):
        if not any(writer.runs for writer in writers):
            return
    for writer in writers:
        writer.send(SIGKILL)


def sync(folder: SinkFolder, variables: Mapping[str, str]) -> bool:
    """Sync what is not synced yet, by the SDK's own command; returns whether that is done. The key
    is in the command's environment only."""
    left = [run for run in folder.runs if not [*run.glob("*.wandb.synced")]]
    if not left:
        return True
    command = [sys.executable, "-P", "-m", "wandb", "sync", *map(str, left)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SYNC_S,
            cwd=folder.path,
            env={**os.environ, **variables},
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("not synced: %s", _clean(type(error).__name__, variables))
        return False
    said = (done.stderr or done.stdout).decode("utf-8", "replace")
    if done.returncode:
        log.warning("not synced: %s", _clean(" · ".join(last_lines(said, 3)), variables))
    return not done.returncode


def _clean(text: str, variables: Mapping[str, str]) -> str:
    """The text in one line, without the key."""
    key = variables.get(KEY)
    return one_line(text.replace(key, "…") if key else text, 600)


def take_variables() -> dict[str, str]:
    """The SDK's variables, removed from this process: the files are written alike wherever they are
    set, and nothing that the SDK logs can have the key."""
    taken = {name: os.environ.pop(name) for name in list(os.environ) if name[:6] == "WANDB_"}
    return {name: value for name, value in taken.items() if name in SYNCED}


async def follow(state: Path, folder: SinkFolder, order: SinkOrder) -> bool:
    """Follow one order on its service; returns whether its end is written."""
    paths = read_paths(str(state), order.data_dir or None)
    link = ServiceLink(lambda: _connect(order, paths), lambda: False)
    reader = Reader(order, state, link)
    pause_s = LOCAL_S if order.mode == "local" else HUD_S
    try:
        return await Sink(folder, order, reader.read, WandbLog(folder.path), pause_s).run()
    finally:
        await link.close()


def _connect(order: SinkOrder, paths: Paths) -> HudClient | None:
    client = connect_to(order, paths, Guard(lambda: ONLY_READS))
    if client is None or order.mode != "hud":
        return client
    settings = client.settings
    if order.service not in map(origin_of, (settings.rl_url, settings.api_url)):
        raise HudUsage(f"it is a run of another service: {order.service}")
    return client


async def carry_out(state: Path, folder: SinkFolder, variables: Mapping[str, str]) -> int:
    """Write and sync until nothing is left; returns the exit code."""
    await wait_for_writers(folder)
    while token := folder.token:
        order = folder.order()
        if order is None:
            return 1
        try:
            if not order.ended and not await follow(state, folder, order):
                return 1
        except HudNotFound as error:
            log.warning("%s", one_line(error.message))
        except HudError as error:  # whoever comes by next starts it again
            log.warning("%s", one_line(error.message))
            return 1
        is_done = not key_origin(variables) or sync(folder, variables)
        if folder.token != token:
            continue  # it was resumed meanwhile
        if is_done:
            folder.close()
            return 0
        folder.save(order.model_copy(update={"ended": True, "sync_tried_at": time()}))
        return 1
    return 0


def try_sdk() -> str:
    """Write a run of one row, and read it back; returns what is wrong, empty if it works."""
    with TemporaryDirectory() as folder:
        try:
            to = WandbLog(Path(folder))
            to.open({"project": "hud-tui", "id": "check"}, 0)
            to.write(SinkRow("check", {STEP: 1}))
            to.close(0)
            [file] = Path(folder).glob("wandb/offline-run-*/*.wandb")
            rows = read_logged_run(file.read_bytes()).history
        except Exception as error:  # whatever the SDK raises
            return one_line(f"{type(error).__name__}: {error}", 300)
    return "" if [row.get(RECORD) for row in rows] == ["check"] else "the row was not written"


def main(arguments: Iterable[str]) -> int:
    """Returns the exit code; with ``--check``, prints whether the SDK works here."""
    variables = take_variables()
    first, *others = arguments
    if first == "--check":
        with TemporaryDirectory() as data:
            os.environ["WANDB_DATA_DIR"] = data
            print(json.dumps({"problem": try_sdk()}))
        return 0
    state, [work_id] = Path(first), others
    log_to_stderr()
    folder = SinkFolder(state, work_id)
    os.environ["WANDB_DATA_DIR"] = str(folder.path / "data")
    return asyncio.run(_in_turn(state, folder, variables))


async def _in_turn(state: Path, folder: SinkFolder, variables: Mapping[str, str]) -> int:
    async for _ in Looks(0.2, LOCK_S):
        with holding(folder.lock) as is_ours:
            if is_ours:
                return await carry_out(state, folder, variables)
        if not folder.token:
            break
    return 0


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
