"""TinkerEngine: language models on Tinker, or on a server with the same API.

This is the service's side: it validates every call and keeps the pointers to weights; a process of
its own talks to the server. Nothing of `tinker` is loaded here.
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from hud_tui.service.engines import base as base_module
from hud_tui.service.engines.base import (
    About,
    Adam,
    Base,
    Datum,
    Defaults,
    Engine,
    EngineError,
    EngineLost,
    Handle,
    Passes,
    Sampled,
    SampleRequest,
    Saved,
    Worth,
)
from hud_tui.service.engines.handles import Handles
from hud_tui.service.engines.tinker.link import RETURN_S, Link, Pointer, read_pointer, write_pointer
from hud_tui.service.engines.tinker.tokenizer import ChatTokenizer, files_of, load
from hud_tui.storage import read_regular, write_atomic
from hud_tui.tinker_options import BadOption, Options, read_options

# Bases: the server's models, with their own config where it is available.


MOST_BYTES = 1 << 24
"""Maximum size of a config file, bytes."""
CONTEXT = 4096
"""Default context if neither server nor config gives one."""
VOCABULARY = 2**20
"""Default vocabulary, larger than any model's: without a config, the server refuses unknown ids."""
LEARNING_RATE, WIDTH = 1e-4, 2048
"""LoRA's usual learning rate, and the width up to which it applies: Adam's best rate falls with
width (Yang et al. 2022, arXiv:2203.03466)."""
SHORT = 512
"""With a context below this, as of test models, completions are short by default."""


def make_base(name: str, model: str, context: int | None) -> Base:
    """A base of a server's model, which it calls by a hub id or a path; `context`: its value, if it
    gives one."""
    config = read_config(model)
    room = context or _number(config, "max_position_embeddings") or CONTEXT
    width = _number(config, "hidden_size") or WIDTH
    toy = room <= SHORT
    return Base(
        name=name,
        description=f"{model} on a Tinker server" if model == name else f"{name} on this cluster",
        context=room,
        vocabulary=_number(config, "vocab_size") or VOCABULARY,
        defaults=Defaults(
            learning_rate=float(f"{LEARNING_RATE * max(1.0, WIDTH / width):.1g}"),
            group_size=8,
            max_tokens=20 if toy else 256,
            tasks_per_step=16,
            steps=60 if toy else 40,
        ),
    )


def names(models: Mapping[str, int | None]) -> dict[str, str]:
    """The server's model names by the engine's: a path becomes ``local/LAST-PART``."""
    named: dict[str, str] = {}
    for model in models:
        name = f"local/{Path(model).name}" if Path(model).is_absolute() else model
        named[name if name not in named else model] = model
    return named


def read_config(model: str) -> dict[str, Any]:
    """A model's config.json, from its folder or the hub's cache; empty if it is in neither."""
    model = files_of(model)
    path = Path(model) / "config.json" if Path(model).is_absolute() else cached(model)
    try:
        config = json.loads(read_regular(path, MOST_BYTES)) if path is not None else {}
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(config, dict):
        return {}
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def cached(model: str) -> Path | None:
    """Path of a model's config.json in the hub's cache, found without loading the hub's library."""
    home = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    repository = cache / f"models--{model.replace('/', '--')}"
    snapshots = sorted(
        repository.glob("snapshots/*/config.json"), key=lambda path: path.stat().st_mtime
    )
    return snapshots[-1] if snapshots else None


def _number(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if isinstance(value, int) and value > 0 else None


# Offer: the server's models when it last answered, so that trees can be read while it is away.


class Offer:
    def __init__(self, path: Path, url: str) -> None:
        self._path = path
        self._url = url

    def write(self, contexts: Mapping[str, int | None]) -> None:
        """Store model names and contexts; errors are ignored."""
        with suppress(OSError):
            write_atomic(self._path, json.dumps({"url": self._url, "models": dict(contexts)}))

    def read(self) -> dict[str, int | None]:
        """The last known models of this server; empty if there are none."""
        try:
            stored = json.loads(read_regular(self._path, MOST_BYTES))
            models = stored["models"] if stored["url"] == self._url else {}
            return {str(name): context for name, context in models.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}


# Connection: the process that talks to the server, and the server's models.


SAVES = 2
"""Checkpoints per step: the state with the optimizer, and weights for samplers."""
START_S = 10.0
"""Seconds to wait for the server when the service starts."""


class Connection:
    def __init__(self, options: Options, directory: Path) -> None:
        """`directory`: for the journal, the log and the last offer; created if missing."""
        self.link = Link(directory, options.environment(), self._keep_state)
        self.bases: dict[str, Base] = {}
        self.models: dict[str, str] = {}
        """The server's names of the bases."""
        self._options = options
        self._offer = Offer(directory / "offer.json", options.url)
        self._state: dict[str, Any] = {}
        self._connecting = asyncio.Lock()

    @property
    def about(self) -> About:
        """The server, with its queue and slots as last reported."""
        queue, slots = self._state.get("queue", "active"), self._state.get("slots", 0)
        options = self._options
        return About(
            "tinker",
            server=options.url,
            queue=queue,
            slots=slots,
            ttl_s=options.ttl_s,
            saves_per_step=SAVES,
            place=options.place,
            prices=options.prices,
        )

    async def start(self) -> None:
        """Connect; if the server is away, use the models of its last offer. Raises EngineError: it
        does not answer and never has, or it refuses the key."""
        try:
            await self.connect(START_S)
        except EngineError as error:
            names = await asyncio.to_thread(self._offer.read)
            if not names:
                raise
            self._take(names)
            self._state = {"queue": str(error)}

    async def connect(self, patience_s: float = RETURN_S) -> None:
        """Ensure that a process is connected to the server. Raises EngineError as `start` does."""
        async with self._connecting:
            if not await self.link.start():
                return
            try:
                options = self._options
                reply = await self.link.ask(
                    "connect",
                    url=options.url,
                    keeps_samplers=options.keeps_samplers,
                    ttl_s=options.ttl_s,
                    patience_s=patience_s,
                )
                contexts = {model["name"]: model["context"] for model in reply}
            except EngineError:
                await self.link.stop()
                raise
            await asyncio.to_thread(self._offer.write, contexts)
            self._state = {}
            self._take(contexts)

    def model(self, base: str) -> str:
        """The server's name of a base. Raises EngineError: there is no such base."""
        if base not in self.models:
            raise EngineError(f"no base {base!r}; choose from {', '.join(self.models)}")
        return self.models[base]

    def pointer_of(self, source: str | Path) -> Pointer:
        """The weights of a base, or of a state by its file here. Raises EngineError: no such base
        or state, or it is on another server."""
        url = self._options.url
        if isinstance(source, str):
            return Pointer(url, source, self.model(source), self._options.rank)
        pointer = read_pointer(source)
        if pointer.url != url:
            raise EngineError(
                f"this checkpoint is on {pointer.url}, and the engine talks to {url}:"
                " set TINKER_BASE_URL to the former"
            )
        if pointer.base not in self.models:
            raise EngineError(f"the server no longer offers {pointer.base}")
        return pointer

    def _take(self, contexts: Mapping[str, int | None]) -> None:
        """Set the bases from the server's models and their contexts, if known."""
        self.models = names(contexts)
        self.bases = {
            name: make_base(name, model, contexts[model]) for name, model in self.models.items()
        }

    def _keep_state(self, state: dict[str, Any]) -> None:
        self._state = state


# Sampling requests in the form that the SDK's process takes.


SPACE = 2**31 - 1024
"""Servers take seeds of 31 bits; those of a group are consecutive."""


def as_asked(request: SampleRequest, tokens: ChatTokenizer) -> dict[str, Any]:
    """The request as plain values.

    Single-token stop sequences are sent as ids, together with the ids that end a turn. Servers take
    ids or texts, not both, so with longer stop sequences all are sent as texts.
    """
    if all(len(stop) == 1 for stop in request.stop):
        stop: list[Any] = [*tokens.ends, *(stop[0] for stop in request.stop)]
    else:
        ends = [tokens.whole([end]) for end in tokens.ends]
        stop = [*ends, *(tokens.whole(stop) for stop in request.stop)]
    own = {"prompt": list(request.prompt), "seed": seed_of(request.seed), "stop": stop}
    return {**vars(request), **own, "ends": tokens.ends}


def seed_of(seed: tuple[int, ...]) -> int:
    """One number from a seed's parts. The last part is added, so a group's seeds are consecutive.

    The multiplier is MINSTD's (Park and Miller 1988).
    """
    *head, last = seed or (0,)
    mixed = 1
    for part in head:
        mixed = (mixed * 48271 + part) % SPACE
    return (mixed * 48271 + last) % SPACE


def make(data_dir: Path, cores: int) -> Engine:
    """The engine that the environment's variables describe; its files lie in ``tinker``. It
    computes elsewhere. Raises EngineError: A variable is invalid."""
    try:
        return TinkerEngine(read_options(), data_dir / "tinker")
    except BadOption as error:
        raise EngineError(str(error)) from error


class TinkerEngine(Passes):
    """Implements `engines.base.Engine` on a server."""

    def __init__(self, options: Options, directory: Path) -> None:
        """
        Args:
            options: The server, and training options.
            directory: For the journal and the log; created if missing. Checkpoints are beside it.
        """
        self._options = options
        self._checkpoints = directory.parent / "checkpoints"
        self._at = Connection(options, directory)
        self._link = self._at.link
        self._tokenizers: dict[str, ChatTokenizer] = {}
        self._loading = asyncio.Lock()
        self._opened = Handles[Pointer]("tinker", lambda: self._link.pid)
        self._tidied = False

    def bases(self) -> Sequence[Base]:
        return list(self._at.bases.values())

    def about(self) -> About:
        return self._at.about

    async def tokenizer(self, base: str) -> ChatTokenizer:
        model = self._at.model(base)
        async with self._loading:
            if base not in self._tokenizers:
                self._tokenizers[base] = await asyncio.to_thread(load, model)
        return self._tokenizers[base]

    async def start(self) -> None:
        """Connect. Raises EngineError as `Connection.start` does."""
        await self._at.start()

    async def stop(self) -> None:
        await self._link.stop()

    async def open(self, source: str | Path) -> Handle:
        """Open a policy under a handle; the server is called when it is first trained or
        sampled."""
        pointer = self._at.pointer_of(source)
        await self._at.connect()
        handle = self._opened.new()
        await self._link.ask("open", handle=handle, source=asdict(pointer))
        self._opened.keep(handle, self._link.pid, pointer)
        if not self._tidied:
            self._tidied = True
            self._tidying = asyncio.create_task(self._tidy(), name="tinker tidy")
        return handle

    async def close(self, handle: Handle) -> None:
        if self._opened.pop(handle) is not None:
            with suppress(EngineLost):  # it is closed with its process, too
                await self._link.ask("close", handle=handle)

    def view(self, handle: Handle) -> Handle | None:
        """A server would have to save the weights once more."""
        return None

    async def sample(self, handle: Handle, requests: Sequence[SampleRequest]) -> list[Sampled]:
        base_module.check_requests(requests, *self._sizes(handle))
        tokens = await self.tokenizer(self._base(handle).name)
        asked = [as_asked(request, tokens) for request in requests]
        rows = await self._link.ask("sample", handle=handle, requests=asked)
        return [Sampled(**row) for row in rows]

    async def forward(self, handle: Handle, datums: Sequence[Datum]) -> list[list[float]]:
        base_module.check_datums(datums, *self._sizes(handle), ratios=False)
        rows = [asdict(datum) for datum in datums]
        return list(await self._link.ask("forward", handle=handle, datums=rows))

    async def slim(self, state: Path, directory: Path) -> str:
        """Write a pointer without the optimizer's moments, which stay on the server."""
        slimmer = replace(await asyncio.to_thread(read_pointer, state), optimizer=False)
        return str(await asyncio.to_thread(write_pointer, directory, slimmer))

    async def optim_step(self, handle: Handle, adam: Adam, directory: Path) -> Saved:
        base = self._base(handle)
        base_module.check_adam(adam)
        name = f"hud-{directory.name}-{uuid4().hex[:8]}"
        stepped = await self._link.ask("optim_step", handle=handle, adam=asdict(adam), name=name)
        pointer = Pointer(
            self._options.url,
            base.name,
            self._at.models[base.name],
            stepped["rank"],
            stepped["state_path"],
            stepped["sampler_path"],
        )
        path = await asyncio.to_thread(write_pointer, directory, pointer)
        self._opened.keep(handle, self._link.pid, pointer)
        await self._link.ask("stepped", handle=handle, source=asdict(pointer), lost=stepped["lost"])
        return Saved(str(path), pointer.sampler_path or str(pointer.state_path), stepped["metrics"])

    async def _pass(
        self,
        handle: Handle,
        datums: Sequence[Datum],
        worth: Worth,
        loss_fn: str | None,
        config: Mapping[str, float],
    ) -> dict[str, float]:
        rows, worths = [asdict(datum) for datum in datums], [list(row) for row in worth]
        fields = {"worth": worths, "loss_fn": loss_fn, "config": config}
        return dict(await self._link.ask("accumulate", handle=handle, datums=rows, **fields))

    def _sizes(self, handle: Handle) -> tuple[int, int]:
        base = self._base(handle)
        return base.context, base.vocabulary

    def _base(self, handle: Handle) -> Base:
        """The base of an open handle. Raises as `Handles.known`."""
        return self._at.bases[self._opened.known(handle).base]

    async def _tidy(self) -> None:
        try:
            await self._link.ask("tidy", checkpoints=str(self._checkpoints))
        except EngineError:
            self._tidied = False  # else with the next policy
