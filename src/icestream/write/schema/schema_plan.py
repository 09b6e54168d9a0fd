"""Plans whether a stream fits a table, and how the table's schema changes.

| mode | column not in the table | required column not in the stream | wider type in the stream |
|---|---|---|---|
| `freeze` | error | error | error |
| `discard` | left out, and reported | error | error |
| `evolve` | added, optional | made optional | the table's column is widened |

Widening is int to long, float to double, and a decimal to more digits with the same scale; all of
it on every level, except that keys of maps never change. Identifier fields are never made optional.
A new column of Arrow's null type has no type to be added with: it is left out, and reported. New
fields are optional on every level and take their comments from Arrow's `doc` metadata; comments of
existing columns stay. `icestream.write.schema.types` lists the types that fit as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import get_args

import pyarrow as pa
from pyiceberg.schema import Schema

from icestream.catalogs._pyiceberg.commits import evolved_schema
from icestream.errors import InvalidArgumentError, SchemaMismatchError
from icestream.write.schema.comparison import Comparison, SchemaMode, compare
from icestream.write.schema.types import downcasts_nanoseconds
from icestream.write.target import WriteTarget

__all__ = ["SchemaMode", "SchemaPlan", "check_mode", "mismatch", "plan_schema"]

_TYPES = re.compile(r" is \S+ in the stream and \S+ in the table")


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """What a stream means for a table.

    Attributes:
        schema: The schema to write with: the target's own if nothing changes.
        changes: What changes in the table, each as a sentence.
        discarded: Columns of the stream that are not written, with dots for nested ones.
    """

    schema: Schema
    changes: tuple[str, ...] = ()
    discarded: tuple[str, ...] = ()


def check_mode(mode: str) -> None:
    """Check a schema mode.

    Raises:
        InvalidArgumentError: If it is unknown; the message lists the known ones.
    """
    if mode not in get_args(SchemaMode):
        raise InvalidArgumentError(f"schema_mode is {mode!r}: give 'freeze', 'evolve' or 'discard'")


def plan_schema(
    target: WriteTarget,
    arrow_schema: pa.Schema,
    *,
    mode: SchemaMode,
    downcast_ns: bool | None = None,
) -> SchemaPlan:
    """Compare a stream's schema with the target's, and plan the change if there is to be one.

    Args:
        target: The table; its `schema` is the one compared with and evolved from.
        arrow_schema: The stream's schema.
        mode: What to do about differences.
        downcast_ns: Whether nanoseconds may be cut to microseconds; None: as PyIceberg's
            configuration says.

    Raises:
        SchemaMismatchError: If the stream can't be written in this mode; lists every difference.
    """
    check_mode(mode)
    cut = downcasts_nanoseconds() if downcast_ns is None else downcast_ns
    version = target.metadata.format_version

    def compare_with(mode: SchemaMode) -> Comparison:
        return compare(
            target.schema, arrow_schema, mode=mode, format_version=version, downcast_ns=cut
        )

    result = compare_with(mode)
    if result.differences:
        evolving_helps = mode != "evolve" and not compare_with("evolve").differences
        raise mismatch(target.table, result, evolving_helps=evolving_helps, mode=mode)
    discarded = tuple(result.discarded)
    if not result.changes:
        return SchemaPlan(target.schema, (), discarded)
    return SchemaPlan(_evolved(target, result), tuple(c.text for c in result.changes), discarded)


def _evolved(target: WriteTarget, result: Comparison) -> Schema:
    try:
        schema = evolved_schema(
            target.metadata, target.schema, [change.make for change in result.changes]
        )
    except ValueError as error:
        text = f"the columns of the stream can't be added: {error}"
        raise SchemaMismatchError(
            f"{text} (table {target.table}): rename them", differences=(text,)
        ) from error
    # A schema that the table had before keeps the number it had.
    return next((s for s in target.metadata.schemas if s == schema), schema)


def mismatch(
    table: str, result: Comparison, *, evolving_helps: bool, mode: SchemaMode = "freeze"
) -> SchemaMismatchError:
    """The error that lists all differences, and says what to do."""
    differences = tuple(d.text for d in result.differences)
    remedies = []
    if all(d.unknown for d in result.differences):
        remedies.append("drop these columns or load with schema_mode='discard'")
    elif mode == "evolve" and all(_TYPES.search(each) for each in differences):
        remedies.append(
            "cast these columns to the table's types, or load into a new table (Iceberg widens "
            "only int to long, float to double, and decimals)"
        )
    else:
        remedies.append("change the stream")
    if evolving_helps:
        remedies.append("load with schema_mode='evolve' to change the table")
    listed = "; ".join(differences)
    return SchemaMismatchError(
        f"the stream does not fit table {table}: {listed}: {', or '.join(remedies)}",
        differences=differences,
    )
