"""Numbers of things, as people read them."""


def spaced(number: int) -> str:
    """A whole number with a space before each three digits, e.g. ``12 345``."""
    return f"{number:,}".replace(",", " ")


def counted(number: int, thing: str) -> str:
    """So many of a thing, e.g. ``1 step`` or ``1 200 steps``."""
    return f"{spaced(number)} {thing}{'s' * (number != 1)}"
