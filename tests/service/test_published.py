"""Every number that a run publishes, worked out once more from its raw rollouts and weights."""

import math
from collections import defaultdict
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pytest
from httpx import AsyncClient
from numpy.typing import NDArray

from hud_tui.service.engines.tiny.engine import TinyEngine, weights_path
from hud_tui.service.engines.tiny.model import Config, Weights, backward, forward, zeros
from hud_tui.service.engines.tiny.training import load
from hud_tui.service.service import Service
from tests.conftest import calling, ended, submit
from tests.service.calls import Json, conversation, fork_from, traces_of, tree

CLOCK = {"rollout_s", "train_s", "tokens_per_s"}
"""What a clock says: no rollout tells it."""
RATE = 3e-4
Floats = NDArray[np.float64]


class Turn:
    """One rollout's one turn, under the weights that its step met."""

    def __init__(self, trace: Json, sample: Json, weights: Weights, config: Config) -> None:
        self.task, self.reward, self.heldout = trace["task_slug"], trace["reward"], trace["heldout"]
        self.stop, self.evaluates = trace["stop_reason"], trace["evaluates"]
        self.group, self.step = trace["group_id"], trace["step"]
        self.q = np.array(sample["output_logprobs"])
        self.advantage = 0.0
        prompt, self.output = sample["prompt_token_ids"], np.array(sample["output_token_ids"])
        line = np.array([[*prompt, *self.output[:-1]]])
        rows = np.arange(len(prompt) - 1, line.shape[1])
        logits, self._tape = forward(weights, config, line, rows)
        self._logp = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
        self.lp = self._logp[np.arange(len(rows)), self.output]

    @property
    def entropy(self) -> Floats:
        """At each token, in nats."""
        found: Floats = -(np.exp(self._logp) * self._logp).sum(axis=1)
        return found

    def push(self, weights: Weights, grads: Weights) -> None:
        """Add the gradient of the importance-sampled cost."""
        w = np.exp(self.lp - self.q) * self.advantage
        d_logits = np.exp(self._logp)
        d_logits[np.arange(len(w)), self.output] -= 1
        backward(weights, d_logits * w[:, None], self._tape, grads)


def over_tokens(turns: list[Turn]) -> dict[str, float]:
    """Figures over some turns' tokens; ratios outside .8 – 1.2 count as clipped."""
    gap = np.concatenate([turn.lp - turn.q for turn in turns])
    ratio = np.exp(gap)
    return {
        "entropy": float(np.concatenate([turn.entropy for turn in turns]).mean()),
        "kl_sample_train": float(-gap.mean()),
        "ratio_max": float(ratio.max()),
        "clip_fraction": float(((ratio < 0.8) | (ratio > 1.2)).mean()),
    }


def of_groups(turns: list[Turn]) -> dict[str, float]:
    """Of the groups; gives every turn its advantage."""
    groups: dict[str, list[Turn]] = defaultdict(list)
    for turn in turns:
        groups[turn.group].append(turn)
    flat = []
    for group in groups.values():
        mean = fmean(turn.reward for turn in group)
        for turn in group:
            turn.advantage = turn.reward - mean
        if len({turn.reward for turn in group}) == 1:
            flat.append(mean)
            for turn in group:
                turn.advantage = 0.0
    return {
        "frac_reward_zero_std": len(flat) / len(groups),
        "frac_groups_all_solved": sum(mean >= 0.5 for mean in flat) / len(groups),
        "frac_groups_all_failed": sum(mean < 0.5 for mean in flat) / len(groups),
    }


def worked_out(turns: list[Turn], heldout: list[Turn], weights: Weights) -> dict[str, float]:
    """A step's metrics, but for what a clock says."""
    rewards, lengths = [t.reward for t in turns], [len(t.output) for t in turns]
    found = of_groups(turns) | over_tokens(turns)
    moved = [turn for turn in turns if turn.advantage]
    grads = zeros(weights)
    for turn in moved:
        turn.push(weights, grads)
    found |= {f"trained/{key}": value for key, value in over_tokens(moved).items()}
    found |= {
        "reward_mean": fmean(rewards),
        "reward_std": pstdev(rewards),
        "reward_min": min(rewards),
        "reward_max": max(rewards),
        "completion_length_mean": fmean(lengths),
        "completion_length_max": max(lengths),
        "truncated_share": fmean(turn.stop == "length" for turn in turns),
        "sampling_logprob_mean": float(np.concatenate([turn.q for turn in turns]).mean()),
        "num_tokens": sum(lengths),
        "tokens": sum(len(turn.output) for turn in moved),
        "loss:sum": -sum(float((np.exp(t.lp - t.q) * t.advantage).sum()) for t in moved),
        "grad_norm": math.sqrt(sum(float((grad**2).sum()) for grad in grads.values())),
        "learning_rate": RATE,
    }
    if heldout:
        found["heldout_reward"] = fmean(turn.reward for turn in heldout)
        found["num_heldout_traces"] = float(len(heldout))
    return found


def doubled(path: Path) -> tuple[Weights, Config]:
    """A policy's weights in float64."""
    weights, _, config = load(path)
    return {name: weight.astype(np.float64) for name, weight in weights.items()}, config


async def samples(http: AsyncClient, job: str) -> list[tuple[Json, Json]]:
    """Every rollout of a job with its tokens."""
    rows = await traces_of(http, job)
    return [(row, (await conversation(http, row["id"]))[1]["sample"]) for row in rows]


async def test_published_is_what_the_rollouts_say(tmp_path: Path) -> None:
    async with Service(tmp_path, TinyEngine()) as service, calling(service) as http:
        model = (await fork_from(http, "tiny/mixed-0.2M", "mixed rl")).json()
        chosen = {"steps": 3, "tasks_per_step": 16, "group_size": 2, "heldout_every": 2}
        job = await submit(http, model["id"], "mixed", learning_rate=RATE, **chosen)
        status = await ended(http, job)
        rows, found = await tree(http, model["id"]), await samples(http, job)
    policies = [weights_path(model["base_model"]), *(tmp_path / r["checkpoint_name"] for r in rows)]
    trained_tokens = 0
    for number, row in enumerate(rows, 1):
        weights, config = doubled(policies[number - 1])
        turns = [
            Turn(*one, weights, config)
            for one in found
            if one[0]["step"] == number and one[0]["evaluates"] is None
        ]
        train = [turn for turn in turns if not turn.heldout]
        wanted = worked_out(train, [turn for turn in turns if turn.heldout], weights)
        published = {key: v for key, v in row["metrics"].items() if key not in CLOCK}
        assert published == pytest.approx(wanted, rel=1e-4, abs=2e-5)
        assert row["metrics"].keys() == wanted.keys() | CLOCK
        assert 0 < wanted["tokens"] < wanted["num_tokens"], "both kinds of tokens are looked at"
        counts = (row["num_traces"], row["num_datums"], row["num_tokens"], row["mean_reward"])
        moved = sum(turn.advantage != 0 for turn in train)
        assert counts == (32, moved, wanted["num_tokens"], pytest.approx(wanted["reward_mean"]))
        trained_tokens += int(wanted["tokens"])
    assert status["trained_tokens"] == trained_tokens
    weights, config = doubled(policies[-1])
    evaluated = [Turn(*one, weights, config) for one in found if one[0]["evaluates"]]
    [evaluation] = rows[-1]["evaluations"]
    assert {turn.evaluates for turn in evaluated} == {rows[-1]["id"]}
    assert evaluation["mean_reward"] == pytest.approx(fmean(t.reward for t in evaluated))
    assert evaluation["num_traces"] == len(evaluated) == 48
    own = over_tokens(evaluated)
    assert own["ratio_max"] == pytest.approx(1.0, abs=1e-3), "its own weights sampled them"
