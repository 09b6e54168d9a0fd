"""A load that fails at any point leaves the table as it was, and no file behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.commit import in_flight
from icestream.commit.committer import Committer
from icestream.commit.in_flight import InFlightWrite
from tests.fault import failing_io
from tests.fault.failing_io import Fault, failing
from tests.support.delete_files import commit_position_deletes
from tests.support.leaks import assert_no_leaks
from tests.support.loads import BY_PART, batch, ids, listing, make_table, markers_of, rows_of
from tests.support.stored import folder_of, stored_files
from tests.support.tables import data_file_paths, make_catalog

_ROLLING = {
    "write__target_file_size_bytes": "30000",
    "write__parquet__compression_codec": "uncompressed",
}
_BATCHES = 40


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path, **{"py-io-impl": failing_io.PATH})
    yield catalog
    catalog.close()


def _table(catalog: SqlCatalog, *, partitioned: bool = False) -> Table:
    """Ids 0 to 5 in two files, the first with a deleted row; files roll at 30 kB."""
    spec = {"spec": BY_PART} if partitioned else {}
    table = make_table(catalog, **spec, **_ROLLING)
    ice.append(table, batch([(0, 0), (1, 0), (2, 0)]))
    ice.append(table, batch([(3, 1), (4, 1), (5, 1)]))
    commit_position_deletes(table, {data_file_paths(table)[0]: [2]})
    return table


def _stream() -> Iterator[pa.RecordBatch]:
    """Batches that fill a file every few."""
    random = np.random.default_rng(1)
    for number in range(_BATCHES):
        numbers = pa.array(random.integers(100, 2**60, 500))
        yield pa.record_batch({"id": numbers, "part": pa.array([number % 4] * 500)})


_WRITES: dict[str, Callable[[Table, Any], Any]] = {
    "append": lambda table, source: ice.append(table, source),
    "overwrite": lambda table, source: ice.overwrite(table, source),
    "where": lambda table, source: ice.overwrite(table, source, where="id = 1 or id = 4"),
    "dynamic": lambda table, source: ice.overwrite(table, source, partitions="dynamic"),
    "transaction": lambda table, source: ice.append(table.transaction(), source),
    "write_files": lambda table, source: ice.write_files(table, source),
}


class _Unharmed:
    """The table must be as it was: rows, snapshots and files."""

    def __init__(self, table: Table, *, other_json: bool = False) -> None:
        self._table = table
        self._before = listing(table)
        self._all = stored_files(folder_of(table))
        self._head = table.refresh().metadata.current_snapshot_id
        self._other_json = other_json

    def check(self) -> None:
        assert listing(self._table) == self._before
        assert self._table.refresh().metadata.current_snapshot_id == self._head
        assert rows_of(self._table) == [(0, 0), (1, 0), (3, 1), (4, 1), (5, 1)]
        if not self._other_json:
            assert stored_files(folder_of(self._table)) == self._all
        ice.append(self._table, ids(9, 10))
        assert len(rows_of(self._table)) == 6


# The source


@pytest.mark.parametrize(
    ("at", "error"),
    [(0, RuntimeError), (1, RuntimeError), (-1, RuntimeError), (-1, KeyboardInterrupt)],
)
@pytest.mark.parametrize("write", ["append", "where", "dynamic"])
def test_a_source_that_raises_leaves_nothing(
    catalog: SqlCatalog, write: str, at: int, error: type[BaseException]
) -> None:
    """At the first batch, the second, and once files have been rolled."""
    table = _table(catalog, partitioned=write == "dynamic")
    unharmed = _Unharmed(table)
    before = listing(table)

    def source() -> Iterator[pa.RecordBatch]:
        for number, piece in enumerate(chain.from_iterable(_stream() for _ in range(8))):
            if number == at or len(listing(table) - before) > 2:  # the marker is one
                raise error("source")
            yield piece
        assert write == "dynamic"  # it may keep all rows in memory
        raise error("source")

    with pytest.raises(error, match="source"):
        _WRITES[write](table, source())
    unharmed.check()


@pytest.mark.parametrize("write", _WRITES)
def test_a_source_that_raises_after_its_last_batch_leaves_nothing(
    catalog: SqlCatalog, write: str
) -> None:
    table = _table(catalog, partitioned=write == "dynamic")
    unharmed = _Unharmed(table)

    def source() -> Iterator[pa.RecordBatch]:
        yield from _stream()
        assert len(markers_of(table)) == 1
        raise RuntimeError("source")

    with assert_no_leaks(), pytest.raises(RuntimeError, match="source"):
        _WRITES[write](table, source())
    unharmed.check()


def test_a_batch_of_another_schema_in_the_middle_leaves_nothing(catalog: SqlCatalog) -> None:
    table = _table(catalog)
    unharmed = _Unharmed(table)

    def source() -> Iterator[pa.RecordBatch]:
        yield from _stream()
        yield pa.record_batch({"id": ["x"], "part": ["y"]})

    with pytest.raises(ice.SchemaMismatchError, match="another schema"):
        ice.append(table, source())
    unharmed.check()


# Storage


def _data(path: str) -> bool:
    return "/data/" in path


def _marker(path: str) -> bool:
    return "in-flight" in path


def _manifest(path: str) -> bool:
    return path.endswith(".avro") and "snap-" not in path


def _manifest_list(path: str) -> bool:
    return path.endswith(".avro") and "snap-" in path


@pytest.mark.parametrize(
    ("which", "error"),
    [
        (_marker, ice.WriteError),
        (_data, ice.WriteError),
        (_manifest, ice.CommitError),
        (_manifest_list, ice.CommitError),
    ],
    ids=["marker", "data", "manifest", "manifest list"],
)
@pytest.mark.parametrize(
    ("write", "when"),
    [("append", "open"), ("append", "write"), ("append", "close"), ("where", "write")],
)
def test_a_full_disk_leaves_nothing(
    catalog: SqlCatalog,
    write: str,
    which: Callable[[str], bool],
    when: str,
    error: type[Exception],
) -> None:
    table = _table(catalog)
    unharmed = _Unharmed(table)
    with failing(Fault(which, when)) as fault, pytest.raises(error, match="No space left") as info:
        _WRITES[write](table, _stream())
    assert fault.raised
    if error is ice.WriteError:
        assert which(info.value.path)  # type: ignore[attr-defined]
    unharmed.check()


@pytest.mark.parametrize(
    ("write", "which"),
    [
        *((write, _data) for write in ("append", "overwrite", "dynamic", "transaction")),
        *((write, _manifest) for write in ("overwrite", "where", "dynamic")),
    ],
)
def test_a_disk_that_fills_up_later_leaves_nothing(
    catalog: SqlCatalog, write: str, which: Callable[[str], bool]
) -> None:
    table = _table(catalog, partitioned=write == "dynamic")
    unharmed = _Unharmed(table)
    after = 3 if which is _data else 1
    with (
        failing(Fault(which, "open", after=after)) as fault,
        pytest.raises(ice.IcestreamError, match="No space left"),
    ):
        _WRITES[write](table, _stream())
    assert fault.raised
    unharmed.check()


@pytest.mark.parametrize("when", ["open", "write"])
def test_a_full_disk_for_the_catalogs_own_metadata_leaves_nothing_of_ours(
    catalog: SqlCatalog, when: str
) -> None:
    """PyIceberg may leave a piece of its JSON file; all else is gone."""
    table = _table(catalog)
    unharmed = _Unharmed(table, other_json=True)
    which = Fault(lambda path: path.endswith(".metadata.json"), when)
    with failing(which), pytest.raises(ice.CommitError, match="the catalog refused the commit"):
        ice.append(table, _stream())
    unharmed.check()


def test_a_location_that_may_not_be_written_to_is_named(catalog: SqlCatalog) -> None:
    table = _table(catalog)
    unharmed = _Unharmed(table)

    def refuse() -> BaseException:
        return PermissionError(13, "Permission denied")

    with (
        failing(Fault(lambda _: True, "open", error=refuse)),
        pytest.raises(ice.WriteError, match=r"in-flight.*Permission denied.*may this process"),
    ):
        ice.append(table, _stream())
    unharmed.check()


def test_files_that_can_not_be_deleted_are_named_by_a_marker_that_stays(
    catalog: SqlCatalog,
) -> None:
    """The first error comes out, and `orphans` can find what is left."""
    table = _table(catalog)
    before = listing(table)
    with (
        failing(Fault(_data, "delete", error=lambda: PermissionError("no delete"))),
        failing(Fault(_manifest_list, "open")),
        pytest.raises(ice.CommitError, match="No space left"),
    ):
        ice.append(table, _stream())
    left = listing(table) - before
    (marker,) = markers_of(table)
    write_id = marker.split("in-flight-")[1].removesuffix(".marker")
    assert len(left) > 5
    assert all(write_id in name for name in left)


# Interrupts


_STAGES = [
    "icestream.operations.write_operation.TableWriter.close",
    "icestream.operations.row_changes.MatchingRemoved.apply",
    "icestream.commit.committer.attempt",
    "icestream.commit.snapshot.producer.write_manifest",
    "icestream.commit.snapshot.producer.write_manifest_list",
    "icestream.commit.snapshot.producer.summarize",
]


@pytest.mark.parametrize("stage", _STAGES)
def test_ctrl_c_before_the_commit_leaves_nothing(catalog: SqlCatalog, stage: str) -> None:
    table = _table(catalog)
    unharmed = _Unharmed(table)
    with mock.patch(stage, side_effect=KeyboardInterrupt("now")), pytest.raises(KeyboardInterrupt):
        ice.overwrite(table, _stream(), where="id = 1")
    unharmed.check()


def _interrupted_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which Ctrl-C hits before its first call."""
    calls = count()

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == 0:
            raise KeyboardInterrupt("now")
        return function(*args, **kwargs)

    return interrupted


@pytest.mark.parametrize(
    ("owner", "stage"),
    [
        (InFlightWrite, "committed"),
        (in_flight, "delete_files"),
        (Committer, "_done"),
    ],
    ids=["committed", "delete_files", "_done"],
)
@pytest.mark.parametrize("stages", [1, 2])
def test_ctrl_c_after_the_commit_never_deletes_a_file_of_the_table(
    catalog: SqlCatalog, owner: Any, stage: str, stages: int
) -> None:
    table = make_table(catalog)
    files = ice.write_files(table, ids(0, 3)) if stages == 2 else ()
    write = (
        partial(ice.commit_files, table, files) if files else partial(ice.append, table, ids(0, 3))
    )
    interrupted = _interrupted_once(getattr(owner, stage))
    with mock.patch.object(owner, stage, interrupted), pytest.raises(KeyboardInterrupt):
        write()
    assert [row[0] for row in rows_of(table)] == [0, 1, 2]
    ice.delete(table, "id = 0")
    assert [row[0] for row in rows_of(table)] == [1, 2]
