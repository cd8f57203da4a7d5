"""What the SDK is asked to sample, and what of its answer is told."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hud_tui.service.engines.base import EngineRefused
from hud_tui.service.engines.tinker.run import sample

tinker = pytest.importorskip("tinker")
ASK = {"prompt": [5], "max_tokens": 4, "temperature": 1.0, "top_p": 0.3, "top_logprobs": 0,
       "seed": 1, "stop": [], "ends": (1,)}  # fmt: skip


class Server:
    """As much of the worker's server as is used: the SDK's module, and calls."""

    async def tinker(self) -> Any:
        return tinker

    async def call(self, submit: Callable[[], Any]) -> Any:
        return submit()


class Run:
    """Samples with one function, as the SDK's client has it."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self.client = SimpleNamespace(sample=answer)

    def sampler(self) -> "Run":
        return self

    async def __aenter__(self) -> Any:
        return self.client

    async def __aexit__(self, *error: object) -> None:
        return None


def sequence(**more: Any) -> Any:
    return SimpleNamespace(
        tokens=[7, 1, 9], logprobs=[-0.1, -0.2, -0.3], stop_reason="stop", **more
    )


async def test_top_p_is_the_sdk_s_own() -> None:
    asked: list[Any] = []

    def answer(prompt: Any, count: int, params: Any) -> Any:
        asked.append(params)
        return SimpleNamespace(sequences=[sequence()] * count)

    [row] = await sample(Server(), Run(answer), [ASK])  # type: ignore[arg-type]
    assert asked[0].top_p == 0.3
    assert row == {"tokens": [7, 1], "logprobs": [-0.1, -0.2], "finish_reason": "stop", "top": []}


async def test_the_likeliest_tokens_are_told_where_the_server_tells_them() -> None:
    told: list[Any] = [[(7, -0.1), (8, -2.0)], [(1, -0.2), (3, -3.0)], [(9, -0.3), (2, -4.0)]]

    def answer(prompt: Any, count: int, params: Any, topk_sample_logprobs: int = 0) -> Any:
        assert topk_sample_logprobs == 2
        return SimpleNamespace(sequences=[sequence(topk_logprobs=told)])

    [row] = await sample(Server(), Run(answer), [{**ASK, "top_logprobs": 2}])  # type: ignore[arg-type]
    assert row["top"] == told[:2]
    for gap in (None, [None, *told[1:]]):
        told_before, told = told, gap  # type: ignore[assignment]
        with pytest.raises(EngineRefused, match="top_logprobs: "):
            await sample(Server(), Run(answer), [{**ASK, "top_logprobs": 2}])  # type: ignore[arg-type]
        told = told_before


async def test_an_sdk_without_them_says_so() -> None:
    def answer(prompt: Any, count: int, params: Any) -> Any:
        raise AssertionError("not asked")

    with pytest.raises(EngineRefused, match="top_logprobs: "):
        await sample(Server(), Run(answer), [{**ASK, "top_logprobs": 1}])  # type: ignore[arg-type]
