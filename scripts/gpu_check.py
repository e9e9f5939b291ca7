"""Checks a GPU in a few minutes: rollouts and updates there agree with the CPU; their speed and peak memory.

Needs torch, transformers and this checkout, nothing from a hub. From the repository's root, on a machine where the
package is not installed: python -m scripts.gpu_check
"""

import argparse
import copy
import time
from pathlib import Path

from ebpo.cli import run

POLICY = Path(__file__).resolve().parent.parent / "config" / "policy"
# Shapes for the speed, with random weights: Qwen3-0.6B's, and one for a test on CPU.
SHAPES: dict[str, dict[str, int]] = {
    "qwen3-0.6b": {
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "intermediate_size": 3072,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
    },
    "small": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "vocab_size": 512,
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu tries this program itself")
    parser.add_argument("--shape", choices=list(SHAPES), default="qwen3-0.6b", help="model whose speed is measured")
    parser.add_argument("--prompts", type=int, default=64, help="prompts of the speed's rollouts, 4 samples each")
    parser.add_argument("--prompt-tokens", type=int, default=128, help="length of these prompts")
    parser.add_argument("--new-tokens", type=int, default=256, help="length of these samples")
    parser.add_argument("--micro-batch", type=int, default=16, help="completions per pass of the speed's updates")
    args = parser.parse_args()
    # Imported only now: --help and a wrong argument need not wait for torch.
    import torch

    from ebpo.gpu_check import Load, check_equality, measure_speed
    from ebpo.policy.loading import load_policy, set_determinism

    if args.device == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"--device: cuda is not usable on this machine (torch {torch.__version__}); allowed here: cpu")
    set_determinism(torch.get_num_threads())
    device = torch.device(args.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, CUDA {torch.version.cuda}", flush=True)
    started = time.monotonic()
    base, tokenizer = load_policy(POLICY)
    failed = check_equality(base, copy.deepcopy(base).to(device), tokenizer)
    load = Load(args.prompts, args.prompt_tokens, args.new_tokens, args.micro_batch)
    measure_speed(args.shape, SHAPES[args.shape], load, tokenizer, device)
    if failed:
        raise ValueError(f"{name} differs from the CPU: {', '.join(failed)}; the lines above say by how much")
    print(f"passed in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    run(main)
