"""HUD's public training scripts, as they are, against the embedded service.

Run: python -m tests.live.public_scripts PATH/TO/hud-tui PATH/TO/hud-python

The second is a checkout of github.com/hud-evals/hud-python; nothing in it is changed. HUD_PYTHON
names the Python of a venv that has hud (0.6.21 with typer<0.29), python-dotenv and, for
ppo_custom_loss.py, torch. Each script runs in its own directory with the HUD_* variables set,
on a fork of ``tiny/agent-1M`` of the name that it asks for. Exits 1 when one fails.

Connect Four's environment holds one game per process, and hud 0.6.21 runs all of a taskset's games
in one: its self-play needs an earlier hud, which HUD_OLD_PYTHON names (0.6.12 does; default:
HUD_PYTHON). STEPS is how many steps each script is told to take (default 3).
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

BASE = "tiny/agent-1M"
LONGEST_S = 1800


@dataclass(frozen=True)
class Script:
    folder: str
    model: str
    """Name of the fork that it asks for."""
    argv: tuple[str, ...]
    """The script, and what follows it but for ``--steps N``."""
    python: str = "HUD_PYTHON"
    """The variable that names its Python."""


SCRIPTS = (
    Script("rl-training", "Qwen3 4B Instruct 2507 (Tinker)", ("simple_train.py",)),
    Script("rl-training", "<trainable-model>", ("ppo_custom_loss.py",)),
    Script("rl-training", "game-2048", ("train_2048.py",)),
    Script(
        "connect4-selfplay",
        "c4-selfplay",
        ("train.py", "--group", "2", "--val-opponent", BASE, "--val-games", "2"),
        "HUD_OLD_PYTHON",
    ),
)


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    program, checkout = sys.argv[1], Path(sys.argv[2])
    failed = 0
    with tempfile.TemporaryDirectory(prefix="hud-tui-") as folder:
        command = [program, "serve", "--data-dir", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            try:
                assert service.stdout is not None
                env = variables(json.loads(service.stdout.readline()), Path(folder))
                for script in SCRIPTS:
                    failed += not completes(script, program, checkout, env)
            finally:
                service.terminate()
    print(f"public scripts: {len(SCRIPTS) - failed} passed, {failed} failed")
    return int(failed > 0)


def variables(ready: dict[str, str], home: Path) -> dict[str, str]:
    """What a script is given: where the service is, and its key."""
    where = dict.fromkeys(
        ("HUD_API_URL", "HUD_RL_URL", "HUD_GATEWAY_URL", "HUD_RUNTIME_URL"), ready["url"]
    )
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("HUD_", "XDG_"))}
    key = {"HUD_API_KEY": ready["api_key"], "HUD_TELEMETRY_URL": ready["telemetry_url"]}
    return inherited | where | key | {"HOME": str(home)}


def completes(script: Script, program: str, checkout: Path, env: dict[str, str]) -> bool:
    """Fork the model and run one script to its end; says so, and what it printed last."""
    fork = [program, "--headless", "fork", BASE, "--name", script.model, "-y"]
    subprocess.run(fork, env=env, check=True, stdout=subprocess.DEVNULL)
    usual = os.environ.get("HUD_PYTHON", sys.executable)
    python = os.environ.get(script.python, usual)
    steps = ("--steps", os.environ.get("STEPS", "3"))
    ran = subprocess.run(
        [python, *script.argv, *steps],
        cwd=checkout / "cookbooks" / script.folder,
        env=env | {"HUD_MODEL": script.model},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    held = ran.returncode == 0
    print(f"{'ok' if held else 'FAIL':5}{script.argv[0]}: exit {ran.returncode}")
    print((ran.stdout if held else ran.stdout + ran.stderr)[-2000:], flush=True)
    return held


if __name__ == "__main__":
    sys.exit(main())
