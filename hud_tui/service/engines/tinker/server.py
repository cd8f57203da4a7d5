"""Server: the worker's connection to Tinker, or to a server with the same API.

`tinker` is imported here only, in a thread, with the first request.
"""

import asyncio
import json
import logging
import os
import re
import urllib.request
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from hud_tui.patience import Patience
from hud_tui.service.engines.base import EngineError, EngineRefused, PolicyLost, StateGone
from hud_tui.service.engines.tinker.link import ANSWER_S, PROBE_S, Presence

# Failures: what an exception of the SDK means for a policy, in words for the user.
#
# A refused request changed nothing. After any other failure that may have reached a training run,
# its state is unknown: the policy is lost, and the last saved state is opened again.


LONGEST = 400
"""Most characters shown of a server's message."""
GONE = re.compile(r"\b(?:model|session)\b.*\bnot (?:loaded|found)\b", re.IGNORECASE)
"""How servers say that they do not know a run any more."""


def explain(error: BaseException, server: str) -> EngineError:
    """The engine's error for an exception of the SDK; `server` is the URL."""
    if isinstance(error, EngineError):
        return error
    cause = error if _status(error) is not None else error.__cause__
    status = _status(cause)
    answer = detail(cause if cause is not None and status is not None else error)
    if "corrupt" in answer.casefold():
        return PolicyLost(f"{server} says that the run is corrupted: {answer}")
    if status is None:
        return _without_status(error, answer, server)
    if GONE.search(answer):
        return PolicyLost(f"{server} lost the training run ({answer})")
    if status in (400, 422):
        return _refused(answer, server)
    if status >= 500:
        return PolicyLost(f"{server} failed ({status}): {answer}")
    if status == 404:
        return _gone(answer, server)
    kind, message = _STATUSES.get(status, (PolicyLost, "{server}: {answer}"))
    return kind(message.format(server=server, answer=answer))


def detail(error: BaseException) -> str:
    """The server's own message, in one line."""
    body = getattr(error, "body", None)
    reason = body.get("detail", body) if isinstance(body, Mapping) else None
    if isinstance(reason, list):
        reason = "; ".join(_misfit(fault) for fault in reason)
    text = str(reason or error)
    return " ".join(text.split())[:LONGEST]


def _misfit(fault: Any) -> str:
    if not isinstance(fault, Mapping):
        return str(fault)
    where = ".".join(str(part) for part in fault.get("loc", ()))
    return f"{where}: {fault.get('msg', '')}"


def _status(error: BaseException | None) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _without_status(error: BaseException, answer: str, server: str) -> EngineError:
    name = type(error).__name__
    if str(getattr(error, "category", "")).casefold().endswith("user"):
        return _refused(answer, server)
    if name in ("APIConnectionError", "APITimeoutError"):
        return PolicyLost(f"{server} does not answer")
    if name == "TinkerError" and "api" in answer.casefold():
        return EngineError(f"the key does not look like Tinker's: set TINKER_API_KEY ({answer})")
    return PolicyLost(f"{server}: {name}: {answer}")


def _refused(answer: str, server: str) -> EngineError:
    if "lora adapters" in answer.casefold():
        return EngineError(
            f"every adapter slot of {server} is taken ({answer}): run fewer models at once, or"
            " start it with more. Slots of programs that ended come free after some minutes"
        )
    return EngineRefused(answer)


def _gone(answer: str, server: str) -> EngineError:
    if not any(word in answer.casefold() for word in ("checkpoint", "weights", "expired")):
        return EngineError(f"{server}: {answer} (404)")
    return StateGone(f"{server} no longer has this checkpoint ({answer}): choose one that is kept")


_KEY = "{server} refused the key: set TINKER_API_KEY to one it takes ({answer})"
_STATUSES: dict[int, tuple[type[EngineError], str]] = {
    401: (EngineError, _KEY),
    402: (
        EngineError,
        "{server} asks for payment (402): settle it, then resume the run ({answer})",
    ),
    403: (EngineError, _KEY),
    429: (
        EngineError,
        "{server} takes no more requests now (429): resume the run later ({answer})",
    ),
}


# Calls: the SDK's requests, each with a time limit.
#
# The SDK polls for ever. Here a call is given up when the server stops answering, or takes too long
# without saying that its queue is paused.


CALL_S = 600.0
"""Longest time of a call while its queue moves, seconds."""
PAUSED_S = 2 * 3600.0
"""Longest time of a call while the server says that it is paused, seconds."""
AWAY_S = 15.0
"""Seconds without any answer of the server after which a call is given up."""
THREADS = 64


class Calls:
    def __init__(
        self,
        url: str,
        presence: Presence,
        paused: Callable[[], str | None],
        idle: Callable[[], object],
    ) -> None:
        """
        Args:
            url: The server's.
            presence: Whether it answers.
            paused: Why the queue is held up; None while it moves.
            idle: Called when no request is in progress any more.
        """
        self._url = url
        self._presence = presence
        self._paused = paused
        self._idle = idle
        self._under_way = 0
        self._threads = ThreadPoolExecutor(THREADS, "tinker")

    async def __call__(self, submit: Callable[[], Any], limit_s: float = CALL_S) -> Any:
        """Submit a request and await its result.

        Args:
            submit: Calls the SDK, which may block; returns the SDK's future, or a value.
            limit_s: Time limit, seconds.

        Raises:
            EngineError: As `explain` says; PolicyLost if the outcome is unknown.
        """
        self._under_way += 1
        try:
            await self._presence.wait()
            result = await self._bounded(submit, limit_s)
        finally:
            self._under_way -= 1
            if self._under_way == 0:
                self._idle()
        self._presence.observe()
        return result

    async def _bounded(self, submit: Callable[[], Any], limit_s: float) -> Any:
        task = asyncio.ensure_future(self._result(submit))
        try:
            await self._until_done(task, limit_s)
            return task.result()
        except BaseException as error:
            task.cancel()
            if isinstance(error, Exception):
                raise explain(error, self._url) from error
            raise

    async def _until_done(self, task: asyncio.Task[Any], limit_s: float) -> None:
        silence, wait = Patience(AWAY_S, PROBE_S + ANSWER_S), Patience(look_s=PROBE_S + ANSWER_S)
        while not (await asyncio.wait({task}, timeout=PROBE_S))[0]:
            if await self._presence.check():
                silence.renew()
            elif silence.is_over():
                raise PolicyLost(f"{self._url} stopped answering in the middle of a call")
            waited_s = wait.count()
            if waited_s > (PAUSED_S if self._paused() else limit_s):
                why = self._paused() or "no reason was given"
                took = f"{waited_s:.0f} s"
                raise PolicyLost(f"{self._url} did not finish a call in {took} ({why})")

    async def _result(self, submit: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        pending = await loop.run_in_executor(self._threads, submit)
        future = getattr(pending, "future", None)
        if callable(future):
            inner = future()
            if isinstance(inner, Future):
                return await asyncio.wrap_future(inner)
        if hasattr(pending, "result"):
            return await loop.run_in_executor(self._threads, lambda: pending.result(PAUSED_S))
        return pending


# Pauses: the SDK waits silently while a queue is paused; this finds out why.


Hold = Callable[[Hashable, str | None], object]
"""Called with who waits, and for what, in plain words; None when it is over."""
WORDS = {
    "paused_capacity": "paused: the server is short of capacity",
    "paused_rate_limit": "paused: too many training runs at once",
}
ANSWERS = {
    402: "paused: the server asks for payment (402)",
    429: "paused: the server takes no more requests for now (429)",
}
"""Statuses after which the SDK retries, for minutes or an hour."""
BILLING = "paused due to billing"
"""Part of the SDK's log message on 402, before the answer's body in Python's notation."""
DETAIL = re.compile(r"""['"](?:detail|message)['"]: (['"])(.{1,200}?)\1""")


class Pauses:
    """What requests wait for, by request."""

    def __init__(self, report: Callable[[str | None], object]) -> None:
        """`report`: called with the newest pause; None if there is none."""
        self._report = report
        self._held: dict[Hashable, str] = {}

    def hold(self, who: Hashable, why: str | None) -> None:
        """Record what a request waits for; None when it is over."""
        self._held.pop(who, None)
        if why is not None:
            self._held[who] = why
        self._report(next(reversed(self._held.values()), None))

    def clear(self) -> None:
        """Forget all pauses: no request is in progress."""
        self._held.clear()
        self._report(None)


def listen(hold: Hold) -> None:
    """Report pauses, and their end, from the SDK's own threads."""
    listener = _LogListener(hold)
    logging.getLogger("tinker").addHandler(listener)
    requests = logging.getLogger("httpx")
    requests.addHandler(listener)
    requests.setLevel(logging.INFO)
    requests.propagate = False
    try:
        lib = sdk().lib
        sampling = lib.public_interfaces.sampling_client.SamplingClient
        queue = lib.queue_state_logger.QueueStateLogger
    except AttributeError:  # in other versions of the SDK only its log is available
        return

    def observe(self: Any, state: Any, reason: str | None = None) -> None:
        hold(id(self), _words(str(getattr(state, "value", state)), reason))

    for kind in (queue, sampling):
        if hasattr(kind, "on_queue_state_change"):
            kind.on_queue_state_change = observe


class _LogListener(logging.Handler):
    """Log handler for the SDK's retries and for messages about billing."""

    def __init__(self, hold: Hold) -> None:
        super().__init__(logging.INFO)
        self._hold = hold
        self._words = dict(ANSWERS)
        self._refused: dict[str, int] = {}
        """Last retried status by URL."""

    def emit(self, record: logging.LogRecord) -> None:
        # httpx logs method, URL, version, status and phrase of every answer
        if record.name == "httpx" and isinstance(record.args, tuple) and len(record.args) == 5:
            self._answered(str(record.args[1]), record.args[3])
        elif BILLING in (message := record.getMessage()):
            detail = DETAIL.search(message)
            self._words[402] = ANSWERS[402] + (f": {detail[2]}" if detail else "")
            self._hold(402, self._words[402])

    def _answered(self, url: str, status: object) -> None:
        if isinstance(status, int) and status in ANSWERS:
            self._refused[url] = status
            self._hold(status, self._words[status])
        elif (before := self._refused.pop(url, None)) and before not in self._refused.values():
            self._hold(before, None)


def _words(state: str, reason: str | None) -> str | None:
    """Why the queue is paused; None while it moves."""
    if state not in WORDS:
        return None
    return f"{WORDS[state]} ({reason})" if reason else WORDS[state]


SHORT_S = 60.0
"""Time limit of calls that do not queue, seconds."""
CLOSE_S = 5.0
UNLOAD = "/api/v1/unload_model"
"""Releases a run's adapter slot. Not in the SDK; SkyRL, TuFT and Hatchery have it."""


class Server:
    def __init__(self, url: str, keeps_samplers: bool, report: Callable[[dict[str, Any]], None]):
        """`report`: called with the queue's state and the open slots whenever they change."""
        self.url = url
        self.keeps_samplers = keeps_samplers
        self.loads_in_one: bool | None = None
        """Whether a run can be created from a state in one request; None until it was tried."""
        self.averages: bool | None = None
        """Whether its losses are means over tokens and turns instead of sums; None until it was
        seen."""
        self.most_rank: int | None = None
        self._on_change = report
        self._waits_for: str | None = None
        self._slots = 0
        pauses = self._pauses = Pauses(self._wait_for)
        self._presence = Presence(url, partial(pauses.hold, "presence"))
        self.call = Calls(url, self._presence, lambda: self._waits_for, pauses.clear)
        self._importing = asyncio.Lock()
        self._tinker: Any = None
        self._beginning = asyncio.Lock()
        self._sampling: Any = None

    async def tinker(self) -> Any:
        """The SDK's module."""
        async with self._importing:
            if self._tinker is None:
                self._tinker = await asyncio.to_thread(sdk)
                loop = asyncio.get_running_loop()
                hold = self._pauses.hold
                listen(lambda who, why: loop.call_soon_threadsafe(hold, who, why))
        return self._tinker

    def occupied(self, change: int) -> None:
        """Change the number of taken slots."""
        self._slots += change
        self._report()

    async def models(self, patience_s: float) -> list[dict[str, Any]]:
        """The server's models: ``name`` and, if given, ``context``. Waits at most `patience_s`
        seconds for a server that does not answer."""
        await self._presence.wait(patience_s)
        tinker = await self.tinker()

        def ask() -> Any:
            client = tinker.RestClient() if hasattr(tinker, "RestClient") else None
            if client is not None and hasattr(client, "get_server_capabilities"):
                return client.get_server_capabilities()
            return tinker.ServiceClient().get_server_capabilities()

        capabilities = await self.call(ask, SHORT_S)
        return [
            {"name": model.model_name, "context": getattr(model, "max_context_length", None)}
            for model in capabilities.supported_models
            if model.model_name and getattr(model, "trainable", None) is not False
        ]

    async def sampling_service(self) -> Any:
        """The session that all samplers share."""
        tinker = await self.tinker()
        async with self._beginning:
            if self._sampling is None:
                self._sampling = await self.call(tinker.ServiceClient, SHORT_S)
            return self._sampling

    def renew_sampling(self) -> None:
        """Discard the session for samplers, which may be lost; the next sampler opens another."""
        self._sampling = None

    async def has(self, run: str, name: str) -> bool:
        """Whether a run has saved a state under a name. Raises EngineError as `call` does."""
        rest = await self._rest()
        reply = await self.call(lambda: rest.list_checkpoints(run), SHORT_S)
        path = f"tinker://{run}/weights/{name}"
        return any(checkpoint.tinker_path == path for checkpoint in reply.checkpoints)

    async def delete(self, run: str, name: str) -> None:
        """Delete what was saved under a name, if anything was."""
        rest = await self._rest()
        for kind in ("weights", "sampler_weights"):
            checkpoint = f"{kind}/{name}"
            try:
                await self.call(partial(rest.delete_checkpoint, run, checkpoint), SHORT_S)
            except EngineError as error:
                logging.info("%s of %s is not deleted: %s", checkpoint, run, error)

    async def release(self, service: Any, run: str) -> None:
        """Release a training run: its slot and its session."""
        self.occupied(-1)
        if not self.keeps_samplers:
            await asyncio.to_thread(_post, self.url + UNLOAD, {"model_id": run})
        await self.end(service)

    async def end(self, service: Any) -> None:
        """End a session."""
        close = getattr(service, "close", None)
        if close is not None:
            try:
                await asyncio.wait_for(self.call(lambda: close("success"), CLOSE_S), CLOSE_S)
            except Exception as error:  # it ends by itself when its heartbeats stop
                logging.info("a session is not ended: %s", error)

    async def _rest(self) -> Any:
        tinker = await self.tinker()
        if hasattr(tinker, "RestClient"):
            return tinker.RestClient()
        return tinker.ServiceClient().create_rest_client()

    def _wait_for(self, why: str | None) -> None:
        if why != self._waits_for:
            self._waits_for = why
            self._report()

    def _report(self) -> None:
        self._on_change({"queue": self._waits_for or "active", "slots": self._slots})


def sdk() -> Any:
    """The SDK's module. The import takes seconds, so the first call should be in a thread."""
    import tinker

    return tinker


def lacks(error: EngineRefused) -> bool:
    """Whether a server refused a call because it does not have that endpoint."""
    status = getattr(error.__cause__, "status_code", None)
    return status in (400, 422)


def _post(url: str, body: dict[str, Any]) -> None:
    """POST JSON with the key; the outcome is ignored."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("TINKER_API_KEY"):
        headers["X-API-Key"] = key
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=CLOSE_S):
            pass
    except (OSError, ValueError) as error:
        logging.info("%s: %s", url, error)
