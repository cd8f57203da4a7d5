"""Rollouts that the reader's tests read: conversations with tools, errors and an environment."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from hud_tui.errors import HudError, HudNotFound
from hud_tui.rl.groups import PLAIN, Advantages
from hud_tui.rl.rollouts import RolloutGroup, rollout_groups
from hud_tui.wire import Job, Page
from hud_tui.wire_rollouts import Trace
from hud_tui.wire_training import CompletionReply, TraceEvent, TraceEvents

QUESTION = (
    "How many units of SKU-7 are in stock in the two warehouses together, and is that enough for "
    "an order of twelve? Answer with one number, then yes or no."
)
START = "2026-01-01T10:00:{:06.3f}Z"
SETUP = {
    "kind": "system",
    "phase": "setup",
    "name": "count_stock",
    "arguments": {"sku": "SKU-7", "warehouses": ["north", "south"]},
    "started_at": START.format(0),
    "ended_at": START.format(0.8),
}
GRADING = {
    "kind": "system",
    "phase": "evaluate",
    "name": "count_stock",
    "result_text": '{"reward": 0.6, "done": true}',
    "started_at": START.format(9),
    "ended_at": START.format(9.05),
}


class Shelf:
    """A client of a service that has these rollouts, and no others."""

    def __init__(self, rollouts: Mapping[str, tuple[Trace, Sequence[dict[str, Any]]]]) -> None:
        self.known = {id_: (trace, told(events)) for id_, (trace, events) in rollouts.items()}
        self.rollouts = self.training = self
        self.kind = "training"
        self.unread: set[str] = set()
        """Ids of rollouts that cannot be read."""
        self.asked: list[Any] = []
        self.is_expired = False
        """Whether the weights that sampled them were deleted."""

    async def trace(self, trace_id: str) -> Trace:
        if trace_id not in self.known:
            raise HudError("no such trace")
        return self.known[trace_id][0]

    async def trace_events(self, trace_id: str, since: int = -1) -> TraceEvents:
        if trace_id in self.unread:
            raise HudError("damaged")
        trace, events = await self.trace(trace_id), self.known[trace_id][1]
        newer = [event for event in events if event.seq > since]
        return TraceEvents(events=newer, latest_seq=len(events) - 1, status=trace.status)

    async def job(self, job_id: str) -> Job:
        metadata = {"kind": self.kind, "model_id": "m", "step": 12}
        return Job(id=job_id, name="mixed on clerk-rl", status="succeeded", metadata=metadata)

    async def known_job(self, job_id: str) -> None:
        return None

    async def job_traces(self, job_id: str, step: int | None = None) -> list[Trace]:
        traces = [trace for trace, _ in self.known.values() if trace.job_id == job_id]
        return [trace for trace in traces if step in (None, trace.step)]

    async def trace_page(self, job_id: str, limit: int, offset: int) -> Page[Trace]:
        traces = await self.job_traces(job_id)
        page = traces[offset : offset + limit]
        return Page(items=page, total=len(traces), limit=limit, offset=offset)

    async def trace_pages(self, job_id: str, offset: int = 0) -> AsyncIterator[list[Trace]]:
        yield (await self.trace_page(job_id, 1000, offset)).items

    async def complete(self, body: Any) -> CompletionReply:
        self.asked.append(body)
        if self.is_expired:
            raise HudNotFound(410, "base has expired: its weights were deleted")
        top = {"top_logprobs": [{"7": -0.2, "19": -1.9, "a": -6.0}]}
        return CompletionReply.model_validate({"choices": [{"logprobs": top}] * len(body.prompt)})

    def groups(self, rule: Advantages | None = PLAIN) -> list[RolloutGroup]:
        return rollout_groups([trace for trace, _ in self.known.values()], rule)


def told(events: Sequence[dict[str, Any]]) -> list[TraceEvent]:
    return [
        TraceEvent.model_validate({"id": str(seq), "seq": seq, **event})
        for seq, event in enumerate(events)
    ]


def said(text: str, *calls: dict[str, Any], at: float = 1.0, **more: Any) -> dict[str, Any]:
    """A turn of the policy whose tokens are its words."""
    pieces = [word if not n else f" {word}" for n, word in enumerate(text.split())]
    logprobs = [-0.01 if len(piece) > 3 else -0.4 * (n % 9) for n, piece in enumerate(pieces)]
    sample = {
        "prompt_token_ids": [1, 2, 3],
        "output_token_ids": list(range(len(pieces))),
        "output_logprobs": logprobs,
    }
    times = {"started_at": START.format(at), "ended_at": START.format(at + 1.25)}
    sampled = {"tokens": pieces, "sample": sample} if pieces else {}
    return {
        "kind": "agent_message", "text": text, "tool_calls": list(calls) or None, **sampled,
        **times, **more,
    }  # fmt: skip


def tool(name: str, arguments: Any, result: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": "tool_call", "tool_name": name, "arguments": arguments, "result_text": result,
        **more,
    }  # fmt: skip


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def stock(answer: str, south: int = 7, error: bool = False) -> list[dict[str, Any]]:
    """A rollout that looks both warehouses up, then answers."""
    looked = {"warehouse": "south", "sku": "SKU-7", "stock": south, "reserved": 2}
    shelf = {**looked, "shelf": "A-12", "checked": "2026-01-01"}
    failed = {"error": "warehouse south is closed"} if error else {}
    return [
        SETUP,
        {"kind": "system", "text": "You are a clerk. Use the tools."},
        {"kind": "user_message", "text": QUESTION},
        said(
            "I will look both warehouses up, the one in the north first.",
            call("stock", warehouse="north", sku="SKU-7"),
            call("stock", warehouse="south", sku="SKU-7"),
            at=1.0,
            reasoning="The question names two warehouses, so I need two calls.",
        ),
        tool("stock", {"warehouse": "north", "sku": "SKU-7"}, '{"stock": 12}'),
        tool(
            "stock",
            {"warehouse": "south", "sku": "SKU-7"},
            "warehouse south is closed" if error else str(shelf).replace("'", '"'),
            **failed,
        ),
        said(answer, at=4.0),
        GRADING,
    ]


def stock_twice() -> list[dict[str, Any]]:
    """As the first rollout of `stock_group`, but for a look at the orders in between."""
    *before, answer, grading = stock("That makes 19 in all, and it is not enough for the order.")
    orders = [said("And the orders?", call("orders", sku="SKU-7"), at=3.0)]
    return [*before, *orders, tool("orders", {"sku": "SKU-7"}, "none"), answer, grading]


GRADE = {
    "subscores": [
        {"name": "number", "value": 1.0, "weight": 0.6},
        {"name": "verdict", "value": 0.0, "weight": 0.4},
    ],
    "info": {"expected": "19 yes", "found": "19"},
}


def two_steps() -> Shelf:
    """Eight rollouts of one task, of the steps 11 and 12 of a run."""
    shelf = stock_group()
    before = {
        f"{id_}11": (trace.model_copy(update={"id": f"{id_}11", "step": 11}), events)
        for id_, (trace, events) in shelf.known.items()
    }
    shelf.known = before | shelf.known
    return shelf


def stock_group(evaluated: bool = False) -> Shelf:
    """Four rollouts of one task."""
    answers = (
        ("a", 0.6, stock("That makes 19 in all, and it is not enough for the order.")),
        ("b", 1.0, stock("That makes 19 in all, and so it is enough for the order.")),
        ("c", 0.0, stock("I do not know.", error=True)),
        ("d", 0.0, stock("That makes 5 in all.", south=-7)),
    )
    more: dict[str, Any] = {"evaluates": "cp"} if evaluated else {"checkpoint_id": "cp"}
    return Shelf(
        {
            id_: (
                Trace(
                    id=id_, job_id="job", task_slug="stock-7", step=12, rollout=n, reward=reward,
                    model="clerk-rl", sampled_from="base", evaluation_result=GRADE,
                    stop_reason="done", num_tokens=24, completion="…", **more,
                ),
                events,
            )
            for n, (id_, reward, events) in enumerate(answers)
        }
    )  # fmt: skip
