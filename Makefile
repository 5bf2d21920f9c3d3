# The commands that contributors and CI run. Each target creates the environment it needs; only Python 3.11 or newer must be installed.
PYTHON ?= python3
PYTHONS ?= 3.12 3.13 3.14 3.15
OLDEST_GRPCIO ?= 1.63.0
ACTIONLINT = v1.7.12
BIN = .venv/bin
OLDEST = .venv-oldest/bin
CLIENTS = .venv-clients/bin
# Servers of other projects, which the targets `interop-short` and `interop-full` test.
OTHERS = $(addprefix tests/interop_suite/servers/test_,servers.py proxies.py hedging.py)
# The build of Caddy takes four minutes of CPU, so only `interop-full` needs it; the other proxies are installed.
CADDY = tests/proxies/caddy/caddy
# Most tests wait for real time to pass, so they run with more workers than there are cores. A worker that has nothing left
# to do takes over tests of another: with whole files, the slowest would run at the end, while the other workers wait.
# They start hundreds of interpreters, which would compile the library again and again if Python kept no bytecode.
export PYTHONDONTWRITEBYTECODE =
PYTEST = -m pytest -p no:cacheprovider -n 5 --dist worksteal $(patsubst %,--ignore=%,$(OTHERS))
# Plain grpc runs the tests of both APIs in `make test`, which is often enough.
OURS = -m "not slow" -k "not asyncio-plain and not threads-plain"
# With -O, the tests' own assertions are checked all the same; pytest warns that others are not.
UNASSERTED = -W ignore::pytest.PytestConfigWarning
SHORT = tests/aio tests/both_apis tests/interop $(OURS)
BESIDE = tests/aio tests/sync tests/both_apis tests/decide tests/policy -m "not slow"

# The parts of `make test`, each for a job of its own: `make test-part PART=channels`. The last has all that is not in another.
PART_channels = tests/aio tests/both_apis tests/decide/connections tests/engine tests/grpcio tests/interop tests/sync
PART_interop_suite = tests/interop_suite
PART_rest = tests $(patsubst %,--ignore=%,$(PART_channels) $(PART_interop_suite))
PART ?= rest

# The channel against real servers, two at a time, so that each has a core; the short run's mostly wait.
SERVERS = -m pytest -p no:cacheprovider -n 2 --dist load $(OTHERS)

LEDGER = kills inbox orders orchestrators unlocked claims submits latency deliveries wake-ups replay faults steady idle

.PHONY: help demo test test-part test-modes test-oldest test-pythons test-clients check check-workflows interop interop-peers interop-short interop-servers interop-full interop-verify interop-mutants interop-mutants-short interop-official protos docs recording bench ledger-full endurance wheel clean

help:
	@echo "make demo        run a channel against a server that fails in many ways, then the ledger demo"
	@echo "make test        run all tests"
	@echo "make test-part   run a part of the tests, as CI does: PART=channels, interop_suite or rest"
	@echo "make test-modes  run the short tests on uvloop, in Python's development mode and with -O"
	@echo "make test-oldest run the short tests on the oldest supported grpcio ($(OLDEST_GRPCIO))"
	@echo "make test-pythons  run the short tests on Python $(PYTHONS); needs uv, which installs missing versions"
	@echo "make test-clients  test third-party client libraries and tracers on our channels"
	@echo "make check       check format, lint, types, layers and spelling"
	@echo "make check-workflows  check the GitHub workflows; needs Go"
	@echo "make interop     test gRPC clients in six languages against a failing server, rule by rule; several minutes"
	@echo "make interop-peers     build these clients, and the servers in other languages"
	@echo "make interop-short     test two behaviours of each client and server, as in CI; three minutes plus the builds"
	@echo "make interop-servers   test our channel on all servers that can be built, and write their tables; ten minutes"
	@echo "make interop-full      run the conformance matrix and write docs/conformance; 25 minutes"
	@echo "make interop-verify    run the matrix again and compare it with the committed results; 20 minutes"
	@echo "make interop-mutants   test the judge with every defect of the reference client; MUTANTS=--full for the long run"
	@echo "make interop-mutants-short  test the judge with some of the defects, as in CI"
	@echo "make interop-official  run gRPC's own reconnect test programs; nine minutes"
	@echo "make protos      regenerate the code from protos/"
	@echo "make docs        build the documentation site in build/docs; fails on a broken link"
	@echo "make recording   record the demo in a terminal and write docs/images/demo.svg; needs Node.js"
	@echo "make bench       benchmark against plain grpc.aio and others; 15 minutes, or BENCH=--quick to try it"
	@echo "make ledger-full stress and measure the ledger: kills, races, 64 processes, rates, faults; 2.5 hours"
	@echo "make endurance   check 10,000 channels, 1,000 event loops, 1,000 forks, 1,000 replacements of a connection, and channels with several connections; as root; 25 minutes"
	@echo "make wheel       build and check the sdists and wheels of both distributions, and try the wheels in a new environment"

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

.venv-clients/made: pyproject.toml
	$(PYTHON) -m venv .venv-clients
	$(CLIENTS)/python -m pip install --quiet --upgrade pip
	$(CLIENTS)/python -m pip install --quiet --editable . --editable ./interop --group clients
	@touch $@

.venv-docs/made: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --upgrade pip
	.venv-docs/bin/python -m pip install --quiet --group docs
	@touch $@

.venv-protos/made: pyproject.toml
	$(PYTHON) -m venv .venv-protos
	.venv-protos/bin/python -m pip install --quiet --upgrade pip
	.venv-protos/bin/python -m pip install --quiet --group protos
	@touch $@

demo: .venv/made
	$(BIN)/python -m examples.demo
	$(BIN)/python -m examples.ledger

test: .venv/made
	$(BIN)/python $(PYTEST)

test-part: .venv/made
	$(BIN)/python $(PYTEST) $(PART_$(PART))

test-modes: .venv/made
	$(BIN)/python $(PYTEST) $(SHORT) --loop uvloop
	PYTHONDEVMODE=1 PYTHONWARNINGS=error PYTHONOPTIMIZE=1 $(BIN)/python $(PYTEST) tests/aio tests/both_apis $(OURS) $(UNASSERTED)

test-oldest: .venv-oldest/made
	$(OLDEST)/python $(PYTEST) tests/interop_suite/official/test_generated.py tests/interop_suite/official/test_wire.py tests/sync tests/test_server.py $(SHORT)

test-pythons:
	@for python in $(PYTHONS); do \
	    uv venv --quiet --allow-existing --python $$python .venv-$$python \
	    && uv pip install --quiet --python .venv-$$python --editable . --group test \
	    && .venv-$$python/bin/python -VV \
	    && .venv-$$python/bin/python $(PYTEST) $(BESIDE) || exit 1; \
	done

test-clients: .venv-clients/made
	$(CLIENTS)/python $(PYTEST) -n 4 --dist loadfile -p no:ddtrace tests/clients

check: .venv/made
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/pymarkdown scan --recurse docs README.md CONTRIBUTING.md

check-workflows:
	go run github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT)

interop: .venv/made
	$(BIN)/python -m interop run $(INTEROP)

interop-peers: .venv/made
	$(BIN)/python -m interop build

interop-short: .venv/made
	GRPC_BACKOFF_REQUIRE_PEERS=1 $(BIN)/python -m interop build --servers
	GRPC_BACKOFF_REQUIRE_PEERS=1 $(BIN)/python -m interop run --short
	GRPC_BACKOFF_REQUIRE_PEERS=1 $(BIN)/python $(SERVERS) -n 3 -m "not slow"

interop-servers: .venv/made
	PYTHONPATH=interop $(BIN)/python -m tests.interop_suite.servers $(ONLY)

# gRPC's own programs mostly sleep for nine minutes, so they run at the same time as the rest.
interop-full: .venv/made $(CADDY)
	@export GRPC_BACKOFF_REQUIRE_PEERS=1; \
	$(BIN)/python -m interop build --full || exit 1; \
	$(BIN)/python -m interop official & official=$$!; \
	trap 'kill $$official' INT TERM; \
	$(BIN)/python -m interop run --full --report docs/conformance; matrix=$$?; \
	$(BIN)/python $(SERVERS); servers=$$?; \
	wait $$official && [ $$matrix$$servers = 00 ]

$(CADDY): tests/proxies/caddy/main.go tests/proxies/caddy/go.sum
	cd tests/proxies/caddy && go build -buildvcs=false -o caddy .

interop-verify: .venv/made
	GRPC_BACKOFF_REQUIRE_PEERS=1 $(BIN)/python -m interop verify docs/conformance/results.json

interop-mutants: .venv/made
	$(BIN)/python -m interop mutants $(MUTANTS)

interop-mutants-short: .venv/made
	$(BIN)/python -m interop mutants --short

interop-official: .venv/made
	GRPC_BACKOFF_REQUIRE_PEERS=1 $(BIN)/python -m interop official

protos: .venv-protos/made
	cd interop && ../.venv-protos/bin/python -m grpc_judge.generate

docs: .venv-docs/made
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

recording: .venv/made
	$(BIN)/python -m pip install --quiet --group recording
	$(BIN)/python -m examples.recording

bench: .venv/made
	$(BIN)/python -m benchmarks $(BENCH)

ledger-full: .venv/made
	$(BIN)/python -m pip install --quiet --group bench
	for what in $(LEDGER); do $(BIN)/python -m benchmarks.ledger $$what || exit 1; done

endurance: .venv/made
	for what in channels loops forks "forks --dialling"; do $(BIN)/python -m benchmarks.endurance $$what || exit 1; done
	for what in kills burst replacements returns rotations rollout; do $(BIN)/python -m benchmarks.pool $$what || exit 1; done
	for what in quiet silence; do $(BIN)/python -m benchmarks.$$what || exit 1; done

wheel: .venv/made
	rm -rf dist .venv-wheel
	$(BIN)/python -m build --outdir dist . >/dev/null
	$(BIN)/python -m build --outdir dist interop >/dev/null
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet "$$(ls dist/grpc_backoff-*.whl)[cli]"
	cd examples && ../.venv-wheel/bin/grpc-backoff --version && ../.venv-wheel/bin/python -m demo
	.venv-wheel/bin/python -m pip install --quiet dist/grpc_backoff_interop-*.whl
	cd examples && ../.venv-wheel/bin/grpc-judge --version && ../.venv-wheel/bin/grpc-judge explain CB-5 \
	    && ../.venv-wheel/bin/grpc-judge run --peers grpcio_aio --rules CB-3,start-to-start

clean:
	rm -rf .venv .venv-* dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
