"""What `engines.base` promises, of every engine."""

import asyncio
import math
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from hud_tui.service.engines import modules
from hud_tui.service.engines.base import (
    LOSSES,
    PROGRESS,
    Datum,
    Engine,
    EngineError,
    EngineRefused,
    Sampled,
    SampleRequest,
    Tokenizer,
    loss_config,
)
from hud_tui.service.policies import size_of
from tests.engines.conftest import Setup, Trial

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLOSE = 2e-4
"""Sampler and trainer, and one batch and another, round differently."""


@pytest_asyncio.fixture(loop_scope="module")
async def trial(engine: Engine, tmp_path: Path) -> AsyncIterator[Trial]:
    """Its policies are closed at its end: tests share an engine, and a server has 16 slots."""
    trial = Trial(engine, tmp_path)
    yield trial
    await trial.close()


async def test_bases_say_what_fits_them(trial: Trial) -> None:
    tokens = await trial.engine.tokenizer(trial.base.name)
    prompt = await trial.prompt("17 + 4 = ?")
    assert "17 + 4 = ?" in tokens.decode(prompt)
    assert max(prompt) < trial.base.vocabulary
    assert len(prompt) < trial.base.context
    assert tokens.decode(tokens.encode("a stop\n")) == "a stop\n"
    assert len(tokens.pieces(prompt)) == len(prompt)
    assert trial.engine.about().engine in modules()


async def test_a_longer_conversation_continues_a_shorter_one(trial: Trial) -> None:
    tokens = await trial.engine.tokenizer(trial.base.name)
    said = [{"role": "user", "content": "3 + 4 = ?"}, {"role": "assistant", "content": "7"}]
    more = [*said, {"role": "user", "content": "and 5?"}]
    whole, follows = tokens.render(more), tokens.follow(more, 2)
    assert follows == whole[-len(follows) :]
    assert "and 5?" in tokens.decode(follows)
    assert "3 + 4" not in tokens.decode(follows)


async def test_a_seed_decides_the_tokens(trial: Trial) -> None:
    handle = await trial.open(trial.base.name)
    first, again = await trial.sample(handle), await trial.sample(handle)
    assert [one.tokens for one in first] == [one.tokens for one in again]
    other = await trial.sample(handle, seed=77)
    assert [one.tokens for one in first] != [one.tokens for one in other]
    [greedy] = await trial.engine.sample(handle, [SampleRequest(await trial.prompt(), 4, 0.0)])
    [twin] = await trial.engine.sample(
        handle, [SampleRequest(await trial.prompt(), 4, 0.0, seed=(9,))]
    )
    assert greedy.tokens == twin.tokens


async def test_many_requests_come_back_in_order(trial: Trial) -> None:
    handle = await trial.open(trial.base.name)
    prompts = [await trial.prompt(f"{a} + 4 = ?") for a in range(3)]
    asked = [SampleRequest(prompt, 5, seed=(3, j)) for prompt in prompts for j in range(2)]
    together = await trial.engine.sample(handle, asked)
    alone = [(await trial.engine.sample(handle, [one]))[0] for one in asked]
    assert [one.tokens for one in together] == [one.tokens for one in alone]


@pytest.mark.parametrize("width", [1, 2])
async def test_a_stop_ends_the_completion_and_stays_in_it(trial: Trial, width: int) -> None:
    handle, prompt = await trial.open(trial.base.name), await trial.prompt()
    tokens = await trial.engine.tokenizer(trial.base.name)
    for seed in range(100):
        request = SampleRequest(prompt, 8, temperature=4.0, seed=(seed, 0))
        [free] = await trial.engine.sample(handle, [request])
        if stop := _plain(tokens, free.tokens, width):
            break
    [stopped] = await trial.engine.sample(handle, [replace(request, stop=(stop,))])
    assert stopped.finish_reason == "stop"
    assert stopped.tokens == free.tokens[: len(stopped.tokens)]
    assert len(stopped.logprobs) == len(stopped.tokens) < len(free.tokens)
    assert tokens.decode(stopped.tokens).endswith(tokens.decode(stop))


def _plain(tokens: Tokenizer, sampled: list[int], width: int) -> tuple[int, ...]:
    """Printable text within a completion that encodes as itself; empty where there is none."""
    for start in range(1, len(sampled) - width):
        found = tuple(sampled[start : start + width])
        text = tokens.decode(found)
        if text.isascii() and text.isprintable() and tuple(tokens.encode(text)) == found:
            return found
    return ()


@pytest.mark.parametrize("loss_fn", LOSSES)
async def test_every_loss_has_its_figures_and_raises_what_paid(trial: Trial, loss_fn: str) -> None:
    handle = await trial.open(trial.base.name)
    datums = await trial.datums(handle)
    before = await trial.logprobs(handle, datums)
    figures = await trial.engine.forward_backward(handle, datums, loss_fn)
    assert figures["tokens"] == sum(len(datum.output) for datum in datums)
    assert figures["ratio_max"] == pytest.approx(1.0, abs=1e-3)
    assert figures["kl_sample_train"] == pytest.approx(0.0, abs=1e-3)
    assert figures["clip_fraction"] == figures["ratio_outside"] == 0.0
    assert {"loss:sum", "entropy"} <= figures.keys()
    saved = await trial.step(handle)
    assert saved.metrics["grad_norm"] > 0
    gained = np.subtract(await trial.logprobs(handle, datums), before)
    counts = [len(datum.output) for datum in datums]
    worth = np.repeat([datum.advantage for datum in datums], counts)
    assert float(worth @ gained) > 0


@pytest.mark.parametrize("loss_fn", [*LOSSES, "custom"])
async def test_figures_are_over_all_tokens_and_over_those_with_a_gradient(
    trial: Trial, loss_fn: str
) -> None:
    """What has no gradient is counted in the figures and moves nothing."""
    one, other = [await trial.open(trial.base.name) for _ in range(2)]
    datums = await trial.datums(one, shift=-0.3)  # every ratio is 1.35
    still = [replace(d, advantage=0.0, logprobs=[v + 0.3 for v in d.logprobs]) for d in datums]

    async def passed(handle: str, given: list[Datum]) -> dict[str, float]:
        if loss_fn != "custom":
            return await trial.engine.forward_backward(handle, given, loss_fn)
        weights = [[datum.advantage] * len(datum.output) for datum in given]
        return await trial.engine.backward(handle, given, weights)

    alone = await passed(one, datums)
    figures = await passed(other, [still[0], *datums, *still[1:]])
    assert (figures["tokens"], figures["num_tokens"]) == (alone["tokens"], 2 * alone["tokens"])
    assert (alone["ratio_outside"], figures["ratio_outside"]) == (1.0, pytest.approx(0.5))
    counts = [len(datum.output) for datum in datums]
    gains = sum(count for count, datum in zip(counts, datums, strict=True) if datum.advantage > 0)
    clips = {"ppo": gains, "cispo": sum(counts)}.get(loss_fn, 0) / sum(counts)
    assert alone["clip_fraction"] == pytest.approx(clips), "1.35 is above the bounds"
    assert figures["kl_sample_train"] == pytest.approx(-0.15, abs=1e-3)
    assert figures["entropy"] == pytest.approx(alone["entropy"], abs=1e-4)
    for key in ("entropy", "kl_sample_train", "ratio_max", "clip_fraction", "ratio_outside"):
        assert figures[f"trained/{key}"] == pytest.approx(alone[key], abs=1e-5)
    assert figures["loss:sum"] == pytest.approx(alone["loss:sum"], rel=1e-5)
    norms = [(await trial.step(handle)).metrics["grad_norm"] for handle in (one, other)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


async def test_a_batch_without_a_gradient_has_figures_and_no_step(trial: Trial) -> None:
    handle = await trial.open(trial.base.name)
    flat = [replace(datum, advantage=0.0) for datum in await trial.datums(handle)]
    figures = await trial.engine.forward_backward(handle, flat, "ppo")
    assert (figures["loss:sum"], figures["tokens"]) == (0.0, 0.0)
    assert figures["num_tokens"] == sum(len(datum.output) for datum in flat)
    assert figures["kl_sample_train"] == pytest.approx(0.0, abs=1e-3)
    assert not any(key.startswith("trained/") for key in figures)
    with pytest.raises(EngineRefused):
        await trial.step(handle)


def weight(loss_fn: str, lp: float, q: float, advantage: float) -> float:
    """−dC/dlogprob of one token, with a loss's default config, from Tinker's documentation."""
    ratio, config = math.exp(lp - q), loss_config(loss_fn, None)
    low, high = config.get("clip_low_threshold", 0.0), config.get("clip_high_threshold", math.inf)
    match loss_fn:
        case "cross_entropy":
            return advantage
        case "dro":
            return advantage - config["beta"] * (lp - q)
        case "cispo":
            return min(max(ratio, low), high) * advantage
    cut = ratio > high if advantage > 0 else ratio < low
    return 0.0 if cut else ratio * advantage


@pytest.mark.parametrize("loss_fn", LOSSES)
async def test_a_loss_is_the_gradient_of_its_definition(trial: Trial, loss_fn: str) -> None:
    """Of a stale batch, against weights −dC/dlogprob that are worked out here."""
    one, other = [await trial.open(trial.base.name) for _ in range(2)]
    datums = await trial.datums(one, shift=-0.3)
    await trial.engine.forward_backward(one, datums, loss_fn)
    await trial.step(one)
    rows = await trial.engine.forward(other, datums)
    weights = [
        [weight(loss_fn, lp, q, datum.advantage) for lp, q in zip(row, datum.logprobs, strict=True)]
        for datum, row in zip(datums, rows, strict=True)
    ]
    await trial.engine.backward(other, datums, weights)
    await trial.step(other)
    stepped = await trial.logprobs(one, datums)
    assert await trial.logprobs(other, datums) == pytest.approx(stepped, abs=2e-3)


@pytest.mark.parametrize("loss_fn", ["importance_sampling", "cross_entropy", "custom"])
async def test_losses_are_sums_over_tokens_and_passes_accumulate(
    trial: Trial, loss_fn: str
) -> None:
    """So a turn that is cut in two has the gradient of the whole one, whatever the lengths; also
    where each part is passed alone. Given weights count as much as a loss's."""
    one, other = [await trial.open(trial.base.name) for _ in range(2)]
    whole = await trial.datums(one)
    parts = [part for datum in whole for part in _cut(datum)]
    for handle, datums in ((one, whole), *((other, [part]) for part in parts)):
        if loss_fn == "custom" and handle == other:
            weights = [[datum.advantage] * len(datum.output) for datum in datums]
            await trial.engine.backward(handle, datums, weights)
        else:
            named = "cross_entropy" if loss_fn == "custom" else loss_fn
            await trial.engine.forward_backward(handle, datums, named)
    first, second = await trial.step(one), await trial.step(other)
    assert first.metrics["grad_norm"] == pytest.approx(second.metrics["grad_norm"], rel=1e-2)
    stepped = await trial.logprobs(one, whole)
    assert await trial.logprobs(other, whole) == pytest.approx(stepped, abs=2e-3)


def _cut(datum: Datum) -> list[Datum]:
    """The first token of a turn, and the rest as an answer to that."""
    prompt, output, logprobs = list(datum.prompt), list(datum.output), list(datum.logprobs)
    head = replace(datum, output=output[:1], logprobs=logprobs[:1])
    rest = replace(datum, prompt=[*prompt, *output[:1]], output=output[1:], logprobs=logprobs[1:])
    return [head, rest] if output[1:] else [head]


async def test_what_is_added_to_the_advantage_of_a_token_is_as_if_it_were_its_advantage(
    trial: Trial,
) -> None:
    plain, moved = [await trial.open(trial.base.name) for _ in range(2)]
    datums = await trial.datums(plain)
    whole = [replace(datum, advantage=datum.advantage + 0.25) for datum in datums]
    parted = [
        replace(datum, penalties=[0.25] * len(datum.output)) if datum.advantage else one
        for datum, one in zip(datums, whole, strict=True)
    ]
    for handle, passed in ((plain, whole), (moved, parted)):
        await trial.engine.forward_backward(handle, passed, "importance_sampling")
        await trial.step(handle)
    stepped = await trial.logprobs(plain, datums)
    assert await trial.logprobs(moved, datums) == pytest.approx(stepped, abs=1e-5)


async def test_a_saved_node_is_its_owner_s_alone_and_continues_as_if_it_had_never_been_left(
    trial: Trial, tmp_path: Path
) -> None:
    handle, datums, saved = await trial.stepped("importance_sampling")
    files = [place for place in (tmp_path / "checkpoints").rglob("*") if place.is_file()]
    assert {stat.S_IMODE(place.stat().st_mode) for place in files} == {0o600}
    after = await trial.logprobs(handle, datums)
    await trial.engine.forward_backward(handle, datums, "cross_entropy")
    await trial.step(handle)
    went_on = await trial.logprobs(handle, datums)
    back = await trial.open(Path(saved.state_path))
    assert await trial.logprobs(back, datums) == pytest.approx(after, abs=CLOSE)
    await trial.engine.forward_backward(back, datums, "cross_entropy")
    await trial.step(back)
    assert await trial.logprobs(back, datums) == pytest.approx(went_on, abs=CLOSE)


async def test_a_step_is_what_is_sampled_next_with_the_logprobs_that_training_sees(
    trial: Trial,
) -> None:
    handle = await trial.open(trial.base.name)
    for steps in range(3):
        sampled, datums = await trial.sample(handle), await trial.datums(handle)
        assert all(len(one.tokens) == len(one.logprobs) <= 6 for one in sampled)
        drawn = [value for one in sampled for value in one.logprobs]
        assert max(drawn) <= 1e-6
        seen = await trial.logprobs(handle, datums)
        assert seen == pytest.approx(drawn, abs=CLOSE), f"after {steps} steps"
        await trial.engine.forward_backward(handle, datums, "importance_sampling")
        await trial.step(handle)


async def test_an_older_node_is_sampled_without_touching_what_trains(trial: Trial) -> None:
    handle, datums, first = await trial.stepped("importance_sampling")
    drawn = await trial.sample(handle)
    await trial.engine.forward_backward(handle, datums, "importance_sampling")
    await trial.step(handle, rate=1e-2)
    newest = await trial.logprobs(handle, datums)
    older = await trial.open(Path(first.state_path))
    assert [one.tokens for one in await trial.sample(older)] == [one.tokens for one in drawn]
    assert await trial.logprobs(handle, datums) == pytest.approx(newest, abs=1e-5)
    assert await trial.logprobs(older, datums) != pytest.approx(newest, abs=1e-3)


async def test_a_view_samples_what_it_was_made_of_whatever_becomes_of_the_policy(
    trial: Trial,
) -> None:
    handle, datums, _ = await trial.stepped("importance_sampling")
    view = trial.engine.view(handle)
    if view is None:
        pytest.skip("it has no views")
    then = await trial.sample(handle)
    waiting = asyncio.ensure_future(trial.sample(view))
    await trial.engine.forward_backward(handle, datums, "importance_sampling")
    await trial.step(handle, rate=1e-2)
    now, newer = await trial.sample(handle), trial.engine.view(handle)
    assert newer is not None
    assert (await waiting, await trial.sample(view), await trial.sample(newer)) == (then, then, now)
    assert now != then
    await trial.engine.close(handle)
    assert trial.engine.view(handle) is None
    await trial.engine.close(newer)
    assert await trial.sample(view) == then
    await trial.engine.close(view)
    with pytest.raises(EngineError):
        await trial.sample(view)


async def test_a_thin_state_samples_alike_and_trains_afresh(trial: Trial, tmp_path: Path) -> None:
    handle, datums, saved = await trial.stepped("cross_entropy")
    (tmp_path / "thin").mkdir()
    path = await trial.engine.slim(Path(saved.state_path), tmp_path / "thin")
    if trial.base.state_bytes:  # it is stored here
        assert size_of(tmp_path / "thin") < 0.4 * size_of(Path(saved.state_path).parent)
        with pytest.raises(EngineError, match="no such state"):
            await trial.engine.slim(tmp_path / "nothing", tmp_path)
    thin, whole = [await trial.open(Path(place)) for place in (path, saved.state_path)]
    drawn, wanted = await trial.sample(thin), await trial.sample(whole)
    assert [one.tokens for one in drawn] == [one.tokens for one in wanted]
    back = [replace(datum, advantage=-datum.advantage) for datum in datums]
    for handle in (thin, whole):  # what is left of the first step's moments holds against it
        await trial.engine.forward_backward(handle, back, "cross_entropy")
        await trial.step(handle)
    stepped = await trial.logprobs(whole, datums)
    assert await trial.logprobs(thin, datums) != pytest.approx(stepped, abs=1e-4)


async def test_tokens_that_are_told_while_they_are_sampled_are_those_returned(trial: Trial) -> None:
    """Engines that sample whole answers tell none."""
    handle = await trial.open(trial.base.name)
    told: dict[int, list[tuple[int, float]]] = {}

    def progress(index: int, before: int, new: Sampled) -> None:
        tokens = told.setdefault(index, [])
        assert before == len(tokens)
        tokens += zip(new.tokens, new.logprobs, strict=True)

    listening = PROGRESS.set(progress)
    sampled = await trial.sample(handle)
    PROGRESS.reset(listening)
    for index, tokens in told.items():
        whole = list(zip(sampled[index].tokens, sampled[index].logprobs, strict=True))
        assert tokens == whole[: len(tokens)]
    again = await trial.sample(handle)
    assert [one.tokens for one in again] == [one.tokens for one in sampled]


async def test_policies_at_once_do_not_mix(trial: Trial) -> None:
    still, moves = [await trial.open(trial.base.name) for _ in range(2)]
    datums = await trial.datums(still)
    before = await trial.logprobs(still, datums)

    async def train() -> None:
        await trial.engine.forward_backward(moves, datums, "cross_entropy")
        await trial.step(moves, rate=1e-2)

    drawn, _ = await asyncio.gather(trial.sample(still), train())
    assert [one.tokens for one in drawn] == [one.tokens for one in await trial.sample(still)]
    assert await trial.logprobs(still, datums) == pytest.approx(before, abs=CLOSE)


async def test_what_is_refused_says_why_and_leaves_the_gradients(
    trial: Trial, tmp_path: Path
) -> None:
    engine = trial.engine
    with pytest.raises(EngineError, match="no base 'nope/nope'"):
        await engine.open("nope/nope")
    with pytest.raises(EngineError, match="no base 'nope/nope'"):
        await engine.tokenizer("nope/nope")
    with pytest.raises(EngineError, match="no such state"):
        await engine.open(tmp_path / "missing.json")
    handle = await engine.open(trial.base.name)
    with pytest.raises(EngineRefused, match="nothing was accumulated"):
        await trial.step(handle)
    datums = await trial.datums(handle)
    await engine.forward_backward(handle, datums, "ppo")
    with pytest.raises(EngineRefused, match="unknown loss 'nope'"):
        await engine.forward_backward(handle, datums, "nope")
    with pytest.raises(EngineRefused, match="no config key 'zz'"):
        await engine.forward_backward(handle, datums, "ppo", {"zz": 1.0})
    with pytest.raises(EngineRefused, match="one value per output token"):
        await engine.backward(handle, datums[:1], [[1.0] * (len(datums[0].output) + 1)])
    with pytest.raises(EngineRefused, match="1: 0 logprobs for"):
        await engine.forward_backward(handle, [datums[0], replace(datums[1], logprobs=())], "ppo")
    with pytest.raises(EngineRefused, match="outside the vocabulary"):
        await engine.forward(handle, [replace(datums[0], output=[trial.base.vocabulary])])
    with pytest.raises(EngineRefused, match="context_length_exceeded"):
        await engine.sample(handle, [SampleRequest([65] * trial.base.context, 4)])
    assert (await trial.step(handle)).metrics["grad_norm"] > 0
    await engine.close(handle)
    await engine.close(handle)
    with pytest.raises(EngineError, match="closed"):
        await engine.forward(handle, datums)


async def test_logprobs_are_as_they_were_sampled(trial: Trial, setup: Setup) -> None:
    """Tempered where the engine's losses know the temperature; Tinker's know none."""
    handle, prompt = await trial.open(trial.base.name), await trial.prompt()
    [said] = await trial.engine.sample(handle, [SampleRequest(prompt, 6, temperature=2.0)])
    hot = Datum(prompt, said.tokens, said.logprobs, 1.0, temperature=2.0)
    assert await trial.logprobs(handle, [hot]) == pytest.approx(said.logprobs, abs=CLOSE)
    plain = await trial.logprobs(handle, [replace(hot, temperature=1.0)])
    same = plain == pytest.approx(said.logprobs, abs=CLOSE)
    assert same != setup.is_tempered
    figures = await trial.engine.forward_backward(handle, [hot], "ppo")
    assert figures["ratio_max"] == pytest.approx(1.0, abs=1e-3)
    assert math.isfinite(figures["loss:sum"])
