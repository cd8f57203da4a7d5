"""Failures: what an exception of the SDK means for a policy, in words for who trains.

A refusal changed nothing. After anything else that may have reached a training run its
state is not known: the policy is lost, and what was saved last is opened again.
"""

import re
from collections.abc import Mapping
from typing import Any

from hud_tui.service.engines.base import EngineError, EngineRefused, PolicyLost, StateGone

LONGEST = 400
"""Characters of a server's own words."""
GONE = re.compile(r"\b(?:model|session)\b.*\bnot (?:loaded|found)\b", re.IGNORECASE)
"""How servers say that they know a run no more."""


def explain(error: BaseException, server: str) -> EngineError:
    """The engine's error for an exception of the SDK, `server` being the URL."""
    if isinstance(error, EngineError):
        return error
    cause = error if _status(error) is not None else error.__cause__
    status = _status(cause)
    said = detail(cause if cause is not None and status is not None else error)
    if "corrupt" in said.casefold():
        return PolicyLost(f"{server} says that the run is corrupted: {said}")
    if status is None:
        return _without_status(error, said, server)
    if GONE.search(said):
        return PolicyLost(f"{server} lost the training run ({said})")
    if status in (400, 422):
        return _refused(said, server)
    if status >= 500:
        return PolicyLost(f"{server} failed ({status}): {said}")
    return _STATUSES.get(status, _other)(said, server)


def detail(error: BaseException) -> str:
    """The server's own words, on one line."""
    body = getattr(error, "body", None)
    found = body.get("detail", body) if isinstance(body, Mapping) else None
    if isinstance(found, list):
        found = "; ".join(_misfit(one) for one in found)
    text = str(found or error)
    return " ".join(text.split())[:LONGEST]


def _misfit(one: Any) -> str:
    if not isinstance(one, Mapping):
        return str(one)
    place = ".".join(str(part) for part in one.get("loc", ()))
    return f"{place}: {one.get('msg', '')}"


def _status(error: BaseException | None) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _without_status(error: BaseException, said: str, server: str) -> EngineError:
    name = type(error).__name__
    if str(getattr(error, "category", "")).casefold().endswith("user"):
        return _refused(said, server)
    if name in ("APIConnectionError", "APITimeoutError"):
        return PolicyLost(f"{server} does not answer")
    if name == "TinkerError" and "api" in said.casefold():
        return EngineError(f"the key does not look like Tinker's: set TINKER_API_KEY ({said})")
    return PolicyLost(f"{server}: {name}: {said}")


def _refused(said: str, server: str) -> EngineError:
    if "lora adapters" in said.casefold():
        return EngineError(
            f"every adapter slot of {server} is taken ({said}): roll fewer models at once, or start"
            " it with more. Slots of programs that ended come free after some minutes"
        )
    return EngineRefused(said)


def _other(said: str, server: str) -> EngineError:
    return PolicyLost(f"{server}: {said}")


def _key(said: str, server: str) -> EngineError:
    return EngineError(f"{server} refused the key: set TINKER_API_KEY to one it takes ({said})")


def _billing(said: str, server: str) -> EngineError:
    return EngineError(f"{server} asks for payment (402): settle it, then resume the run ({said})")


def _gone(said: str, server: str) -> EngineError:
    if not any(word in said.casefold() for word in ("checkpoint", "weights", "expired")):
        return EngineError(f"{server}: {said} (404)")
    return StateGone(f"{server} no longer has this checkpoint ({said}): choose one that is kept")


def _busy(said: str, server: str) -> EngineError:
    return EngineError(f"{server} takes no more requests now (429): resume the run later ({said})")


_STATUSES = {401: _key, 402: _billing, 403: _key, 404: _gone, 429: _busy}
