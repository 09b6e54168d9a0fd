"""Streams of orders for tests: what Spark asks of a stream, without Spark; and real queries."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql.datasource import CaseInsensitiveDict

import icestream as ice
from icestream.spark.data_source import IcestreamSource
from icestream.spark.streaming.stream_options import HAS_ADMISSION_CONTROL
from tests.support.spark_orders import ORDERS_DDL

Offset = dict[str, Any]


def catalog_options(catalog: Catalog, **options: str) -> dict[str, str]:
    """Options that name a catalog which no configuration knows of, and others."""
    given = {f"catalog.{name}": value for name, value in catalog.properties.items()}
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return {"catalog": catalog.name, **given, **named}


def append_orders(table: Table, first: int, end: int) -> int:
    """Append orders with these ids as a snapshot of one file; the snapshot's id."""
    report = ice.append(table, _orders(first, end))
    assert report.snapshot_id is not None
    return report.snapshot_id


def write_orders(folder: Path, first: int, end: int) -> None:
    """Write them to a Parquet file for `Copying.files`."""
    _incoming(folder).mkdir(exist_ok=True)
    pq.write_table(_orders(first, end), _incoming(folder) / f"{first}.parquet")


def _incoming(folder: Path) -> Path:
    return folder / "incoming"


def _orders(first: int, end: int) -> pa.Table:
    count = end - first
    columns = {"id": list(range(first, end)), "region": ["r"] * count, "price": [1.0] * count}
    return pa.table(columns)


class Stream:
    """A stream, asked as Spark asks: offsets go through JSON, tasks get what is pickled."""

    def __init__(self, catalog: Catalog, table: str = "db.orders", **options: str) -> None:
        given = {**catalog_options(catalog, **options), "path": table}
        source = IcestreamSource(CaseInsensitiveDict(given))
        self.schema = source.schema()
        self.reader = source.streamReader(self.schema)
        self.offset: Offset | None = None

    def next(self) -> list[int]:
        """The ids of the next micro-batch."""
        if HAS_ADMISSION_CONTROL:
            limit = self.reader.getDefaultReadLimit()
            end = _stored(self.reader.latestOffset(self._start(), limit))
        else:
            end = _stored(self.reader.latestOffset())
        ids = self.ids(self._start(), end)
        self.offset = end
        return ids

    def _start(self) -> Offset:
        """Spark does not keep where a stream starts, and asks anew each time."""
        return self.offset or _stored(self.reader.initialOffset())

    def ids(self, start: Offset, end: Offset) -> list[int]:
        """The ids between two offsets."""
        return sorted(n for batch in self.batches(start, end) for n in batch["id"].to_pylist())

    def batches(self, start: Offset, end: Offset) -> list[pa.RecordBatch]:
        """The rows between two offsets."""
        reader = pickle.loads(pickle.dumps(self.reader))
        shares = self.reader.partitions(_stored(start), _stored(end))
        return [batch for share in shares for batch in reader.read(share)]


def _stored(offset: Mapping[str, Any]) -> Offset:
    stored: Offset = json.loads(json.dumps(offset))
    return stored


class Copying:
    """Queries that copy the rows of one table into another, with one checkpoint."""

    def __init__(
        self, spark: Any, catalog: Catalog, folder: Path, *, into: str, stream_id: str
    ) -> None:
        self.checkpoint = folder / f"checkpoint of {into}"
        self._folder = folder
        self._spark = spark
        self._catalog = catalog
        self._into = into
        self._stream_id = stream_id

    def run(self, frame: Any | None = None, **options: str) -> Any:
        """Copy the current rows of a frame or of `db.orders`, and end."""
        writer = self.writer(self.source() if frame is None else frame).options(**options)
        query = writer.trigger(availableNow=True).start(self._into)
        query.awaitTermination()
        return query

    def files(self, **options: str) -> Any:
        """The frame of the orders that `write_orders` has written."""
        reader = self._spark.readStream.schema(ORDERS_DDL).options(**options)
        return reader.parquet(str(_incoming(self._folder)))

    def source(self, **options: str) -> Any:
        """The frame of `db.orders`."""
        given = catalog_options(self._catalog, **options)
        return self._spark.readStream.format("icestream").options(**given).load("db.orders")

    def writer(self, frame: Any) -> Any:
        """A writer of a frame."""
        given = catalog_options(self._catalog, stream_id=self._stream_id)
        given["checkpointLocation"] = str(self.checkpoint)
        return frame.writeStream.format("icestream").options(**given)

    def forget_last_batch(self) -> None:
        """Let Spark not know that it has written the last micro-batch, as after a crash."""
        commits = self.checkpoint / "commits"
        last = max((path for path in commits.iterdir() if path.name.isdigit()), key=_number)
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)


def _number(path: Path) -> int:
    return int(path.name)
