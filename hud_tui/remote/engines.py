"""Engines that can be set up on a machine: how each is installed, started and checked, and which
of them a machine gets.

SkyRL's commands are those of its own documentation (docs/content/docs/tinker of its repository),
for one pinned version. ``skyrl-cpu`` and ``hud-tui`` run in this project's tests; the engines for
GPUs do not (docs/gpus.md says how to try them).
"""

import json
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import time
from typing import Literal

from hud_tui import __version__
from hud_tui.errors import HudUsage
from hud_tui.remote.facts import Facts, fetch_facts
from hud_tui.remote.machines import MACHINE, Machine, Machines
from hud_tui.remote.ssh import Address, quote
from hud_tui.rl.text import one_line

SKYRL = "0.4.0"
GB = 10**9
ADAPTERS = 8
"""LoRA adapters that a server holds at the same time: a run, and the compared checkpoints."""
RANK = 32
FIRST_MODEL, SMALL_MODEL = "Qwen/Qwen3-4B-Instruct-2507", "Qwen/Qwen3-0.6B"
ENOUGH_GPU = 40 * 2**30
"""Total GPU memory from which the 4B model is the default, bytes."""


@dataclass(frozen=True)
class Engine:
    """A server for training on a machine. Its scripts are POSIX sh with ``$R`` (our folder),
    ``$ENV`` (the Python environment), ``$MODEL``, ``$PACKAGE`` and ``$PORT``."""

    name: str
    about: str
    speaks: Literal["tinker", "hud"]
    """``tinker``: the local service trains through it; ``hud``: it is a whole service itself."""
    package: str
    """Requirement to install, in pip's format."""
    install: str
    installed: str
    """A script that succeeds if the environment has it."""
    serve: Callable[[Machine], str]
    """The server's command."""
    health: str
    """A path that answers once it serves."""
    start_s: int
    """Longest start, seconds."""
    disk_bytes: int
    """Disk space of its packages."""
    python: str = "3.12"
    weights: bool = True
    """Whether it needs a model's weights on the machine."""
    needs_gpu: bool = False


def _skyrl(backend: str, config: Callable[[Machine], dict[str, object]]) -> Callable[..., str]:
    def serve(machine: Machine) -> str:
        encoded = quote(json.dumps(config(machine)))
        return (
            f'"$ENV/bin/python" "$R/skyrl_server.py" --base-model "$MODEL" --backend {backend}'
            f' --backend-config {encoded} --checkpoints-base "$R/state/checkpoints"'
            ' --database-url "sqlite:///$R/state/tinker.db" --host 127.0.0.1 --port "$PORT"'
        )

    return serve


def _jax(machine: Machine) -> dict[str, object]:
    count = max(1, len(machine.facts.gpus))
    sizes = {"max_lora_adapters": ADAPTERS + 1, "max_lora_rank": RANK}
    batches = {"train_micro_batch_size": 8, "sample_max_num_sequences": 64}
    return {**sizes, **batches, "tensor_parallel_size": count, "gradient_checkpointing": True}


def _jax_cpu(machine: Machine) -> dict[str, object]:
    sizes = {"max_lora_adapters": ADAPTERS + 1, "max_lora_rank": RANK, "loss_chunk_size": 0}
    return {**sizes, "train_micro_batch_size": 16, "sample_max_num_sequences": 64}


def _megatron(machine: Machine) -> dict[str, object]:
    """Half of the GPUs train and half sample: several adapters need them separate."""
    half = max(1, len(machine.facts.gpus) // 2)
    lora = "trainer.policy.model.lora"
    return {
        "strategy": "megatron",
        "trainer.placement.policy_num_gpus_per_node": half,
        "trainer.placement.policy_num_nodes": 1,
        "trainer.placement.colocate_all": False,
        "trainer.policy.megatron_config.tensor_model_parallel_size": 1,
        "trainer.policy.megatron_config.pipeline_model_parallel_size": 1,
        "trainer.policy.megatron_config.lora_config.merge_lora": False,
        f"{lora}.max_loras": ADAPTERS,
        f"{lora}.max_cpu_loras": 4 * ADAPTERS,
        "generator.inference_engine.num_engines": half,
        "trainer.logprobs_chunk_size": None,
    }


_PIP = 'uv pip install --python "$ENV/bin/python"'
_HAS_SKYRL = (
    '"$ENV/bin/python" -c "import importlib.util as u, sys;'
    " sys.exit(u.find_spec('skyrl.tinker.api') is None)\" 2>/dev/null"
)
"""Checked without importing it, which is slow, and needs Python 3.12 or what skyrl_server.py
does."""
_REPOSITORY = "https://github.com/NovaSky-AI/SkyRL"
ENGINES = {
    engine.name: engine
    for engine in (
        Engine(
            "skyrl-gpu",
            f"SkyRL {SKYRL} on JAX with CUDA, one machine's GPUs",
            "tinker",
            f"skyrl[tinker,jax,gpu]=={SKYRL}",
            f'{_PIP} --torch-backend cpu "$PACKAGE" aiohttp',
            f'{_HAS_SKYRL} && "$ENV/bin/python" -c "import jax_cuda13_plugin" 2>/dev/null',
            _skyrl("jax", _jax),
            "/api/v1/healthz",
            start_s=1800,
            disk_bytes=14 * GB,
            needs_gpu=True,
        ),
        Engine(
            "skyrl-ray",
            f"SkyRL {SKYRL} on Ray: Megatron trains, vLLM samples; 2 GPUs or more",
            "tinker",
            f"skyrl-v{SKYRL}",
            '[ -d "$R/src/.git" ] || { rm -rf "$R/src.part" && git clone -q --depth 1'
            f' --branch "$PACKAGE" {_REPOSITORY} "$R/src.part" && mv "$R/src.part" "$R/src"; }}\n'
            'cd "$R/src" && UV_PROJECT_ENVIRONMENT="$ENV" uv sync --extra tinker --extra megatron',
            f'[ -d "$R/src/.git" ] && {_HAS_SKYRL}'
            ' && "$ENV/bin/python" -c "import vllm, ray" 2>/dev/null',
            _skyrl("megatron", _megatron),
            "/api/v1/healthz",
            start_s=2400,
            disk_bytes=40 * GB,
            needs_gpu=True,
        ),
        Engine(
            "skyrl-cpu",
            f"SkyRL {SKYRL} on JAX without a GPU: small models only",
            "tinker",
            f"skyrl[tinker,jax]=={SKYRL}",
            f'{_PIP} --torch-backend cpu "$PACKAGE" aiohttp',
            _HAS_SKYRL,
            _skyrl("jax", _jax_cpu),
            "/api/v1/healthz",
            start_s=900,
            disk_bytes=4 * GB,
        ),
        Engine(
            "hud-tui",
            "hud-tui's own service with its tiny policy: to try the way there",
            "hud",
            f"hud-tui=={__version__}",
            f'{_PIP} "$PACKAGE"',
            '"$ENV/bin/python" -P -c "import hud_tui.service.serving" 2>/dev/null',
            lambda machine: (
                '"$ENV/bin/python" -P -m hud_tui.service --host 127.0.0.1 --port "$PORT"'
                ' --data-dir "$R/state" >/dev/null'  # its line on stdout has the key
            ),
            "/v2/models",
            start_s=120,
            disk_bytes=GB,
            python=">=3.11,<3.14",
            weights=False,
        ),
    )
}


def choose_engine(facts: Facts) -> str:
    """The engine for a machine: with Ray if there are several GPUs."""
    return "skyrl-cpu" if not facts.gpus else "skyrl-gpu" if len(facts.gpus) == 1 else "skyrl-ray"


def choose_model(engine: Engine, facts: Facts) -> str:
    """The default model; empty if the engine brings its own."""
    if not engine.weights:
        return ""
    return FIRST_MODEL if facts.gpu_bytes >= ENOUGH_GPU else SMALL_MODEL


def find_engine(name: str) -> Engine:
    """The engine with this name. Raises HudUsage: there is none."""
    if name not in ENGINES:
        raise HudUsage(f"no engine named {name[:40]!r}", f"choose from {', '.join(ENGINES)}")
    return ENGINES[name]


# What a machine is to be: chosen by its facts, where nobody wishes otherwise.


@dataclass(frozen=True)
class Wish:
    """How a machine is to be set up; empty fields are chosen to fit the machine."""

    name: str = ""
    engine: str = ""
    model: str = ""
    root: str = ""
    env: str = ""
    pod: str = ""


async def describe(machines: Machines, address: Address, wish: Wish) -> Machine:
    """A machine as it is to be set up: as known, or as found there.

    Nothing is changed there. A known machine keeps its engine, model and folder, and its Python
    environment once that is made or found.

    Raises:
        HudUsage: A wish does not fit it.
        HudError: It cannot be reached or read.
    """
    name = wish.name or name_of(address)
    machine = machines.get(name) if (machines.folder_of(name) / MACHINE).exists() else None
    config = machines.config_of(machine)
    ssh = machines.ssh_to(address, config)
    facts = await fetch_facts(ssh, machine.root if machine is not None else wish.root)
    if machine is not None:
        _same(machine, address, wish)
        env = machine.env if has_env(machine) else _absolute(wish.env, facts.home) or machine.env
        there = address if machine.pod else machine.address  # a pod may have another by now
        return replace(machine, address=there, facts=facts, env=env, ssh_config=config)
    engine = _fitting_engine(wish, address, facts)
    if wish.model and not engine.weights:
        raise HudUsage(f"{engine.name} brings its own model", "leave out --model")
    return Machine(
        name,
        address,
        engine.name,
        wish.model or choose_model(engine, facts),
        root=_absolute(wish.root, facts.home) or f"{facts.home}/.hud-tui/{name}",
        env=_absolute(wish.env, facts.home),
        local_port=free_port(),
        supervisor=next(filter(facts.tools.get, ("tmux", "systemd")), "nohup"),
        facts=facts,
        added_at=time(),
        pod=wish.pod,
        ssh_config=config,
    )


def _fitting_engine(wish: Wish, address: Address, facts: Facts) -> Engine:
    """The wished engine, or the best one for the machine. Raises HudUsage: it does not fit."""
    if facts.os not in ("Linux", "Darwin") or not facts.home.startswith("/"):
        raise HudUsage(f"{address}: neither Linux nor macOS ({facts.os or 'no answer'})")
    engine = find_engine(wish.engine or choose_engine(facts))
    if engine.needs_gpu and not facts.gpus:
        raise HudUsage(
            f"{engine.name} needs an NVIDIA GPU, and {address} has none that nvidia-smi shows",
            "--engine skyrl-cpu, for small models",
        )
    return engine


def _same(machine: Machine, address: Address, wish: Wish) -> None:
    """Raises HudUsage: the known machine of this name is another one, or set up differently."""
    fix = f"choose another --name, or hud-tui remote remove {machine.name} first"
    if machine.address != address and not machine.pod:
        raise HudUsage(f"{machine.name} is {machine.address} already", fix)
    for what in ("engine", "model", "root", "env"):
        wished, has = getattr(wish, what), getattr(machine, what)
        if what == "env" and not has_env(machine):
            continue
        if wished and wished.rstrip("/") != has and not wished.startswith("~"):
            difference = f"has the {what} {has}" if has else "makes its own Python environment"
            raise HudUsage(f"{machine.name} {difference} already", fix)


def has_env(machine: Machine) -> bool:
    """Whether its Python environment is made, or found with the engine in it."""
    return bool({"python", "engine"} & {*machine.done, *machine.job})


def _absolute(path: str, home: str) -> str:
    """An absolute path there. Raises HudUsage: it is relative, or has characters that are special
    in shells."""
    whole = f"{home}{path[1:]}" if path[:2] in ("~", "~/") else path
    bare = whole.rstrip("/")
    if path and (not bare.startswith("/") or not bare.isprintable() or "'" in bare):
        raise HudUsage(f"not a folder's absolute path on the machine: {one_line(path, 80)}")
    return bare


def name_of(address: Address) -> str:
    """A machine's name from its address, e.g. ``gpubox`` for ``me@gpubox.lab``."""
    bare = address.host.rpartition("@")[2].strip("[]")
    name = bare if re.fullmatch(r"[\d.:]+", bare) else bare.partition(".")[0]
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name)[:63] or "machine"


def free_port() -> int:
    """An unused port on this machine's loopback."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])
