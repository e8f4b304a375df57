# Needs Python 3.11 or newer with pip, and make; everything else is installed into .venv from requirements.lock.

PYTHON ?= python3
BIN := .venv/bin
JOBS ?= 4
READY := .venv/.ready
DOCS := .venv-docs

.PHONY: setup packages demo test test-fast lint types docs lock histories bench chaos fuzz clean

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

# The Debian packages that tests need, where it may install them; else says which tests are skipped. INSTALL=no only looks.
packages:
	@INSTALL=$(INSTALL) .ci/packages

demo: setup
	$(BIN)/holdfast demo

# As many at a time as JOBS says, then one by one those that measure. What fails is run once more, alone; what then
# passes is named in the end as flaky. With the slowest thirty: make test SLOWEST=30
test: setup packages
	$(BIN)/python -m tests.run $(JOBS) $(SLOWEST:%=--slowest %)

# What needs no server: the unit tests and the stored histories.
test-fast: setup
	$(BIN)/python -m tests.run 2 --fast $(SLOWEST:%=--slowest %)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy -n 2

# The documentation as a site in build/site, with the references made from the code and every link checked.
docs: setup $(DOCS)/.ready
	$(BIN)/python -m tests.docs.build $(DOCS)/bin/zensical

$(DOCS)/.ready: requirements-docs.lock
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	touch $@

# Records the histories that tests/replay replays; old ones stay.
histories: setup
	$(BIN)/python -m tests.replay.record

# Our turns beside a hand-written workflow and the peers, in the same run; then what the parts cost.
bench: setup
	$(BIN)/python -m tests.bench.compare
	$(BIN)/python -m tests.bench.judging
	$(BIN)/python -m tests.bench.ledger
	$(BIN)/python -m tests.bench.encryption
	$(BIN)/python -m tests.bench.turns

# Turns whose effects are counted outside, while everything dies around them: make chaos SEED=7 CALLS=520 KILLS=300
# Then turns of a worker that gets almost no processor time for STARVE seconds.
STARVE ?= 60
chaos: setup
	$(BIN)/python -m tests.chaos.harness $(SEED:%=--seed %) $(CALLS:%=--calls %) $(KILLS:%=--kills %)
	$(BIN)/python -m tests.chaos.starvation --seconds $(STARVE)

# Commands against bash, and damaged decisions: for an hour, or make fuzz SECONDS=60 SEED=7
fuzz: setup
	$(BIN)/python -m tests.fuzz $(SECONDS:%=--seconds %) $(SEED:%=--seed %)

# Pins every dependency with its hashes, and no address; then says which of them the image needs.
COMPILE = $(BIN)/pip-compile --quiet --allow-unsafe --generate-hashes --strip-extras --no-header \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-annotate
lock: setup
	$(BIN)/python -m pip install --quiet pip-tools
	$(COMPILE) --extra dev --output-file requirements.lock pyproject.toml
	$(COMPILE) --output-file requirements-docs.lock requirements-docs.in
	$(BIN)/python -m tests.deploy.packages

clean:
	rm -rf .venv .venv-docs .cache build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
