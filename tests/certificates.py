"""A certificate authority of the tests, and certificates that it signs, by the program openssl."""

import subprocess
from pathlib import Path

from hud_tui.service.tls import TlsFiles

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
HERE = "DNS:box.test,DNS:localhost,IP:127.0.0.1"


def openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


class Authority:
    """Signs certificates in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate, self._key = folder / "ca.pem", folder / "ca.key"
        subject = ("-subj", "/CN=The tests' authority", "-days", "30")
        openssl("req", "-x509", *CURVE, "-keyout", self._key, "-out", self.certificate, *subject)

    def sign(
        self, name: str, names: str = HERE, use: str = "serverAuth", days: int = 30
    ) -> TlsFiles:
        """A certificate for names (as subjectAltName has them; empty: none) with its key."""
        files = TlsFiles(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        request = self.folder / f"{name}.csr"
        fields = ["-addext", f"extendedKeyUsage={use}"]
        fields += ["-addext", f"subjectAltName={names}"] if names else []
        openssl(
            *("req", "-new", *CURVE, "-keyout", files.key, "-out", request),
            *("-subj", f"/CN={name}", *fields),
        )
        openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key),
            *("-days", days, "-copy_extensions", "copy", "-out", files.certificate),
        )
        return files
