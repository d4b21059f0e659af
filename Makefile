# `make demo` and `make test` are all a newcomer needs: Python and make, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint bench clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# The stamp is written last, so an interrupted installation is done again and a finished one is not.
$(VENV)/installed: requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --progress-bar off -r requirements.txt -e .
	touch $@

$(VENV)/installed-bench: requirements-bench.txt $(VENV)/installed
	$(PIP) install --progress-bar off -r requirements-bench.txt
	touch $@

demo: $(VENV)/installed  ## the main job: compare the pair importances on synthetic points
	$(BIN)/lightning-ssl lab importances

test: $(VENV)/installed  ## every fast test
	$(BIN)/python -m pytest

test-slow: $(VENV)/installed  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/installed  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/installed-bench  ## measure the loss kernel and the augmentation against their bars
	$(BIN)/lightning-ssl bench loss
	$(BIN)/lightning-ssl bench augment

clean:  ## remove the environment and every cache
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
