"""Count the rows of a scan: from metadata where that is exact, else from the cheapest columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import NestedField, PrimitiveType

from icestream.read.request import ScanRequest, filter_ids
from icestream.read.split import ReadContext, Split

_WIDTHS = {"boolean": 1, "int": 4, "date": 4, "float": 4, "long": 8, "double": 8, "time": 8}
_TIMESTAMP_WIDTH, _OTHER_WIDTH, _NESTED_WIDTH = 8, 32, 1_000


@dataclass(slots=True)
class UncountedSplits:
    """The splits whose rows must be read to be counted. Each iteration starts over.

    Attributes:
        splits: All splits of the scan.
        context: The context for reading only a few columns.
        limit: Stop when metadata alone accounts for this number of rows.
        counted: Rows of the other splits, known after an iteration.
    """

    splits: Iterable[Split]
    context: ReadContext
    limit: int | None = None
    counted: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[Split]:
        self.counted = 0
        for split in self.splits:
            if split.filtered or split.deletes or split.positions is not None:
                yield replace(split, context=self.context)
                continue
            self.counted += split.rows
            if self.limit is not None and self.counted >= self.limit:
                return

    def close(self) -> None:
        """End the plan."""
        getattr(self.splits, "close", lambda: None)()


def counting_context(context: ReadContext, table: Schema | None) -> ReadContext:
    """The context for reading the columns of the filter, or one small column without a filter.

    Args:
        context: The context of the scan.
        table: The table's schema. By default the columns that the scan decodes.
    """
    schema = table if table is not None else context.read_schema
    ids = filter_ids(schema, context.row_filter, context.case_sensitive)
    wanted = ids or {min(schema.fields, key=_width).field_id}
    columns = prune_columns(schema, wanted, select_full_types=not ids)
    return replace(
        context,
        schema=columns,
        read_schema=columns,
        metadata_columns=(),
        partition_type=None,
        reshape=None,  # Masks do not change the number of rows.
    )


def _width(column: NestedField) -> int:
    kind = column.field_type
    if not isinstance(kind, PrimitiveType):
        return _NESTED_WIDTH
    name = str(kind)
    width = _TIMESTAMP_WIDTH if name.startswith("timestamp") else _OTHER_WIDTH
    return _WIDTHS.get(name, width)


def known_rows(request: ScanRequest | None, limit: int | None) -> int:
    """Rows that a scan of a whole table surely returns, according to its snapshot. Reads nothing.

    Returns:
        0 if the scan has a filter, reads splits, or the snapshot has deletes or lacks the counts.
    """
    if request is None or request.appends is not None:
        return 0
    snapshot = request.data_scan.snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0
    if not isinstance(request.context.row_filter, AlwaysTrue):
        return 0
    summary = snapshot.summary.additional_properties
    if summary.get("total-delete-files") != "0" or not summary.get("total-records", "").isdigit():
        return 0
    rows = int(summary["total-records"])
    return rows if limit is None else min(rows, limit)
