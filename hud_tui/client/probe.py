"""Probing HUD's hosts: one request to each, without retries."""

import asyncio
from dataclasses import dataclass
from time import perf_counter

import httpx

from hud_tui.client.transport import AGENT, error_detail, masked, origin_of, path_of
from hud_tui.rl.text import one_line
from hud_tui.settings import Settings

ANSWER_S, MAX_DETAIL = 8.0, 4096
"""Maximum seconds for one answer, including the connection; maximum bytes read of an error's
body."""


@dataclass(frozen=True)
class Host:
    """A host and its answer. Without an answer `seconds` is None and `detail` is the reason."""

    names: tuple[str, ...]
    """Roles of the host: api, rl, gateway, telemetry, web."""
    url: str
    """The requested URL, without credentials and query."""
    reachable: bool
    status: int | None = None
    seconds: float | None = None
    """From sending to the header of the answer."""
    detail: str = ""

    def __str__(self) -> str:
        answer = f"HTTP {self.status}, {self.seconds:.2f} s" if self.reachable else "no answer"
        return f"{', '.join(self.names)}  {self.url}  {answer}"


async def probe(
    settings: Settings, transport: httpx.AsyncBaseTransport | None = None
) -> list[Host]:
    """Probe all hosts concurrently; the API also validates the key.

    The key is sent to the API only.
    """
    urls = (settings.api_url + "/v2/auth/me", settings.rl_url, settings.gateway_url)
    names = ("api", "rl", "gateway", "telemetry", "web")
    shared: dict[str, list[tuple[str, str]]] = {}
    for name, url in zip(names, (*urls, settings.telemetry_url, settings.web_url), strict=True):
        shared.setdefault(origin_of(url), []).append((name, url))
    async with _any_answer(settings.local, transport) as http:
        asked = (
            _ask(http, tuple(name for name, _ in same), same[0][1], settings.api_key)
            for same in shared.values()
        )
        return await asyncio.gather(*asked)


async def probe_url(name: str, url: str, local: bool) -> Host:
    """Probe one URL without a key; `local` disables proxies."""
    async with _any_answer(local) as http:
        return await _ask(http, (name,), url, "")


def _any_answer(
    local: bool, transport: httpx.AsyncBaseTransport | None = None
) -> httpx.AsyncClient:
    agent = {"User-Agent": AGENT}
    return httpx.AsyncClient(
        transport=transport, timeout=ANSWER_S, trust_env=not local, headers=agent
    )


async def _ask(http: httpx.AsyncClient, names: tuple[str, ...], url: str, key: str) -> Host:
    key = key if "api" in names else ""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    shown, began = origin_of(url) + path_of(url), perf_counter()
    try:
        async with asyncio.timeout(ANSWER_S), http.stream("GET", url, headers=headers) as answer:
            seconds = perf_counter() - began
            detail = await _explained(answer) if key and not answer.is_success else ""
    except TimeoutError:
        return Host(names, shown, False, detail=f"no answer within {ANSWER_S:.0f} s")
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        detail = one_line(error) or type(error).__name__
        return Host(names, shown, False, detail=masked(key, detail))
    return Host(names, shown, True, answer.status_code, seconds, masked(key, detail))


async def _explained(answer: httpx.Response) -> str:
    body = b""
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > MAX_DETAIL:
            break
    return error_detail(body[:MAX_DETAIL], answer.reason_phrase)
