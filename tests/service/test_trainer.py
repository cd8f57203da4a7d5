"""A training loop of one's own, and the README's, against the embedded service."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest
from httpx import AsyncClient

from hud_tui.audit_log import CommandLog
from hud_tui.client import HudClient, Rollout, TrainingClient
from hud_tui.errors import HudBadInput, HudConflict, HudNoKey, HudNotFound, HudRefused, HudUsage
from hud_tui.local_service import stop
from hud_tui.service.engines.base import Adam, Saved
from hud_tui.service.service import Service
from hud_tui.settings import read_paths
from hud_tui.wire_training import Payload
from tests.conftest import Served, fork
from tests.live import training_loop
from tests.service.calls import QUESTION, chat
from tests.service.clients import fork_of, in_process
from tests.service.losing import Losing
from tests.toy_engine import ToyEngine


@pytest.fixture
def line(service: Service) -> Losing:
    return Losing(service)


@pytest.fixture
async def client(service: Service, line: Losing) -> AsyncIterator[HudClient]:
    async with in_process(service, line=line) as client:
        yield client


@pytest.fixture
async def trainer(client: HudClient) -> AsyncIterator[TrainingClient]:
    await fork_of(client)
    async with TrainingClient("arith rl", client) as trainer:
        yield trainer


async def graded(trainer: TrainingClient, *rewards: float, seed: int = 1) -> list[Rollout]:
    """One group of rollouts with these rewards."""
    group = await trainer.sample(QUESTION, group_size=len(rewards), seed=seed)
    for rollout, reward in zip(group, rewards, strict=True):
        rollout.reward = reward
    return group


async def test_a_loop_learns(trainer: TrainingClient) -> None:
    means = []
    for number in range(1, 7):
        batch = []
        for seed in (number, number + 100):
            group = await trainer.sample(QUESTION, group_size=16, max_tokens=20, seed=seed)
            for rollout in group:
                rollout.reward = float(rollout.text == "7")
            batch += group
        step = await trainer.step(batch, learning_rate=0.4, group_size=16)
        assert step.step == number
        means.append(sum(rollout.reward for rollout in batch) / 32)
    assert sum(means[-2:]) > sum(means[:2]) + 0.9
    tree = await trainer.checkpoints()
    assert [node.mean_reward for node in tree] == pytest.approx(means)
    assert (await trainer.head()) == tree[-1]
    assert [len(group.rewards) for group in tree[-1].groups] == [16, 16]


async def test_a_group_is_one_prompt_s_answers(trainer: TrainingClient) -> None:
    asked = [{"role": "system", "content": "Add."}, {"role": "user", "content": QUESTION}]
    group = await trainer.sample(asked, group_size=10, max_tokens=2, temperature=0.5, seed=4)
    assert len(group) == 10
    assert len({rollout.group_id for rollout in group}) == 1
    for rollout in group:
        [sample] = rollout.samples
        assert sample.prompt_token_ids
        assert len(sample.output_token_ids) == len(sample.output_logprobs) <= 2
        assert rollout.reward is None
    assert {rollout.finish_reason for rollout in group} == {"stop", "length"}
    again = await trainer.sample(asked, group_size=10, max_tokens=2, temperature=0.5, seed=4)
    assert [rollout.text for rollout in again] == [rollout.text for rollout in group]
    assert again[0].group_id != group[0].group_id


async def test_sampling_stays_within_its_bounds(trainer: TrainingClient, line: Losing) -> None:
    for name, wrong in (("group_size", 0), ("max_tokens", 0), ("temperature", float("nan"))):
        with pytest.raises(HudBadInput, match=name):
            await trainer.sample(QUESTION, **{name: wrong})
    assert not line.sent["completions"]
    with pytest.raises(HudNotFound):
        await trainer.sample(QUESTION, checkpoint=str(uuid4()))


async def test_inputs_of_every_make_train_together(
    trainer: TrainingClient, http: AsyncClient
) -> None:
    model = (await trainer.entry()).id
    traces = [uuid4() for _ in range(2)]
    for trace, reward in zip(traces, (1.0, 0.0), strict=True):
        await http.post(f"/v2/trace/{trace.hex}/enter", json={})
        await chat(http, model, return_token_ids=True, headers={"Trace-Id": trace.hex})
        await http.post(f"/v2/trace/{trace.hex}/exit", json={"reward": reward})
    rollouts = await graded(trainer, 0.25, 0.5, 0.75)
    payload = Payload(samples=rollouts[0].samples, reward=0.25)
    steps = [SimpleNamespace(sample=rollouts[1].samples[0])]
    run = SimpleNamespace(reward=0.5, trace_id=None, trace=SimpleNamespace(steps=steps))
    batch = [traces[0], str(traces[1]), payload, run, rollouts[2], traces[0].hex]
    result = await trainer.forward_backward(batch, group_size=6)
    assert result.num_datums == 6
    await trainer.optim_step(learning_rate=0.1)
    [node] = await trainer.checkpoints()
    assert [group.rewards for group in node.groups] == [[1.0, 0.0, 0.25, 0.5, 0.75, 1.0]]


async def test_what_is_wrong_is_said_before_anything_is_sent(
    trainer: TrainingClient, line: Losing
) -> None:
    good = await graded(trainer, 1.0, 0.0)
    line.sent.clear()
    for call in (
        trainer.forward_backward(good, group_size=3),
        trainer.forward_backward(good, loss_fn_config={"beta": float("nan")}),
        trainer.forward_backward(good, reward_scale=float("inf")),
        trainer.forward_backward(good, num_substeps=0),
        trainer.forward(good, group_size=3),
        trainer.step([], learning_rate=0.1),
        trainer.step(good, learning_rate=0.0),
        trainer.step(good, learning_rate=float("nan")),
        trainer.optim_step(learning_rate=-1.0),
        trainer.optim_step(learning_rate=0.1, weight_decay=-0.1),
        trainer.optim_step(learning_rate=0.1, eps=float("inf")),
        trainer.backward("id", [[0.0, float("nan")]]),
        trainer.backward("id", [[0.0]], metrics={"mine": float("inf")}),
    ):
        with pytest.raises(HudBadInput) as error:
            await call
        assert error.value.hint
    assert not line.sent
    assert (await trainer.resume()).call is None


async def test_a_whole_step_takes_all_of_adam_s_numbers(
    trainer: TrainingClient, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    optim_step, taken = engine.optim_step, []

    async def noted(handle: str, adam: Adam, directory: Path) -> Saved:
        taken.append(adam)
        return await optim_step(handle, adam, directory)

    monkeypatch.setattr(engine, "optim_step", noted)
    batch = await graded(trainer, 1.0, 0.0)
    numbers = {"beta1": 0.8, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.01}
    await trainer.step(batch, learning_rate=0.1, **numbers)
    await trainer.step(await graded(trainer, 1.0, 0.0), learning_rate=0.2)
    assert taken == [Adam(learning_rate=0.1, **numbers), Adam(learning_rate=0.2)]
    with pytest.raises(HudBadInput, match="eps"):
        await trainer.step(batch, learning_rate=0.1, eps=float("nan"))


async def test_its_writes_are_in_the_command_log(
    client: HudClient, tmp_path: Path, line: Losing
) -> None:
    model = await fork_of(client)
    async with TrainingClient("arith rl", client) as trainer:
        step = await trainer.step(await graded(trainer, 1.0, 0.0), learning_rate=0.1)
        await trainer.set_head(step.checkpoint_id)
        with pytest.raises(HudConflict):
            await trainer.optim_step(learning_rate=0.1)
    kept, unreadable = CommandLog(tmp_path / "state").read()
    told = [(one.verb, one.outcome, one.model, one.by) for one in kept]
    assert told == [
        ("enter job", "done", "", "python"),
        ("forward-backward", "done", model.id, "python"),
        ("optim step", "done", model.id, "python"),
        ("set head", "done", model.id, "python"),
        ("optim step", "refused", model.id, "python"),
    ]
    assert kept[2].after == kept[3].after == step.checkpoint_id
    assert not unreadable


async def test_who_is_told_of_its_writes_already_keeps_them(
    client: HudClient, tmp_path: Path
) -> None:
    told: list[str] = []
    client = client.observed(lambda written: told.append(written.verb))
    await fork_of(client)
    async with TrainingClient("arith rl", client) as trainer:
        await trainer.forward_backward(await graded(trainer, 1.0, 0.0))
    assert told[0] == "fork"
    assert "forward-backward" in told
    assert not (tmp_path / "state").exists()


async def test_loss_config_and_scale_arrive(trainer: TrainingClient) -> None:
    batch = await graded(trainer, 1.0, 0.0)
    assert "dro" in await trainer.available_losses()
    norms = []
    for scale in (1.0, 3.0):
        await trainer.forward_backward(
            batch, loss_fn="dro", loss_fn_config={"beta": 0.1}, reward_scale=scale
        )
        await trainer.optim_step(learning_rate=1e-9)
        norms.append((await trainer.head()).metrics["grad_norm"])
    assert norms[1] == pytest.approx(3 * norms[0])
    with pytest.raises(HudRefused, match="no config key 'no such key'"):
        await trainer.forward_backward(batch, loss_fn_config={"no such key": 1.0})
    with pytest.raises(HudRefused, match="unknown loss"):
        await trainer.forward_backward(batch, loss_fn="mine")


async def test_the_head_is_set_by_any_of_its_names(trainer: TrainingClient) -> None:
    ids = [
        (await trainer.step(await graded(trainer, 1.0, 0.0), learning_rate=0.1)).checkpoint_id
        for _ in range(3)
    ]
    for name, wanted in ((ids[0], ids[0]), ("step-000002", ids[1]), (ids[0][:12], ids[0])):
        assert (await trainer.set_head(name)).id == wanted
        assert (await trainer.head()).id == wanted
    with pytest.raises(HudUsage, match="no checkpoint"):
        await trainer.set_head("step-000009")
    branch = await trainer.step(await graded(trainer, 1.0, 0.0), learning_rate=0.1)
    tree = {node.id: node for node in await trainer.checkpoints()}
    assert tree[branch.checkpoint_id].prev_model_checkpoint_id == ids[0]


async def test_the_model_is_found_by_any_of_its_names(client: HudClient) -> None:
    model = await fork_of(client)
    names = (model.id, UUID(model.id).hex, model.model_name, "ARITH RL")
    for name in names:
        async with TrainingClient(name, client) as trainer:
            assert (await trainer.entry()).id == model.id
    with pytest.raises(HudUsage, match="no model"):
        async with TrainingClient("another", client):
            pass
    assert await client.models()


async def test_the_settings_are_hud_s(
    served: Served, http: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("API", "RL", "GATEWAY"):
        monkeypatch.setenv(f"HUD_{name}_URL", served.url)
    monkeypatch.setenv("HUD_API_KEY", served.api_key)
    await fork(http, "mine")
    async with TrainingClient("mine") as trainer:
        await trainer.step(await graded(trainer, 1.0, 0.0), learning_rate=0.1)
        assert (await trainer.head()).step == 1
    assert trainer.client.wire.http.is_closed
    with pytest.raises(HudUsage):
        async with TrainingClient("no such model") as trainer:
            pass
    assert trainer.client.wire.http.is_closed


def test_no_key_no_trainer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HUD_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(str(tmp_path))
    with pytest.raises(HudNoKey):
        TrainingClient("mine")


async def test_groups_sampled_at_once(trainer: TrainingClient) -> None:
    groups = await asyncio.gather(*(graded(trainer, 1.0, 0.0, seed=seed) for seed in range(8)))
    batch = [rollout for group in groups for rollout in group]
    assert (await trainer.step(batch, learning_rate=0.1, group_size=2)).step == 1
    batch[1], batch[2] = batch[2], batch[1]
    with pytest.raises(HudBadInput, match="mixes the groups"):
        await trainer.forward_backward(batch, group_size=2)


async def test_the_loop_starts_a_service_and_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("STATE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"HUD_TUI_{kind}_DIR", str(tmp_path / kind.lower()))
    learn = training_loop.train
    monkeypatch.setattr(training_loop, "train", lambda trainer, steps: learn(trainer, 2))
    try:
        means = await training_loop.main()
    finally:
        await stop(read_paths())
    assert all(0 < mean < 1 for mean in means), "two batches may score the same"
    assert capsys.readouterr().out.count("mean reward") == len(means) == 2
