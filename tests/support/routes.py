"""Small files to load on Spark, and the route that a load decides on for their rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from icestream.pipeline.engines.spark_route import Route, choose_route
from icestream.pipeline.inputs.load_input import find_inputs
from icestream.pipeline.inputs.load_target import LoadTarget
from icestream.pipeline.request.load_spec import LoadSpec

_FIRST = dt.date(2025, 1, 1)
_FILES = 4
_ROWS = 8_000


def write_days(folder: Path, days: Callable[[int], int]) -> Path:
    """Four files whose row with number `n` has the day `days(n)`."""
    folder.mkdir()
    for number in range(_FILES):
        ids = range(number * _ROWS, (number + 1) * _ROWS)
        day = [_FIRST + dt.timedelta(days(n)) for n in ids]
        rows = pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array(day, pa.date32())})
        pq.write_table(rows, folder / f"{number}.parquet", use_dictionary=False, compression="none")
    return folder


def route_of(catalog: SqlCatalog, source: Any, into: str = "db.t", **options: Any) -> Route:
    """The route of a load; two cores unless `cores` says otherwise."""
    cores = options.pop("cores", 2)
    spec = LoadSpec.of(source, into, catalog=catalog, **options)
    with LoadTarget.open(spec) as target:
        inputs = find_inputs(spec, target).with_columns(spec, target)
        return choose_route(spec, inputs, target, cores=cores, memory_bytes=64_000_000)
