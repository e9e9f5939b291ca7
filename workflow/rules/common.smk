# Shared by all rules: the validated experiment, its paths, and small input functions. No torch here: every job on a
# cluster parses this again.
import json
import os
import sys
from pathlib import Path
from typing import get_args

REPOSITORY = Path(workflow.basedir).parent
sys.path.insert(0, str(REPOSITORY))

from ebpo.config import (
    ConfigError,
    Order,
    comparison_runs,
    dump_yaml,
    job_sections,
    parse_config,
)
from ebpo.config.clustering import DIFFICULTY_ORDERS, TOPIC_ORDERS
from ebpo.reporting.captions import figure_names
from ebpo.workflow import (
    clear_stale_lock,
    code_digest,
    record_process,
    use_this_checkout,
)

use_this_checkout()

try:
    EXPERIMENT = parse_config(config)
except ConfigError as error:
    print(error, file=sys.stderr)
    sys.exit(1)

for name in clear_stale_lock(Path(".snakemake")):
    print(
        f"the process that held the lock was killed; lock {name} removed",
        file=sys.stderr,
    )

ROOT = f"results/{EXPERIMENT.experiment}"
RUNS = EXPERIMENT.runs()
RUN_OF = {run.folder: run for run in RUNS}
SECTIONS = {**job_sections(EXPERIMENT), "experiment": EXPERIMENT}
BENCHMARKS = [
    f"{ROOT}/data/benchmarks/{name}.parquet"
    for name in EXPERIMENT.evaluation.benchmarks
]
POLICIES = [*(f"base/{model}" for model in EXPERIMENT.models), *RUN_OF]
# Of the final checkpoint of every policy, and of the best one of every run.
EVALUATIONS = [
    *(f"{ROOT}/{policy}/evaluation" for policy in POLICIES),
    *(f"{ROOT}/{run}/evaluation_best" for run in RUN_OF),
]
SCORES = [f"{folder}/scores.csv" for folder in EVALUATIONS]
PROBLEM_SCORES = [f"{folder}/per_problem.csv" for folder in EVALUATIONS]
RUN_FOLDERS = [f"{ROOT}/{run.folder}" for run in RUNS]
SUMMARIES = [f"{folder}/summary.json" for folder in RUN_FOLDERS]
METRICS = [f"{folder}/metrics.jsonl" for folder in RUN_FOLDERS]
THREADS = EXPERIMENT.training.threads
GPUS = EXPERIMENT.resources.gpus
SAMPLING_GPUS = min(GPUS, 1)  # one process, whereas a training has one on each GPU
# What long jobs on GPUs wait for. Ancient: checking again must not train again.
PREFLIGHT = ancient(f"{ROOT}/preflight/{{model}}.json") if GPUS else []


def more(amount):
    """A resource that grows with every attempt; how many attempts there are is the profile's `retries`."""
    return lambda wildcards, attempt: amount * attempt


MEMORY = more(EXPERIMENT.resources.mem_mb)
LONG = more(EXPERIMENT.resources.train_minutes)

# The parts of the code that decide what a rule writes.
FOUNDATION = [
    "ebpo/files.py",
    "ebpo/seeds.py",
    "ebpo/problems/record.py",
    "ebpo/problems/text.py",
]
SAMPLING = [*FOUNDATION, "ebpo/rollouts", "ebpo/prompts.py", "ebpo/policy/loading.py"]

PAPER = "config/paper_results.csv"
TABLES = [
    f"{ROOT}/tables/{comparison}.{suffix}"
    for comparison in EXPERIMENT.comparisons
    for suffix in ("csv", "md", "tex")
]
MAIN_TABLE = f"{ROOT}/tables/{next(iter(EXPERIMENT.comparisons))}.md"
FIGURES = [
    f"{ROOT}/figures/{name}.{suffix}"
    for name in figure_names(EXPERIMENT)
    for suffix in ("svg", "png")
]
CLAIMS = [
    *(
        f"{ROOT}/claims/{name}.{suffix}"
        for name in ("claims", "efficiency_targets", "validation")
        for suffix in ("csv", "md")
    ),
    *(
        f"{ROOT}/claims/{name}.csv"
        for name in ("averages", "differences", "efficiency")
    ),
]
MAIN_FIGURE = f"{ROOT}/figures/main.png"
REPORT = f"{ROOT}/report.html"
RUN = "runs/{model}/{method}-{order}/G{group_size}/seed{seed}"


wildcard_constraints:
    model=r"[a-z0-9][a-z0-9_.-]*",
    method=r"[a-z][a-z0-9_]*",
    order="|".join(get_args(Order)),
    group_size=r"\d+",
    seed=r"\d+",
    section=r"[a-z0-9_.-]+",
    comparison=r"[a-z][a-z0-9_]*",
    policy=r"base/[a-z0-9_.-]+|runs/[a-z0-9_.-]+/[a-z0-9_]+-[a-z_]+/G\d+/seed\d+",


def model_of(policy):
    """The base model's name of a policy's folder: base/MODEL or runs/MODEL/..."""
    return policy.split("/")[1]


def identity_of(policy):
    """What the scores of a policy say about themselves."""
    if policy in RUN_OF:
        return RUN_OF[policy].model_dump()
    return dict(model=model_of(policy), method="base", order="", group_size="", seed="")


def output_folder(wildcards, output):
    """The folder of a rule's first output."""
    return str(Path(output[0]).parent)


def run_of(wildcards):
    """The run that wildcards point to; only runs of the configuration exist."""
    folder = RUN.format(**wildcards)
    if folder not in RUN_OF:
        raise ValueError(
            f"{folder} is no run of this configuration; it has: {', '.join(RUN_OF)}"
        )
    return RUN_OF[folder]


def prior_inputs(wildcards):
    """Cluster tables that the run reads: topics for their order or a prior per cluster, pass rates for their order."""
    run = run_of(wildcards)
    inputs = {}
    if (
        run.order in TOPIC_ORDERS
        or getattr(EXPERIMENT.methods[run.method], "scope", None) == "cluster"
    ):
        inputs["topics"] = f"{ROOT}/clusters/topics.parquet"
    if run.order in DIFFICULTY_ORDERS or EXPERIMENT.curriculum.drops:
        inputs["difficulty"] = f"{ROOT}/clusters/{run.model}/difficulty.parquet"
    return inputs


def prior_arguments(wildcards):
    """The same as command-line arguments."""
    return " ".join(
        f"--{name} {path}" for name, path in prior_inputs(wildcards).items()
    )


def launcher(processes):
    """The interpreter of a training job, or the launcher of its processes on this node."""
    if processes == 1:
        return "python"
    return f"python -m torch.distributed.run --standalone --nproc-per-node {processes}"


# Which checkpoint an evaluation folder is of.
CHECKPOINTS = {"evaluation": ("model", "final"), "evaluation_best": ("best", "best")}


def evaluated_model(wildcards):
    """The folder of the weights."""
    return f"{ROOT}/{wildcards.policy}/{CHECKPOINTS[wildcards.evaluation][0]}"


def evaluated_prompts(wildcards):
    """The prompt tables of the benchmarks."""
    folder = f"{ROOT}/base/{model_of(wildcards.policy)}/prompts/benchmarks"
    return [f"{folder}/{name}.parquet" for name in EXPERIMENT.evaluation.benchmarks]


def evaluated_identity(wildcards):
    """What the scores of a checkpoint say about themselves, as JSON."""
    _, which = CHECKPOINTS[wildcards.evaluation]
    return json.dumps({**identity_of(wildcards.policy), "checkpoint": which})


def comparison_files(name, file):
    """A file of the evaluations of a comparison's runs, of both checkpoints, and of their base policies."""
    comparison = EXPERIMENT.comparisons[name]
    folders = [f"base/{model}/evaluation" for model in comparison.models]
    for run in comparison_runs(comparison):
        folders += [f"{run.folder}/{checkpoint}" for checkpoint in CHECKPOINTS]
    return [f"{ROOT}/{folder}/{file}" for folder in folders]
