"""Streams that do not fit in memory: the same rows come out, by way of temporary files."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.loads import BY_PART, head_of, listing, make_table, snapshots_of
from tests.support.merges import MODES, nothing_in_vain

_MEMORY = "16MB"
_COUNT = 60_000
_BATCH = 10_000


def _row(key: int, version: int) -> tuple[int, int, str]:
    return key, (key + version) % 5, f"{version} of {key}, which is some text to fill the memory"


def _arrow(rows: list[tuple[int, int, str]], **more: Any) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table(
        {
            "id": pa.array(columns[0], pa.int64()),
            "part": pa.array(columns[1], pa.int64()),
            "text": pa.array(columns[2], pa.string()),
            **more,
        }
    )


def _batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from rows.to_batches(max_chunksize=_BATCH)


def _check(table: Table, expected: dict[int, tuple[int, int, str]]) -> None:
    """The table holds these rows, each once."""
    found = table.refresh().scan().to_arrow().sort_by("id")
    assert found.equals(_arrow([expected[key] for key in sorted(expected)]).cast(found.schema))


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(None, id="whole", marks=pytest.mark.slow),
        pytest.param(BY_PART, id="partitioned"),
    ],
)
def test_updates_inserts_and_deletes_are_those_of_a_dictionary(
    catalog: SqlCatalog, mode: str, spec: Any
) -> None:
    table = make_table(catalog, **({} if spec is None else {"spec": spec}))
    generator = random.Random(0)
    rows = {key: _row(key, 0) for key in range(_COUNT)}
    for start in range(0, _COUNT, _COUNT // 2):
        keys = list(range(start, start + _COUNT // 2))
        generator.shuffle(keys)
        ice.append(table, _arrow([rows[key] for key in keys]))
    before = len(snapshots_of(table))
    keys = generator.sample(range(_COUNT * 3 // 2), _COUNT)
    flags = [generator.random() < 0.1 for _ in keys]
    versions = [generator.choice([0, 1]) for _ in keys]
    given = [_row(key, version) for key, version in zip(keys, versions, strict=True)]
    counts = {"inserted": 0, "updated": 0, "deleted": 0, "unchanged": 0}
    for key, row, gone in zip(keys, given, flags, strict=True):
        old = rows.get(key)
        if gone:
            counts["deleted"] += rows.pop(key, None) is not None
            continue
        kind = "inserted" if old is None else "unchanged" if old == row else "updated"
        counts[kind] += 1
        rows[key] = row
    report = ice.merge(
        table,
        _batches(_arrow(given, gone=pa.array(flags))),
        on="id",
        delete_when="gone = true",
        write_mode=mode,
        memory=_MEMORY,
    )
    assert report.bytes_spilled > 0
    _check(table, rows)
    assert {name: getattr(report, f"rows_{name}") for name in counts} == counts
    assert len(snapshots_of(table)) == before + 1
    assert nothing_in_vain(table)


def test_nothing_changed_no_snapshot(catalog: SqlCatalog, mode: str) -> None:
    table = make_table(catalog)
    rows = _arrow([_row(key, 0) for key in range(_COUNT)])
    ice.append(table, rows)
    report = ice.merge(table, _batches(rows), on="id", write_mode=mode, memory=_MEMORY)
    assert report.bytes_spilled > 0
    assert (report.rows_unchanged, report.snapshot_id) == (_COUNT, None)
    assert nothing_in_vain(table)


def test_an_empty_table_takes_all_rows(catalog: SqlCatalog, mode: str) -> None:
    table = make_table(catalog)
    rows = {key: _row(key, 0) for key in range(_COUNT)}
    given = _batches(_arrow(list(rows.values())))
    report = ice.merge(table, given, on="id", write_mode=mode, memory=_MEMORY)
    assert report.bytes_spilled > 0
    assert report.rows_inserted == _COUNT
    _check(table, rows)


def test_duplicates_are_found_however_far_apart_they_are(catalog: SqlCatalog, mode: str) -> None:
    table = make_table(catalog)
    ice.append(table, _arrow([_row(key, 0) for key in range(10)]))
    rows = [_row(key, 1) for key in [*range(_COUNT), 17]]
    with pytest.raises(ice.DuplicateKeysError) as refusal:
        ice.merge(table, _batches(_arrow(rows)), on="id", write_mode=mode, memory=_MEMORY)
    assert refusal.value.examples == ("id = 17",)
    assert len(snapshots_of(table)) == 1
    assert nothing_in_vain(table)


@pytest.mark.parametrize(
    "by",
    [
        pytest.param(None, id="by order", marks=pytest.mark.slow),
        pytest.param("at", id="by a column"),
    ],
)
def test_the_last_of_duplicates_counts(catalog: SqlCatalog, mode: str, by: str | None) -> None:
    table = make_table(catalog)
    ice.append(table, _arrow([_row(key, 0) for key in range(1_000)]))
    generator = random.Random(1)
    keys = [generator.randrange(_COUNT // 3) for _ in range(_COUNT)]
    moments = [generator.choice([None, *range(20)]) for _ in keys]
    given = [_row(key, number) for number, key in enumerate(keys)]
    rows = {key: _row(key, 0) for key in range(1_000)}
    latest: dict[int, int] = {}
    for key, row, moment in zip(keys, given, moments, strict=True):
        rank = -1 if moment is None else moment
        if by is None or rank >= latest.get(key, -1):
            latest[key], rows[key] = rank, row
    report = ice.merge(
        table,
        _batches(_arrow(given, at=pa.array(moments).cast(pa.string()).dictionary_encode()))
        if by is None
        else _batches(_arrow(given, at=pa.array(moments, pa.int64()))),
        on="id",
        on_duplicate="last",
        last_by=by,
        schema_mode="discard",
        write_mode=mode,
        memory=_MEMORY,
    )
    assert report.bytes_spilled > 0
    assert report.rows_superseded == _COUNT - len(set(keys))
    _check(table, rows)


@pytest.mark.slow
def test_dictionaries_that_say_which_is_last_are_spilled_too(catalog: SqlCatalog) -> None:
    """Each batch has a dictionary of its own."""
    table = make_table(catalog)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(8):
            rows = [_row(key, number) for key in range(_BATCH)]
            at = pa.array([f"{7 - number}"] * _BATCH).dictionary_encode()
            yield from _arrow(rows, at=at).to_batches()

    report = ice.merge(table, batches(), on="id", on_duplicate="last", last_by="at", memory=_MEMORY)
    assert report.bytes_spilled > 0
    _check(table, {key: _row(key, 0) for key in range(_BATCH)})


def _text_key(number: int) -> str:
    return f"a key that is long, and ends with its number, which is {number}"


@pytest.mark.slow
def test_keys_of_several_columns_of_text(catalog: SqlCatalog, mode: str) -> None:
    table = make_table(catalog)
    old = [(n, n % 3, _text_key(n)) for n in reversed(range(50_000))]
    ice.append(table, _arrow(old))
    given = [(-n, n % 3, _text_key(n)) for n in range(20_000, _COUNT + 20_000)]
    report = ice.merge(
        table, _batches(_arrow(given)), on=["text", "part"], write_mode=mode, memory=_MEMORY
    )
    assert report.bytes_spilled > 0
    assert (report.rows_updated, report.rows_inserted) == (30_000, _COUNT - 30_000)
    _check(table, {row[0]: row for row in [*old[-20_000:], *given]})


def test_null_keys_are_inserted(catalog: SqlCatalog, mode: str) -> None:
    table = make_table(catalog)
    ice.append(table, _arrow([_row(key, 0) for key in range(1_000)]))
    rows = _arrow([_row(key, 1) for key in range(_COUNT)])
    some = pa.array([None if n % 10 == 0 else n for n in range(_COUNT)], pa.int64())
    rows = rows.set_column(0, "id", some)
    report = ice.merge(
        table, _batches(rows), on="id", null_keys="insert", write_mode=mode, memory=_MEMORY
    )
    assert report.bytes_spilled > 0
    assert (report.rows_updated, report.rows_inserted) == (900, _COUNT - 900)
    found = table.refresh().scan().to_arrow()
    assert found["id"].null_count == _COUNT // 10
    assert found.num_rows == _COUNT + 100


def test_duplicates_in_the_table_are_all_changed(catalog: SqlCatalog, mode: str) -> None:
    table = make_table(catalog)
    for _ in range(2):
        ice.append(table, _arrow([_row(key, 0) for key in range(0, _COUNT, 10)]))
    rows = _arrow([_row(key, 1) for key in range(_COUNT)])
    report = ice.merge(table, _batches(rows), on="id", write_mode=mode, memory=_MEMORY)
    assert report.bytes_spilled > 0
    assert report.target_duplicates == _COUNT // 10
    assert report.rows_updated == 2 * _COUNT // 10
    found = table.refresh().scan().to_arrow()
    assert found.num_rows == _COUNT + _COUNT // 10
    assert all(text.startswith("1 of") for text in found["text"].to_pylist())


@pytest.mark.parametrize("matched", [pytest.param("ignore", marks=pytest.mark.slow), "delete"])
def test_other_things_to_do_with_matches(catalog: SqlCatalog, mode: str, matched: Any) -> None:
    table = make_table(catalog)
    rows = {key: _row(key, 0) for key in range(_COUNT // 2)}
    ice.append(table, _arrow(list(rows.values())[::-1]))
    given = {key: _row(key, 1) for key in range(_COUNT // 4, _COUNT * 5 // 4)}
    report = ice.merge(
        table,
        _batches(_arrow(list(given.values()))),
        on="id",
        when_matched=matched,
        write_mode=mode,
        memory=_MEMORY,
    )
    assert report.bytes_spilled > 0
    if matched == "delete":
        assert report.rows_deleted == _COUNT // 4
        both = rows.keys() & given.keys()
        _check(table, {key: row for key, row in (rows | given).items() if key not in both})
    else:
        assert report.files_removed == report.delete_files_added == 0
        _check(table, given | rows)


@pytest.mark.parametrize("mode", MODES)
def test_a_disk_that_can_not_be_written_to_is_told_and_nothing_is_left(
    catalog: SqlCatalog, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(catalog)
    ice.append(table, _arrow([_row(key, 0) for key in range(1_000)]))
    before, head = listing(table), head_of(table).snapshot_id
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file" / "below"))
    rows = _arrow([_row(key, 1) for key in range(_COUNT)])
    with pytest.raises(ice.WriteError, match="TMPDIR"):
        ice.merge(table, _batches(rows), on="id", write_mode=mode, memory=_MEMORY)
    monkeypatch.undo()
    assert listing(table) == before
    assert head_of(table).snapshot_id == head


def test_temporary_files_are_gone_afterwards(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a source that broke off."""
    folder = tmp_path / "spill"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    table = make_table(catalog)
    rows = _arrow([_row(key, 1) for key in range(_COUNT)])

    def breaking() -> Iterator[pa.RecordBatch]:
        yield from _batches(rows)
        raise RuntimeError("broke off")

    with pytest.raises(RuntimeError, match="broke off"):
        ice.merge(table, breaking(), on="id", memory=_MEMORY)
    assert list(folder.rglob("*")) == []
    assert ice.merge(table, _batches(rows), on="id", memory=_MEMORY).bytes_spilled > 0
    assert list(folder.rglob("*")) == []


def _rows(keys: np.ndarray) -> pa.Table:
    return pa.table({"id": keys, "text": pa.array(["a text of some length, " * 4] * len(keys))})


def _table(catalog: SqlCatalog, keys: np.ndarray) -> Table:
    table = catalog.create_table("db.limits", _rows(np.arange(1)).schema)
    ice.append(table, _rows(keys))
    return table


def _refused(table: Table, rows: pa.Table, **options: str) -> ice.MemoryBudgetError:
    before, location = listing(table), table.metadata_location
    with pytest.raises(ice.MemoryBudgetError) as refusal:
        ice.merge(table, rows.to_batches(max_chunksize=10_000), on="id", memory="16MB", **options)
    assert listing(table) == before
    assert table.refresh().metadata_location == location
    assert refusal.value.needed_bytes > refusal.value.limit_bytes == 16_000_000
    return refusal.value


def test_too_many_rows_of_one_key(catalog: SqlCatalog) -> None:
    table = _table(catalog, np.arange(10))
    rows = _rows(np.zeros(200_000, np.int64))
    error = _refused(table, rows, on_duplicate="last")
    assert "have the same key" in str(error)
    report = ice.merge(
        table, rows, on="id", on_duplicate="last", memory=max(error.needed_bytes, 128_000_000)
    )
    assert report.rows_superseded == 199_999
