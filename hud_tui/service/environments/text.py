"""text: reversing, counting and capitalising letters."""

from hud_tui.service.environments.base import Environment, Scenario
from hud_tui.service.environments.nearness import of_numbers, of_texts
from hud_tui.service.environments.schema import arguments, string

TEXT = Environment(
    name="text",
    description="Reversing, counting and capitalising letters",
    listed=(
        Scenario(
            name="reverse",
            description="Write a text backwards.",
            args_schema=arguments(text=string()),
            ask=lambda text: f"Reverse: {text}",
            solve=lambda text: text[::-1],
            nearness=of_texts,
        ),
        Scenario(
            name="count_letter",
            description="Count how often a letter occurs in a text.",
            args_schema=arguments(letter=string(longest=1), text=string()),
            ask=lambda letter, text: f"Count {letter} in: {text}",
            solve=lambda letter, text: str(text.count(letter)),
            nearness=of_numbers,
        ),
        Scenario(
            name="uppercase",
            description="Write a text in capital letters.",
            args_schema=arguments(text=string()),
            ask=lambda text: f"Uppercase: {text}",
            solve=lambda text: text.upper(),
            nearness=of_texts,
        ),
    ),
)
