"""Webhook: one POST of a small JSON document, somewhere that the user has named."""

import json
from collections.abc import Mapping

import httpx

from hud_tui.rl.text import one_line

MOST = 8 * 1024
"""Bytes of a body; what is longer loses its text's end."""
PATIENCE_S = 10.0


async def post(
    url: str, document: Mapping[str, object], transport: httpx.AsyncBaseTransport | None = None
) -> str:
    """Send a document once. No redirect is followed, and no key of HUD's goes with it.

    Args:
        url: http or https.
        document: With a ``text`` for people, which is what chat services show.
        transport: What carries it instead of the network, for tests.

    Returns:
        Why it did not arrive, in one line; empty where it did.
    """
    try:
        async with httpx.AsyncClient(timeout=PATIENCE_S, transport=transport) as http:
            headers = {"content-type": "application/json", "user-agent": "hud-tui"}
            async with http.stream("POST", url, content=_body(document), headers=headers) as answer:
                ok, status = answer.is_success, answer.status_code
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return one_line(f"{type(error).__name__}: {error}".strip(": "), 200)
    return "" if ok else f"HTTP {status}"


def _body(document: Mapping[str, object]) -> bytes:
    body = json.dumps(document).encode()
    if len(body) <= MOST:
        return body
    return json.dumps({"text": str(document.get("text", ""))[: MOST // 8]}).encode()
