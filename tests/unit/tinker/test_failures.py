"""What a server's failures mean, in words that say what to do next."""

from typing import Any

import pytest

from hud_tui.service.engines.base import EngineError, EngineRefused, PolicyLost, StateGone
from hud_tui.service.engines.tinker.server import explain

URL = "http://trainer"


class StatusError(Exception):
    """As the SDK's: a status, and the answer's body."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(f"Error code: {status}")
        self.status_code = status
        self.body = {"detail": detail}


class APIConnectionError(Exception):
    """By the SDK's name."""


class RequestFailedError(Exception):
    def __init__(self, message: str, category: str) -> None:
        super().__init__(message)
        self.category = category


def polled(status: int, detail: str) -> ValueError:
    """As the SDK raises what it met while it polled."""
    error = ValueError(f"Error retrieving result: {detail}")
    error.__cause__ = StatusError(status, detail)
    return error


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (StatusError(401, "bad key"), EngineError, "set TINKER_API_KEY"),
        (StatusError(402, "no funds"), EngineError, "asks for payment"),
        (StatusError(429, "slow down"), EngineError, "takes no more requests now"),
        (StatusError(404, "Checkpoint not found: r/n"), StateGone, "no longer has this checkpoint"),
        (StatusError(404, "Not Found"), EngineError, "404"),
        (StatusError(404, "Session not found"), PolicyLost, "lost the training run"),
        (StatusError(409, "Checkpoint exists"), PolicyLost, "exists"),
        (StatusError(422, [{"loc": ["a", "b"], "msg": "no such loss"}]), EngineRefused, "a.b: no"),
        (StatusError(500, "boom"), PolicyLost, "failed \\(500\\): boom"),
        (polled(400, "Model model_1f not loaded"), PolicyLost, "lost the training run"),
        (polled(404, "Model not found"), PolicyLost, "lost the training run"),
        (polled(400, "Maximum number of LoRA adapters (2)"), EngineError, "every adapter slot"),
        (polled(400, "LoRA rank 32 must be between"), EngineRefused, "rank 32"),
        (APIConnectionError("x"), PolicyLost, "does not answer"),
        (RequestFailedError("bad input", "user"), EngineRefused, "bad input"),
        (RequestFailedError("model is corrupted", "server"), PolicyLost, "corrupted"),
        (RequestFailedError("model is corrupted", "user"), PolicyLost, "run is corrupted"),
        (polled(400, "Model m_1 is corrupted"), PolicyLost, "run is corrupted"),
        (KeyError("x"), PolicyLost, "KeyError"),
    ],
)
def test_each_failure_has_its_kind(error: Exception, kind: type[EngineError], told: str) -> None:
    with pytest.raises(EngineError, match=told) as found:
        raise explain(error, URL)
    assert type(found.value) is kind


def test_a_server_s_words_stay_on_one_line_and_short() -> None:
    said = str(explain(StatusError(422, "x\n" * 2000), URL))
    assert "\n" not in said
    assert len(said) < 600
