"""Sentences by which people ask for a call, for the lessons of ``tiny/tools-1M``: in sentences.txt.

Slots: {t} is a tool's name, {a} its arguments, {r} an answer that there is not yet; {verb}, {noun}
and {adj} are words of any meaning. None is of `SHAPES` and `CHAINS` in `tests.live.unseen_tools`.
"""

import re
from pathlib import Path
from random import Random

from tests.pretrain.words import ADJECTIVES, COMMON, FILLERS, NOUNS, VERBS

WISHES, OPENINGS, STATEMENTS, CLOSINGS, HAND_ONS, REFERENCES, UNNAMED, UNCONDITIONED = (
    tuple(block.strip().splitlines()[1:])
    for block in Path(__file__).with_name("sentences.txt").read_text("utf-8").split("\n\n")
)
"""In its order; what each kind is stands in its first line."""
WORD = re.compile(r"(?<![\w{}`'\"])[a-z]{3,}(?![\w{}])")


def blurred(random: Random, form: str, word: str) -> str:
    """The sentence with one of its words replaced, so that its shape has to be read."""
    spans = [match.span() for match in WORD.finditer(form)]
    if not spans:
        return form
    start, end = random.choice(spans)
    return form[:start] + word + form[end:]


def sentence_words() -> list[str]:
    """Words that have an id of their own: those that name no tool with the space before them, and
    all of them as a sentence begins. So what is read in pieces is a name or a value."""
    forms = (*WISHES, *OPENINGS, *STATEMENTS, *CLOSINGS, *HAND_ONS, *REFERENCES, *UNNAMED)
    used = {word.lower() for form in forms for word in SLOT_OR_WORD.findall(form) if word[0] != "{"}
    used |= {*COMMON, *FILLERS}
    content = {*NOUNS, *VERBS, *ADJECTIVES}
    alone = sorted(used & content)
    begins = sorted({word.capitalize() for word in used})
    return [*(f" {word}" for word in sorted(used - content)), *alone, *begins]


SLOT_OR_WORD = re.compile(r"\{\w+\}|[A-Za-z]+")
