"""What a training loop does when the answer to a write is lost."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from hud_tui import patience
from hud_tui.client import TrainingClient
from hud_tui.client.trainer import Resumed
from hud_tui.errors import HudError, HudRefused, HudUnclear, HudUnreachable
from hud_tui.service.service import Service
from tests.conftest import Served, until
from tests.service.calls import QUESTION, Held
from tests.service.clients import fork_of, in_process, over_socket
from tests.service.losing import Losing, Where
from tests.toy_engine import ToyEngine


@pytest.fixture(params=[True, False], ids=["keys", "no keys"])
def keys(request: pytest.FixtureRequest) -> bool:
    """Whether the service keeps the keys of calls."""
    return bool(request.param)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost steps are looked for at once."""
    monkeypatch.setattr(patience, "OUTCOME_PAUSES_S", (0.0, 0.0))


@pytest.fixture
def line(service: Service, keys: bool) -> Losing:
    line = Losing(service)
    line.keyless = not keys
    return line


@pytest.fixture
async def trainer(service: Service, line: Losing) -> AsyncIterator[TrainingClient]:
    async with in_process(service, line=line) as client:
        model = await fork_of(client)
        async with TrainingClient(model.id, client) as trainer:
            yield trainer


async def passed(trainer: TrainingClient) -> None:
    """Gradients wait."""
    group = await trainer.sample(QUESTION, group_size=2, seed=1)
    group[0].reward, group[1].reward = 1.0, 0.0
    await trainer.forward_backward(group)


async def stepped(trainer: TrainingClient) -> str:
    """A whole step; its checkpoint's id."""
    await passed(trainer)
    return (await trainer.optim_step(learning_rate=0.1)).checkpoint_id


async def lost_step(
    trainer: TrainingClient, line: Losing, where: Where, instead: httpx.Response | None = None
) -> HudUnreachable:
    """The error of a step of which this is lost."""
    line.lose("optim-step", where, instead)
    with pytest.raises(HudUnreachable) as error:
        await trainer.optim_step(learning_rate=0.1)
    return error.value


GATEWAY = httpx.Response(504, json={"detail": "upstream timed out"})
GARBLED = httpx.Response(200, json={"step": "?"})


@pytest.mark.parametrize(("instead", "steps"), [(None, 0), (GATEWAY, 2), (GARBLED, 0)])
async def test_a_step_whose_answer_is_lost_is_found(
    trainer: TrainingClient, line: Losing, instead: httpx.Response | None, steps: int
) -> None:
    before = [await stepped(trainer) for _ in range(steps)]
    await passed(trainer)
    error = await lost_step(trainer, line, "answer", instead)
    assert (type(error), error.outcome, error.exit_code) == (HudUnclear, "unknown", 7)
    assert "trainer.resume()" in error.hint
    found = await trainer.resume()
    head = await trainer.head()
    assert found == Resumed(True, head, "optim_step")
    assert head.id not in before
    assert line.sent["optim-step"] == steps + 1
    after = await stepped(trainer)
    assert (await trainer.head()).prev_model_checkpoint_id == head.id
    assert await trainer.resume() == Resumed(None, await trainer.head(), None)
    assert after


@pytest.mark.parametrize("steps", [0, 1])
async def test_a_step_that_never_arrived_is_not_found(
    trainer: TrainingClient, line: Losing, steps: int, keys: bool
) -> None:
    """The head has a branch already, which is not to be taken for the lost step."""
    base = [await stepped(trainer) for _ in range(steps)]
    if base:
        await stepped(trainer)
        await trainer.set_head(base[0])
    await passed(trainer)
    await lost_step(trainer, line, "request")
    head = await trainer.head()
    assert await trainer.resume() == Resumed(False if keys else None, head, "optim_step")
    assert (head.id if head else None) == next(iter(base), None)
    step = await trainer.optim_step(learning_rate=0.1)
    assert (await trainer.head()).id == step.checkpoint_id


async def test_who_goes_on_without_asking_still_knows_the_next_lost_step(
    trainer: TrainingClient, line: Losing, keys: bool
) -> None:
    await passed(trainer)
    await lost_step(trainer, line, "answer")
    await passed(trainer)
    await lost_step(trainer, line, "request")
    landed = False if keys else None
    assert await trainer.resume() == Resumed(landed, await trainer.head(), "optim_step")


@pytest.mark.parametrize("keys", [False], indirect=True)
async def test_a_step_that_is_late_is_found_by_asking_again(
    trainer: TrainingClient, line: Losing
) -> None:
    await stepped(trainer)
    await passed(trainer)
    await lost_step(trainer, line, "late")
    assert (await trainer.resume()).landed is None
    assert (await line.deliver()).is_success
    assert await trainer.resume() == Resumed(True, await trainer.head(), "optim_step")
    assert (await trainer.resume()).call is None


async def test_a_step_that_was_given_up_on_may_land_all_the_same(
    served: Served, engine: ToyEngine
) -> None:
    held = Held(engine, "optim_step")
    async with over_socket(served) as client:
        trainer = TrainingClient((await fork_of(client)).id, client)
        await passed(trainer)
        stepping = asyncio.create_task(trainer.optim_step(learning_rate=0.1))
        await held.begun.wait()
        stepping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stepping
        held.go_on.set()

        async def landed() -> bool:
            return bool(await trainer.checkpoints())

        await until(landed)
        assert await trainer.resume() == Resumed(True, await trainer.head(), "optim_step")


@pytest.mark.parametrize("where", ["request", "answer"])
async def test_a_pass_leaves_no_trace_in_the_tree_but_a_key_tells_and_it_can_be_dropped(
    trainer: TrainingClient, line: Losing, where: Where, keys: bool
) -> None:
    first = await stepped(trainer)
    line.lose("forward-backward", where)
    with pytest.raises(HudUnreachable) as error:
        await passed(trainer)
    assert "set_head" in error.value.hint
    found = await trainer.resume()
    landed = (where == "answer") if keys else None
    assert (found.landed, found.call) == (landed, "forward_backward")
    assert line.sent["forward-backward"] == 2
    await trainer.set_head(first)
    with pytest.raises(HudRefused, match="nothing is accumulated"):
        await trainer.optim_step(learning_rate=0.1)
    await stepped(trainer)
    assert [node.num_datums for node in await trainer.checkpoints()] == [2, 2]


@pytest.mark.parametrize("keys", [True], indirect=True)
@pytest.mark.parametrize("call", ["forward-backward", "optim-step"])
async def test_a_call_that_arrives_after_it_was_settled_is_refused(
    service: Service, trainer: TrainingClient, line: Losing, call: str
) -> None:
    """The line holds it back until the loop has been told that it never landed."""
    await stepped(trainer)
    await passed(trainer)
    line.lose(call, "late")
    with pytest.raises(HudUnreachable):
        await (passed(trainer) if call != "optim-step" else trainer.optim_step(learning_rate=0.1))
    assert (await trainer.resume()).landed is False
    late = await line.deliver()
    assert (late.status_code, "abandoned" in late.text) == (409, True)
    await trainer.optim_step(learning_rate=0.1)
    assert [node.num_datums for node in await trainer.checkpoints()] == [2, 2]


@pytest.mark.parametrize("keys", [True], indirect=True)
@pytest.mark.parametrize("instead", [None, GATEWAY, GARBLED])
async def test_a_service_that_keeps_keys_says_that_the_head_was_set(
    trainer: TrainingClient, line: Losing, instead: httpx.Response | None
) -> None:
    first, _ = await stepped(trainer), await stepped(trainer)
    line.lose("head", "answer", instead)
    assert (await trainer.set_head(first)).id == first
    assert line.sent["head"] == 1
    assert (await trainer.resume()).call is None


@pytest.mark.parametrize("keys", [True], indirect=True)
async def test_a_head_that_arrives_after_it_was_given_up_is_refused(
    trainer: TrainingClient, line: Losing
) -> None:
    first, second = await stepped(trainer), await stepped(trainer)
    line.lose("head", "late")
    with pytest.raises(HudUnreachable, match="not done") as error:
        await trainer.set_head(first)
    assert error.value.outcome == "not_done"
    assert (await line.deliver()).status_code == 409
    head = await trainer.head()
    assert head.id == second


@pytest.mark.parametrize("keys", [False], indirect=True)
async def test_a_head_that_is_set_late_is_found_by_asking_again(
    trainer: TrainingClient, line: Losing
) -> None:
    first, second = await stepped(trainer), await stepped(trainer)
    line.lose("head", "late")
    with pytest.raises(HudUnreachable):
        await trainer.set_head(first)
    found = await trainer.resume()
    assert (found.landed, found.checkpoint and found.checkpoint.id) == (None, second)
    assert (await line.deliver()).is_success
    found = await trainer.resume()
    assert (found.landed, found.call) == (True, "set_head")
    assert (await trainer.resume()).call is None


@pytest.mark.parametrize("keys", [False], indirect=True)
async def test_a_head_whose_answer_is_lost_is_found(trainer: TrainingClient, line: Losing) -> None:
    first, _ = await stepped(trainer), await stepped(trainer)
    line.lose("head", "answer")
    with pytest.raises(HudUnreachable) as error:
        await trainer.set_head(first)
    assert "returns the head" in error.value.hint
    found = await trainer.resume()
    assert (found.landed, found.call) == (True, "set_head")
    assert found.checkpoint.id == first
    assert line.sent["head"] == 1


@pytest.mark.parametrize("instead", [httpx.Response(409, json={}), httpx.ConnectError("refused")])
async def test_a_clear_refusal_is_none_of_that(
    trainer: TrainingClient, line: Losing, instead: httpx.Response | Exception
) -> None:
    await passed(trainer)
    line.lose("optim-step", "request", instead)
    with pytest.raises(HudError) as error:
        await trainer.optim_step(learning_rate=0.1)
    assert "resume" not in error.value.hint
    assert (await trainer.resume()).call is None


async def test_every_write_has_a_key_of_its_own_and_no_read_has_one(
    trainer: TrainingClient, line: Losing
) -> None:
    await trainer.set_head(await stepped(trainer))
    keys = [key for key in line.keys if key is not None]
    assert len(set(keys)) == len(keys) == sum(line.sent.values())
    line.keys.clear()
    await trainer.checkpoints()
    assert line.keys == [None]
