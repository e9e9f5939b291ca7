"""The configuration of an experiment, and of one run in it.

A YAML file is validated into `ExperimentConfig`; every run's folder holds its `RunConfig`. Errors are one line
that names the key, the value and what is allowed. Nothing here imports torch: Snakemake reads this at every parse.
"""

from ebpo.config.clustering import Curriculum, Difficulty, Labeller, Order, Topics
from ebpo.config.data import (
    Cell,
    Cleaning,
    Data,
    Dataset,
    FilesData,
    GeneratedBenchmark,
    GeneratedData,
    HubData,
    PublishedData,
)
from ebpo.config.experiment import ExperimentConfig
from ebpo.config.jobs import DifficultyJob, EvaluationJob, PolicyBuild, PolicyJob, PromptsJob, job_sections
from ebpo.config.messages import explain
from ebpo.config.models import Model, PolicyRecipe
from ebpo.config.reading import ConfigError, dump_yaml, parse_config, read_config, read_run_config, read_section
from ebpo.config.runs import (
    Comparison,
    Evaluation,
    LoRA,
    Parallel,
    Resources,
    RunConfig,
    RunId,
    Training,
    comparison_runs,
)

__all__ = [
    "Cell",
    "Cleaning",
    "Comparison",
    "ConfigError",
    "Curriculum",
    "Data",
    "Dataset",
    "Difficulty",
    "DifficultyJob",
    "Evaluation",
    "EvaluationJob",
    "ExperimentConfig",
    "FilesData",
    "GeneratedBenchmark",
    "GeneratedData",
    "HubData",
    "Labeller",
    "LoRA",
    "Model",
    "Order",
    "Parallel",
    "PolicyBuild",
    "PolicyJob",
    "PolicyRecipe",
    "PromptsJob",
    "PublishedData",
    "Resources",
    "RunConfig",
    "RunId",
    "Topics",
    "Training",
    "comparison_runs",
    "dump_yaml",
    "explain",
    "job_sections",
    "parse_config",
    "read_config",
    "read_run_config",
    "read_section",
]
