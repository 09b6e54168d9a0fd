"""Manifests: which rows their statistics rule out, exact doubles, and files not written whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from struct import pack
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.reader import DoubleReader
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    In,
    IsNaN,
    IsNull,
    LessThan,
    Not,
    NotEqualTo,
    NotNull,
    StartsWith,
)
from pyiceberg.manifest import (
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestListWriter,
    ManifestWriter,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

import icestream as ice
from icestream.catalogs._pyiceberg import manifests
from tests.support.delete_files import write_position_deletes
from tests.support.stored import folder_of, stored_files
from tests.support.tables import add_parquet_file, data_file_paths, data_files, make_catalog

_ROWS = pa.table({"id": [1, 2, 3]})
_STOPPED_BY: dict[str, tuple[BaseException, type[BaseException]]] = {
    "Ctrl-C": (KeyboardInterrupt(), KeyboardInterrupt),
    "SIGTERM": (SystemExit(143), SystemExit),
    "a file that is not there": (FileNotFoundError("gone"), ice.CommitError),
}


@pytest.fixture
def table(catalog: Catalog) -> Table:
    made = catalog.create_table("db.t", _ROWS.schema)
    ice.append(made, _ROWS)
    return made


@pytest.mark.parametrize("by", _STOPPED_BY)
def test_before_its_first_entry(table: Table, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    error, raised = _STOPPED_BY[by]
    before = stored_files(folder_of(table))

    def fail(self: ManifestWriter, entry: ManifestEntry) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(ManifestWriter, "delete", fail)
        with pytest.raises(raised) as caught:
            ice.overwrite(table, _ROWS)
    assert "empty manifest" not in str(caught.value)
    assert stored_files(folder_of(table)) == before
    assert table.refresh().scan().to_arrow().num_rows == 3


@pytest.mark.parametrize("by", _STOPPED_BY)
@pytest.mark.parametrize("kind", [ManifestWriter, ManifestListWriter], ids=["manifest", "list"])
def test_in_a_store_that_can_not_close_it_either(
    table: Table, monkeypatch: pytest.MonkeyPatch, kind: type, by: str
) -> None:
    error, raised = _STOPPED_BY[by]

    def fail(self: Any, *_: object) -> None:
        stream = self._writer.output_stream
        monkeypatch.setattr(self._writer, "output_stream", _Unclosable(stream))
        raise error

    with monkeypatch.context() as patched:
        for name in ("add_entry", "add_manifests"):
            if hasattr(kind, name):
                patched.setattr(kind, name, fail)
        with pytest.raises(raised) as caught:
            ice.append(table, _ROWS)
    assert "can't be closed" not in str(caught.value)
    assert table.refresh().scan().to_arrow().num_rows == 3


class _Unclosable:
    """A stream of a store that has gone away."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def close(self) -> None:
        self._stream.close()
        raise OSError("can't be closed")


@dataclass
class _Metrics:
    """Field 1: longs 10 to 20. Field 2: strings "b" to "d", two null. Field 3: three NaN."""

    record_count: int = 5
    value_counts: dict[int, int] = field(default_factory=lambda: {1: 5, 2: 5, 3: 5, 4: 5})
    null_value_counts: dict[int, int] = field(default_factory=lambda: {1: 0, 2: 2, 3: 0, 4: 5})
    nan_value_counts: dict[int, int] = field(default_factory=lambda: {3: 0})
    lower_bounds: dict[int, bytes] = field(
        default_factory=lambda: {1: to_bytes(LongType(), 10), 2: b"b"}
    )
    upper_bounds: dict[int, bytes] = field(
        default_factory=lambda: {1: to_bytes(LongType(), 20), 2: b"d"}
    )


_SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "d", DoubleType()),
    NestedField(4, "nothing", LongType()),
    NestedField(5, "unknown", LongType()),
)


# `_InclusiveMetricsEvaluator`, by `metrics_evaluator`


@pytest.mark.parametrize(
    ("where", "might_match"),
    [
        (EqualTo("n", 15), True),
        (EqualTo("n", 9), False),
        (GreaterThan("n", 20), False),
        (LessThan("n", 11), True),
        (In("n", [1, 2, 3]), False),
        (In("n", [1, 12]), True),
        (Not(LessThan("n", 21)), False),
        (NotEqualTo("n", 15), True),
        (IsNull("n"), False),
        (IsNull("s"), True),
        (NotNull("nothing"), False),
        (IsNaN("d"), False),
        (StartsWith("s", "c"), True),
        (StartsWith("s", "x"), False),
        (And(EqualTo("n", 15), StartsWith("s", "x")), False),
        (EqualTo("unknown", 5), True),
        (IsNull("unknown"), True),
    ],
    ids=str,
)
def test_the_metrics_evaluator_takes_our_row_groups_and_rules_them_out(
    where: BooleanExpression, might_match: bool
) -> None:
    test = manifests.metrics_evaluator(_SCHEMA, where, True)
    assert test(_Metrics()) is might_match


def test_the_metrics_evaluator_matches_names_by_case_as_told() -> None:
    where = EqualTo("N", 9)
    assert manifests.metrics_evaluator(_SCHEMA, where, False)(_Metrics()) is False
    with pytest.raises(ValueError, match="Could not find field"):
        manifests.metrics_evaluator(_SCHEMA, where, True)


def test_the_metrics_evaluator_keeps_no_state_between_row_groups() -> None:
    """Worker threads share one."""
    test = manifests.metrics_evaluator(_SCHEMA, EqualTo("n", 15), True)
    other = _Metrics(lower_bounds={1: to_bytes(LongType(), 16)})
    assert [test(_Metrics()), test(other), test(_Metrics())] == [True, False, True]
    assert test(_Metrics(record_count=0)) is False


# `_StrictMetricsEvaluator`, by `strict_metrics_evaluator`


@pytest.mark.parametrize(
    ("where", "all_match"),
    [
        (GreaterThan("n", 9), True),
        (GreaterThan("n", 10), False),
        (LessThan("n", 21), True),
        (EqualTo("n", 15), False),
        (In("n", [10, 20]), False),
        (NotNull("n"), True),
        (NotNull("s"), False),
        (GreaterThan("s", "a"), False),
        (IsNull("nothing"), True),
        (IsNull("unknown"), False),
        (NotNull("unknown"), False),
        (GreaterThan("unknown", 0), False),
        (And(GreaterThan("n", 9), NotNull("n")), True),
        (NotEqualTo("nothing", 5), True),  # Null is taken to differ: we ask for not null as well.
        (And(NotNull("nothing"), NotEqualTo("nothing", 5)), False),
    ],
    ids=str,
)
def test_the_strict_evaluator_says_when_all_rows_match(
    where: BooleanExpression, all_match: bool
) -> None:
    test = manifests.strict_metrics_evaluator(_SCHEMA, where)
    assert test(_Metrics()) is all_match  # type: ignore[arg-type]


# `DoubleReader`, by `exact_manifests`


def test_doubles_are_read_exactly_only_while_it_is_asked_for() -> None:
    def read() -> float:
        return DoubleReader().read(StreamingBinaryDecoder(pack("<d", 0.1)))

    before = DoubleReader.read
    with manifests.exact_manifests():
        with manifests.exact_manifests():
            assert read() == 0.1
        assert read() == 0.1
    assert DoubleReader.read is before


# `content` and `_meta` of `ManifestWriterV2`, by `DeleteManifestWriter`


def test_a_manifest_of_delete_files_says_so(tmp_path: Path) -> None:
    catalog: SqlCatalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    add_parquet_file(table, pa.table({"id": [1, 2, 3]}))
    (file,) = write_position_deletes(table, data_files(table), {data_file_paths(table)[0]: [0]})
    output = table.io.new_output(f"{table.location()}/metadata/deletes.avro")
    arguments = (table.spec(), table.schema(), output, 77, "null")
    with manifests.DeleteManifestWriter(*arguments) as writer:
        writer.add(ManifestEntry.from_args(snapshot_id=77, data_file=file))
    manifest = writer.to_manifest_file()
    assert manifest.content == ManifestContent.DELETES
    manifest.sequence_number = 5
    (entry,) = manifest.fetch_manifest_entry(table.io)
    assert entry.data_file.content == DataFileContent.POSITION_DELETES
    with AvroFile[ManifestEntry](output.to_input_file()) as reader:
        assert reader.header.meta["content"] == "deletes"
        assert reader.header.meta["format-version"] == "2"
    catalog.close()


# `_writer` of `ManifestWriter` and `ManifestListWriter`, by `written`


@pytest.mark.parametrize("kind", ["manifest", "list"])
def test_a_manifest_that_could_not_be_written_is_closed(tmp_path: Path, kind: str) -> None:
    catalog: SqlCatalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    output = table.io.new_output(f"{table.location()}/metadata/{kind}.avro")
    writer: Any = (
        manifests.DeleteManifestWriter(table.spec(), table.schema(), output, 77, "null")
        if kind == "manifest"
        else write_manifest_list(2, output, 77, None, 1, "null")
    )
    with pytest.raises(KeyboardInterrupt), manifests.written(writer):
        raise KeyboardInterrupt
    assert writer._writer.output_stream.closed
    catalog.close()


def test_a_manifest_without_entries_is_refused_and_closed(tmp_path: Path) -> None:
    catalog: SqlCatalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    output = table.io.new_output(f"{table.location()}/metadata/m.avro")
    writer: Any = manifests.DeleteManifestWriter(table.spec(), table.schema(), output, 77, "null")
    with pytest.raises(ValueError, match="empty"), manifests.written(writer):
        pass
    assert writer._writer.output_stream.closed
    catalog.close()
