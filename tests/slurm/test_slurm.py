"""`snakemake --cores 8 --profile slurm all` on a real Slurm without accounting: two nodes, fake GPUs, this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml
from checkout_copy import copy_checkout, edit, shorten_theory

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

CLUSTER = Path(__file__).with_name("cluster.sh")
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scontrol")
MINUTES = 3  # time limit of a first attempt
STEPS = 12
METHODS = ["dr_grpo", "entropy_mech", "ebpo"]  # one run for each of the cluster's three GPUs


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[None]:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and Slurm (Debian: slurm-wlm and munge); not found: {missing}")
    folder = tmp_path_factory.mktemp("cluster")
    started = subprocess.run(
        ["timeout", "-s", "KILL", "60", "bash", CLUSTER, "start", folder],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if started.returncode == 2:
        pytest.skip(started.stderr.strip())
    assert started.returncode == 0, started.stderr[-4000:]
    yield
    subprocess.run(["timeout", "-s", "KILL", "60", "bash", CLUSTER, "stop", folder], check=True)


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """PATH as on a site whose Slurm has no `sacct`, with this interpreter's `snakemake`."""
    programs = tmp_path_factory.mktemp("programs")
    for folder in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(folder).glob("*"):
            if program.name != "sacct" and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    path = os.pathsep.join([str(Path(sys.executable).parent), str(programs)])
    assert shutil.which("sacct", path=path) is None
    return {**os.environ, "PATH": path}


@dataclass
class Site:
    """A checkout on the test cluster."""

    checkout: Path
    environment: dict[str, str]

    def __post_init__(self) -> None:
        # Jobs here last seconds, not hours.
        self.edit("workflow/profiles/slurm/config.yaml", "status-checks: 20", "status-checks: 5")
        shorten_theory(self.checkout)

    def configure(self) -> None:
        """Makes a small experiment, with runs that ask for a GPU, the default configuration."""
        config = yaml.safe_load((self.checkout / "tests/workflow/tiny.yaml").read_text())
        config["comparisons"] = {"main": {"models": ["demo"], "methods": METHODS, "orders": ["topic"]}}
        config["training"] |= {"steps": STEPS, "validate_every": STEPS}
        config["resources"] = {"gpus": 1, "mem_mb": 1000, "train_minutes": MINUTES}
        (self.checkout / "config/config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))

    def edit(self, file: str, old: str, new: str) -> None:
        edit(self.checkout / file, old, new)

    def start(self, target: str) -> subprocess.Popen[str]:
        """The command of README.md."""
        return subprocess.Popen(
            ["timeout", "-s", "KILL", "900", "snakemake", "--cores", "8", "--profile", "slurm", target],
            cwd=self.checkout,
            env=self.environment,
            stdout=(self.checkout / "output").open("w"),
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def output(self) -> str:
        return (self.checkout / "output").read_text()

    def run_folder(self, method: str) -> Path:
        return self.checkout / f"results/tiny/runs/demo/{method}-topic/G4/seed0"


@pytest.fixture(scope="module")
def site(repository, cluster, environment, tmp_path_factory) -> Site:
    checkout = tmp_path_factory.mktemp("site") / "checkout"
    return Site(copy_checkout(repository, checkout), environment)


def slurm(*command: str) -> str:
    return subprocess.run(["timeout", "-s", "KILL", "30", *command], check=True, capture_output=True, text=True).stdout


def jobs() -> list[dict[str, str]]:
    """All jobs since the cluster's start, oldest first, in Slurm's own words."""
    lines = slurm("scontrol", "--oneliner", "show", "job").splitlines()
    records = [dict(re.findall(r"([A-Za-z/]+)=(\S*)", line)) for line in lines]
    return sorted((record for record in records if "JobId" in record), key=lambda record: int(record["JobId"]))


def jobs_of_rule(records: list[dict[str, str]], rule: str) -> list[dict[str, str]]:
    return [r for r in records if re.fullmatch(rf"rule_{rule}(_wildcards_.*)?", r.get("Comment", ""))]


def jobs_of_run(method: str) -> list[dict[str, str]]:
    return [r for r in jobs() if r.get("Comment") == f"rule_train_wildcards_demo_{method}_topic_4_0"]


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str], site: Site) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert process.poll() is None, site.output()[-4000:]
        assert time.monotonic() < deadline, site.output()[-4000:]
        time.sleep(0.05)


def freeze_trainer(folder: Path) -> bool:
    """Stops (SIGSTOP) the process that trains in `folder`, once it has a checkpoint, as a hung file system would."""
    if not list(folder.glob("state/*/step-*")):
        return False
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "scripts/train.py" in command and str(folder).endswith(command[-1]) and "python" in Path(command[0]).name:
            process.send_signal(signal.SIGSTOP)
            return True
    raise AssertionError(f"nobody trains in {folder}")


def freeze_all(site: Site, frozen: set[str]) -> bool:
    """Freezes every training that can be; whether all of them are frozen."""
    frozen |= {m for m in METHODS if m not in frozen and freeze_trainer(site.run_folder(m))}
    return len(frozen) == len(METHODS)


def preempted_methods() -> list[str]:
    return [m for m in METHODS if any(job["Restarts"] != "0" for job in jobs_of_run(m))]


@dataclass(frozen=True)
class Outcome:
    """Snakemake's output, Snakemake's jobs, and what happened to the runs of three methods."""

    output: str
    jobs: list[dict[str, str]]
    preempted: str
    cancelled: str
    overdue: str


@pytest.fixture(scope="module")
def finished(site) -> Outcome:
    """The whole workflow. Its trainings freeze half-way: one is preempted, one cancelled, one runs out of time."""
    site.configure()
    process = site.start("all")
    try:
        frozen: set[str] = set()
        wait_for(lambda: freeze_all(site, frozen), process, site)
        # Higher priority and no free GPU (memory there is): Slurm puts back one of the three jobs.
        slurm("sbatch", "--partition=urgent", "--gres=gpu:1", "--mem=10", "--output=/dev/null", "--wrap=sleep 1")
        wait_for(preempted_methods, process, site)
        (preempted,) = preempted_methods()
        cancelled, overdue = [m for m in METHODS if m != preempted]
        slurm("scancel", jobs_of_run(cancelled)[0]["JobId"])
        # Limits have a resolution of minutes, and Slurm looks every half a minute.
        slurm("scontrol", "update", f"JobId={jobs_of_run(overdue)[0]['JobId']}", "TimeLimit=1")
        assert process.wait() == 0, site.output()[-6000:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    ours = [job for job in jobs() if job.get("Comment", "").startswith("rule_")]
    return Outcome(site.output(), ours, preempted, cancelled, overdue)


def test_the_command_of_the_readme_completes(finished, site):
    assert (site.checkout / "results/tiny/report.html").exists()
    table = (site.checkout / "results/tiny/tables/main.csv").read_text()
    assert all(method in table for method in METHODS)


@pytest.mark.parametrize("rule", ["train", "sample"])
def test_a_gpu_rule_asks_for_its_gpu_and_lands_on_the_gpu_partition(finished, rule):
    found = jobs_of_rule(finished.jobs, rule)
    assert found
    for job in found:
        assert (job["TresPerJob"], job["Partition"], job["NodeList"]) == ("gres:gpu:1", "gpu", "gpu1")


@pytest.mark.parametrize("rule", ["problems", "topics", "grade", "table", "report"])
def test_another_rule_asks_for_no_gpu_and_lands_on_the_cpu_partition(finished, rule):
    found = jobs_of_rule(finished.jobs, rule)
    assert found
    for job in found:
        assert "TresPerJob" not in job
        assert (job["Partition"], job["NodeList"]) == ("cpu", "cpu1")


def test_local_rules_are_no_jobs_of_slurm(finished):
    for rule in ("section", "run_config", "all"):
        assert f"localrule {rule}:" in finished.output
        assert not jobs_of_rule(finished.jobs, rule)


def test_every_log_is_where_snakemake_says(finished, site):
    slurm_logs = dict(re.findall(r"submitted with SLURM jobid (\d+) \(log: (.*?)\)\.", finished.output))
    assert set(slurm_logs) == {job["JobId"] for job in finished.jobs}
    for job in finished.jobs:
        path = Path(slurm_logs[job["JobId"]])
        assert path.is_relative_to(site.checkout / "results/logs/slurm")
        assert ("Finished jobid" in path.read_text()) == (job["JobState"] == "COMPLETED"), path
    rule_logs = set(re.findall(r"^    log: ([^\s,]+)", finished.output, flags=re.MULTILINE))
    assert len(rule_logs) > len(slurm_logs)
    for path in rule_logs:
        assert (site.checkout / path).is_file(), path


def test_a_second_call_has_nothing_to_do(finished, site):
    process = site.start("all")
    assert process.wait() == 0
    assert "Nothing to be done" in site.output()


def resumed_at(site: Site, method: str) -> list[int]:
    summary = json.loads((site.run_folder(method) / "summary.json").read_text())
    assert summary["step"] == summary["target"] == STEPS
    return summary["resumed_at"]


def test_a_preempted_training_resumes_in_the_same_job(finished, site):
    (job,) = jobs_of_run(finished.preempted)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1")
    assert len(resumed_at(site, finished.preempted)) == 1


def test_a_cancelled_training_resumes_in_a_new_job_with_more_memory(finished, site):
    first, second = jobs_of_run(finished.cancelled)
    assert (first["JobState"], second["JobState"]) == ("CANCELLED", "COMPLETED")
    assert (first["MinMemoryNode"], second["MinMemoryNode"]) == ("1000M", "2000M")
    assert len(resumed_at(site, finished.cancelled)) == 1


def test_a_training_over_its_time_limit_resumes_with_more_time(finished, site):
    first, second = jobs_of_run(finished.overdue)
    assert (first["JobState"], second["JobState"]) == ("TIMEOUT", "COMPLETED")
    assert second["TimeLimit"] == f"00:{2 * MINUTES:02d}:00"
    assert len(resumed_at(site, finished.overdue)) == 1


def test_an_unknown_partition_is_named_with_slurms_own_words(finished, site):
    shutil.rmtree(site.run_folder("ebpo"))
    site.edit("workflow/profiles/slurm/partitions.yaml", "  gpu:", "  gpuu:")
    process = site.start("train_all")
    assert process.wait() == 1
    assert "invalid partition specified: gpuu" in site.output()
    assert "rule train" in site.output()
