"""A request to sample, as the SDK's process takes it."""

from typing import Any

from hud_tui.service.engines.base import SampleRequest
from hud_tui.service.engines.tinker.tokenizer import ChatTokenizer

SPACE = 2**31 - 1024
"""Seeds are 31 bits on servers, and those of a group follow each other."""


def as_asked(request: SampleRequest, tokens: ChatTokenizer) -> dict[str, Any]:
    """The request as plain values.

    Stop sequences of one token each go as ids, with the ids that end a turn; servers take ids
    or texts, not both, so longer ones make texts of them all.
    """
    if all(len(stop) == 1 for stop in request.stop):
        stop: list[Any] = [*tokens.ends, *(stop[0] for stop in request.stop)]
    else:
        ends = [tokens.whole([end]) for end in tokens.ends]
        stop = [*ends, *(tokens.whole(stop) for stop in request.stop)]
    return {
        "prompt": list(request.prompt),
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_logprobs": request.top_logprobs,
        "seed": seed_of(request.seed),
        "stop": stop,
        "ends": tokens.ends,
    }


def seed_of(seed: tuple[int, ...]) -> int:
    """One number of a seed's parts; the last part adds up, so a group's follow each other.

    The multiplier is MINSTD's (Park and Miller 1988).
    """
    *head, last = seed or (0,)
    mixed = 1
    for part in head:
        mixed = (mixed * 48271 + part) % SPACE
    return (mixed * 48271 + last) % SPACE
