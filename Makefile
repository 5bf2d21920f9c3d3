# The commands of a newcomer and of CI. Each sets up what it needs in .venv; only Python 3.11 or newer is taken for granted.
PYTHON ?= python3
OLDEST_GRPCIO ?= 1.63.0
BIN = .venv/bin
OLDEST = .venv-oldest/bin
PYTEST = -m pytest -p no:cacheprovider
SHORT = tests/aio tests/connection tests/interop -m "not slow"

.PHONY: help demo test test-modes test-oldest check bench wheel clean

help:
	@echo "make demo        the channel against a server that fails in every way, with figures"
	@echo "make test        all tests"
	@echo "make test-modes  the short tests under uvloop, python -X dev -W error and python -O"
	@echo "make test-oldest the short tests on the oldest grpcio that is supported ($(OLDEST_GRPCIO))"
	@echo "make check       format, lint, types, layers"
	@echo "make bench       beside plain grpc.aio and others: a call, connections to a flapping server, a delay"
	@echo "make wheel       build the wheel and try it in an environment of its own"

.venv/made: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "grpc-backoff needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable . --group check
	@touch $@

.venv-oldest/made: pyproject.toml
	$(PYTHON) -m venv .venv-oldest
	$(OLDEST)/python -m pip install --quiet --upgrade pip
	$(OLDEST)/python -m pip install --quiet --editable . --group test grpcio==$(OLDEST_GRPCIO) grpcio-tools==$(OLDEST_GRPCIO)
	@touch $@

demo: .venv/made
	$(BIN)/grpc-backoff demo

test: .venv/made
	$(BIN)/python $(PYTEST)

test-modes: .venv/made
	$(BIN)/python $(PYTEST) $(SHORT) --loop uvloop
	$(BIN)/python -X dev -W error $(PYTEST) $(SHORT)
	$(BIN)/python -O $(PYTEST) $(SHORT) -W ignore::pytest.PytestConfigWarning

test-oldest: .venv-oldest/made
	$(OLDEST)/python $(PYTEST) $(SHORT)

check: .venv/made
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/made
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.flapping
	$(BIN)/python -m benchmarks.policy

wheel: .venv/made
	rm -rf dist .venv-wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet "$$(ls dist/*.whl)[demo]"
	cd dist && ../.venv-wheel/bin/grpc-backoff --version && ../.venv-wheel/bin/grpc-backoff demo

clean:
	rm -rf .venv .venv-oldest .venv-wheel dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
