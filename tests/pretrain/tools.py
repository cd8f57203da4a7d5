"""Lessons in calling tools whose names, arguments, values and phrasings are drawn afresh."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hud_tui.service.engines.tiny.tokenizer import END, USER, BpeTokenizer
from tests.pretrain.sentences import (
    CLOSINGS,
    HAND_ONS,
    OPENINGS,
    REFERENCES,
    STATEMENTS,
    UNCONDITIONED,
    UNNAMED,
    WISHES,
    blurred,
)
from tests.pretrain.talks import SUMS, Talk, schema
from tests.pretrain.words import ADJECTIVES, COMMON, FILLERS, NOUNS, VERBS, Words, allowed

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
    for _ in range(random.choice((0, 1, 1, 1, 1, 1, 1, 2, 2, 3))):
        kind = "string" if random.plain else random.choice(KINDS)
        if kind == "choice":
            kind = "|".join(dict.fromkeys(random.word() for _ in range(random.randint(2, 4))))
        kinds[_argument(random)] = kind
    about = _described(random, ABOUT, verb, noun) if random.random() < 0.3 else ""
    return Tool(called, kinds, verb, noun, about)


def _described(random: Words, forms: Sequence[str], verb: str, noun: str) -> str:
    form, named = random.choice(forms), {"verb": verb, "noun": noun, "other": random.word()}
    return form.format(**named, Verb=verb.capitalize(), Noun=noun.capitalize())


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
PREPOSITIONS = (
    "and", "and", ",", "with", "by", "to", "for", "in", "from", "of", "on", "at", "into",
)  # fmt: skip


def _reference(random: Words) -> str:
    return random.choice(REFERENCES).format(noun=random.word(), verb=random.choice(VERBS))


def _shown(made: Any) -> str:
    return str(made).lower() if isinstance(made, bool) else str(made)


def asked(
    random: Words, call: Call, named: bool, referred: bool = False, as_wish: bool = False
) -> str:
    """What a prompt says to get this call. `referred`: the open argument is mentioned; `as_wish`:
    in the base form, which an opening can stand before."""
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
        "verb": tool.verb, "noun": tool.noun, "adj": random.choice(ADJECTIVES),
        "t": random.choice(("{}",) * 14 + ("`{}`", '"{}"')).format(tool.name),
    }  # fmt: skip
    if not given:
        form = random.choice(UNCONDITIONED) if named else random.choice(UNNAMED)
        return form.replace(" of {a}", "").replace("{a}", "it").format(**words)
    keyed = random.random() < 0.35
    words["a"] = _keyed(random, given) if keyed else _bare(random, given)
    if not referred and random.random() < 0.04:
        words["a"] = json.dumps(dict(call.values)) if not call.open else _keyed(random, given)
    if not named:
        return random.choice(UNNAMED).format(**words)
    clear = keyed or quote != "{}" or all(not made[0].isalpha() for _, made in given)
    fillers = _filler if clear else _common
    if not as_wish and random.random() < SCRAMBLED:
        return _scrambled(random, words, fillers)
    return _worded_wish(random, words, fillers, as_wish)


SCRAMBLED, BLURRED, SWAPPED, OPENED = 0.15, 0.3, 0.25, 0.45
"""Shares of sentences that are words in any order, that have other words in some places, whose tool
and arguments have changed places, so that only the list of tools tells them apart, and that begin
with an opening."""


class Swapped(dict[str, str]):
    """Slots of a sentence, with that of the tool where its arguments were."""

    def __missing__(self, key: str) -> str:
        return {"t": "{a}", "a": "{t}"}.get(key, f"{{{key}}}")


Filler = Callable[[Words], str]
"""Draws a word that means nothing."""


def _worded_wish(random: Words, words: Mapping[str, str], filler: Filler, as_wish: bool) -> str:
    is_wish = as_wish or random.random() < 0.5
    form = random.choice(WISHES if is_wish else STATEMENTS)
    if random.random() < BLURRED:
        form = blurred(random, form, filler(random))
    if not as_wish and random.random() < SWAPPED:
        form = form.format_map(Swapped())
    if is_wish and not as_wish and random.random() < OPENED:
        form = f"{random.choice(OPENINGS)} {form}"
    return _capital(form).format(**words)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


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


def _scrambled(random: Words, words: Mapping[str, str], filler: Filler) -> str:
    """Tool and arguments between words that mean nothing, in any order."""
    parts = [words["t"], words["a"]]
    if random.random() < 0.5:
        parts.reverse()
    fill = [" ".join(filler(random) for _ in range(random.randint(0, 4))) for _ in range(3)]
    pieces = [fill[0], parts[0], fill[1], parts[1], fill[2]]
    text = " ".join(piece for piece in pieces if piece)
    return text[0].upper() + text[1:] if fill[0] else text


def _common(random: Words) -> str:
    """A word that names nothing: what else a sentence has is the tool, or a value."""
    return random.choice((random.choice(FILLERS), random.choice(COMMON)))


def _filler(random: Words) -> str:
    return random.choice((random.choice(FILLERS), random.choice(COMMON), random.word()))


# Whole conversations.

IGNORANT = "I do not know."
NO_TOOL = "There is no tool for that."
RASH, ASTRAY_CALL = 0.015, 0.015
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
    count = random.choice((1, 2, 2, 3, 3, 4, 5))
    tools = [*{tool.name: tool for tool in (drawn_tool(random) for _ in range(count))}.values()]
    talk = Talk(tokenizer, [], [tool.schema() for tool in tools])
    talk.ids.pop()  # the answer does not begin yet
    for _ in range(random.randint(3, 7)):
        random.plain = random.random() < 0.4
        calls = [_call(random, random.choice(tools))]
        wishes = [asked(random, calls[0], named=True)]
        if any(map(_open_arguments, tools)) and random.random() < 0.3:
            wishes, calls = _in_a_row(random, tools, calls[0], named=True)
        talk.asks(_sentences(random, wishes))
        _carried_out(random, talk, tools, calls)
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


def told_apart(random: Words, tokenizer: BpeTokenizer, most: int) -> Talk:
    """A tool and a value in any order, which nothing but the list of tools tells apart."""
    random.plain = True
    tools = [
        Tool(random.name(), {_argument(random): "string"}, random.choice(VERBS), "")
        for _ in range(random.randint(1, min(3, most)))
    ]
    tool = random.choice(tools)
    tools = [each for each in tools if each.name != tool.name or each is tool]
    call = _call(random, tool)
    [value] = call.values.values()
    if random.random() < ACTED:
        verb = random.choice((tool.verb, random.word()))
        value = f"{random.choice(LEADS)} {verb} {value}"
    text = _scrambled(random, {"t": tool.name, "a": value}, _inert)
    random.plain = False
    talk = _begun(random, tokenizer, f"{text}.", tools)
    talk.calls(tool.name, call.values)
    return talk


ACTED = 0.25
"""Share of them in which a verb, of any letters, stands before the value."""
LEADS = ("to", "to", "to", "and", "please", "kindly", "can", "should", "will", "we", "you", "now")


def _inert(random: Words) -> str:
    """A word that is no value, as those of sentences are, or a form of a verb."""
    if random.random() < 0.85:
        return _common(random)
    verb = random.choice(VERBS)
    form = random.choice((f"{verb}s", f"{verb.removesuffix('e')}ing"))
    return form if allowed(form) else _inert(random)


def _telling(random: Words, tool: Tool) -> Tool:
    """The same tool, with a name or a description that says what it is for."""
    if random.random() < 0.6:
        parts = random.choice(
            ((tool.verb, tool.noun), (tool.noun,), (tool.noun, "of", random.word()))
        )
        return Tool(random.name(*parts), tool.kinds, tool.verb, tool.noun, tool.about)
    about = _described(random, ABOUT[:5], tool.verb, tool.noun)
    return Tool(tool.name, tool.kinds, tool.verb, tool.noun, about)


def _call(random: Words, tool: Tool) -> Call:
    return Call(tool, {key: random.value(kind) for key, kind in tool.kinds.items()})


def _heard(random: Words) -> str:
    return _shown(random.value(random.choice(("integer", "integer", "string"))))


CLOSED = 0.35
"""Share of prompts that end with a closing."""
THENS = (
    ". Then {}", ". Then {}", ", then {}", " and then {}", ". After that {}", ". {}", "; next {}",
)  # fmt: skip
ASIDES = (
    "The {} {} {}s.", "{} {} {}.", "My {1} is {0}.", "It is a {} {}, I {}.", "Thanks!", "Hello!",
)  # fmt: skip
"""Of an adjective, a noun and a verb."""
SYSTEMS = (
    "Be brief.", "You are a helpful assistant.", "Reply with the answer only.", "Use the tools.",
)  # fmt: skip
ANSWERS = (
    "{noun}: {}", "The {noun} is {}.", '{{"{noun}":"{}"}}', "{} {noun}s", "ok: {}", "{}.",
    "{noun} = {}",
)  # fmt: skip


def _sentences(random: Words, wishes: Sequence[str]) -> str:
    text = wishes[0]
    for wish in wishes[1:]:
        join = random.choice(THENS)
        low = wish[0].lower() + wish[1:] if random.random() < 0.8 else wish
        text += join.format(wish if join == ". {}" else low)
    if random.random() < CLOSED:
        closing = random.choice(CLOSINGS).format(noun=random.word())
        text = text.rstrip(".") + ("" if closing[0] in ".," else " ") + closing
    if text[-1] not in "?.!" and random.random() < 0.85:
        text += "."
    if random.random() < 0.1:
        text = f"{_sentence(random)} {text}"
    if random.random() < 0.07:
        text = f"{text} {_sentence(random)}"
    return text


def _sentence(random: Words) -> str:
    """Words that ask for nothing."""
    form = random.choice(ASIDES)
    return form.format(*map(random.choice, (ADJECTIVES, NOUNS, VERBS))).capitalize()


def _begun(random: Words, tokenizer: BpeTokenizer, text: str, tools: Sequence[Tool]) -> Talk:
    messages = [{"role": "user", "content": text}]
    if random.random() < 0.12:
        system = random.choice((*SYSTEMS, _sentence(random)))
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
        talk.says(random.choice((IGNORANT, _heard(random))))
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
    talk.says(result)
    return talk


def _of_type(kind: str, result: str) -> Any:
    return int(result) if kind == "integer" else result


def _worded(random: Words, tool: Tool, result: str) -> str:
    """A tool's answer."""
    if random.random() < 0.75:
        return result
    return random.choice(ANSWERS).format(result, noun=tool.noun)


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
    if not any(map(_open_arguments, tools)):
        extra = drawn_tool(random)
        kinds = {_argument(random): random.choice(("string", "integer"))}
        kinds |= {key: kind for key, kind in extra.kinds.items() if key not in kinds}
        extra = Tool(extra.name, kinds, extra.verb, extra.noun, extra.about)
        tools = [tool for tool in tools if tool.name != extra.name] + [
            extra if named else _telling(random, extra)
        ]
    wishes, calls = _in_a_row(random, tools, first, named)
    talk = _begun(random, tokenizer, _sentences(random, wishes), tools)
    return _carried_out(random, talk, tools, calls)


def _open_arguments(tool: Tool) -> list[str]:
    """Those that can be the answer of another tool."""
    return [key for key, kind in tool.kinds.items() if kind in ("string", "integer")]


def _in_a_row(
    random: Words, tools: Sequence[Tool], first: Call, named: bool
) -> tuple[list[str], list[Call]]:
    """What a prompt says to get two calls, and them."""
    able = [tool for tool in tools if _open_arguments(tool)]
    others = [tool for tool in able if tool.name != first.tool.name]
    second = _call(random, random.choice(others or able))
    free = _open_arguments(second.tool)
    second = Call(
        second.tool, second.values, free[0] if random.random() < 0.7 else random.choice(free)
    )
    if named and len(second.values) == 1 and random.random() < 0.75:
        return [_forwarded(random, first, second.tool)], [first, second]
    implied = second.open == next(iter(second.values)) and random.random() < 0.35
    wishes = [asked(random, first, named), asked(random, second, named, referred=not implied)]
    return wishes, [first, second]


def _forwarded(random: Words, call: Call, tool: Tool) -> str:
    form = random.choice(HAND_ONS)
    in_front = form.startswith("{first}")
    first = asked(random, call, named=True, as_wish=not in_front or random.random() < 0.6)
    if not in_front:
        first = first[0].lower() + first[1:]
    words = {"noun": random.word(), "verb": tool.verb, "t": tool.name, "r": _reference(random)}
    if random.random() < BLURRED:
        form = blurred(random, form, _filler(random))
    return _capital(form).format(first=first.rstrip("."), **words)


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
