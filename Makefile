# Everything runs from a fresh clone with Python 3.11 or newer and nothing else installed: the virtual environment is made
# first, and made again when pyproject.toml changes. `make PYTHON=/path/to/python3.12 test` chooses another interpreter.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Tests run in a process for each core, four at most; PROCESSES=0 runs them in one, as debuggers want it. A process begins
# with a half of the files, say, so that fixtures of a file are made once, and then takes tests from the others.
PROCESSES ?= auto
PYTEST := $(BIN)/python -m pytest -q -n $(PROCESSES) --maxprocesses 4 --dist worksteal

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo pictures test test-all coverage lint format bench clean

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## make the virtual environment with everything for development

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: $(PYTHON) is older than Python 3.11; choose another: make PYTHON=python3.11 venv" >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: $(STAMP) ## train on real data, prove, verify, report: the two-minute tour, into ./demo
	PATH="$(CURDIR)/$(BIN):$$PATH" jobs/demo.sh

pictures: demo ## draw jobs/report.png and jobs/fleet.png from the models of the tour, with chromium
	PATH="$(CURDIR)/$(BIN):$$PATH" jobs/pictures.sh

# tests/contracts reads the source, not what it does: that is `make lint`.
test: $(STAMP) ## the quick tests
	$(PYTEST) -m 'not slow' --ignore tests/contracts $(PYTEST_ARGS)

test-all: $(STAMP) ## all tests, slow ones included
	$(PYTEST) --ignore tests/contracts $(PYTEST_ARGS)

coverage: $(STAMP) ## the quick tests, and which lines and branches none of them runs
	$(PYTEST) -m 'not slow' -o timeout=600 --cov --cov-report=term $(PYTEST_ARGS)

lint: $(STAMP) ## style, format, types, layers, docstrings
	@failed=0; \
	for check in 'ruff check' 'ruff format --check' mypy lint-imports 'python -m pytest -q tests/contracts'; do \
		echo "$$check"; $(BIN)/$$check || failed=1; \
	done; \
	exit $$failed

format: $(STAMP) ## put the code into its format
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

bench: $(STAMP) ## measure against a pure pass, the paper's strategy and scikit-learn; one table
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python jobs/bench/run.py $(BENCH_ARGS)

clean: ## remove what the targets made
	if [ -x $(BIN)/python ]; then $(BIN)/python jobs/demo_data.py demo --forget; fi
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.*
	find pipeline tests jobs -type d -name __pycache__ -prune -exec rm -rf {} +
