"""What a server offers, as bases."""

import json
from pathlib import Path

import pytest

from hud_tui.service.engines.tinker.engine import VOCABULARY, make_base, names


def test_a_folder_goes_by_its_last_part_unless_two_have_it_and_its_config_is_read(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    config = {"vocab_size": 264, "hidden_size": 64, "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps(config))
    named = names({str(folder): None, "Qwen/Qwen3-8B": 32768})
    assert named == {"local/tiny": str(folder), "Qwen/Qwen3-8B": "Qwen/Qwen3-8B"}
    base = make_base("local/tiny", str(folder), None)
    assert (base.context, base.vocabulary) == (512, 264)
    assert base.defaults.learning_rate == pytest.approx(3e-3)
    assert names({"/a/m": None, "/b/m": None}) == {"local/m": "/a/m", "/b/m": "/b/m"}


def test_the_hub_s_cache_is_looked_into_and_a_config_that_is_not_whole_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    base = make_base("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", 32768)
    assert (base.context, base.vocabulary) == (32768, VOCABULARY)
    assert base.defaults.learning_rate == pytest.approx(1e-4)
    snapshot = tmp_path / "models--Qwen--Qwen3-8B" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"text_config": {"vocab_size": 151936}}')
    assert make_base("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", 32768).vocabulary == 151_936
    (tmp_path / "config.json").write_text("[")
    assert make_base("local/x", str(tmp_path), None).context == 4096
