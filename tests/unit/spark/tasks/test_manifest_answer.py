"""The files that tasks find in manifests reach the driver unchanged."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestFile,
)
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from icestream.errors import TaskFailedError
from icestream.read.plan.found_files import (
    FileFilter,
    FileTest,
    FoundFile,
    Statistics,
    find_files,
)
from icestream.read.plan.manifests import MetadataFiles, metadata_files
from icestream.read.request import request
from icestream.spark.tasks import manifest_answer
from icestream.spark.tasks.manifest_answer import FoundColumns, decoded_files, encoded_files
from icestream.spark.tasks.plain_record import encode
from tests.support.tables import (
    PARTITIONINGS,
    all_types_rows,
    all_types_schema,
    append_arrow,
    make_catalog,
)

_PLAIN = ("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes")
_STATISTICS = (
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = make_catalog(tmp_path)
    yield opened
    opened.close()


def _found(table: Table, where: str | None = None) -> list[FoundFile]:
    files = metadata_files(table.io, table="db.t")
    test = FileTest(FileFilter.of(request(table, where=where).data_scan))
    return list(find_files(_manifests(table, files), files, test))


def _manifests(table: Table, files: MetadataFiles) -> list[ManifestFile]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [m for m in files.manifests_of(snapshot) if m.content == ManifestContent.DATA]


def _facts(found: FoundFile, *, columns: frozenset[int], column_sizes: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {name: getattr(found.file, name) for name in _PLAIN}
    facts |= {"spec_id": found.file.spec_id, "rest": found[1:]}
    for name in _STATISTICS:
        known = dict(getattr(found.file, name) or {})
        if not (column_sizes and name == "column_sizes"):
            known = {i: known[i] for i in columns if i in known}
        facts[name] = known
    return facts


def _sent(found: list[FoundFile], wanted: Statistics) -> list[FoundFile]:
    return [file for part in encoded_files(found, wanted) for file in decoded_files(part)]


@pytest.mark.parametrize("wanted", [Statistics(), Statistics(frozenset({1, 3}), column_sizes=True)])
@pytest.mark.parametrize("partitioning", PARTITIONINGS)
def test_files_of_every_partitioning_arrive_as_they_were_found(
    catalog: Catalog, partitioning: str, wanted: Statistics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_answer, "_VALUES_PER_ANSWER", 50)
    table = PARTITIONINGS[partitioning](catalog).table
    for where in (None, "category = 'red' or amount > 3"):
        found = _found(table, where)
        kept: dict[str, Any] = {"columns": wanted.columns, "column_sizes": wanted.column_sizes}
        before = [_facts(file, **kept) for file in found]
        assert [_facts(file, **kept) for file in _sent(found, wanted)] == before
        assert before


def test_statistics_that_nobody_needs_are_not_sent(catalog: Catalog) -> None:
    found = _found(PARTITIONINGS["identity"](catalog).table)
    (plain,), (full,) = (
        encoded_files(found, Statistics()),
        encoded_files(found, Statistics(frozenset(range(1, 6)), column_sizes=True)),
    )
    assert len(plain) < len(full)
    assert all(not (file.file.lower_bounds or {}) for file in decoded_files(plain))


def test_the_statistics_of_all_types_arrive(catalog: Catalog) -> None:
    table = catalog.create_table("db.t", all_types_schema())
    append_arrow(table, all_types_rows(5))
    ids = frozenset(range(1, 200))
    (found,) = _found(table)
    (sent,) = _sent([found], Statistics(ids))
    kept: dict[str, Any] = {"columns": ids, "column_sizes": False}
    assert _facts(sent, **kept) == _facts(found, **kept)
    assert found.file.lower_bounds


def test_no_files_are_an_answer_too() -> None:
    (answer,) = encoded_files([], Statistics())
    assert decoded_files(answer) == []


def test_a_forged_answer_is_an_error() -> None:
    columns = FoundColumns((), (0,), ("p",), ("PARQUET",), (1,), (1,), (1,), (True,), ({},) * 6)
    unequal = FoundColumns((), (), ("p",), (), (), (), (), (), ({},) * 6)
    forged = [b"", b"x", zlib.compress(b"x"), zlib.compress(json.dumps(["p", [1]]).encode())]
    for answer in (*forged, *(zlib.compress(encode(each)) for each in (columns, unequal))):
        with pytest.raises(TaskFailedError, match="same version"):
            decoded_files(answer)


def test_an_answer_with_long_bounds_has_few_files() -> None:
    bound = b"x" * 8_000
    files = [
        FoundFile(
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"s3://b/{number}.parquet",
                file_format=FileFormat.PARQUET,
                partition=Record(),
                record_count=1,
                file_size_in_bytes=1,
                lower_bounds={1: bound},
                upper_bounds={1: bound},
            ),
            1,
            False,
        )
        for number in range(500)
    ]
    for each in files:
        each.file.spec_id = 0
    answers = [decoded_files(each) for each in encoded_files(files, Statistics(frozenset({1})))]
    assert [found.file.file_path for each in answers for found in each] == [
        found.file.file_path for found in files
    ]
    assert max(map(len, answers)) < 40, "a file has 32 kB of bounds in hex"
    assert answers[0][0].file.lower_bounds == {1: bound}
