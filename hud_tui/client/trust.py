"""Which certificates are trusted, and why a service elsewhere did not answer."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from email.utils import formatdate
from errno import ECONNREFUSED
from shlex import quote
from socket import EAI_AGAIN, gaierror

from hud_tui.errors import HudUsage
from hud_tui.rl.text import one_line
from hud_tui.settings import Settings

UNSIGNED = frozenset({18, 19, 20, 21})
"""What OpenSSL says of certificates that nobody signed whom it trusts: X509_V_ERR_DEPTH_ZERO_SELF_
SIGNED_CERT and the three after it."""
EXPIRED, TOO_NEW = 10, 9
OTHER_NAME = frozenset({62, 64})
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


def trust_of(settings: Settings) -> ssl.SSLContext | bool:
    """What a client verifies certificates by, as httpx takes it. Without any https host a context
    without certificates, because loading them takes 20 ms. Raises HudUsage: the stored certificates
    of a service elsewhere cannot be read, or those of SSL_CERT_FILE."""
    urls = (settings.api_url, settings.rl_url, settings.gateway_url, settings.telemetry_url)
    if not any(url.startswith("https:") for url in urls):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.ca:
        return context_of(settings.ca)
    named = os.environ.get("SSL_CERT_FILE")
    return context_of(named, "SSL_CERT_FILE") if named else True


def context_of(ca: str, name: str = "--ca") -> ssl.SSLContext:
    """A context that trusts the certificates in a file and no others: those of authorities, or a
    service's own. `name`: who names the file. Raises HudUsage: it has none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(ca)
    except (ssl.SSLError, OSError) as error:
        why = "it has no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        hint = "give the certificate, in PEM, of whoever signed the service's; or the service's own"
        raise HudUsage(f"{name} {one_line(ca)}: {one_line(why)}", hint) from error
    return context


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def why_no_answer(settings: Settings, error: BaseException) -> tuple[str, str]:
    """What a service did not answer for, and what to do if it is one elsewhere; empty if neither is
    known."""
    host = quote(one_line(settings.host, 200))
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _unverified(cause, host)
        if isinstance(cause, ssl.SSLError):
            speaks_http = "WRONG_VERSION_NUMBER" in (cause.reason or "")
            what = "it does not speak TLS" if speaks_http else f"TLS: {one_line(cause.reason)}"
            return what, "serve it with --cert and --key, or behind a proxy that does TLS"
        if isinstance(cause, gaierror) and cause.errno == EAI_AGAIN:
            return "its name cannot be resolved now", "check this machine's network"
        if isinstance(cause, gaierror):
            return "no such host", "check the name, and that this machine can resolve it"
        if isinstance(cause, OSError) and ECONNREFUSED in (cause.errno, *_errnos(cause)):
            return "nothing listens there", "check the port, and that the service runs there"
    return "", ""


def _errnos(error: OSError) -> list[int]:
    """Of an error of several attempts, whose text alone has them."""
    return [ECONNREFUSED] if "Connect call failed" in str(error) and error.errno is None else []


def _unverified(error: ssl.SSLCertVerificationError, host: str) -> tuple[str, str]:
    """Why a certificate is not accepted."""
    why = f"its certificate is not accepted: {one_line(error.verify_message)}"
    if error.verify_code in UNSIGNED:
        trust = f"hud-tui login {host} --ca FILE"
        return why, f"if it is yours, trust who signed it: {trust}; or SSL_CERT_FILE=FILE"
    if error.verify_code in (EXPIRED, TOO_NEW):
        return why, f"have it renewed; or set this machine's clock: {formatdate(usegmt=True)}"
    if error.verify_code in OTHER_NAME:
        return why, "call it by a name that its certificate is for"
    return why, "see hud-tui doctor"
