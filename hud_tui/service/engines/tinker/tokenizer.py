"""The base's own tokenizer and chat template, by `transformers`.

Loaded when first needed, in a thread: from a folder, from the hub's cache, or else from the hub.
A conversation is rendered by the template; the continuation of given tokens is what the template
adds to the messages that those tokens stand for.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hud_tui.rl.text import with_text
from hud_tui.service.engines.base import NO_OPTIONS, Call, EngineError
from hud_tui.tinker_options import model_files

# Tool calls in the text of an answer, in the two formats that chat templates ask for.
#
# Hermes' format, which Qwen and most others use, is ``<tool_call>{"name": …, "arguments":
# …}</tool_call>``, possibly several, with text around them. Llama's is an answer that is one such
# object, with ``parameters``. Anything else is text.


HERMES = "<tool_call>"
BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def split(text: str, template: str) -> tuple[str, list[Call]]:
    """The text without the calls, and the calls, in the format of the model's chat template."""
    if HERMES in template:
        calls = [call for block in BLOCK.findall(text) if (call := _read(block))]
        beside = BLOCK.sub(lambda block: "" if _read(block[1]) else block[0], text)
        return beside.strip(), calls
    whole = _read(text) if "parameters" in template else None
    return ("", [whole]) if whole else (text, [])


def with_arguments(call: Any) -> Any:
    """A call of a conversation in OpenAI's format with its arguments as an object: templates
    serialize them."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        read = with_text(json.loads(function["arguments"] or "{}"))
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": read}}


def _read(text: str) -> Call | None:
    """The call in a JSON object; None if it is none."""
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or not isinstance(name := call.get("name"), str) or not name:
        return None
    arguments = call.get("arguments", call.get("parameters"))
    if isinstance(arguments, str):
        return Call(name, arguments)
    return Call(name, json.dumps(arguments or {}))


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
"""Arguments of transformers' `apply_chat_template` that are not options of a template."""
PLAIN = (
    "{% for m in messages %}{{ m.role | capitalize }}: {{ m.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""Template for bases without one."""


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
        """Prompt ids of a conversation. Raises ValueError: the template does not accept it."""
        return self._ids(self._text(messages, tools, options, True))

    def follow(
        self,
        messages: Sequence[Mapping[str, Any]],
        covered: int,
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> list[int]:
        """Ids after the first `covered` messages, from the end of the last of them."""
        if covered == 0:
            return self.render(messages, (), options)
        whole = self._text(messages, (), options, True)
        before = self._text(messages[:covered], (), options, False).rstrip()
        if not whole.startswith(before):  # the template rewrote the earlier messages
            return self.render(messages[covered:], (), options)
        return self._ids(whole[len(before) :])

    def demonstrate(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> tuple[list[int], list[int]]:
        """Prompt and answer of the last message. Raises ValueError: the template does not accept
        the conversation, or does not continue its prompt."""
        prompt = self._text(messages[:-1], tools, NO_OPTIONS, True)
        whole = self._text(messages, tools, NO_OPTIONS, False).rstrip()
        if not whole.startswith(prompt):
            raise ValueError("the model's chat template does not continue its own prompt")
        return self._ids(prompt), self._ids(whole[len(prompt) :])

    def encode(self, text: str) -> list[int]:
        return self._ids(text)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def calls(self, ids: Sequence[int]) -> tuple[str, list[Call]]:
        return split(self.decode(ids), str(self._template))

    def plain(self, ids: Sequence[int]) -> int:
        """None: a call is text, and the text around calls is stripped."""
        return 0

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [str(self._tokenizer.decode([id_], skip_special_tokens=False)) for id_ in ids]

    def whole(self, ids: Sequence[int]) -> str:
        """Text of ids, including control tokens."""
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
        for index, message in enumerate(messages):
            _check(index, message)
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
        except Exception as error:  # templates raise exceptions of any type
            raise ValueError(f"the model's chat template does not take this: {error}") from error


def files_of(model: str) -> str:
    """Where a model's tokenizer and config are: the folder in HUD_TUI_TINKER_FILES, else the
    server's name of the model."""
    folder = os.environ.get("HUD_TUI_TINKER_FILES")
    copied = model_files(Path(folder), model) if folder else None
    return str(copied) if copied is not None and copied.is_dir() else model


def load(model: str) -> ChatTokenizer:
    """A model's tokenizer; takes seconds. Raises EngineError: it cannot be loaded."""
    model = files_of(model)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
        except (OSError, ValueError):
            tokenizer = AutoTokenizer.from_pretrained(model)
    except Exception as error:
        why = " ".join(str(error).split())[:300]
        raise EngineError(
            f"no tokenizer for {model} here: download it (hf download {model}), or give the"
            f" server's own folder ({why})"
        ) from error
    return ChatTokenizer(tokenizer)


def _ends(tokenizer: Any) -> tuple[int, ...]:
    """The ids that end a turn or a text: the declared ones, and those with the usual names."""
    usual = ("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>")
    vocabulary = tokenizer.get_vocab()
    ids = [tokenizer.eos_token_id, *(vocabulary.get(name) for name in usual)]
    return tuple(dict.fromkeys(int(id_) for id_ in ids if isinstance(id_, int)))


def _check(index: int, message: Mapping[str, Any]) -> None:
    roles = ("system", "developer", "user", "assistant", "tool")
    if message.get("role") not in roles:
        raise ValueError(f"messages[{index}].role must be one of {', '.join(roles)}")
    if not isinstance(message.get("content"), str | None):
        raise ValueError(f"messages[{index}].content must be text: this model accepts text only")


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates expect it: empty text for none, ``system`` for developers, calls with
    parsed arguments."""
    role = "system" if message["role"] == "developer" else message["role"]
    plain = {**message, "role": role, "content": message.get("content") or ""}
    calls = plain.get("tool_calls")
    return {**plain, "tool_calls": [*map(with_arguments, calls)]} if calls else plain
