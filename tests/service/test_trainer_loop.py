"""The README's training loop, as a user runs it."""

from pathlib import Path

import pytest

from hud_tui.local_service import stop
from hud_tui.settings import read_paths
from tests.live import training_loop


async def test_the_loop_starts_a_service_and_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("STATE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"HUD_TUI_{kind}_DIR", str(tmp_path / kind.lower()))
    learn = training_loop.train
    monkeypatch.setattr(training_loop, "train", lambda trainer, steps: learn(trainer, 8))
    try:
        means = await training_loop.main()
    finally:
        await stop(read_paths())
    assert len(means) == 8, "half of what it takes"
    assert sum(means[-3:]) / 3 > sum(means[:3]) / 3 + 0.03
    assert capsys.readouterr().out.count("mean reward") == 8
