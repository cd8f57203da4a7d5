"""The tinker engine in the contract's tests: on a real server, with ``-m skyrl``."""

from pathlib import Path

import pytest

from hud_tui.service.engines.base import Engine
from hud_tui.service.engines.tinker.engine import TinkerEngine
from hud_tui.tinker_options import Options
from tests.engines.skyrl import SkyRL

MARKS = (pytest.mark.skyrl,)
TEMPERED = False


def engine(request: pytest.FixtureRequest, directory: Path) -> Engine:
    """One that is not started yet."""
    return on(request.getfixturevalue("skyrl"), directory)


def on(server: SkyRL, directory: Path) -> TinkerEngine:
    """The tinker engine on a server, not started yet."""
    return TinkerEngine(Options(server.url, has_key=False), directory / "tinker")
