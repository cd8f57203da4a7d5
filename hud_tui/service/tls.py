"""TLS by files: a certificate and its key, checked before anything is bound, and taken again when
they are renewed on disk."""

import logging
import os
import ssl
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from time import time
from typing import Any

from hud_tui.errors import HudBadCertificate
from hud_tui.rl.text import counted, one_line
from hud_tui.storage import read_regular

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 20
"""Maximum size of each file."""
LOOK_S = 60.0
"""Seconds between two looks whether the files were renewed."""
SOON_S = 14 * 86400
"""Seconds before its end from which on a certificate is warned of."""
BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
OTHERS = 0o007
EXPIRED, TOO_NEW, WRONG_USE = 10, 9, 26
"""What OpenSSL says of a certificate: X509_V_ERR_CERT_HAS_EXPIRED, X509_V_ERR_CERT_NOT_YET_VALID,
X509_V_ERR_INVALID_PURPOSE."""


@dataclass(frozen=True)
class TlsFiles:
    """Paths of a certificate, followed by those that signed it, and of its key; in PEM."""

    certificate: Path
    key: Path

    @property
    def state(self) -> tuple[tuple[int, int, int] | None, ...]:
        """What changes when one of the files is written or replaced."""
        return _state(self.certificate), _state(self.key)


def _state(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


@dataclass(frozen=True)
class Pair:
    """A certificate and key that a client can connect to."""

    context: ssl.SSLContext
    names: tuple[str, ...]
    """Names and addresses that the certificate is for, without wildcards."""
    ends_at: float
    """When it expires, Unix seconds."""


def read_pair(files: TlsFiles) -> Pair:
    """Read both files, and connect once to what they make, in memory.

    Raises:
        HudBadCertificate: They cannot be served; the message names the file, the hint what to do.
    """
    certificate, key = files.certificate, files.key
    chain, secret = _text(certificate, "--cert"), _text(key, "--key")
    if BEGIN not in chain:
        swapped = "it is a key: " if "PRIVATE KEY-----" in chain else ""
        hint = f"{swapped}give a certificate in PEM, followed by those that signed it"
        raise HudBadCertificate(f"--cert {one_line(certificate)} has no certificate", hint)
    if "PRIVATE KEY-----" not in secret:
        hint = "give the certificate's key in PEM, e.g. privkey.pem of certbot"
        raise HudBadCertificate(f"--key {one_line(key)} has no private key", hint)
    context = _server_context()
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except _Encrypted:
        hint = f"write it without a passphrase: openssl pkey -in {one_line(key)} -out NEW"
        raise HudBadCertificate(f"--key {one_line(key)} is encrypted", hint) from None
    except (ssl.SSLError, OSError) as error:
        raise _unusable(files, error) from error
    leaf = chain[chain.index(BEGIN) :].partition(END)[0] + END
    try:
        found = _as_a_client_sees(context, leaf)
    except ssl.SSLError as error:
        raise _refused(certificate, error) from error
    alternatives = found.get("subjectAltName", ())
    if not alternatives:
        hint = (
            "make one with a subjectAltName, e.g. DNS:gpu.example.com: clients read no other name"
        )
        raise HudBadCertificate(f"--cert {one_line(certificate)} names no host", hint)
    names = tuple(n for kind, n in alternatives if kind in ("DNS", "IP Address") and "*" not in n)
    return Pair(context, names, float(ssl.cert_time_to_seconds(found["notAfter"])))


class _Encrypted(Exception):
    """A passphrase is wanted."""


def _refuse_password() -> str:
    """Else OpenSSL would ask for it on the terminal."""
    raise _Encrypted


def _text(file: Path, flag: str) -> str:
    named = f"{flag} {one_line(file)}"
    try:
        return read_regular(file, MOST_BYTES).decode("ascii", "replace")
    except PermissionError as error:
        hint = "let the user that serves read it: copy it, or a group (chgrp, chmod 640)"
        raise HudBadCertificate(f"{named}: {error.strerror}", hint) from error
    except (OSError, ValueError) as error:
        why = one_line(getattr(error, "strerror", None) or error)
        raise HudBadCertificate(f"{named}: {why}", "give the path of a PEM file") from error


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _unusable(files: TlsFiles, error: Exception) -> HudBadCertificate:
    """Why OpenSSL does not take the files."""
    certificate, key = one_line(files.certificate), one_line(files.key)
    reason = getattr(error, "reason", None) or ""
    if "MISMATCH" in reason:
        what = f"--key {key} is not the key of --cert {certificate}"
        return HudBadCertificate(what, "give both files of one certificate")
    if reason in ("EE_KEY_TOO_SMALL", "CA_MD_TOO_WEAK", "CA_KEY_TOO_SMALL"):
        what = f"--cert {certificate} is too weak: {reason.lower().replace('_', ' ')}"
        return HudBadCertificate(what, "make one with a key of 2048 bits or a curve, and SHA-256")
    what = f"--cert {certificate} with --key {key}: {one_line(reason or error).lower()}"
    return HudBadCertificate(
        what, "try openssl x509 -in CERT -text, and openssl pkey -in KEY -check"
    )


def _refused(certificate: Path, error: ssl.SSLError) -> HudBadCertificate:
    """Why a client would not take the certificate."""
    code, named = getattr(error, "verify_code", 0), f"--cert {one_line(certificate)}"
    if code == EXPIRED:
        return HudBadCertificate(f"{named} has expired", "renew it, e.g. certbot renew")
    if code == TOO_NEW:
        hint = f"set this machine's clock, which says {formatdate(usegmt=True)}"
        return HudBadCertificate(f"{named} is not valid yet", hint)
    if code == WRONG_USE:
        hint = "ask for one with the extended key usage serverAuth"
        return HudBadCertificate(f"{named} is not for servers", hint)
    why = one_line(getattr(error, "verify_message", "") or error.reason or error)
    return HudBadCertificate(f"{named}: clients would refuse it: {why}", "make another one")


def _as_a_client_sees(server: ssl.SSLContext, leaf: str) -> dict[str, Any]:
    """The fields of the certificate, after a handshake in memory with a client that trusts it and
    nothing else. Raises ssl.SSLError: it does not."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False  # there is no name: both ends are here
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cadata=leaf)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)]
    for _ in range(4):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[0].getpeercert() or {}


class RenewedTls:
    """The newest whole pair of the files, for every new connection."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises HudBadCertificate: they cannot be served."""
        self.files = files
        self.context = _server_context()
        """Of the listener: gives each connection the context of the newest pair."""
        self.context.sni_callback = self._choose
        self._state = files.state
        self.pair = read_pair(files)
        self._refused: object = None
        """State of the files as they were refused last."""

    def _choose(self, connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self.pair.context

    def look(self) -> None:
        """Take the files if they have changed; what cannot be served is logged, and the old pair
        stays, also between the writes of the two files."""
        state = self.files.state
        if state in (self._state, self._refused):
            return
        try:
            self.pair = read_pair(self.files)
        except HudBadCertificate as error:
            self._refused = state
            log.warning("the certificate is not renewed: %s", error.in_one)
        else:
            self._state, self._refused = state, None
            log.warning("the certificate was renewed: %s", self.until)

    @property
    def until(self) -> str:
        """E.g. ``valid for 83 days``."""
        return f"valid for {counted(int((self.pair.ends_at - time()) // 86400), 'day')}"

    def warnings(self) -> list[str]:
        """What is not as it should be, in sentences."""
        found = []
        with suppress(OSError):
            if os.stat(self.files.key).st_mode & OTHERS:
                named = one_line(self.files.key)
                found.append(
                    f"{named} can be read by others, who can pretend to be this service:"
                    f" chmod 600 {named}"
                )
        if self.pair.ends_at - time() < SOON_S:
            found.append(f"{one_line(self.files.certificate)} is {self.until}: renew it")
        return found
