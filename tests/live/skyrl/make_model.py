"""Write a tiny Qwen3 of random weights, with a byte-level tokenizer, into a folder.

usage: make_model.py FOLDER      (needs torch and transformers; downloads nothing)
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """One token a byte, and three special ones."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate([*letters, *SPECIAL])}
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


def write_model(folder: Path, end: int, pad: int) -> int:
    """Two layers, 64 wide; how many parameters that is."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=264,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        eos_token_id=end,
        pad_token_id=pad,
        bos_token_id=None,
    )
    config.dtype = "float32"
    model = Qwen3ForCausalLM(config).to(torch.float32)
    model.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    made = write_tokenizer(place)
    print(place, write_model(place, made.eos_token_id, made.pad_token_id), "parameters")
