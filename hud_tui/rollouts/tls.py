"""One TLS context for the many HTTP clients of a process.

Each client of httpx loads the file of trusted certificates, 20 ms, whether or not it ever uses TLS.
The SDK makes several for each rollout.
"""

from __future__ import annotations

import os
import sys
from functools import wraps
from types import ModuleType
from typing import Any

LIBRARIES = ("httpx", "httpx2")
TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")
"""Variables that say what a context trusts, and where it logs its keys."""

Context = Any


def share_contexts() -> None:
    """Give the HTTP clients that ask for the usual verification one context, of those libraries
    that are loaded. What has settings of its own, gets a context of its own."""
    for name in LIBRARIES:
        library = sys.modules.get(name)
        if library is not None:
            _Shared(library).share()


class _Shared:
    def __init__(self, library: ModuleType) -> None:
        self._library = library
        self._contexts: dict[tuple[Any, ...], Context] = {}

    def share(self) -> None:
        for kind in ("HTTPTransport", "AsyncHTTPTransport"):
            transport = getattr(self._library, kind)
            transport.__init__ = self._sharing(transport.__init__)

    def _sharing(self, begin: Any) -> Any:
        @wraps(begin)
        def begun(transport: Any, *args: Any, **options: Any) -> None:
            is_usual = options.get("verify", True) is True and options.get("cert") is None
            if is_usual and not args:
                trust_env = options.get("trust_env", True)
                options["verify"] = self._context(trust_env, options.get("http2", False))
            begin(transport, *args, **options)

        return begun

    def _context(self, trust_env: bool, http2: bool) -> Context:
        """The context for such clients, made anew where what it trusts has changed.

        A connection sets the protocols of its context, so HTTP/2 has its own.
        """
        trusted = tuple(os.environ.get(name) for name in TRUST)
        key = (trust_env, http2, trusted, _state(trusted[0]))
        if key not in self._contexts:
            self._contexts[key] = self._library.create_ssl_context(trust_env=trust_env)
        return self._contexts[key]


def _state(path: str | None) -> tuple[int, int, int] | None:
    """What changes when a file is written; None if there is none."""
    try:
        status = os.stat(path or "")
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
