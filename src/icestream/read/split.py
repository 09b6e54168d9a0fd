"""Splits: parts of a scan as plain data, which any process can read.

Splits are pickled to send them to other processes. The pickle starts with a format number, so that
a version of icestream whose splits have different fields refuses it.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import StructType

from icestream.errors import InvalidArgumentError

# Increase it with every change to the fields of Split, ReadContext or DeleteFile.
SPLIT_FORMAT = 2


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A position delete file, or the deletion vector in a Puffin file.

    Attributes:
        path: The location of the file.
        format: `"parquet"`, `"orc"` or `"puffin"`.
        bytes: The size of the file.
        records: Number of deleted positions in the file.
        offset: Where the deletion vector starts in the file, if the table records it.
        length: The length of the deletion vector.
        of_one_file: Whether all positions belong to one data file, according to the table.
    """

    path: str
    format: str
    bytes: int
    records: int
    offset: int | None = None
    length: int | None = None
    of_one_file: bool = False


@dataclass(frozen=True, slots=True)
class Reshape:
    """What a scan makes of each batch before it delivers it.

    Attributes:
        masks: Columns whose values are replaced: by `"hash"`, by `"null"`, or by a function.
        transform: SQL over the view `batch`, or a function of a batch. None to change nothing else.
        schema: The columns of the results.
    """

    masks: tuple[tuple[str, Any], ...]
    transform: Any
    schema: pa.Schema

    def values(self) -> tuple[Any, ...]:
        """The transform, and each column with its mask."""
        return (self.transform, *(value for mask in self.masks for value in mask))

    def refuse_local_functions(self) -> None:
        """Refuse functions that other processes can't import.

        Libraries such as Ray and Dask send functions by value, with a pickler of their own.

        Raises:
            InvalidArgumentError: Naming the function.
        """
        if any(name.rpartition(".")[2] == "cloudpickle" for name in tuple(sys.modules)):
            return
        for value in self.values():
            try:
                pickle.dumps(value)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise InvalidArgumentError(
                    f"the splits can't be sent to other processes with {value!r}: define the "
                    "function at the top level of a module that they can import"
                ) from error


@dataclass(frozen=True, slots=True)
class ReadContext:
    """The information that all splits of one scan share.

    Attributes:
        table: The table's name, for messages.
        snapshot_id: The snapshot to read.
        io: File access: properties, without open handles.
        schema: The columns to deliver.
        read_schema: The columns to decode: those to deliver, and those that the filter needs.
        row_filter: The filter that delivered rows match.
        case_sensitive: Whether the column names of the filter are case-sensitive.
        name_mapping: Field ids for files without field ids.
        downcast_ns: Whether nanoseconds in files become microseconds (format versions 1 and 2).
        metadata_columns: The metadata columns at the end of each batch.
        partition_type: The type of `_partition`, if it is requested.
        reshape: The masks and the transform; None without them.
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
    reshape: Reshape | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """A data file or some of its row groups, with everything needed to read them.

    Attributes:
        path: The data file.
        rows: Number of rows, before deletes and filters.
        bytes: Size in storage.
        format: `"parquet"` or `"orc"`.
        row_groups: The row groups to read. None means the whole file.
        filtered: Whether the row filter has to be applied to the rows.
        deletes: The delete files that apply to the data file.
        constants: Identity partition values by field id, for columns that the file lacks.
        context: The information shared with the other splits of the scan.
        number: Identifies the files of `read_located`.
        positions: Positions of the rows to read, as an ascending NumPy array or a `PositionSet`.
            None means all rows. Row groups without any of them are skipped.
        spec_id: The partition spec of the file.
        partition: The values of the fields of `ReadContext.partition_type`.
        id: An id that is stable for a snapshot, file and row groups.
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

    def __getstate__(self) -> tuple[Any, ...]:
        if self.context.reshape is not None:
            self.context.reshape.refuse_local_functions()
        return (SPLIT_FORMAT, *(getattr(self, each.name) for each in fields(self)))

    def __setstate__(self, state: Sequence[Any]) -> None:
        number, *values = state
        if number != SPLIT_FORMAT:
            raise InvalidArgumentError(
                "this split comes from another version of icestream (its format is not "
                f"{SPLIT_FORMAT}): install the same version in all processes and plan the scan "
                "again"
            )
        for each, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, each.name, value)


def with_one_context(splits: list[Split]) -> list[Split]:
    """Make splits share one context again after they were pickled separately.

    Raises:
        InvalidArgumentError: If they belong to different scans.
    """
    first = splits[0].context
    for split in splits[1:]:
        other = split.context
        if other is not first and _kind(other) != _kind(first):
            raise InvalidArgumentError(
                "these splits belong to different scans (columns, filter, masks, transform or "
                "snapshot differ): read the splits of each scan separately"
            )
    return [s if s.context is first else replace(s, context=first) for s in splits]


def _kind(context: ReadContext) -> tuple[object, ...]:
    """The properties that must be equal in all splits of a scan."""
    columns = (context.schema, context.metadata_columns)
    given = () if context.reshape is None else context.reshape.values()
    # Functions that were sent by value are copies.
    names = tuple(getattr(value, "__qualname__", value) for value in given)
    return (*columns, context.snapshot_id, str(context.row_filter), names)
