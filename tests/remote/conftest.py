"""Machines over ssh, each test with a far machine and a state directory of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hud_tui.remote.machines import Machines
from tests.remote.far import HAS_SSHD, WHY_NOT, Far, far_machine


@pytest.fixture
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    if not HAS_SSHD:
        pytest.skip(WHY_NOT)
    with far_machine(tmp_path_factory.mktemp("far")) as machine:
        yield machine


@pytest.fixture
def machines(far: Far, tmp_path: Path) -> Machines:
    return Machines(tmp_path / "state", far.config)
