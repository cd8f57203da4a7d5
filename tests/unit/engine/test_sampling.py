"""Sampling: the trainer's logprobs, one's own generator, and every way to end."""

from dataclasses import replace

import numpy as np
import pytest

from hud_tui.service.engines.base import Datum, SampleRequest
from hud_tui.service.engines.tiny.tokenizer import END
from hud_tui.service.engines.tiny.worker import Learner
from tests.unit.engine.conftest import SMALL


def requests(count: int, temperature: float = 1.0) -> list[SampleRequest]:
    """Prompts of 3 to 8 tokens, every third one twice."""
    random = np.random.default_rng(1)
    prompts = [random.integers(32, 127, 3 + i % 6).tolist() for i in range(count)]
    return [
        SampleRequest(prompts[i - i % 3 // 2], 4 + i % 9, temperature, seed=(5, i))
        for i in range(count)
    ]


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_sampler_and_trainer_agree_on_logprobs(small: Learner, temperature: float) -> None:
    asked = requests(12, temperature)
    sampled = small.sample(asked)
    datums = [
        Datum(request.prompt, out.tokens, out.logprobs, temperature=temperature)
        for request, out in zip(asked, sampled, strict=True)
    ]
    for datum, current in zip(datums, small.forward(datums), strict=True):
        assert current == pytest.approx(list(datum.logprobs), abs=1e-5)


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


def test_a_stop_sequence_ends_it_and_stays_in(small: Learner) -> None:
    request = SampleRequest([65, 66], 12, seed=(3,))
    [free] = small.sample([request])
    assert len(free.tokens) == 12
    assert free.finish_reason == "length"
    stop = tuple(free.tokens[4:6])
    [cut] = small.sample([replace(request, stop=(stop,))])
    assert cut.finish_reason == "stop"
    assert cut.tokens == free.tokens[: len(cut.tokens)]
    assert tuple(cut.tokens[-2:]) == stop


def test_the_end_token_ends_it(small: Learner) -> None:
    small.weights["head"][:] = 0
    small.weights["head"][0, END] = 1.0
    small.weights["norm"][:] = 0
    seeds = [(seed,) for seed in range(300)]
    drawn = small.sample([SampleRequest([65], 3, seed=seed) for seed in seeds])
    ended = [out for out in drawn if out.tokens[-1] == END]
    assert ended
    assert {out.finish_reason for out in ended} == {"stop"}
    assert all(END not in out.tokens[:-1] for out in drawn)


def test_it_ends_where_the_context_does(small: Learner) -> None:
    full = [65] * (SMALL.context - 2)
    short, long = small.sample([SampleRequest([65], 40, seed=(1,)), SampleRequest(full, 40)])
    assert (len(long.tokens), long.finish_reason) == (2, "length")
    assert len(short.tokens) == SMALL.context - 1


def test_draws_follow_the_probabilities(small: Learner) -> None:
    [lp] = small.forward([Datum([65, 66], [67])])[0]
    drawn = small.sample([SampleRequest([65, 66], 1, seed=(9, i)) for i in range(4000)])
    share = sum(out.tokens == [67] for out in drawn) / 4000
    assert share == pytest.approx(np.exp(lp), abs=4 * np.sqrt(np.exp(lp) / 4000))
