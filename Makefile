# Two commands: `make demo` runs the whole pipeline on two CPU cores, `make test` runs the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint env format dag

demo: $(READY)
	$(BIN)/snakemake --cores 2 all

# Two workers, a file at a time: the tests of one file may share an expensive run.
test: $(READY)
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 --dist loadfile

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
