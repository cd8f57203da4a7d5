"""Prove the GPU engine on a machine with one CUDA GPU, JAX, torch and no network, in ten minutes.

usage: tests/live/skyrl/gpu [--wheels DIR] [--out FILE] [--platform cuda | cpu] [--minutes N]
       tests/live/skyrl/gpu --fetch DIR [--python 3.12] [--there NAME …]   (where an index is)

It makes an environment of this machine's packages and the wheels, and a Qwen3 of 0.6B with random
weights; starts SkyRL's JAX backend as `hud-tui remote add` does, and `hud-tui serve --engine
tinker`; and runs the acceptance, 20 steps of `text` at group size 16, a fork, a rollback, an
evaluation, and a kill -9 of the server in a step. It prints one JSON document, and exits with 0
where all passed, 1 where a phase failed, 2 where wheels are missing, and 77 where there is no GPU.

`--platform cpu` tries the same without a GPU, with a tiny model and fewer steps, and says so.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
import urllib.error
import urllib.request
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from site import getsitepackages, getusersitepackages
from statistics import median
from time import monotonic, sleep
from typing import Any

from tests.engines.skyrl import answers, free_port
from tests.live.main_job import Program
from tests.live.skyrl import wheels

ROOT = Path(__file__).resolve().parents[3]
NO_GPU, MISSING = 77, 2
SERVER = (
    *("skyrl==0.4.0", "tinker==0.38.0", "jax>=0.8,<1", "flax>=0.12", "optax>=0.2.5", "torch"),
    *("transformers>=5.6.1", "peft>=0.18", "safetensors", "tokenizers", "fastapi", "uvicorn"),
    *("sqlmodel", "sqlalchemy[asyncio]", "greenlet", "aiosqlite", "aiohttp", "cloudpathlib"),
    *("zstandard", "psutil", "httpx", "pillow", "rich", "typer"),
)
"""What SkyRL's server imports; its package says more, for training without it."""
SDK = ("hud==0.6.21", "typer<0.29")
SHOWN = ("skyrl", "jax", "jaxlib", "flax", "optax", "torch", "transformers", "tinker", "numpy")
SAME = 1e-3
"""Largest difference of a logprob after a rollback, nats."""


@dataclass(frozen=True)
class Size:
    """What is run on a platform."""

    engine: str
    model: tuple[str, ...]
    """Arguments of make_model.py."""
    steps: int
    flags: tuple[str, ...] = ()
    """Of each run, besides the group size."""


SIZES = {
    "cuda": Size("skyrl-gpu", ("0.6B",), 20),
    "cpu": Size("skyrl-cpu", ("0",), 4, ("--tasks-per-step", "2")),
}


class Failed(Exception):
    """A phase did not do what it should."""


@dataclass
class Proof:
    """One run of everything, on folders of its own."""

    scratch: Path
    platform: str
    until: float
    report: dict[str, Any] = field(default_factory=dict)
    _server: "subprocess.Popen[bytes] | None" = None
    _service: "subprocess.Popen[str] | None" = None
    _ready: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.size = SIZES[self.platform]
        self.python = self.scratch / "venv/bin/python"
        self.hud_tui = self.scratch / "hud-tui"
        self.port = free_port()
        self.program = Program(str(self.hud_tui), self.scratch / "home", 600)
        self.program.env["TINKER_BASE_URL"] = f"http://127.0.0.1:{self.port}"
        self.log = self.scratch / "server.log"

    @property
    def left_s(self) -> float:
        return max(1.0, self.until - monotonic())

    def phase(self, name: str, do: Callable[[], dict[str, Any]]) -> bool:
        """Run one part; its outcome goes into the report. Returns whether it passed."""
        began = monotonic()
        found: dict[str, Any] = {"ok": False}
        try:
            if began > self.until:
                raise Failed("no time was left")
            self.program.timeout_s = self.left_s
            found = {"ok": True, **do()}
        except (Exception, SystemExit) as error:  # whatever it is, the other phases are tried
            found["why"] = f"{type(error).__name__}: {error}"[-2000:]
        found["seconds"] = round(monotonic() - began, 1)
        self.report["phases"][name] = found
        print(f"{name}: {'ok' if found['ok'] else found['why']}, {found['seconds']} s",
              file=sys.stderr, flush=True)  # fmt: skip
        return bool(found["ok"])

    # The parts.

    def environment(self, server: wheels.Needs, sdk: wheels.Needs) -> dict[str, Any]:
        """One environment for SkyRL and hud-tui, one for the SDK; both see this machine's own."""
        for name, each in (("venv", server), ("hud", sdk)):
            venv.create(self.scratch / name)
            python = self.scratch / name / "bin/python"
            wheels.install(python, each.wheels.values())
            [site] = (self.scratch / name / "lib").glob("python*/site-packages")
            beside = [*getsitepackages(), getusersitepackages()]
            (site / "here.pth").write_text("\n".join([str(ROOT), *beside]) + "\n")
        self.hud_tui.write_text(
            f"#!{self.python}\nimport sys\n"
            "from hud_tui.cli.main import script\nsys.exit(script())\n"
        )
        self.hud_tui.chmod(0o755)
        (self.scratch / "hud/bin/hud").write_text(
            f"#!{self.scratch}/hud/bin/python\nimport sys\n"
            "from importlib.metadata import entry_points\n"
            '[hud] = [one for one in entry_points(group="console_scripts") if one.name == "hud"]\n'
            "sys.exit(hud.load()())\n"
        )
        (self.scratch / "hud/bin/hud").chmod(0o755)
        code = "import importlib.metadata as m, json, sys\n"
        code += "print(json.dumps({name: m.version(name) for name in sys.argv[1:]}))"
        self.report["versions"] |= json.loads(self._run(self.python, "-c", code, *SHOWN))
        return {"wheels": len({*server.wheels.values(), *sdk.wheels.values()})}

    def model(self) -> dict[str, Any]:
        maker = ROOT / "tests/live/skyrl/make_model.py"
        said = self._run(self.python, maker, self.scratch / "model", *self.size.model)
        config = json.loads((self.scratch / "model/config.json").read_text())
        about = {
            "weights": "random",
            "parameters": int(said.split()[-2]),
            "layers": config["num_hidden_layers"],
            "hidden": config["hidden_size"],
            "vocabulary": config["vocab_size"],
        }
        self.report["model"] = about
        return {}

    def start(self) -> dict[str, Any]:
        """SkyRL, by the command that `remote add` gives a machine with one GPU."""
        code = (
            "from hud_tui.remote.engines import ENGINES\n"
            "from hud_tui.remote.facts import Facts, Gpu\n"
            "from hud_tui.remote.machines import Machine\n"
            "from hud_tui.remote.ssh import Address\n"
            f"gpus = (Gpu('', '', 0, 0, 0),) if {self.platform == 'cuda'} else ()\n"
            f"engine, facts = {self.size.engine!r}, Facts(gpus=gpus)\n"
            "print(ENGINES[engine].serve(Machine('gpu', Address('gpu'), engine, facts=facts)))"
        )
        command = self._run(self.python, "-c", code).strip()
        self.report["command"] = command
        (self.scratch / "state").mkdir(exist_ok=True)
        script = ROOT / "hud_tui/remote/skyrl_server.py"
        (self.scratch / "skyrl_server.py").write_bytes(script.read_bytes())
        variables = {
            "R": str(self.scratch),
            "ENV": str(self.scratch / "venv"),
            "MODEL": str(self.scratch / "model"),
            "PORT": str(self.port),
            "JAX_PLATFORMS": self.platform,
            "JAX_COMPILATION_CACHE_DIR": str(self.scratch / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
        }
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                ["sh", "-c", f"cd {self.scratch}/state; exec {command}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **variables},
            )  # fmt: skip
        while not answers(f"http://127.0.0.1:{self.port}"):
            if self._server.poll() is not None or monotonic() > self.until:
                raise Failed(f"it does not answer: {self._said()}")
            sleep(0.2)
        return {}

    def kill(self) -> None:
        """SIGKILL, to SkyRL's server and its engine."""
        if self._server is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
            self._server = None

    def serve(self) -> dict[str, Any]:
        command = [str(self.hud_tui), "serve", "--engine", "tinker"]
        with (self.scratch / "service.log").open("ab") as log:
            self._service = subprocess.Popen(
                command, env=self.program.env, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._service.stdout is not None
        line = self._service.stdout.readline()
        if not line:
            raise Failed((self.scratch / "service.log").read_text("utf-8", "replace")[-1000:])
        self._ready = json.loads(line)
        return {"base": self._base()}

    def acceptance(self) -> dict[str, Any]:
        """Every check of the official SDK and CLI."""
        done = subprocess.run(
            [sys.executable, ROOT / "tests/live/run_acceptance", self.hud_tui, "tinker"],
            env={**self.program.env, "HUD_PYTHON": str(self.scratch / "hud/bin/python")},
            capture_output=True, text=True, timeout=self.left_s, check=False,
        )  # fmt: skip
        lines = done.stdout.splitlines()
        passed = sum(line.startswith("PASS") for line in lines)
        failed = [line for line in lines if line.startswith("FAIL")]
        if done.returncode:
            raise Failed(f"{passed} passed; {failed[:5] or (done.stdout + done.stderr)[-1000:]}")
        return {"passed": passed}

    def train(self) -> dict[str, Any]:
        """20 steps of `text` at group size 16, on a fork."""
        self.program.data("fork", self._base(), "--name", "proof", "-y")
        with self._memory():
            documents = self.program.lines(*self._command("proof", self.size.steps))
        steps = [one["data"] for one in documents if one["data"].get("type") == "step"]
        status = documents[-1]["data"]["status"]
        if status["status"] != "succeeded" or len(steps) != self.size.steps:
            raise Failed(f"{len(steps)} steps, {status['status']}: {status['reason']}")
        self.report["steps"] = _figures(steps, status["parameters"])
        return {}

    def fork(self) -> dict[str, Any]:
        """A fork of what was trained begins at its head, and takes a step of its own."""
        self.program.data("fork", self._model("proof")["model_name"], "--name", "branch", "-y")
        self.program.lines(*self._command("branch", 1))
        tree = self.program.data("checkpoints", "branch")["checkpoints"]
        return {"checkpoints": len(tree)}

    def rollback(self) -> dict[str, Any]:
        """The head goes back, and forth, and back: each checkpoint has its logprobs again."""
        tree = self.program.data("checkpoints", "proof")["checkpoints"]
        early, late = tree[self.size.steps // 2 - 1]["id"], tree[-1]["id"]
        model = self._model("proof")["id"]
        traces = self._ask("GET", f"/v2/models/{model}/checkpoints/{late}/traces")[:16]
        inputs = [trace["trace_id"] for trace in traces]
        logprobs = {}
        for name, id_ in (("early", early), ("late", late), ("again", early), ("last", late)):
            self.program.data("head", "proof", "--set", id_, "-y")
            body = {"inputs": inputs, "group_size": len(inputs)}
            rows = self._ask("POST", f"/v1/models/{model}/train/forward", body)["data"]
            logprobs[name] = [value for row in rows for value in row["logprobs"]]
        largest = max(_difference(logprobs["early"], logprobs["again"]),
                      _difference(logprobs["late"], logprobs["last"]))  # fmt: skip
        moved = _difference(logprobs["early"], logprobs["late"])
        if largest > SAME or moved <= largest:
            raise Failed(f"logprobs differ by {largest} after a rollback, by {moved} between steps")
        return {"largest_difference": largest, "between_the_steps": moved}

    def evaluate(self) -> dict[str, Any]:
        found = self.program.lines("eval", "-m", "proof", "--samples", "2", "--seed", "1")[-1]
        return {"evaluation": _short(found["data"])}

    def killed(self) -> dict[str, Any]:
        """SIGKILL to the server in a step: it comes back, and each step is taken once."""
        before = len(self.program.data("checkpoints", "proof")["checkpoints"])
        argv = [str(self.hud_tui), "--headless", "--local", *self._command("proof", 3)]
        with subprocess.Popen(argv, env=self.program.env, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            timer = threading.Timer(self.left_s, run.kill)
            timer.start()
            lines = []
            for line in run.stdout:
                lines.append(json.loads(line))
                if lines[-1]["data"].get("type") == "step" and self._server is not None:
                    self.kill()
                    killed = monotonic()
                    self.start()
                    back = round(monotonic() - killed, 1)
            timer.cancel()
        status = lines[-1]["data"]["status"]
        after = len(self.program.data("checkpoints", "proof")["checkpoints"])
        if status["status"] != "succeeded" or after != before + 3:
            raise Failed(f"{status['status']}, {after - before} steps: {status['reason']}")
        return {"server_back_after_s": back, "steps": after - before}

    def end(self) -> None:
        if self._service is not None:
            self._service.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._service.wait(20)
            self._service.kill()
        self.kill()

    # What they need.

    def _base(self) -> str:
        models = self.program.data("models")["models"]
        return str(next(model for model in models if model["is_trainable"])["model_name"])

    def _model(self, name: str) -> dict[str, Any]:
        model: dict[str, Any] = self.program.data("status", name)["model"]
        return model

    def _command(self, model: str, steps: int) -> tuple[str, ...]:
        size = ("--steps", str(steps), "--group-size", "16", *self.size.flags)
        return ("run", "text", "-m", model, *size, "-y", "--follow")

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        asked = urllib.request.Request(
            self._ready["url"] + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._ready['api_key']}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(asked, timeout=self.left_s) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise Failed(f"{method} {path}: {error.code} {error.read()[:500]!r}") from error

    def _run(self, *words: object) -> str:
        done = subprocess.run(
            [str(word) for word in words], capture_output=True, text=True, timeout=self.left_s,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise Failed(f"{words[0]} exit {done.returncode}: {done.stderr[-1500:]}")
        return done.stdout

    def _said(self) -> str:
        return self.log.read_text("utf-8", "replace")[-1500:]

    @contextmanager
    def _memory(self) -> Iterator[None]:
        """Note the most memory that is used meanwhile: the GPU's, and the server's on the host."""
        ended, most = threading.Event(), self.report["memory"]

        def watch() -> None:
            while not ended.wait(1.0):
                for name, mb in (("gpu_mb", _gpu_mb()), ("server_rss_mb", self._rss_mb())):
                    if mb is not None:
                        most[name] = max(most.get(name) or 0, mb)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def _rss_mb(self) -> int | None:
        """Resident memory of the server's process group."""
        if self._server is None:
            return None
        said = subprocess.run(
            ["ps", "-o", "rss=", "-g", str(self._server.pid)], capture_output=True, text=True,
            check=False,
        ).stdout  # fmt: skip
        return sum(map(int, said.split())) // 1024 or None


def _figures(steps: list[dict[str, Any]], parameters: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a step and its parts, and tokens per second; medians without the first step, in
    which JAX compiles."""
    ends = [step["at"] for step in steps]
    whole = [after - before for before, after in pairwise(ends)]
    metrics = [step["metrics"] for step in steps]
    later = metrics[1:] or metrics

    def middle(values: list[float]) -> float:
        return round(median(values), 3) if values else 0.0

    return {
        "count": len(steps),
        "group_size": parameters["group_size"],
        "tasks_per_step": parameters["tasks_per_step"],
        "seconds": middle(whole),
        "sampling_s": middle([one["rollout_s"] for one in later]),
        "training_s": middle([one["train_s"] for one in later]),
        "first_sampling_s": round(metrics[0]["rollout_s"], 1),
        "first_training_s": round(metrics[0]["train_s"], 1),
        "sampled_tokens_per_s": middle([one["tokens_per_s"] for one in later]),
        "trained_tokens_per_s": middle([one["num_tokens"] / one["train_s"] for one in later]),
        "tokens_per_step": middle([one["num_tokens"] for one in later]),
        "reward": [round(metrics[0]["reward_mean"], 4), round(metrics[-1]["reward_mean"], 4)],
        "largest_ratio": max(metric["ratio_max"] for metric in metrics),
    }


def _short(document: Any) -> Any:
    """A document's numbers and names, without its lists."""
    if isinstance(document, dict):
        return {k: _short(v) for k, v in document.items() if not isinstance(v, list)}
    return document


def _difference(one: list[float], other: list[float]) -> float:
    if len(one) != len(other) or not one:
        raise Failed(f"{len(one)} and {len(other)} logprobs")
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def _smi(query: str) -> list[str]:
    """What nvidia-smi says of the first GPU; nothing without one."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", "-i", "0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [word.strip() for word in done.stdout.strip().split(",")]


def _gpu_mb() -> int | None:
    said = _smi("memory.used")
    return int(said[0]) if said and said[0].isdigit() else None


def _machine(platform_: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": platform.node(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "gpu": None,
    }
    if platform_ == "cuda":
        name, driver, memory = _smi("name,driver_version,memory.total")
        found["gpu"] = {"name": name, "driver": driver, "memory_mb": int(memory)}
    return found


def _why_no_gpu() -> str:
    """Why this machine cannot prove anything; empty if it can."""
    if len(_smi("name,driver_version,memory.total")) != 3:
        return "no NVIDIA GPU that nvidia-smi shows"
    code = "import jax; print(sum(one.platform in ('gpu', 'cuda') for one in jax.devices()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode or done.stdout.strip() in ("", "0"):
        last = (done.stderr.strip().splitlines() or ["no GPU among its devices"])[-1]
        return f"the JAX of {sys.executable} does not use the GPU: {last[:300]}"
    return ""


def hud_tui_needs() -> list[str]:
    """The requirements of this checkout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [str(dependency) for dependency in project["dependencies"]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheels", type=Path, help="a folder of wheels for what is not installed")
    parser.add_argument("--platform", choices=list(SIZES), default="cuda")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--out", type=Path, help="also write the document into this file")
    parser.add_argument("--fetch", type=Path, help="download the wheels into this folder, and end")
    parser.add_argument("--python", default="3.12", help="of the machine with the GPU, for --fetch")
    parser.add_argument("--there", nargs="*", default=[], help="what it has already, for --fetch")
    args = parser.parse_args()
    server_roots = [*SERVER, *hud_tui_needs()]
    if args.fetch is not None:
        for roots in (server_roots, SDK):
            wheels.fetch(roots, args.fetch, args.python, args.there)
        return 0
    if args.platform == "cuda" and (why := _why_no_gpu()):
        print(f"skipped: {why}; --platform cpu tries the same without", file=sys.stderr)
        return NO_GPU
    installed = wheels.installed_here()
    server = wheels.needs(server_roots, args.wheels, installed)
    sdk = wheels.needs(SDK, args.wheels, installed)
    if why := wheels.refuse((server, sdk)):
        hint = "where there is an index: tests/live/skyrl/gpu --fetch DIR, then --wheels DIR here"
        print(f"{why}\n{hint}", file=sys.stderr)
        return MISSING
    with tempfile.TemporaryDirectory(prefix="hud-tui-gpu-") as folder:
        report = prove(Path(folder), args.platform, args.minutes, server, sdk)
    text = json.dumps(report, indent=1)
    print(text)
    if args.out is not None:
        args.out.write_text(text + "\n")
    return 0 if report["ok"] else 1


def prove(
    scratch: Path, platform_: str, minutes: float, server: wheels.Needs, sdk: wheels.Needs
) -> dict[str, Any]:
    """Every phase; those after a failed one are tried too, where they can be."""
    began = monotonic()
    report: dict[str, Any] = {
        "ok": False,
        "platform": platform_,
        "note": ""
        if platform_ == "cuda"
        else "without a GPU, a tiny model and fewer steps: these figures say nothing of a GPU",
        "machine": _machine(platform_),
        "versions": {"python": platform.python_version()},
        "memory": {},
        "phases": {},
    }
    (scratch / "home").mkdir()
    proof = Proof(scratch, platform_, began + minutes * 60, report)
    try:
        ready = (
            proof.phase("environment", lambda: proof.environment(server, sdk))
            and proof.phase("model", proof.model)
            and proof.phase("server", proof.start)
            and proof.phase("service", proof.serve)
        )
        if ready and proof.phase("train", proof.train):
            for name in ("fork", "rollback", "evaluate", "killed"):
                proof.phase(name, getattr(proof, name))
        if ready:
            proof.phase("acceptance", proof.acceptance)
        report["ok"] = ready and all(phase["ok"] for phase in report["phases"].values())
        if not report["ok"] and proof.log.exists():
            report["server_log"] = proof.log.read_text("utf-8", "replace")[-3000:]
    finally:
        proof.end()
    report["seconds"] = round(monotonic() - began, 1)
    return report
