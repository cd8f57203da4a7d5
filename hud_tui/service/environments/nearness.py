"""How near a wrong answer came, so that groups spread before anything is solved."""

import re

REACH = 10
"""A number further off than this is plainly wrong."""
ALIKE = 0.5
"""A text with fewer of its characters in place than this share is plainly wrong."""


def of_numbers(text: str, answer: str) -> float:
    """1 minus the distance over REACH + 1, for a bare integer within REACH; else 0."""
    if not re.fullmatch(r"-?[0-9]{1,12}", text):
        return 0.0
    return max(0.0, 1 - abs(int(text) - int(answer)) / (REACH + 1))


def of_texts(text: str, answer: str) -> float:
    """Share of characters in place, for a text of the answer's length with at least ALIKE."""
    if len(text) != len(answer):
        return 0.0
    share = sum(a == b for a, b in zip(text, answer, strict=True)) / len(answer)
    return share if share >= ALIKE else 0.0
