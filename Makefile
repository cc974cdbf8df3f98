# Works with plain `python3 -m venv` and pip; uses uv where it is installed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)

ifdef UV
  MAKE_VENV = $(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
  INSTALL = $(UV) pip install --quiet --python $(BIN)/python
else
  MAKE_VENV = $(PYTHON) -m venv $(VENV)
  INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif

.PHONY: demo test lint docs bench clean
.DEFAULT_GOAL := help

help: ## show the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

demo: $(VENV)/.run ## ingest the sample traces, print their curve and a recommendation
	@mkdir -p demo
	$(BIN)/agentkv-trace ingest sample_traces/codex -o demo/trace.parquet --force
	$(BIN)/agentkv-trace mrc demo/trace.parquet --plot
	$(BIN)/agentkv-trace report demo/trace.parquet --model qwen3-coder-30b-a3b --gpu rtx3090 --gpu h20 --gpu h800 --tp 8

test: $(VENV)/.dev ## run the tests
	$(BIN)/python -m pytest

lint: $(VENV)/.dev ## check style, types and docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m docs_check

bench: $(VENV)/.dev ## measure speed and memory
	$(BIN)/python -m pytest tests/benchmarks --benchmark-only -s

clean: ## remove what the other targets made
	rm -rf $(VENV) demo .mypy_cache .pytest_cache .ruff_cache

# What users run: the locked versions of the run-time dependencies.
$(VENV)/.run: pyproject.toml requirements.lock
	$(MAKE_VENV)
	$(INSTALL) -r requirements.lock -e .
	@touch $@

# What developers run: with the test and lint tools.
$(VENV)/.dev: pyproject.toml requirements-dev.lock
	$(MAKE_VENV)
	$(INSTALL) -r requirements-dev.lock -e .
	@touch $@
