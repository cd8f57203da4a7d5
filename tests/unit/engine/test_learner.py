"""The learner: each loss and its gradient, bit-exact steps and states, files that are not whole."""

import hashlib
import subprocess
import sys
from dataclasses import replace
from math import isfinite
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hud_tui.service.engines import base
from hud_tui.service.engines.base import (
    CONFIG_DEFAULTS,
    COOLEST,
    HOTTEST,
    LOSSES,
    Adam,
    Datum,
    EngineError,
    EngineRefused,
    NotFinite,
    SampleRequest,
    loss_config,
    merge,
)
from hud_tui.service.engines.tiny import model, parts, training
from hud_tui.service.engines.tiny.engine import BASES, weights_path
from hud_tui.service.engines.tiny.model import Config, Weights, initial, shapes
from hud_tui.service.engines.tiny.training import Moments, adam_step, token_weights
from hud_tui.service.engines.tiny.worker import _is_finite
from tests.learner import Learner
from tests.unit.engine.conftest import LONG, SMALL, some_datums

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
from tests.learner import Learner
from tests.unit.engine.test_learner import digest, train
learner = Learner(Path(sys.argv[1]))
print(digest(train(learner, range(*map(int, sys.argv[2:4])), Path(sys.argv[1]).parent)))
"""


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
    small: Learner, tmp_path: Path
) -> None:
    half_way = train(small, range(3), tmp_path)
    never_stopped = train(small, range(3, 6), tmp_path)
    command = [sys.executable, "-c", CONTINUE, str(half_way), "3", "6"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert told == digest(never_stopped)
    path = train(small, range(2), tmp_path)
    asked = [SampleRequest([70, 71], 8, seed=(i,)) for i in range(6)]
    assert Learner(path).sample(asked) == small.sample(asked)


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
    for call in (
        lambda: small.forward(some_datums(1)),
        lambda: small.sample([SampleRequest([3, 4], 4)]),
        lambda: small.measure(some_datums(1), {}),
        lambda: small.forward_backward(some_datums(1), "cross_entropy", {}),
    ):
        with pytest.raises(NotFinite, match="set the head to an earlier checkpoint"):
            call()
    assert small.grads is None


def test_gradients_that_add_up_to_more_than_adam_can_square_are_no_step(
    small: Learner, tmp_path: Path
) -> None:
    """A moment that is infinite would hold its weight still for good."""
    before = small.forward(some_datums(2))
    small.grads = {name: np.full_like(weight, 2e19) for name, weight in small.weights.items()}
    with pytest.raises(NotFinite, match="no step was taken"):
        small.optim_step(ADAM, tmp_path)
    assert (small.forward(some_datums(2)), small.moments, small.grads) == (before, None, None)
    assert list(tmp_path.glob("*.safetensors")) == [tmp_path / "small.safetensors"]


@settings(max_examples=25)
@given(
    scales=st.dictionaries(
        st.sampled_from(["token", "norm", "head", "0.qkv", "0.out", "0.up", "0.down", "1.up"]),
        st.integers(0, 38),
    ),
    seed=st.integers(0, 99),
)
def test_weights_that_a_step_may_have_are_sampled_from_at_any_temperature(
    scales: dict[str, int], seed: int
) -> None:
    """On this processor's kernels; CI tries others."""
    learner = Learner(weights_path(BASES[0].name))
    with np.errstate(over="ignore"):
        for name, scale in scales.items():
            learner.weights[name] = learner.weights[name] * np.float32(10.0**scale)
    assume(_is_finite(learner.weights, learner.config))
    [datum] = some_datums(1, seed=seed)
    for temperature in (COOLEST, 1.0, HOTTEST):
        asked = SampleRequest(datum.prompt, 4, temperature, seed=(seed,))
        [sampled] = learner.sample([asked])
        datum = replace(datum, output=sampled.tokens, temperature=temperature)
        [row] = learner.forward([datum])
        assert all(map(isfinite, [*sampled.logprobs, *row]))


@pytest.mark.parametrize("base", [base.name for base in BASES])
def test_the_bound_leaves_room_for_weights_that_learn(base: str) -> None:
    learner = Learner(weights_path(base))
    large = {name: weight * 100 for name, weight in learner.weights.items()}
    assert _is_finite(large, learner.config)
    logits, _ = model.forward(large, learner.config, np.arange(64)[None], np.arange(64))
    assert np.abs(logits).max() <= model.greatest(large, learner.config)


Floats = NDArray[np.float64]
LOW, HIGH, BETA = 0.8, 1.2, 0.05


def written_out(loss_fn: str, lp: Floats, q: Floats, a: Floats, frozen: Floats) -> float:
    """The losses once more, from their definitions; `frozen` is lp where it is held fixed."""
    r = np.exp(lp - q)
    return float(
        {
            "cross_entropy": -a * lp,
            "importance_sampling": -r * a,
            "ppo": -np.minimum(r * a, np.clip(r, LOW, HIGH) * a),
            "cispo": -np.clip(np.exp(frozen - q), LOW, HIGH) * a * lp,
            "dro": -(a * lp - BETA / 2 * (lp - q) ** 2),
        }[loss_fn].sum()
    )


def columns(weights: Weights, datums: list[Datum]) -> tuple[Floats, Floats, Floats]:
    """lp, q and A of every output token, datum after datum."""
    lp = [value for row in training.logprobs(weights, SMALL, datums)[0] for value in row]
    q = [value for datum in datums for value in datum.logprobs]
    a = [datum.advantage for datum in datums for _ in datum.output]
    return np.array(lp), np.array(q), np.array(a)


@pytest.mark.parametrize("loss_fn", LOSSES)
def test_the_gradient_is_that_of_finite_differences(loss_fn: str, double: Weights) -> None:
    datums = some_datums(9, logprob=-4.9)
    frozen, _, _ = columns(double, datums)
    config = loss_config(loss_fn, None)

    def weigh(chunk: training.Chunk, lp: Floats) -> Floats:
        q = training.flat(chunk, [datum.logprobs for datum in datums])
        a = training.flat(chunk, [[datum.advantage] * len(datum.output) for datum in datums])
        return token_weights(loss_fn, config, lp, q, a)[0]

    grads, _ = training.gradients(double, SMALL, datums, weigh)
    assert grads is not None
    random = np.random.default_rng(3)
    along = {name: random.standard_normal(weight.shape) for name, weight in double.items()}

    def cost(step: float) -> float:
        moved = {name: weight + step * along[name] for name, weight in double.items()}
        return written_out(loss_fn, *columns(moved, datums), frozen)

    slope = (cost(1e-6) - cost(-1e-6)) / 2e-6
    assert sum(float((grads[n] * along[n]).sum()) for n in grads) == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("loss_fn", LOSSES)
def test_the_cost_is_that_of_its_definition(loss_fn: str) -> None:
    random = np.random.default_rng(7)
    lp, q = random.uniform(-3, 0, (2, 50))
    a = random.standard_normal(50)
    _, cost = token_weights(loss_fn, loss_config(loss_fn, None), lp, q, a)
    assert cost.sum() == pytest.approx(written_out(loss_fn, lp, q, a, lp))


def test_dro_s_penalty_is_half_of_beta_times_the_squared_gap_and_none_for_rounding() -> None:
    lp, q, none = np.array([-1.0, 1e-5]), np.array([-3.0, 0.0]), np.zeros(2)
    w, cost = token_weights("dro", {"beta": 0.5}, lp, q, none)
    assert cost == pytest.approx([0.5 / 2 * 2.0**2, 0.0])
    assert w == pytest.approx([-0.5 * 2.0, 0.0])


@pytest.mark.parametrize(
    ("loss_fn", "clips"),
    [
        ("ppo", [True, False, False, True, False, False]),
        ("cispo", [True, True, True, True, False, True]),
        ("importance_sampling", [False] * 6),
        ("dro", [False] * 6),
    ],
)
def test_what_a_loss_clips_is_what_loses_its_gradient(loss_fn: str, clips: list[bool]) -> None:
    """Ratios of 1.5 and .5 under advantages of both signs, one within the bounds, one of 0."""
    lp = np.log([1.5, 1.5, 0.5, 0.5, 1.1, 1.5])
    advantage = np.array([1.0, -1.0, 1.0, -1.0, 1.0, 0.0])
    given = (loss_fn, CONFIG_DEFAULTS[loss_fn], lp, np.zeros(6), advantage)
    assert training.clipped(*given).tolist() == clips
    if loss_fn == "ppo":
        weights, _ = token_weights(*given)
        assert [bool(a) and not w for w, a in zip(weights, advantage, strict=True)] == clips


def test_the_metrics_compare_with_the_sampling_policy(small: Learner) -> None:
    [datum] = some_datums(1)
    [lp] = small.forward([datum])
    given = Datum(datum.prompt, datum.output, [v - 0.5 for v in lp], 1.0, datum.temperature)
    metrics = small.forward_backward([given], "importance_sampling", {})
    assert metrics["kl_sample_train"] == pytest.approx(-0.5, abs=1e-5)
    assert metrics["ratio_max"] == pytest.approx(np.exp(0.5), rel=1e-5)
    for loss_fn, config in CONFIG_DEFAULTS.items():  # a ratio of 1.65 is outside of .8 – 1.2
        assert small.forward_backward([given], loss_fn, config)["ratio_outside"] == 1.0
    wide = {"clip_low_threshold": 0.5, "clip_high_threshold": 2.0}
    assert small.forward_backward([given], "ppo", wide)["ratio_outside"] == 0.0
    assert metrics["loss:sum"] == pytest.approx(-len(lp) * np.exp(0.5), rel=1e-5)
    assert 0 < metrics["entropy"] < np.log(SMALL.vocabulary)


@pytest.mark.parametrize(
    ("loss_fn", "config", "word"),
    [
        ("gspo", {}, "unknown loss"),
        ("importance_sampling", {"beta": 0.1}, "beta"),
        ("ppo", {"clip_low_threshold": float("nan")}, "finite"),
        ("cispo", {"clip_low_threshold": 1.3}, "exceed"),
        ("dro", {"beta": -1.0}, "beta"),
    ],
)
def test_a_wrong_loss_or_config_is_named(loss_fn: str, config: dict[str, float], word: str) -> None:
    with pytest.raises(EngineError, match=word):
        loss_config(loss_fn, config)


def test_what_is_said_twice_is_read_once_and_counted_twice(
    small: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = some_datums(2, logprob=-4.0)
    again = replace(one, logprobs=[-5.0] * len(one.output))
    apart = [small.measure([datum], {}) for datum in (one, two, again)]
    read: list[int] = []
    known = training.logprobs

    def counted(weights: Weights, config: Config, datums: list[Datum]) -> object:
        read.append(len(datums))
        return known(weights, config, datums)

    monkeypatch.setattr(training, "logprobs", counted)
    together = small.measure([one, two, again], {})
    assert read == [2]
    assert together == pytest.approx(merge(apart), abs=1e-5)
    most = max(part["ratio_max"] for part in apart)
    assert together["ratio_max"] == pytest.approx(most, rel=1e-5), "a BLAS rounds by the batch"


def conversation(seed: int, turns: int, opening: list[int]) -> list[Datum]:
    """Turns that continue one another, with one weight each."""
    random, prompt, datums = np.random.default_rng(seed), [*opening], []
    for _ in range(turns):
        output = random.integers(20, 300, 3).tolist()
        datums.append(Datum(prompt, output, advantage=float(random.standard_normal())))
        prompt = [*prompt, *output, *random.integers(20, 300, 4).tolist()]
    return datums


def test_turns_of_one_conversation_are_one_sequence() -> None:
    opening = [30, 31, 32]
    first, second = conversation(1, 4, opening), conversation(2, 3, opening)
    alone = Datum([50, 51], [7, 8])
    datums = [first[2], second[0], first[0], alone, second[2], first[3], second[1], first[1]]
    found = parts.conversations(datums)
    assert sorted(found.values()) == [[1, 6, 4], [2, 7, 0, 5], [3]]
    assert all(turns[-1] == last for last, turns in found.items())
    twice = [Datum([30], [40]), Datum([30], [40]), Datum([30, 40, 50], [60])]
    assert sorted(parts.conversations(twice).values()) == [[0], [1, 2]], "they say the same"
    within = [Datum([30], [40, 41]), Datum([30, 40], [41, 42])]
    assert sorted(parts.conversations(within).values()) == [[0], [1]]


def test_a_shared_sequence_has_the_gradients_of_its_turns() -> None:
    double = {name: weight.astype(np.float64) for name, weight in initial(LONG, seed=7).items()}
    datums = [*conversation(1, 4, [30]), *conversation(2, 3, [30]), Datum([50], [7], advantage=2)]

    def weigher(of: list[Datum]) -> training.Weigh:
        each = [[datum.advantage] * len(datum.output) for datum in of]
        return lambda chunk, lp: training.flat(chunk, each)

    together, entropy = training.gradients(double, LONG, datums, weigher(datums))
    parts = [training.gradients(double, LONG, [datum], weigher([datum])) for datum in datums]
    assert together is not None
    assert entropy == pytest.approx(sum(part for _, part in parts))
    for name, grad in together.items():
        apart = sum(part[name] for part, _ in parts if part is not None)
        assert grad == pytest.approx(apart, abs=1e-9), name
    shared = training.logprobs(double, LONG, datums)[0]
    for datum, row in zip(datums, shared, strict=True):
        assert row == pytest.approx(training.logprobs(double, LONG, [datum])[0][0], abs=1e-9)
