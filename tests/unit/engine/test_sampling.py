"""Sampling: the trainer's logprobs, one's own generator, and every way to end."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from hud_tui.service.engines.base import Adam, Datum, Sampled, SampleRequest
from hud_tui.service.engines.tiny import conversations as conversations_module
from hud_tui.service.engines.tiny import parts, sampling
from hud_tui.service.engines.tiny.conversations import Conversations, Known
from hud_tui.service.engines.tiny.memory import Memory
from hud_tui.service.engines.tiny.sampling import Cache
from hud_tui.service.engines.tiny.tokenizer import END
from tests.learner import Learner
from tests.unit.engine.conftest import LONG, SMALL


def requests(count: int) -> list[SampleRequest]:
    """Prompts of 3 to 8 tokens, every third one twice."""
    random = np.random.default_rng(1)
    prompts = [random.integers(32, 127, 3 + i % 6).tolist() for i in range(count)]
    return [SampleRequest(prompts[i - i % 3 // 2], 4 + i % 9, seed=(5, i)) for i in range(count)]


def test_alone_or_in_a_batch_the_tokens_are_the_same(small: Learner) -> None:
    asked = requests(20)
    together = small.sample(asked)
    for request, out in zip(asked, together, strict=True):
        [alone] = small.sample([request])
        assert alone.tokens == out.tokens
        assert alone.logprobs == pytest.approx(out.logprobs, abs=1e-5)
    assert together[0].tokens != together[1].tokens


def test_temperature_0_takes_the_likeliest_token_untempered(small: Learner) -> None:
    [greedy] = small.sample([SampleRequest([65, 66], 5, temperature=0, seed=(1,))])
    [again] = small.sample([SampleRequest([65, 66], 5, temperature=0, seed=(2,))])
    assert greedy == again
    datums = [Datum([65, 66], [token]) for token in range(SMALL.vocabulary)]
    first = [lp for [lp] in small.forward(datums)]
    assert greedy.tokens[0] == int(np.argmax(first))
    assert greedy.logprobs[0] == pytest.approx(max(first), abs=1e-5)


def test_the_end_token_ends_it_and_stays_in(small: Learner) -> None:
    small.weights["head"][:] = 0
    small.weights["head"][0, END] = 1.0
    small.weights["norm"][:] = 0
    seeds = [(seed,) for seed in range(300)]
    drawn = small.sample([SampleRequest([65], 3, seed=seed) for seed in seeds])
    ended = [out for out in drawn if out.tokens[-1] == END]
    assert ended
    assert {out.finish_reason for out in ended} == {"stop"}
    assert all(END not in out.tokens[:-1] for out in drawn)


def test_it_ends_where_the_context_does(small: Learner, long_path: Path) -> None:
    full = [65] * (SMALL.context - 2)
    short, long = small.sample([SampleRequest([65], 40, seed=(1,)), SampleRequest(full, 40)])
    assert (len(long.tokens), long.finish_reason) == (2, "length")
    assert len(short.tokens) == SMALL.context - 1
    prompt = np.random.default_rng(3).integers(20, 300, LONG.context - 10).tolist()
    [out] = Learner(long_path).sample([SampleRequest(prompt, 100, seed=(1,))])
    assert (len(out.tokens), out.finish_reason) == (10, "length")


def test_draws_follow_the_probabilities(small: Learner) -> None:
    [lp] = small.forward([Datum([65, 66], [67])])[0]
    drawn = small.sample([SampleRequest([65, 66], 1, seed=(9, i)) for i in range(4000)])
    share = sum(out.tokens == [67] for out in drawn) / 4000
    assert share == pytest.approx(np.exp(lp), abs=4 * np.sqrt(np.exp(lp) / 4000))


def conversations(learner: Learner) -> list[tuple[SampleRequest, Sampled]]:
    """Five conversations, the first three of a group, for three turns of 30 new tokens each."""
    random, said = np.random.default_rng(3), []
    opening = random.integers(20, 300, 150).tolist()
    prompts = [opening] * 3 + [random.integers(20, 300, n).tolist() for n in (131, 170)]
    for turn in range(3):
        asked = [SampleRequest(ids, 12, seed=(turn, i)) for i, ids in enumerate(prompts)]
        sampled = learner.sample(asked)
        said += zip(asked, sampled, strict=True)
        prompts = [
            [*ids, *out.tokens, *random.integers(20, 300, 30).tolist()]
            for ids, out in zip(prompts, sampled, strict=True)
        ]
    return said


def test_a_turn_that_continues_a_conversation_is_as_if_read_from_its_start(long_path: Path) -> None:
    remembering = Learner(long_path)
    for request, out in conversations(remembering):
        [alone] = Learner(long_path).sample([request])
        assert alone.tokens == out.tokens
        assert alone.logprobs == pytest.approx(out.logprobs, abs=1e-5)
        [current] = remembering.forward([Datum(request.prompt, out.tokens)])
        assert current == pytest.approx(out.logprobs, abs=1e-5)


def test_a_turn_reads_its_new_tokens_only(long_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    on, whole = sampling._read_on, sampling._read_whole

    def count_on(*args: object) -> object:
        read.append(sum(map(len, args[-1].values())))  # type: ignore[attr-defined]
        return on(*args)  # type: ignore[arg-type]

    def count_whole(*args: object) -> object:
        read.append(sum(map(len, args[-1])))  # type: ignore[arg-type]
        return whole(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(sampling, "_read_on", count_on)
    monkeypatch.setattr(sampling, "_read_whole", count_whole)
    conversations(Learner(long_path))
    # Three different prompts, of each 64 tokens at a time; then each answer's last token and 30 new
    # ones, five times, twice.
    assert read == [3 * 64, 3 * 64, 22 + 3 + 42, 5 * 31, 5 * 31]


def test_after_a_step_nothing_is_remembered(long_path: Path, tmp_path: Path) -> None:
    learner = Learner(long_path)
    said = conversations(learner)
    learner.forward_backward(
        [Datum(request.prompt, out.tokens, advantage=1) for request, out in said[:2]],
        "cross_entropy",
        {},
    )
    learner.optim_step(Adam(0.01), tmp_path)
    request, before = said[-1]
    [out] = learner.sample([request])
    [current] = learner.forward([Datum(request.prompt, out.tokens)])
    assert current == pytest.approx(out.logprobs, abs=1e-5)
    assert out.logprobs != pytest.approx(before.logprobs, abs=1e-5)


@pytest.mark.parametrize(
    ("module", "name", "value"), [(sampling, "GROWTH", 4), (parts, "TOKENS", 400)]
)
def test_room_and_parts_do_not_change_what_is_said(
    module: ModuleType, name: str, value: int, long_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = [out for _, out in conversations(Learner(long_path))]
    monkeypatch.setattr(module, name, value)
    for one, other in zip(usual, conversations(Learner(long_path)), strict=True):
        assert one.tokens == other[1].tokens
        assert one.logprobs == pytest.approx(other[1].logprobs, abs=1e-5)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, token_bytes = Memory(), 1024
    kept = Conversations(memory, token_bytes)
    monkeypatch.setattr(conversations_module, "BYTES", 2 * 200 * token_bytes)

    def keep(talk: list[int]) -> None:
        asked = SampleRequest(talk, 1)
        kept.keep(asked, kept.look_up(asked), Sampled([7], [0.0], "length"))

    talks = [[start, *range(199)] for start in range(4)]
    for talk in talks:
        keep(talk)
    assert [kept.find([*talk, 0]) is not None for talk in talks] == [False, False, True, True]
    found = kept.find(talks[3])
    assert found is not None
    assert found[1] == 199, "the last token of a prompt is always read"
    keep(talks[3][:150])
    assert kept.find(talks[2]) is not None, "a beginning takes nobody's place"
    keep([1] * 20)
    assert kept.find([1] * 20) is None
    assert kept.look_up(SampleRequest([1] * 20, 4)) == Known(None, 0, None)


def test_the_longest_beginning_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Conversations(Memory(), 8)
    random = np.random.default_rng(5)
    opening = random.integers(0, 9, 140).tolist()
    talks = [opening + random.integers(0, 2, 90).tolist() for _ in range(12)]
    for talk in talks:
        asked = SampleRequest(talk, 1)
        kept.keep(asked, kept.look_up(asked), Sampled([0], [0.0], "length"))
    for _ in range(20):
        prompt = opening + random.integers(0, 2, 60).tolist()
        ids = prompt[:-1]
        shared = [
            next((n for n, (a, b) in enumerate(zip(talk, ids, strict=False)) if a != b), len(ids))
            for talk in talks
        ]
        found = kept.find(prompt)
        assert found is not None
        assert found[1] == max(shared)
        assert found[0].tokens[: found[1]].tolist() == ids[: found[1]]


def test_a_row_that_nobody_wants_any_more_ends_and_the_others_go_on(small: Learner) -> None:
    asked = [SampleRequest([65, 66, i + 33], 20, seed=(3, i)) for i in range(8)]
    whole, steps = small.sample(asked), list[int]()

    def after(rows: Sequence[sampling.Row]) -> bool:
        steps.append(len(rows))
        if len(steps) == 3:
            rows[1].wanted = rows[4].wanted = False
        return len(steps) == 3

    given = [sampling.Asked(request) for request in asked]
    left = small.policy.sample(given, after)
    for number, (one, other) in enumerate(zip(left, whole, strict=True)):
        if number in (1, 4):
            assert one.tokens == other.tokens[:3]
            assert len(other.tokens) > 3
        else:
            assert one.tokens == other.tokens
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)

    def nobody(rows: Sequence[sampling.Row]) -> bool:
        for row in rows:
            row.wanted = False
        return True

    assert [len(one.tokens) for one in small.policy.sample(given, nobody)] == [1] * 8
    assert small.policy.sample(given, lambda rows: False) == whole


def test_the_last_tokens_of_a_row_are_those_of_several_reads() -> None:
    cache = Cache.empty(LONG, 1, 8, np.float32)
    cache.read(0, [1, 2])
    cache.read(0, [3])
    assert (cache.last[0].tolist(), cache.length[0]) == ([3, 2, 1], 3)
    cache.read(0, [4, 5, 6, 7])
    assert (cache.last[0].tolist(), cache.length[0]) == ([7, 6, 5], 7)
