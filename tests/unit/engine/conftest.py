"""A policy small enough for finite differences, and datums to train it on."""

from pathlib import Path

import numpy as np
import pytest

from hud_tui.service.engines.base import Datum
from hud_tui.service.engines.tiny.model import Config, Weights, initial
from hud_tui.service.engines.tiny.training import save_base
from tests.learner import Learner

SMALL = Config(width=16, layers=2, heads=2, context=32)
LONG = Config(300, 16, 2, 2, context=600, rotary=True, shifted=3, tied=True)


def saved(path: Path, config: Config) -> Path:
    """A base of random weights that prefers nothing, in a file."""
    save_base(path, initial(config, seed=7), config)
    return path


@pytest.fixture
def small_path(tmp_path: Path) -> Path:
    return saved(tmp_path / "small.safetensors", SMALL)


@pytest.fixture
def small(small_path: Path) -> Learner:
    return Learner(small_path)


@pytest.fixture
def long_path(tmp_path: Path) -> Path:
    """For conversations."""
    return saved(tmp_path / "long.safetensors", LONG)


@pytest.fixture
def double() -> Weights:
    """The small policy's weights in float64."""
    return {name: weight.astype(np.float64) for name, weight in initial(SMALL, seed=7).items()}


def some_datums(count: int, seed: int = 0, logprob: float | None = None) -> list[Datum]:
    """Datums of random ids and lengths with advantages of both signs."""
    random = np.random.default_rng(seed)
    datums = []
    for i in range(count):
        output = random.integers(32, 127, 2 + i % 5).tolist()
        datums.append(
            Datum(
                prompt=random.integers(32, 127, 3 + i % 7).tolist(),
                output=output,
                logprobs=[] if logprob is None else [logprob] * len(output),
                advantage=float(random.standard_normal()),
                temperature=float(random.choice([1.0, 0.7])),
            )
        )
    return datums
