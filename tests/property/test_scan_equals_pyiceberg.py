"""Random tables, random scans: a scan gives the rows of a plain model, and those of PyIceberg.

The model is a list of rows by field id for each file, and a set of deleted positions: it knows
nothing of readers. PyIceberg's `to_arrow()` is asked as well, except where it is known to be wrong:
filters on columns that a file lacks, `not` over comparisons with NaN, sets with a zero among
floats, `is null` of a list, and null partition values (`_pyiceberg_is_right`).
"""

from __future__ import annotations

import itertools
import pickle
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

import icestream as ice
from tests.support.delete_files import commit_position_deletes
from tests.support.filters import internal_value, matches
from tests.support.scans import as_text
from tests.support.tables import commit_files, make_catalog, write_orc_file, write_parquet_file

_EPOCH = datetime(1970, 1, 1)
_HOURS = [timedelta(hours=h) for h in (-30_000, -25, -1, 0, 1, 23, 24, 400_000)]
_POOLS: dict[type[IcebergType], list[Any]] = {
    BooleanType: [True, False],
    IntegerType: [-(2**31) + 8, -11, -1, 0, 1, 5, 10, 2**31 - 1],
    LongType: [-(2**40), -11, -1, 0, 1, 5, 10, 2**40],
    FloatType: [-1.25, -0.0, 0.0, 0.5, 3.0, float("nan"), float("inf")],
    DoubleType: [-1.25, -0.0, 0.0, 0.5, 3.0, float("nan"), float("-inf")],
    DecimalType: [Decimal(f"{n}.{c}") for n, c in [("-12", "50"), ("0", "00"), ("0", "01")]],
    StringType: ["", "a", "ab", "abc", "b", "ba", "ü", "\U0001f9ca"],
    BinaryType: [b"", b"\x00", b"a", b"ab", b"\xff"],
    DateType: [date(1970, 1, 1) + timedelta(days=d) for d in (-400, -1, 0, 1, 31, 20_000)],
    TimestampType: [_EPOCH + hours for hours in _HOURS],
    TimestamptzType: [_EPOCH.replace(tzinfo=ZoneInfo("UTC")) + hours for hours in _HOURS],
}
_FLAT = list(_POOLS)
_TRANSFORMS: list[tuple[Transform[Any, Any], tuple[type[IcebergType], ...]]] = [
    (
        IdentityTransform(),
        (BooleanType, IntegerType, LongType, DecimalType, StringType, BinaryType, DateType),
    ),
    (IdentityTransform(), (TimestampType, TimestamptzType)),
    (BucketTransform(3), (IntegerType, LongType, StringType, DateType, TimestampType, BinaryType)),
    (TruncateTransform(2), (StringType, BinaryType)),
    (TruncateTransform(10), (IntegerType, LongType, DecimalType)),
    (YearTransform(), (DateType, TimestampType, TimestamptzType)),
    (MonthTransform(), (DateType, TimestampType)),
    (DayTransform(), (DateType, TimestampType, TimestamptzType)),
    (HourTransform(), (TimestampType, TimestamptzType)),
    (VoidTransform(), (StringType, IntegerType)),
]
_PROMOTIONS = {IntegerType: LongType(), FloatType: DoubleType(), DecimalType: DecimalType(15, 2)}
_NAMES = itertools.count()


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    catalog = make_catalog(tmp_path_factory.mktemp("property"))
    yield catalog
    catalog.close()


# The model


@dataclass
class _File:
    path: str
    rows: list[dict[int, Any]]
    field_ids: set[int]
    deleted: set[int] = field(default_factory=set)


@dataclass
class _Model:
    """A table, and what is in it: rows by field id, file by file."""

    table: Table
    files: list[_File] = field(default_factory=list)
    next_id: int = 0

    def rows(self) -> list[dict[str, Any]]:
        """All rows under the current schema, in the order in which PyIceberg plans files."""
        order = [task.file.file_path for task in self.table.scan().plan_files()]
        by_path = {file.path: file for file in self.files}
        schema = self.table.schema().as_struct()
        return [
            _shown(row, schema)
            for path in order
            for position, row in enumerate(by_path[path].rows)
            if position not in by_path[path].deleted
        ]

    def place_of(self, row_id: int) -> tuple[str, int]:
        """The file and position of a row."""
        for file in self.files:
            for position, row in enumerate(file.rows):
                if row[1] == row_id:
                    return file.path, position
        raise KeyError(row_id)


def _shown(row: dict[int, Any], struct: StructType) -> dict[str, Any]:
    shown = {}
    for column in struct.fields:
        value = row.get(column.field_id)
        if isinstance(column.field_type, StructType) and value is not None:
            value = _shown(value, column.field_type)
        shown[column.name] = value
    return shown


def _by_id(row: dict[str, Any], struct: StructType) -> dict[int, Any]:
    kept = {}
    for column in struct.fields:
        value = row[column.name]
        if isinstance(column.field_type, StructType) and value is not None:
            value = _by_id(value, column.field_type)
        kept[column.field_id] = value
    return kept


# Tables


@dataclass(frozen=True)
class _Recipe:
    """What is done to a table; `seed` decides values, names and positions."""

    kinds: list[type[IcebergType]]
    partition_by: list[int]
    steps: list[tuple[str, int]]
    seed: int


_steps = st.one_of(
    st.tuples(st.just("files"), st.integers(1, 30)),
    st.tuples(
        st.sampled_from(["add", "drop", "rename", "promote", "move", "add nested", "delete"]),
        st.integers(0, 50),
    ),
)
_recipes = st.builds(
    _Recipe,
    kinds=st.lists(st.sampled_from(_FLAT), min_size=1, max_size=5),
    partition_by=st.lists(st.integers(0, 500), max_size=2),
    steps=st.tuples(
        st.tuples(st.just("files"), st.integers(1, 40)), st.lists(_steps, max_size=6)
    ).map(lambda parts: [parts[0], *parts[1]]),
    seed=st.integers(0, 2**32),
)


def _build(catalog: Catalog, recipe: _Recipe) -> _Model:
    generator = random.Random(recipe.seed)
    columns = [
        NestedField(2 + number, f"c{number}", _kind(kind))
        for number, kind in enumerate(recipe.kinds)
    ]
    inner = StructType(NestedField(51, "a", IntegerType()), NestedField(52, "b", StringType()))
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        *columns,
        NestedField(50, "t", inner),
        NestedField(60, "l", ListType(61, LongType(), element_required=False)),
    )
    table = catalog.create_table(
        f"db.t{next(_NAMES)}", schema, partition_spec=_spec(columns, recipe.partition_by)
    )
    model = _Model(table)
    for step, number in recipe.steps:
        if step == "files":
            _add_files(model, number, generator)
        elif step == "delete":
            _delete(model, number, generator)
        else:
            _evolve(model, step, number)
    return model


def _kind(kind: type[IcebergType]) -> IcebergType:
    return DecimalType(9, 2) if kind is DecimalType else kind()


def _spec(columns: list[NestedField], chosen: list[int]) -> PartitionSpec:
    possible = [
        (column, transform)
        for column in columns
        for transform, kinds in _TRANSFORMS
        if isinstance(column.field_type, kinds)
    ]
    fields = {}
    for number in chosen if possible else []:
        column, transform = possible[number % len(possible)]
        fields.setdefault(
            column.field_id,
            PartitionField(column.field_id, 1000 + len(fields), transform, f"part_{column.name}"),
        )
    return PartitionSpec(*fields.values())


def _value(kind: IcebergType, generator: random.Random) -> Any:
    if generator.random() < 0.2:
        return None
    if isinstance(kind, StructType):
        return {f.name: _value(f.field_type, generator) for f in kind.fields}
    if isinstance(kind, ListType):
        return [_value(kind.element_type, generator) for _ in range(generator.choice([0, 1, 3]))]
    return generator.choice(_POOLS[type(kind)])


def _add_files(model: _Model, count: int, generator: random.Random) -> None:
    """Add rows: one file for each partition among them, all in one snapshot."""
    table = model.table
    struct = table.schema().as_struct()
    rows = []
    for _ in range(count):
        row = {f.name: _value(f.field_type, generator) for f in struct.fields}
        rows.append({**row, "id": model.next_id})
        model.next_id += 1
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[_partition_of(table, row)].append(row)
    arrow = schema_to_pyarrow(table.schema(), include_field_ids=False)
    added: list[DataFile] = []
    for group in groups.values():
        contents = pa.Table.from_pylist(group, schema=arrow)
        size = generator.choice([1, 2, 7, 100])
        if generator.random() < 0.25:
            added.append(write_orc_file(table, contents, stripe_rows=size))
        else:
            added.append(write_parquet_file(table, contents, row_group_rows=size))
        stored = [_by_id(row, struct) for row in group]
        model.files.append(_File(added[-1].file_path, stored, set(table.schema().field_ids)))
    commit_files(table, added)


def _partition_of(table: Table, row: dict[str, Any]) -> tuple[Any, ...]:
    values = []
    for part in table.spec().fields:
        source = table.schema().find_field(part.source_id)
        transform = part.transform.transform(source.field_type)
        values.append(transform(internal_value(row[source.name])))
    return tuple(values)


def _delete(model: _Model, number: int, generator: random.Random) -> None:
    chosen = generator.sample(model.files, min(len(model.files), 1 + number % 3))
    positions = {
        file.path: {generator.randrange(len(file.rows)) for _ in range(1 + number % 7)}
        for file in chosen
    }
    commit_position_deletes(
        model.table,
        positions,
        one_file=generator.random() < 0.5,
        file_format=generator.choice(["parquet", "orc"]),
    )
    for file in chosen:
        file.deleted |= positions[file.path]


def _evolve(model: _Model, step: str, number: int) -> None:
    table = model.table
    partitioned = {part.source_id for part in table.spec().fields}
    columns = [f for f in table.schema().fields if f.name not in ("id", "t", "l")]
    free = [f for f in columns if f.field_id not in partitioned]
    fresh = f"n{len(table.schemas())}"
    with table.update_schema() as update:
        if step == "add":
            update.add_column(fresh, _kind(_FLAT[number % len(_FLAT)]))
        elif step == "add nested":
            update.add_column(("t", fresh), LongType())
        elif step == "drop" and len(free) > 1:
            update.delete_column(free[number % len(free)].name)
        elif step == "rename":
            update.rename_column(columns[number % len(columns)].name, fresh)
        elif step == "move":
            update.move_first(columns[number % len(columns)].name)
        elif step == "promote":
            for column in free:
                wider = _PROMOTIONS.get(type(column.field_type))
                if wider is not None and column.field_type != wider:
                    update.update_column(column.name, wider)
                    break


# Filters


@dataclass(frozen=True)
class _Leaf:
    name: str
    kind: IcebergType


def _leaves(struct: StructType, above: str = "") -> list[_Leaf]:
    found = []
    for column in struct.fields:
        name = above + column.name
        found.append(_Leaf(name, column.field_type))
        if isinstance(column.field_type, StructType):
            found.extend(_leaves(column.field_type, f"{name}."))
    return found


_COMPARISONS = [
    EqualTo,
    NotEqualTo,
    LessThan,
    LessThanOrEqual,
    GreaterThan,
    GreaterThanOrEqual,
]


@st.composite
def _predicates(draw: st.DrawFn, leaves: list[_Leaf]) -> BooleanExpression:
    leaf = draw(st.sampled_from(leaves))
    if leaf.name in ("t", "l"):
        return draw(st.sampled_from([IsNull, NotNull]))(leaf.name)
    pool = _POOLS[type(leaf.kind)] if leaf.name != "id" else list(range(0, 60, 5))
    literals = [v for v in pool if v == v and v not in (float("inf"), float("-inf"))]
    choices: list[Any] = [*_COMPARISONS, In, NotIn, IsNull, NotNull]
    if isinstance(leaf.kind, (FloatType, DoubleType)):
        choices += [IsNaN, NotNaN]
    if isinstance(leaf.kind, StringType):
        choices += [StartsWith, NotStartsWith]
    make = draw(st.sampled_from(choices))
    if make in (IsNull, NotNull, IsNaN, NotNaN):
        return make(leaf.name)
    if make in (In, NotIn):
        return make(leaf.name, draw(st.lists(st.sampled_from(literals), min_size=2, max_size=4)))
    return make(leaf.name, draw(st.sampled_from(literals)))


def _filters(schema: Schema) -> st.SearchStrategy[BooleanExpression | None]:
    leaves = _leaves(schema.as_struct())
    return st.one_of(
        st.none(),
        st.recursive(
            _predicates(leaves),
            lambda inner: st.one_of(
                st.builds(And, inner, inner), st.builds(Or, inner, inner), st.builds(Not, inner)
            ),
            max_leaves=4,
        ),
    )


def _terms(where: Any, *, negated: bool = False) -> Iterator[tuple[Any, bool]]:
    if isinstance(where, Not):
        yield from _terms(where.child, negated=True)
    elif isinstance(where, (And, Or)):
        yield from _terms(where.left, negated=negated)
        yield from _terms(where.right, negated=negated)
    elif hasattr(where, "term"):
        yield where, negated


def _pyiceberg_is_right(model: _Model, where: BooleanExpression | None) -> bool:
    schema = model.table.schema()
    for predicate, negated in _terms(where):
        column = schema.find_field(predicate.term.name)
        if any(column.field_id not in file.field_ids for file in model.files):
            return False
        if isinstance(column.field_type, ListType):
            return False
        if isinstance(column.field_type, (FloatType, DoubleType)) and (
            negated or isinstance(predicate, (In, NotIn))
        ):
            return False
    return True


# Scans


@dataclass(frozen=True)
class _Asked:
    where: BooleanExpression | None
    columns: list[str] | None
    limit: int | None
    batch_size: int
    memory: str
    order: Any


@st.composite
def _scans(draw: st.DrawFn, schema: Schema) -> _Asked:
    names = [leaf.name for leaf in _leaves(schema.as_struct())]
    chosen = draw(st.one_of(st.none(), st.lists(st.sampled_from(names), max_size=4, unique=True)))
    return _Asked(
        where=draw(_filters(schema)),
        columns=None if chosen is None else ["id", *(name for name in chosen if name != "id")],
        limit=draw(st.one_of(st.none(), st.integers(0, 60))),
        batch_size=draw(st.sampled_from([1, 3, 16, 131_072])),
        memory=draw(st.sampled_from(["4MB", "256MB"])),
        order=draw(
            st.sampled_from([ice.TaskOrder(), ice.ArrivalOrder(), ice.ArrivalOrder(1), None])
        ),
    )


def _pick(row: dict[str, Any], schema: pa.Schema | pa.StructType) -> dict[str, Any]:
    picked = {}
    for column in schema:
        value = row[column.name]
        if isinstance(column.type, pa.StructType) and value is not None:
            value = _pick(value, column.type)
        picked[column.name] = value
    return picked


def _read(scan: ice.Scan, batch_size: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for batch in scan:
        assert batch.schema.equals(scan.schema, check_metadata=True)
        assert 0 < batch.num_rows <= batch_size
        batch.validate(full=True)
        rows.extend(batch.to_pylist())
    return rows


def _check(model: _Model, asked: _Asked) -> None:
    table = model.table
    scan = ice.scan(
        table,
        where=asked.where,
        columns=asked.columns,
        limit=asked.limit,
        batch_size=asked.batch_size,
        memory=asked.memory,
        order=asked.order,
    )
    everything = [
        _pick(row, scan.schema)
        for row in model.rows()
        if asked.where is None or matches(asked.where, row)
    ]
    got = _read(scan, asked.batch_size)
    if isinstance(asked.order, ice.ArrivalOrder):
        _check_arrival(model, got, everything, asked)
        return
    assert as_text(got) == as_text(everything[: asked.limit])
    selected = tuple(asked.columns or ("*",))
    their = table.scan(
        row_filter=asked.where if asked.where is not None else "true", selected_fields=selected
    )
    if _pyiceberg_is_right(model, asked.where):
        try:
            theirs = their.update(limit=asked.limit).to_arrow()
        except TypeError:  # a null partition value, compared with `<`
            event("PyIceberg fails")
        else:
            event("compared with PyIceberg")
            in_our_order = theirs.select(scan.schema.names)
            assert as_text(got) == as_text(in_our_order.to_pylist())
    splits = pickle.loads(pickle.dumps(scan.splits(target_bytes=1)))
    if splits and asked.limit is None:
        assert as_text(rows_of_splits(splits)) == as_text(got)


def rows_of_splits(splits: list[ice.Split]) -> list[dict[str, Any]]:
    return [row for batch in ice.read_splits(splits) for row in batch.to_pylist()]


def _check_arrival(
    model: _Model, got: list[dict[str, Any]], everything: list[dict[str, Any]], asked: _Asked
) -> None:
    wanted = {row["id"]: row for row in everything}
    count = len(everything) if asked.limit is None else min(asked.limit, len(everything))
    assert len(got) == len({row["id"] for row in got}) == count
    assert as_text(got) == as_text(wanted[row["id"]] for row in got)
    places = [model.place_of(row["id"]) for row in got]
    for path in {path for path, _ in places}:
        positions = [position for where, position in places if where == path]
        assert positions == sorted(positions)
    if asked.order.concurrent_streams == 1:
        assert len(list(itertools.groupby(path for path, _ in places))) == len(
            {path for path, _ in places}
        )


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        # Shrinking would take minutes: each try builds a table.
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@_settings(8)
@given(recipe=_recipes, data=st.data())
def test_a_scan_gives_the_rows_of_the_model_and_of_pyiceberg(
    catalog: Catalog, recipe: _Recipe, data: st.DataObject
) -> None:
    _check_scans(catalog, recipe, data)


@pytest.mark.slow
@_settings(50)
@given(recipe=_recipes, data=st.data())
def test_many_scans_give_the_rows_of_the_model_and_of_pyiceberg(
    catalog: Catalog, recipe: _Recipe, data: st.DataObject
) -> None:
    _check_scans(catalog, recipe, data)


def _check_scans(catalog: Catalog, recipe: _Recipe, data: st.DataObject) -> None:
    model = _build(catalog, recipe)
    for number in range(4):
        asked = data.draw(_scans(model.table.schema()), label=f"scan {number}")
        _check(model, asked)
    catalog.drop_table(model.table.name())
