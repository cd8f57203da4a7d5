"""The tiny engine in the contract's tests."""

from pathlib import Path

import pytest

from hud_tui.service.engines.base import Engine
from hud_tui.service.engines.tiny.engine import make

MARKS = ()
TEMPERED = True
"""Whether training computes logprobs at the temperature that was sampled with."""


def engine(request: pytest.FixtureRequest, directory: Path) -> Engine:
    """One that is not started yet."""
    return make(directory)
