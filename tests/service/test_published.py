"""Every number that a run publishes, worked out once more; and the evaluation at its end."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
from httpx import AsyncClient
from numpy.typing import NDArray

from hud_tui.rl.loop import FLAT_IN_A_ROW
from hud_tui.service import engine_rollouts
from hud_tui.service.engines.base import Datum, EngineLost, Sampled, SampleRequest, StateGone
from hud_tui.service.engines.tiny.engine import TinyEngine, weights_path
from hud_tui.service.engines.tiny.model import Config, Weights, backward, forward, zeros
from hud_tui.service.engines.tiny.training import load
from hud_tui.service.environments import TASKSETS
from hud_tui.service.service import Service
from tests.conftest import calling, ended, fork, submit, tasks_of
from tests.service.calls import (
    Json,
    cancel,
    conversation,
    fork_from,
    ran,
    resume,
    set_head,
    status_of,
    step,
    timeless,
    traces_of,
    tree,
)
from tests.toy_engine import ToyEngine

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
        "clip_fraction": 0.0,
        "ratio_outside": float(((ratio < 0.8) | (ratio > 1.2)).mean()),
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


TASKS = sum("columns" not in row for row in TASKSETS["mixed"].tasks)


def of_tasks(last: dict[str, list[float]]) -> dict[str, float]:
    """The kinds of tasks, none of which has two groups yet."""
    learnable = sum(len(set(rewards)) > 1 for rewards in last.values())
    solved = sum(len(set(rewards)) == 1 and rewards[0] >= 0.5 for rewards in last.values())
    return {
        "tasks_solved": solved,
        "tasks_learnable": learnable,
        "tasks_out_of_reach": len(last) - solved - learnable,
        "tasks_unseen": TASKS - len(last),
    }


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
    trained_tokens, last = 0, dict[str, list[float]]()
    for number, row in enumerate(rows, 1):
        weights, config = doubled(policies[number - 1])
        turns = [
            Turn(*one, weights, config)
            for one in found
            if one[0]["step"] == number and one[0]["evaluates"] is None
        ]
        train = [turn for turn in turns if not turn.heldout]
        wanted = worked_out(train, [turn for turn in turns if turn.heldout], weights)
        last |= {
            task: [t.reward for t in train if t.task == task] for task in {t.task for t in train}
        }
        wanted |= of_tasks(last)
        published = timeless(row["metrics"])
        assert published == pytest.approx(wanted, rel=1e-4, abs=2e-5)
        assert row["metrics"].keys() >= wanted.keys() | {"rollout_s", "train_s", "step_s"}
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


HELDOUT = 36


class Gate:
    """Lets an engine's samples through, or holds those of an evaluation up."""

    def __init__(self, engine: ToyEngine) -> None:
        self.sizes: list[int] = []
        """Requests of each evaluating call."""
        self.reached, self.open = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None
        """What an evaluation meets."""
        self._sample = engine.sample
        engine.sample = self.sample  # type: ignore[method-assign]

    async def sample(self, handle: str, requests: Sequence[SampleRequest]) -> list[Sampled]:
        if not any(request.seed[-1] == 0 and len(request.seed) == 4 for request in requests):
            self.sizes.append(len(requests))
            self.reached.set()
            if self.error is not None:
                raise self.error
            await self.open.wait()
        return await self._sample(handle, requests)


@pytest.fixture
def gate(engine: ToyEngine) -> Gate:
    return Gate(engine)


async def test_the_last_checkpoint_is_evaluated_from_its_own_weights(
    http: AsyncClient, model: Json, service: Service, engine: ToyEngine
) -> None:
    job = await ran(http, model["id"], steps=3)
    *before, last = await tree(http, model["id"])
    assert all(not row.get("evaluations") for row in before)
    [found] = last["evaluations"]
    rows = [row for row in await traces_of(http, job) if row["evaluates"]]
    assert {row["evaluates"] for row in rows} == {last["id"]}
    assert {(row["step"], row["heldout"], row["checkpoint_id"]) for row in rows} == {
        (3, True, None)
    }
    assert found["mean_reward"] == pytest.approx(fmean(row["reward"] for row in rows))
    counts = (found["split"], found["num_tasks"], found["num_traces"], found["job_id"])
    assert counts == ("heldout", HELDOUT, HELDOUT, job)
    own = await engine.open(service.data_dir / last["checkpoint_name"])
    parents = await engine.open(service.data_dir / before[-1]["checkpoint_name"])
    for row in rows[:5]:
        said = (await conversation(http, row["id"]))[1]["sample"]
        datum = Datum(said["prompt_token_ids"], said["output_token_ids"])
        assert await engine.forward(own, [datum]) == [pytest.approx(said["output_logprobs"])]
        assert await engine.forward(parents, [datum]) != [pytest.approx(said["output_logprobs"])]


async def test_the_step_s_own_numbers_stay_as_they_were(http: AsyncClient, model: Json) -> None:
    """mean_reward and heldout_reward are of the rollouts before the step, as HUD has them."""
    job = await ran(http, model["id"], steps=2)
    last = (await tree(http, model["id"]))[-1]
    rows = [r for r in await traces_of(http, job) if r["step"] == 2 and r["evaluates"] is None]
    trained = fmean(row["reward"] for row in rows if not row["heldout"])
    assert last["mean_reward"] == last["metrics"]["reward_mean"] == pytest.approx(trained)
    heldout = fmean(row["reward"] for row in rows if row["heldout"])
    assert last["metrics"]["heldout_reward"] == pytest.approx(heldout)
    path = f"/v2/models/{model['id']}/checkpoints/{last['id']}/traces"
    assert len((await http.get(path)).json()) == last["num_traces"] == 32


async def test_a_run_without_held_out_tasks_is_not_evaluated(
    http: AsyncClient, model: Json
) -> None:
    rows = [row for row in await tasks_of(http) if not row.get("columns")]
    body = {"model_id": model["id"], "dataset": {"tasks": rows}}
    body["config"] = {"parameters": {"steps": 1}}
    job = (await http.post("/v1/training/jobs", json=body)).json()["job_id"]
    assert (await ended(http, job))["status"] == "succeeded"
    [row] = await tree(http, model["id"])
    assert not row.get("evaluations")


async def test_it_runs_until_it_is_evaluated_and_says_so_wherever_the_head_is_set_meanwhile(
    http: AsyncClient, model: Json, gate: Gate
) -> None:
    job = await submit(http, model["id"], steps=2)
    await gate.reached.wait()
    first, _ = await tree(http, model["id"])
    assert (await set_head(http, model["id"], first["id"])).status_code == 200
    path = f"/v2/models/{model['id']}/checkpoints"
    etag = (await http.get(path)).headers["etag"]
    status = await status_of(http, job)
    assert (status["status"], status["step"], status["estimated_finish"]) == ("running", 2, None)
    assert status["note"] == "evaluation of step-000002 on the held-out tasks: 36 tasks"
    gate.open.set()
    after = await ended(http, job)
    assert (after["status"], after["note"]) == ("succeeded", None)
    again = await http.get(path, headers={"If-None-Match": etag})
    first, last = again.json()
    assert (again.status_code, first["is_active"], len(last["evaluations"])) == (200, True, 1)
    assert not first.get("evaluations")


async def test_a_service_that_ends_in_an_evaluation_interrupts_it_and_it_can_be_resumed(
    tmp_path: Path,
) -> None:
    engine = ToyEngine()
    gate = Gate(engine)
    async with Service(tmp_path, engine) as service, calling(service) as http:
        model = await fork(http)
        job = await submit(http, model["id"], steps=1)
        await gate.reached.wait()
    async with Service(tmp_path, ToyEngine()) as service, calling(service) as http:
        status = await ended(http, job)
        assert (status["status"], status["error"]["code"]) == ("interrupted", "interrupted")
        await resume(http, job)
        status = await ended(http, job)
        assert (status["status"], status["step"]) == ("succeeded", 1)
        [row] = await tree(http, model["id"])
        assert len(row["evaluations"]) == 1


@pytest.mark.usefixtures("hurried")
async def test_an_engine_that_stops_is_asked_again_and_a_few_times_only(
    http: AsyncClient, gate: Gate
) -> None:
    gate.error = EngineLost("the engine stopped")
    model = await fork(http)
    job = await submit(http, model["id"], steps=1)
    status = await ended(http, job)
    assert (status["status"], status["step"], status["error"]["code"]) == ("failed", 1, "engine")
    said = status["error"]["message"]
    assert "all steps were taken" in said
    assert "Resume the run to repeat only that" in said
    assert len(gate.sizes) == 1 + engine_rollouts.LOST_IN_A_ROW
    gate.error = None
    gate.open.set()
    await resume(http, job)
    assert (await ended(http, job))["status"] == "succeeded"
    [row] = await tree(http, model["id"])
    assert len(row["evaluations"]) == 1


async def test_a_checkpoint_that_its_server_lost_is_not_evaluated(
    http: AsyncClient, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    gate.error = StateGone("the server no longer has this checkpoint")
    model = await fork(http)
    await ran(http, model["id"], steps=1)
    [row] = await tree(http, model["id"])
    assert (row.get("evaluations"), row["state"]) == (None, "expired")
    assert "step-000001 is not evaluated" in caplog.text


async def test_a_solved_run_is_evaluated_too_and_one_that_is_resumed_only_that(
    http: AsyncClient, engine: ToyEngine, gate: Gate
) -> None:
    optim_step = engine.optim_step

    async def then_solved(*args: Any) -> Any:
        saved = await optim_step(*args)
        engine.flatten(solved=True)
        return saved

    engine.optim_step = then_solved  # type: ignore[method-assign]
    model = await fork(http)
    job = await submit(http, model["id"], steps=3, group_size=2, tasks_per_step=2)
    await gate.reached.wait()
    await cancel(http, job)
    cancelled = await ended(http, job)
    assert (cancelled["status"], cancelled["attempt"]) == ("cancelled", FLAT_IN_A_ROW + 1)
    gate.open.set()
    await resume(http, job)
    status = await ended(http, job)
    assert (status["status"], status["step"]) == ("succeeded", 1)
    assert (status["attempt"], status["reason"][:6]) == (FLAT_IN_A_ROW + 1, "solved")
    [row] = await tree(http, model["id"])
    assert [evaluation["mean_reward"] for evaluation in row["evaluations"]] == [1.0]


async def test_a_run_that_took_no_step_evaluates_nobody_else_s_checkpoint(
    http: AsyncClient, model: Json, engine: ToyEngine
) -> None:
    await step(http, model)
    engine.flatten(solved=True)
    job = await submit(http, model["id"], steps=1, group_size=2, tasks_per_step=2)
    assert (await ended(http, job))["step"] == 0
    [row] = await tree(http, model["id"])
    assert not row.get("evaluations")
