"""Run: one open policy on the server, created when training first needs it.

Until then its weights are those of a base or a state. Samples use the newest name under which the
weights were saved. On servers whose sampler paths are no snapshots, a state is sampled only
through a run of its own, so that no run is ever overwritten.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from math import isfinite
from typing import Any, Literal
from uuid import uuid4

from hud_tui.service.engines.base import (
    BROKEN,
    EngineError,
    EngineRefused,
    NotFinite,
    PolicyLost,
    Sampled,
)
from hud_tui.service.engines.tinker.link import Pointer
from hud_tui.service.engines.tinker.server import CALL_S, Server, lacks

LEAVE_S = 60.0
"""Longest wait for samples in progress when a run is released, seconds."""
SEED = 0
"""Seed of a new run's adapters: always the same start."""


class Run:
    def __init__(self, server: Server, source: Pointer) -> None:
        self.waiting = False
        """Whether gradients wait for a step."""
        self.rank = source.rank
        self._server = server
        self._source = source
        self._service: Any = None
        self._client: Any = None
        self._sampler: Any = None
        self._named = source.sampler_path if server.keeps_samplers else None
        self._opening, self._naming = asyncio.Lock(), asyncio.Lock()
        self._turns = 0
        self._samples = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def id(self) -> str:
        """The server's name of the training run."""
        return str(self._client.model_id)

    async def trainer(self) -> Any:
        """The SDK's training client. Raises EngineError if it cannot be opened."""
        async with self._opening:
            if self._client is None:
                await self._load()
        return self._client

    @asynccontextmanager
    async def sampler(self) -> AsyncIterator[Any]:
        """The SDK's sampling client for exactly these weights; no step is taken until the block
        ends."""
        self._samples += 1
        self._quiet.clear()
        try:
            async with self._naming:  # of several who sample at once, one saves the weights
                if self._sampler is None:
                    self._sampler = await self._new_sampler()
                sampler = self._sampler
            yield sampler
        except PolicyLost:
            self._sampler = None
            self._server.renew_sampling()
            raise
        finally:
            self._samples -= 1
            if self._samples == 0:
                self._quiet.set()

    async def quiet(self) -> None:
        """Wait until the server has answered all samples. Raises PolicyLost: it does not."""
        try:
            await asyncio.wait_for(self._quiet.wait(), CALL_S)
        except TimeoutError:
            raise PolicyLost("samples of this policy are still under way") from None

    def accumulated(self, turns: int, moved: bool) -> None:
        """Record a pass with this many turns; `moved`: whether any of them had a weight."""
        self._turns += turns
        self.waiting = self.waiting or moved

    def take(self) -> int:
        """Use up the gradient for a step; returns its number of turns."""
        turns, self._turns, self.waiting = self._turns, 0, False
        return turns

    def stepped(self, pointer: Pointer) -> None:
        """Record that the weights are now a new node's."""
        self._source, self._named = pointer, pointer.sampler_path
        self._sampler = None

    async def close(self) -> None:
        """Release the run, once its samples are done. Its states stay on the server."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._quiet.wait(), LEAVE_S)
        async with self._opening:
            client, service = self._client, self._service
            self._client = self._service = self._sampler = None
        if client is not None:
            await self._server.release(service, str(client.model_id))

    async def _new_sampler(self) -> Any:
        if self._named is None and (self._source.state_path or self._client is not None):
            self._named = await self._save_for_sampling()
        service = await self._server.sampling_service()
        named = self._named
        source = {"model_path": named} if named else {"base_model": self._source.model}
        return await self._server.call(lambda: service.create_sampling_client(**source))

    async def _save_for_sampling(self) -> str:
        client = await self.trainer()
        name = f"hud-s-{uuid4().hex}"
        saved = await self._server.call(lambda: client.save_weights_for_sampler(name))
        return str(saved.path)

    async def _load(self) -> None:
        tinker = await self._server.tinker()
        service = await self._server.call(tinker.ServiceClient)
        state = self._source.state_path
        try:
            if state is None:
                self._client = await self._create(service)
            else:
                self._client = await self._restore(service, state)
        except BaseException:
            await self._server.end(service)
            raise
        self._service = service
        self._server.occupied(1)

    async def _create(self, service: Any) -> Any:
        """Create a run, with the highest LoRA rank that the server accepts."""
        if self._source.state_path is None and self._server.most_rank is not None:
            self.rank = min(self.rank, self._server.most_rank)
        while True:
            try:
                made = await self._server.call(
                    lambda: service.create_lora_training_client(
                        base_model=self._source.model, rank=self.rank, seed=SEED
                    )
                )
            except EngineRefused as error:
                if "rank" not in str(error).casefold() or self.rank == 1:
                    raise EngineError(
                        f"no training run on {self._source.model}: {error}"
                    ) from error
                self.rank = self._server.most_rank = self.rank // 2
            else:
                return made

    async def _restore(self, service: Any, state: str) -> Any:
        """Create a run with a state: in one request, or loaded as its first request."""
        adam = self._source.optimizer
        suffix = "_with_optimizer" if adam else ""
        if self._server.loads_in_one is not False:
            create = getattr(service, f"create_training_client_from_state{suffix}")
            try:
                return await self._server.call(lambda: create(state))
            except EngineRefused as error:
                if not lacks(error):
                    raise
        client = await self._create(service)
        try:
            load = getattr(client, f"load_state{suffix}")
            await self._server.call(lambda: load(state))
        except BaseException:
            self._server.occupied(1)
            with suppress(Exception):
                await self._server.release(service, str(client.model_id))
            raise
        self._server.loads_in_one = False
        return client


# Sampling: similar requests are sent as one.


SEEDS = 2**31 - 1
TOP = "topk_sample_logprobs"
"""Parameter of the SDK's `sample` since 0.38."""
NO_TOP = (
    "top_logprobs: this Tinker server, or the SDK that talks to it, tells the sampled tokens'"
    " logprobs only: remove it"
)


async def sample(
    server: Server, run: Run, requests: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """One completion per request, in order.

    Args:
        server, run: What samples.
        requests: ``prompt``, ``max_tokens``, ``temperature``, ``seed`` (an integer), ``stop``
            (texts or token ids), ``ends`` (token ids that end a turn), ``top_p`` and
            ``top_logprobs``.

    Raises:
        EngineRefused: The SDK or the server does not support ``top_logprobs``.
        NotFinite: The weights give logprobs that are not finite.
    """
    tinker = await server.tinker()
    async with run.sampler() as sampler:
        parts = [asyncio.ensure_future(_ask(server, sampler, tinker.types, part))
                 for part in alike(requests)]  # fmt: skip
        try:
            return [row for rows in await asyncio.gather(*parts) for row in rows]
        finally:
            # a sample that is still queued must be taken from these weights
            await asyncio.gather(*parts, return_exceptions=True)


def alike(requests: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Consecutive requests that differ only in their seeds, which are consecutive too."""
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
    options = {TOP: top} if top else {}
    answer = await server.call(lambda: sampler.sample(prompt, len(part), params, **options))
    return [_row(sequence, first["ends"], top) for sequence in answer.sequences]


def _row(sequence: Any, ends: Sequence[int], top: int) -> dict[str, Any]:
    """A sequence up to and including the first token that ends a turn."""
    tokens = [int(token) for token in sequence.tokens]
    logprobs = [float(value) for value in sequence.logprobs or ()]
    if len(logprobs) != len(tokens):
        raise ValueError(f"{len(logprobs)} logprobs for {len(tokens)} sampled tokens")
    if not all(map(isfinite, logprobs)):
        raise NotFinite(BROKEN)
    reason: Literal["stop", "length"] = "stop" if sequence.stop_reason == "stop" else "length"
    end = next((number for number, token in enumerate(tokens, 1) if token in ends), None)
    if end is not None:
        tokens, logprobs, reason = tokens[:end], logprobs[:end], "stop"
    likeliest = _likeliest(sequence, len(tokens)) if top else []
    return vars(Sampled(tokens, logprobs, reason, likeliest))


def _likeliest(sequence: Any, count: int) -> list[list[tuple[int, float]]]:
    """The most likely tokens at each of the first `count` positions. Raises EngineRefused: the
    server did not return them."""
    likeliest = sequence.topk_logprobs
    if likeliest is None or len(likeliest) < count or not all(likeliest[:count]):
        raise EngineRefused(NO_TOP)
    return [[(int(token), float(value)) for token, value in pairs] for pairs in likeliest[:count]]
