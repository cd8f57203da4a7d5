"""What went wrong with a request, named so that a person knows what to do; never with the key."""

from urllib.parse import urlsplit

import httpx

from hud_tui.client.answer import request_id
from hud_tui.client.bodies import error_detail
from hud_tui.client.retry import read_retry_after
from hud_tui.errors import (
    START_AGAIN,
    UNCLEAR,
    HudError,
    HudMalformed,
    HudRefused,
    HudUnreachable,
    refused,
)
from hud_tui.rl.text import one_line
from hud_tui.settings import Settings

UNSENT = (
    *(httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError),
    *(httpx.InvalidURL, httpx.UnsupportedProtocol),
)
"""How a request fails of which nothing has been sent."""


class Failures:
    """Of the requests that go out with these settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def refusal(self, answer: httpx.Response, body: bytes) -> HudRefused:
        """The error for an answer that is not a success."""
        body = body.replace(self.settings.api_key.encode(), b"***")  # before a cut can halve it
        detail = self.without_key(error_detail(body, answer.reason_phrase))
        wait = read_retry_after(answer.headers.get("retry-after"))
        hint = self._hint(answer.status_code, answer.request.method)
        error = refused(answer.status_code, detail, hint, wait)
        error.request_id = request_id(answer)
        return error

    def unreachable(self, method: str, url: str, error: Exception) -> HudUnreachable:
        """The error for a request that no answer came to."""
        reason = self.without_key(one_line(str(error) or type(error).__name__))
        message = f"{method} {path_of(url)}: no answer from {origin_of(url)}: {reason}"
        if method != "GET" and not isinstance(error, UNSENT):
            return HudUnreachable(message, UNCLEAR)
        if self.settings.local:
            return HudUnreachable(message, START_AGAIN)
        return HudUnreachable(message, "check the network and HUD_API_URL, or use --local")

    def without_key(self, text: str) -> str:
        """The text, which may be the service's, without the key that it may repeat."""
        return text.replace(self.settings.api_key, "***")

    def _hint(self, status: int, method: str) -> str:
        if status in (401, 403):
            return "check HUD_API_KEY" if not self.settings.local else "restart with --local"
        hints = {
            402: f"see the billing page of {self.settings.web_url}",
            413: "send fewer or shorter tasks",
            429: "wait a little, then try again",
        }
        if 300 <= status < 400:
            return "the URL redirects elsewhere: set HUD_API_URL to where the service is"
        if status >= 500:
            return "try again later" if method == "GET" else UNCLEAR
        return hints.get(status, "")


def is_unclear(error: HudError) -> bool:
    """Whether a write that failed so may have happened: no answer or a broken one; or one that
    is a fault or a redirection, be it the server's or that of something on the way to it."""
    if isinstance(error, HudRefused):
        status = error.status or 0
        return not 400 <= status < 500 or status == 408
    return isinstance(error, HudMalformed) or error.hint == UNCLEAR


def origin_of(url: str) -> str:
    """Scheme and host, without credentials, e.g. ``https://api.hud.ai``."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"


def path_of(url: str) -> str:
    """The path as it is shown."""
    return one_line(urlsplit(url).path)
