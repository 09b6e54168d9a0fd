"""Answers of tasks are data: what is forged runs no code."""

from __future__ import annotations

import json
import math
import os
import pickle
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

import icestream as ice
from icestream.errors import TaskFailedError
from icestream.operations.merge.keys.key_columns import KeyColumns
from icestream.operations.merge.keys.key_hash import Keys
from icestream.operations.merge.keys.key_index import Sieve
from icestream.operations.merge.keys.key_range import KeyRange
from icestream.operations.write_parts import WorkerPart
from icestream.spark.tasks.plain_record import decode, encode
from icestream.spark.tasks.task_write import ANSWER_PARTS, TaskResult
from icestream.write.new_file import NewFile
from icestream.write.table_writer import Written
from tests.support.tables import make_catalog

_PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.times(),
    st.uuids(),
)
_NESTED = st.recursive(
    _PLAIN,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.one_of(st.integers(), st.text()), inner),
        st.frozensets(_PLAIN),
    ),
    max_leaves=10,
)
_FILE = NewFile(
    "s3://b/a b\u2028.parquet",
    "uuid",
    "write",
    None,
    3,
    (1, "x", b"\0\xff", Decimal("1.20"), date(2026, 1, 1), UUID(int=5), None),
    10,
    100,
    None,
    {"lower_bounds": {1: b"\0"}, "split_offsets": [4, 8], "column_sizes": {1: 5}},
)


@settings(max_examples=50, deadline=None)
@given(_NESTED)
def test_values_come_back_as_they_were(value: object) -> None:
    told = Written(rows=value)  # type: ignore[arg-type]
    assert decode(encode(told), Written) == told


def test_values_of_numpy_become_pythons() -> None:
    told = decode(encode(Written(rows=np.int64(5), bytes=np.float64("nan"))), Written)
    assert type(told.rows) is int
    assert math.isnan(told.bytes)


def test_what_tasks_answer_comes_back() -> None:
    written = Written((_FILE, replace(_FILE, path="b")), 20, 200, 5, frozenset({1, 2}))
    result = TaskResult(written, 7)
    assert decode(encode(result), TaskResult, *ANSWER_PARTS) == result
    part = WorkerPart(written, (1, 2), (3,), 1, 2, 3, 4, 5, 6, 7, True)
    assert decode(encode(part), WorkerPart, *ANSWER_PARTS) == part


@pytest.fixture
def deletes(tmp_path: Path) -> tuple[DataFile, ...]:
    """Delete files as a merge writes them."""
    catalog: SqlCatalog = make_catalog(tmp_path)
    table = catalog.create_table(
        "db.t",
        pa.schema([("id", pa.int64())]),
        properties={"write.delete.mode": "merge-on-read", "format-version": "2"},
    )
    ice.append(table, pa.table({"id": [1, 2, 3]}))
    ice.delete(table, "id = 2")
    catalog.close()
    manifests = table.current_snapshot().manifests(table.io)  # type: ignore[union-attr]
    entries = [entry for each in manifests for entry in each.fetch_manifest_entry(table.io)]
    found = [entry.data_file for entry in entries if entry.data_file.content.value]
    for file in found:
        file.spec_id = 2
    return tuple(found)


def test_delete_files_come_back_with_every_field(deletes: tuple[DataFile, ...]) -> None:
    assert deletes
    told = decode(encode(Written(deletes=deletes)), Written)
    for mine, theirs in zip(told.deletes, deletes, strict=True):
        assert mine.spec_id == 2
        assert isinstance(mine.partition, Record)
        for name in ("content", "file_path", "file_format", "partition", "lower_bounds"):
            assert getattr(mine, name) == getattr(theirs, name)
        assert len(mine) == len(theirs)
        assert [mine[i] for i in range(16)] == [theirs[i] for i in range(16)]


class _Code:
    """What a forged answer would do with `pickle.loads`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


def test_a_forged_answer_runs_no_code(tmp_path: Path) -> None:
    place = tmp_path / "made"
    with pytest.raises(TaskFailedError, match="can't be read"):
        decode(pickle.dumps(_Code(place)), TaskResult, *ANSWER_PARTS)
    assert not place.exists()
    pickle.loads(pickle.dumps(_Code(place)))
    assert place.exists(), "it would have been made: else this test shows nothing"


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {},
        {"t": 1},
        5,
        None,
        "text",
        ["Path", "/"],
        ["os.system", "ls"],
        ["TaskResult"],
        ["TaskResult", 1, 2, 3, 4, 5, 6, 7, 8, 9],
        ["Written", [], 0, 0, 0, 0],
        ["b", "no base64!"],
        ["n", "no number"],
        ["d", "2026-13-40"],
        ["u", "no uuid"],
        ["m", [1]],
        ["f", 1, 2],
        ["f", 0, 9, "a", "PARQUET", *[None] * 13],
        [["t"], 1],
        ["s", ["l", 1]],
    ],
)
def test_an_answer_of_another_shape_is_refused(answer: object) -> None:
    with pytest.raises(TaskFailedError, match="same version of icestream"):
        decode(json.dumps(answer).encode(), TaskResult, *ANSWER_PARTS)


@settings(max_examples=50, deadline=None)
@given(st.binary())
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(TaskFailedError):
        decode(data, TaskResult, *ANSWER_PARTS)


def test_what_is_not_plain_is_not_sent() -> None:
    with pytest.raises(TypeError, match="can't return a PosixPath"):
        encode(Written(rows=Path()))  # type: ignore[arg-type]


def test_key_ranges_of_tasks_are_joined(tmp_path: Path) -> None:
    catalog = make_catalog(tmp_path)
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us")), ("x", pa.float64())])
    table = catalog.create_table("db.t", schema)
    catalog.close()
    key = KeyColumns.of(table.schema(), ("id", "at", "x"), table="db.t")
    moments = [datetime(2026, 1, day) for day in (1, 2, 3)]
    ranges = [KeyRange(key) for _ in range(3)]
    ranges[0].add([pa.array([3, 4]), pa.array(moments[1:2]), pa.array([1.0])])
    ranges[1].add([pa.array([9, 5]), pa.array(moments[2:]), pa.array([1.0])])
    joined = KeyRange(key)
    for each in ranges:
        told = decode(encode(Written(rows=each.bounds())), Written)  # type: ignore[arg-type]
        joined.add_bounds(told.rows)  # type: ignore[arg-type]
    stored = pa.array(moments, pa.timestamp("us")).cast(pa.int64()).to_pylist()
    assert joined.bounds() == [(3, 9), (stored[1], stored[2]), False]


@pytest.mark.parametrize("rows", [10, 50_000_000], ids=["flags", "bits"])
def test_sieves_of_tasks_are_joined(rows: int) -> None:
    words = np.random.default_rng(3).integers(0, 2**64, 1000, dtype=np.uint64)
    both = [Sieve(1 << 22, rows) for _ in range(2)]
    for number, sieve in enumerate(both):
        sieve.add(Keys(words[number::2], None, None))
    joined = Sieve(1 << 22, rows)
    for sieve in both:
        joined.add_all(sieve.to_bytes())
    assert joined.passes(Keys(words, None, None)).all()
    with pytest.raises(ValueError, match="3 bytes"):
        joined.add_all(b"abc")
