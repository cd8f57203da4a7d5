"""Every engine: as it makes itself, or as the module of this folder with its name does."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio

from hud_tui.service.engines import modules
from hud_tui.service.engines.base import Adam, Datum, Engine, Sampled, SampleRequest, Saved
from tests.engines.skyrl import SkyRL


@pytest.fixture(scope="session")
def skyrl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SkyRL]:
    """A server that all tests share; who kills it starts one of their own."""
    server = SkyRL(tmp_path_factory.mktemp("skyrl"))
    server.start()
    yield server
    server.kill()


CORES = 2
Make = Callable[[pytest.FixtureRequest, Path], Engine]


@dataclass(frozen=True)
class Setup:
    """How an engine is made for tests: a module of this folder may say otherwise."""

    engine: Make
    """Makes one that is not started yet, given a directory of its own."""
    is_tempered: bool = True
    """Whether training computes logprobs at the temperature that was sampled with."""


def _param(name: str) -> object:
    if find_spec(f"tests.engines.{name}") is None:
        make = import_module(modules()[name]).make
        return pytest.param(Setup(lambda request, directory: make(directory, CORES)), id=name)
    own = import_module(f"tests.engines.{name}")
    return pytest.param(Setup(own.engine, own.TEMPERED), marks=own.MARKS, id=name)


@pytest.fixture(scope="module", params=map(_param, modules()))
def setup(request: pytest.FixtureRequest) -> Setup:
    made: Setup = request.param
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(
    setup: Setup, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    """A started engine, which the tests of a module share: each opens policies of its own."""
    made = setup.engine(request, tmp_path_factory.mktemp("engine"))
    await made.start()
    yield made
    await made.stop()


class Trial:
    """An engine's first base, prompts for it, and steps in directories of their own."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self.engine = engine
        self.base = engine.bases()[0]
        self._directory = directory
        self._steps = 0
        self._opened: list[str] = []

    async def open(self, place: str | Path) -> str:
        """A policy from a base or a state, which `close` closes."""
        handle = await self.engine.open(place)
        self._opened.append(handle)
        return handle

    async def close(self) -> None:
        for handle in self._opened:
            await self.engine.close(handle)

    async def prompt(self, text: str = "3 + 4 = ?") -> list[int]:
        tokens = await self.engine.tokenizer(self.base.name)
        return tokens.render([{"role": "user", "content": text}])

    async def sample(self, handle: str, count: int = 4, seed: int = 1) -> list[Sampled]:
        prompt = await self.prompt()
        return await self.engine.sample(
            handle, [SampleRequest(prompt, 6, seed=(seed, j)) for j in range(count)]
        )

    async def datums(self, handle: str, shift: float = 0.0) -> list[Datum]:
        """Four turns with advantages of both signs; `shift` makes them stale by so much."""
        prompt = await self.prompt()
        return [
            Datum(prompt, one.tokens, [lp + shift for lp in one.logprobs], advantage)
            for one, advantage in zip(
                await self.sample(handle), (1.0, -1.0, 0.5, -0.25), strict=True
            )
        ]

    async def step(self, handle: str, rate: float = 3e-3) -> Saved:
        self._steps += 1
        directory = self._directory / "checkpoints" / f"step-{self._steps}"
        directory.mkdir(parents=True)
        return await self.engine.optim_step(handle, Adam(rate), directory)

    async def stepped(self, loss_fn: str = "ppo") -> tuple[str, list[Datum], Saved]:
        """A policy after one step, the turns that it was trained on, and what was saved."""
        handle = await self.open(self.base.name)
        datums = await self.datums(handle)
        await self.engine.forward_backward(handle, datums, loss_fn)
        return handle, datums, await self.step(handle)

    async def logprobs(self, handle: str, datums: list[Datum]) -> list[float]:
        return [value for row in await self.engine.forward(handle, datums) for value in row]


@pytest.fixture
def trial(engine: Engine, tmp_path: Path) -> Trial:
    return Trial(engine, tmp_path)
