"""A share of a scan, as plain data that any worker can read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import StructType


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A position delete file, or the deletion vector in a Puffin file.

    Attributes:
        path: Where it is.
        format: `"parquet"`, `"orc"` or `"puffin"`.
        bytes: The size of the file.
        records: How many positions it holds.
        offset: Where the deletion vector starts in the file, if the table says so.
        length: How long that is.
        of_one_file: Whether the table says that it is about this data file alone, so that all of
            its records are.
    """

    path: str
    format: str
    bytes: int
    records: int
    offset: int | None = None
    length: int | None = None
    of_one_file: bool = False


@dataclass(frozen=True, slots=True)
class ReadContext:
    """What all splits of one scan share.

    Attributes:
        table: The table's name, for messages.
        snapshot_id: The snapshot that is read.
        io: How files are opened: properties, no open handles.
        schema: The columns delivered.
        read_schema: The columns decoded: those, and the ones that the filter needs.
        row_filter: Which rows are delivered.
        case_sensitive: How the filter's column names are matched.
        name_mapping: Field ids for files that carry none.
        downcast_ns: Whether nanoseconds in files become microseconds (format versions 1 and 2).
        metadata_columns: Which columns of `origin.py` batches end with.
        partition_type: What `_partition` holds, if that is one of them.
    """

    table: str
    snapshot_id: int | None
    io: FileIO
    schema: Schema
    read_schema: Schema
    row_filter: BooleanExpression
    case_sensitive: bool
    name_mapping: NameMapping | None
    downcast_ns: bool
    metadata_columns: tuple[str, ...] = ()
    partition_type: StructType | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """A data file, or some of its row groups, with all that is needed to read it.

    Attributes:
        path: The data file.
        rows: Rows in it, before deletes and filters.
        bytes: Its size in storage.
        format: `"parquet"` or `"orc"`.
        row_groups: The row groups to read; None means all of the file.
        filtered: Whether the row filter has to be applied to its rows.
        deletes: Delete files that apply.
        constants: Identity partition values by field id, for columns the file does not hold.
        context: What it shares with the other splits of the scan.
        number: Tells the files of `read_located` apart.
        positions: The only rows of the file that are wanted, ascending (a NumPy array); None means
            all. Row groups without any of them are not read.
        spec_id: The partition spec that the file was written under.
        partition: Its values for the fields of `ReadContext.partition_type`.
        id: Stable for the same snapshot, file and row groups.
    """

    path: str
    rows: int
    bytes: int
    format: str
    row_groups: tuple[int, ...] | None
    filtered: bool
    deletes: tuple[DeleteFile, ...]
    constants: tuple[tuple[int, Any], ...]
    context: ReadContext = field(repr=False)
    number: int = 0
    positions: Any = field(default=None, repr=False, compare=False)
    spec_id: int = 0
    partition: tuple[Any, ...] = ()

    @property
    def id(self) -> str:
        parts = f"{self.context.snapshot_id}\0{self.path}\0{self.row_groups}"
        return hashlib.sha256(parts.encode()).hexdigest()[:16]
