"""A worker that speaks the protocol of `hud_tui.rollouts.worker` without the SDK: it samples sums
through the gateway, grades them, and reports them, as the SDK would.

A task's args may have a `fault` for its rollouts: error, exit, leave (before the model is asked),
dull (no reward), wait (until the source file has a file called ``go`` beside it), or vanish (leave,
and wait). With `tool` the policy has a tool that adds, and several turns.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from time import sleep, time
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

from hud_tui.rollouts.worker import PROTOCOL

WRITING = Lock()
GO: list[Path] = []
"""The file that those wait for who wait; the last one counts."""
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
PLUS = {"name": "plus", "description": "Add.", "parameters": {**SCHEMA, "required": ["a", "b"]}}
TOOLS = [{"type": "function", "function": PLUS}]
LOST: list[dict[str, Any]] = []
"""Failures of rollouts that are left while the model thinks."""
RUNNING: set[str] = set()
"""Slugs of the tasks whose rollouts wait."""


def tell(document: dict[str, Any]) -> None:
    with WRITING:
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()


def post(url: str, body: dict[str, Any], **headers: str) -> Any:
    sent = {"Authorization": f"Bearer {os.environ['HUD_API_KEY']}", **headers}
    sent["Content-Type"] = "application/json"
    with urlopen(Request(url, json.dumps(body).encode(), sent), timeout=30) as answer:
        return json.loads(answer.read() or b"{}")


def load(request: dict[str, Any]) -> dict[str, Any]:
    """What the source file says, which is JSON here: the tasks' args."""
    GO.append(Path(request["source"]).with_name("go"))
    with open(request["source"]) as opened:
        rows = json.loads(opened.read().removeprefix("#"))
    tasks = [{"env": "sums", "id": "add", **row} for row in rows]
    templates = [{"id": "add", "description": "", "args": SCHEMA}]
    return {"environments": [{"name": "sums", "templates": templates}], "tasks": tasks}


def rollout(request: dict[str, Any], group_id: str) -> dict[str, Any]:
    task, api = request["task"], os.environ["HUD_API_URL"]
    trace_id = request.get("trace_id") or uuid4().hex
    args = task["args"]
    if args.get("fault") == "exit":
        os._exit(7)
    if args.get("fault") in ("leave", "vanish"):
        LOST.append({"phase": "tool call", "type": "ProcessEnded", "message": "it has left"})
    while args.get("fault") in ("wait", "vanish") and not GO[-1].exists():
        RUNNING.add(task["slug"])
        sleep(0.02)
    RUNNING.discard(task["slug"])
    entered = {"job_id": request["job_id"], "group_id": group_id, "task_slug": task["slug"]}
    entered |= request.get("entered", {})
    post(f"{api}/v2/trace/{trace_id}/enter", {**entered, "model": request["model"]})
    asked = {
        "model": request["model"],
        "messages": [{"role": "user", "content": f"{args['a']} + {args['b']} = ?"}],
        "logprobs": True,
        "return_token_ids": True,
        "max_tokens": request["max_tokens"],
        "checkpoint": request.get("checkpoint"),
    }
    url, calls = os.environ["HUD_GATEWAY_URL"] + "/chat/completions", 0
    if args.get("tool"):
        asked["tools"] = TOOLS
    for turn in range(1, request["max_steps"] + 1):
        if turn > 1 and args["tool"] == "long":
            asked["messages"] = [*asked["messages"], {"role": "user", "content": "x" * 200}]
        choice = post(url, asked, **{"Trace-Id": trace_id})["choices"][0]
        made = choice["message"].get("tool_calls") or []
        if not made or turn == request["max_steps"]:
            break
        calls += len(made)
        asked["messages"] += [choice["message"], *map(result, made)]
    text, began = (choice["message"]["content"] or "").strip(), time()
    right = text == str(args["a"] + args["b"])
    failed = args.get("fault") == "error"
    reward = 1.0 if right else 0.1 * text.isdigit()
    if failed or args.get("fault") == "dull":
        reward = 0.0
    ended = {"status": "error" if failed else "completed", "reward": reward}
    post(f"{api}/v2/trace/{trace_id}/exit", ended)
    failure = {"phase": "grade", "type": "KeyError", "message": "'shelf'"}
    failure |= {"file": request["task"]["env"] + ".py", "line": 12, "function": "add"}
    logprobs = (choice["logprobs"] or {}).get("content", ())
    sample = {
        "prompt_token_ids": choice.get("prompt_token_ids", []),
        "output_token_ids": choice.get("token_ids", []),
        "output_logprobs": [one["logprob"] for one in logprobs],
    }
    return {
        "trace_id": trace_id,
        "reward": reward,
        "error": "KeyError: 'shelf'" if failed else None,
        "failure": failure if failed else None,
        "stop_reason": "done",
        "turns": turn,
        "tool_calls": calls,
        "calls": {"made": calls, "known": calls, "fit": calls, "unknown": []},
        "tokens": len(sample["output_token_ids"]),
        "prompt_tokens": len(sample["prompt_token_ids"]),
        "content": text,
        "graded": None if failed else [began, time()],
        "subscores": [{"name": "answer", "value": reward, "weight": 1.0}]
        if args.get("tool")
        else None,
        "info": None,
        "seconds": 0.0,
        "samples": [sample],
    }


def result(call: dict[str, Any]) -> dict[str, Any]:
    """What a call of the tool returns, as a message."""
    given = json.loads(call["function"]["arguments"])
    return {"role": "tool", "tool_call_id": call["id"], "content": str(given["a"] + given["b"])}


def where(request: dict[str, Any]) -> dict[str, Any]:
    stuck = {"phase": "setup", "type": "Timeout", "message": "setup: still running", "line": 3}
    return {"failures": [{**stuck, "file": "sums.py"} for _ in RUNNING]}


def lost(request: dict[str, Any]) -> dict[str, Any]:
    return {"failures": LOST}


def roll_out(request: dict[str, Any]) -> dict[str, Any]:
    group_id, runs = request.get("group_id") or uuid4().hex, []
    for _ in range(request["group"]):
        runs.append(rollout(request, group_id))
        shown = {key: value for key, value in runs[-1].items() if key != "samples"}
        event = {"event": "rollout", "id": request["id"], "group_id": group_id}
        tell({**event, "task_slug": request["task"]["slug"], "run": shown})
    return {"group_id": group_id, "runs": runs}


def hello(request: dict[str, Any]) -> dict[str, Any]:
    return {"protocol": PROTOCOL, "python": "3", "hud": "stand-in", "pid": os.getpid()}


def start(request: dict[str, Any]) -> dict[str, Any]:
    return {"capabilities": ["tools (mcp)"], "seconds": 0.1}


VERBS = {
    "hello": hello,
    "load": load,
    "start": start,
    "roll_out": roll_out,
    "where": where,
    "lost": lost,
}


def answer(request: dict[str, Any]) -> None:
    try:
        tell({"id": request["id"], "result": VERBS[request["verb"]](request)})
    except Exception as error:
        failure = {"type": type(error).__name__, "phase": "worker", "message": str(error)}
        tell({"id": request["id"], "error": failure})


def main() -> None:
    with ThreadPoolExecutor(8) as pool:
        for line in sys.stdin:
            request = json.loads(line)
            if request["verb"] in VERBS:
                pool.submit(answer, request)
        os._exit(0)


if __name__ == "__main__":
    main()
