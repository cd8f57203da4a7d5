"""The lessons the bases are made from, and that making them is deterministic."""

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hud_tui.rollouts.template import write_environment
from hud_tui.service.engines.tiny.engine import BASES
from hud_tui.service.engines.tiny.model import Config
from hud_tui.service.engines.tiny.tokenizer import (
    ASSISTANT,
    CALL,
    CONTROLS,
    END,
    BpeTokenizer,
    CharTokenizer,
)
from hud_tui.service.environments import ENVIRONMENTS, TASKSETS, hopeless_rows
from tests.live.unseen_tools import CHAINS, NAMES, SHAPES
from tests.pretrain.__main__ import AGENT, STAGES, TOOLS
from tests.pretrain.lessons import (
    AGAIN,
    APART,
    CALLS,
    DIRECTIONS,
    ECHOES,
    LAST_TALKS,
    LESSONS,
    PLAYERS,
    STYLES,
    TALKS,
    Discs,
    Lesson,
    Player,
    TalkLesson,
    legal,
    line,
    on_paper,
    slid,
    spawned,
)
from tests.pretrain.tools import used_tools
from tests.pretrain.words import (
    HELD_OUT,
    HELD_OUT_VALUES,
    HELD_OUT_VERBS,
    NOUNS,
    VERBS,
    WORD,
    Words,
    allowed,
)

EVERY = LESSONS["tiny/mixed-0.2M"]


def test_every_base_has_lessons_and_every_scenario_one() -> None:
    assert set(STAGES) == {*LESSONS, AGENT, TOOLS} == {base.name for base in BASES}
    taught = {ENVIRONMENTS[one.env].scenarios[one.scenario].description for one in EVERY}
    assert taught == {
        scenario.description for e in ENVIRONMENTS.values() for scenario in e.scenarios.values()
    }


@pytest.mark.parametrize("lesson", EVERY, ids=lambda lesson: lesson.scenario)
@given(seed=st.integers(0, 10**6))
def test_a_slip_is_never_the_answer_and_a_line_fits(lesson: Lesson, seed: int) -> None:
    random = Random(seed)
    args = lesson.draw(random)
    scenario = ENVIRONMENTS[lesson.env].scenarios[lesson.scenario]
    answer = scenario.answer(args)
    assert lesson.slip(random, answer, args) != answer
    prompt, output = line(lesson, random, noisy=False)
    assert len(prompt) + len(output) <= Config().context
    assert output[-1] == END


def test_the_noisy_teacher_s_answers_spread() -> None:
    [lesson] = [lesson for lesson in EVERY if lesson.scenario == "reverse"]
    scenario = ENVIRONMENTS["text"].scenarios["reverse"]
    random = Random(0)
    fixed = Lesson("text", "reverse", lambda _: {"text": "river"}, lesson.slip)
    taught = [line(fixed, random, noisy=True)[1] for _ in range(2000)]
    rewards = [scenario.grade({"text": "river"}, CharTokenizer().decode(ids)) for ids in taught]
    shares = {r: rewards.count(r) / 2000 for r in set(rewards)}
    assert shares == pytest.approx({1.0: 0.4, 0.12: 0.25, 0.2: 0.2, 0.0: 0.15}, abs=0.04)


def test_the_lessons_cover_the_built_in_tasks_but_for_the_long_and_the_hopeless() -> None:
    """A tally of what is drawn: numbers below 100, words no longer than taught."""
    random = Random(0)
    untaught = {row["slug"] for row in (*hopeless_rows(), *TASKSETS["long"].tasks)}
    longest = {
        lesson.scenario: max(len(lesson.draw(random).get("text", "")) for _ in range(3000))
        for lesson in EVERY
    }
    for task in (task for taskset in TASKSETS.values() for task in taskset.tasks):
        numbers = max(task["args"].get("a", 0), task["args"].get("b", 0))
        beyond = numbers >= 100 or len(task["args"].get("text", "")) > longest[task["id"]]
        assert beyond == (task["slug"] in untaught), task["slug"]


PRETRAIN = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.pretrain import __main__ as pretrain
del pretrain.STAGES["tiny/arith-0.2M"]  # made as the next one
pretrain.STAGES["tiny/mixed-0.2M"] = [replace(s, batch=24) for s in pretrain.stages(2, 2)]
for base, talks in (pretrain.AGENT, pretrain.TALKS), (pretrain.TOOLS, pretrain.CALLS):
    stage = pretrain.Stage("short", 2, 1e-3, tokens=300, turns=2, talks=talks)
    pretrain.STAGES[base] = (stage,)
pretrain.READ, pretrain.EXAMINED = 3, 4
for base, words in pretrain.WORDS.items():
    size = replace(pretrain.SIZES[base], vocabulary=304 + len(words or ()))
    pretrain.SIZES[base] = size
pretrain.main(sys.argv[1:])
"""


def test_the_same_lessons_make_the_same_bytes(tmp_path: Path) -> None:
    made = list[dict[str, bytes]]()
    for place, cores in (tmp_path / "first", "1"), (tmp_path / "second", "2"):
        command = [sys.executable, "-c", PRETRAIN, "--out", str(place), "--cores", cores]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        stages = re.findall(r"^(\S+ \w+ 2/2): loss", told, re.MULTILINE)
        assert stages == ["tiny/mixed-0.2M clean 2/2", "tiny/mixed-0.2M noisy 2/2",
                          f"{AGENT} short 2/2", f"{TOOLS} short 2/2"]  # fmt: skip
        made.append({path.name: path.read_bytes() for path in place.iterdir()})
    assert made[0] == made[1]
    called = ("agent-1M", "tools-1M")
    assert {*made[0]} == {f"{name}.safetensors" for name in ("mixed-0.2M", *called)} | {
        f"{name}.pairs.json" for name in called
    }


BYTES = BpeTokenizer((), ())
OF_TOOLS = dict.fromkeys([*ECHOES, *CALLS, *APART, *AGAIN])
"""The lessons of the base for tools."""
EVERY_TALK = dict.fromkeys([*TALKS, *LAST_TALKS, *OF_TOOLS])
SAID = {style.word for style in STYLES.values()}
"""What may stand before a call."""


@pytest.mark.parametrize("told", EVERY_TALK, ids=lambda told: told.__name__.strip("_"))
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_a_talk_s_turns_continue_one_another_and_its_calls_can_be_read(
    told: TalkLesson, seed: int
) -> None:
    talk = told(Words(str(seed)), BYTES, 3)
    assert talk.datums
    for before, after in pairwise(talk.datums):
        whole = [*before.prompt, *before.output]
        assert list(after.prompt[: len(whole)]) == whole
    for datum in talk.datums:
        assert datum.output[-1] in (END, ASSISTANT)
        if CALL in datum.output:
            text, [call] = BYTES.calls(datum.output)
            assert (text in SAID, bool(call.name)) == (True, True)
            assert isinstance(json.loads(call.arguments), dict)


def _told_by(told: TalkLesson, tokenizer: BpeTokenizer, count: int) -> Iterator[str]:
    """Texts of some conversations: what is between control tokens."""
    for number in range(count):
        kinds = groupby(
            told(Words(f"told {number}"), tokenizer, 4).ids, lambda id_: id_ in CONTROLS
        )
        yield from (tokenizer.decode(list(ids)) for control, ids in kinds if not control)


@pytest.mark.parametrize("told", OF_TOOLS, ids=lambda told: told.__name__.strip("_"))
def test_no_lesson_has_a_word_or_a_sentence_that_is_held_out(told: TalkLesson) -> None:
    parts = [re.split(r"\{\w+\}", shape.strip(".?")) for shape in (*SHAPES, *CHAINS)]
    sentences = [re.compile(".+?".join(map(re.escape, each))) for each in parts]
    longest = [max((part.strip(" .,;?") for part in each), key=len) for each in parts]
    frames = [frame for frame in longest if len(frame.split()) > 2]
    for text in _told_by(told, BYTES, 100):
        assert allowed(text), {word.lower() for word in WORD.findall(text)} & HELD_OUT
        assert not [frame for frame in frames if frame in text]
        assert not [sentence for sentence in sentences if sentence.search(text)]


def test_what_is_held_out_is_what_is_measured_and_what_the_second_environment_has() -> None:
    assert not HELD_OUT & {*NOUNS, *VERBS}
    assert all(WORD.findall(name.lower()) and not allowed(name) for name in NAMES)
    with TemporaryDirectory() as folder:
        [file, _] = write_environment("shop", Path(folder), "lookup")
        named = re.findall(r"@tools.tool\ndef (\w+)", file.read_text())
    assert (len(named), {*named} <= HELD_OUT) == (2, True)


def test_the_docs_list_what_is_held_out() -> None:
    page = Path(__file__).parents[3] / "docs" / "embedded-service.md"
    listed = " ".join(page.read_text().split())
    for words in (NAMES, HELD_OUT_VERBS, HELD_OUT_VALUES):
        assert ", ".join(words) in listed
    assert all(f"`{sentence}`" in listed for sentence in (*SHAPES, *CHAINS))


def test_hardly_any_tool_of_the_lessons_comes_twice() -> None:
    """So that names have to be copied."""
    talks = (used_tools(Words(f"told {number}"), BYTES, 1) for number in range(300))
    shown = [BYTES.decode(talk.ids[: talk.ids.index(END)]) for talk in talks]
    names = [name for text in shown for name in re.findall(r"^(\w+)\{", text, re.MULTILINE)]
    assert len(names) > 300
    assert len({*names}) > 0.7 * len(names)


@given(st.integers(100, 999), st.integers(11, 99))
def test_a_product_on_paper_adds_up(a: int, b: int) -> None:
    worked = on_paper(a, b)
    assert int(worked.splitlines()[-1]) == a * b
    for left, sign, right, carried, made in re.findall(r"(\d)([*+])(\d)\+(\d)=(\d\d)", worked):
        one, other = int(left), int(right)
        assert int(made) == (one * other if sign == "*" else one + other) + int(carried)


def test_tiles_slide_and_merge_once_and_four_discs_in_a_row_win() -> None:
    board = [[2, 2, 2, 2], [4, 0, 4, 8], [0, 0, 0, 2], [2, 4, 8, 16]]
    assert slid(board, "left") == [[4, 4, 0, 0], [8, 8, 0, 0], [2, 0, 0, 0], [2, 4, 8, 16]]
    assert slid(board, "right") == [[0, 0, 4, 4], [0, 0, 8, 8], [0, 0, 0, 2], [2, 4, 8, 16]]
    assert slid(board, "up") == [[2, 2, 2, 2], [4, 4, 4, 8], [2, 0, 8, 2], [0, 0, 0, 16]]
    assert slid(board, "down") == [[0, 0, 0, 2], [2, 0, 2, 8], [4, 2, 4, 2], [2, 4, 8, 16]]

    discs = Discs()
    for column in (3, 0, 4, 0, 5, 1):
        discs.drop(column)
    assert (discs.wins("X"), discs.wins("O"), discs.over()) == ([2, 6], [], False)
    before = discs.shown()
    discs.drop(2)
    assert (discs.winner(), discs.over()) == ("X", True)
    discs.lift(2)
    assert discs.shown() == before


@given(st.integers(0, 10**6))
def test_a_player_of_2048_names_a_direction(seed: int) -> None:
    random = Random(seed)
    board = spawned(random, spawned(random, [[0] * 4 for _ in range(4)]))
    for make in (*PLAYERS, *STYLES):
        way = make(random)(board)
        assert way in DIRECTIONS
    assert all(slid(board, way) != board for way in legal(board))


def test_the_styles_of_2048_are_told_apart_at_once_and_reach_more_the_rarer_they_are() -> None:
    """By a game's first token; the base starts a game in proportion to how that token weighs."""
    [styled] = [told for told in LAST_TALKS if told.__name__ == "_styled_2048"]
    begun = [styled(Words(str(seed)), BYTES, 1).datums[0] for seed in range(200)]
    weighs: dict[int, float] = defaultdict(float)
    for datum in begun:
        weighs[datum.output[0]] += datum.advantage
    most = sorted(weighs.values(), reverse=True)
    shares = [weight / sum(most) for weight in most[: len(STYLES)]]
    assert shares == pytest.approx([0.75, 0.15, 0.1], abs=0.06)
    assert len(SAID) == len(STYLES)
    stubborn, row, turning = [fmean(best_tile(make, s) for s in range(20)) for make in STYLES]
    assert stubborn < 8 < row < 16 < 30 < turning


def best_tile(make: Callable[[Random], Player], seed: int) -> int:
    """Of a game of 40 moves."""
    random = Random(seed)
    player, board = make(random), spawned(random, spawned(random, [[0] * 4 for _ in range(4)]))
    for _ in range(40):
        after = slid(board, player(board))
        board = after if after == board else spawned(random, after)
    return max(map(max, board))
