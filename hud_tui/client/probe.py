"""Whether HUD's hosts answer, and how soon; one request to each, none of them repeated."""

import asyncio
from time import perf_counter
from urllib.parse import urlsplit, urlunsplit

import httpx

from hud_tui.client.transport import error_detail
from hud_tui.doctor import Host
from hud_tui.rl.text import one_line
from hud_tui.settings import Settings, local_settings

ANSWER_S = 8.0
"""Longest wait for one answer, connecting included."""
MAX_DETAIL = 4096
"""Bytes of an error's body that are read."""
IDENTITY = "/v2/auth/me"


async def probe(
    settings: Settings, transport: httpx.AsyncBaseTransport | None = None
) -> list[Host]:
    """Ask every host at once: the API whose key this is, the others for any answer at all.

    The key goes to the API only; without one, that too is asked for any answer.
    """
    async with httpx.AsyncClient(
        transport=transport,
        timeout=ANSWER_S,
        trust_env=not settings.local,
        headers={"User-Agent": "hud-tui"},
    ) as http:
        asked = [_ask(http, names, url, settings) for url, names in _hosts(settings).items()]
        return await asyncio.gather(*asked)


async def probe_url(name: str, url: str, local: bool) -> Host:
    """Ask one address for any answer at all, without a key; `local`: past any proxy."""
    settings = local_settings(url, "", url)
    async with httpx.AsyncClient(timeout=ANSWER_S, trust_env=not local) as http:
        return await _ask(http, (name,), url, settings)


def _hosts(settings: Settings) -> dict[str, tuple[str, ...]]:
    """URL → the names that share its origin; the API's own first."""
    named = {
        "api": settings.api_url + IDENTITY,
        "rl": settings.rl_url,
        "gateway": settings.gateway_url,
        "telemetry": settings.telemetry_url,
        "web": settings.web_url,
    }
    urls: dict[tuple[str, str], str] = {}
    found: dict[str, tuple[str, ...]] = {}
    for name, url in named.items():
        parts = urlsplit(url)
        first = urls.setdefault((parts.scheme, parts.netloc), url)
        found[first] = (*found.get(first, ()), name)
    return found


async def _ask(
    http: httpx.AsyncClient, names: tuple[str, ...], url: str, settings: Settings
) -> Host:
    key = settings.api_key if "api" in names else ""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    shown = shown_url(url)
    began = perf_counter()
    try:
        async with (
            asyncio.timeout(ANSWER_S),
            http.stream("GET", url, headers=headers) as answer,
        ):
            seconds = perf_counter() - began
            detail = await _detail(answer) if key and not answer.is_success else ""
    except TimeoutError:
        return Host(names, shown, False, detail=f"no answer within {ANSWER_S:.0f} s")
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        return Host(
            names, shown, False, detail=_without(key, one_line(error) or type(error).__name__)
        )
    return Host(names, shown, True, answer.status_code, seconds, _without(key, detail))


async def _detail(answer: httpx.Response) -> str:
    body = b""
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > MAX_DETAIL:
            break
    return error_detail(body[:MAX_DETAIL], answer.reason_phrase)


def shown_url(url: str) -> str:
    """A URL without user, password, query and fragment: those may be secret."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return one_line(urlunsplit((parts.scheme, host, parts.path, "", "")))


def _without(key: str, text: str) -> str:
    return text.replace(key, "***") if key else text
