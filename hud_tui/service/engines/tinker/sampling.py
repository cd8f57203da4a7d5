"""Sampling: like requests go as one, and stop where the contract says."""

import asyncio
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from hud_tui.service.engines.base import EngineRefused, Sampled
from hud_tui.service.engines.tinker.run import Run
from hud_tui.service.engines.tinker.server import Server

SEEDS = 2**31 - 1
TOP = "topk_sample_logprobs"
"""Of the SDK's `sample`, since 0.38."""
NO_TOP = (
    "top_logprobs: this Tinker server, or the SDK that talks to it, tells the sampled tokens'"
    " logprobs only: leave it out"
)


async def sample(
    server: Server, run: Run, requests: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """One completion a request, in order.

    Args:
        server, run: What samples.
        requests: ``prompt``, ``max_tokens``, ``temperature``, ``seed`` (an integer), ``stop``
            (texts or token ids), ``ends`` (token ids that end a turn), ``top_p`` and
            ``top_logprobs``.

    Raises:
        EngineRefused: ``top_logprobs`` that the SDK or the server does not tell.
    """
    tinker = await server.tinker()
    async with run.sampler() as sampler:
        parts = [asyncio.ensure_future(_ask(server, sampler, tinker.types, part))
                 for part in alike(requests)]  # fmt: skip
        try:
            return [row for rows in await asyncio.gather(*parts) for row in rows]
        finally:
            # a sample that is still queued must not meet weights that have moved on
            await asyncio.gather(*parts, return_exceptions=True)


def alike(requests: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Runs of requests that differ in their seeds only, and whose seeds follow each other."""
    part: list[dict[str, Any]] = []
    for request in requests:
        if part and not _follows(part[-1], request):
            yield part
            part = []
        part.append(request)
    if part:
        yield part


def _follows(before: dict[str, Any], after: dict[str, Any]) -> bool:
    keys = ("prompt", "max_tokens", "temperature", "top_p", "top_logprobs", "stop")
    alike = all(before[key] == after[key] for key in keys)
    return alike and after["seed"] == before["seed"] + 1


async def _ask(
    server: Server, sampler: Any, types: Any, part: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    first = part[0]
    params = types.SamplingParams(
        max_tokens=first["max_tokens"],
        temperature=first["temperature"],
        top_p=first["top_p"],
        seed=first["seed"] % SEEDS,
        stop=first["stop"],
    )
    prompt = types.ModelInput.from_ints(first["prompt"])
    top = first["top_logprobs"]
    if top and TOP not in inspect.signature(sampler.sample).parameters:
        raise EngineRefused(NO_TOP)
    told = {TOP: top} if top else {}
    answer = await server.call(lambda: sampler.sample(prompt, len(part), params, **told))
    return [_row(one, first["ends"], top) for one in answer.sequences]


def _row(sequence: Any, ends: Sequence[int], top: int) -> dict[str, Any]:
    """A sequence up to and with the token that ends a turn, if there is one."""
    tokens = [int(token) for token in sequence.tokens]
    logprobs = [float(value) for value in sequence.logprobs or ()]
    if len(logprobs) != len(tokens):
        raise ValueError(f"{len(logprobs)} logprobs for {len(tokens)} sampled tokens")
    reason: Literal["stop", "length"] = "stop" if sequence.stop_reason == "stop" else "length"
    end = next((place for place, token in enumerate(tokens, 1) if token in ends), None)
    if end is not None:
        tokens, logprobs, reason = tokens[:end], logprobs[:end], "stop"
    likeliest = _likeliest(sequence, len(tokens)) if top else []
    return vars(Sampled(tokens, logprobs, reason, likeliest))


def _likeliest(sequence: Any, count: int) -> list[list[tuple[int, float]]]:
    """At each of the first `count` places the likeliest tokens. Raises EngineRefused: they are
    not there."""
    found = sequence.topk_logprobs
    if found is None or len(found) < count or not all(found[:count]):
        raise EngineRefused(NO_TOP)
    return [[(int(token), float(value)) for token, value in place] for place in found[:count]]
