"""Bases: what a server offers, with what its model's own config says where that is at hand."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hud_tui.regular_file import read_regular
from hud_tui.service.engines.base import Base, Defaults

MOST_BYTES = 1 << 24
"""Of the largest config that is read."""
CONTEXT = 4096
"""Where neither server nor config says."""
VOCABULARY = 2**20
"""Beyond any model's: where the config is not at hand, the server refuses ids that are not its."""
LEARNING_RATE, WIDTH = 1e-4, 2048
"""LoRA's usual rate, and the width below which it grows: Adam's best rate falls with width
(Yang et al. 2022, arXiv:2203.03466)."""
SHORT = 512
"""A context below this is a toy's: completions are short then."""


def make_base(name: str, model: str, context: int | None) -> Base:
    """A base, by the engine's name and the server's name of it.

    Args:
        name: The engine's.
        model: The server's: a hub id, or a path.
        context: What the server says, if it does.
    """
    config = read_config(model)
    room = context or _number(config, "max_position_embeddings") or CONTEXT
    width = _number(config, "hidden_size") or WIDTH
    toy = room <= SHORT
    return Base(
        name=name,
        description=f"{model} on a Tinker server" if model == name else f"{name} on this cluster",
        context=room,
        vocabulary=_number(config, "vocab_size") or VOCABULARY,
        defaults=Defaults(
            learning_rate=float(f"{LEARNING_RATE * max(1.0, WIDTH / width):.1g}"),
            group_size=8,
            max_tokens=20 if toy else 256,
            tasks_per_step=16,
            steps=60 if toy else 40,
        ),
    )


def names(models: Mapping[str, int | None]) -> dict[str, str]:
    """The server's model names by the engine's: a path goes by its last part, as ``local/…``."""
    named: dict[str, str] = {}
    for model in models:
        name = f"local/{Path(model).name}" if Path(model).is_absolute() else model
        named[name if name not in named else model] = model
    return named


def read_config(model: str) -> dict[str, Any]:
    """A model's config.json, from its folder or the hub's cache; empty where it is in neither."""
    path = Path(model) / "config.json" if Path(model).is_absolute() else cached(model)
    try:
        found = json.loads(read_regular(path, MOST_BYTES)) if path is not None else {}
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    inner = found.get("text_config")
    return {**found, **inner} if isinstance(inner, dict) else found


def cached(model: str) -> Path | None:
    """Where the hub's cache has a model's config.json, without loading the hub's library."""
    home = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    repository = cache / f"models--{model.replace('/', '--')}"
    found = sorted(
        repository.glob("snapshots/*/config.json"), key=lambda path: path.stat().st_mtime
    )
    return found[-1] if found else None


def _number(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if isinstance(value, int) and value > 0 else None
