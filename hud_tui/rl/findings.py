"""Findings: what checks found of tasks, of a model, of settings and of this machine."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

Severity = Literal["failure", "warning", "ok"]
"""What a check found, the most severe first."""
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

RunCheck = Literal[
    "key",
    "rows",
    "train",
    "fields",
    "slugs",
    "duplicates",
    "count",
    "vision",
    "runtime",
    "lock",
    "signal",
    "model",
    "ready",
    "tokens",
    "group_size",
    "disk",
    "environments",
    "scenarios",
    "args",
    "rollout",
    "estimate",
    "graded",
    "variables",
    "remote",
]
"""What is checked before a run, in the order in which findings are shown."""
Check = Literal[
    RunCheck,
    "settings",
    "hosts",
    "cores",
    "tinker",
    "wandb",
    "versions",
    "terminal",
    "config",
    "directories",
    "service",
    "machines",
]
"""Those of a run, then those of ``doctor``."""
DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    check: Check
    level: Severity
    message: str
    where: str = ""
    """Affected rows or names, e.g. ``tasks.jsonl line 3``."""
    fix: str = ""
    code: int = 0
    """Exit code of ``doctor`` if nothing worse is found; 0: 1 for a failure."""

    @property
    def named(self) -> str:
        """`where`; empty if the message or the fix says it."""
        return "" if self.where in f"{self.message} {self.fix}" else self.where

    @property
    def advice(self) -> list[str]:
        """What follows the message, each after an arrow: where it is, and what to do."""
        return [f"→ {text}" for text in (self.named, self.fix) if text]

    @property
    def line(self) -> str:
        """Level, message, where it is and fix, in one line."""
        where, fix = f" [{self.named}]" * bool(self.named), f" ({self.fix})" * bool(self.fix)
        return f"{self.level}: {self.message}{where}{fix}"


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Findings sorted by check, then by where it is."""
    order = {check: number for number, check in enumerate(get_args(Check))}
    return sorted(
        findings,
        key=lambda finding: (
            order[finding.check],
            _counted(finding.where),
            _counted(finding.message),
        ),
    )


def _counted(text: str) -> list[tuple[int, str]]:
    """A sort key that puts ``line 9`` before ``line 10``."""
    parts = [part.lstrip("0") if part.isdecimal() else part for part in DIGITS.split(text)]
    return [(len(part) * (number % 2), part) for number, part in enumerate(parts)]


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Failures, then warnings, then what passed, else as they come."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.level))


def verdict(findings: Iterable[Finding]) -> Severity:
    """The most severe level."""
    return min((finding.level for finding in findings), key=SEVERITIES.index, default="ok")


def failures_text(findings: Iterable[Finding]) -> str:
    """Every failure with where it is, in one line; empty without any."""
    return "; ".join(
        f"{finding.message} ({finding.named})" if finding.named else finding.message
        for finding in findings
        if finding.level == "failure"
    )
