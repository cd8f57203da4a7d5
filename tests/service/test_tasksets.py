"""Tasksets and the registry of environments."""

from uuid import UUID, uuid4

from httpx import AsyncClient

from hud_tui.service.environments import ENVIRONMENTS, TASKSETS
from hud_tui.wire import Page
from hud_tui.wire_tasks import (
    EnvironmentConfig,
    RegistryItem,
    ScenarioRecord,
    Taskset,
    TasksetExport,
    UploadResult,
)
from tests.conftest import tasks_of
from tests.service.calls import Json, detail


def upload_row(name: str, **more: object) -> Json:
    row = {"name": name, "env": {"name": "arith"}, "task_id": "add", "args": {"a": 1, "b": 2}}
    return row | more


def as_exported(row: Json) -> Json:
    """A v6 row with the names that the platform's export has for its id and slug."""
    other = {"id": "scenario", "slug": "name"}
    return {other.get(key, key): value for key, value in row.items()}


async def upload(http: AsyncClient, name: str, tasks: list[Json]) -> UploadResult:
    answer = await http.post("/v2/tasks/upload", json={"taskset_name": name, "tasks": tasks})
    assert answer.status_code == 201, answer.text
    return UploadResult.model_validate(answer.json())


async def test_the_built_in_ones_are_there(http: AsyncClient) -> None:
    page = Page[Taskset].model_validate((await http.get("/v2/tasksets")).json())
    assert [taskset.name for taskset in page.items] == list(TASKSETS)
    for taskset in page.items:
        assert taskset.task_count == len(TASKSETS[taskset.name].tasks)
        assert taskset.description == TASKSETS[taskset.name].description
        exported = await tasks_of(http, taskset.name.upper())
        assert exported == [as_exported(row) for row in TASKSETS[taskset.name].tasks]
    window = (await http.get("/v2/tasksets?limit=1&offset=1")).json()
    assert (len(window["items"]), window["total"]) == (1, len(TASKSETS))


async def test_upload_creates_then_updates(http: AsyncClient) -> None:
    first = await upload(http, "My Set", [upload_row("a"), upload_row("b")])
    assert (first.tasks_created, first.tasks_updated) == (2, 0)
    second = await upload(
        http, "my  set", [upload_row("b", args={"a": 9, "b": 9}), upload_row("c")]
    )
    assert second.taskset_id == first.taskset_id
    assert (second.tasks_created, second.tasks_updated) == (1, 1)
    url = f"/v2/tasksets/{UUID(first.taskset_id).hex}"
    assert Taskset.model_validate((await http.get(url)).json()).task_count == 3
    export = TasksetExport.model_validate((await http.get(f"{url}/export")).json())
    assert export.name == "My Set"
    assert [row["name"] for row in export.tasks] == ["a", "b", "c"]
    assert export.tasks[1]["args"] == {"a": 9, "b": 9}


async def test_export_gives_back_what_came(http: AsyncClient) -> None:
    rows = [
        upload_row("full", columns={"split": "heldout"}, validation=[{"name": "x"}], verifier=None),
        {"name": "bare", "env": {"name": "e"}, "task_id": "t"},
        {"name": "null", "env": {"name": "e"}, "task_id": "t", "args": None},
        {
            "env": "arith",
            "id": "add",
            "args": {"a": 1, "b": 1},
            "slug": "v6",
            "columns": {"k": [1]},
        },
    ]
    rows[3]["args"]["a"] = 2**80  # type: ignore[index]
    result = await upload(http, "kept", rows)
    tasks = (await http.get(f"/v2/tasksets/{result.taskset_id}/export")).json()["tasks"]
    assert tasks[0] == {
        "name": "full",
        "env": "arith",
        "scenario": "add",
        "args": {"a": 1, "b": 2},
        "columns": {"split": "heldout"},
        "validation": [{"name": "x"}],
        "verifier": None,
    }
    assert tasks[1] == {"name": "bare", "env": "e", "scenario": "t"}
    assert tasks[2] == {"name": "null", "env": "e", "scenario": "t", "args": None}
    assert tasks[3] == as_exported(rows[3])


async def test_rows_of_every_form_are_exported_by_their_slugs(http: AsyncClient) -> None:
    """The SDK reads `name`, `env` and `scenario`, and nothing else, as a task's identity."""
    tools = {"name": "shop", "include": ["buy"]}
    rows = [
        {"env": "arith", "id": "add"},
        {"env": {"name": "shop"}, "scenario": "shop:buy", "args": None, "id": "v-1"},
        {"env": tools, "scenario": "buy", "slug": "some-tools"},
        {"prompt": "Go.", "mcp_config": {"m": {"url": "http://m"}}, "id": "v4"},
    ]
    result = await upload(http, "forms", rows)
    tasks = (await http.get(f"/v2/tasksets/{result.taskset_id}/export")).json()["tasks"]
    assert tasks[0] == {"env": "arith", "scenario": "add", "name": "add"}
    assert [tasks[1][key] for key in ("env", "scenario", "id")] == ["shop", "shop:buy", "v-1"]
    assert tasks[2] == {"env": tools, "scenario": "buy", "name": "some-tools"}
    assert tasks[3] == rows[3]
    again = await upload(http, "forms", tasks)
    assert (again.tasks_created, again.tasks_updated) == (0, 4)


async def test_there_is_one_project(http: AsyncClient) -> None:
    """What the CLI asks where a project is named."""
    [only] = (await http.get("/v2/projects?search=local&limit=500")).json()["items"]
    assert (await http.get(f"/v2/projects/{UUID(only['id']).hex}")).json() == only
    assert (only["capabilities"], only["is_default"]) == ({"create": True}, True)
    other = (await http.get("/v2/projects?search=other")).json()
    assert (other["items"], other["total"]) == ([], 0)
    assert (await http.get(f"/v2/projects/{uuid4()}")).status_code == 404
    refused = await http.post("/v2/projects", json={"name": "mine"})
    assert (refused.status_code, "one project, local" in detail(refused)) == (409, True)


async def test_uploads_that_are_refused(http: AsyncClient) -> None:
    for body, status, says in (
        ({"taskset_name": "x", "tasks": []}, 422, "at least 1 item"),
        ({"taskset_name": "x", "tasks": [{"env": "e"}]}, 400, "row 1: field id"),
        ({"taskset_name": "x", "tasks": [upload_row("a"), upload_row("a")]}, 400, "row 2: slug a"),
        ({"taskset_name": " ", "tasks": [upload_row("a")]}, 422, "blank"),
        ({"tasks": [upload_row("a")]}, 422, "taskset_name or taskset_id"),
        ({"taskset_id": str(uuid4()), "tasks": [upload_row("a")]}, 404, "no such taskset"),
    ):
        answer = await http.post("/v2/tasks/upload", json=body)
        assert (answer.status_code, says in detail(answer)) == (status, True), answer.text
        assert (await http.get("/v2/tasksets")).json()["total"] == len(TASKSETS)


async def test_the_registry_lists_environments(http: AsyncClient) -> None:
    page = Page[RegistryItem].model_validate((await http.get("/v2/registry?limit=500")).json())
    assert [item.name for item in page.items] == list(ENVIRONMENTS)
    found = (await http.get("/v2/registry?search=ARITH")).json()
    assert [item["name"] for item in found["items"]] == ["arith"]
    assert (await http.get("/v2/registry?search=chess")).json()["items"] == []
    for item in page.items:
        assert (await http.get(f"/v2/registry/{item.id}")).json()["name"] == item.name
        rows = (await http.get(f"/v2/registry/{item.id}/scenarios")).json()
        scenarios = [ScenarioRecord.model_validate(row) for row in rows]
        known = ENVIRONMENTS[item.name].scenarios
        assert [scenario.name for scenario in scenarios] == list(known)
        assert [one.args_schema for one in scenarios] == [s.args_schema for s in known.values()]
        build = (await http.get(f"/v2/builds/{rows[0]['build_id']}/status")).json()
        assert build["status"] == "SUCCEEDED"
        assert [task["id"] for task in build["manifest"]["tasks"]] == list(known)


async def test_preflight_can_ask_for_an_environment(http: AsyncClient) -> None:
    answer = await http.get("/environments/text/mcp-config")
    config = EnvironmentConfig.model_validate(answer.json())
    assert config.scenarios == list(ENVIRONMENTS["text"].scenarios)
    for path in (
        "/environments/chess/mcp-config",
        "/v2/registry/x",
        f"/v2/registry/{uuid4()}",
        f"/v2/builds/{uuid4()}/status",
        "/v2/tasksets/by-name/nothing",
        "/v2/tasksets/not-an-id",
        f"/v2/tasksets/{uuid4()}",
        f"/v2/tasksets/{uuid4()}/export",
    ):
        assert (await http.get(path)).status_code == 404
