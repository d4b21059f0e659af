# `make demo` and `make test` are all a newcomer needs: Python and make, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BOLTS  := .venv-bolts
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-portable test-bolts lint bench clean

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

# The package asks for pytorch-lightning 2.6 and bolts for less than 2: it goes in without its dependencies.
$(BOLTS)/installed: requirements-bolts.txt pyproject.toml
	$(PYTHON) -m venv $(BOLTS)
	$(BOLTS)/bin/python -m pip --disable-pip-version-check install --progress-bar off -r requirements-bolts.txt
	$(BOLTS)/bin/python -m pip --disable-pip-version-check install --progress-bar off --no-deps -e .
	touch $@

demo: $(VENV)/installed  ## the main job: four losses with four seeds each, and the page that compares them
	@# A trial that failed is shown on the page: 1 says that there is one.
	$(BIN)/lightning-ssl sweep sweeps/quickstart.yaml --workers 2 || [ $$? -eq 1 ]
	$(BIN)/lightning-ssl report runs/quickstart

test: $(VENV)/installed  ## every fast test, on two workers of one thread each
	$(BIN)/python -m pytest -n 2 --durations=10

test-slow: $(VENV)/installed  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

test-portable: $(VENV)/installed  ## the numeric tests as on other processors, in random order; an hour
	$(BIN)/python tests/portable.py

test-bolts: $(BOLTS)/installed  ## the tests beside lightning-bolts, in an environment of their own
	$(BOLTS)/bin/python -m pytest tests/bolts -W ignore  # libraries of 2023 beside a torch of today

lint: $(VENV)/installed  ## ruff, mypy, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/installed-bench  ## measure loss, augmentation and training against their bars
	$(BIN)/lightning-ssl bench loss
	$(BIN)/lightning-ssl bench augment
	$(BIN)/lightning-ssl bench train

clean:  ## remove the environment and every cache
	rm -rf $(VENV) $(BOLTS) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
