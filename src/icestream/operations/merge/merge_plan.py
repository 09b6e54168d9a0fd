"""The plan of a merge, shared by all workers: the columns to match, write and update."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema

from icestream.errors import InvalidArgumentError, UnknownColumnError
from icestream.operations.merge.delete_flag import delete_columns
from icestream.operations.merge.keys.key_columns import KeyColumns
from icestream.operations.merge.keys.own_columns import check_order
from icestream.operations.merge.merge_options import MergeOptions
from icestream.operations.merge.row_shape import with_required
from icestream.write.target import WriteTarget

_NAMES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The caller's options, resolved for a stream and a table.

    Attributes:
        options: The options of the caller.
        stream: The stream's schema.
        columns: The columns of the stream to write.
        key: The key columns.
        updated: The indexes of the columns that an update sets, in the schema of files.
        is_complete: Whether the stream has all columns, so that its rows replace whole rows.
        on_read: Whether changed rows are deleted by position.
    """

    options: MergeOptions
    stream: pa.Schema
    columns: pa.Schema
    key: KeyColumns
    updated: frozenset[int]
    is_complete: bool
    on_read: bool

    @classmethod
    def of(
        cls, options: MergeOptions, stream: pa.Schema, base: WriteTarget, schema: Schema
    ) -> MergePlan:
        """Resolve the options.

        Args:
            options: The options of the caller.
            stream: The stream's schema.
            base: The table.
            schema: The table's schema after the merge.

        Raises:
            InvalidArgumentError: If an option does not fit the stream or the table.
        """
        key = KeyColumns.of(schema, options.on, table=base.table)
        wanted = written_columns(options, stream, base)
        columns = pa.schema([field for field in wanted if field.name in stream.names])
        _check_key(key, columns, base.table)
        names = [field.name for field in schema.fields]
        chosen = _chosen(options, key, columns)
        # If the key is inside a struct, the struct's other fields are updated.
        updated = (n for n, name in enumerate(names) if name in chosen and name not in key.names)
        is_complete = options.update_columns is None and chosen.issuperset(names)
        on_read = options.merges_on_read(base)
        return cls(options, stream, columns, key, frozenset(updated), is_complete, on_read)


def written_columns(options: MergeOptions, stream: pa.Schema, target: WriteTarget) -> pa.Schema:
    """The stream's columns, without those that only `delete_when` or `last_by` uses.

    If nothing is inserted, this includes required columns that the stream lacks: the rows of the
    table have values for them.
    """
    known = {field.name for field in target.schema.fields}
    needed = set(delete_columns(options.delete_when, stream))
    if options.last_by is not None:
        if options.last_by not in stream.names:
            raise UnknownColumnError(
                f"the stream has no column {options.last_by!r} (last_by): it has {_some(stream)}"
            )
        check_order(options.last_by, stream.field(options.last_by).type)
        if options.schema_mode != "evolve":
            needed.add(options.last_by)
    given = pa.schema([f for f in stream if f.name in known or f.name not in needed])
    if options.when_not_matched == "insert":
        return given
    return with_required(given, target.schema)


def _check_key(key: KeyColumns, columns: pa.Schema, table: str) -> None:
    for name in key.names:
        if not {name, name.partition(".")[0]} & set(columns.names):
            raise InvalidArgumentError(
                f"the stream has no column {name!r}, which is in the key of {table}: it has "
                f"{_some(columns)}"
            )


def _chosen(options: MergeOptions, key: KeyColumns, columns: pa.Schema) -> set[str]:
    """The names of the columns that an update sets; by default the key's are included."""
    wanted = options.update_columns
    if wanted is None:
        return set(columns.names)
    missing = [name for name in wanted if name not in columns.names]
    if missing:
        raise UnknownColumnError(
            f"update_columns names {missing[0]!r}, which the stream does not have: it has "
            f"{_some(columns)}"
        )
    in_key = [name for name in wanted if name in key.names]
    if in_key:
        raise InvalidArgumentError(
            f"update_columns names {in_key[0]!r}, a key column, which has the same value in both "
            "rows: leave it out"
        )
    return set(wanted)


def _some(schema: pa.Schema) -> str:
    return ", ".join(schema.names[:_NAMES_SHOWN])
