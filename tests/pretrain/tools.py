"""Lessons in calling tools whose names, arguments, values and phrasings are drawn afresh."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hud_tui.service.engines.tiny.tokenizer import END, USER, BpeTokenizer
from tests.pretrain.talks import SUMS, Talk, schema
from tests.pretrain.words import ADJECTIVES, NOUNS, VERBS, Words

KINDS = ("string",) * 6 + ("integer",) * 6 + ("number", "boolean", "choice")
"""Types of arguments, as often as they occur."""


@dataclass(frozen=True)
class Tool:
    name: str
    kinds: Mapping[str, str]
    """Type by argument; the choices of an enum, separated by bars."""
    verb: str
    noun: str
    """What a prompt can ask of it instead of its name."""
    about: str = ""
    """Its description."""

    def schema(self) -> dict[str, Any]:
        """In OpenAI's format."""
        return schema(self.name, self.about, **self.kinds)


@dataclass(frozen=True)
class Call:
    """A call that a prompt asks for."""

    tool: Tool
    values: Mapping[str, Any]
    open: str = ""
    """The argument that is the answer of the call before."""


def drawn_tool(random: Words) -> Tool:
    verb = random.choice((random.choice(VERBS), random.word()))
    noun = random.choice((random.choice(NOUNS), random.word()))
    style = random.random()
    if style < 0.25:
        called = random.name(verb, noun)
    elif style < 0.4:
        called = random.name(noun)
    elif style < 0.5:
        called = random.name(verb)
    else:
        called = random.name()
    kinds = {}
    for _ in range(random.choice((0, 1, 1, 1, 1, 2, 2, 2, 3))):
        kind = "string" if random.plain else random.choice(KINDS)
        if kind == "choice":
            kind = "|".join(dict.fromkeys(random.word() for _ in range(random.randint(2, 4))))
        kinds[_argument(random)] = kind
    about = ""
    if random.random() < 0.3:
        form = random.choice(ABOUT)
        about = form.format(
            Verb=verb.capitalize(),
            verb=verb,
            noun=noun,
            other=random.word(),
            Noun=noun.capitalize(),
        )
    return Tool(called, kinds, verb, noun, about)


ABOUT = (
    "{Verb} the {noun}.", "{Verb} a {noun}.", "{Verb} the {noun} of a {other}.",
    "{Noun} of a {other}.",
    "Returns the {noun}.", "{Verb}s {noun}s.", "The {noun}.", "Get the {noun} for a {other}.",
    "{Verb} {noun} and {other}.",
)  # fmt: skip


def _argument(random: Words) -> str:
    style = random.random()
    if style < 0.2:
        return random.choice("abcdefghijklmnopqrstuvwxyz")
    if style < 0.75:
        return random.word()
    return random.name()


# How a prompt mentions a call: its tool, and its arguments.

QUOTES = ("{}",) * 6 + ('"{}"', '"{}"', "'{}'", "`{}`")
KEYED = (
    "{k} {v}", "{k} {v}", "{k}={v}", "{k}: {v}", "{k} is {v}", "{v} as {k}", "the {k} {v}",
    "{v} as the {k}", "{k} = {v}", "{k} set to {v}", "{k} equal to {v}", "its {k} {v}",
)  # fmt: skip
JOINS = (" and ", " and ", ", ", "; ", " ", ", and ")
PREPOSITIONS = [
    "and",
    "and",
    ",",
    "with",
    "by",
    "to",
    "for",
    "in",
    "from",
    "of",
    "on",
    "at",
    "into",
]
REFERENCES = (
    "the result", "the result", "that", "the answer", "what it says", "its answer",
    "the number", "it",
    "that result", "what you get", "what comes back", "the {w}", "the {w}", "its {w}", "that {w}",
    "what it {v}s", "whatever it {v}s",
)  # fmt: skip
"""An answer that there is not yet."""
NAMED = (
    "Use {t}", "Use the {t} tool", "Use the {t} tool", "Call {t}", "Please call {t}", "Ask {t}",
    "Run {t}", "Please use {t}", "Call the {t} function", "Use the {t} function", "Start {t}",
    "Apply {t}", "Try {t}", "Make a call of {t}", "You can use {t}", "Take the {t} tool",
    "Now use {t}", "Do {t}", "Call the tool {t}", "Use the tool {t}", "We need {t}", "Open {t}",
    "Work with {t}", "Send it to {t}", "I want a call of {t}", "Can you run {t}",
    "You must call {t}",
)  # fmt: skip
"""Beginnings, which the arguments follow."""
WITH_KEYED = (
    " with {a}", " with {a}", ": {a}", " ({a})", " where {a}", " for {a}", " and {a}", ", {a}",
    " by {a}", " using {a}", " {a}",
)  # fmt: skip
WITH_BARE = (
    " with {a}", " on {a}", " for {a}", ": {a}", "({a})", " to {verb} {a}", " to {verb} {a}",
    " to {verb} the {noun} of {a}", " and give it {a}", " to find the {noun} of {a}", ", {a}",
    " to look up {a}", " about {a}", " to see the {noun} for {a}", " {a}", " to {verb} {noun} {a}",
)  # fmt: skip
BEFORE = (
    "{Verb} {a} with {t}", "{Verb} {a} using the {t} tool", "What is the {noun} of {a}? Use {t}",
    "For {a}, use {t}", "Given {a}, call {t}", "I have {a}. Call {t} with this", "{A}: {t}",
    "What is {a}? Ask {t}", "With {a} call {t}", "Take {a} and run {t}", "Here is {a} for {t}",
    "The {noun} is {a}. Pass it to {t}", "How many {noun}s are in {a}? The {t} tool knows",
    "Pass {a} to {t}", "Send {a} to the {t} tool", "I need the {noun} of {a} from {t}",
    "Is {a} {adj}? Use {t} to find out", "{Verb} {a} by {t}", "Put {a} into {t}",
    "Tell me the {noun} of {a}; {t} can do it", "{Verb} the {noun} of {a} with the {t} function",
    "Do you know {a}? If not, call {t}", "Let us {verb} {a}: use the tool {t}",
)  # fmt: skip
UNNAMED = (
    "{Verb} the {noun} of {a}", "What is the {noun} of {a}?", "{Verb} {noun} {a}",
    "I need the {noun} of {a}",
    "Please {verb} the {noun} for {a}", "{Verb} {a}: the {noun}", "Find the {noun} of {a}",
    "Tell me the {noun} of {a}", "Which {noun} has {a}?", "{Noun} of {a}",
    "{Verb} the {noun} with {a}",
    "I want to {verb} the {noun} {a}", "What {noun} is in {a}?",
    "Use a tool to {verb} the {noun} of {a}",
)  # fmt: skip
"""The tool is to be found by what it is for."""
FORWARDED = (
    "{first}. Give {r} to {t}", "{first}, and pass {r} on to {t}", "{first}. {t} takes {r}",
    "{first} and send {r} to {t}", "{first}. Then {t}", "{first}. Put {r} into {t}",
    "{first}; {t} wants {r}", "Give {t} {r} of this: {first}", "{first}, then {t} with {r}",
    "{t} needs a value. To have it, {first}", "{first} before you call {t}",
    "{first}. Now {r} is for {t}", "{first}. With {r} call {t}", "{first}, {t} next",
    "{first}. Continue with {t}", "{first}; after this it is the turn of {t}",
    "Call {t} with {r} of this call: {first}", "{first}. {r} {fill} {t}",
    "{first} {fill} {t} {fill2}",
    "{first}. {fill} {t} {fill2} {r}", "{first}. {fill} {r} {t}", "{first}, {fill} {t}",
)  # fmt: skip
"""Ways to hand an answer to a tool that has one argument."""
TAILS = ("",) * 8 + (
    ", then say the number", ", then say the number", " and say the result",
    ". Tell me what it says",
    ". Then answer", ". Say the answer", " and reply with the result only", ", please",
    ". Be brief",
    " and tell me", ". What does it say?", " and say what you get", " now",
)  # fmt: skip


def _reference(random: Words) -> str:
    return random.choice(REFERENCES).format(w=random.word(), v=random.choice(VERBS))


def _shown(made: Any) -> str:
    return str(made).lower() if isinstance(made, bool) else str(made)


def asked(random: Words, call: Call, named: bool, referred: bool = False) -> str:
    """What a prompt says to get this call. `referred`: the open argument is mentioned."""
    tool, quote = call.tool, "{}" if random.plain else random.choice(QUOTES)
    given = [
        (key, quote.format(_shown(made)) if isinstance(made, str) else _shown(made))
        for key, made in call.values.items()
        if key != call.open
    ]
    if referred:
        place = list(call.values).index(call.open)
        given.insert(place, (call.open, _reference(random)))
    words = {
        "verb": tool.verb, "Verb": tool.verb.capitalize(), "noun": tool.noun,
        "Noun": tool.noun.capitalize(), "adj": random.choice(ADJECTIVES),
        "t": random.choice(("{}",) * 5 + ("`{}`", '"{}"', "'{}'")).format(tool.name),
    }  # fmt: skip
    if not given:
        return (
            random.choice(NAMED)
            if named
            else random.choice(("{Verb} the {noun}", "What is the {noun}?"))
        ).format(**words)
    if random.random() < 0.04:
        arguments = json.dumps({key: made for key, made in call.values.items() if key != call.open})
        words["a"] = (
            arguments if len(given) == len(call.values) and not referred else _keyed(random, given)
        )
        keyed = True
    else:
        keyed = random.random() < 0.45
        words["a"] = _keyed(random, given) if keyed else _bare(random, given)
    words["A"] = words["a"]
    if not named:
        return random.choice(UNNAMED).format(**words)
    if random.random() < 0.2 and (
        keyed or quote != "{}" or all(not made[0].isalpha() for _, made in given)
    ):
        return _scrambled(random, words)
    if random.random() < 0.3:
        return _loose(random, words)
    if random.random() < 0.35:
        return random.choice(BEFORE).format(**words)
    return (random.choice(NAMED) + random.choice(WITH_KEYED if keyed else WITH_BARE)).format(
        **words
    )


def _keyed(random: Words, given: Sequence[tuple[str, str]]) -> str:
    form, join = random.choice(KEYED), random.choice(JOINS)
    items = random.sample(given, len(given)) if random.random() < 0.3 else given
    return join.join(form.format(k=key, v=shown) for key, shown in items)


def _bare(random: Words, given: Sequence[tuple[str, str]]) -> str:
    shown = [made for _, made in given]
    text = shown[0]
    for made in shown[1:]:
        join = random.choice(PREPOSITIONS)
        text += f", {made}" if join == "," else f" {join} {made}"
    return text


LOOSE = (
    "{F} {t} {f} {verb} {a}", "{Verb} {a} {f} {t}", "{Verb} {a} {f} {g} {t}", "{F} {t} {verb} {a}",
    "{F} {verb} {a} {f} {t}", "{t} {f} {verb} {a}", "{t} {f} {g} {a}", "{F} {t} {f} {a}",
    "{F} {f} {a}: {g} {t}", "{F} {f} {g} {t}, {verb} {a}", "{Verb} {a}, {f} {g} {t}",
    "{F} {f} {t}. {Verb} {a}", "{Verb} {a}. {F} {f} {t}", "{F} {f} {verb}: {t} {g} {a}",
    "{F} {f} {a}: {F} {t} {noun} {g}", "{F} {t} {f} {g} {verb} {a}", "{F} {verb} {a}; {f} {g} {t}",
    "{F} {t} {verb} {f} {g} {a}", "{t} {f} {a}", "{F} {f} {verb} {t} {g} {a}",
    "{F} {f} {noun} {g} {t}. {Verb} {f} {a}", "{F} {f} {g} {a}, {verb} {t}",
)  # fmt: skip
"""Sentences of unknown words, in which place alone says what is an argument."""


def _loose(random: Words, words: Mapping[str, str]) -> str:
    f, g, first = (random.choice(FILLERS.split()) for _ in range(3))
    return random.choice(LOOSE).format(f=f, g=g, F=first.capitalize(), **words)


def _scrambled(random: Words, words: Mapping[str, str]) -> str:
    """Tool and arguments between words that mean nothing, in any order."""
    parts = [words["t"], words["a"]]
    if random.random() < 0.5:
        parts.reverse()
    fill = [" ".join(_filler(random) for _ in range(random.randint(0, 4))) for _ in range(3)]
    pieces = [fill[0], parts[0], fill[1], parts[1], fill[2]]
    text = " ".join(piece for piece in pieces if piece)
    return text[0].upper() + text[1:] if fill[0] else text


FILLERS = (
    "the a to of and with for in it is you me this please should then can will that what the a to"
    " of and with for in let have make may could would must through by about into i we there here"
    " now just also not if so when first again my your our one some any need want please kindly"
)
"""Words that say nothing of a call."""


def _filler(random: Words) -> str:
    return random.choice(FILLERS.split()) if random.random() < 0.6 else random.word()


# Whole conversations.

IGNORANT = "I do not know."
NO_TOOL = "There is no tool for that."
RASH, ASTRAY_CALL = 0.03, 0.03
"""Shares of tool tasks that are answered without the tool, and by a wrong tool."""
ERRORS = (
    "error: try again", "Error: timeout", "error: busy", "Error: no answer, please try again",
    "error: the {noun} failed", "failed: call again", "Error 503: try again later",
)  # fmt: skip
CORRECTED = (
    "error: no {old}, did you mean {new}?", "unknown {key} {old}; use {new}",
    "Error: {key} must be {new}",
    "error: {old} is not allowed, try {new}", "{old}? did you mean {new}?",
)  # fmt: skip
ANSWERS = ("{}", "{}", "{}", "The answer is {}.", "It says {}.")


def used_tools(random: Words, tokenizer: BpeTokenizer, most: int) -> Talk:
    """A task for tools of any names, and an answer from their results."""
    if random.random() < CALCULATED and not random.in_a_row:
        return calculated(random, tokenizer, most)
    count = random.choice((1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6))
    tools = {tool.name: tool for tool in (drawn_tool(random) for _ in range(count))}
    kind = random.random()
    if random.in_a_row:
        kind, most = 0.2, max(2, most)
    named = random.random() < 0.8 or len({tool.noun for tool in tools.values()}) < len(tools)
    if not named:
        tools = {tool.name: _telling(random, tool) for tool in tools.values()}
    shown = list(tools.values())
    first = _call(random, random.choice(shown))
    if kind < 0.04:
        return _none_fits(random, tokenizer, shown, named)
    if kind < 0.3 and most > 1:
        return _chained(random, tokenizer, shown, first, named)
    calls = [first]
    if kind < 0.4 and most > 1:
        calls.append(_call(random, random.choice(shown)))
    wishes = [asked(random, call, named) for call in calls]
    talk = _begun(random, tokenizer, _sentences(random, wishes), shown)
    return _carried_out(random, talk, shown, calls, ends=most == 1)


def used_often(random: Words, tokenizer: BpeTokenizer, most: int) -> Talk:
    """Several tasks, one after the other, for the tools of one prompt: most calls per token."""
    count = random.randint(2, 4)
    tools = [*{tool.name: tool for tool in (drawn_tool(random) for _ in range(count))}.values()]
    talk = Talk(tokenizer, [], [tool.schema() for tool in tools])
    talk.ids.pop()  # the answer does not begin yet
    for _ in range(random.randint(3, 7)):
        random.plain = random.random() < 0.3
        call = _call(random, random.choice(tools))
        talk.asks(_sentences(random, [asked(random, call, named=True)]))
        talk.calls(call.tool.name, call.values)
        result = _heard(random)
        talk.hears(result)
        talk.says(result)
    random.plain = False
    return talk


def used_in_a_row(random: Words, tokenizer: BpeTokenizer, most: int) -> Talk:
    """A task of two calls, of which the second needs the answer of the first."""
    random.in_a_row = True
    talk = used_tools(random, tokenizer, most)
    random.in_a_row = False
    return talk


def used_with_words(random: Words, tokenizer: BpeTokenizer, most: int) -> Talk:
    """A task whose values are plain words."""
    random.plain = True
    talk = used_tools(random, tokenizer, most)
    random.plain = False
    return talk


def _telling(random: Words, tool: Tool) -> Tool:
    """The same tool, with a name or a description that says what it is for."""
    if random.random() < 0.6:
        parts = random.choice(
            ((tool.verb, tool.noun), (tool.noun,), (tool.noun, "of", random.word()))
        )
        return Tool(random.name(*parts), tool.kinds, tool.verb, tool.noun, tool.about)
    form = random.choice(ABOUT[:5])
    about = form.format(
        Verb=tool.verb.capitalize(),
        verb=tool.verb,
        noun=tool.noun,
        Noun=tool.noun.capitalize(),
        other=random.word(),
    )
    return Tool(tool.name, tool.kinds, tool.verb, tool.noun, about)


def _call(random: Words, tool: Tool) -> Call:
    return Call(tool, {key: random.value(kind) for key, kind in tool.kinds.items()})


def _heard(random: Words) -> str:
    return _shown(random.value(random.choice(("integer", "integer", "string"))))


def _sentences(random: Words, wishes: Sequence[str]) -> str:
    text = wishes[0]
    for wish in wishes[1:]:
        join = random.choice(
            (
                ". Then {}",
                ". Then {}",
                ", then {}",
                " and then {}",
                ". After that {}",
                ". {}",
                "; next {}",
            )
        )
        low = wish[0].lower() + wish[1:] if random.random() < 0.8 else wish
        text += join.format(wish if join == ". {}" else low)
    tail = random.choice(TAILS)
    text += tail if tail or text[-1] in "?`\"'" else ""
    if text[-1] not in "?.!" and random.random() < 0.85:
        text += "."
    if random.random() < 0.1:
        text = f"{_sentence(random)} {text}"
    if random.random() < 0.07:
        text = f"{text} {_sentence(random)}"
    return text


def _sentence(random: Words) -> str:
    """Words that ask for nothing."""
    form = random.choice(
        (
            "The {} {} {}s.",
            "{} {} {}.",
            "My {1} is {0}.",
            "It is a {} {}, I {}.",
            "Thanks!",
            "Hello!",
        )
    )
    return form.format(
        random.choice(ADJECTIVES), random.choice(NOUNS), random.choice(VERBS)
    ).capitalize()


def _begun(random: Words, tokenizer: BpeTokenizer, text: str, tools: Sequence[Tool]) -> Talk:
    messages = [{"role": "user", "content": text}]
    if random.random() < 0.12:
        system = random.choice(
            (
                "Be brief.",
                "You are a helpful assistant.",
                "Reply with the answer only.",
                "Use the tools.",
                _sentence(random),
            )
        )
        messages.insert(0, {"role": "system", "content": system})
    return Talk(tokenizer, messages, [tool.schema() for tool in tools], read=READ_WEIGHT)


READ_WEIGHT = 0.1
"""Loss weight of a prompt's own tokens: names that it repeats teach to copy."""


def _carried_out(
    random: Words, talk: Talk, tools: Sequence[Tool], calls: Sequence[Call], ends: bool = False
) -> Talk:
    """The calls, one after the other, and the answer. `ends`: it ends with the first call."""
    result = ""
    if random.random() < RASH:
        talk.says(random.choice((IGNORANT, ANSWERS[0].format(_heard(random)))))
        return talk
    for call in calls:
        values = dict(call.values)
        if call.open:
            values[call.open] = _of_type(call.tool.kinds[call.open], result)
        if random.random() < ASTRAY_CALL:
            wrong = _call(random, random.choice(tools))
            talk.calls(wrong.tool.name, wrong.values)
        else:
            if random.random() < 0.08 and not ends:
                _fails_first(random, talk, call.tool, values)
            talk.calls(call.tool.name, values)
        if ends:
            return talk
        result = _heard(random)
        for later in calls[calls.index(call) + 1 :]:
            if later.open:
                result = _shown(random.value(later.tool.kinds[later.open]))
        talk.hears(_worded(random, call.tool, result))
    talk.says(random.choice(ANSWERS).format(result))
    return talk


def _of_type(kind: str, result: str) -> Any:
    return int(result) if kind == "integer" else result


def _worded(random: Words, tool: Tool, result: str) -> str:
    """A tool's answer."""
    if random.random() < 0.75:
        return result
    form = random.choice(
        (
            "{noun}: {}",
            "The {noun} is {}.",
            '{{"{noun}":"{}"}}',
            "{} {noun}s",
            "ok: {}",
            "{}.",
            "{noun} = {}",
        )
    )
    return form.format(result, noun=tool.noun)


def _fails_first(random: Words, talk: Talk, tool: Tool, values: dict[str, Any]) -> None:
    """A call that fails, with what is to be done: the same again, or with another value."""
    talk.calls(tool.name, values)
    free = [key for key, kind in tool.kinds.items() if kind in ("string", "integer")]
    if not free or random.random() < 0.4:
        talk.hears(random.choice(ERRORS).format(noun=tool.noun))
        return
    key = random.choice(free)
    old, new = values[key], random.value(tool.kinds[key])
    talk.hears(random.choice(CORRECTED).format(key=key, old=old, new=new))
    values[key] = new


def _chained(
    random: Words, tokenizer: BpeTokenizer, tools: list[Tool], first: Call, named: bool
) -> Talk:
    """Two calls; an argument of the second is the answer of the first."""
    able = [tool for tool in tools if {"string", "integer"} & {*tool.kinds.values()}]
    if not able:
        extra = drawn_tool(random)
        kinds = {_argument(random): random.choice(("string", "integer")), **extra.kinds}
        extra = Tool(extra.name, kinds, extra.verb, extra.noun, extra.about)
        tools = [tool for tool in tools if tool.name != extra.name] + [
            extra if named else _telling(random, extra)
        ]
        able = tools[-1:]
    second = _call(random, random.choice(able))
    free = [key for key, kind in second.tool.kinds.items() if kind in ("string", "integer")]
    second = Call(
        second.tool, second.values, free[0] if random.random() < 0.7 else random.choice(free)
    )
    implied = second.open == next(iter(second.values)) and random.random() < 0.35
    wish = asked(random, first, named)
    if named and len(second.values) == 1 and random.random() < 0.6:
        wishes = [_forwarded(random, wish, second.tool.name)]
    else:
        wishes = [wish, asked(random, second, named, referred=not implied)]
    talk = _begun(random, tokenizer, _sentences(random, wishes), tools)
    return _carried_out(random, talk, tools, [first, second])


def _forwarded(random: Words, first: str, name: str) -> str:
    fills = [" ".join(_filler(random) for _ in range(random.randint(1, 4))) for _ in range(2)]
    text = random.choice(FORWARDED).format(
        first=first, t=name, r=_reference(random), fill=fills[0], fill2=fills[1]
    )
    return text[0].upper() + text[1:] if text[0].islower() and random.random() < 0.5 else text


def _none_fits(random: Words, tokenizer: BpeTokenizer, tools: Sequence[Tool], named: bool) -> Talk:
    """A wish for a tool that there is not."""
    other = drawn_tool(random)
    talk = _begun(
        random, tokenizer, _sentences(random, [asked(random, _call(random, other), named)]), tools
    )
    talk.says(NO_TOOL)
    return talk


CALCULATED = 0.1
"""Share of tool tasks that are a sum."""


def calculated(random: Words, tokenizer: BpeTokenizer, most: int) -> Talk:
    """A sum by a tool."""
    name = random.choice(list(SUMS))
    phrase, about, work = SUMS[name]
    keys = random.choice(
        (("a", "b"), ("a", "b"), ("x", "y"), ("left", "right"), ("first", "second"))
    )
    a, b = (random.randrange(random.choice((10, 100, 1000))) for _ in keys)
    described = random.random() < 0.5
    kinds = dict.fromkeys(keys, "integer")
    tools = [Tool(name, kinds, "", "", about if described else "")]
    if random.random() < 0.5:
        other = random.choice([each for each in SUMS if each != name])
        extra = Tool(other, kinds, "", "", SUMS[other][1] if described else "")
        tools.insert(random.randrange(2), random.choice((extra, drawn_tool(random))))
    wish = f"Use the {name} tool to {phrase.format(a, b)}"
    talk = _begun(random, tokenizer, wish + random.choice((".", ", then say the number.")), tools)
    talk.works_out(random, name, dict(zip(keys, (a, b), strict=True)), work(a, b), RASH)
    return talk


def echoed(random: Words, tokenizer: BpeTokenizer, most: int) -> Talk:
    """Names that come again: what teaches to copy before anything else does."""
    if random.random() < 0.3:
        some = random.choices(range(8, tokenizer.vocabulary), k=random.randint(8, 40))
        talk = Talk(tokenizer, [])
        talk.ids = [USER, *some]
        talk._learn([*some, *some, END], 1.0)
        return talk
    names = [
        random.name() if random.random() < 0.7 else _heard(random)
        for _ in range(random.randint(3, 8))
    ]
    ids: list[int] = [USER]
    order = list(names)
    talk = Talk(tokenizer, [])
    parts = []
    for _ in range(3):
        ends = random.choice((" ", "(", "\n", ",", ":", '"'))
        parts.append(tokenizer.encode("".join(each + ends for each in order)))
        if random.random() < 0.5:
            random.shuffle(order)
    talk.ids = [*ids, *parts[0]]
    talk.datums.clear()
    talk._learn([*parts[1], *parts[2], END], 1.0)
    return talk
