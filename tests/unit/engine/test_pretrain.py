"""The lessons the bases are made from, and that making them is deterministic."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hud_tui.service.engines.tiny.engine import BASES
from hud_tui.service.engines.tiny.model import Config
from hud_tui.service.engines.tiny.pretrain import LESSONS, Lesson, line
from hud_tui.service.engines.tiny.tokenizer import END, CharTokenizer
from hud_tui.service.environments import ENVIRONMENTS, TASKSETS, hopeless_rows

EVERY = LESSONS["tiny/mixed-0.2M"]


def test_every_base_has_lessons_and_every_scenario_one() -> None:
    assert set(LESSONS) == {base.name for base in BASES}
    taught = {(lesson.env, lesson.scenario) for lesson in EVERY}
    assert taught == {(e.name, name) for e in ENVIRONMENTS.values() for name in e.scenarios}


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


def test_the_lessons_cover_the_built_in_tasks_but_for_the_hopeless() -> None:
    """A tally of what is drawn: numbers below 100, words no longer than taught."""
    random, hopeless = Random(0), {row["slug"] for row in hopeless_rows()}
    longest = {
        lesson.scenario: max(len(lesson.draw(random).get("text", "")) for _ in range(3000))
        for lesson in EVERY
    }
    for task in (task for taskset in TASKSETS.values() for task in taskset.tasks):
        numbers = max(task["args"].get("a", 0), task["args"].get("b", 0))
        beyond = numbers >= 100 or len(task["args"].get("text", "")) > longest[task["id"]]
        assert beyond == (task["slug"] in hopeless), task["slug"]


PRETRAIN = """
import sys
from pathlib import Path
from hud_tui.service.engines.tiny import pretrain
pretrain.STAGES["tiny/mixed-0.2M"] = pretrain.stages(2, 2)
pretrain.main(["tiny/mixed-0.2M", "--out", sys.argv[1]])
"""


def test_the_same_lessons_make_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for place in (tmp_path / "first", tmp_path / "second"):
        command = [sys.executable, "-c", PRETRAIN, str(place)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        assert "clean 2/2: loss" in told
        made.append((place / "mixed-0.2M.safetensors").read_bytes())
    assert made[0] == made[1]
