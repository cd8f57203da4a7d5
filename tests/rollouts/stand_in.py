"""A worker that speaks the protocol of `hud_tui.rollouts.worker` without the SDK: it samples sums
through the gateway, grades them, and reports them, as the SDK would.

A task's args may have a `fault` for its rollouts: error, exit, or wait (until the source file has
a file called ``go`` beside it).
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
    task, trace_id, api = request["task"], uuid4().hex, os.environ["HUD_API_URL"]
    args = task["args"]
    if args.get("fault") == "exit":
        os._exit(7)
    while args.get("fault") == "wait" and not GO[-1].exists():
        sleep(0.02)
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
    url = os.environ["HUD_GATEWAY_URL"] + "/chat/completions"
    answer = post(url, asked, **{"Trace-Id": trace_id})
    choice = answer["choices"][0]
    text, began = choice["message"]["content"].strip(), time()
    right = text == str(args["a"] + args["b"])
    failed = args.get("fault") == "error"
    reward = 0.0 if failed else 1.0 if right else 0.1 * text.isdigit()
    ended = {"status": "error" if failed else "completed", "reward": reward}
    post(f"{api}/v2/trace/{trace_id}/exit", ended)
    failure = {"phase": "grade", "type": "KeyError", "message": "'shelf'"}
    failure |= {"file": request["task"]["env"] + ".py", "line": 12, "function": "add"}
    sample = {
        "prompt_token_ids": choice["prompt_token_ids"],
        "output_token_ids": choice["token_ids"],
        "output_logprobs": [one["logprob"] for one in choice["logprobs"]["content"]],
    }
    return {
        "trace_id": trace_id,
        "reward": reward,
        "error": "KeyError: 'shelf'" if failed else None,
        "failure": failure if failed else None,
        "stop_reason": "done",
        "turns": 1,
        "tool_calls": 0,
        "tokens": len(choice["token_ids"]),
        "prompt_tokens": len(choice["prompt_token_ids"]),
        "content": text,
        "graded": None if failed else [began, time()],
        "subscores": None,
        "info": None,
        "seconds": 0.0,
        "samples": [sample],
    }


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


VERBS = {"hello": hello, "load": load, "start": start, "roll_out": roll_out}


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
