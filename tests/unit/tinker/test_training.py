"""Passes and steps as a server answers them, and the journal of steps that were meant."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hud_tui.service.engines.base import Adam, Datum, EngineError, NotFinite, advantages
from hud_tui.service.engines.tinker import training
from hud_tui.service.engines.tinker.link import Pointer, pointed_states, read_pointer, write_pointer
from hud_tui.service.engines.tinker.worker import Intent, Journal

FLAT = Datum([1, 2], [3, 4], [-1.0, -1.0], 0.0)
MOVED = Datum([1, 2], [5], [-2.0], 1.0)
NOW = -1.5
"""What the policy gives every token by now."""


class Server:
    """The SDK's client, and the server behind it: every token has the same logprob."""

    url = "http://trainer:8000"

    def __init__(self) -> None:
        self.averages: bool | None = False
        self.now = NOW
        self.metrics: dict[str, float] = {"loss:sum": -1.0}
        self.stepped: dict[str, float] = {"grad_norm": 2.0}
        self.passed: list[tuple[str, int]] = []
        """Verb and datums of every call."""

    async def call(self, submit: Callable[[], Any], limit_s: float = 0.0) -> Any:
        return submit()

    async def tinker(self) -> Any:
        return SimpleNamespace(types=SimpleNamespace(AdamParams=lambda **given: given))

    def forward(self, data: Sequence[Any], loss_fn: str) -> Any:
        return self._pass("forward", data)

    def forward_backward(self, data: Sequence[Any], loss_fn: str, config: Any) -> Any:
        return self._pass("forward_backward", data)

    def optim_step(self, params: Any) -> Any:
        return SimpleNamespace(metrics=self.stepped)

    def save_state(self, name: str) -> Any:
        return SimpleNamespace(path=f"tinker://run/weights/{name}")

    def save_weights_for_sampler(self, name: str) -> Any:
        return SimpleNamespace(path=f"tinker://run/{name}")

    def _pass(self, verb: str, data: Sequence[Any]) -> Any:
        self.passed.append((verb, len(data)))
        lengths = [len(datum.model_input.to_ints()) for datum in data]
        rows = [np.full(length, self.now) for length in lengths]
        outputs = [{"logprobs": SimpleNamespace(data=row)} for row in rows]
        return SimpleNamespace(loss_fn_outputs=outputs, metrics=self.metrics)


class Run:
    def __init__(self, server: Server) -> None:
        self.turns = 0
        self._server = server

    async def trainer(self) -> Server:
        return self._server

    async def quiet(self) -> None:
        return None

    def accumulated(self, turns: int, moved: bool) -> None:
        self.turns += turns

    def take(self) -> int:
        return self.turns


async def passed(server: Server, run: Run, datums: Sequence[Datum], loss_fn: str) -> dict[str, Any]:
    given: Any = (server, run, datums, advantages(datums))
    if loss_fn == "custom":
        return await training.accumulate(*given, None, {})
    return await training.accumulate(*given, loss_fn, {"beta": 0.05})


@pytest.mark.parametrize("loss_fn", ["importance_sampling", "dro", "cross_entropy", "custom"])
async def test_what_has_no_gradient_is_passed_forward_once_and_counted(loss_fn: str) -> None:
    server = Server()
    run = Run(server)
    figures = await passed(server, run, [FLAT, MOVED, FLAT, replace(FLAT)], loss_fn)
    assert server.passed[0] == ("forward", 1), "three rollouts that said the same"
    assert server.passed[-1] == ("forward_backward", 1)
    assert (run.turns, figures["tokens"], figures["num_tokens"]) == (1, 1.0, 7.0)
    assert figures["entropy"] == pytest.approx(1.5)
    assert figures["kl_sample_train"] == pytest.approx((6 * 0.5 - 0.5) / 7)
    assert figures["trained/kl_sample_train"] == pytest.approx(-0.5)
    assert figures["ratio_outside"] == 1.0, "ratios of .61 and 1.65"
    assert figures["clip_fraction"] == 0.0, "these losses clip none"
    assert figures["server/loss:sum"] == -1.0


async def test_without_any_gradient_nothing_is_accumulated() -> None:
    server = Server()
    run = Run(server)
    figures = await passed(server, run, [FLAT], "ppo")
    assert (server.passed, run.turns, figures["tokens"]) == ([("forward", 1)], 0, 0.0)


async def test_a_pass_or_a_step_that_is_not_finite_is_refused() -> None:
    server = Server()
    server.now = float("nan")
    with pytest.raises(NotFinite, match="set the head to an earlier checkpoint"):
        await passed(server, Run(server), [MOVED], "importance_sampling")
    server.now, server.metrics = NOW, {"loss:sum": float("inf")}
    with pytest.raises(NotFinite, match=r"loss:sum is not finite: lower the learning rate"):
        await passed(server, Run(server), [MOVED], "importance_sampling")

    server = Server()
    given: Any = (server, Run(server))
    stepped = await training.optim_step(*given, Adam(0.1), "hud-1", None)
    assert stepped.metrics["grad_norm"] == 2.0
    server.stepped = {"skyrl.ai/grad_norm": float("nan"), "lr": 0.1}
    with pytest.raises(NotFinite, match=r"skyrl.ai/grad_norm is not finite"):
        await training.optim_step(*given, Adam(0.1), "hud-2", None)


HERE = Pointer("http://t", "local/q", "/models/q", 8, "tinker://run/weights/n1", "tinker://run/n1")


def test_a_pointer_comes_back_as_it_was_written_and_what_is_none_is_no_state(
    tmp_path: Path,
) -> None:
    path = write_pointer(tmp_path, HERE)
    assert read_pointer(path) == HERE
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with pytest.raises(EngineError, match="no such state"):
        read_pointer(tmp_path / "missing.json")
    (tmp_path / "half.json").write_text('{"url": "http')
    with pytest.raises(EngineError, match="not whole"):
        read_pointer(tmp_path / "half.json")

    (tmp_path / "one").mkdir()
    write_pointer(tmp_path / "one", HERE)
    (tmp_path / "empty").mkdir()
    assert pointed_states(tmp_path) == {"tinker://run/weights/n1"}
    with pytest.raises(OSError, match="nowhere"):
        pointed_states(tmp_path / "nowhere")


def test_a_journal_keeps_intents_until_they_are_settled(tmp_path: Path) -> None:
    path, first, second = tmp_path / "intents", Intent("run", "a"), Intent("run", "b")
    journal = Journal(path)
    journal.intend(first)
    journal.intend(second)
    assert journal.take_left() == []
    with path.open("a") as file:
        file.write('{"run": "cut o')
    later = Journal(path)
    assert later.take_left() == [first, second]
    assert later.take_left() == []
    later.settle([first])
    assert Journal(path).take_left() == [second]
