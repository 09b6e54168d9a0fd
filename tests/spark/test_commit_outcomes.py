"""Commits of frames that happened and are called refused, or may still land: no file is lost.

Every verb x every error of a catalog x committed or not x retries x look-ups that fail. The job of
a verb runs once, and its commit many times. What commits in a process of Spark's own (the sinks) is
called here as Spark calls it, and once by Spark itself.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

import icestream as ice
import icestream.spark as ice_spark
from icestream.spark.arrow.types import spark_schema
from icestream.spark.data_source import IcestreamSource
from icestream.spark.errors import typed
from icestream.spark.format.sink import IcestreamWriter, SinkOptions
from icestream.spark.setup.settings import SessionDefaults
from icestream.spark.streaming.stream_sink import IcestreamStreamWriter
from tests.spark.recorded_job import RecordedJob
from tests.support.commit_faults import (
    CLASSES,
    ERRORS,
    START,
    WAITS,
    Case,
    FailingCatalog,
    Trial,
    Verb,
    check_creation,
)
from tests.support.loads import ids, ids_of, listing, make_table, markers_of
from tests.support.merges import MODES
from tests.support.spark_stream import catalog_options
from tests.support.stored import folder_of, referenced_files, stored_files
from tests.support.tables import make_catalog

_DDL = "id long, part long, text string"
_MERGED = [(1, 7, "text 1"), (9, 7, "text 9")]
_RETRIES = ("0", "1", None)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path_factory.mktemp("outcomes"))
    yield catalog
    catalog.close()


@pytest.fixture(scope="module")
def trial(catalog: SqlCatalog) -> Trial:
    return Trial.on(catalog)


def _in_session(job: Callable[[Table], object], expected: list[int], markers: int = 1) -> Verb:
    """A verb that commits in the process of the session."""
    recorded = RecordedJob()

    def run(table: Table) -> None:
        with recorded.used():
            job(table)

    return Verb(run, expected, markers)


def _through(
    sink: Callable[[str, pa.Table], object], expected: list[int], markers: int = 1
) -> Verb:
    """A verb that commits in a process of Spark's, with a catalog that it opens."""

    def run(table: Table) -> None:
        with mock.patch.object(SinkOptions, "open_catalog", return_value=table.catalog):
            sink(".".join(table.name()), ids(6, 8))

    return Verb(run, expected, markers)


def _save(name: str, rows: pa.Table, *, overwrite: bool = False, **options: str) -> None:
    """What Spark does for `df.write.format("icestream").save(name)`, with a job of one task."""
    schema = spark_schema(rows.schema, table=name)
    planned = IcestreamWriter({"path": name, **options}, schema, overwrite)
    task, writer = (pickle.loads(pickle.dumps(planned)) for _ in range(2))
    _commit(writer, [task.write(iter(rows.to_batches()))])


def _save_batch(name: str, rows: pa.Table) -> None:
    """What it does for a micro-batch of `df.writeStream.format("icestream")`."""
    given = {"path": name, "stream-id": "orders"}
    schema = spark_schema(rows.schema, table=name)
    planned, writer = (
        IcestreamStreamWriter(given, schema, False, SessionDefaults()) for _ in range(2)
    )
    task = pickle.loads(pickle.dumps(planned))
    _commit(writer, [task.write(iter(rows.to_batches()))], 0)


def _commit(writer: Any, messages: list[Any], *batch_id: int) -> None:
    try:
        writer.commit(messages, *batch_id)
    except Exception:
        writer.abort(messages, *batch_id)
        raise


_SINKS = {
    "save": _through(_save, [*START, 6, 7]),
    "save over": _through(
        partial(_save, overwrite=True, **{"overwrite-where": "id < 2"}), [*range(2, 8)], markers=2
    ),
    "save a batch": _through(_save_batch, [*START, 6, 7]),
}
_HELPERS = ("append", "append with an id", "overwrite", *MODES, "merge batches")
_VERBS = (*_HELPERS, *_SINKS)


@pytest.fixture(scope="module")
def merged(running_spark: Any) -> Any:
    """Rows of which one is in the table."""
    return running_spark.createDataFrame(_MERGED, _DDL).coalesce(1)


@pytest.fixture(scope="module")
def verbs(running_spark: Any, merged: Any) -> dict[str, Verb]:
    """What every verb does to ids 0 to 5."""
    appended = running_spark.createDataFrame(ids(6, 8).to_pandas(), _DDL).coalesce(1)
    after_merge = [*START, 9]

    def merge_batch(table: Table) -> None:
        ice_spark.merge_batches(table, on="id", stream_id="orders")(merged, 0)

    return {
        "append": _in_session(lambda t: ice_spark.append(appended, t), [*START, 6, 7]),
        "append with an id": _in_session(
            lambda t: ice_spark.append(appended, t, load_id="x"), [*START, 6, 7]
        ),
        "overwrite": _in_session(
            lambda t: ice_spark.overwrite(appended, t, where="id < 2"), [*range(2, 8)], markers=2
        ),
        **{
            mode: _in_session(
                lambda t, m=mode: ice_spark.merge(merged, t, on="id", write_mode=m), after_merge
            )
            for mode in MODES
        },
        "merge batches": _in_session(merge_batch, after_merge),
        **_SINKS,
    }


def _marks(verb: str, error: str, retries: str | None) -> tuple[Any, ...]:
    """Each verb runs at any time, each error in the longer tests, and the rest at night."""
    number, place = _VERBS.index(verb), list(ERRORS).index(error)
    if error == CLASSES[number % len(CLASSES)] and retries == _turn(number):
        return ()
    is_next = verb == _VERBS[place % len(_VERBS)] and retries == _turn(place)
    return (pytest.mark.slow if is_next and error not in CLASSES else pytest.mark.soak,)


def _turn(number: int) -> str | None:
    """A number of retries, another one for each verb's next error."""
    rounds = number // len(_RETRIES) + number // len(_VERBS)
    return _RETRIES[(rounds + number) % len(_RETRIES)]


@pytest.mark.parametrize(
    ("verb", "error", "retries"),
    [
        pytest.param(*each, marks=_marks(*each), id="-".join(part or "default" for part in each))
        for each in itertools.product(_VERBS, ERRORS, _RETRIES)
    ],
)
def test_all_of_it(
    trial: Trial, verbs: dict[str, Verb], verb: str, error: str, retries: str | None
) -> None:
    trial.check_all(verbs[verb], error, retries)


@pytest.mark.parametrize("verb", ["save a batch", "merge batches"])
@pytest.mark.parametrize("late", [True, False], ids=["lands late", "has landed"])
def test_a_micro_batch_of_unknown_outcome_that_runs_again_is_there_once(
    catalog: SqlCatalog, trial: Trial, verbs: dict[str, Verb], merged: Any, verb: str, late: bool
) -> None:
    table = catalog.register_table(f"db.{verb.replace(' ', '_')}_{late}", trial.stored["0"])
    case = Case(commits=not late, always=True, unreachable=True, remote=True)
    faulty = case.faulty(catalog, ERRORS["read timeout"])
    with faulty, pytest.raises(ice.CommitUnknownError):
        verbs[verb].run(table)
    if verb == "merge batches":  # The recorded files would be those of the first run.
        ice_spark.merge_batches(table, on="id", stream_id="orders")(merged, 0)
    else:
        verbs[verb].run(table)
    if late:
        with pytest.raises(CommitFailedException):
            faulty.land_late()
    assert ids_of(table) == verbs[verb].expected
    assert referenced_files(table) <= stored_files(folder_of(table))
    catalog.drop_table(table.name())


_SOON = ("conflict", "403")


def _create(catalog: SqlCatalog, name: str) -> None:
    with mock.patch.object(SinkOptions, "open_catalog", return_value=catalog):
        waits = {f"table-property.{key}": value for key, value in WAITS.items()}
        _save(name, ids(0, 3), create="true", **waits)


@pytest.mark.parametrize(
    "error",
    [pytest.param(name, marks=() if name in _SOON else pytest.mark.slow) for name in ERRORS],
)
def test_a_creation_beside_each_error(catalog: SqlCatalog, error: str) -> None:
    for commits, unreachable, remote in itertools.product([True, False], repeat=3):
        if not (remote and (commits or unreachable)):
            case = Case(commits, True, unreachable, remote)
            check_creation(catalog, _create, ERRORS[error], case)


@pytest.mark.parametrize("how", ["append", "merge"])
@pytest.mark.parametrize("commits", [True, False], ids=["committed", "may still land"])
def test_a_table_that_is_created_keeps_its_first_rows(
    spark: Any, catalog: SqlCatalog, how: str, commits: bool
) -> None:
    frame = spark.createDataFrame(ids(0, 3).to_pandas(), _DDL).coalesce(1)

    def create(catalog: SqlCatalog, name: str) -> None:
        options = {"catalog": catalog, "create": True, "table_properties": WAITS}
        if how == "append":
            ice_spark.append(frame, name, **options)
        else:
            ice_spark.merge(frame, name, on="id", **options)

    check_creation(catalog, create, ERRORS["403"], Case(commits, True, False, True))


_OUTCOMES = {"committed": None, "refused": ice.CommitError, "unreachable": ice.CommitUnknownError}


@pytest.mark.parametrize(
    ("fault", "streamed"),
    [
        ("unreachable", False),
        ("refused", True),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in [
                ("unreachable", True),
                ("refused", False),
                ("committed", False),
                ("committed", True),
            ]
        ),
    ],
)
def test_spark_itself_commits(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, fault: str, streamed: bool
) -> None:
    """The sinks, in the processes that Spark starts for them, with its own calls of abort."""
    spark.dataSource.register(IcestreamSource)
    name = f"db.{fault}_{streamed}"
    table = make_table(catalog, name, commit__status_check__num_retries="1")
    impl = f"{FailingCatalog.__module__}.{FailingCatalog.__name__}"
    options = catalog_options(catalog, stream_id="orders") if streamed else catalog_options(catalog)
    options |= {"catalog.py-catalog-impl": impl, "catalog.fault": fault}
    raised: BaseException | None = None
    try:
        _write_by_spark(spark, tmp_path if streamed else None, name, options)
    except Exception as error:
        raised = typed(error)
    assert type(raised) is (_OUTCOMES[fault] or type(None)), raised
    assert ids_of(table) == ([] if fault == "refused" else [0, 1, 2])
    assert len(markers_of(table)) == (fault == "unreachable")
    assert referenced_files(table) <= stored_files(folder_of(table))
    if fault == "refused":
        assert not listing(table)


def _write_by_spark(spark: Any, stream: Path | None, name: str, options: dict[str, str]) -> None:
    rows = ids(0, 3)
    if stream is None:
        frame = spark.createDataFrame(rows.to_pandas(), _DDL).coalesce(1)
        frame.write.format("icestream").options(**options).mode("append").save(name)
        return
    (stream / "incoming").mkdir()
    pq.write_table(rows, stream / "incoming" / "rows.parquet")
    frame = spark.readStream.schema(_DDL).parquet(str(stream / "incoming"))
    writer = frame.writeStream.format("icestream").options(**options)
    writer = writer.option("checkpointLocation", str(stream / "checkpoint"))
    writer.trigger(availableNow=True).start(name).awaitTermination()
