# `make demo` and `make test` need only Python and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BOLTS  := .venv-bolts
PIP    := $(BIN)/python -m pip --disable-pip-version-check
BUILD  ?= docker build
# Python stores compiled modules: some images turn it off, and then each of the many processes compiles the package again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test test-times test-slow test-portable test-bolts lint docs image bench clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# The stamp is written last: make repeats an interrupted installation, but not a complete one.
$(VENV)/installed: requirements.txt requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --progress-bar off -r requirements-dev.txt -e .
	$(BIN)/python -c "from lightning_ssl import _torchvision_guard as guard; guard.write_pth()"
	touch $@

$(VENV)/installed-bench: requirements-bench.txt $(VENV)/installed
	$(PIP) install --progress-bar off -r requirements-bench.txt
	touch $@

$(VENV)/installed-docs: requirements-docs.txt $(VENV)/installed
	$(PIP) install --progress-bar off -r requirements-docs.txt
	touch $@

# The package requires pytorch-lightning 2.6, and bolts requires a version below 2: install it without dependencies.
$(BOLTS)/installed: requirements-bolts.txt pyproject.toml
	$(PYTHON) -m venv $(BOLTS)
	$(BOLTS)/bin/python -m pip --disable-pip-version-check install --progress-bar off -r requirements-bolts.txt
	$(BOLTS)/bin/python -m pip --disable-pip-version-check install --progress-bar off --no-deps -e .
	touch $@

demo: $(VENV)/installed  ## compare four losses with five seeds each: train them, then write the report
	@# Exit code 1 means that a trial failed. The report shows it.
	$(BIN)/lightning-ssl sweep sweeps/quickstart.yaml --workers 2 --until decided --max-seeds 5 || [ $$? -eq 1 ]
	$(BIN)/lightning-ssl report runs/quickstart

# Three workers for two cores: a fifth of the time is spent waiting for other processes.
test: $(VENV)/installed  ## run the fast tests, on three workers with one thread each
	$(BIN)/python -m pytest -n 3 --dist worksteal --durations=10

test-times: $(VENV)/installed  ## run the fast tests on one worker, and write tests/times.md: the time of each folder
	$(BIN)/python -m pytest --times tests/times.md

test-slow: $(VENV)/installed  ## run the tests that take minutes
	$(BIN)/python -m pytest -m slow

test-portable: $(VENV)/installed  ## run the numeric tests with other processors' kernels, in random order; an hour
	$(BIN)/python tests/portable.py

test-bolts: $(BOLTS)/installed  ## run the tests against lightning-bolts, in a separate environment
	$(BOLTS)/bin/python -m pytest tests/bolts -W ignore  # libraries from 2023 with a current torch

lint: $(VENV)/installed  ## ruff, mypy, the rules on imports, hadolint, shellcheck
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile
	$(BIN)/shellcheck deploy/*.sh deploy/slurm/*.sbatch deploy/docker/*.sh .ci/run

image:  ## build the image `lightning-ssl`; BUILD="podman build" or "buildah build" uses another builder
	$(BUILD) --build-arg COMMIT="$$(git describe --always --dirty --exclude '*')" --tag lightning-ssl $(BUILD_FLAGS) .

docs: export OMP_NUM_THREADS ?= 1
docs: $(VENV)/installed-docs  ## build the site in build/docs/html and run the notebooks; a warning is an error
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -d build/docs/doctrees docs build/docs/html

bench: $(VENV)/installed-bench  ## measure the speed of loss, augmentation and training against its limits
	$(BIN)/lightning-ssl bench loss
	$(BIN)/lightning-ssl bench launches
	$(BIN)/lightning-ssl bench augment
	$(BIN)/lightning-ssl bench start
	$(BIN)/lightning-ssl bench train

clean:  ## remove the environments and every cache
	rm -rf $(VENV) $(BOLTS) build docs/_generated docs/api docs/notebooks *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
