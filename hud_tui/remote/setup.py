"""Setting a machine up step by step, and undoing it.

A step has a check, which says whether it is done already, and a script. A long step runs as a job
on the machine, which survives a broken connection: it is started once, under an id that is stored
here first, and its log is read from the last position. So a set-up can be interrupted anywhere and
resumed.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from hud_tui.errors import HudError, HudMalformed, HudUsage
from hud_tui.patience import Patience
from hud_tui.remote.engines import Engine, find_engine
from hud_tui.remote.facts import BOOT_CLOCK, read_number
from hud_tui.remote.jobs import PIECE, new_job, poll_job, read_poll, start_job, written
from hud_tui.remote.lease import READ, Use, client_id, read_use, renew
from hud_tui.remote.machines import LOG, Machine, Machines
from hud_tui.remote.ssh import (
    MOST_BYTES,
    PATIENCE_S,
    Output,
    ScriptFailed,
    patient,
    quote,
    script_failed,
)
from hud_tui.remote.transfer import FarFile, are_equal, copy_file, list_files
from hud_tui.rl.text import clean, counted, last_lines, one_line, size
from hud_tui.service_file import usable_directories
from hud_tui.storage import open_or_make
from hud_tui.tinker_options import model_files

T = TypeVar("T")
State = Literal["check", "do", "log", "done", "there", "failed", "undone"]
UV_INSTALLER = "https://astral.sh/uv/0.9.11/install.sh"
SENDABLE = ("HF_TOKEN", "WANDB_API_KEY", "HUD_API_KEY", "PRIME_API_KEY")
"""Secrets that may be sent to a machine, if requested by name."""
POLL_S, SLOW_POLL_S = 0.2, 2.0
"""Seconds between two checks of a job: at first, and after it was silent for `QUICK_S`."""
QUICK_S = 10.0
QUIET_S = 60
"""Seconds: longer than a waiting job is ever silent."""
TOKENIZER = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "chat_template.jinja", "added_tokens.json"),
    *("vocab.json", "merges.txt", "tokenizer.model"),
)
"""Files of a model that the local service needs to render and tokenize."""
VOCABULARIES = frozenset({"tokenizer.json", "vocab.json", "tokenizer.model"})
"""Files of which a tokenizer has one at least."""
LARGEST_FILE = 64_000_000


@dataclass(frozen=True)
class StepReport:
    step: str
    state: State
    text: str = ""
    number: int = 0
    """Number of the step, from 1."""
    total: int = 0


@dataclass(frozen=True)
class Step:
    """One part of a set-up."""

    name: str
    about: str
    """What it does, for people, e.g. ``install uv``."""
    check: str
    """A script that succeeds if there is nothing to do; empty if the step is always run."""
    do: str
    job: bool = False
    """Whether it runs as a job there because it may take long. A job's script has no secrets in
    it."""
    timeout_s: float = 60.0
    """Longest duration, seconds; of a job the longest silence."""


# Scripts that several steps need.


ALIVE = """\
mark() {  # PID@BOOT@START of a process: an id alone may be another program's by now
  if started=$(cat "/proc/$1/stat" 2>/dev/null); then
    set -- "$1" ${started##*) }; echo "$1@$(boot)@${21}"
  else echo "$1@$(boot)@$(ps -o lstart= -p "$1" 2>/dev/null | tr -s ' ' _)"; fi
}
pid_in() {  # the process id in a link of `mark` or in a file; never one that means a group or all
  id=$(readlink "$1" 2>/dev/null || { [ -f "$1" ] && head -c 20 "$1" | tr -d '\\000'; })
  id=${id%%@*}; case $id in '' | 0* | 1 | *[!0-9]*) return 1 ;; esac
  [ ${#id} -lt 11 ] && echo "$id"
}
alive() {  # whether the process that a link of `mark` names still runs
  was=$(readlink "$1" 2>/dev/null) && now=$(pid_in "$1") && kill -0 "$now" 2>/dev/null &&
    [ "$was" = "$(mark "$now")" ] &&
    ! grep -q '^State:.Z' "/proc/$now/status" 2>/dev/null  # ended, and not yet reaped
}
left() {  # whether the server runs, also if its loop was killed; sets child
  child=$(pid_in "$R/server.pid") && case $(
    tr '\\000' ' ' < "/proc/$child/cmdline" 2>/dev/null || ps -o args= -p "$child" 2>/dev/null
  ) in *"$R/"*) return 0 ;; esac
  child=; return 1
}
ours() {  # of what type a file of ours is, if it is there
  { [ ! -e "$2" ] && [ ! -L "$2" ]; } || [ "$1" "$2" ] ||
    { echo "$2 is not what hud-tui wrote there: remove it, then try again" >&2; exit 1; }
}
"""
SERVE = """\
#!/bin/sh
# Keeps the server running; made by hud-tui, which ends it by the file "stop" and a signal.
. "$(dirname "$0")/names"
umask 077; cd "$R" || exit 1
ln -s "$(mark $$)" "$R/loop" 2>/dev/null || {
  alive "$R/loop" && exit 0
  rm -f "$R/loop"; ln -s "$(mark $$)" "$R/loop" || exit 1
}
[ -f "$R/secrets" ] && { set -a; . "$R/secrets"; set +a; }
export HUD_TUI_SERVER_KEY="$R/key" HUD_TUI_SERVER_USED="$R/used" HF_HOME="$R/hf"
free() { "$ENV/bin/python" -c 'import socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try: s.bind(("127.0.0.1", int(sys.argv[1])))
except OSError: s = socket.socket(); s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])' "$1"; }
group=; command -v setsid >/dev/null 2>&1 && group=setsid
child=; trap '[ -n "$child" ] && kill -TERM ${group:+-}"$child" 2>/dev/null' TERM
while left; do sleep 1; done  # it goes on: a second one would find its data in use
pause=1
while [ ! -e "$R/stop" ]; do
  began=$(date +%s)
  PORT=$(free "$(head -c 6 "$R/port" 2>/dev/null || echo 0)") || PORT=$(free 0)
  echo "$PORT" > "$R/port.part" && mv "$R/port.part" "$R/port"
  [ "$(wc -c < "$R/server.log" 2>/dev/null || echo 0)" -gt 50000000 ] &&
    mv "$R/server.log" "$R/server.log.1"
  $group sh "$R/server.sh" "$PORT" >> "$R/server.log" 2>&1 </dev/null &
  child=$!; echo "$child" > "$R/server.pid"
  while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
  [ -e "$R/stop" ] && break
  [ $(($(date +%s) - began)) -gt 60 ] && pause=1
  echo "hud-tui: the server ended with exit code $code; again in $pause s" >> "$R/server.log"
  sleep "$pause"; [ "$pause" -lt 16 ] && pause=$((pause * 2))
done
rm -f "$R/loop" "$R/server.pid"
"""
START = """\
ours -L "$R/loop"; for file in port server.pid server.log; do ours -f "$R/$file"; done
alive "$R/loop" && { echo "it runs already"; exit 0; }
rm -f "$R/stop"
case $SUPERVISOR in
tmux) tmux -L hud-tui kill-session -t "=$SESSION" 2>/dev/null
  tmux -L hud-tui new-session -d -s "$SESSION" "exec sh '$R/serve.sh'" || exit 1 ;;
systemd) loginctl enable-linger 2>/dev/null
  systemd-run --user --quiet --collect --unit="$SESSION" sh "$R/serve.sh" || exit 1 ;;
*) if command -v setsid >/dev/null 2>&1; then setsid nohup sh "$R/serve.sh" >/dev/null 2>&1 &
  else nohup sh "$R/serve.sh" >/dev/null 2>&1 & fi ;;
esac
n=0; until alive "$R/loop" && [ -s "$R/port" ]; do
  n=$((n + 1)); [ $n -gt 100 ] && { echo "it did not start" >&2; exit 1; }; sleep 0.1
done
echo "in $SUPERVISOR, port $(cat "$R/port")"
"""
STOP = """\
[ -d "$R" ] || exit 0
: > "$R/stop"
if alive "$R/loop"; then kill -TERM "$(pid_in "$R/loop")" 2>/dev/null
elif left; then kill -TERM -"$child" "$child" 2>/dev/null; fi
n=0; while alive "$R/loop" || left; do
  n=$((n + 1)); [ $n -eq 150 ] && left && kill -KILL -"$child" "$child" 2>/dev/null
  [ $n -gt 200 ] && { echo "its server does not end" >&2; exit 1; }; sleep 0.1
done
tmux -L hud-tui kill-session -t "=$SESSION" 2>/dev/null
for job in "$R"/jobs/*/job; do
  alive "$job" && { pid=$(pid_in "$job"); kill -TERM -"$pid" "$pid" 2>/dev/null; }
done
exit 0
"""
HEALTH = """\
soon="0.1 0.2 0.3 0.4 -"; n=0; while :; do
  alive "$R/loop" || { echo "the server does not run"; tail -n 20 "$R/server.log"; exit 1; }
  PORT=$(cat "$R/port")
  if "$ENV/bin/python" -c 'import sys, urllib.error, urllib.request
try: urllib.request.urlopen(sys.argv[1], timeout=5)
except urllib.error.HTTPError as error: sys.exit(error.code >= 500)
except OSError: sys.exit(1)' "http://127.0.0.1:$PORT$HEALTH"; then
    echo "it answers at port $PORT after $n s"; exit 0
  fi
  [ -n "$soon" ] && { sleep "${soon%% *}"; soon=${soon#* }; [ "$soon" = - ] && soon=; continue; }
  [ $((n % 10)) -eq 0 ] && { echo "waiting for the server, $n s"; tail -n 1 "$R/server.log"; }
  n=$((n + 1)); [ $n -gt "$START_S" ] && { tail -n 20 "$R/server.log"; exit 1; }
  sleep 1
done
"""
UV = f"""\
command -v uv >/dev/null 2>&1 && exit 0
mkdir -p "$R/bin"
without="without internet: --env DIR, a Python environment there that has the engine"
if command -v curl >/dev/null 2>&1; then get='curl -LsSf'
elif command -v wget >/dev/null 2>&1; then get='wget -qO-'
else echo "neither curl nor wget is there to fetch uv; $without" >&2; exit 1; fi
failed() {{ echo "uv cannot be fetched there; $without" >&2; exit 1; }}
$get {UV_INSTALLER} > "$R/bin/install-uv.part" || failed
UV_INSTALL_DIR="$R/bin" UV_NO_MODIFY_PATH=1 sh "$R/bin/install-uv.part" || failed
rm -f "$R/bin/install-uv.part"; uv --version
"""
# With --root the home may be small: uv's packages and Pythons go where everything goes.
_UV_FOLDERS = """\
[ "${R%/*}" = "$HOME/.hud-tui" ] ||
  export UV_CACHE_DIR="$R/uv/cache" UV_PYTHON_INSTALL_DIR="$R/uv/python"
"""
HUB = """\
export HF_HOME="$R/hf"
"$ENV/bin/hf" download "$MODEL" --quiet || exit 1
"""
HUB_THERE = 'HF_HOME="$R/hf" HF_HUB_OFFLINE=1 "$ENV/bin/hf" download "$MODEL" >/dev/null 2>&1'
MODEL_FOLDER = """\
case $MODEL in /*) echo "$MODEL" ;;
*) HF_HOME="$R/hf" HF_HUB_OFFLINE=1 "$ENV/bin/hf" download "$MODEL" 2>/dev/null | tail -n 1 ;; esac
"""


def is_folder(model: str) -> bool:
    """Whether a model is a folder on the machine, not a name on the Hub."""
    return model.startswith("/")


def steps_of(machine: Machine, engine: Engine, package: str = "") -> list[Step]:
    """All steps for a machine, in order; `package` replaces the engine's own requirement."""
    if machine.env:
        fails = f'echo "{engine.name} is not installed in $ENV" >&2; exit 1'
        installed = [Step("engine", f"find the engine in {machine.env}", engine.installed, fails)]
    else:
        installed = _installation(engine, package or engine.package)
    return [
        Step("folder", f"make {machine.root}", f'[ -d "$R/jobs" ] && {_LINKED}', _FOLDER),
        Step("files", "write its key, secrets and commands, readable by their owner only", "", ""),
        *installed,
        *([_weights(machine.model)] if engine.weights else []),
        Step("server", f"start the server, by {machine.supervisor}", 'alive "$R/loop"', START),
        Step("health", "wait until it answers", "", HEALTH, True, engine.start_s + QUIET_S),
        *([_TOKENIZER] if engine.weights else []),
    ]


def _installation(engine: Engine, package: str) -> list[Step]:
    """An engine in a Python environment of its own."""
    return [
        Step("uv", "install uv, which installs Python and packages", "command -v uv", UV, job=True),
        Step(
            "python",
            f"make a Python {engine.python} environment",
            '[ -x "$ENV/bin/python" ]',
            f'rm -rf "$ENV"; uv venv --quiet --python {quote(engine.python)} "$ENV"',
            job=True,
        ),
        Step(
            "engine",
            f"install {package}",
            engine.installed,
            f"PACKAGE={quote(package)}\n{engine.install}",
            job=True,
            timeout_s=1800,
        ),
    ]


_TOKENIZER = Step("tokenizer", "copy the model's tokenizer and config here", "", MODEL_FOLDER)
# A pod's watcher looks in the home for signs of use; a root elsewhere has a link there.
_LINKED = '{ [ "${R%/*}" = "$HOME/.hud-tui" ] || [ -L "$HOME/.hud-tui/$SESSION" ]; }'
_FOLDER = f"""\
mkdir -p "$R/jobs" "$R/state" "$HOME/.hud-tui" && chmod 700 "$R" "$R/state" || exit 1
{_LINKED} || ln -sfn "$R" "$HOME/.hud-tui/$SESSION" || exit 1
echo "$R"
"""


def _weights(model: str) -> Step:
    if is_folder(model):
        fails = 'echo "$MODEL on the machine holds no model: config.json is missing" >&2; exit 1'
        return Step("weights", f"find {model}", '[ -f "$MODEL/config.json" ]', fails)
    about = f"fetch {model} from the Hub"
    return Step("weights", about, HUB_THERE, HUB, job=True, timeout_s=1800)


def secret_values(names: Iterable[str], variables: Mapping[str, str]) -> dict[str, str]:
    """The secrets to send, by name. Raises HudUsage: one may not be sent, is not set, or has
    unsupported characters."""
    values = {}
    for name in names:
        if name not in SENDABLE:
            raise HudUsage(f"{one_line(name, 40)} is not sent", f"--send {', '.join(SENDABLE)}")
        value = variables.get(name, "").strip()
        if not value or not value.isascii() or not value.isprintable():
            raise HudUsage(f"{name} is not set here", f"export {name}=…, or leave out --send")
        values[name] = value
    return values


class Setup:
    """The set-up of one machine; each call continues where the last one stopped."""

    def __init__(
        self,
        machines: Machines,
        machine: Machine,
        report: Callable[[StepReport], None] = lambda step: None,
        package: str = "",
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`package` replaces the engine's own requirement; `patience_s`: how long the machine may
        be unreachable at a time, seconds."""
        self.machine, self.engine = machine, find_engine(machine.engine)
        self._machines, self._report, self._package = machines, report, package
        self._patience_s, self._ssh = patience_s, machines.ssh(machine)
        self._at = StepReport("", "check")

    async def run(self, values: Mapping[str, str]) -> Machine:
        """Run the missing steps; returns the machine, ready for use. `values`: the secrets to send,
        by name. Raises HudError: a step failed; finished steps are kept, and `run` can be called
        again."""
        steps = steps_of(self.machine, self.engine, self._package)
        names = [step.name for step in steps]
        done = tuple(name for name in self.machine.done if name in names)
        # Known from here on, for the command that goes on with it.
        self.machine = self._machines.write(replace(self.machine, done=done))
        for number, step in enumerate(steps, 1):
            self._at = StepReport(step.name, "check", step.about, number, len(steps))
            self._report_step("check", step.about)
            try:
                await self._do(step, values)
            except HudError as error:
                self._report_step("failed", error.message)
                raise
        return self.machine

    async def plan(self) -> list[tuple[Step, bool]]:
        """Each step, and whether it is done already; nothing is changed. Raises HudUsage: the disk
        has no room for what is to be installed, or somebody else uses the folder with another
        model."""
        steps = steps_of(self.machine, self.engine, self._package)
        checks = [f"if ( {step.check or 'false'}\n) >/dev/null 2>&1; then echo y; else echo n; fi"
                  for step in steps]  # fmt: skip
        answers = (await self._direct("\n".join(checks))).split()
        if len(answers) != len(steps):
            raise HudMalformed(f"{self.machine.address}: its shell answers otherwise than POSIX's")
        planned = [(step, answer == "y") for step, answer in zip(steps, answers, strict=True)]
        missing = {step.name for step, there in planned if not there}
        free, model = self.machine.facts.free_bytes, self.machine.model
        needed = self.engine.disk_bytes if {"engine", "python"} <= missing else 0
        needed += weight_bytes(model) if "weights" in missing and not is_folder(model) else 0
        if free is not None and free < needed:
            root = self.machine.root
            raise HudUsage(
                f"{self.machine.name}: {size(free)} of disk free for {one_line(root, 200)},"
                f" and about {size(needed)} needed",
                "free some, or choose a folder on another disk: --root /DISK/hud-tui",
            )
        await self._check_model()
        return planned

    async def _check_model(self) -> None:
        """Raises HudUsage: the folder there serves another model to somebody else."""
        script = 'sed -n "s/^MODEL=//p" "$R/names" 2>/dev/null | head -n 1'
        serves = (await self._direct(script)).strip()
        if serves in ("", quote(self.machine.model)):
            return
        if others := (await self.use()).others:
            what = f"{self.machine.root} on {self.machine.name} serves {one_line(serves, 100)}"
            raise HudUsage(f"{what}, and is used by {'; '.join(others[:5])}", "choose a --name")

    async def use(self) -> Use:
        """Who else uses the machine, and what `undo` removes."""
        return read_use(await self._direct(READ, timeout_s=300), self._client())

    async def undo(self, force: bool = False) -> None:
        """Stop the server there, and remove everything that was put there; `force`: also if
        somebody else uses it. Raises MachineInUse: somebody else does; nothing was done."""
        self._at = StepReport("undo", "check")
        if not force:
            (await self.use()).check(self.machine.name)
        self._report_step("do", "stop the server")
        await self._direct(STOP, timeout_s=90)
        await self._direct(_REMOVE, timeout_s=600)
        self._report_step("undone", f"removed {self.machine.root}")

    def _client(self) -> str:
        return client_id(self._machines.folder)

    async def start(self) -> str:
        """Start the server there if it does not run; returns what was done."""
        return (await self._direct(START)).strip()

    async def compare_tokenizer(self) -> None:
        """Compare the model's small files here with those there, and copy them where they differ.

        Raises:
            ScriptFailed: There is no tokenizer there.
            HudUsage: They differ, and another program is setting the machine up.
        """
        if not self.engine.weights:
            return
        self._at = StepReport("tokenizer", "check")
        files = await self._tokenizer_files()
        if await asyncio.to_thread(are_equal, self._tokenizer, TOKENIZER, files):
            return
        with self._machines.alone(self.machine.name):
            self.machine = self._machines.get(self.machine.name)
            self._report_step("do", "the files here differ from those there: copied again")
            await self._fetch_tokenizer()
            self._keep(self.machine.with_done("tokenizer"))

    async def stop(self) -> None:
        """Stop the server there; what it saved is kept."""
        await self._direct(STOP, timeout_s=90)

    async def port(self) -> int:
        """Port of the server, on the loopback there. Raises HudMalformed: it has none."""
        text = (await self._direct('[ -f "$R/port" ] && head -c 20 "$R/port"; :')).strip()
        if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) < 2**16):
            what = f"{self.machine.root}/port on {self.machine.name} holds no port"
            fix = f"its server may not run: hud-tui remote log {self.machine.name}"
            raise HudMalformed(one_line(what, 300), fix)
        return int(text)

    async def pulse(self, using: bool = False) -> dict[str, Any]:
        """Whether the server runs, where, and when it was last called (Unix seconds). `using`:
        whether this client uses it, which renews its lease."""
        script = renew(self._client()) + _PULSE if using else _PULSE
        printed = dict(
            line.partition("=")[::2] for line in (await self._direct(script)).splitlines() if line
        )
        numbers = {name: read_number(text) for name, text in printed.items()}
        return {
            "running": printed.get("running") == "yes",
            "port": numbers.get("port"),
            "used_at": numbers.get("used"),
            "now": numbers.get("now"),
            "free_kb": numbers.get("free"),
            "gpus": [one_line(gpu, 80) for gpu in printed.get("gpus", "").split(";") if gpu],
        }

    async def aclose(self) -> None:
        """Close the connection; what runs there continues."""
        await self._ssh.aclose()

    async def log(self, lines: int) -> str:
        script = f'tail -n {lines} "$R/server.log" | tail -c {MOST_BYTES // 2}'
        return clean(await self._direct(script))

    async def _do(self, step: Step, values: Mapping[str, str]) -> None:
        own = {"files": lambda: self._write_files(values), "tokenizer": self._fetch_tokenizer}
        job = self.machine.job.get(step.name)
        if step.check and job is None and (await self._run(step.check)).code == 0:
            self._report_step("there", step.about)
            self._keep(self.machine.with_done(step.name))
            return
        self._report_step("do", step.about)
        if step.name in own:
            output = await own[step.name]()
        else:
            output = (
                await self._job(step) if step.job else await self._direct(step.do, step.timeout_s)
            )
        if step.name == "health":
            self._keep(replace(self.machine, port=await self.port()))
        self._keep(self.machine.with_done(step.name))
        [said] = last_lines(output) or [step.about]
        self._report_step("done", one_line(said.strip(), 300))

    async def _write_files(self, values: Mapping[str, str]) -> str:
        """Write all files that jobs and the server read there."""
        key = (await self._direct('cat "$R/key" 2>/dev/null || true')).strip()
        if key.startswith(tuple(KEYS.values())) and key.isascii() and key.isprintable():
            self._machines.set_key(self.machine.name, key[:200])
        server = f'. "$(dirname "$0")/names"\nPORT=$1\nexec {self.engine.serve(self.machine)}\n'
        files = {"names": self._names(), "serve.sh": SERVE, "server.sh": server}
        if self.engine.name.startswith("skyrl"):
            files["skyrl_server.py"] = Path(__file__).with_name("skyrl_server.py").read_text()
        if values:
            lines = [f"{name}={quote(value)}" for name, value in values.items()]
            files["secrets"] = "\n".join(lines)
        files["key"] = self._machines.key(self.machine.name, KEYS[self.engine.speaks])
        script = "umask 077\n" + "".join(map(written, files, files.values()))
        script += renew(self._client())
        if self.engine.speaks == "hud":
            script += '[ -f "$R/state/service.key" ] || cp "$R/key" "$R/state/service.key"\n'
        await self._direct(script)
        names = dict.fromkeys((*self.machine.secrets, *values))
        self._keep(replace(self.machine, secrets=tuple(names)))
        return f"{len(files)} files" + (f", with {', '.join(values)}" if values else "")

    def _names(self) -> str:
        """Variables of every script there."""
        machine = self.machine
        env = machine.env or f"{machine.root}/env"
        session = "hud-tui-" + machine.name.replace(".", "-")
        variables = {"R": machine.root, "ENV": env, "MODEL": machine.model, "SESSION": session}
        variables |= {"SUPERVISOR": machine.supervisor, "HEALTH": self.engine.health}
        lines = [f"{name}={quote(value)}" for name, value in variables.items()]
        path = 'PATH="$R/bin:$HOME/.local/bin:$HOME/.cargo/bin:$PATH"'
        lines += [f"START_S={self.engine.start_s}", path, _UV_FOLDERS]
        return "\n".join([*lines, BOOT_CLOCK + ALIVE])

    async def _job(self, step: Step) -> str:
        """Run a job there to its end; returns its log.

        Raises:
            ScriptFailed: It failed, or was silent for too long.
            HudMalformed: Its files are not as it wrote them; it is started again the next time.
        """
        id_ = self.machine.job.get(step.name) or new_job(step.name)
        self._keep(replace(self.machine, job={**self.machine.job, step.name: id_}))
        offset, log, silence, gone = 0, "", Patience(step.timeout_s), 0
        await self._direct(start_job(id_, step.do))
        while True:
            try:
                job = read_poll(await self._direct(poll_job(id_, offset)))
            except HudMalformed as error:
                self._forget_job(step)
                where = f"{self.machine.root}/jobs/{id_}{error.message}, on {self.machine.name},"
                what = f"{step.about}: {where} is not what the job wrote"
                raise HudMalformed(one_line(what, 400), error.hint) from None
            if job.count:
                offset += job.count
                silence.renew()
                log = (log + job.piece)[-20_000:]
                self._report_log(job.piece)
            if job.code is not None and not job.count:
                break
            gone = gone + 1 if job.gone else 0
            if gone > GONE:  # the machine was rebooted, or the job was killed
                self._forget_job(step)
                return await self._job(step)
            if silence.is_over():
                self._forget_job(step)
                what = f"{step.about}: nothing said for {step.timeout_s:.0f} s"
                raise ScriptFailed(what, "see its log")
            if not job.count:
                await asyncio.sleep(POLL_S if silence.count() < QUICK_S else SLOW_POLL_S)
        self._forget_job(step)
        if job.code:
            raise script_failed(f"{step.about}, on {self.machine.name}", log, job.code)
        await self._direct(f'rm -rf "$R/jobs/{id_}"')
        return log

    def _forget_job(self, step: Step) -> None:
        left = {name: id_ for name, id_ in self.machine.job.items() if name != step.name}
        self._keep(replace(self.machine, job=left))

    async def _fetch_tokenizer(self) -> str:
        """Copy the model's small files here, so that the local service can render and tokenize."""
        done = tuple(name for name in self.machine.done if name != "tokenizer")
        self._keep(replace(self.machine, done=done))  # what is copied next is not whole meanwhile
        files = await self._tokenizer_files()
        for name in TOKENIZER:
            if name in files:
                await self._copy(files[name], self._tokenizer / name)
            else:
                (self._tokenizer / name).unlink(missing_ok=True)
        total = size(sum(file.bytes for file in files.values()))
        return f"{counted(len(files), 'file')}, {total}, each compared with the one there"

    @property
    def _tokenizer(self) -> Path:
        """The folder of the model's small files here."""
        return model_files(self._machines.files(self.machine.name), self.machine.model)

    async def _tokenizer_files(self) -> dict[str, FarFile]:
        """The model's small files there, by name. Raises ScriptFailed: they are no tokenizer."""
        folder = (await self._direct(MODEL_FOLDER)).strip().rpartition("\n")[2]
        files = await list_files(partial(self._direct, timeout_s=300.0), folder, TOKENIZER)
        shown = f"{one_line(folder, 200)} on {self.machine.name}"
        if not VOCABULARIES & files.keys():
            either = "tokenizer.json, vocab.json or tokenizer.model"
            raise ScriptFailed(f"{shown} holds no tokenizer", f"it needs {either}")
        for name, file in files.items():
            if file.bytes > LARGEST_FILE:
                much = f"{size(file.bytes)}, and {size(LARGEST_FILE)} at most are copied"
                raise ScriptFailed(f"{name} of {shown} has {much}")
        return files

    async def _copy(self, file: FarFile, target: Path) -> None:
        def tell(text: str) -> None:
            self._report_step("log", text)

        await copy_file(self._ssh, file, target, tell, self._patience_s)

    async def _run(self, script: str) -> Output:
        return await self._patient(lambda: self._ssh.run(f"{self._names()}\n{script}"))

    async def _direct(self, script: str, timeout_s: float = 60.0) -> str:
        """Run a short script, retried if the connection breaks; returns its output."""
        whole = f"{self._names()}\n{script}"
        return await self._patient(lambda: self._ssh.check(whole, timeout_s))

    async def _patient(self, call: Callable[[], Awaitable[T]]) -> T:
        return await patient(call, lambda text: self._report_step("log", text), self._patience_s)

    def _keep(self, machine: Machine) -> None:
        if machine != self.machine:
            self.machine = self._machines.write(machine)

    def _report_step(self, state: State, text: str) -> None:
        self._report(replace(self._at, state=state, text=one_line(text, 400)))
        self._log(f"[{self._at.step}] {state}: {text}")

    def _report_log(self, piece: str) -> None:
        """Pass on a job's output: all of it to the log, its last line to `report`."""
        lines = [line.rpartition("\r")[2] for line in piece.splitlines()]
        self._log("\n".join(lines))
        if last := next((line for line in reversed(lines) if line.strip()), ""):
            self._report(replace(self._at, state="log", text=one_line(last, 400)))

    def _log(self, text: str) -> None:
        file = self._machines.folder_of(self.machine.name) / LOG
        with usable_directories():
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(open_or_make(file, os.O_APPEND), "a", encoding="utf-8") as log:
                if log.tell() < MOST_LOG:
                    log.write(clean(text, PIECE) + "\n")


KEYS = {"tinker": "tml-", "hud": "hud-local-"}
"""Prefix of the keys of each kind of server."""
MOST_LOG = 20_000_000
"""Most bytes of a set-up's log."""
GONE = 10
"""Consecutive checks without a trace of a job after which it counts as lost."""
_REMOVE = """\
if [ -e "$R" ]; then
  [ -f "$R/names" ] || { echo "$R was not made by hud-tui: remove it by hand" >&2; exit 1; }
  rm -rf "$R"
fi
[ -L "$HOME/.hud-tui/$SESSION" ] && rm -f "$HOME/.hud-tui/$SESSION"
rmdir "$HOME/.hud-tui" 2>/dev/null || :
"""
_PULSE = """\
if alive "$R/loop"; then echo running=yes; else echo running=no; fi
echo "port=$([ -f "$R/port" ] && head -c 6 "$R/port")"
for file in "$R/used" "$R"/state/service.db-wal; do
  [ -e "$file" ] && { stat -c %Y "$file" 2>/dev/null || stat -f %m "$file"; }
done | sort -n | tail -n 1 | sed 's/^/used=/'
echo "now=$(date +%s)"
echo "free=$(df -Pk "$R" | awk 'NR==2 {print $4}')"
command -v nvidia-smi >/dev/null 2>&1 && echo "gpus=$(nvidia-smi \
  --query-gpu=utilization.gpu,memory.used,memory.total --format=csv,noheader,nounits |
  tr '\\n' ';')"
:
"""
_BILLIONS = re.compile(r"(\d{1,4}(?:\.\d{1,2})?)B\b", re.IGNORECASE)


def weight_bytes(model: str) -> int:
    """Approximate size of a model's weights from the size in its name: two bytes per parameter."""
    match = _BILLIONS.search(model)
    return int(float(match[1]) * 2.2e9) if match else 2 * 10**9
