"""Each layer's backward against finite differences, in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hud_tui.service.engines.tiny import model
from hud_tui.service.engines.tiny.model import Config, backward, forward, initial, turns, zeros
from tests.unit.engine.conftest import LONG, SMALL

Floats = NDArray[np.float64]
BATCH, LENGTH, WIDTH, HEADS = 2, 5, 8, 2
ROWS = BATCH * LENGTH


def normal(*shape: int) -> Floats:
    return np.random.default_rng(shape).standard_normal(shape)


def attend(x: Floats, qkv: Floats, out: Floats) -> tuple[Any, model.Tape]:
    return model.attention(x, qkv, out, BATCH, HEADS)


def attend_turned(x: Floats, qkv: Floats, out: Floats) -> tuple[Any, model.Tape]:
    config = Config(width=WIDTH, heads=HEADS, context=LENGTH, rotary=True)
    return model.attention(x, qkv, out, BATCH, HEADS, turns(config).astype(np.float64))


LAYERS: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[Floats]]] = {
    "rms_norm": (model.rms_norm, model.rms_norm_backward, [normal(ROWS, WIDTH), normal(WIDTH)]),
    "attention": (
        attend,
        model.attention_backward,
        [normal(ROWS, WIDTH), normal(WIDTH, 3 * WIDTH), normal(WIDTH, WIDTH)],
    ),
    "attention at rotary positions": (
        attend_turned,
        model.attention_backward,
        [normal(ROWS, WIDTH), normal(WIDTH, 3 * WIDTH), normal(WIDTH, WIDTH)],
    ),
    "feed_forward": (
        model.feed_forward,
        model.feed_forward_backward,
        [normal(ROWS, WIDTH), normal(WIDTH, 4 * WIDTH), normal(4 * WIDTH, WIDTH)],
    ),
}


def slope(cost: Callable[[Floats], float], at: Floats, along: Floats) -> float:
    """Central difference of cost at a point along a direction."""
    step = 1e-6
    return (cost(at + step * along) - cost(at - step * along)) / (2 * step)


@pytest.mark.parametrize("block", [model.BLOCK, 2])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_s_gradient_is_that_of_finite_differences(
    name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "BLOCK", block)
    layer, layer_backward, inputs = LAYERS[name]
    out, tape = layer(*inputs)
    d_out = normal(*out.shape)
    for place, grad in enumerate(layer_backward(d_out.copy(), tape)):

        def cost(moved: Floats, place: int = place) -> float:
            given = [*inputs[:place], moved, *inputs[place + 1 :]]
            return float((layer(*given)[0] * d_out).sum())

        along = np.random.default_rng(place).standard_normal(inputs[place].shape)
        assert (grad * along).sum() == pytest.approx(slope(cost, inputs[place], along), rel=1e-5)


@pytest.mark.parametrize(("config", "block"), [(SMALL, model.BLOCK), (LONG, 4)])
def test_every_weight_s_gradient_is_that_of_finite_differences(
    config: Config, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "BLOCK", block)
    double = {name: weight.astype(np.float64) for name, weight in initial(config, seed=7).items()}
    tokens = np.random.default_rng(0).integers(0, config.vocabulary, (3, 6))
    rows, offsets = np.array([1, 5, 8, 9, 17]), np.array([0, 4, 26])
    logits, tape = forward(double, config, tokens, rows, offsets)
    d_logits = normal(*logits.shape)
    grads = zeros(double)
    backward(double, d_logits, tape, grads)
    for name, grad in grads.items():

        def cost(moved: Floats, name: str = name) -> float:
            moved_logits, _ = forward({**double, name: moved}, config, tokens, rows, offsets)
            return float((moved_logits * d_logits).sum())

        along = np.random.default_rng(1).standard_normal(grad.shape)
        wanted = slope(cost, double[name], along)
        assert (grad * along).sum() == pytest.approx(wanted, rel=1e-4), name


def test_looking_in_blocks_is_looking_at_once_and_never_at_what_comes_after(
    monkeypatch: pytest.MonkeyPatch, double: dict[str, Floats]
) -> None:
    x, qkv, out = normal(ROWS, WIDTH), normal(WIDTH, 3 * WIDTH), normal(WIDTH, WIDTH)
    at_once, _ = attend_turned(x, qkv, out)
    for block in (1, 2, 3, 4):
        monkeypatch.setattr(model, "BLOCK", block)
        assert attend_turned(x, qkv, out)[0] == pytest.approx(at_once, abs=1e-12)

    tokens = np.arange(40, 46)[None]
    changed = tokens.copy()
    changed[0, 4:] = 99
    before = np.arange(4)
    assert np.array_equal(
        forward(double, SMALL, tokens, before)[0], forward(double, SMALL, changed, before)[0]
    )


def test_rotary_positions_only_tell_how_far_apart_two_tokens_are() -> None:
    turn = turns(LONG).astype(np.float64)
    q, k = normal(1, 8), normal(8, 1).T
    scores = []
    for start in (0, 90, 500):
        first, second = q.copy(), k.copy()
        model.rotate(first, turn[:, [start]])
        model.rotate(second, turn[:, [start + 7]])
        scores.append(float((first * second).sum()))
    assert scores == pytest.approx([scores[0]] * 3, rel=1e-4)


@pytest.mark.parametrize("length", [1, 2, 3, 25, model.SHORT, model.SHORT + 1])
def test_the_highest_of_each_row(length: int) -> None:
    """Of short rows by windows over all of them, which must not reach into the next one."""
    scores = np.random.default_rng(length).standard_normal((4, 3, length)).astype(np.float32)
    scores[1, 1, -1], scores[2, 0, 0], scores[3] = np.nan, np.inf, -np.inf
    expected = scores.max(axis=-1, keepdims=True)
    np.testing.assert_array_equal(model.highest(scores), expected)
    np.testing.assert_array_equal(model.highest(scores[:, ::2]), expected[:, ::2])
