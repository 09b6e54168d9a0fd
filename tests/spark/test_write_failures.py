"""Tasks that fail, and attempts that lose: nothing twice, nothing lost, nothing left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import functions as sf

import icestream as ice
import icestream.spark as ice_spark
from icestream.memory.budget import MemoryBudget
from icestream.operations.write_files import write_stream
from icestream.spark.writing.table_write import PlannedWrite
from tests.support.process import run_in_fresh_process
from tests.support.spark_orders import ORDERS, order_ids, orders
from tests.support.spark_retries import failing_loads, failing_writes

# Four writes and a Spark of their own, on a machine that may be busy.
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What became of the writes; they need a Spark of their own."""
    folder = tmp_path_factory.mktemp("retries")
    return run_in_fresh_process(failing_writes, str(folder), timeout_seconds=400).result


@pytest.fixture(scope="module")
def loads(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What became of loads whose tasks read the files."""
    folder = tmp_path_factory.mktemp("loads")
    return run_in_fresh_process(failing_loads, str(folder), timeout_seconds=400).result


@pytest.mark.slow
@pytest.mark.parametrize("how", ["helper", "format"])
def test_a_task_that_fails_once_is_tried_again_and_rows_are_exact(
    outcomes: dict[str, dict[str, Any]], how: str
) -> None:
    _check_once(outcomes[f"{how} once"])


@pytest.mark.slow
@pytest.mark.parametrize("times", ["once", "kill"])
def test_a_load_whose_task_fails_or_is_killed_once_is_exact_and_leaves_nothing(
    loads: dict[str, dict[str, Any]], times: str
) -> None:
    _check_once(loads[f"load {times}"])


def _check_once(outcome: dict[str, Any]) -> None:
    assert outcome["error"] is None, outcome["message"]
    assert outcome["failures"] == 1, "with files in storage"
    assert outcome["exact"]
    assert outcome["snapshots"] == 1
    assert outcome["files not in the table"] == []
    assert outcome["markers"] == []


@pytest.mark.slow
@pytest.mark.parametrize("how", ["helper", "format"])
def test_a_task_that_always_fails_changes_nothing_and_leaves_nothing(
    outcomes: dict[str, dict[str, Any]], how: str
) -> None:
    _check_always(outcomes[f"{how} always"])


@pytest.mark.slow
def test_a_load_whose_task_always_fails_changes_nothing_and_leaves_nothing(
    loads: dict[str, dict[str, Any]],
) -> None:
    outcome = loads["load always"]
    _check_always(outcome)
    assert outcome["error"] == "TaskFailedError"


def _check_always(outcome: dict[str, Any]) -> None:
    assert outcome["failures"] == 2, "with files in storage, both times"
    assert "the second task fails late" in outcome["message"]
    assert (outcome["rows"], outcome["snapshots"]) == (0, 0)
    assert outcome["files not in the table"] == []
    assert outcome["markers"] == []


@pytest.mark.slow
def test_the_caller_gets_a_typed_error_with_sparks_as_its_cause(
    outcomes: dict[str, dict[str, Any]],
) -> None:
    outcome = outcomes["helper always"]
    assert outcome["error"] == "TaskFailedError"
    assert outcome["cause"] == "PythonException"


@pytest.mark.slow
def test_an_error_of_ours_arrives_whole(spark: Any, catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.strict", pa.schema([pa.field("id", pa.int64(), False)]))
    frame = spark.range(9).select(sf.when(sf.col("id") != 7, sf.col("id")).alias("id"))
    with pytest.raises(ice.InvalidDataError) as caught:
        ice_spark.append(frame, table)
    assert caught.value.column == "id"
    assert "icestream-error" not in str(caught.value)
    assert type(caught.value.__cause__).__name__ == "PythonException"


@pytest.mark.slow
def test_a_task_says_that_its_memory_is_too_small(spark: Any, catalog: SqlCatalog) -> None:
    catalog.create_table("db.orders", ORDERS)
    with pytest.raises(ice.MemoryBudgetError) as caught:
        ice_spark.append(orders(spark, 50_000), "db.orders", catalog=catalog, memory=1000)
    assert caught.value.limit_bytes == 1000


@pytest.mark.slow
def test_files_of_an_attempt_that_lost_are_not_committed_and_are_found_as_orphans(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("db.orders", ORDERS)
    commit = PlannedWrite.commit
    left: list[str] = []

    def commit_beside_a_loser(self: PlannedWrite, *arguments: Any) -> ice.WriteReport:
        # What a speculative attempt leaves that was killed after its files were written.
        rows = orders(spark, 10, tasks=1).toArrow()
        loser = write_stream(
            self.target.for_task(0, 999_999),
            rows,
            budget=MemoryBudget(10**8),
            schema_mode="freeze",
            shared=True,
        )
        left.extend(file.path for file in loser.files)
        return commit(self, *arguments)

    monkeypatch.setattr(PlannedWrite, "commit", commit_beside_a_loser)
    ice_spark.append(orders(spark, 100), table)
    assert order_ids(table) == list(range(100))
    found = ice.orphans(table, older_than=0)
    assert {Path(file.path).name for file in found.files} == {Path(path).name for path in left}
    assert len(left) == 1
    ice.orphans(table, older_than=0, delete=True)
    assert not Path(left[0].removeprefix("file://")).exists()
    assert order_ids(table) == list(range(100))
