"""arith: sums, differences and comparisons of two integers."""

from hud_tui.service.environments.base import Environment, Scenario
from hud_tui.service.environments.nearness import of_numbers
from hud_tui.service.environments.schema import arguments, integer

TWO_INTEGERS = arguments(a=integer(), b=integer())

ARITH = Environment(
    name="arith",
    description="Sums, differences and comparisons of two integers",
    listed=(
        Scenario(
            name="add",
            description="Add two integers.",
            args_schema=TWO_INTEGERS,
            ask=lambda a, b: f"{a} + {b} = ?",
            solve=lambda a, b: str(a + b),
            nearness=of_numbers,
        ),
        Scenario(
            name="subtract",
            description="Subtract the second integer from the first.",
            args_schema=TWO_INTEGERS,
            ask=lambda a, b: f"{a} - {b} = ?",
            solve=lambda a, b: str(a - b),
            nearness=of_numbers,
        ),
        Scenario(
            name="compare",
            description="Say the larger of two integers.",
            args_schema=TWO_INTEGERS,
            ask=lambda a, b: f"Larger: {a} or {b}?",
            solve=lambda a, b: str(max(a, b)),
            nearness=of_numbers,
        ),
    ),
)
