"""The differences between a stream's and a table's columns, and the changes that evolve the table.

Columns are matched by name, case-sensitively, at every level: fields of structs, elements of lists,
keys and values of maps. Arrow's nullability flags are ignored: the data shows whether a required
column has nulls.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from icestream.write.schema.types import conversion, hint, is_list, new_type, plain, widened

# Readers add columns with these names, so a table can't have its own.
RESERVED_NAMES = frozenset(
    {
        *("_file", "_pos", "_deleted", "_spec_id", "_partition"),
        *("_row_id", "_last_updated_sequence_number"),
        *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
    }
)
SchemaMode = Literal["freeze", "evolve", "discard"]
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Why the stream can't be written as it is.

    Attributes:
        text: The sentence.
        unknown: Whether it is only a column that the table does not have.
    """

    text: str
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the table's schema.

    Attributes:
        text: What it is, for people.
        make: Makes it.
    """

    text: str
    make: Callable[[UpdateSchema], object] = field(repr=False)


@dataclass(slots=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        differences: Differences that are errors.
        changes: Changes to the table; only with `evolve`.
        discarded: Columns of the stream that are not written.
    """

    differences: list[Difference] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)


def compare(
    schema: Schema,
    arrow_schema: pa.Schema,
    *,
    mode: SchemaMode,
    format_version: int,
    downcast_ns: bool,
) -> Comparison:
    """Compare a stream's columns with a table's."""
    walk = _Walk(schema, mode, format_version, downcast_ns)
    walk.struct(list(arrow_schema), schema.as_struct(), (), None, _Place(mode == "evolve"))
    return walk.found


def never_optional(schema: Schema) -> frozenset[int]:
    """Ids of fields that can't become optional: identifiers, what holds them, and map keys."""
    ids: set[int] = set()

    def visit(fields: Iterable[NestedField], above: tuple[int, ...], in_key: bool) -> None:
        for each in fields:
            line = (*above, each.field_id)
            if each.field_id in schema.identifier_field_ids:
                ids.update(line)
            if in_key:
                ids.add(each.field_id)
            if isinstance(each.field_type, MapType):
                visit([each.field_type.key_field], line, True)
                visit([each.field_type.value_field], line, in_key)
            else:
                visit(_children(each.field_type), line, in_key)

    visit(schema.fields, (), False)
    return frozenset(ids)


def _children(kind: IcebergType) -> tuple[NestedField, ...]:
    if isinstance(kind, StructType):
        return kind.fields
    return (kind.element_field,) if isinstance(kind, ListType) else ()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the walk is.

    Attributes:
        evolves: Whether the table may be changed here: not inside the keys of a map.
        in_key: Whether it is inside the key of a map.
        in_list: Whether it is inside a list or a map, where there may be no value at all.
    """

    evolves: bool
    in_key: bool = False
    in_list: bool = False


class _Walk:
    def __init__(
        self, schema: Schema, mode: SchemaMode, format_version: int, downcast_ns: bool
    ) -> None:
        self.found = Comparison()
        self._schema = schema
        self._discards = mode == "discard"
        self._format_version = format_version
        self._downcast_ns = downcast_ns
        self._never_optional = never_optional(schema)
        self._new_ids = itertools.count(1_000_000)  # replaced when a column is added

    def struct(
        self,
        fields: list[pa.Field],
        wanted: StructType,
        path: Path,
        parent_id: int | None,
        place: _Place,
    ) -> None:
        """Compare fields; fields below are compared, and so numbered, before new ones here."""
        by_name = {f.name: f for f in wanted.fields}
        names = {f.name for f in fields}
        fields = self._single(fields, path)
        for given in fields:
            if given.name in by_name:
                self._field(given.type, by_name[given.name], (*path, given.name), place)
        for given in fields:
            if given.name not in by_name:
                self._unknown(given, wanted, (*path, given.name), parent_id, place)
        for absent in wanted.fields:
            if absent.name not in names:
                self._missing(absent, (*path, absent.name), place)

    def _field(self, kind: pa.DataType, wanted: NestedField, path: Path, place: _Place) -> None:
        kind = plain(kind)
        below = wanted.field_type
        if pa.types.is_null(kind):
            if wanted.required and not place.in_list:
                self._optional(wanted, path, "has no type (all null) in the stream", place)
        elif isinstance(below, PrimitiveType):
            self._primitive(kind, wanted, below, path, place)
        elif isinstance(below, StructType) and pa.types.is_struct(kind):
            self.struct(list(kind), below, path, wanted.field_id, place)
        elif isinstance(below, ListType) and is_list(kind):
            inside = _Place(place.evolves, place.in_key, in_list=True)
            self._field(kind.value_type, below.element_field, (*path, "element"), inside)
        elif isinstance(below, MapType) and pa.types.is_map(kind):
            in_key = _Place(False, in_key=True, in_list=True)
            self._field(kind.key_type, below.key_field, (*path, "key"), in_key)
            inside = _Place(place.evolves, place.in_key, in_list=True)
            self._field(kind.item_type, below.value_field, (*path, "value"), inside)
        else:
            self._differs(kind, below, path)

    def _primitive(
        self,
        kind: pa.DataType,
        wanted: NestedField,
        below: PrimitiveType,
        path: Path,
        place: _Place,
    ) -> None:
        if conversion(kind, below, downcast_ns=self._downcast_ns) is not None:
            return
        wider = widened(kind, below) if place.evolves else None
        if wider is None:
            self._differs(kind, below, path)
            return
        name = self._full_name(wanted.field_id)
        self.found.changes.append(
            Change(
                f"widen column {_shown(path)} from {below} to {wider}",
                lambda update: update.update_column(name, field_type=wider),
            )
        )

    def _differs(self, kind: pa.DataType, wanted: IcebergType, path: Path) -> None:
        why = hint(kind, wanted) if isinstance(wanted, PrimitiveType) else ""
        self._difference(
            f"column {_shown(path)} is {kind} in the stream and {wanted} in the table{why}"
        )

    def _unknown(
        self,
        given: pa.Field,
        wanted: StructType,
        path: Path,
        parent_id: int | None,
        place: _Place,
    ) -> None:
        if self._discards and not place.in_key:
            self.found.discarded.append(".".join(path))
        elif place.evolves:
            self._add(given, path, parent_id)
        else:
            alike = [f.name for f in wanted.fields if f.name.lower() == given.name.lower()]
            but = f" (it has {alike[0]!r}: names are matched by case)" if alike else ""
            where = "the key of the table's map" if place.in_key else "the table"
            self.found.differences.append(
                Difference(f"column {_shown(path)} is not in {where}{but}", not place.in_key)
            )

    def _missing(self, absent: NestedField, path: Path, place: _Place) -> None:
        if absent.write_default is not None:
            self._difference(
                f"column {_shown(path)} is not in the stream, and its write default "
                "can't be filled in yet"
            )
        elif absent.required:
            self._optional(absent, path, "is not in the stream", place)

    def _optional(self, wanted: NestedField, path: Path, why: str, place: _Place) -> None:
        """A required column will get nulls: only evolving can allow that."""
        if not place.evolves or wanted.field_id in self._never_optional:
            identifies = wanted.field_id in self._never_optional and not place.in_key
            what = "an identifier of" if identifies else "required by"
            self._difference(f"column {_shown(path)} {why} and is {what} the table")
            return
        name = self._full_name(wanted.field_id)
        self.found.changes.append(
            Change(
                f"make column {_shown(path)} optional",
                lambda update: update.make_column_optional(name),
            )
        )

    def _add(self, given: pa.Field, path: Path, parent_id: int | None) -> None:
        before = len(self.found.differences)
        if len(path) == 1 and given.name in RESERVED_NAMES:
            self._difference(
                f"column {_shown(path)} has a name that Iceberg reserves for metadata columns: "
                "rename it"
            )
            return
        kind = self._new(given.type, path)
        if kind is None:
            if len(self.found.differences) == before:  # null all over: nothing to store
                self.found.discarded.append(".".join(path))
            return
        parent = () if parent_id is None else (self._full_name(parent_id),)
        self.found.changes.append(
            Change(
                f"add column {_shown(path)} {_type_name(kind)}",
                lambda update: update.add_column(
                    (*parent, given.name), field_type=kind, doc=_doc(given)
                ),
            )
        )

    def _new(self, kind: pa.DataType, path: Path) -> IcebergType | None:
        """The type of a new column; None if nothing of it has a type, or if it can't be one."""
        kind = plain(kind)
        if pa.types.is_null(kind):
            return None
        if not path[-1]:
            self._difference(f"column {_shown(path)} has no name, and can't be added without one")
            return None
        if pa.types.is_struct(kind):
            return self._new_struct(kind, path)
        if is_list(kind):
            element = self._new(kind.value_type, (*path, "element"))
            if element is None:
                return None
            return ListType(next(self._new_ids), element, element_required=False)
        if pa.types.is_map(kind):
            key = self._new(kind.key_type, (*path, "key"))
            value = self._new(kind.item_type, (*path, "value"))
            if key is None or value is None:
                return None
            ids = self._new_ids
            return MapType(next(ids), key, next(ids), value, value_required=False)
        new = new_type(kind, format_version=self._format_version, downcast_ns=self._downcast_ns)
        if new is None:
            self._difference(
                f"column {_shown(path)} is {kind} in the stream, for which the table's format "
                f"version {self._format_version} has no type{hint(kind, None)}"
            )
        return new

    def _new_struct(self, kind: pa.StructType, path: Path) -> StructType | None:
        fields = []
        empty = []
        for child in self._single(list(kind), path):
            before = len(self.found.differences)
            new = self._new(child.type, (*path, child.name))
            if new is not None:
                number = next(self._new_ids)
                fields.append(NestedField(number, child.name, new, required=False, doc=_doc(child)))
            elif len(self.found.differences) == before:
                empty.append(".".join((*path, child.name)))
        if not fields:
            return None
        self.found.discarded.extend(empty)
        return StructType(*fields)

    def _single(self, fields: list[pa.Field], path: Path) -> list[pa.Field]:
        """The fields whose names are there once; the others are a difference each."""
        counts = Counter(f.name for f in fields)
        for name, count in counts.items():
            if count > 1:
                self._difference(f"column {_shown((*path, name))} is in the stream {count} times")
        return [f for f in fields if counts[f.name] == 1]

    def _difference(self, text: str) -> None:
        self.found.differences.append(Difference(text))

    def _full_name(self, field_id: int) -> str:
        name = self._schema.find_column_name(field_id)
        assert name is not None
        return name


def _shown(path: Path) -> str:
    return repr(".".join(path))


def _type_name(kind: IcebergType) -> str:
    """A type for people: nested ones without their fields, which are not numbered yet."""
    if isinstance(kind, PrimitiveType):
        return str(kind)
    return {StructType: "struct", ListType: "list", MapType: "map"}[type(kind)]


def _doc(given: pa.Field) -> str | None:
    doc = (given.metadata or {}).get(b"doc")
    return doc.decode(errors="replace") if doc else None
