"""Masks and transforms of a scan."""

from __future__ import annotations

import hashlib
import multiprocessing
import pickle
import sys
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice

_ROWS = 1_000


@pytest.fixture
def people(catalog: SqlCatalog) -> Table:
    """Two files; `email` is null in every tenth row, and the table is partitioned by `country`."""
    rows = pa.table(
        {
            "id": range(_ROWS),
            "email": [None if n % 10 == 0 else f"p{n}@example.org" for n in range(_ROWS)],
            "country": [("NO", "SE")[n % 2] for n in range(_ROWS)],
            "home": [{"street": f"S{n}", "number": n} for n in range(_ROWS)],
        }
    )
    table = catalog.create_table("db.people", rows.schema)
    with table.update_spec() as spec:
        spec.add_identity("country")
    ice.append(table, rows.slice(0, 600))
    ice.append(table, rows.slice(600))
    return table


def _read(scan: ice.Scan) -> dict[str, list[Any]]:
    rows = scan.to_reader().read_all()
    assert rows.schema == scan.schema
    columns: dict[str, list[Any]] = rows.sort_by(rows.schema.names[0]).to_pydict()
    return columns


def first_letter(values: pa.Array) -> pa.Array:
    return pc.utf8_slice_codeunits(values, 0, 1)


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    ids = pc.multiply(batch["id"], 2)
    return pa.record_batch({"twice": ids, "country": batch["country"]})


def repeated(batch: pa.RecordBatch) -> pa.Table:
    return pa.table({"id": pa.array(batch["id"].to_pylist() * 100, pa.int64())})


def test_masks_replace_values_and_keep_nulls(people: Table) -> None:
    masks = {"email": "hash", "country": "null", "home": "null"}
    scan = ice.scan(people, mask=masks)
    assert scan.schema.names == ["id", "email", "country", "home"]
    rows = _read(scan)
    assert set(rows["country"]) == {None}
    assert set(rows["home"]) == {None}
    assert rows["email"][10] is None
    assert rows["email"][3] == hashlib.sha256(b"p3@example.org").hexdigest()


def test_a_function_masks_a_column_and_may_change_its_type(people: Table) -> None:
    masks = {"email": first_letter, "id": lambda ids: pc.cast(pc.modulo(ids, 2), pa.bool_())}
    scan = ice.scan(people, columns=["email", "id"], mask=masks)
    assert scan.schema.field("id").type == pa.bool_()
    assert set(scan.to_reader().read_all()["email"].to_pylist()) == {None, "p"}


def test_names_of_masks_follow_the_case_sensitivity_of_the_scan(people: Table) -> None:
    rows = _read(ice.scan(people, mask={"EMAIL": "null"}, case_sensitive=False))
    assert set(rows["email"]) == {None}
    with pytest.raises(ice.UnknownColumnError, match="'EMAIL'"):
        ice.scan(people, mask={"EMAIL": "null"})


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ({"mail": "hash"}, "mask has 'mail'"),
        ({"home.street": "hash"}, "top-level columns"),
        ({"home": "hash"}, "only values without parts"),
        ({"email": "md5"}, "give 'hash', 'null' or a function"),
        (["email"], "give a dictionary"),
        ({"email": lambda values: values[:0].to_pylist()}, "must return a pa.Array"),
    ],
)
def test_masks_that_do_not_fit_are_refused_before_reading(
    people: Table, mask: Any, message: str
) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=message):
        ice.scan(people, mask=mask)


def test_filters_on_masked_columns_are_refused(people: Table) -> None:
    for where in ("email = 'p3@example.org'", "id > 3 and not (email is null)"):
        with pytest.raises(ice.InvalidArgumentError, match="compares column 'email'"):
            ice.scan(people, columns=["id"], where=where, mask={"email": "hash"})
    with pytest.raises(ice.InvalidArgumentError, match="compares column 'home'"):
        ice.scan(people, where="home.number > 3", mask={"home": "null"})
    with pytest.raises(ice.InvalidArgumentError, match="compares column 'email'"):
        ice.scan(people.scan(row_filter="email is null"), mask={"email": "hash"})
    assert len(_read(ice.scan(people, where="id < 7", mask={"email": "hash"}))["id"]) == 7


def test_metadata_columns_do_not_show_masked_partition_values(people: Table) -> None:
    for name in ("_file", "_partition"):
        with pytest.raises(ice.InvalidArgumentError, match=f"leave {name} out"):
            ice.scan(people, mask={"country": "hash"}, metadata_columns=[name])
    scan = ice.scan(people, mask={"email": "hash"}, metadata_columns=["_file", "_pos"])
    assert "country=NO" in _read(scan)["_file"][0]


def test_a_conversion_that_fails_does_not_show_masked_values(
    people: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    from icestream.read.deliver.stream import UnitStream

    def fail(stream: UnitStream, raw: pa.RecordBatch) -> None:
        raise pa.ArrowInvalid("p3@example.org does not fit")

    monkeypatch.setattr(UnitStream, "_finish", fail)
    with pytest.raises(ice.ProjectionError) as caught:
        _read(ice.scan(people, mask={"email": "hash"}))
    shown = f"{caught.value} {caught.value.__cause__}"
    assert "a mask hides which" in shown
    assert "p3@" not in shown


def test_a_function_transforms_each_batch(people: Table) -> None:
    scan = ice.scan(people, where="id < 10", transform=doubled, batch_size=4)
    assert scan.schema.names == ["twice", "country"]
    assert _read(scan)["twice"] == list(range(0, 20, 2))


def test_sql_transforms_each_batch_after_the_masks(people: Table) -> None:
    sql = "SELECT id + 1 AS id, email FROM batch WHERE country = 'NO'"
    scan = ice.scan(people, transform=sql, mask={"email": "null"}, memory="64MB")
    assert scan.schema.names == ["id", "email"]
    rows = _read(scan)
    assert rows["id"] == list(range(1, _ROWS + 1, 2))
    assert set(rows["email"]) == {None}
    assert scan.report.peak_bytes_held >= 16 << 20  # DuckDB's part of the limit


def test_the_limit_counts_the_rows_of_a_transform(people: Table) -> None:
    scan = ice.scan(people, transform="FROM batch WHERE id >= 700", limit=5, memory="64MB")
    assert len(_read(scan)["id"]) == 5
    assert len(_read(ice.scan(people, transform=repeated, limit=50))["id"]) == 50


def test_results_are_cut_into_batches_of_the_size_that_was_requested(people: Table) -> None:
    scan = ice.scan(people, transform=repeated, batch_size=300)
    sizes = [batch.num_rows for batch in scan]
    assert sum(sizes) == 100 * _ROWS
    assert max(sizes) <= 300


def test_results_that_grow_stay_inside_the_limit(people: Table) -> None:
    def grown(batch: pa.RecordBatch) -> pa.Table:
        return pa.table({"text": pa.array(["x" * 10_000] * (10 * batch.num_rows), pa.string())})

    scan = ice.scan(people, transform=grown, memory="16MB")
    total = sum(batch.nbytes for batch in scan)
    assert total > 100_000_000
    assert scan.report.peak_bytes_held <= 16_000_000


def test_a_result_larger_than_the_limit_is_refused(people: Table) -> None:
    def huge(batch: pa.RecordBatch) -> pa.Table:
        return pa.table({"text": pa.array(["x" * 20_000_000] * min(batch.num_rows, 1), "string")})

    with pytest.raises(ice.MemoryBudgetError, match="the transform makes 20 MB of"):
        _read(ice.scan(people, transform=huge, memory="16MB"))


def test_sql_needs_memory_for_duckdb(people: Table) -> None:
    with pytest.raises(ice.MemoryBudgetError, match=r"33\.6 MB, half of it for DuckDB"):
        _read(ice.scan(people, transform="FROM batch", memory="16MB"))


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ("SELECT nothing FROM batch", "over the view batch"),
        ("SELECT 1 FROM read_csv('/etc/passwd')", "transform failed"),
        ("CREATE TABLE x (a INT)", "not one SELECT"),
        ("no SQL", "syntax error"),
        (lambda batch: None, "returns nothing"),
        (lambda batch: batch["id"][0].as_py(), "batch without rows"),
        (lambda batch: pa.table({}), "returns no columns"),
    ],
)
def test_transforms_that_do_not_work_are_refused_before_reading(
    people: Table, transform: Any, message: str
) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=message):
        ice.scan(people, transform=transform)


def test_every_batch_must_have_the_same_columns(people: Table) -> None:
    def changing(batch: pa.RecordBatch) -> pa.Table:
        kind = pa.string() if batch.num_rows else pa.int64()
        return pa.table({"id": batch["id"].cast(kind)})

    with pytest.raises(ice.SchemaMismatchError, match="'id' as string"):
        _read(ice.scan(people, transform=changing))
    mask = {"id": lambda ids: ids.cast(pa.string()) if len(ids) else ids}
    with pytest.raises(ice.SchemaMismatchError, match="a mask returned"):
        _read(ice.scan(people, columns=["id"], mask=mask))


def test_an_error_of_a_transform_reaches_the_consumer(people: Table) -> None:
    def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            raise ZeroDivisionError("the caller's own error")
        return batch

    with pytest.raises(ZeroDivisionError, match="the caller's own error"):
        _read(ice.scan(people, transform=failing))


def _rows_of(splits: list[ice.Split]) -> int:
    return ice.read_splits(splits, memory="64MB").to_reader().read_all().num_rows


def test_splits_take_masks_and_transforms_to_other_processes(people: Table) -> None:
    scan = ice.scan(people, mask={"email": first_letter}, transform="FROM batch WHERE id < 700")
    sent = [pickle.loads(pickle.dumps(split)) for split in scan.splits()]
    assert _read(ice.read_splits(sent, memory="64MB"))["email"][:3] == [None, "p", "p"]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_rows_of, (scan.splits(),)) == 700


def test_a_function_that_others_can_not_import_is_refused_when_it_is_sent(
    people: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.endswith("cloudpickle")]:
        monkeypatch.delitem(sys.modules, name)
    (split, *_) = ice.scan(people, transform=lambda batch: batch).splits()
    with pytest.raises(ice.InvalidArgumentError, match="top level of a module"):
        pickle.dumps(split)


def test_splits_with_different_masks_are_not_read_together(people: Table) -> None:
    first = ice.scan(people, mask={"email": "hash"}).splits()
    second = ice.scan(people, mask={"email": "null"}).splits()
    with pytest.raises(ice.InvalidArgumentError, match="different scans"):
        ice.read_splits([first[0], second[0]])
