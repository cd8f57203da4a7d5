"""Bodies: a newer service may say more than this client knows."""

from hud_tui.wire_training import TraceEvents


def test_a_trace_is_read_though_its_samples_say_more_than_is_known() -> None:
    sample = {"output_token_ids": [1], "output_logprobs": [-0.5], "finish_reason": "stop"}
    event = {"id": "e", "seq": 0, "kind": "agent_message", "sample": sample}
    read = TraceEvents.model_validate({"events": [event]}).events[0].sample
    assert read is not None
    assert (read.output_token_ids, read.output_logprobs) == ([1], [-0.5])
