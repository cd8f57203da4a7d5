"""ToyEngine: the engine contract in process, without arrays: a softmax over four ways to answer.

A policy is four logits: answer right, nearly right, at length, or not at all. What each
way says depends on the prompt; how often it is chosen does not, so what is learned on one
task holds for all. The whole logprob lies on a completion's first token.
"""

import asyncio
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hud_tui.service.engines import base as base_module
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
)
from hud_tui.service.engines.tiny.tokenizer import END, VOCABULARY, CharTokenizer
from hud_tui.service.environments import ENVIRONMENTS, TASKSETS

WAYS = 4
START = [-1.2, 0.0, 0.0, 0.3]
FOREIGN = -5.0
"""Logprob of a first token that no way begins with."""

TOY = Base(
    name="toy/four",
    description="Four ways to answer",
    context=128,
    vocabulary=VOCABULARY,
    defaults=Defaults(learning_rate=0.3, group_size=8, max_tokens=20, tasks_per_step=4, steps=10),
)


@dataclass
class ToyPolicy:
    logits: list[float] = field(default_factory=lambda: list(START))
    m: list[float] = field(default_factory=lambda: [0.0] * WAYS)
    v: list[float] = field(default_factory=lambda: [0.0] * WAYS)
    t: int = 0
    gradient: list[float] | None = None

    def chances(self, temperature: float = 1.0) -> list[float]:
        top = max(self.logits)
        weights = [math.exp((logit - top) / temperature) for logit in self.logits]
        return [weight / sum(weights) for weight in weights]

    def push(self, chances: list[float], way: int, weight: float) -> None:
        """Add weight · d logprob(way) / d logits to the ascent direction."""
        gradient = self.gradient or [0.0] * WAYS
        self.gradient = [
            g + weight * ((arm == way) - chance)
            for arm, (g, chance) in enumerate(zip(gradient, chances, strict=True))
        ]


class ToyEngine:
    """Keeps `hud_tui.service.engines.base.Engine`."""

    def __init__(self) -> None:
        self.tokens = CharTokenizer()
        self.policies: dict[str, ToyPolicy] = {}
        self.opened = 0
        self.place = About("toy")
        """What it says of itself."""
        self.kill_next = ""
        """Name of the verb that the engine dies in, once."""
        self.fail_next: dict[str, EngineError] = {}
        """What a verb raises once it reaches a policy, once; the engine stands."""
        self.may_roll_out = asyncio.Event()
        """Whether a run gets its rollouts, or waits for them; what samples once is answered."""
        self.may_roll_out.set()
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

    def bases(self) -> Sequence[Base]:
        return [TOY]

    def about(self) -> About:
        return self.place

    async def tokenizer(self, base: str) -> CharTokenizer:
        if base != TOY.name:
            raise EngineError(f"no base {base}")
        return self.tokens

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        self.policies.clear()

    async def open(self, source: str | Path) -> str:
        self._live("open")
        policy = ToyPolicy()
        if isinstance(source, Path):
            policy = _load(source)
        elif source != TOY.name:
            raise EngineError(f"no base {source}")
        self.opened += 1
        handle = f"toy-{self.opened}"
        self.policies[handle] = policy
        return handle

    async def close(self, handle: str) -> None:
        self.policies.pop(handle, None)

    async def sample(self, handle: str, requests: Sequence[SampleRequest]) -> list[Sampled]:
        if len(requests) > 1:
            await self.may_roll_out.wait()
        self._live("sample")
        policy = self._policy(handle, "sample")
        base_module.check_requests(requests, TOY.context, TOY.vocabulary)
        return [self._sample(policy, request) for request in requests]

    async def forward(self, handle: str, datums: Sequence[Datum]) -> list[list[float]]:
        self._live("forward")
        policy = self._policy(handle)
        return [self._logprobs(policy, datum) for datum in datums]

    async def forward_backward(
        self,
        handle: str,
        datums: Sequence[Datum],
        loss_fn: str,
        config: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        self._live("forward_backward")
        policy = self._policy(handle, "forward_backward")
        base_module.loss_config(loss_fn, config)
        moved = [datum for datum in datums if datum.advantage]
        loss = 0.0
        for datum in moved:
            now = self._logprobs(policy, datum)[0]
            ratio = 1.0 if loss_fn == "cross_entropy" else math.exp(now - datum.logprobs[0])
            loss -= datum.advantage * (now if loss_fn == "cross_entropy" else ratio)
            self._push(policy, datum, datum.advantage * ratio)
        return self._figures(policy, datums, [bool(d.advantage) for d in datums], loss)

    async def backward(
        self, handle: str, datums: Sequence[Datum], weights: Sequence[Sequence[float]]
    ) -> dict[str, float]:
        self._live("backward")
        policy = self._policy(handle)
        for datum, row in zip(datums, weights, strict=True):
            if any(row):
                self._push(policy, datum, row[0])
        return self._figures(policy, datums, [any(row) for row in weights], 0.0)

    def _figures(
        self, policy: ToyPolicy, datums: Sequence[Datum], moves: Sequence[bool], loss: float
    ) -> dict[str, float]:
        """As the contract has them, over all turns and over those that moved the policy."""
        parts = []
        for wanted in (True, False):
            some = [d for d, moved in zip(datums, moves, strict=True) if moved == wanted]
            parts.append(self._part(policy, some, loss if wanted else 0.0) if some else None)
        return base_module.of_pass(*parts)

    def _part(self, policy: ToyPolicy, datums: Sequence[Datum], loss: float) -> dict[str, float]:
        tokens = sum(len(datum.output) for datum in datums)
        entropy = -sum(p * math.log(p) for p in policy.chances()) * len(datums) / tokens
        found = {"loss:sum": loss, "num_tokens": float(tokens), "entropy": entropy}
        if not all(datum.logprobs for datum in datums):
            return found
        gaps = [self._logprobs(policy, d)[0] - d.logprobs[0] for d in datums]
        low, high = base_module.BOUNDS
        outside = sum(not low <= math.exp(gap) <= high for gap in gaps)
        # Only a first token has a logprob: the ratios of the others are 1.
        ratios = [math.exp(gap) for gap in gaps] + [1.0] * (tokens > len(datums))
        return found | {
            "kl_sample_train": -sum(gaps) / tokens,
            "ratio_max": max(ratios),
            "clip_fraction": 0.0,
            "ratio_outside": outside / tokens,
        }

    async def optim_step(self, handle: str, adam: Adam, directory: Path) -> Saved:
        self._live("optim_step")
        policy = self._policy(handle, "optim_step")
        if policy.gradient is None:
            raise EngineRefused("nothing was accumulated")
        gradient, policy.gradient = policy.gradient, None
        policy.t += 1
        for arm, g in enumerate(gradient):
            policy.m[arm] = adam.beta1 * policy.m[arm] + (1 - adam.beta1) * g
            policy.v[arm] = adam.beta2 * policy.v[arm] + (1 - adam.beta2) * g * g
            mean = policy.m[arm] / (1 - adam.beta1**policy.t)
            scale = math.sqrt(policy.v[arm] / (1 - adam.beta2**policy.t)) + adam.eps
            policy.logits[arm] += adam.learning_rate * mean / scale
        path = directory / "state.json"
        path.write_text(json.dumps(vars(policy) | {"gradient": None}))
        if self._rests_after is not None:
            self._rests_after -= 1
            self._rest_if_due()
        return Saved(str(path), str(path), {"grad_norm": math.hypot(*gradient)})

    async def slim(self, state: Path, directory: Path) -> str:
        self._live("slim")
        path = directory / "weights.json"
        path.write_text(json.dumps({"logits": _load(state).logits}))
        return str(path)

    def flatten(self, solved: bool = False) -> None:
        """From now on a policy has one answer to a prompt, wrong or right: zero variance."""

        def only(prompt: Sequence[int]) -> list[list[int]]:
            said = _answers().get(tuple(prompt), "7") if solved else "no"
            return [[*self.tokens.encode(said), END]] * WAYS

        self.ways = only  # type: ignore[method-assign]

    def _live(self, verb: str) -> None:
        if self.kill_next == verb:
            self.kill_next = ""
            self.policies.clear()
            raise EngineLost("the engine stopped")

    def _policy(self, handle: str, verb: str = "") -> ToyPolicy:
        if verb in self.fail_next:
            raise self.fail_next.pop(verb)
        if handle not in self.policies:
            raise EngineError("this policy is closed")
        return self.policies[handle]

    def ways(self, prompt: Sequence[int]) -> list[list[int]]:
        """What each way says to a prompt, as tokens."""
        return _ways(tuple(prompt))

    def _sample(self, policy: ToyPolicy, request: SampleRequest) -> Sampled:
        ways = self.ways(request.prompt)
        if request.top_logprobs:
            raise EngineRefused("top_logprobs: the toy tells none")
        chances = policy.chances(request.temperature or 1.0)
        way = chances.index(max(chances))
        if request.temperature:
            kept = [c if sum(b for b in chances if b > c) < request.top_p else 0 for c in chances]
            way = random.Random(str(request.seed)).choices(range(WAYS), kept)[0]
        said = _until(ways[way], request.stop)
        cut = said[: request.max_tokens]
        logprobs = [math.log(chances[way])] + [0.0] * (len(cut) - 1)
        return Sampled(cut, logprobs, "stop" if len(said) == len(cut) else "length")

    def _way(self, datum: Datum) -> int | None:
        output = list(datum.output)
        ways = self.ways(datum.prompt)
        return next((arm for arm, way in enumerate(ways) if way[: len(output)] == output), None)

    def _logprobs(self, policy: ToyPolicy, datum: Datum) -> list[float]:
        way = self._way(datum)
        chances = policy.chances(datum.temperature)
        first = FOREIGN if way is None else math.log(chances[way])
        return [first] + [0.0] * (len(datum.output) - 1)

    def _push(self, policy: ToyPolicy, datum: Datum, weight: float) -> None:
        way = self._way(datum)
        if way is None:
            policy.gradient = policy.gradient or [0.0] * WAYS
        else:
            policy.push(policy.chances(datum.temperature), way, weight)


def _load(path: Path) -> ToyPolicy:
    try:
        return ToyPolicy(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise StateDamaged(f"{path.name} is not a whole state: {error}") from error


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
