"""dlt's `filesystem` destination with Iceberg tables, written by icestream.

The behaviours are those of dlt's own tests of Iceberg tables.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import dlt
import pyarrow as pa
import pytest
from dlt.common.configuration.container import Container
from dlt.common.destination.exceptions import UnknownDestinationModule
from dlt.common.libs.pyiceberg import get_iceberg_tables
from dlt.common.pipeline import PipelineContext
from dlt.common.wei import Wei
from dlt.destinations.adapters import iceberg_adapter, iceberg_partition
from dlt.pipeline.exceptions import PipelineStepFailed
from dlt.pipeline.helpers import pipeline_drop
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.integrations import dlt_table_load
from icestream.integrations.dlt_filesystem import filesystem
from tests.integrations.dlt_lake import LOAD_ID, lake, settings
from tests.support.process import REPOSITORY
from tests.support.s3 import s3_server

pytestmark = pytest.mark.timeout(300)

UPSERT: Any = {"disposition": "merge", "strategy": "upsert"}
INSERT_ONLY: Any = {"disposition": "merge", "strategy": "insert-only"}
Reports = list[ice.WriteReport]


@pytest.fixture(autouse=True)
def _settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(folder)
    for name, value in settings(folder).items():
        monkeypatch.setenv(name, value)
    yield
    active = Container()
    if PipelineContext in active and active[PipelineContext].is_active():
        active[PipelineContext].deactivate()


@pytest.fixture
def shop(folder: Path) -> dlt.Pipeline:
    return lake(folder)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Reports:
    """The reports of all tables, in the order in which they were loaded."""
    kept: Reports = []

    def noting(verb: Callable[..., ice.WriteReport]) -> Callable[..., ice.WriteReport]:
        def call(*args: Any, **kwargs: Any) -> ice.WriteReport:
            kept.append(verb(*args, **kwargs))
            return kept[-1]

        return call

    for name in ("append", "overwrite", "merge", "replace_keys"):
        monkeypatch.setattr(dlt_table_load, name, noting(getattr(dlt_table_load, name)))
    return kept


def _orders(rows: Any, **hints: Any) -> Any:
    hints = {"name": "orders", "primary_key": "id", "table_format": "iceberg", **hints}
    return dlt.resource(rows, **hints)


def _table(pipeline: dlt.Pipeline, name: str = "orders") -> Table:
    return get_iceberg_tables(pipeline, name)[name]


def _rows(pipeline: dlt.Pipeline, name: str = "orders") -> list[dict[str, Any]]:
    """The rows, without the columns that dlt adds."""
    rows = _table(pipeline, name).scan().to_arrow().to_pylist()
    mine = [{k: v for k, v in row.items() if not k.startswith("_dlt")} for row in rows]
    return sorted(mine, key=str)


def _loads(pipeline: dlt.Pipeline, name: str = "orders") -> list[str | None]:
    """The load id of each snapshot."""
    snapshots = _table(pipeline, name).metadata.snapshots
    return [s.summary.additional_properties.get(LOAD_ID) for s in snapshots if s.summary]


def _check_keys(pipeline: dlt.Pipeline, parent: str, child: str) -> None:
    """Each nested row belongs to one row of its parent table, and row keys are unique."""
    above = _table(pipeline, parent).scan().to_arrow()["_dlt_id"].to_pylist()
    below = _table(pipeline, child).scan().to_arrow()
    assert len(set(above)) == len(above)
    assert len(set(below["_dlt_id"].to_pylist())) == below.num_rows
    assert set(below["_dlt_parent_id"].to_pylist()) <= set(above)


def test_all_types_are_appended_and_replaced_as_one_snapshot_for_each_load(
    shop: dlt.Pipeline, folder: Path
) -> None:
    moment = datetime.datetime(2024, 2, 29, 12, 30, 1, 250_000, datetime.UTC)
    row = {
        "id": 1,
        "text": "é",
        "price": 1.5,
        "paid": True,
        "at": moment,
        "day": moment.date(),
        "time": moment.time(),
        "amount": Decimal("12.34"),
        "wei": Wei(2**100),
        "raw": b"\0\xff",
        "address": {"city": "Oslo", "geo": {"lat": 59.9}},
        "note": {"a": [1, {"b": None}]},
    }
    columns: Any = {"note": {"data_type": "json"}, "wei": {"data_type": "wei"}}
    info = shop.run(_orders([row] * 10, columns=columns))
    expected = {
        **row,
        "amount": Decimal("12.340000000"),
        "wei": str(2**100),
        "address__city": "Oslo",
        "address__geo__lat": 59.9,
        "note": '{"a":[1,{"b":null}]}',
    }
    del expected["address"]
    assert _rows(shop) == [expected] * 10
    (package,) = info.load_packages
    files = [job.file_path for job in package.jobs["completed_jobs"] if "orders" in job.file_path]
    assert {Path(file).suffix for file in files} == {".parquet", ".reference"}
    urls = {m.remote_url for m in info.metrics[package.load_id][0]["job_metrics"].values()}
    assert f"file://{folder}/lake/raw/orders/" in urls

    shop.run(_orders([row] * 10, columns=columns))
    assert len(_rows(shop)) == 20
    info = shop.run(_orders([row] * 3, columns=columns), write_disposition="replace")
    assert len(_rows(shop)) == 3
    loads = _loads(shop)
    assert len(loads) == 3
    assert loads[0] == package.load_id
    assert loads[2] == info.loads_ids[0]
    assert {r["_dlt_load_id"] for r in _table(shop).scan().to_arrow().to_pylist()} == {loads[2]}


@pytest.mark.slow
def test_several_files_become_one_snapshot_inside_the_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, reports: Reports
) -> None:
    monkeypatch.setenv("DATA_WRITER__BUFFER_MAX_ITEMS", "5000")
    monkeypatch.setenv("DATA_WRITER__FILE_MAX_ITEMS", "20000")
    monkeypatch.setenv("DESTINATION__FILESYSTEM__MEMORY", "24MB")
    shop = lake(folder)
    text = "x" * 500
    info = shop.run(_orders({"id": n, "text": f"{n} {text}"} for n in range(60_000)))
    (package,) = info.load_packages
    jobs = [job.job_file_info for job in package.jobs["completed_jobs"]]
    assert [j.file_format for j in jobs if j.table_name == "orders"].count("parquet") == 3
    (report,) = reports
    assert report.rows_inserted == 60_000
    assert report.memory_limit_bytes == 24_000_000
    assert report.peak_bytes_held <= 1.05 * report.memory_limit_bytes
    assert _loads(shop) == info.loads_ids


def test_the_tables_of_a_load_share_the_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, reports: Reports
) -> None:
    together, most = [0], [0]
    real = dlt_table_load.append
    meeting = threading.Barrier(2, timeout=60)

    def append(*args: Any, **kwargs: Any) -> ice.WriteReport:
        together[0] += 1
        most[0] = max(most[0], together[0])
        meeting.wait()
        report = real(*args, **kwargs)
        meeting.wait()
        together[0] -= 1
        return report

    monkeypatch.setattr(dlt_table_load, "append", append)
    shop = lake(folder, memory="64MB", parallel_tables=2)
    shop.run([_orders([{"id": 1}], name=f"t{n}") for n in range(4)])
    assert most == [2]
    assert {report.memory_limit_bytes for report in reports} == {32_000_000}


def test_nested_tables_are_appended_and_replaced_with_their_parents(
    shop: dlt.Pipeline, folder: Path
) -> None:
    rows = [
        {"foo": 1, "child": [{"bar": True, "deep": [1, 2]}, {"bar": True, "deep": [1]}]},
        {"foo": 2, "child": [{"bar": False, "deep": [1, 3]}]},
    ]

    def counts() -> list[int]:
        names = ("orders", "orders__child", "orders__child__deep")
        return [len(_rows(shop, name)) for name in names]

    nested = _orders(rows, primary_key=None)
    shop.run(nested)
    assert counts() == [2, 3, 5]
    assert _rows(shop, "orders__child__deep") == [{"value": n} for n in (1, 1, 1, 2, 3)]
    shop.run(nested)
    assert counts() == [4, 6, 10]
    shop.run(nested, write_disposition="replace")
    assert counts() == [2, 3, 5]
    _check_keys(shop, "orders", "orders__child")
    _check_keys(shop, "orders__child", "orders__child__deep")
    shop.run(_orders([{"foo": 3}], primary_key=None), write_disposition="replace")
    assert len(_rows(shop)) == 1
    assert not list((folder / "lake/raw/orders__child").rglob("*.parquet"))
    shop.run(
        _orders([{"foo": n} for n in range(3, 3003)], primary_key="foo"), write_disposition=UPSERT
    )
    assert len(_rows(shop)) == 3000


def test_an_upsert_replaces_the_nested_rows_of_the_rows_it_updates(
    shop: dlt.Pipeline, reports: Reports
) -> None:
    def items(key: int, *skus: str) -> dict[str, Any]:
        return {"id": key, "items": [{"sku": s, "parts": [s * 2]} for s in skus]}

    def skus() -> list[tuple[Any, str]]:
        parents = {r["_dlt_id"]: r["id"] for r in _table(shop).scan().to_arrow().to_pylist()}
        nested = _table(shop, "orders__items").scan().to_arrow().to_pylist()
        return sorted((parents[r["_dlt_root_id"]], r["sku"]) for r in nested)

    first = [items(1, "a", "b", "c"), items(2, "d"), items(3, "e", "f"), items(4, "g")]
    shop.run(_orders(first), write_disposition=UPSERT)
    for _ in range(2):  # The same again changes nothing.
        info = shop.run(
            _orders([items(1, "A"), items(3), items(5, "x", "y")]), write_disposition=UPSERT
        )
        assert skus() == [(1, "A"), (2, "d"), (4, "g"), (5, "x"), (5, "y")]
    assert sorted(r["id"] for r in _rows(shop)) == [1, 2, 3, 4, 5]
    for name in ("orders", "orders__items", "orders__items__parts"):
        assert _loads(shop, name)[-1] == info.loads_ids[0]
        assert len(_loads(shop, name)) == 3
    _check_keys(shop, "orders__items", "orders__items__parts")
    # No list has an item now, so that dlt writes no file for the nested tables.
    shop.run(_orders([items(n) for n in (1, 2, 5)]), write_disposition=UPSERT)
    assert skus() == [(4, "g")]
    assert _rows(shop, "orders__items__parts") == [{"value": "gg"}]
    assert len(reports) == 12


@pytest.mark.parametrize(
    "flag", [{"gone": True}, pytest.param({"gone": "2024-01-01"}, marks=pytest.mark.slow)]
)
def test_flagged_rows_delete_with_their_nested_rows(
    shop: dlt.Pipeline, flag: dict[str, Any]
) -> None:
    kind = "bool" if flag["gone"] is True else "timestamp"
    columns: Any = {"gone": {"hard_delete": True, "data_type": kind}}
    feed = [{"id": n, "tags": [n, n], "gone": None} for n in range(4)]
    shop.run(_orders(feed, columns=columns), write_disposition=UPSERT)
    news = [{"id": 1, "tags": [7], **flag}, {"id": 2, "tags": [8]}, {"id": 9, "tags": [9], **flag}]
    shop.run(_orders(news, columns=columns), write_disposition=UPSERT)
    assert [r["id"] for r in _rows(shop)] == [0, 2, 3]
    assert [r["value"] for r in _rows(shop, "orders__tags")] == [0, 0, 3, 3, 8]


def test_insert_only_keeps_rows_that_are_there(shop: dlt.Pipeline) -> None:
    columns: Any = {"gone": {"hard_delete": True, "data_type": "bool"}}
    first = [{"id": n, "text": "old", "tags": [n]} for n in range(3)]
    shop.run(_orders(first, columns=columns), write_disposition=INSERT_ONLY)
    news = [{"id": n, "text": "new", "tags": [n + 10, n + 20]} for n in range(2, 5)]
    news[2]["gone"] = True
    shop.run(_orders(news, columns=columns), write_disposition=INSERT_ONLY)
    shop.run(_orders([{"id": 0, "gone": True}], columns=columns), write_disposition=INSERT_ONLY)
    assert [(r["id"], r["text"]) for r in _rows(shop)] == [
        (0, "old"), (1, "old"), (2, "old"), (3, "new"),
    ]  # fmt: skip
    # dlt inserts nested rows by their own key: item 1 of order 2 is new.
    assert sorted(r["value"] for r in _rows(shop, "orders__tags")) == [0, 1, 2, 13, 22, 23]


def test_dedup_sort_decides_which_row_of_a_key_is_used(shop: dlt.Pipeline) -> None:
    columns: Any = {"changed": {"dedup_sort": "desc"}}
    rows = [{"id": 1, "changed": 5}, {"id": 1, "changed": 9}, {"id": 1, "changed": 7}]
    shop.run(_orders(rows, columns=columns), write_disposition=UPSERT)
    assert _rows(shop) == [{"id": 1, "changed": 9}]


_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "scd2": ({"write_disposition": {"disposition": "merge", "strategy": "scd2"}}, "scd2"),
    "delete-insert": (
        {"write_disposition": {"disposition": "merge", "strategy": "delete-insert"}},
        "delete-insert",
    ),
    "dedup_sort": (
        {"write_disposition": UPSERT, "columns": {"day": {"dedup_sort": "asc"}}},
        "orders.day has the hint dedup_sort='asc'",
    ),
    "dedup_sort and nested rows": (
        {"write_disposition": UPSERT, "columns": {"day": {"dedup_sort": "desc"}}},
        "orders__tags has nested rows of it",
    ),
    "same key and nested rows": ({"write_disposition": UPSERT}, "DuplicateKeysError"),
    "no key": ({"write_disposition": UPSERT, "primary_key": None}, "No primary key"),
    "source_filter": (
        {"write_disposition": {**UPSERT, "source_filter": "{staging_table}.id > 1"}},
        "source_filter",
    ),
    "skip_unchanged_rows": (
        {"write_disposition": {**UPSERT, "skip_unchanged_rows": True}},
        "skip_unchanged_rows",
    ),
}


@pytest.mark.parametrize(("hints", "name"), _REFUSED.values(), ids=_REFUSED.keys())
def test_what_is_not_supported_is_refused_by_name(
    shop: dlt.Pipeline, hints: dict[str, Any], name: str
) -> None:
    rows = [{"id": 1, "day": 1, "tags": [1]}, {"id": 1, "day": 2, "tags": [2]}]
    with pytest.raises((PipelineStepFailed, ValueError)) as failed:
        shop.run(_orders(rows, **hints))
    assert name in str(failed.value)


def test_partition_hints_and_table_properties_apply_to_new_tables(
    shop: dlt.Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "DESTINATION__FILESYSTEM__ICEBERG_TABLE_PROPERTIES",
        '{"write.parquet.compression-codec": "gzip", "owner": "all"}',
    )
    rows = [{"id": n, "at": datetime.date(2024, n, 1), "city": "x", "wei": 5} for n in (1, 2)]
    partition = [
        "city",
        iceberg_partition.month("at"),
        iceberg_partition.bucket(4, "id", "bucket_of_id"),
        iceberg_partition.truncate(2, "wei"),
    ]
    columns: Any = {"wei": {"data_type": "wei"}}
    adapted = iceberg_adapter(
        _orders(rows, columns=columns), partition=partition, table_properties={"owner": "me"}
    )
    for _ in range(2):
        shop.run(adapted)
    table = _table(shop)
    assert [(f.name, str(f.transform)) for f in table.spec().fields] == [
        ("city", "identity"),
        ("at_month", "month"),
        ("bucket_of_id", "bucket[4]"),
        ("wei_trunc_2", "truncate[2]"),
    ]
    assert len(_rows(shop)) == 4
    assert len(table.inspect.partitions()) == 2
    assert table.properties["owner"] == "me"
    assert table.properties["write.parquet.compression-codec"] == "gzip"

    two: Any = {"c1": {"partition": True}, "c2": {"partition": True}}
    empty = pa.table({"c1": pa.array([], pa.string()), "c2": pa.array([], pa.int64())})
    shop.run(_orders(empty, name="two", primary_key=None, columns=two))
    assert [f.name for f in _table(shop, "two").spec().fields] == ["c1", "c2"]
    shop.run(_orders(rows, columns={**columns, "id": {"partition": True}}))
    assert len(_table(shop).spec().fields) == 4  # The partitions of a table stay.
    wrong = {
        r"both\.id has the hint partition": {"name": "both", "partition": "id"},
        r"raw\.typo name the column 'ids'.* it has .*city": {"name": "typo", "partition": "ids"},
    }
    for error, hints in wrong.items():
        resource = _orders(rows, name=hints["name"], columns={"id": {"partition": True}})
        with pytest.raises(PipelineStepFailed, match=error):
            shop.run(iceberg_adapter(resource, partition=hints["partition"]))
        shop.abort_packages()


@pytest.mark.parametrize(
    "disposition",
    [
        pytest.param("append", marks=pytest.mark.slow),
        pytest.param("replace", marks=pytest.mark.slow),
        pytest.param(UPSERT, id="upsert"),
    ],
)
def test_new_columns_evolve_the_table_in_the_same_snapshot(
    shop: dlt.Pipeline, disposition: Any
) -> None:
    def load(data: pa.Table) -> pa.Table:
        shop.run(_orders(data, name="t", primary_key="pk"), write_disposition=disposition)
        return _table(shop, "t").scan().to_arrow()

    key = pa.field("pk", pa.int64(), nullable=False)
    assert load(pa.table([[1]], pa.schema([key]))).schema.field("pk").nullable is False
    wide = pa.table(
        {
            "amount": pa.array([Decimal("1.5"), None], pa.decimal256(76, 2)),
            "seconds": pa.array([1, 2], pa.time32("s")),
            "word": pa.array(["a", "a"]).dictionary_encode(),
            "list": pa.array([[1], None], pa.list_(pa.int32())),
        }
    ).add_column(0, key, [[1, 2]])
    rows = {"append": 3, "replace": 2}.get(str(disposition), 2)
    second = load(wide)
    assert second.num_rows == rows
    assert second.column_names == ["pk", "amount", "seconds", "word", "list"]
    assert sorted(map(str, second["amount"].to_pylist()))[0] == "1.50"
    struct = pa.struct(
        [("numbers", pa.list_(pa.int32())), ("deep", pa.struct([("n", pa.int64())]))]
    )
    value = {"numbers": [1, 2], "deep": {"n": 42}}
    deeper = wide.append_column("more", pa.array([value, None], struct))
    third = load(deeper.schema.empty_table())
    assert third.num_rows == {"append": 3, "replace": 0}.get(str(disposition), 2)
    assert set(third["more"].to_pylist()) <= {None}
    fourth = load(deeper)
    assert fourth.num_rows == {"append": 5, "replace": 2}.get(str(disposition), 2)
    assert value in fourth["more"].to_pylist()
    loads = _loads(shop, "t")
    assert len(loads) == len(set(loads)) == 4
    assert len(_table(shop, "t").schemas()) == 3


@pytest.mark.slow
def test_a_source_without_rows_creates_the_table(shop: dlt.Pipeline) -> None:
    data = pa.table({"id": pa.array([], pa.int64()), "at": pa.array([], pa.timestamp("us", "UTC"))})
    shop.run(_orders(data))
    assert _table(shop).schema().column_names == ["id", "at"]
    assert len(_loads(shop)) == 1

    columns: Any = {"id": {"data_type": "bigint", "nullable": False}, "name": {"data_type": "text"}}
    marked = _orders([dlt.mark.materialize_table_schema()], name="users", columns=columns)
    shop.run(marked)
    assert _table(shop, "users").schema().column_names[:2] == ["id", "name"]
    assert _rows(shop, "users") == []


def test_other_tables_stay_dlts_own(shop: dlt.Pipeline, folder: Path) -> None:
    plain = dlt.resource([{"id": 1}], name="plain")
    events = [{"id": n, "type": f"kind {n % 3}"} for n in range(9)]
    by_type = _orders(events, name="events", table_name=lambda e: e["type"])
    shop.run([_orders([{"id": 1}]), plain, by_type], loader_file_format="jsonl")
    assert get_iceberg_tables(shop).keys() == {"orders", "kind_0", "kind_1", "kind_2"}
    (file,) = (folder / "lake" / "raw" / "plain").iterdir()
    assert ".jsonl" in file.name
    with pytest.raises(ValueError, match="plain"):
        get_iceberg_tables(shop, "plain")
    for name in ("_dlt_loads", "_dlt_version", "_dlt_pipeline_state"):
        assert any((folder / "lake" / "raw" / name).iterdir())


@pytest.mark.slow
def test_the_table_format_can_be_the_destinations_default(folder: Path) -> None:
    shop = lake(folder, preferred_table_format="iceberg")
    shop.run([1, 2, 3], table_name="numbers", write_disposition="merge", primary_key="value")
    shop.run([3, 4], table_name="numbers", write_disposition="merge", primary_key="value")
    assert [r["value"] for r in _rows(shop, "numbers")] == [1, 2, 3, 4]


def test_one_line_of_configuration_redirects_a_pipeline_that_has_data(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESTINATION__FILESYSTEM__BUCKET_URL", f"file://{folder}/lake")

    def run(first: int, *, disposition: Any = UPSERT) -> dlt.Pipeline:
        pipeline = dlt.pipeline(
            "shop",
            destination="filesystem",
            dataset_name="raw",
            pipelines_dir=str(folder / "state"),
        )
        rows = [{"id": n, "tags": [n]} for n in range(first, first + 3)]
        pipeline.run(_orders(rows), write_disposition=disposition)
        return pipeline

    plain = run(0)
    assert _loads(plain) == [None]
    monkeypatch.setenv(
        "DESTINATION__FILESYSTEM__DESTINATION_TYPE",
        "icestream.integrations.dlt_filesystem.filesystem",
    )
    ours = run(1)
    assert ours.destination.destination_type == "icestream.integrations.dlt_filesystem.filesystem"
    for name in ("orders", "orders__tags"):
        assert _loads(ours, name)[-1] == ours.last_trace.last_load_info.loads_ids[0]
    assert [r["id"] for r in _rows(ours)] == [0, 1, 2, 3]
    assert [r["value"] for r in _rows(ours, "orders__tags")] == [0, 1, 2, 3]
    monkeypatch.delenv("DESTINATION__FILESYSTEM__DESTINATION_TYPE")
    back = run(3)
    assert [r["id"] for r in _rows(back)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"memory": "many"}, r"destination\.filesystem\.memory 'many' is not a size"),
        ({"parallel_tables": 0}, r"parallel_tables is 0: give 1 or more"),
    ],
)
def test_a_wrong_setting_is_refused_before_the_first_step(
    folder: Path, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(PipelineStepFailed, match=error):
        lake(folder, **options).run(_orders([{"id": 1}]))


def test_dlt_falls_back_to_its_own_destination_without_a_message(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The guide says so, and shows how to check. If this changes, correct the guide.
    monkeypatch.setenv("DESTINATION__FILESYSTEM__DESTINATION_TYPE", "icestream.missing.filesystem")
    pipeline = dlt.pipeline("shop", destination="filesystem", pipelines_dir=str(folder / "state"))
    assert pipeline.destination.destination_type == "dlt.destinations.filesystem"
    monkeypatch.setenv("DESTINATION__LAKE__DESTINATION_TYPE", "icestream.missing.filesystem")
    with pytest.raises(UnknownDestinationModule, match="icestream"):
        dlt.pipeline("shop", destination="lake", pipelines_dir=str(folder / "state"))


@pytest.mark.slow
def test_tables_of_dlt_get_rows_of_the_same_types(folder: Path) -> None:
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5)
    arrays = {
        "nanoseconds": pa.array([moment], pa.timestamp("ns")),
        "oslo": pa.array([moment], pa.timestamp("us", "Europe/Oslo")),
        "byte": pa.array([1], pa.int8()),
        "words": pa.array([["a"]], pa.list_(pa.large_string())),
        "code": pa.array(["a"]).dictionary_encode(),
        "things": pa.array([[{"a": 1}]]),
        "half": pa.array([1.5], pa.float16()),
        "day": pa.array([moment.date()], pa.date64()),
        "time": pa.array([moment.time()], pa.time32("ms")),
        "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        "long": pa.array([Decimal("1.5")], pa.decimal256(60, 2)),
        "fixed": pa.array([b"0123456789abcdef"], pa.binary(16)),
        "unsigned": pa.array([1], pa.uint32()),
    }
    schemas = []
    theirs = dlt.destinations.filesystem(f"file://{folder}/lake")
    for destination in (theirs, filesystem(f"file://{folder}/lake")):
        shop = dlt.pipeline(
            "shop",
            destination=destination,
            dataset_name="raw",
            pipelines_dir=str(folder / "state"),
        )
        shop.run(_orders(pa.table(arrays), primary_key=None))
        schemas.append({f.name: str(f.field_type) for f in _table(shop).schema().fields})
    # dlt stores unsigned 32-bit integers as int, which has no room for the larger half of them.
    assert schemas[1] == {**schemas[0], "unsigned": "long"}
    rows = _table(shop).scan().to_arrow().to_pylist()
    assert rows[0] == rows[1]


def test_a_load_whose_answer_was_lost_is_not_loaded_twice(
    shop: dlt.Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = dlt_table_load.append, [0]

    def append(*args: Any, **kwargs: Any) -> ice.WriteReport:
        report = real(*args, **kwargs)
        calls[0] += 1
        if calls[0] == 1:
            raise ConnectionError("the answer was lost")
        return report

    monkeypatch.setattr(dlt_table_load, "append", append)
    info = shop.run(_orders([{"id": n} for n in range(25)]))
    assert calls[0] == 2
    assert len(_rows(shop)) == 25
    assert _loads(shop) == info.loads_ids


@pytest.mark.slow
@pytest.mark.parametrize("around", ["before", "after", "during"])
def test_a_killed_load_is_complete_and_not_doubled_after_the_next_run(
    folder: Path, around: str
) -> None:
    command = [sys.executable, "-m", "tests.integrations.dlt_lake", str(folder)]
    killed = subprocess.run([*command, around], cwd=REPOSITORY, capture_output=True, text=True)
    assert killed.returncode == 9, killed.stderr
    resumed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    shop = lake(folder)
    assert [r["id"] for r in _rows(shop)] == sorted(range(25), key=lambda n: str({"id": n}))
    assert len(_loads(shop)) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")  # PyIceberg's
def test_a_persistent_catalog_of_dlts_configuration_has_the_tables(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"sqlite:///{folder}/catalog.db"
    monkeypatch.setenv("ICEBERG_CATALOG__ICEBERG_CATALOG_NAME", "here")
    monkeypatch.setenv(
        "ICEBERG_CATALOG__ICEBERG_CATALOG_CONFIG",
        f'{{"type": "sql", "uri": "{uri}", "warehouse": "file://{folder}/lake"}}',
    )
    shop = lake(folder)
    shop.run(_orders([{"id": 1, "tags": [1]}]), write_disposition=UPSERT)
    shop.run(_orders([{"id": 1, "tags": []}, {"id": 2}]), write_disposition=UPSERT)
    there = SqlCatalog("here", uri=uri)
    assert set(there.list_tables("raw")) == {("raw", "orders"), ("raw", "orders__tags")}
    table = there.load_table("raw.orders")
    assert sorted(ice.scan(table).to_reader().read_all()["id"].to_pylist()) == [1, 2]
    assert _rows(shop, "orders__tags") == []
    shop.run(_orders([{"id": 5}]), write_disposition="replace")
    assert [r["id"] for r in _rows(shop)] == [5]
    shop.drop()
    there.close()


@pytest.mark.parametrize(
    "refresh",
    [
        pytest.param("drop_sources", marks=pytest.mark.slow),
        "drop_resources",
        pytest.param("drop_data", marks=pytest.mark.slow),
    ],
)
def test_refresh_empties_the_tables_before_the_load(shop: dlt.Pipeline, refresh: Any) -> None:
    shop.run(_orders([{"id": n, "tags": [n]} for n in range(3)]), write_disposition=UPSERT)
    shop.run(_orders([{"id": 7, "tags": [7]}]), write_disposition=UPSERT, refresh=refresh)
    assert _rows(shop) == [{"id": 7}]
    assert _rows(shop, "orders__tags") == [{"value": 7}]


@pytest.mark.slow
def test_dropping_a_resource_drops_its_tables(shop: dlt.Pipeline, folder: Path) -> None:
    shop.run([_orders([{"id": 1, "tags": [1]}]), _orders([{"id": 2}], name="other")])
    pipeline_drop(shop, resources=["orders"])()
    assert get_iceberg_tables(shop).keys() == {"other"}
    assert not list((folder / "lake/raw").glob("orders*/**/*.parquet"))
    shop.run(_orders([{"id": 3, "tags": [3]}]), write_disposition=UPSERT)
    assert _rows(shop) == [{"id": 3}]
    assert _rows(shop, "orders__tags") == [{"value": 3}]


def test_state_and_schema_are_restored_from_the_lake(shop: dlt.Pipeline, folder: Path) -> None:
    def since(rows: list[dict[str, Any]]) -> Any:
        @dlt.resource(name="orders", table_format="iceberg", primary_key="id")
        def feed(day: Any = dlt.sources.incremental("day")) -> Iterator[Any]:  # noqa: B008
            yield rows

        return feed

    shop.run(since([{"id": 1, "day": 1}, {"id": 2, "day": 2}]))
    shop.drop()
    again = lake(folder)
    again.run(since([{"id": 1, "day": 1}, {"id": 3, "day": 3}]))
    assert [r["id"] for r in _rows(again)] == [1, 2, 3]


def test_a_dataset_reads_the_newest_metadata(shop: dlt.Pipeline, folder: Path) -> None:
    for n in range(2):
        shop.run(_orders([{"id": n}]))
    marker = folder / "lake/raw/orders/metadata/icestream-in-flight-0.marker"
    marker.write_text("{}")  # The marker of a load that runs or died is not metadata.
    location = _table(shop).metadata_location
    with shop.sql_client() as client:
        table = client.remote_client.prepare_load_table("orders")  # type: ignore[attr-defined]
        _, select = client.create_view_select(table)  # type: ignore[attr-defined]
    assert f"iceberg_scan('{location}'" in select


@pytest.mark.slow
def test_tables_on_s3_are_written_with_dlts_credentials(folder: Path) -> None:
    with s3_server() as endpoint:
        credentials = {
            "aws_access_key_id": "key",
            "aws_secret_access_key": "secret",
            "endpoint_url": endpoint,
            "region_name": "us-east-1",
        }
        shop = dlt.pipeline(
            "shop",
            destination=filesystem("s3://lake/dlt", credentials=credentials),
            dataset_name="raw",
            pipelines_dir=str(folder / "state"),
        )
        with shop.destination_client() as client:
            client.fs_client.call_s3("create_bucket", Bucket="lake")  # type: ignore[attr-defined]
        for n in range(2):
            info = shop.run(_orders([{"id": 1, "tags": [n, n]}]), write_disposition=UPSERT)
        assert _rows(shop, "orders__tags") == [{"value": 1}] * 2
        assert _loads(shop)[-1] == info.loads_ids[0]
        assert _table(shop).location() == "s3://lake/dlt/raw/orders"
