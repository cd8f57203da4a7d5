"""Sampling through the SDK: what is asked, what is told of its answer, and tool calls in that."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from hud_tui.service.engines.base import (
    Call,
    EngineRefused,
    NotFinite,
    SampleRequest,
    StateGone,
)
from hud_tui.service.engines.tinker.engine import as_asked, seed_of
from hud_tui.service.engines.tinker.link import Pointer
from hud_tui.service.engines.tinker.run import Run as TrainingRun
from hud_tui.service.engines.tinker.run import alike, sample
from hud_tui.service.engines.tinker.tokenizer import ChatTokenizer, split, with_arguments


class Bytes:
    """As much of a tokenizer of transformers' as is used: one id a letter, <e> ends a turn."""

    chat_template: str | None = None
    eos_token_id = 1

    def __len__(self) -> int:
        return 256

    def get_vocab(self) -> dict[str, int]:
        return {"<e>": 1}

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        end = "" if skip_special_tokens else "<e>"
        return "".join(end if id_ == 1 else chr(id_) for id_ in ids)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Any,
        chat_template: str,
        add_generation_prompt: bool,
        tokenize: bool,
    ) -> str:
        if messages and messages[0]["content"] == "break":
            raise KeyError("template")
        said = "".join(f"[{m['role']}]{m['content']}.\n" for m in messages)
        return said + ("[assistant]" if add_generation_prompt else "")


@pytest.fixture
def tokens() -> ChatTokenizer:
    return ChatTokenizer(Bytes())


def test_seeds_of_a_group_follow_each_other() -> None:
    seeds = [seed_of((7, 3, 5, j)) for j in range(4)]
    assert seeds == list(range(seeds[0], seeds[0] + 4))
    assert len({seed_of((7, i, t, 0)) for i in range(50) for t in range(50)}) == 2500
    assert 0 <= seed_of((2**63 - 1, 2**40)) < 2**31


def test_stops_of_one_token_go_as_ids_and_longer_ones_make_texts_of_all(
    tokens: ChatTokenizer,
) -> None:
    asked = as_asked(SampleRequest([5], 4, stop=((65,), (66,))), tokens)
    assert asked["stop"] == [1, 65, 66]
    assert asked["ends"] == (1,)
    asked = as_asked(SampleRequest([5], 4, stop=((65,), (66, 67))), tokens)
    assert asked["stop"] == ["<e>", "A", "BC"]


def test_only_what_differs_in_its_seed_goes_together(tokens: ChatTokenizer) -> None:
    def ask(prompt: int, j: int, temperature: float = 1.0) -> dict[str, Any]:
        return as_asked(SampleRequest([prompt], 4, temperature, seed=(1, prompt, j)), tokens)

    asked = [ask(5, 0), ask(5, 1), ask(6, 0), ask(6, 1), ask(6, 2, 0.5), ask(6, 9)]
    assert [len(part) for part in alike(asked)] == [2, 2, 1, 1]


def test_a_conversation_goes_through_the_template(tokens: ChatTokenizer) -> None:
    said = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "3+4"}]
    assert tokens.decode(tokens.render(said)) == "[system]be brief.\n[user]3+4.\n[assistant]"
    more = [*said, {"role": "assistant", "content": "7"}, {"role": "user", "content": "and?"}]
    assert tokens.decode(tokens.follow(more, 3)) == "\n[user]and?.\n[assistant]"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"role": "boss", "content": "x"}, "messages\\[0\\].role"),
        ({"role": "user", "content": 3}, "messages\\[0\\].content"),
        ({"role": "user", "content": "break"}, "chat template does not take this"),
    ],
)
def test_what_the_template_does_not_take_is_said(
    tokens: ChatTokenizer, message: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        tokens.render([message])


tinker = pytest.importorskip("tinker")
ASK = {"prompt": [5], "max_tokens": 4, "temperature": 1.0, "top_p": 0.3, "top_logprobs": 0,
       "seed": 1, "stop": [], "ends": (1,)}  # fmt: skip


class Server:
    """As much of the worker's server as is used: the SDK's module, and calls."""

    async def tinker(self) -> Any:
        return tinker

    async def call(self, submit: Callable[[], Any]) -> Any:
        return submit()


class Run:
    """Samples with one function, as the SDK's client has it."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self.client = SimpleNamespace(sample=answer)

    def sampler(self) -> "Run":
        return self

    async def __aenter__(self) -> Any:
        return self.client

    async def __aexit__(self, *error: object) -> None:
        return None


def sequence(**more: Any) -> Any:
    return SimpleNamespace(
        tokens=[7, 1, 9], logprobs=[-0.1, -0.2, -0.3], stop_reason="stop", **more
    )


class Cluster(Server):
    """One whose sessions, samplers and saves are counted; it opens no state."""

    keeps_samplers, loads_in_one, url = False, True, "http://trainer:8000"

    def __init__(self) -> None:
        self.made: list[str] = []

    async def call(self, submit: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return submit()

    async def sampling_service(self) -> Any:
        def create(**source: Any) -> Any:
            self.made.append("sampler")
            return object()

        return SimpleNamespace(create_sampling_client=create)

    async def tinker(self) -> Any:
        return SimpleNamespace(ServiceClient=self._service)

    async def end(self, service: Any) -> None:
        self.made.append("end")

    def occupied(self, change: int) -> None: ...

    def _service(self) -> Any:
        def save(name: str) -> Any:
            self.made.append("save")
            return SimpleNamespace(path=f"tinker://{name}")

        def create(**asked: Any) -> Any:
            return SimpleNamespace(save_weights_for_sampler=save, model_id="m", load_state=None)

        def restore(state: str) -> Any:
            raise StateGone("it expired")

        self.made.append("session")
        return SimpleNamespace(
            create_lora_training_client=create,
            create_training_client_from_state_with_optimizer=restore,
        )

    most_rank = None


def run_of(cluster: Cluster, state: str | None = None) -> TrainingRun:
    source = Pointer(cluster.url, "m", "m", 8, state)
    return TrainingRun(cluster, source)  # type: ignore[arg-type]


async def test_of_several_who_sample_at_once_one_saves_the_weights() -> None:
    cluster = Cluster()
    run = run_of(cluster)
    await run.trainer()

    async def sampled() -> None:
        async with run.sampler():
            await asyncio.sleep(0)

    await asyncio.gather(*(sampled() for _ in range(3)))
    assert cluster.made == ["session", "save", "sampler"]


async def test_the_session_of_a_run_that_cannot_be_opened_is_ended() -> None:
    cluster = Cluster()
    with pytest.raises(StateGone):
        await run_of(cluster, "tinker://r/weights/s").trainer()
    assert cluster.made == ["session", "end"]


async def test_top_p_is_the_sdk_s_own() -> None:
    asked: list[Any] = []

    def answer(prompt: Any, count: int, params: Any) -> Any:
        asked.append(params)
        return SimpleNamespace(sequences=[sequence()] * count)

    [row] = await sample(Server(), Run(answer), [ASK])  # type: ignore[arg-type]
    assert asked[0].top_p == 0.3
    assert row == {"tokens": [7, 1], "logprobs": [-0.1, -0.2], "finish_reason": "stop", "top": []}


async def test_logprobs_that_are_not_finite_are_no_answer() -> None:
    def answer(prompt: Any, count: int, params: Any) -> Any:
        broken = sequence()
        broken.logprobs[0] = float("nan")
        return SimpleNamespace(sequences=[broken] * count)

    with pytest.raises(NotFinite, match="set the head to an earlier checkpoint"):
        await sample(Server(), Run(answer), [ASK])  # type: ignore[arg-type]


async def test_the_likeliest_tokens_are_told_where_the_server_tells_them() -> None:
    told: list[Any] = [[(7, -0.1), (8, -2.0)], [(1, -0.2), (3, -3.0)], [(9, -0.3), (2, -4.0)]]

    def answer(prompt: Any, count: int, params: Any, topk_sample_logprobs: int = 0) -> Any:
        assert topk_sample_logprobs == 2
        return SimpleNamespace(sequences=[sequence(topk_logprobs=told)])

    [row] = await sample(Server(), Run(answer), [{**ASK, "top_logprobs": 2}])  # type: ignore[arg-type]
    assert row["top"] == told[:2]
    for gap in (None, [None, *told[1:]]):
        told_before, told = told, gap  # type: ignore[assignment]
        with pytest.raises(EngineRefused, match="top_logprobs: "):
            await sample(Server(), Run(answer), [{**ASK, "top_logprobs": 2}])  # type: ignore[arg-type]
        told = told_before


async def test_an_sdk_without_them_says_so() -> None:
    def answer(prompt: Any, count: int, params: Any) -> Any:
        raise AssertionError("not asked")

    with pytest.raises(EngineRefused, match="top_logprobs: "):
        await sample(Server(), Run(answer), [{**ASK, "top_logprobs": 1}])  # type: ignore[arg-type]


HERMES = "… return calls within <tool_call></tool_call> …"
LLAMA = '… respond with {"name": function, "parameters": {…}} …'
PLUS = '{"name": "plus", "arguments": {"x": 2}}'


@pytest.mark.parametrize(
    ("template", "text", "beside", "calls"),
    [
        (HERMES, f"<tool_call>\n{PLUS}\n</tool_call>", "", [Call("plus", '{"x": 2}')]),
        (
            HERMES,
            f'Both:<tool_call>{PLUS}</tool_call><tool_call>{{"name": "now"}}</tool_call>',
            "Both:",
            [Call("plus", '{"x": 2}'), Call("now", "{}")],
        ),
        (HERMES, "<tool_call>{oops</tool_call> 5", "<tool_call>{oops</tool_call> 5", []),
        (HERMES, f"<tool_call>{PLUS}", f"<tool_call>{PLUS}", []),
        (HERMES, PLUS, PLUS, []),
        (HERMES, '<tool_call>{"name": 3}</tool_call>', '<tool_call>{"name": 3}</tool_call>', []),
        (HERMES, "<tool_call>" + "[" * 9999, "<tool_call>" + "[" * 9999, []),
        (LLAMA, '{"name": "plus", "parameters": {"x": 2}}', "", [Call("plus", '{"x": 2}')]),
        (LLAMA, "The answer is 5.", "The answer is 5.", []),
        ("plain", PLUS, PLUS, []),
    ],
)
def test_calls_are_told_from_text(template: str, text: str, beside: str, calls: list[Call]) -> None:
    assert split(text, template) == (beside, calls)


def test_templates_get_arguments_as_objects_and_a_tokenizer_reads_their_calls() -> None:
    function = {"name": "plus", "arguments": '{"x": 2}'}
    call = {"id": "1", "type": "function", "function": function}
    assert with_arguments(call)["function"] == {"name": "plus", "arguments": {"x": 2}}
    lone = with_arguments({"function": {"arguments": '{"x": ["\\ud800", "\\ud83d\\ude00"]}'}})
    assert lone["function"]["arguments"] == {"x": ["⟨D800⟩", "\U0001f600"]}, "no tokenizer takes it"
    for odd in ("x", {}, {"function": 3}, {"function": {"arguments": "{oops"}}):
        assert with_arguments(odd) == odd

    tokenizer = Bytes()
    tokenizer.chat_template = HERMES
    tokens = ChatTokenizer(tokenizer)
    said = f"So: <tool_call>{PLUS}</tool_call>"
    beside, [call] = tokens.calls([*tokens.encode(said), 1])
    assert (beside, call.name, json.loads(call.arguments)) == ("So:", "plus", {"x": 2})


def test_a_demonstration_is_what_the_template_adds_to_its_prompt(tokens: ChatTokenizer) -> None:
    messages = [{"role": "user", "content": "2 + 2"}, {"role": "assistant", "content": "4"}]
    prompt, output = tokens.demonstrate(messages)
    assert prompt == tokens.render(messages[:1])
    assert tokens.decode(output) == "4."

    class Rewriting(Bytes):
        def apply_chat_template(self, messages: Any, *given: Any, **more: Any) -> str:
            return f"{len(messages)}" + super().apply_chat_template(messages, *given, **more)

    with pytest.raises(ValueError, match="does not continue its own prompt"):
        ChatTokenizer(Rewriting()).demonstrate(messages)
