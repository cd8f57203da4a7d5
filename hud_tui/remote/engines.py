"""Engines that can be set up on a machine: how each is installed, started and checked.

SkyRL's commands are those of its own documentation (docs/content/docs/tinker of its repository),
for one pinned version. ``skyrl-cpu`` and ``hud-tui`` run in this project's tests; the engines for
GPUs do not (docs/gpus.md says how to try them).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hud_tui import __version__
from hud_tui.errors import HudUsage
from hud_tui.remote.facts import Facts
from hud_tui.remote.machines import Machine
from hud_tui.remote.ssh import quote

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
    one.name: one
    for one in (
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
            '"$ENV/bin/python" -P -c "import hud_tui.service.app" 2>/dev/null',
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
