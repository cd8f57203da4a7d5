"""Requests to sample: seeds that follow each other, stops as ids or as texts, and what is alike."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hud_tui.service.engines.base import SampleRequest
from hud_tui.service.engines.tinker.engine import as_asked, seed_of
from hud_tui.service.engines.tinker.run import alike
from hud_tui.service.engines.tinker.tokenizer import ChatTokenizer


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
