# Two commands on a fresh machine: `make demo` and `make test`. Everything comes from PyPI.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := .venv-peers
PEERS_STAMP := $(PEERS)/.installed
JAVA := .venv-interop
JAVA_STAMP := $(JAVA)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test lint format bench bench-spark bench-quick peers java interop soak clean

help:  ## What there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[spark,peers,dev]'
	@touch $@

install: $(STAMP)  ## The environment, in .venv

demo: install  ## Load a table through Spark, stream it under a limit beside PyIceberg, aggregate it
	$(BIN)/python examples/demo.py

test: install  ## All tests
	$(BIN)/python -m pytest -n 2 --dist loadfile --ignore tests/memory --ignore tests/spark/test_memory.py
	$(BIN)/python -m pytest tests/memory tests/spark/test_memory.py

lint: install  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: install  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(PEERS_STAMP): benchmarks/peers-requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --requirement benchmarks/peers-requirements.txt
	@touch $@

peers: install $(PEERS_STAMP)  ## The environment of the peers (Polars, Daft, DuckDB), in .venv-peers

$(JAVA_STAMP): tests/interop/java-requirements.txt
	$(PYTHON) -m venv $(JAVA)
	$(JAVA)/bin/python -m pip install --quiet --requirement $< --editable '.[spark]'
	@touch $@

java: $(JAVA_STAMP)  ## Iceberg's Java runtime: Spark in .venv-interop, jars from Maven Central in .interop
	$(JAVA)/bin/python -m tests.interop.fetch_jars

interop: peers java  ## What we write is read by Polars, Daft, DuckDB and Java, and the other way round
	$(BIN)/python -m pytest -m interop

bench: install  ## The benchmark tables at full size (minutes, and 10 GB of disk); BENCH="--sets a b"
	$(BIN)/python -m benchmarks.run $(BENCH)
	$(BIN)/python -m benchmarks.write
	$(BIN)/python -m benchmarks.merge

bench-spark: install  ## Spark through icestream, beside Spark alone and (after make java) Iceberg's runtime
	$(BIN)/python -m benchmarks.spark $(BENCH)

bench-quick: install  ## The same at a hundredth of the size
	$(BIN)/python -m benchmarks.run --quick
	$(BIN)/python -m benchmarks.write --quick
	$(BIN)/python -m benchmarks.merge --quick

soak: install  ## The long versions of the memory tests
	$(BIN)/python -m pytest -m slow

clean:  ## Remove what the targets above made
	rm -rf $(VENV) $(PEERS) $(JAVA) .interop .bench .demo
