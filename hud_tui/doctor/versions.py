"""Which versions run here, read from installed metadata; nothing is imported for it."""

import sys
from importlib.metadata import PackageNotFoundError, version
from platform import machine, python_implementation, python_version, system

from hud_tui.doctor.report import Finding

SHOWN = ("hud-tui", "textual", "rich", "httpx", "pydantic", "numpy", "starlette", "ruamel.yaml")
OPTIONAL = {
    "tinker": "only the tinker engine needs it",
    "datasets": "only convert needs it: pip install 'hud-tui[hf]'",
    "hud": "the official SDK and CLI, which nothing here needs",
}
"""What each is for."""
SUPPORTED = ((3, 11), (3, 14))
"""Python from, and before."""


def versions() -> dict[str, str | None]:
    """By name; None where it is not installed."""
    python = f"{python_version()} ({python_implementation()}, {system()} {machine()})"
    return {"python": python, **{name: _version(name) for name in (*SHOWN, *OPTIONAL)}}


def check_versions(found: dict[str, str | None]) -> list[Finding]:
    """Whether Python is supported and all that is needed is installed."""
    low, high = SUPPORTED
    findings = []
    if not low <= sys.version_info[:2] < high:
        message = f"Python {python_version()} is not supported"
        findings.append(Finding("versions", "warning", message, "use Python 3.11, 3.12 or 3.13"))
    missing = [name for name in SHOWN if found[name] is None]
    if missing:
        message = f"not installed: {', '.join(missing)}"
        findings.append(
            Finding("versions", "failure", message, "pip install hud-tui again", code=1)
        )
    return findings or [Finding("versions", "ok", f"hud-tui {found['hud-tui']} is whole")]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
