"""What ``tiny/tools-1M`` does with tools that no lesson has, without a service.

Run: python -m tests.live.unseen_tools [--base NAME] [--samples 64] [--temperature 1] [--show]

Names, verbs, values and sentences are kept out of every lesson: the words by
`tests.pretrain.words.HELD_OUT`, the sentences are `SHAPES` and `CHAINS`. An answer is right if it
is the one call that is asked for: its tool, and exactly the arguments of the prompt; of several
turns, if all of them are. ``--show`` prints prompts and answers. Exits 1 where a goal is missed at
temperature 1.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hud_tui.service.engines.base import SampleRequest
from hud_tui.service.engines.tiny.engine import pairs_path, weights_path
from hud_tui.service.engines.tiny.tokenizer import BpeTokenizer
from tests.learner import Learner
from tests.pretrain.talks import schema
from tests.pretrain.words import HELD_OUT_NAMES, HELD_OUT_VALUES, HELD_OUT_VERBS

BASE = "tiny/tools-1M"
NAMES = (
    *HELD_OUT_NAMES,
    *("get_stock", "find_order", "weather_now", "sumOf", "divideBy", "convertUnits"),
    *("lookup_recipe", "order_status", "stock_of", "parcelTracker", "forecast_city", "galaxyMap"),
)
KEYS = {
    "string": ("item", "city", "recipe", "patient", "name", "title", "topic", "vendor", "place"),
    "integer": ("id", "number", "count", "amount", "x", "code", "n", "order_id", "limit", "total"),
}
"""Names of arguments, by their type."""
SHAPES = (
    "Use the {t} tool for {v}, then tell me the outcome.",
    "Could you please {verb} {v} through {t}?",
    "Kindly {verb} {v}; the right tool is {t}.",
    "Hand {v} over to {t}.",
    "Have {t} handle {v}, please.",
    "There is a tool named {t}. Give it {v}.",
    "I would like {t} to {verb} {v}.",
    "My colleague wants to know about {v}: let {t} settle it.",
    "{t} should be told {v}; what does it answer?",
    "By means of {t}, {verb} {v}.",
    "Time to {verb}: {t} with {k} {v}.",
    "Let {t} have the {k}, which is {v}.",
)
CHAINS = (
    "First {t} with {v}, and whatever comes out goes to {t2}.",
    "Use the {t} tool for {v}. Its output is what {t2} needs.",
    "Have {t} handle {v}. Afterwards let {t2} handle that.",
    "{Verb} {v} through {t}, and hand the outcome to {t2}.",
    "Let {t} have {v}, then run {t2} on the outcome.",
    "I would like {t} to {verb} {v}. Give {t2} what it returns.",
)
OTHER_SHAPES = (
    "Please call {t} with {v}.",
    "Can you run {t} on {v} for me?",
    "{t} {v}",
    "I need you to {verb} {v} using {t}.",
    "Use {t} to {verb} {v}, please.",
    "For {v}, run the {t} tool and tell me what it says.",
    "What does {t} return for {v}?",
    "hey, could you try {t} with {v} real quick",
    "Would you mind passing {v} to {t}?",
    "Invoke {t} with {k} set to {v}.",
    "I'd like to {verb} {v}; the tool for that is {t}.",
    "Take {v} and give it to {t}.",
    "My customer is asking about {v}, so please check it with {t}.",
    "Could you {verb} {v} with the help of {t}?",
    "Run {t} where {k} is {v}.",
    "The value is {v}. Please send it through {t}.",
    "Let's see what {t} has to say about {v}.",
    "Go ahead and {verb} {v} via {t}.",
    "With {t}, {verb} {v} and show me the result.",
    "I want the result of {t} for {v}.",
    "{v} is the one I'm after, can you {verb} it through {t}?",
    "Kindly execute {t}, using {v} as the input.",
    "Please use the {t} function, {k}: {v}.",
    "We have to {verb} {v} before lunch, so start {t} now.",
)
OTHER_CHAINS = (
    "Call {t} with {v}, then pass the result to {t2}.",
    "First run {t} on {v}, and then run {t2} on whatever comes back.",
    "Can you look up {v} with {t} and feed the answer into {t2}?",
    "Use {t} for {v}. Once you have the answer, give it to {t2}.",
    "I need {t2} run on the output of {t} for {v}.",
    "Take {v}, put it through {t}, and send what you get to {t2}.",
    "Please {verb} {v} using {t}, then use {t2} with the value it returns.",
    "start with {t} on {v}, then do {t2} with that result",
    "Whatever {t} returns for {v}, hand it over to {t2}.",
    "Could you check {v} in {t} and then call {t2} with what it tells you?",
    "After you get the reply from {t} for {v}, use that reply in {t2}.",
    "Two steps: {t} with {v}, then {t2} with the answer from the first step.",
)
"""Sentences of somebody who had not read the lessons. Eight of the 24 occur in them, or do with an
opening or a closing: they were not kept out."""
STRING, INTEGER, EITHER = ("string",), ("integer",), ("string", "integer")
TROUBLE = "Temporary failure. Call me once more."


@dataclass(frozen=True)
class Task:
    prompt: str
    tools: Sequence[Mapping[str, Any]]
    calls: Sequence[tuple[str, Mapping[str, Any]] | None]
    """What is to be called, one after the other; None: nothing."""
    heard: str = ""
    """What the first tool answers."""


def task(
    random: Random,
    kinds: Sequence[str],
    count: int = 1,
    chained: bool = False,
    fails: bool = False,
    others: bool = False,
) -> Task:
    """A call of one of `count` tools with an argument of one of these types; `chained`: and one of
    another tool with what it answers; `fails`: and the same again; `others`: in sentences of
    somebody else."""
    shapes, chains = (OTHER_SHAPES, OTHER_CHAINS) if others else (SHAPES, CHAINS)
    names = random.sample(NAMES, count)
    kind = random.choice(kinds)
    keys = [random.choice(KEYS[kind]) for _ in names]
    tools = [schema(name, **{key: kind}) for name, key in zip(names, keys, strict=True)]
    first, *rest = random.sample(range(count), 2 if chained else 1)
    second = rest[0] if rest else first
    value, heard = _value(random, kind), _value(random, kind)
    verb = random.choice(HELD_OUT_VERBS)
    prompt = random.choice(chains if chained else shapes).format(
        t=names[first],
        t2=names[second],
        v=f'"{value}"' if kind == "string" and random.random() < 0.3 else value,
        k=keys[first],
        verb=verb,
        Verb=verb.capitalize(),
    )
    calls = [(names[first], {keys[first]: value})]
    calls += [(names[second], {keys[second]: heard})] if chained else calls * fails
    said = TROUBLE if fails else str(heard)
    return Task(prompt, tools, calls, said)


def described(random: Random) -> Task:
    """A call of one of three tools, which a prompt asks for by its description."""
    words = random.sample(HELD_OUT_NAMES, 6)
    names, nouns = words[:3], words[3:]
    tools = [
        schema(name, f"Gives back the {noun}.", item="string")
        for name, noun in zip(names, nouns, strict=True)
    ]
    chosen, value = random.randrange(3), random.choice(HELD_OUT_VALUES)
    prompt = f'I wonder about the {nouns[chosen]} of "{value}".'
    return Task(prompt, tools, [(names[chosen], {"item": value})])


def unfit(random: Random) -> Task:
    """A tool that there is not."""
    asked = task(random, EITHER, 4)
    [(wanted, _)] = [call for call in asked.calls if call]
    tools = [tool for tool in asked.tools if tool["function"]["name"] != wanted]
    return Task(asked.prompt, tools, [None])


def _value(random: Random, kind: str) -> Any:
    if kind == "integer":
        return random.randrange(random.choice((10, 100, 1000, 10_000)))
    return random.choice(HELD_OUT_VALUES)


@dataclass(frozen=True)
class Kind:
    make: Callable[[Random], Task]
    goal: int
    """Right ones of 64."""


def calls(goal: int, kinds: Sequence[str], count: int = 1, **how: bool) -> Kind:
    """Of a `task`."""
    return Kind(lambda random: task(random, kinds, count, **how), goal)


KINDS: Mapping[str, Kind] = {
    "one tool, string": calls(48, STRING),
    "one tool, integer": calls(48, INTEGER),
    "three tools, string": calls(40, STRING, 3),
    "three tools, integer": calls(40, INTEGER, 3),
    "one tool, string, sentences of somebody else": calls(48, STRING, others=True),
    "one tool, integer, sentences of somebody else": calls(48, INTEGER, others=True),
    "three tools, string, sentences of somebody else": calls(40, STRING, 3, others=True),
    "three tools, integer, sentences of somebody else": calls(40, INTEGER, 3, others=True),
    "two calls, sentences of somebody else": calls(20, EITHER, 2, chained=True, others=True),
    "six tools": calls(0, EITHER, 6),
    "two calls, the second with the first's answer": calls(20, EITHER, 2, chained=True),
    "a call that fails, and the same again": calls(0, EITHER, fails=True),
    "three tools, asked for by a description": Kind(described, 0),
    "three tools, none of which is asked for": Kind(unfit, 0),
}


def tasks(kind: str, count: int) -> list[Task]:
    random = Random(f"unseen {kind}")
    return [KINDS[kind].make(random) for _ in range(count)]


Said = tuple[str, list[tuple[str, Any]]]
"""The words of an answer, and its calls."""


def answers(
    learner: Learner, tokenizer: BpeTokenizer, asked: Sequence[Task], temperature: float
) -> list[list[Said]]:
    """What is said in each task, turn by turn."""
    prompts = [tokenizer.render([{"role": "user", "content": t.prompt}], t.tools) for t in asked]
    said: list[list[Said]] = [[] for _ in asked]
    for turn in range(max(len(t.calls) for t in asked)):
        requests = [
            SampleRequest(prompt, 64, temperature, seed=(turn, n))
            for n, prompt in enumerate(prompts)
        ]
        for n, one in enumerate(learner.sample(requests)):
            text, calls = tokenizer.calls(one.tokens)
            said[n].append((text, [(call.name, _read(call.arguments)) for call in calls]))
            heard = tokenizer.render([{"role": "tool", "content": asked[n].heard}])
            prompts[n] = [*prompts[n], *one.tokens, *heard]
    return said


def _read(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def is_right(asked: Task, said: Sequence[Said]) -> bool:
    wanted = [[] if call is None else [call] for call in asked.calls]
    return all(calls == each for each, (_, calls) in zip(wanted, said, strict=False))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default=BASE)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    learner, tokenizer = Learner(weights_path(args.base)), BpeTokenizer.read(pairs_path(args.base))
    missed = False
    for name, kind in KINDS.items():
        asked = tasks(name, args.samples)
        said = answers(learner, tokenizer, asked, args.temperature)
        right = [is_right(*pair) for pair in zip(asked, said, strict=True)]
        print(f"{name}: {sum(right)} of {args.samples} right", flush=True)
        missed |= sum(right) * 64 < kind.goal * args.samples
        if args.show:
            for one, turns, hit in zip(asked, said, right, strict=True):
                print(f"  {'right' if hit else 'WRONG'}  {one.prompt}  {turns}")
    return int(missed and args.temperature == 1)


if __name__ == "__main__":
    sys.exit(main())
