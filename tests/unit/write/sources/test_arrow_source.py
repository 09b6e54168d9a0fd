"""Anything that gives Arrow batches can be written; what does not is refused with a way out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import icestream as ice
from icestream.errors import InvalidArgumentError, ReadError, SchemaMismatchError
from icestream.write.sources.arrow_source import ArrowSource, can_reopen, open_source
from tests.support.tables import append_arrow, data_file_paths, make_catalog

_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def _batch(*ids: int) -> pa.RecordBatch:
    return pa.record_batch([list(ids), [f"n{i}" for i in ids]], schema=_SCHEMA)


def _table() -> pa.Table:
    return pa.Table.from_batches([_batch(1, 2), _batch(3)])


def _ids(source: object) -> list[int]:
    with open_source(source) as opened:
        return [i for batch in opened for i in batch.column("id").to_pylist()]


class _Capsules:
    """Any library's frame: all that is known of it is the protocol."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class _ArrayCapsules:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


_KINDS: dict[str, Callable[[], object]] = {
    "table": _table,
    "batch": lambda: _batch(1, 2, 3),
    "reader": lambda: _table().to_reader(),
    "dataset": lambda: ds.dataset(_table()),
    "scanner": lambda: ds.dataset(_table()).scanner(),
    "list of batches": lambda: [_batch(1), _batch(2, 3)],
    "tuple of tables": lambda: (_table().slice(0, 1), _table().slice(1)),
    "generator of batches": lambda: (_batch(i) for i in (1, 2, 3)),
    "iterator of tables and batches": lambda: iter([_table().slice(0, 2), _batch(3)]),
    "generator of capsules": lambda: (_Capsules(t) for t in [_table()]),
    "stream capsule": lambda: _Capsules(_table()),
    "array capsule": lambda: _ArrayCapsules(_batch(1, 2, 3)),
    "function": lambda: _table,
    "function that opens a generator": lambda: lambda: iter([_batch(1), _batch(2, 3)]),
    "struct array": lambda: pa.array([{"id": i, "name": f"n{i}"} for i in (1, 2, 3)]),
}


@pytest.mark.parametrize("kind", _KINDS)
def test_every_kind_of_stream_gives_its_batches_in_order(kind: str) -> None:
    with open_source(_KINDS[kind]()) as source:
        assert source.schema is not None
        assert source.schema.equals(_SCHEMA)
        batches = list(source)
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert pa.Table.from_batches(batches).to_pylist() == _table().to_pylist()


@pytest.mark.parametrize("kind", _KINDS)
def test_a_stream_is_read_exactly_once(kind: str) -> None:
    with open_source(_KINDS[kind]()) as source:
        batches = iter(source)
        with pytest.raises(InvalidArgumentError, match="read already"):
            iter(source)
        list(batches)
        with pytest.raises(InvalidArgumentError, match="read already"):
            iter(source)


@pytest.mark.parametrize("kind", _KINDS)
def test_a_closed_stream_can_not_be_read(kind: str) -> None:
    source = open_source(_KINDS[kind]())
    source.close()
    source.close()
    with pytest.raises(InvalidArgumentError, match="read already"):
        iter(source)


def test_a_dataset_of_files_is_read(tmp_path: Path) -> None:
    pq.write_table(_table(), tmp_path / "a.parquet")
    assert _ids(ds.dataset(tmp_path)) == [1, 2, 3]
    assert _ids(ds.dataset(tmp_path).scanner(filter=ds.field("id") > 1)) == [2, 3]


def test_a_scan_is_read_and_its_errors_keep_their_type(tmp_path: Path) -> None:
    catalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    append_arrow(table, pa.table({"id": [1, 2, 3]}))
    assert _ids(ice.scan(table)) == [1, 2, 3]
    Path(data_file_paths(table)[0].removeprefix("file://")).unlink()
    with pytest.raises(ReadError):
        _ids(ice.scan(table))
    catalog.close()


def test_polars_frames_are_read() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"id": [1, 2, 3], "name": ["a", None, "c"]})
    assert _ids(frame) == [1, 2, 3]
    assert _ids(lambda: frame) == [1, 2, 3]
    assert _ids(frame.lazy().collect_batches()) == [1, 2, 3]
    with pytest.raises(InvalidArgumentError, match="collect_batches"):
        open_source(frame.lazy())


def test_duckdb_relations_are_read() -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        relation = connection.sql("select range as id from range(3) order by 1")
        assert _ids(relation) == [0, 1, 2]


def test_pandas_frames_are_read() -> None:
    pandas = pytest.importorskip("pandas")
    assert _ids(pandas.DataFrame({"id": [1, 2]})) == [1, 2]


# Nothing there


@pytest.mark.parametrize("make", [list, tuple, lambda: iter([]), lambda: list])
def test_an_iterable_without_items_has_no_schema_and_no_rows(make: Callable[[], object]) -> None:
    with open_source(make()) as source:
        assert source.schema is None
        assert list(source) == []


def test_streams_without_rows_have_a_schema() -> None:
    for empty in (_SCHEMA.empty_table(), [_SCHEMA.empty_table()], [_batch()]):
        with open_source(empty) as source:
            assert source.schema == _SCHEMA
            assert list(source) == []


def test_batches_without_rows_are_left_out() -> None:
    with open_source([_batch(), _batch(1), _batch(), _batch(2)]) as source:
        assert [batch.num_rows for batch in source] == [1, 1]


# Refused


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("data/*.parquet", r"a str is not a stream.*pyarrow\.dataset\.dataset\(path\)"),
        (b"bytes", r"pyarrow\.dataset"),
        (Path("x.parquet"), r"pathlib\.\w+ is not a stream.*pyarrow\.dataset"),
        ({"id": [1]}, r"a dict is not a stream.*pyarrow\.table"),
        ([{"id": 1}], r"item 0 of the stream is a dict.*RecordBatch\.from_pylist"),
        ([1, 2], r"item 0 of the stream is a int, not a pyarrow RecordBatch or Table"),
        (iter([_batch(1), None]), r"item 1 of the stream is a NoneType"),
        (None, r"a NoneType is not a stream.*pass a pyarrow Table"),
        (3, r"a int is not a stream"),
        (pa.array([1, 2]), r"does not hold rows of named columns"),
        (pa.chunked_array([[1, 2]]), r"does not hold rows of named columns"),
        (pa.array([{"id": 1}, None]), r"does not hold rows of named columns"),
        (lambda path: path, r"needs arguments"),
        (lambda: "x", r"a str is not a stream"),
        (lambda: _table, r"a function is not a stream"),
        (object(), r"a object is not a stream"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_stream_is_refused_with_a_way_out(source: Any, says: str) -> None:
    with (
        pytest.raises(InvalidArgumentError, match=f"(?s){says}"),
        open_source(source) as opened,
    ):
        list(opened)


def test_an_older_pandas_frame_is_refused_with_a_way_out() -> None:
    """Iterating over it would give the names of its columns."""
    frame = type("DataFrame", (list,), {"__module__": "pandas.core.frame"})(["id"])
    with pytest.raises(InvalidArgumentError, match=r"Table\.from_pandas"):
        open_source(frame)


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pa.table([[1], [2], ["x"]], names=["id", "id", "name"])
    for source in (twice, [twice], twice.to_reader(), lambda: twice):
        with pytest.raises(SchemaMismatchError, match="'id' is in the stream more than once"):
            open_source(source)


# A schema that changes midway


def _renamed(*names: str) -> pa.RecordBatch:
    return pa.record_batch([[1], ["x"]], names=list(names))


@pytest.mark.parametrize(
    ("later", "difference"),
    [
        (_renamed("id", "label"), "column 'name' is missing; column 'label' is new"),
        (pa.record_batch({"id": [1]}), "column 'name' is missing"),
        (
            pa.record_batch([[1.5], ["x"]], names=["id", "name"]),
            "column 'id' is double, and was int64",
        ),
        (
            pa.record_batch([["x"], [1]], names=["name", "id"]),
            "its columns are name, id, and were id, name",
        ),
        (
            pa.record_batch([[1], ["x"], ["y"]], names=["id", "name", "name"]),
            "its columns are id, name, name, and were id, name",
        ),
    ],
)
def test_a_batch_of_another_schema_is_refused_and_named(
    later: pa.RecordBatch, difference: str
) -> None:
    reader = pa.RecordBatchReader.from_batches(_SCHEMA, iter([_batch(1), _batch(2), later]))
    for source in ([_batch(1), _batch(2), later], reader):
        seen = []
        with (
            pytest.raises(SchemaMismatchError, match="batch 2 of the stream") as caught,
            open_source(source) as opened,
        ):
            seen.extend(opened)
        assert "; ".join(caught.value.differences) == difference
        assert "give all batches the same schema" in str(caught.value)


def test_an_empty_table_of_another_schema_is_refused_too() -> None:
    other = pa.table({"x": pa.array([], pa.int64())})
    with pytest.raises(SchemaMismatchError, match="batch 1 of the stream"):
        _ids([_batch(1), other])


def test_nullability_and_metadata_may_differ_between_batches() -> None:
    nested = pa.list_(pa.struct([("a", pa.map_(pa.string(), pa.int64()))]))
    strict = pa.list_(
        pa.field("x", pa.struct([pa.field("a", nested.value_type[0].type, nullable=False)]))
    )
    first = pa.record_batch([pa.nulls(1, nested)], names=["v"])
    field = pa.field("v", strict, nullable=False, metadata={"a": "b"})
    value = pa.array([[{"a": [("k", 1)]}]], strict)
    second = pa.record_batch([value], schema=pa.schema([field], metadata={"c": "d"}))
    with open_source([first, second]) as source:
        assert sum(batch.num_rows for batch in source) == 2


# Ends


class _Watched:
    """A generator that notes when it ends."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.ended = False
        self._error = error

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield _batch(1)
            yield _batch(2)
            if self._error is not None:
                raise self._error
        finally:
            self.ended = True


def test_a_generator_is_closed_when_the_reader_stops_early() -> None:
    watched = _Watched()
    with open_source(watched.batches()) as source:
        batches = iter(source)
        next(batches)
        assert not watched.ended
    assert watched.ended


def test_a_generator_is_closed_with_the_iteration_over_it() -> None:
    watched = _Watched()
    items = watched.batches()
    batches = iter(open_source(items))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert watched.ended


def test_a_generator_is_closed_when_its_first_item_is_no_batch() -> None:
    watched = _Watched()
    items = ({"id": batch} for batch in watched.batches())
    with pytest.raises(InvalidArgumentError, match="is a dict"):
        open_source(items)
    assert next(items, None) is None
    twice = (pa.table([[1], [2]], names=["a", "a"]) for _ in range(2))
    with pytest.raises(SchemaMismatchError):
        open_source(twice)
    assert next(twice, None) is None


def test_a_generator_is_closed_when_it_is_never_read() -> None:
    watched = _Watched()
    open_source(watched.batches()).close()
    assert watched.ended


def test_a_reader_over_a_generator_lets_go_of_it_at_the_end() -> None:
    watched = _Watched()
    source = open_source(pa.RecordBatchReader.from_batches(_SCHEMA, watched.batches()))
    next(iter(source))
    source.close()
    del source
    gc.collect()
    assert watched.ended


@pytest.mark.parametrize("error", [ValueError("bad row 7"), KeyboardInterrupt(), OSError(28, "x")])
def test_the_sources_own_error_passes_through_unchanged(error: BaseException) -> None:
    for make in (
        lambda watched: watched.batches(),
        lambda watched: watched.batches,
        lambda watched: pa.RecordBatchReader.from_batches(_SCHEMA, watched.batches()),
    ):
        watched = _Watched(error)
        seen = []
        with pytest.raises(type(error)) as caught, open_source(make(watched)) as source:
            seen.extend(batch.num_rows for batch in source)
        assert caught.value is error
        assert watched.ended
        error.__traceback__ = None


def test_an_error_before_the_first_batch_passes_through_at_once() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        raise LookupError("no connection")
        yield

    for source in (broken(), broken):
        with pytest.raises(LookupError, match="no connection"):
            open_source(source)


def test_a_type_error_inside_a_function_is_its_own() -> None:
    def broken() -> object:
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        open_source(broken)


def test_an_error_on_closing_does_not_hide_the_first_one() -> None:
    def close() -> None:
        raise OSError("while closing")

    with (
        pytest.raises(ValueError, match="first"),
        ArrowSource(_SCHEMA, iter([]), close),
    ):
        raise ValueError("first")
    with pytest.raises(OSError, match="while closing"), ArrowSource(_SCHEMA, iter([]), close):
        pass


def test_only_the_batch_at_hand_is_held() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(5):
            assert pa.total_allocated_bytes() <= before, "the last one is let go of by now"
            array = pa.array(range(10_000))
            yield pa.record_batch([array], names=["id"])
            del array

    before = pa.total_allocated_bytes()
    for items in (batches(), map(_as_table, batches())):
        with open_source(items) as source:
            for batch in source:
                assert pa.total_allocated_bytes() - before < 2 * batch.nbytes
                del batch


def _as_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


# Opening again


@pytest.mark.parametrize(
    ("source", "again"),
    [
        (_table(), True),
        (_batch(1), True),
        (ds.dataset(_table()), True),
        ([_batch(1)], True),
        ((_table(),), True),
        (_table, True),
        (lambda: iter([_batch(1)]), True),
        (_table().to_reader(), False),
        (iter([_batch(1)]), False),
        ([_table().to_reader()], False),
        (ds.dataset(_table()).scanner(), False),
        (_Capsules(_table()), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_it_is_known_what_can_be_opened_again(source: object, again: bool) -> None:
    assert can_reopen(source) is again
    if again:
        assert _ids(source) == _ids(source)
