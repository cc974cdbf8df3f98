# Works with plain `python3 -m venv` and pip; uses uv where it is installed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)

ifdef UV
  MAKE_VENV = $(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
  INSTALL = $(UV) pip install --quiet --python $(BIN)/python --constraint requirements.lock
else
  MAKE_VENV = $(PYTHON) -m venv $(VENV)
  INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock
endif

MODEL = qwen3-4b
GPUS = --gpu rtx3090 --gpu h20 --gpu h800

.PHONY: help demo test lint docs bench clean
.DEFAULT_GOAL := help

help: ## show these targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

demo: $(VENV)/.run ## ingest the sample traces, print their curve and a recommendation
	@mkdir -p demo
	$(BIN)/agentkv-trace ingest sample_traces/codex -o demo/trace.parquet --force
	$(BIN)/agentkv-trace mrc demo/trace.parquet --plot
	$(BIN)/agentkv-trace report demo/trace.parquet --model $(MODEL) $(GPUS)

test: $(VENV)/.dev ## run the tests
	$(BIN)/python -m pytest

lint: $(VENV)/.dev ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.dev ## write the generated parts of README.md
	$(BIN)/python tests/docs.py

bench: $(VENV)/.dev ## measure speed and memory
	$(BIN)/python -m pytest tests/benchmarks --benchmark-only

clean: ## remove what the other targets made
	rm -rf $(VENV) demo .mypy_cache .pytest_cache .ruff_cache

$(VENV)/.run: pyproject.toml requirements.lock
	$(MAKE_VENV)
	$(INSTALL) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(INSTALL) -e '.[dev]'
	@touch $@
