"""What is not loaded, and not before it is needed."""

import subprocess
import sys

HEAVY = ("tinker", "numpy", "torch", "transformers", "tokenizers", "httpx")


def loaded_by(code: str) -> set[str]:
    """Which heavy modules a fresh interpreter has after some code."""
    check = f"{code}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_service_s_side_loads_nothing_heavy() -> None:
    assert loaded_by("import hud_tui.service.engines.tinker.engine") == set()


def test_the_process_loads_the_sdk_only_when_it_is_asked() -> None:
    assert loaded_by("import hud_tui.service.engines.tinker.worker") == set()


def test_the_process_ends_when_its_input_does(tmp_path: object) -> None:
    command = [sys.executable, "-m", "hud_tui.service.engines.tinker.worker", str(tmp_path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
