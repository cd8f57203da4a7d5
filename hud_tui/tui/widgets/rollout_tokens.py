"""An answer's tokens: as they flow, shaded; what the shades mean; and one by one."""

from collections.abc import Iterator, Sequence

from textual.content import Content

from hud_tui.rl.metrics import short
from hud_tui.rl.text import clean, one_line
from hud_tui.rl.token_shades import Shade, Shaded
from hud_tui.tui.widgets.palette import RAMP

MUTED = "$text-muted"
TOKENS_MOST = 600
"""Tokens that are listed one by one of one turn; the rest is counted."""
CELL = 20
"""Cells of one token and its value."""
MEANINGS = {
    Shade.LOGPROB: "logprob when it was sampled",
    Shade.RATIO: "likelihood now / when it was sampled",
    Shade.ADVANTAGE: "advantage: made rarer … likelier",
}


def flow(pieces: Sequence[str], shaded: Shaded) -> Content:
    """The tokens as the text that they are, each in its shade."""
    places = [*shaded.places, *[None] * len(pieces)]
    return Content("").join(
        Content.styled(clean(piece).replace("\t", "    "), _colour(place))
        for piece, place in zip(pieces, places, strict=False)
    )


def legend(shaded: Shaded) -> Content:
    """What the shades stand for, on one line."""
    low, high = shaded.ends
    ramp = Content("").join(Content.styled("█", colour) for colour in RAMP)
    named = Content.styled(f"{MEANINGS[shaded.by]}   {low} ", MUTED)
    unknown = "   (not known of some)" if None in shaded.places else ""
    return named + ramp + Content.styled(f" {high}{unknown}", MUTED)


def listed(pieces: Sequence[str], shaded: Shaded, width: int) -> Iterator[Content]:
    """The tokens one by one with their values, in columns read downwards, `width` cells wide."""
    names, values = pieces[:TOKENS_MOST], shaded.values[:TOKENS_MOST]
    pairs = list(zip(names, values, shaded.places, strict=False))
    across = max(1, width // CELL)
    down = -(-len(pairs) // across)
    for row in range(down):
        yield Content("").join(_token(*pair) for pair in pairs[row::down])
    if len(pieces) > TOKENS_MOST:
        yield Content.styled(f"… {len(pieces) - TOKENS_MOST} more tokens", MUTED)


def _token(piece: str, value: float | None, place: float | None) -> Content:
    name = Content(one_line(piece, 40).replace(" ", "␣")).truncate(10, ellipsis=True)
    unknown = value is None or value != value
    shown = "–" if unknown else f"{value:.3f}" if abs(value or 0) < 100 else short(value)
    text = name.stylize(_colour(place)) + Content(" " * (10 - name.cell_length))
    return (text + Content.styled(f"{shown:>7}", MUTED)).pad_right(CELL - 17)


def _colour(place: float | None) -> str:
    if place is None:
        return MUTED
    return RAMP[round(min(1.0, max(0.0, place)) * (len(RAMP) - 1))]
