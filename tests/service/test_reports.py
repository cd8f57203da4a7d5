"""Jobs and traces that a client reports, and reading them back."""

import json
import re
from uuid import UUID, uuid4

import pytest
from httpx import AsyncClient

from hud_tui.service.app import AREAS
from hud_tui.wire import Job, Page
from hud_tui.wire_rollouts import Trace
from hud_tui.wire_training import TraceEvents
from tests.conftest import fork
from tests.service.calls import cancel, chat, conversation, detail, leave, report


async def test_a_reported_job_is_listed(http: AsyncClient) -> None:
    job, traces = uuid4().hex, [uuid4().hex for _ in range(3)]
    for _ in range(2):
        body = {"name": "mine", "group": 2}
        assert (await http.post(f"/v2/trace/job/{job}/enter", json=body)).status_code == 200
    [row] = Page[Job].model_validate((await http.get("/v2/jobs")).json()).items
    assert (row.id, row.name) == (str(UUID(job)), "mine")
    assert (row.status, row.group_size) == ("pending", 2)
    for number, trace in enumerate(traces):
        entry = {"job_id": job, "task_slug": f"t{number}", "group_id": "g"}
        assert (await http.post(f"/v2/trace/{trace}/enter", json=entry)).status_code == 200
    assert (await http.get(f"/v2/jobs/{job}")).json()["status"] == "running"
    for number, trace in enumerate(traces):
        await leave(http, trace, number / 2, stop_reason="done")
    assert (await http.get(f"/v2/jobs/{job}")).json()["status"] == "completed"
    page = Page[Trace].model_validate((await http.get(f"/v2/jobs/{job}/traces?limit=2")).json())
    assert (page.total, [item.id for item in page.items]) == (3, [str(UUID(t)) for t in traces[:2]])
    assert [item.reward for item in page.items] == [0.0, 0.5]
    assert {item.group_id for item in page.items} == {"g"}
    summary = (await http.get(f"/v2/jobs/{job}/summary")).json()
    assert (summary["total_traces"], summary["total_tasks"], summary["avg_reward"]) == (3, 3, 0.5)


async def test_exit_is_idempotent_and_may_come_alone(http: AsyncClient) -> None:
    trace = uuid4().hex
    ended = {"status": "error", "error": "box died", "evaluation_result": {"score": 0.0}}
    for _ in range(2):
        await leave(http, trace, 0.0, **ended)
    row = (await http.get(f"/v2/trace/{UUID(trace)}")).json()
    assert {key: row[key] for key in ("reward", *ended)} == {"reward": 0.0, **ended}


async def test_spans_tell_the_conversation(http: AsyncClient) -> None:
    trace = uuid4().hex
    spans = [
        span(1, "step.user", {"messages": [{"role": "user", "content": [{"text": "2+2?"}]}]}),
        span(2, "step.agent", {"content": "four", "tool_calls": [{"name": "say"}]}),
        span(3, "step.tool", {"call": {"name": "say", "arguments": {"x": 4}}, "result": "said"}),
        span(4, "step.task", {"task_call": {"phase": "evaluate", "name": "sum"}}),
        {"span_id": "odd", "name": "other", "attributes": None},
    ]
    for batch in (spans[2:], spans):
        await report(http, trace, *batch)
    await leave(http, trace, 1.0)
    answer = await http.get(f"/v2/trace/{UUID(trace)}/events")
    found = TraceEvents.model_validate(answer.json())
    kinds = [event.kind for event in found.events]
    assert kinds == ["system", "user_message", "agent_message", "tool_call", "system"]
    assert [event.text for event in found.events[1:3]] == ["2+2?", "four"]
    assert (found.events[3].tool_name, found.events[3].result_text) == ("say", "said")
    assert (found.latest_seq, found.status, found.reward) == (4, "completed", 1.0)
    later = (await http.get(f"/v2/trace/{trace}/events?since_seq=3")).json()["events"]
    assert [event["seq"] for event in later] == [4]
    assert (await http.get(f"/v2/trace/{trace}/events?since_seq=x")).status_code == 422


async def test_what_the_environment_does_is_told_apart_and_a_call_s_error_is_marked(
    http: AsyncClient,
) -> None:
    trace, made = uuid4().hex, {"phase": "setup", "name": "sum", "arguments": {"a": 1}}
    setup = {"task_call": {**made, "result": {"prompt": "1 + 1?"}}}
    failed = {"content": [{"type": "text", "text": "no such tool"}], "isError": True}
    await report(
        http,
        trace,
        span(1, "step.task", setup),
        span(2, "step.system", {"messages": [{"role": "system", "content": "be brief"}]}),
        span(3, "step.tool", {"call": {"id": "c1", "name": "say"}, "result": failed}),
        span(4, "step.tool", {"call": {"name": "say"}, "result": {"isError": True}}),
        span(5, "files", {}),
    )
    await leave(http, trace, 1.0)
    first, system, call, silent, files = TraceEvents.model_validate(
        {"events": await conversation(http, trace)}
    ).events
    assert (first.phase, first.name, first.arguments) == ("setup", "sum", {"a": 1})
    assert first.result_text == '{"prompt": "1 + 1?"}'
    assert (system.kind, system.text, system.phase) == ("system", "be brief", None)
    assert (call.call_id, call.error, call.result_text) == ("c1", "no such tool", "no such tool")
    assert silent.error
    assert files.phase == "files"


async def test_text_within_text_that_no_answer_can_have_is_made_visible(http: AsyncClient) -> None:
    trace = uuid4().hex
    payload = json.dumps({"content": "a lone \ud800 surrogate", "\udfff": [1]})
    await report(http, trace, {**span(1, "step.agent", {}), "attributes": {"hud.payload": payload}})
    await leave(http, trace, 1.0)
    [event] = await conversation(http, trace)
    assert event["text"] == "a lone ⟨D800⟩ surrogate"


@pytest.mark.parametrize("lone", [b'"\\ud800"', b'"\xed\xa0\x80"'], ids=["escaped", "as bytes"])
async def test_a_body_with_a_lone_surrogate_is_refused_wherever_it_is_sent(
    http: AsyncClient, lone: bytes
) -> None:
    for route in (route for area in AREAS for route in area.ROUTES):
        path = re.sub(r"{[^}]*}", uuid4().hex, route.path)
        for method in route.methods & {"POST", "PUT", "PATCH", "DELETE"}:
            for body in (lone, b'{"model": %b}' % lone, b"{%b: 1}" % lone):
                answer = await http.request(method, path, content=body)
                assert answer.status_code < 500, (method, path, answer.text)
    answer = await http.post("/chat/completions", content=b'{"model": %b}' % lone)
    assert (answer.status_code, "not JSON" in answer.json()["detail"]) == (400, True)


async def test_an_image_in_a_span_is_told_as_a_line(http: AsyncClient) -> None:
    trace, image = uuid4().hex, {"type": "image", "data": "a" * 40_000, "mimeType": "image/png"}
    asked = {"messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, image]}]}
    looked = {"call": {"name": "look"}, "result": {"content": [image]}}
    await report(http, trace, span(1, "step.user", asked), span(2, "step.tool", looked))
    await leave(http, trace, 1.0)
    first, second = await conversation(http, trace)
    assert first["text"] == "see\n[image/png, 30 kB]"
    assert second["result_text"] == "[image/png, 30 kB]"


async def test_a_sampled_turn_that_the_client_tells_of_keeps_the_text_of_its_tokens(
    http: AsyncClient,
) -> None:
    model, trace = await fork(http), uuid4().hex
    asked = {"seed": 1, "return_token_ids": True}
    [choice] = (await chat(http, model["id"], headers={"Trace-Id": trace}, **asked))["choices"]
    found = (await http.get(f"/v2/trace/{trace}/events")).json()
    assert found["status"] == "running"
    assert [event["kind"] for event in found["events"]] == ["user_message", "agent_message"]
    assert "".join(found["events"][1]["tokens"]).startswith(found["events"][1]["text"])
    ids = choice["token_ids"]
    for number, output in enumerate((ids, [*ids, 7], "odd")):
        agent = {"content": "fifty-two", "sample": {"output_token_ids": output}}
        await report(http, trace, span(number, "step.agent", agent))
    events = await conversation(http, trace)
    assert [event["text"] for event in events] == ["fifty-two"] * 3
    assert "".join(events[0]["tokens"]).startswith(choice["message"]["content"])
    assert all("tokens" not in event for event in events[1:])
    row = (await http.get(f"/v2/trace/{trace}")).json()
    assert (row["completion"], row["num_tokens"]) == (choice["message"]["content"], len(ids))


async def test_a_rollout_sampled_elsewhere_is_listed_with_its_answer(http: AsyncClient) -> None:
    job, trace = uuid4().hex, uuid4().hex
    await http.post(f"/v2/trace/job/{job}/enter", json={"name": "mine"})
    await http.post(f"/v2/trace/{trace}/enter", json={"job_id": job, "task_slug": "add"})
    sample = {"output_token_ids": [53, 50, 1], "output_logprobs": [-1.0] * 3}
    spans = [
        span(1, "step.agent", {"content": [{"type": "text", "text": "52"}], "sample": sample}),
        span(2, "step.tool", {"call": {"name": "say"}, "result": "said"}),
        span(3, "step.agent", {"content": "", "sample": sample}),
    ]
    for one in spans:
        await report(http, trace, one)
    [row] = (await http.get(f"/v2/jobs/{job}/traces")).json()["items"]
    assert (row["completion"], row["num_tokens"]) == ("52", 6)


async def test_what_a_client_reports_is_cancelled_and_renamed(http: AsyncClient) -> None:
    job, one, two = (uuid4().hex for _ in range(3))
    await http.post(f"/v2/trace/job/{job}/enter", json={"name": "mine"})
    for trace in (one, two):
        await http.post(f"/v2/trace/{trace}/enter", json={"job_id": job})
    body = {"job_id": job, "trace_id": one}
    assert (await http.post("/v2/rollouts/cancel", json=body)).json() == {"status": "cancelled"}
    everything = (await http.post("/v2/rollouts/cancel_user_jobs", json={})).json()
    assert everything["job_details"] == [{"job_id": str(UUID(job)), "cancelled": 1}]
    assert (await cancel(http, job)).json()["cancelled"] == 0
    assert (await http.patch(f"/v2/jobs/{job}", json={"name": "new"})).json()["name"] == "new"
    assert (await http.get(f"/v2/jobs/{job}")).json()["name"] == "new"


async def test_jobs_page_newest_first_and_by_taskset(http: AsyncClient) -> None:
    taskset = (await http.get("/v2/tasksets/by-name/arith")).json()["taskset_id"]
    for number in range(3):
        body = {"name": f"job {number}", "taskset_id": taskset if number == 1 else None}
        await http.post(f"/v2/trace/job/{uuid4().hex}/enter", json=body)
    page = (await http.get("/v2/jobs?limit=2")).json()
    assert ([row["name"] for row in page["items"]], page["total"]) == (["job 2", "job 1"], 3)
    mine = (await http.get(f"/v2/jobs?taskset_id={taskset}")).json()
    assert [(row["name"], row["taskset_name"]) for row in mine["items"]] == [("job 1", "arith")]
    assert mine["total"] == 1


async def test_unknown_ones_are_404(http: AsyncClient) -> None:
    unknown = str(uuid4())
    for path in (
        f"jobs/{unknown}",
        f"jobs/{unknown}/traces",
        f"jobs/{unknown}/summary",
        f"trace/{unknown}",
        f"trace/{unknown}/events",
        "jobs/nonsense",
        "trace/nonsense",
    ):
        answer = await http.get(f"/v2/{path}")
        assert (answer.status_code, "no such" in detail(answer)) == (404, True)
    answer = await http.post("/v2/rollouts/cancel_job", json={"job_id": unknown})
    assert answer.status_code == 404


def span(number: int, name: str, payload: dict[str, object]) -> dict[str, object]:
    return {
        "name": name,
        "span_id": f"{number:016x}",
        "start_time": f"2026-01-01T00:00:0{number}Z",
        "attributes": {"hud.payload": payload},
    }
