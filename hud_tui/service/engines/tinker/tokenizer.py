"""The base's own tokenizer and chat template, by `transformers`.

Loaded when first needed, in a thread, from a folder or the hub's cache; from the hub itself
only where neither has it. A conversation is rendered by the template; what follows given
tokens is what the template adds to the messages that those tokens stand for.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from hud_tui.service.engines.base import NO_OPTIONS, Call, EngineError
from hud_tui.service.engines.tinker.tool_calls import split, with_arguments

QUIET = {
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
OURS = frozenset(
    {
        *("conversation", "messages", "tools", "documents", "chat_template", "tokenize"),
        *("add_generation_prompt", "continue_final_message", "padding", "truncation"),
        *("max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask"),
        "tokenizer_kwargs",
    }
)
"""Arguments of transformers' `apply_chat_template` that are no options of a template."""
PLAIN = (
    "{% for m in messages %}{{ m.role | capitalize }}: {{ m.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""For bases that were never taught to chat."""


class ChatTokenizer:
    """Implements `engines.base.Tokenizer`."""

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer`: one of transformers'."""
        self.vocabulary = len(tokenizer)
        self.ends = _ends(tokenizer)
        """Ids that end a turn."""
        self._tokenizer = tokenizer
        self._template = tokenizer.chat_template or PLAIN

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> list[int]:
        """Prompt ids of a conversation. Raises ValueError: the template does not take it."""
        return self._ids(self._text(messages, tools, options, True))

    def follow(
        self,
        messages: Sequence[Mapping[str, Any]],
        covered: int,
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> list[int]:
        """Ids after the first `covered` messages, from the end of the last of them on."""
        if covered == 0:
            return self.render(messages, (), options)
        whole = self._text(messages, (), options, True)
        before = self._text(messages[:covered], (), options, False).rstrip()
        if not whole.startswith(before):  # a template that rewrites what came before
            return self.render(messages[covered:], (), options)
        return self._ids(whole[len(before) :])

    def encode(self, text: str) -> list[int]:
        return self._ids(text)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def calls(self, ids: Sequence[int]) -> tuple[str, list[Call]]:
        return split(self.decode(ids), str(self._template))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [str(self._tokenizer.decode([id_], skip_special_tokens=False)) for id_ in ids]

    def whole(self, ids: Sequence[int]) -> str:
        """Text of ids, control tokens too."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def _ids(self, text: str) -> list[int]:
        return [int(id_) for id_ in self._tokenizer.encode(text, add_special_tokens=False)]

    def _text(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
        ask: bool,
    ) -> str:
        if taken := OURS & options.keys():
            raise ValueError(f"chat_template_kwargs cannot set {', '.join(sorted(taken))}")
        for place, message in enumerate(messages):
            _check(place, message)
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    [_plain(message) for message in messages],
                    tools=list(tools) or None,
                    chat_template=self._template,
                    add_generation_prompt=ask,
                    tokenize=False,
                    **options,
                )
            )
        except Exception as error:  # templates raise what they like
            raise ValueError(f"the model's chat template does not take this: {error}") from error


def load(model: str) -> ChatTokenizer:
    """A model's tokenizer; takes seconds. Raises EngineError: it cannot be read here."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        from transformers import AutoTokenizer

        try:
            found = AutoTokenizer.from_pretrained(model, local_files_only=True)
        except (OSError, ValueError):
            found = AutoTokenizer.from_pretrained(model)
    except Exception as error:
        why = " ".join(str(error).split())[:300]
        raise EngineError(
            f"no tokenizer for {model} here: download it (hf download {model}), or give the"
            f" server's own folder ({why})"
        ) from error
    return ChatTokenizer(found)


def _ends(tokenizer: Any) -> tuple[int, ...]:
    """The ids that end a turn or a text, by what is declared and by their usual names."""
    usual = ("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>")
    known = tokenizer.get_vocab()
    found = [tokenizer.eos_token_id, *(known.get(name) for name in usual)]
    return tuple(dict.fromkeys(int(id_) for id_ in found if isinstance(id_, int)))


def _check(place: int, message: Mapping[str, Any]) -> None:
    roles = ("system", "developer", "user", "assistant", "tool")
    if message.get("role") not in roles:
        raise ValueError(f"messages[{place}].role must be one of {', '.join(roles)}")
    if not isinstance(message.get("content"), str | None):
        raise ValueError(f"messages[{place}].content must be text: this model reads nothing else")


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """As templates expect it: text where there is none, ``system`` for developers, and calls
    with their arguments read."""
    role = "system" if message["role"] == "developer" else message["role"]
    plain = {**message, "role": role, "content": message.get("content") or ""}
    calls = plain.get("tool_calls")
    return {**plain, "tool_calls": [*map(with_arguments, calls)]} if calls else plain
