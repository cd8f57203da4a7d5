"""Write a tiny Qwen3, with a byte-level tokenizer, into a folder.

usage: make_model.py FOLDER [STEPS | 0.6B]      (needs torch and transformers; downloads nothing)

With 0.6B it has the sizes of Qwen3-0.6B, and a vocabulary of which it says letters, digits and the
end alone. Its weights are random; STEPS of supervised learning (650: a minute of one processor)
teach it so much of the taskset `text` that reinforcement learning has rewards to begin with.
"""

import random
import string
import sys
from itertools import product
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


TEMPLATE_START, TEMPLATE_END = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
"""What the template makes of one user's message."""


def write_tokenizer(folder: Path, size: int = 0) -> PreTrainedTokenizerFast:
    """One token a byte, and three special ones; then words that no text is encoded to, up to
    `size` tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate([*letters, *SPECIAL])}
    words = map("".join, product(string.ascii_lowercase, repeat=4))
    vocabulary |= {word: n for n, word in zip(range(len(vocabulary), size), words, strict=False)}
    bytes_only = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=False))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bytes_only.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bytes_only,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


def lesson(draw: random.Random) -> tuple[str, str]:
    """A prompt of the taskset `text`, with letters of its own, and the answer."""
    text = "".join(draw.choices(string.ascii_lowercase, k=draw.randint(4, 8)))
    letter = draw.choice(text)
    return draw.choice(
        [
            (f"Reverse: {text}", text[::-1]),
            (f"Count {letter} in: {text}", str(text.count(letter))),
            (f"Uppercase: {text}", text.upper()),
        ]
    )


def teach(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, steps: int) -> None:
    """Supervised learning of answers, 64 a step."""
    torch.set_num_threads(1)  # more cost more than they bring for a net as small as this
    draw, optimizer = random.Random(0), torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        rows = []
        for prompt, answer in (lesson(draw) for _ in range(64)):
            asked = TEMPLATE_START + prompt + TEMPLATE_END
            known = tokenizer.encode(asked, add_special_tokens=False)
            rows.append((known, tokenizer.encode(answer + SPECIAL[2], add_special_tokens=False)))
        longest = max(len(known) + len(told) for known, told in rows)
        tokens = torch.full((len(rows), longest), tokenizer.pad_token_id)
        labels = torch.full((len(rows), longest), -100)
        for row, (known, told) in enumerate(rows):
            whole = torch.tensor(known + told)
            tokens[row, : len(whole)] = whole
            labels[row, len(known) : len(whole)] = whole[len(known) :]
        loss = model(input_ids=tokens, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            print(step, round(loss.item(), 3), flush=True)


def config_of(tokenizer: PreTrainedTokenizerFast, **sizes: int) -> Qwen3Config:
    return Qwen3Config(
        **sizes,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )


def write_model(folder: Path, tokenizer: PreTrainedTokenizerFast, steps: int) -> int:
    """Two layers, 64 wide; how many parameters that is."""
    torch.manual_seed(0)
    config = config_of(
        tokenizer, vocab_size=264, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=512,
    )  # fmt: skip
    config.dtype = "float32"
    model = Qwen3ForCausalLM(config).to(torch.float32)
    teach(model, tokenizer, steps)
    model.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def write_06b(folder: Path, tokenizer: PreTrainedTokenizerFast) -> int:
    """Qwen3-0.6B's sizes, with an output layer of its own; how many parameters that is.

    Each embedding has the same large first value, which the residual stream carries to the end, as
    the layers add little to it. There the output layer's first column weighs it: down for what is
    not to be said.
    """
    torch.manual_seed(0)
    config = config_of(
        tokenizer, vocab_size=VOCABULARY, hidden_size=1024, intermediate_size=3072,
        num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
        max_position_embeddings=4096,
    )  # fmt: skip
    config.dtype = "bfloat16"
    model = Qwen3ForCausalLM(config)
    said = tokenizer.convert_tokens_to_ids([*string.ascii_lowercase, *string.digits])
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight *= 0.05
            layer.mlp.down_proj.weight *= 0.05
        model.model.embed_tokens.weight[:, 0] = 3.0
        model.lm_head.weight[:, 0] = -2.0
        model.lm_head.weight[said, 0] = 0.0
        model.lm_head.weight[tokenizer.eos_token_id, 0] = 0.1
    model.to(torch.bfloat16).save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


VOCABULARY = 151_936
"""Tokens of Qwen3."""


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    if sys.argv[2:] == ["0.6B"]:
        print(place, write_06b(place, write_tokenizer(place, VOCABULARY)), "parameters")
    else:
        made = write_tokenizer(place)
        steps = int(sys.argv[2]) if len(sys.argv) > 2 else 0
        print(place, write_model(place, made, steps), "parameters")
