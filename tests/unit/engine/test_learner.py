"""Steps and states: bit-exact continuation, groups without spread, files that are not whole."""

import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hud_tui.rl.groups import group_advantages
from hud_tui.service.engines import base
from hud_tui.service.engines.base import (
    Adam,
    Datum,
    EngineError,
    EngineRefused,
    NotFinite,
    SampleRequest,
)
from hud_tui.service.engines.tiny.model import Config, shapes
from hud_tui.service.engines.tiny.training import Moments, adam_step
from hud_tui.service.engines.tiny.worker import Learner
from tests.unit.engine.conftest import some_datums

ADAM = Adam(learning_rate=1e-3, weight_decay=0.01)


def train(learner: Learner, steps: range, directory: Path) -> Path:
    """Some steps on data that depend on the step's number only; the last state's path."""
    for step in steps:
        datums = some_datums(8, seed=step, logprob=-4.9)
        learner.forward_backward(datums, "importance_sampling", {})
        saved = learner.optim_step(ADAM, directory)
    return Path(saved.state_path)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


CONTINUE = """
import sys
from pathlib import Path
from hud_tui.service.engines.tiny.worker import Learner
from tests.unit.engine.test_learner import digest, train
learner = Learner(Path(sys.argv[1]))
print(digest(train(learner, range(*map(int, sys.argv[2:4])), Path(sys.argv[1]).parent)))
"""


def in_a_fresh_process(path: Path, first: int, last: int) -> str:
    """Open a state elsewhere, take the steps there; the digest of what came of it."""
    command = [sys.executable, "-c", CONTINUE, str(path), str(first), str(last)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_weights_that_are_not_finite_are_not_saved(small: Learner, tmp_path: Path) -> None:
    small.forward_backward(some_datums(8, seed=0, logprob=-4.9), "importance_sampling", {})
    before = {name: weight.copy() for name, weight in small.weights.items()}
    files = list(tmp_path.iterdir())
    with pytest.raises(NotFinite, match="lower the learning rate of 1e\\+39"):
        small.optim_step(Adam(learning_rate=1e39), tmp_path)
    assert list(tmp_path.iterdir()) == files
    assert all((small.weights[name] == weight).all() for name, weight in before.items())
    with pytest.raises(EngineRefused, match="nothing was accumulated"):
        small.optim_step(ADAM, tmp_path)


def test_steps_in_a_fresh_process_are_bit_exact_and_so_are_samples_after_loading(
    small_path: Path, small: Learner, tmp_path: Path
) -> None:
    half_way = train(small, range(3), tmp_path)
    assert in_a_fresh_process(small_path, 0, 3) == digest(half_way)
    never_stopped = train(small, range(3, 6), tmp_path)
    assert in_a_fresh_process(half_way, 3, 6) == digest(never_stopped)
    path = train(small, range(2), tmp_path)
    asked = [SampleRequest([70, 71], 8, seed=(i,)) for i in range(6)]
    assert Learner(path).sample(asked) == small.sample(asked)


@pytest.mark.parametrize("loss_fn", ["importance_sampling", "ppo", "cispo", "dro"])
def test_a_group_whose_rewards_are_equal_moves_nothing(
    loss_fn: str, small: Learner, tmp_path: Path
) -> None:
    asked = [SampleRequest([70, 71], 8, seed=(i,)) for i in range(4)]
    config = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2, "beta": 0.05}
    datums = [
        Datum(request.prompt, out.tokens, out.logprobs, advantage)
        for request, out, advantage in zip(
            asked, small.sample(asked), group_advantages([0.3] * 4), strict=True
        )
    ]
    metrics = small.forward_backward(datums, loss_fn, config)
    assert metrics["num_tokens"] == sum(len(datum.output) for datum in datums)
    with pytest.raises(EngineError, match="nothing was accumulated"):
        small.optim_step(ADAM, tmp_path)


@pytest.mark.parametrize("size", [1e-8, 1e-4, 1.0])
def test_adam_s_eps_is_added_to_the_root_and_not_under_it(size: float) -> None:
    """A first step is g / (|g| + eps): half of the rate where the gradient is as small as eps."""
    weights = {"w": np.zeros(3)}
    moments = Moments.fresh(weights)
    adam_step(weights, {"w": np.full(3, size)}, moments, Adam(learning_rate=0.1, eps=1e-8))
    assert weights["w"] == pytest.approx(np.full(3, -0.1 * size / (size + 1e-8)), rel=1e-6)


def test_a_step_uses_its_gradients_up_and_leaves_no_other_file(
    small: Learner, tmp_path: Path
) -> None:
    directory = tmp_path / "states"
    directory.mkdir()
    small.backward(some_datums(2), [[1.0] * len(datum.output) for datum in some_datums(2)])
    saved = small.optim_step(ADAM, directory)
    assert saved.metrics["grad_norm"] > 0
    assert [str(path) for path in directory.iterdir()] == [saved.state_path]
    with pytest.raises(EngineError, match="nothing was accumulated"):
        small.optim_step(ADAM, directory)


def test_a_state_that_cannot_be_written_undoes_the_step(small: Learner, tmp_path: Path) -> None:
    datums = some_datums(2)
    small.forward_backward(datums, "cross_entropy", {})
    before = small.forward(datums)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EngineError, match="could not be written"):
        small.optim_step(ADAM, tmp_path / "file")
    assert small.forward(datums) == before
    small.optim_step(ADAM, tmp_path)
    assert small.forward(datums) != before


def test_an_endless_gradient_or_one_of_clipped_tokens_alone_is_nothing_to_step_on(
    small: Learner, tmp_path: Path
) -> None:
    [datum] = some_datums(1)
    far = Datum(datum.prompt, datum.output, [-1e4] * len(datum.output), 1.0)
    with pytest.raises(EngineError, match="not finite"):
        small.forward_backward([far], "importance_sampling", {})
    with pytest.raises(EngineError, match="nothing was accumulated"):
        small.optim_step(ADAM, tmp_path)

    [datum] = some_datums(1)
    far = [value - 1.0 for value in small.forward([datum])[0]]
    clipped = replace(datum, logprobs=far, advantage=1.0)
    small.forward_backward([clipped], "ppo", base.loss_config("ppo", None))
    with pytest.raises(EngineRefused, match="no token has a gradient"):
        small.optim_step(Adam(1e-3), tmp_path)


def test_a_file_that_is_not_a_whole_state_is_refused(small: Learner, tmp_path: Path) -> None:
    body = train(small, range(1), tmp_path).read_bytes()
    broken = tmp_path / "broken.safetensors"
    for content in (body[:-1], body[:1000], b"", b"not a state", body.replace(b"0.qkv", b"0.qkw")):
        broken.write_bytes(content)
        with pytest.raises(EngineError, match="not a whole state"):
            Learner(broken)
    with pytest.raises(EngineError, match="no such state"):
        Learner(tmp_path / "missing.safetensors")


def test_adam_takes_the_steps_of_its_paper() -> None:
    weights, moments = {"w": np.array([1.0, 1.0])}, Moments.fresh({"w": np.zeros(2)})
    adam = Adam(0.1, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.5)
    adam_step(weights, {"w": np.array([3.0, 0.0])}, moments, adam)
    assert weights["w"] == pytest.approx([1 - 0.1 - 0.05, 1 - 0.05])
    adam_step(weights, {"w": np.array([0.0, 0.0])}, moments, adam)
    m, v = 0.9 * 0.3 / (1 - 0.81), 0.95 * 0.05 * 9 / (1 - 0.95**2)
    assert weights["w"][0] == pytest.approx(0.85 * 0.95 - 0.1 * m / v**0.5)
    assert sum(int(np.prod(shape)) for shape in shapes(Config()).values()) == 172_480


def test_weights_of_a_finite_size_that_compute_no_numbers_are_refused(
    small: Learner, tmp_path: Path
) -> None:
    """Queries times keys overflow long before a weight does."""
    small.forward_backward(some_datums(4), "importance_sampling", {})
    with pytest.raises(NotFinite, match="what they compute would not be finite"):
        small.optim_step(Adam(1e20), tmp_path)
    small.weights = {name: weight * 1e20 for name, weight in small.weights.items()}
    with np.errstate(all="ignore"):
        for call in (
            lambda: small.forward(some_datums(1)),
            lambda: small.sample([SampleRequest([3, 4], 4)]),
        ):
            with pytest.raises(NotFinite, match="set the head to an earlier checkpoint"):
                call()
