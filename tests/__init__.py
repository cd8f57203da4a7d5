"""Tests and benches.

Processes that they start keep the bytecode of our modules, as pip does when it installs them: where
the environment forbids that, each would compile all it imports, a third of a short command's time.
NumPy computes with one thread, as in the engine's process: two take ten times as long where others
compute, too.
"""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
