"""A small synthetic experiment on disk, as the trainer and the evaluator leave it."""

import json
import random
from pathlib import Path

import pandas as pd
import yaml

from ebpo.config import ExperimentConfig, RunId, dump_yaml, read_config

REPOSITORY = Path(__file__).parents[2]
STEPS, SAMPLES, PROBLEMS = 40, 4, 20
EVALUATIONS = ("evaluation", "evaluation_best")


class Experiment:
    """Folder and configuration of the synthetic experiment."""

    def __init__(self, root: Path) -> None:
        raw = yaml.safe_load((REPOSITORY / "config/config.yaml").read_text(encoding="utf-8"))
        raw["training"] |= {"steps": STEPS, "validate_every": 10}
        raw["evaluation"]["samples"] = SAMPLES
        self.root = root
        self.config_path = root / "config/experiment.yaml"
        self.config_path.parent.mkdir(parents=True)
        self.config_path.write_text(yaml.safe_dump(raw), encoding="utf-8")
        self.config: ExperimentConfig = read_config(self.config_path)
        self.runs = [root / run.folder for run in self.config.runs()]
        for index, run in enumerate(self.config.runs()):
            self._write_run(run, random.Random(index))
            for folder, checkpoint, more in (("evaluation", "final", 0.0), ("evaluation_best", "best", 0.02)):
                identity = {**run.model_dump(), "checkpoint": checkpoint}
                level = 0.4 + 0.05 * index + more
                self._write_scores(root / run.folder / folder, identity, level, random.Random(f"{index}{checkpoint}"))
        base = {"model": "demo", "method": "base", "order": "", "group_size": "", "seed": "", "checkpoint": "final"}
        self._write_scores(root / "base/demo/evaluation", base, 0.3, random.Random(99))
        folders = [root / "base/demo/evaluation", *(f / name for f in self.runs for name in EVALUATIONS)]
        self.scores = [folder / "scores.csv" for folder in folders]
        self._write_base()
        self.topics = root / "clusters/topics.json"
        self.topics.parent.mkdir()
        self.topics.write_text(json.dumps({"method": "kmeans", "clusters": 2, "adjusted_rand": 0.9, "sizes": {"a": 3}}))

    def _write_base(self) -> None:
        """What the report says of data, base policy and protocol, and the examples of every run."""
        digest = "ab" * 32
        manifest = {"counts": {"problems": {"train": 3}}, "sha256": {"train.parquet": digest}}
        protocol = {"digest": "abc123", "samples": SAMPLES, "prompts": {"algebra": digest}}
        files = {
            "data/manifest.json": manifest,
            "base/demo/policy.json": {"sha256": "cd" * 32},
            "base/demo/evaluation/record.json": {"protocol": protocol, "benchmarks": {}},
        }
        for name, value in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(json.dumps(value), encoding="utf-8")
        example = {
            "benchmark": "algebra", "problem_id": "algebra-0", "sample": 0, "question": "Is 1 < 2?", "gold": "yes",
            "completion": "</script><b>yes</b>", "cut": False, "extracted": "yes", "verdict": "correct",
            "reason": "text", "tokens": 3, "finish_reason": "stop",
        }  # fmt: skip
        for run in self.runs:
            (run / "evaluation/examples.jsonl").write_text(json.dumps(example) + "\n", encoding="utf-8")

    def _write_run(self, run: RunId, rng: random.Random) -> None:
        folder = self.root / run.folder
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(dump_yaml(self.config.run_config(run)), encoding="utf-8")
        n = self.config.training.validation_samples
        rows = []
        for step in range(STEPS + 1):
            level = 0.3 + 0.4 * step / STEPS
            row: dict[str, float] = {"step": step}
            if step:
                row |= {
                    "reward": level + rng.gauss(0, 0.05),
                    "grad_norm": 0.3 + rng.random() * 0.2,
                    "entropy": 1.2 - 0.5 * level,
                    "kl_step": 10 ** -rng.uniform(3, 4),
                    "completions_total": 128 * step,
                }
                if run.method == "ebpo":
                    shrinkage = 0.3 - 0.1 * level
                    row |= {"ebpo/mu_glob": level, "ebpo/sigma2": level * (1 - level), "ebpo/tau2": 0.1}
                    row |= {"ebpo/shrinkage": shrinkage}
                    if step % 3:
                        row["ebpo/raw_advantage_all_0_groups"] = -shrinkage * level
            if step % 10 == 0:
                row |= {"validation/pass@1": level, f"validation/pass@{n}": level + 0.2, f"validation/maj@{n}": level}
            rows.append(row)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
        summary = {"step": STEPS, "target": STEPS, "seconds": 75.0, "completions_total": 128 * STEPS, "resumed_at": []}
        summary["machine"] = {"Processor": "one of a test"}
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")

    def _write_scores(self, folder: Path, identity: dict, level: float, rng: random.Random) -> None:
        folder.mkdir(parents=True)
        problems, scores = [], []
        for benchmark in self.config.evaluation.benchmarks:
            counts = [sum(rng.random() < level for _ in range(SAMPLES)) for _ in range(PROBLEMS)]
            for i, correct in enumerate(counts):
                row = {"benchmark": benchmark, "problem_id": f"{benchmark}-{i}", "samples": SAMPLES}
                problems.append({**row, "correct": correct, "unscorable": 0})
            rates = pd.Series(counts) / SAMPLES
            values = {"pass_at_1": rates.mean(), "protocol": "abc123"}
            scores.append({**identity, "benchmark": benchmark, "problems": PROBLEMS, "samples": SAMPLES, **values})
        pd.DataFrame(problems).to_csv(folder / "per_problem.csv", index=False)
        pd.DataFrame(scores).to_csv(folder / "scores.csv", index=False)
