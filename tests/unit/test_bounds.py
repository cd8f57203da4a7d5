"""A test that hangs fails, by name; the next one runs; children can be interrupted."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

TESTS = """
import asyncio, signal, subprocess, sys, threading

def test_in_a_thread():
    threading.Event().wait()

async def test_in_a_loop():
    await asyncio.Event().wait()

def test_after():
    pass

def test_child():
    said = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    told = subprocess.check_output([sys.executable, "-S", "-c", said], text=True)
    assert told == "True\\n"
"""


def test_a_test_that_hangs_is_named_and_children_can_be_interrupted(tmp_path: Path) -> None:
    """Where this process ignores an interrupt, as in a script's background job."""
    file = tmp_path / "test_it.py"
    file.write_text(TESTS)
    flags = ("-q", "-p", "tests.bounds", "-p", "no:cacheprovider", "--hung-after", "1")
    mode = ("-o", "asyncio_mode=auto", "-c", "/dev/null", "--rootdir", str(tmp_path))
    ignoring = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")
    command = [*ignoring, sys.executable, "-m", "pytest", *flags, *mode, str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    for hung in ("thread", "loop"):
        assert f"test_it.py::test_in_a_{hung} has hung for 1 s" in done.stdout
    assert "2 failed, 2 passed" in done.stdout
