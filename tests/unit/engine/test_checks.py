"""What is refused before it reaches the worker."""

from dataclasses import replace

import pytest

from hud_tui.service.engines import base
from hud_tui.service.engines.base import Adam, Datum, EngineError, SampleRequest

REQUEST = SampleRequest([65, 66], 4)
DATUM = Datum([65], [66, 67], [-1.0, -2.0], 0.5)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"prompt": []}, "prompt is empty"),
        ({"prompt": [128]}, "token 128 is outside"),
        ({"prompt": [65] * 16}, "context_length_exceeded"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"seed": (-1,)}, "negative"),
        ({"stop": ((),)}, "stop sequence is empty"),
        ({"temperature": 0.001}, "temperature must be 0 or 0.01 to 100.0, not 0.001"),
        ({"temperature": float("nan")}, "temperature"),
    ],
)
def test_a_request_that_cannot_be_sampled(change: dict[str, object], word: str) -> None:
    base.check_requests([REQUEST, replace(REQUEST, temperature=0)], 16, 128)
    with pytest.raises(EngineError, match=f"request 1: .*{word}"):
        base.check_requests([REQUEST, replace(REQUEST, **change)], 16, 128)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"prompt": []}, "at least one token"),
        ({"output": [], "logprobs": []}, "at least one token"),
        ({"output": [66, -1]}, "token -1 is outside"),
        ({"prompt": [65] * 15}, "exceed the context"),
        ({"logprobs": []}, "0 logprobs for 2"),
        ({"logprobs": [-1.0, float("inf")]}, "finite"),
        ({"advantage": float("nan")}, "finite"),
        ({"temperature": 0.0}, "temperature"),
    ],
)
def test_a_datum_that_cannot_be_trained_on(change: dict[str, object], word: str) -> None:
    base.check_datums([DATUM], 16, 128, ratios=True)
    base.check_datums([replace(DATUM, logprobs=())], 16, 128, ratios=False)  # for cross-entropy
    with pytest.raises(EngineError, match=f"datum 1: .*{word}"):
        base.check_datums([DATUM, replace(DATUM, **change)], 16, 128, ratios=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("weights", [[], [[1.0]], [[1.0, float("nan")]]])
def test_weights_that_do_not_fit(weights: list[list[float]]) -> None:
    with pytest.raises(EngineError, match="weights must"):
        base.check_weights(weights, [DATUM])


@pytest.mark.parametrize(
    "change",
    [{"learning_rate": 0.0}, {"beta1": 1.0}, {"eps": float("inf")}, {"weight_decay": -0.1}],
)
def test_an_optimizer_setting_that_makes_no_sense(change: dict[str, float]) -> None:
    base.check_adam(Adam(1e-3))
    with pytest.raises(EngineError, match=next(iter(change))):
        base.check_adam(replace(Adam(1e-3), **change))
