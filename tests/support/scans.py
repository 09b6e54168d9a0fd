"""What a scan gave, in forms that can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

import icestream as ice


def table_of(scan: ice.Scan) -> pa.Table:
    """Read a scan to its end, checking that every batch has the announced schema and some rows."""
    batches = []
    for batch in scan:
        assert batch.schema.equals(scan.schema, check_metadata=True), batch.schema
        for column, field in zip(batch.columns, scan.schema, strict=True):
            assert str(column.type) == str(field.type)  # `==` overlooks the names in lists
        batch.validate(full=True)
        assert batch.num_rows > 0
        batches.append(batch)
    return pa.Table.from_batches(batches, schema=scan.schema)


def rows_of(scan: ice.Scan) -> list[dict[str, Any]]:
    """Read a scan to its end; return its rows."""
    return table_of(scan).to_pylist()


def ids_of(scan: ice.Scan) -> list[int]:
    """Read a scan to its end; return its column `id`."""
    return table_of(scan)["id"].to_pylist()


def as_text(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return rows in a form in which NaN equals NaN, and -0.0 and 0.0 differ."""
    return [repr(row) for row in rows]
