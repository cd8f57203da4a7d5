"""Verifiable environments that the service can roll out without any other process."""

from hud_tui.service.environments.arith import ARITH
from hud_tui.service.environments.base import Environment, Scenario
from hud_tui.service.environments.text import TEXT

ENVIRONMENTS: dict[str, Environment] = {env.name: env for env in (ARITH, TEXT)}
"""Every environment by name."""

__all__ = ["ENVIRONMENTS", "Environment", "Scenario"]
