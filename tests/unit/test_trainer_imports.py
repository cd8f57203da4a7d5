"""What a loop imports is loaded when it does, and no sooner."""

import pytest

import hud_tui.client
from hud_tui.client.trainer import TrainingClient
from tests.unit.test_imports import HEAVY, loaded_after


def test_the_package_alone_loads_next_to_nothing() -> None:
    assert not loaded_after("import hud_tui.client") & {*HEAVY, "httpcore", "pydantic", "asyncio"}


def test_a_loop_loads_no_face_no_engine_and_no_torch() -> None:
    loaded = loaded_after("from hud_tui.client import HudClient, Rollout, TrainingClient")
    assert not loaded & {*HEAVY, "torch"}


def test_the_package_has_these_names_and_no_others() -> None:
    assert hud_tui.client.TrainingClient is TrainingClient
    with pytest.raises(AttributeError, match="Trainer"):
        hud_tui.client.Trainer  # noqa: B018
