"""The catalog, forks, the tree and the head."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

from httpx import AsyncClient

from hud_tui.service.engines.base import Base, Tokenizer
from hud_tui.service.service import Service
from hud_tui.wire import Identity, Model, Page
from tests.conftest import blank, calling, fork, tasks_of
from tests.service.calls import Json, catalog, detail, fork_from, ran, set_head, step, tree
from tests.toy_engine import TOY, ToyEngine


class Anew(ToyEngine):
    """Its base was made anew since."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str | Path] = []

    def bases(self) -> Sequence[Base]:
        return [replace(TOY, key="toy/four-2", context=64), replace(TOY, offered=False)]

    async def tokenizer(self, base: str) -> Tokenizer:
        return self.tokens

    async def open(self, source: str | Path) -> str:
        self.opened.append(source)
        return await super().open(source)


async def test_a_fork_keeps_the_base_that_it_was_made_of(tmp_path: Path) -> None:
    """Its weights belong to that base's tokens."""
    data, said = blank(tmp_path / "data"), {"messages": [{"role": "user", "content": "hi"}]}
    async with Service(data, ToyEngine()) as service, calling(service) as http:
        await fork(http, "earlier")
    engine = Anew()
    async with Service(data, engine) as service, calling(service) as http:
        await fork(http, "later")
        rows = await catalog(http)
        assert [row["model_name"] for row in rows] == ["toy/four", "earlier", "later"]
        assert [row["base_model"] for row in rows] == ["toy/four"] * 3
        assert [row["context_length"] for row in rows] == [64, 128, 64]
        for row in rows:
            body = {"model": row["id"], "max_tokens": 2, **said}
            assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
        assert engine.opened == ["toy/four-2", "toy/four"], "one that is opened serves two"
        trained = [await step(http, row) for row in rows[1:]]
        assert all(trained)


async def test_a_base_says_what_a_run_starts_from(http: AsyncClient) -> None:
    page = Page[Model].model_validate((await http.get("/v2/models")).json())
    [base] = page.items
    assert (base.model_name, base.is_trainable) == ("toy/four", True)
    assert base.sdk_agent_type == "openai_compatible"
    assert base.provider is not None
    assert base.provider.name == "toy"
    assert base.training_defaults is not None
    assert base.training_defaults.steps == 10


async def test_the_catalog_pages_to_its_total(http: AsyncClient) -> None:
    for number in range(3):
        await fork(http, f"fork {number}")
    first = (await http.get("/v2/models?limit=2")).json()
    second = (await http.get("/v2/models?limit=2&offset=2")).json()
    past = (await http.get("/v2/models?limit=2&offset=9")).json()
    names = [row["name"] for row in first["items"] + second["items"]]
    assert names == ["toy/four", "fork 0", "fork 1", "fork 2"]
    assert (first["total"], first["limit"], first["offset"]) == (4, 2, 0)
    assert (past["items"], past["total"]) == ([], 4)


async def test_a_fork_is_trainable_and_private(http: AsyncClient) -> None:
    me = Identity.model_validate((await http.get("/v2/auth/me")).json())
    assert UUID(me.user_id) != UUID(me.team_id)
    record = Model.model_validate(await fork(http, "My First Model!"))
    assert (record.model_name, record.name) == ("my-first-model", "My First Model!")
    assert (record.base_model, record.forked_from) == ("toy/four", "toy/four")
    assert (record.context_length, record.checkpoint_count) == (128, 0)
    assert (await tree(http, record.id)) == []


async def test_a_taken_name_is_a_conflict_and_a_taken_slug_gets_a_suffix(http: AsyncClient) -> None:
    await fork(http, "arith rl")
    for name in ("arith rl", "ARITH  RL", "arith-rl", "Toy/Four"):
        answer = await fork_from(http, "toy/four", name)
        assert (answer.status_code, "exists already" in detail(answer)) == (409, True)
    assert (await fork(http, "arith  +  rl"))["model_name"].startswith("arith-rl-")
    assert (await fork_from(http, str(uuid4()), "x")).status_code == 404


async def test_every_name_finds_the_model(http: AsyncClient) -> None:
    model = await fork(http, "Some Model")
    base, _ = await catalog(http)
    for ref in (model["id"], UUID(model["id"]).hex, "some-model", "SOME MODEL"):
        assert (await http.get(f"/v2/models/{ref}")).json()["id"] == model["id"]
    for ref in ("toy/four", "toy%2Ffour", "four", "FOUR"):
        assert (await http.get(f"/v2/models/{ref}")).json()["id"] == base["id"]
    assert (await http.get("/v2/models/resolve?model=four")).json()["id"] == base["id"]
    assert (await http.get("/v2/models/our")).status_code == 404
    assert (await http.get("/v2/models/resolve")).status_code == 404


async def test_a_fork_starts_at_the_checkpoint_that_is_named(http: AsyncClient) -> None:
    source = await fork(http, "source")
    await ran(http, source["id"], steps=3)
    nodes = (await http.get(f"/v2/models/{source['id']}/checkpoints")).json()
    for number, ref in enumerate((nodes[1]["id"], "step-000002")):
        child = (await fork_from(http, source["id"], f"child {number}", checkpoint_id=ref)).json()
        assert child["forked_from"] == "source@step-000002"
    none = await fork_from(http, source["id"], "none", checkpoint_id="step-9")
    assert none.status_code == 404


async def test_a_head_must_be_the_models_own(http: AsyncClient) -> None:
    mine, other = await fork(http, "mine"), await fork(http, "other")
    theirs = await step(http, other)
    for wrong in (theirs["checkpoint_id"], str(uuid4()), "step-000001", "?"):
        answer = await set_head(http, mine["id"], wrong)
        assert (answer.status_code, "no such checkpoint" in detail(answer)) == (404, True)
    assert (await set_head(http, str(uuid4()), theirs["checkpoint_id"])).status_code == 404
    answer = await set_head(http, "toy/four", str(uuid4()))
    assert (answer.status_code, "fork it first" in detail(answer)) == (409, True)


async def test_checkpoint_traces_name_task_and_rollout(http: AsyncClient, model: Json) -> None:
    await ran(http, model["id"], steps=1, group_size=4, tasks_per_step=1)
    [row] = await tree(http, model["id"])
    refs = row["id"], UUID(row["id"]).hex, row["name"]
    urls = [f"/v2/models/{model['id']}/checkpoints/{ref}/traces" for ref in refs]
    found, *again = [(await http.get(url)).json() for url in urls]
    assert again == [found, found]
    assert [row["rollout"] for row in found] == [0, 1, 2, 3]
    assert {row["task_slug"] for row in found} < {row["name"] for row in await tasks_of(http)}
    assert len({row["group_id"] for row in found}) == 1
    url = f"/v2/models/{model['id']}/checkpoints/{uuid4()}/traces"
    assert (await http.get(url)).status_code == 404


async def test_a_tree_that_has_not_changed_is_not_sent_again(
    http: AsyncClient, model: Json
) -> None:
    path = f"/v2/models/{model['id']}/checkpoints"
    tags = []
    for changes in (None, step(http, model), step(http, model)):
        if changes is not None:
            await changes
        fresh = await http.get(path, headers={"If-None-Match": ",".join(tags)})
        assert (fresh.status_code, len(fresh.json())) == (200, len(tags))
        tags.append(fresh.headers["etag"])
        for known in (tags[-1], f'"other", W/{tags[-1]}'):
            same = await http.get(path, headers={"If-None-Match": known})
            assert (same.status_code, same.content) == (304, b"")
            assert same.headers["etag"] == tags[-1]
    rows = (await http.get(path)).json()
    await set_head(http, model["id"], UUID(rows[0]["id"]).hex)
    moved = await http.get(path, headers={"If-None-Match": tags[-1]})
    assert [row["is_active"] for row in moved.json()] == [True, False]
    assert [row["step"] for row in moved.json()] == [1, 2]


async def test_a_tree_that_another_run_of_the_service_sent_is_sent_again(tmp_path: Path) -> None:
    """Its counter starts anew: an old tag must not pass for a tree that has changed since."""
    tags = []
    for _ in range(2):
        async with Service(tmp_path, ToyEngine()) as service, calling(service) as http:
            [*_, model] = await catalog(http)
            path = f"/v2/models/{model['id']}/checkpoints"
            answer = await http.get(path, headers={"If-None-Match": ",".join(tags)})
            assert answer.status_code == 200
            tags.append(answer.headers["etag"])
            again = await http.get(path, headers={"If-None-Match": tags[-1]})
            assert again.status_code == 304
    assert len(set(tags)) == 2
