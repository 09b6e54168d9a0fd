"""A data file that was written and is not committed yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file for a commit: plain data, so any worker can send it.

    Attributes:
        path: Its path.
        table_uuid: The table that it was written for.
        write_id: The write that created it; part of its name.
        schema_id: The schema it was written with; None if this write adds that schema.
        spec_id: The partition spec it was written under.
        partition: Its partition values, as Iceberg stores them.
        rows: Number of rows.
        bytes: Its size in storage.
        sort_order_id: The sort order of the whole file, if it is sorted.
        metrics: Further fields of `DataFile`: column sizes, counts, bounds, split offsets.
    """

    path: str
    table_uuid: str
    write_id: str
    schema_id: int | None
    spec_id: int
    partition: tuple[Any, ...]
    rows: int
    bytes: int
    sort_order_id: int | None
    metrics: dict[str, Any] = field(repr=False)

    def to_data_file(self) -> DataFile:
        """The file as an entry of a manifest."""
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=Record(*self.partition),
            record_count=self.rows,
            file_size_in_bytes=self.bytes,
            sort_order_id=self.sort_order_id,
            equality_ids=None,
            key_metadata=None,
            **self.metrics,
        )
        file.spec_id = self.spec_id
        return file
