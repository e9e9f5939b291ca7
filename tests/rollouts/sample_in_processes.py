"""Under torchrun: each process samples its part of the prompts with an engine of its own, from a sharded model.

Arguments: policy folder, prompts (JSON), where the main process writes the completions' token ids (JSON).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from ebpo.config.rollouts import Rollouts
from ebpo.policy.loading import load_policy
from ebpo.rollouts.engines import training_engine
from ebpo.rollouts.protocol import Sampling
from ebpo.training.processes import Processes, parallelise, whole_parameters


def main() -> None:
    folder, prompts, out = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3])
    torch.set_num_threads(1)
    processes = Processes("cpu")
    model, tokenizer = load_policy(folder)
    parallelise(model, processes, "fsdp2", "float32")
    engine = training_engine(Rollouts(engine="vllm"), model, tokenizer, folder, "float32", max_length=256)
    part = processes.part(len(prompts))
    with whole_parameters(model):
        engine.sync(model)
        groups = engine.generate(prompts[part], 2, Sampling(1.0, 10, 5), keys=range(len(prompts))[part])
    completions = processes.gather([[c.token_ids for c in group] for group in groups])
    if processes.is_main:
        out.write_text(json.dumps(completions))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
