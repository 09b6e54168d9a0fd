"""The suite through Spark Connect: what the client does reaches a server of Spark's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.conformance.cases import Cases
from tests.conformance.engines import Engine, OnSpark
from tests.conformance.pipelined import loads_the_same_as_in_process
from tests.conformance.shipped import bare_python, packed_environment, shipped_round
from tests.conformance.streamed import copies_and_merges_exactly_once
from tests.support.loads import make_table
from tests.support.process import REPOSITORY
from tests.support.spark_process import SparkProcess

# The first test waits for JVMs, which take long where others work, too. Run by make test-long.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

_ADDRESS = "sc://localhost:15002"  # that of every server which PySpark starts for local mode
_TOKEN = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": "of these tests"}


@pytest.fixture(scope="class")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server finds PyIceberg's configuration."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="class")  # all servers of local mode have the same port: one at a time
def process(home: Path) -> Iterator[SparkProcess]:
    """A session of Spark Connect."""
    env = {"PYICEBERG_HOME": str(home), "PYTHONPATH": str(REPOSITORY), **_TOKEN}
    with SparkProcess(remote="local[2]", memory="64MB", env=env) as running:
        yield running


@pytest.fixture(scope="class")
def engine(process: SparkProcess) -> Engine:
    """The same, as the suite wants it."""
    return OnSpark(process)


class TestSparkConnect(Cases):
    """See `Cases`."""

    @pytest.mark.soak
    def test_streams_are_exactly_once(
        self, process: SparkProcess, catalog: SqlCatalog, home: Path, tmp_path: Path
    ) -> None:
        known = "".join(f"    {name}: {value}\n" for name, value in catalog.properties.items())
        (home / ".pyiceberg.yaml").write_text(f"catalog:\n  {catalog.name}:\n{known}")
        copies_and_merges_exactly_once(process, catalog, tmp_path, configured=catalog.name)

    def test_a_pipeline_does_the_same_as_in_process(
        self, process: SparkProcess, tmp_path: Path
    ) -> None:
        loads_the_same_as_in_process(process, tmp_path, remote="local[2]")

    def test_a_pipeline_finds_a_server_by_its_address(
        self, process: SparkProcess, tmp_path: Path
    ) -> None:
        with SparkProcess(remote=_ADDRESS, memory="64MB", env=_TOKEN) as client:
            loads_the_same_as_in_process(client, tmp_path, remote=_ADDRESS)


@pytest.mark.soak
@pytest.mark.parametrize("packed", [False, True], ids=["code", "environment"])
def test_a_server_without_icestream_gets_it_from_the_client(
    catalog: SqlCatalog, tmp_path: Path, packed: bool
) -> None:
    make_table(catalog)
    archive = str(packed_environment(tmp_path / "packed")) if packed else None
    python = str(bare_python(tmp_path / "bare"))
    with SparkProcess(
        remote="local[2]",
        memory="64MB",
        env={"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python},
    ) as process:
        failure, ids = process.call(
            shipped_round, dict(catalog.properties), "db.t", environment=archive
        )
    assert "No module named 'icestream'" in failure
    assert ids == list(range(300))
