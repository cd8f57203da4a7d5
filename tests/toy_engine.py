"""ToyEngine: the engine contract in process, without arrays: a softmax over four ways to answer.

A policy is four logits: answer right, nearly right, at length, or not at all. What each
way says depends on the prompt; how often it is chosen does not, so what is learned on one
task holds for all. The whole logprob lies on a completion's first token.
"""

import asyncio
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from hud_tui.service.engines import base
from hud_tui.service.engines.base import (
    About,
    Adam,
    Base,
    Datum,
    Defaults,
    EngineError,
    EngineLost,
    EngineRefused,
    Sampled,
    SampleRequest,
    Saved,
    StateDamaged,
    Worth,
)
from hud_tui.service.engines.tiny.tokenizer import END, VOCABULARY, CharTokenizer
from hud_tui.service.environments import ENVIRONMENTS, TASKSETS

WAYS = 4
START = [-1.2, 0.0, 0.0, 0.3]
STATE = ("logits", "m", "v", "t")
"""What is saved of a policy."""
FOREIGN = -5.0
"""Logprob of a first token that no way begins with."""

TOY = Base(
    name="toy/four",
    description="Four ways to answer",
    context=128,
    vocabulary=VOCABULARY,
    defaults=Defaults(learning_rate=0.3, group_size=8, max_tokens=20, tasks_per_step=4, steps=10),
)


Ways = Callable[[Sequence[int]], list[list[int]]]
"""What each way says to a prompt, as tokens."""


@dataclass
class ToyPolicy:
    ways: Ways
    logits: list[float] = field(default_factory=lambda: list(START))
    m: list[float] = field(default_factory=lambda: [0.0] * WAYS)
    v: list[float] = field(default_factory=lambda: [0.0] * WAYS)
    t: int = 0
    gradient: list[float] | None = None

    def _chances(self, temperature: float) -> list[float]:
        top = max(self.logits)
        weights = [math.exp((logit - top) / temperature) for logit in self.logits]
        return [weight / sum(weights) for weight in weights]

    def _way(self, datum: Datum) -> int | None:
        output = list(datum.output)
        ways = self.ways(datum.prompt)
        return next((arm for arm, way in enumerate(ways) if way[: len(output)] == output), None)

    def sample(self, request: SampleRequest) -> Sampled:
        if request.top_logprobs:
            raise EngineRefused("top_logprobs: the toy tells none")
        chances = self._chances(request.temperature or 1.0)
        way = chances.index(max(chances))
        if request.temperature:
            kept = [c if sum(b for b in chances if b > c) < request.top_p else 0 for c in chances]
            way = random.Random(str(request.seed)).choices(range(WAYS), kept)[0]
        said = _until(self.ways(request.prompt)[way], request.stop)
        cut = said[: request.max_tokens]
        logprobs = [math.log(chances[way])] + [0.0] * (len(cut) - 1)
        return Sampled(cut, logprobs, "stop" if len(said) == len(cut) else "length")

    def logprobs(self, datums: Sequence[Datum]) -> list[list[float]]:
        return [[self._first(datum)] + [0.0] * (len(datum.output) - 1) for datum in datums]

    def _first(self, datum: Datum) -> float:
        """Logprob of the first token, which has all of it."""
        way = self._way(datum)
        return FOREIGN if way is None else math.log(self._chances(datum.temperature)[way])

    def accumulate(
        self,
        datums: Sequence[Datum],
        worth: Worth,
        loss_fn: str | None,
        config: Mapping[str, float],
    ) -> dict[str, float]:
        loss = 0.0
        for datum, (first, *_) in zip(datums, worth, strict=True):
            ratio, now = 1.0, self._first(datum)
            if loss_fn not in (None, "cross_entropy"):
                ratio = math.exp(now - datum.logprobs[0])
            if loss_fn is not None:
                loss -= first * (now if loss_fn == "cross_entropy" else ratio)
            if first:
                self._push(datum, first * ratio)
        return self._figures(datums, loss)

    def _push(self, datum: Datum, weight: float) -> None:
        """Add weight · d logprob / d logits to the ascent direction."""
        way = self._way(datum)
        gradient = self.gradient or [0.0] * WAYS
        if way is not None:
            chances = self._chances(datum.temperature)
            gradient = [
                g + weight * ((arm == way) - chance)
                for arm, (g, chance) in enumerate(zip(gradient, chances, strict=True))
            ]
        self.gradient = gradient

    def _figures(self, datums: Sequence[Datum], loss: float) -> dict[str, float]:
        tokens = sum(len(datum.output) for datum in datums)
        entropy = -sum(p * math.log(p) for p in self._chances(1.0)) * len(datums) / tokens
        figures = {"loss:sum": loss, "num_tokens": float(tokens), "entropy": entropy}
        if not all(datum.logprobs for datum in datums):
            return figures
        gaps = [self._first(datum) - datum.logprobs[0] for datum in datums]
        low, high = base.BOUNDS
        outside = sum(not low <= math.exp(gap) <= high for gap in gaps)
        # Only a first token has a logprob: the ratios of the others are 1.
        ratios = [math.exp(gap) for gap in gaps] + [1.0] * (tokens > len(datums))
        return figures | {
            "kl_sample_train": -sum(gaps) / tokens,
            "ratio_max": max(ratios),
            "clip_fraction": 0.0,
            "ratio_outside": outside / tokens,
        }

    def optim_step(self, adam: Adam, directory: Path) -> Saved:
        if self.gradient is None:
            raise EngineRefused("nothing was accumulated")
        gradient, self.gradient = self.gradient, None
        self.t += 1
        for arm, g in enumerate(gradient):
            self.m[arm] = adam.beta1 * self.m[arm] + (1 - adam.beta1) * g
            self.v[arm] = adam.beta2 * self.v[arm] + (1 - adam.beta2) * g * g
            mean = self.m[arm] / (1 - adam.beta1**self.t)
            scale = math.sqrt(self.v[arm] / (1 - adam.beta2**self.t)) + adam.eps
            self.logits[arm] += adam.learning_rate * mean / scale
        path = directory / "state.json"
        path.write_text(json.dumps({name: getattr(self, name) for name in STATE}))
        return Saved(str(path), str(path), {"grad_norm": math.hypot(*gradient)})


class ToyEngine(base.InProcess):
    """The contract by `hud_tui.service.engines.base.InProcess`, which tests can kill, fail and
    hold."""

    def __init__(self) -> None:
        self.tokens = CharTokenizer()
        super().__init__("toy", TOY, self.tokens, self._load, _slim)
        self.place = About("toy")
        """What it says of itself."""
        self.kill_next = ""
        """Name of the verb that the engine dies in, once."""
        self.fail_next: dict[str, EngineError] = {}
        """What a verb raises, once; the engine stands."""
        self.may_roll_out = asyncio.Event()
        """Whether a run gets its rollouts, or waits for them; what samples once is answered."""
        self.may_roll_out.set()
        self.has_views = False
        """Whether weights are sampled that a step has changed."""
        self._rests_after: int | None = None

    def rest_after(self, steps: int) -> None:
        """Take so many optimizer steps, then let a run wait for its rollouts: it stays running
        and leaves the processor to what is tested."""
        self._rests_after = steps
        self.may_roll_out.set()
        self._rest_if_due()

    @property
    def rests(self) -> bool:
        """Whether those steps have been taken."""
        return not self.may_roll_out.is_set()

    def go_on(self) -> None:
        """Take steps again, without end."""
        self._rests_after = None
        self.may_roll_out.set()

    def _rest_if_due(self) -> None:
        if self._rests_after is not None and self._rests_after <= 0:
            self.may_roll_out.clear()

    def about(self) -> About:
        return self.place

    async def open(self, source: str | Path) -> str:
        self._reach("open")
        return await super().open(source)

    async def sample(self, handle: str, requests: Sequence[SampleRequest]) -> list[Sampled]:
        if len(requests) > 1:
            await self.may_roll_out.wait()
        self._reach("sample")
        return await super().sample(handle, requests)

    async def forward(self, handle: str, datums: Sequence[Datum]) -> list[list[float]]:
        self._reach("forward")
        return await super().forward(handle, datums)

    async def _pass(
        self,
        handle: str,
        datums: Sequence[Datum],
        worth: Worth,
        loss_fn: str | None,
        config: Mapping[str, float],
    ) -> dict[str, float]:
        self._reach("backward" if loss_fn is None else "forward_backward")
        return await super()._pass(handle, datums, worth, loss_fn, config)

    async def optim_step(self, handle: str, adam: Adam, directory: Path) -> Saved:
        self._reach("optim_step")
        saved = await super().optim_step(handle, adam, directory)
        if self._rests_after is not None:
            self._rests_after -= 1
            self._rest_if_due()
        return saved

    def view(self, handle: str) -> str | None:
        if not self.has_views or handle not in self.policies:
            return None
        self._count += 1
        viewed, view = self.policies[handle], f"view-{self._count}"
        self.policies[view] = replace(viewed, logits=list(viewed.logits))
        return view

    async def slim(self, state: Path, directory: Path) -> str:
        self._reach("slim")
        return await super().slim(state, directory)

    def _reach(self, verb: str) -> None:
        if self.kill_next == verb:
            self.kill_next = ""
            self.policies.clear()
            raise EngineLost("the engine stopped")
        if verb in self.fail_next:
            raise self.fail_next.pop(verb)

    def flatten(self, solved: bool = False) -> None:
        """From now on a policy has one answer to a prompt, wrong or right: zero variance."""

        def only(prompt: Sequence[int]) -> list[list[int]]:
            said = _answers().get(tuple(prompt), "7") if solved else "no"
            return [[*self.tokens.encode(said), END]] * WAYS

        self.ways = only  # type: ignore[method-assign]

    def ways(self, prompt: Sequence[int]) -> list[list[int]]:
        """What each way says to a prompt, as tokens."""
        return _ways(tuple(prompt))

    def _load(self, state: Path | None) -> ToyPolicy:
        stored = {} if state is None else _read(state)
        return ToyPolicy(lambda prompt: self.ways(prompt), **stored)


def _read(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise StateDamaged(f"{path.name} is not a whole state: {error}") from error
    if not isinstance(stored, dict) or not stored.keys() <= set(STATE):
        raise StateDamaged(f"{path.name} is not a whole state")
    return stored


def _slim(state: Path, directory: Path) -> str:
    path = directory / "weights.json"
    path.write_text(json.dumps({"logits": _read(state)["logits"]}))
    return str(path)


def _until(tokens: list[int], stops: Sequence[Sequence[int]]) -> list[int]:
    """The tokens up to and with the first stop sequence."""
    for end in range(1, len(tokens) + 1):
        if any(stop and tokens[:end][-len(stop) :] == list(stop) for stop in stops):
            return tokens[:end]
    return tokens


@cache
def _ways(prompt: tuple[int, ...]) -> list[list[int]]:
    right = _answers().get(prompt, "7")
    texts = (right, f"{right}0", f"It is {right}, I think", "I do not know.")
    return [[*CharTokenizer().encode(text), END] for text in texts]


@cache
def _answers() -> dict[tuple[int, ...], str]:
    """The right answer to every prompt of the built-in tasksets."""
    tokens, answers = CharTokenizer(), {}
    for taskset in TASKSETS.values():
        for row in taskset.tasks:
            scenario = ENVIRONMENTS[row["env"]].scenarios[row["id"]]
            message = {"role": "user", "content": scenario.prompt(row["args"])}
            answers[tuple(tokens.render([message]))] = scenario.answer(row["args"])
    return answers
