"""What a server offered is known while it is away."""

import socket
from pathlib import Path

import pytest

from hud_tui.service.engines.base import EngineError
from hud_tui.service.engines.tinker import engine as engine_module
from hud_tui.service.engines.tinker.engine import Offer, TinkerEngine
from hud_tui.settings import Options


@pytest.fixture
def nobody() -> str:
    """The URL of a port where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_an_offer_is_one_server_s(tmp_path: Path) -> None:
    Offer(tmp_path / "offer", "http://a").write({"Qwen/Qwen3-8B": 32768, "/m": None})
    assert Offer(tmp_path / "offer", "http://a").read() == {"Qwen/Qwen3-8B": 32768, "/m": None}
    assert Offer(tmp_path / "offer", "http://b").read() == {}
    (tmp_path / "offer").write_text("[1]")
    assert Offer(tmp_path / "offer", "http://a").read() == {}


async def test_a_server_that_never_answered_is_said(
    tmp_path: Path, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "START_S", 0.0)
    engine = TinkerEngine(Options(nobody, False), tmp_path / "tinker")
    with pytest.raises(EngineError, match="has not answered"):
        await engine.start()
    assert engine._link.pid is None


async def test_one_that_is_away_leaves_its_trees_readable(
    tmp_path: Path, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "START_S", 0.0)
    (tmp_path / "tinker").mkdir()
    Offer(tmp_path / "tinker" / "offer.json", nobody).write({"Qwen/Qwen3-8B": 32768})
    engine = TinkerEngine(Options(nobody, False), tmp_path / "tinker")
    await engine.start()
    assert [base.name for base in engine.bases()] == ["Qwen/Qwen3-8B"]
    assert "has not answered" in engine.about().queue
    await engine.stop()
