SHELL := /bin/bash
.DEFAULT_GOAL := help

BIN := .venv/bin
READY := .venv/.ready
# What make demo needs is a third of what tests need, and has the same versions.
RUNNABLE := .venv/.runnable
# Parallel test processes: one more than two cores, because tests wait for leases, restarts and new processes nearly half
# of their time. And extra arguments for bench, chaos and lock.
JOBS ?= 3
# Crash tests wait for leases and restarts most of their time.
CRASH_JOBS ?= 5
# The files that have some: each process would read all tests to find them.
CRASHING = $(sort $(shell grep -rlE --include='*.py' 'mark\.crash\b' tests))
ARGS ?=

# Bytecode is kept whatever the environment says: each process of a test and each command of the docs would compile all anew.
export PYTHONDONTWRITEBYTECODE :=

# A file stays in one process; the order is that of tests/conftest.py, longest first.
# CI repeats the same order and the same examples for every try (tests/support/dice.py); elsewhere each run draws anew.
ORDER := $(if $(CI),--randomly-seed=20260320)
SHARED := --dist loadfile --no-loadscope-reorder $(ORDER)
PARALLEL := -n $(JOBS) $(SHARED)
# Beside other tests.
SMALLER := -n 2 $(SHARED)

# The SDK calls SQL functions and asks for the server's version when it installs, nowhere else. So on PostgreSQL 15 all of
# the contract is tried again, and of the SDK what covers connections, rights, types of values and the life of a job.
SDK15 := $(patsubst %,tests/sdk/test_%.py,client connections limits pooler rights schedules steps worker workflows)

# What make demo shows beside the sample shop.
SYSTEMS := proof intake alerts meals

# Tests and checks bring their own servers: one named in the environment is never touched.
ALONE := env -u ONCEWARD_DSN -u PGHOST -u PGHOSTADDR -u PGPORT -u PGSERVICE -u PGDATABASE -u PGUSER -u PGPASSWORD

.PHONY: help demo test programs tests crash on15 check lint types read docs bench chaos lock clean

help: ## Show these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUNNABLE) ## Start everything with a sample shop and the four systems, and print a link to the pages; PORT chooses the port
	@$(BIN)/onceward up onceward.samples:app $(SYSTEMS:%=onceward_apps.%.app:app)

test: ## Run every check, all tests, then the crash tests (less than half an hour on two cores)
	@$(MAKE) --no-print-directory --jobs=2 $(READY) programs
	@$(MAKE) --no-print-directory --jobs=2 types-beside lint read-beside
	@$(MAKE) --no-print-directory --jobs=3 tests docs-beside on15-beside
	@$(MAKE) --no-print-directory crash

# What tests need beside Python, with apt where that is possible.
programs:
	@mkdir -p .programs
	@tools/postgres15.sh > .programs/postgres15
	@tools/chromium.sh > .programs/chromium
	@tools/extras.sh

tests: $(READY)
	@echo "==> tests; beside them the docs and PostgreSQL 15, whose output follows"
	@ONCEWARD_TEST_PG15_BIN="$$(cat .programs/postgres15)" ONCEWARD_TEST_CHROMIUM="$$(cat .programs/chromium)" \
		$(ALONE) $(BIN)/pytest $(PARALLEL) -m "not crash" $(ARGS)

crash: $(READY)
	@echo "==> crash tests"
	@$(ALONE) $(BIN)/pytest -n $(CRASH_JOBS) --dist load --maxschedchunk 1 $(ORDER) -m crash $(CRASHING) $(ARGS)

# What runs beside something else tells at its end, so that the two do not mingle.
%-beside: $(READY)
	@$(MAKE) --no-print-directory $* > .programs/$* 2>&1; status=$$?; cat .programs/$*; exit $$status

on15: $(READY)
	@if [ -s .programs/postgres15 ]; then \
		echo "==> the SQL contract and what clients and workers do on PostgreSQL 15" && \
		ONCEWARD_TEST_PG_BIN="$$(cat .programs/postgres15)" \
			$(ALONE) $(BIN)/pytest $(SMALLER) -m "not crash and not slow" tests/sql tests/migrations $(SDK15); \
	fi

check: lint types docs ## Run linter, types, import contracts, the schema snapshot and every block of the docs

# What takes seconds, and ends make test before the minutes begin.
lint: $(READY)
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "==> import contracts"
	@$(BIN)/lint-imports --no-cache
	@echo "==> sizes"
	@$(BIN)/python -m tools.sizes
	@echo "==> schema snapshot"
	@$(ALONE) $(BIN)/python -m tools.snapshot --check
	@echo "==> generated reference"
	@$(ALONE) $(BIN)/python -m tools.reference --check
	@$(ALONE) $(BIN)/python -m tools.cli_reference --check
	@$(ALONE) $(BIN)/python -m tools.metrics_pages --check
	@$(ALONE) $(BIN)/python -m tools.openapi --check

types: $(READY)
	@echo "==> mypy"
	@$(BIN)/mypy

# Tests are compiled by whoever reads them first: once here, instead of in five processes at the same time.
read: $(READY)
	@echo "==> reading of the tests"
	@mkdir -p .programs
	@$(BIN)/pytest --collect-only --quiet $(ORDER) > .programs/collected || { tail -n 60 .programs/collected; exit 1; }

docs: $(READY)
	@echo "==> docs"
	@$(ALONE) $(BIN)/python -m tools.docs

bench: $(READY) ## Measure; ARGS="--json" and others are handed on
	@$(BIN)/onceward bench $(ARGS)

chaos: $(READY) ## Run the long crash tests; counts in ARGS
	@$(ALONE) $(BIN)/python -m tests.crash.chaos $(ARGS)

COMPILE := $(BIN)/uv --no-config pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-emit-index-url --no-header --no-annotate

lock: $(READY) ## Resolve the locks again; ARGS=--upgrade for newer versions
	@$(COMPILE) --extra dev $(ARGS) --output-file requirements.lock pyproject.toml
	@$(COMPILE) --extra apps --constraint requirements.lock --output-file requirements-demo.lock pyproject.toml tools/build.in

clean: ## Remove the virtual environment, caches and build results
	@rm -rf .venv .programs .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment whose Python has gone is made anew. The package is installed last, without its dependencies:
# they all come from a lock, which also holds the build backend.
define install
	@python="$$(tools/python.sh)" && \
	echo "==> .venv with $$("$$python" --version)" && \
	{ $(BIN)/python -c '' 2>/dev/null || rm -rf .venv; } && \
	"$$python" -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
endef

$(READY): requirements.lock pyproject.toml
	$(install)

$(RUNNABLE): requirements-demo.lock pyproject.toml
	$(install)
