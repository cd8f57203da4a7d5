"""A test that hangs fails, by name; the next one runs; children can be interrupted."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

HANGS = """
import asyncio, threading

def test_in_a_thread():
    threading.Event().wait()

async def test_in_a_loop():
    await asyncio.Event().wait()

def test_after():
    pass
"""
CHILD = """
import signal, subprocess, sys

def test_child():
    said = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\\n"
"""


def run(place: Path, code: str, *before: str) -> tuple[str, str]:
    """Run a file of tests with the plugin; its summary, and stderr."""
    (place / "test_it.py").write_text(code)
    flags = ("-q", "-p", "tests.bounds", "-p", "no:cacheprovider", "--hung-after", "1")
    mode = ("-o", "asyncio_mode=auto", "-c", "/dev/null", "--rootdir", str(place))
    command = [*before, sys.executable, "-m", "pytest", *flags, *mode, str(place / "test_it.py")]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout, done.stderr


def test_a_test_that_hangs_is_named(tmp_path: Path) -> None:
    out, _ = run(tmp_path, HANGS)
    assert "test_it.py::test_in_a_thread has hung for 1 s" in out
    assert "test_it.py::test_in_a_loop has hung for 1 s" in out
    assert "2 failed, 1 passed" in out


def test_children_can_be_interrupted_where_we_cannot(tmp_path: Path) -> None:
    out, _ = run(tmp_path, CHILD, "sh", "-c", "trap '' INT; exec \"$@\"", "sh")
    assert "1 passed" in out, out
