"""Each loss: its gradient, its bounds, and what it must not see."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from hud_tui.service.engines.base import (
    CONFIG_DEFAULTS,
    LOSSES,
    Datum,
    EngineError,
    loss_config,
    merge,
)
from hud_tui.service.engines.tiny import training
from hud_tui.service.engines.tiny.model import Config, Weights, initial
from hud_tui.service.engines.tiny.training import RESIDUE, token_weights
from hud_tui.service.engines.tiny.worker import Learner
from tests.unit.engine.conftest import LONG, SMALL, distance, some_datums

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
    lp, q, none = np.array([-1.0, RESIDUE / 2]), np.array([-3.0, 0.0]), np.zeros(2)
    w, cost = token_weights("dro", {"beta": 0.5}, lp, q, none)
    assert cost == pytest.approx([0.5 / 2 * 2.0**2, 0.0])
    assert w == pytest.approx([-0.5 * 2.0, 0.0])


@pytest.mark.parametrize("loss_fn", LOSSES)
def test_backward_with_a_loss_s_weights_reproduces_it(loss_fn: str, small: Learner) -> None:
    datums, config = some_datums(9, logprob=-4.9), loss_config(loss_fn, None)
    built_in = small.forward_backward(datums, loss_fn, config)
    wanted, small.grads = small.grads, None
    weights = [
        token_weights(
            loss_fn,
            config,
            np.array(lp),
            np.array(datum.logprobs),
            np.full(len(lp), datum.advantage),
        )[0].tolist()
        for datum, lp in zip(datums, small.forward(datums), strict=True)
    ]
    by_hand = small.backward(datums, weights)
    assert wanted is not None
    assert small.grads is not None
    assert all(np.array_equal(wanted[name], small.grads[name]) for name in wanted)
    assert by_hand["entropy"] == built_in["entropy"]
    assert by_hand["num_tokens"] == sum(len(datum.output) for datum in datums)


def test_on_policy_the_policy_losses_weigh_alike_and_ppo_stops_where_it_moved_enough() -> None:
    lp, advantage = np.array([-1.0, -0.2, -3.0]), np.array([0.5, -0.5, 0.0])
    for loss_fn in ("importance_sampling", "ppo", "cispo", "dro"):
        w, _ = token_weights(loss_fn, CONFIG_DEFAULTS[loss_fn], lp, lp, advantage)
        assert w.tolist() == advantage.tolist()

    q = np.full(4, -1.0)
    lp = q + np.log([1.5, 1.5, 0.5, 0.5])
    w, _ = token_weights("ppo", CONFIG_DEFAULTS["ppo"], lp, q, np.array([1.0, -1.0, 1.0, -1.0]))
    assert w == pytest.approx([0.0, -1.5, 0.5, 0.0])


def test_the_metrics_compare_with_the_sampling_policy(small: Learner) -> None:
    [datum] = some_datums(1)
    [lp] = small.forward([datum])
    given = Datum(datum.prompt, datum.output, [v - 0.5 for v in lp], 1.0, datum.temperature)
    metrics = small.forward_backward([given], "importance_sampling", {})
    assert metrics["kl_sample_train"] == pytest.approx(-0.5, abs=1e-5)
    assert metrics["ratio_max"] == pytest.approx(np.exp(0.5), rel=1e-5)
    for loss_fn, config in CONFIG_DEFAULTS.items():  # a ratio of 1.65 is outside of .8 – 1.2
        assert small.forward_backward([given], loss_fn, config)["clip_fraction"] == 1.0
    wide = {"clip_low_threshold": 0.5, "clip_high_threshold": 2.0}
    assert small.forward_backward([given], "ppo", wide)["clip_fraction"] == 0.0
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


def test_five_passes_of_eight_equal_one_of_forty(small: Learner) -> None:
    datums = some_datums(40, logprob=-4.9)
    small.forward_backward(datums, "importance_sampling", {})
    whole, small.grads = small.grads, None
    for start in range(0, 40, 8):
        small.forward_backward(datums[start : start + 8], "importance_sampling", {})
    assert whole is not None
    assert small.grads is not None
    assert distance(whole, small.grads) < 1e-6


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
    assert together["ratio_max"] == max(part["ratio_max"] for part in apart)


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
    found = training.conversations(datums)
    assert sorted(found.values()) == [[1, 6, 4], [2, 7, 0, 5], [3]]
    assert all(turns[-1] == last for last, turns in found.items())
    twice = [Datum([30], [40]), Datum([30], [40]), Datum([30, 40, 50], [60])]
    assert sorted(training.conversations(twice).values()) == [[0], [1, 2]], "they say the same"
    within = [Datum([30], [40, 41]), Datum([30, 40], [41, 42])]
    assert sorted(training.conversations(within).values()) == [[0], [1]]


def test_a_shared_sequence_has_the_gradients_of_its_turns() -> None:
    double = {name: weight.astype(np.float64) for name, weight in initial(LONG, seed=7).items()}
    datums = [*conversation(1, 4, [30]), *conversation(2, 3, [30]), Datum([50], [7], advantage=2)]

    def weigher(of: list[Datum]) -> training.Weigh:
        each = [[datum.advantage] * len(datum.output) for datum in of]
        return lambda chunk, lp: training.flat(chunk, each)

    together, entropy = training.gradients(double, LONG, datums, weigher(datums))
    parts = [training.gradients(double, LONG, [one], weigher([one])) for one in datums]
    assert together is not None
    assert entropy == pytest.approx(sum(part for _, part in parts))
    for name, grad in together.items():
        apart = sum(part[name] for part, _ in parts if part is not None)
        assert grad == pytest.approx(apart, abs=1e-9), name
    shared = training.logprobs(double, LONG, datums)[0]
    for datum, row in zip(datums, shared, strict=True):
        assert row == pytest.approx(training.logprobs(double, LONG, [datum])[0][0], abs=1e-9)
