"""Run the engine's tests with other BLAS kernels than this processor's own.

Run: python -m tests.kernels

NumPy's OpenBLAS picks its kernels by the processor, and they round differently. With the variable
``OPENBLAS_CORETYPE`` it takes others, as far as the processor has their instructions; what it lacks
is said. Exits 1 if a test fails, or if OpenBLAS does not take a kernel.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

KERNELS = {
    "Nehalem": {"sse4_2"},
    "Haswell": {"avx2", "fma"},
    "Zen": {"avx2", "fma"},
    "SkylakeX": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
}
"""The instructions that a kernel needs, as /proc/cpuinfo names them."""
ENGINE = "tests/unit/engine/test_engine.py"
TESTS = (
    *(
        f"tests/unit/engine/test_{part}.py"
        for part in ("bases", "cores", "layers", "learner", "sampling")
    ),
    f"{ENGINE}::test_each_base_samples_trains_and_continues",
    f"{ENGINE}::test_calls_at_once_get_what_each_would_get_alone",
    f"{ENGINE}::test_a_sliced_pass_is_the_same_pass_or_none_where_a_slice_fails",
    "tests/engines/test_contract.py",
    "tests/service/test_training.py::test_the_tiny_policy_s_head_always_answers",
)
"""Those that compute with the tiny policy; the lessons compare a process with itself."""
TAKEN = """
import ctypes, pathlib, numpy
libraries = pathlib.Path(numpy.__file__).parents[1] / "numpy.libs"
for path in libraries.glob("libscipy_openblas*"):
    library = ctypes.CDLL(str(path))
    for name in ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename"):
        if hasattr(library, name):
            corename = getattr(library, name)
            corename.restype = ctypes.c_char_p
            print(corename().decode())
            break
"""
SAME = {"Zen": "Haswell"}
"""Kernels that OpenBLAS builds from another's."""


def instructions() -> set[str]:
    """The processor's instructions; empty where the system does not list them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return set(flags.partition(":")[2].split())


def taken(environ: Mapping[str, str]) -> str:
    """The kernel that OpenBLAS takes in an environment; empty if NumPy has another BLAS."""
    command = [sys.executable, "-c", TAKEN]
    told = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    return told.stdout.strip()


def passes(environ: Mapping[str, str]) -> bool:
    """Whether all tests pass in an environment."""
    tests = [sys.executable, "-m", "pytest", "-q", "-n", "2", *TESTS]
    return subprocess.run(tests, env=environ, check=False).returncode == 0


def main() -> int:
    own, failed = taken(os.environ), []
    if not own:
        print("NumPy's BLAS is not OpenBLAS: it has no other kernels to try")
        return 0
    plain = {key: value for key, value in os.environ.items() if not key.startswith("OPENBLAS_")}
    tried = {own}  # by the whole suite
    for kernel, needed in KERNELS.items():
        if missing := needed - instructions():
            print(f"{kernel}: not tried, this processor lacks {', '.join(sorted(missing))}")
            continue
        environ = {**plain, "OPENBLAS_CORETYPE": kernel}
        kind = taken(environ)
        print(
            f"{kernel}: OpenBLAS takes {kind}{', as before' if kind in tried else ''}", flush=True
        )
        if kind not in (kernel, SAME.get(kernel)) or (kind not in tried and not passes(environ)):
            failed.append(kernel)
        tried.add(kind)
    print(f"failed: {', '.join(failed)}" if failed else "no kernel fails a test")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
