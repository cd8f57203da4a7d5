"""Tests and benches.

Processes that they start keep the bytecode of our modules, as pip does when it installs them: where
the environment forbids that, each would compile all it imports, a third of a short command's time.
"""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
