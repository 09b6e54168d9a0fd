"""Evaluate the row filter on Arrow arrays of the table's types.

Values are compared after projection, so renamed, promoted, default and partition columns are not
special cases. Nulls are treated as in PyIceberg's `to_arrow()`: a comparison with null drops the
row, and `not in` keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
)
from pyiceberg.expressions.visitors import (
    BoundBooleanExpressionVisitor,
    bind,
    rewrite_not,
    visit,
)
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from icestream.catalogs.arrow_io import schema_to_pyarrow

Mask = Callable[[pa.RecordBatch], pa.Array]


def compile_filter(row_filter: BooleanExpression, schema: Schema, case_sensitive: bool) -> Mask:
    """A function from a batch of `schema` to a boolean array: true if the row matches."""
    bound = bind(schema, rewrite_not(row_filter), case_sensitive)
    mask: Mask = visit(bound, _Evaluator(schema))
    return mask


def null_stays(row_filter: BooleanExpression) -> BooleanExpression:
    """The filter, changed to be false where it is null.

    For nulls, PyIceberg evaluates `not in` as true; with statistics, it does so for any negation.
    """
    return _with_not_null(rewrite_not(row_filter))


def _with_not_null(row_filter: BooleanExpression) -> BooleanExpression:
    if isinstance(row_filter, And):
        return And(_with_not_null(row_filter.left), _with_not_null(row_filter.right))
    if isinstance(row_filter, Or):
        return Or(_with_not_null(row_filter.left), _with_not_null(row_filter.right))
    if isinstance(row_filter, (NotEqualTo, NotIn, NotNaN, NotStartsWith)):
        not_null: Callable[..., BooleanExpression] = NotNull  # mypy sees PyIceberg's fields only
        return And(not_null(row_filter.term), row_filter)
    return row_filter


class _Evaluator(BoundBooleanExpressionVisitor[Mask]):
    def __init__(self, schema: Schema) -> None:
        self._paths = _paths(schema.as_struct())

    def _column(self, term: Any) -> Callable[[pa.RecordBatch], pa.Array]:
        path = self._paths[term.ref().field.field_id]

        def get(batch: pa.RecordBatch) -> pa.Array:
            array = batch.column(path[0])
            for position in path[1:]:
                array = pc.struct_field(array, position)
            return array.storage if isinstance(array, pa.ExtensionArray) else array

        return get

    def _compare(self, function: str, term: Any, literal: Any) -> Mask:
        get, value = self._column(term), _scalar(literal.value, term)
        return lambda batch: pc.call_function(function, [get(batch), value])

    def visit_in(self, term: Any, literals: set[Any]) -> Mask:
        get, values = self._column(term), _array(literals, term)
        return lambda batch: pc.is_in(get(batch), value_set=values)

    def visit_not_in(self, term: Any, literals: set[Any]) -> Mask:
        return self.visit_not(self.visit_in(term, literals))

    def visit_is_nan(self, term: Any) -> Mask:
        get = self._column(term)
        return lambda batch: pc.is_nan(get(batch))

    def visit_not_nan(self, term: Any) -> Mask:
        return self.visit_not(self.visit_is_nan(term))

    def visit_is_null(self, term: Any) -> Mask:
        get = self._column(term)
        return lambda batch: pc.is_null(get(batch))

    def visit_not_null(self, term: Any) -> Mask:
        get = self._column(term)
        return lambda batch: pc.is_valid(get(batch))

    def visit_equal(self, term: Any, literal: Any) -> Mask:
        return self._compare("equal", term, literal)

    def visit_not_equal(self, term: Any, literal: Any) -> Mask:
        return self._compare("not_equal", term, literal)

    def visit_greater_than_or_equal(self, term: Any, literal: Any) -> Mask:
        return self._compare("greater_equal", term, literal)

    def visit_greater_than(self, term: Any, literal: Any) -> Mask:
        return self._compare("greater", term, literal)

    def visit_less_than(self, term: Any, literal: Any) -> Mask:
        return self._compare("less", term, literal)

    def visit_less_than_or_equal(self, term: Any, literal: Any) -> Mask:
        return self._compare("less_equal", term, literal)

    def visit_starts_with(self, term: Any, literal: Any) -> Mask:
        get, prefix = self._column(term), str(literal.value)
        return lambda batch: pc.starts_with(get(batch), pattern=prefix)

    def visit_not_starts_with(self, term: Any, literal: Any) -> Mask:
        return self.visit_not(self.visit_starts_with(term, literal))

    def visit_true(self) -> Mask:
        return lambda batch: pa.repeat(pa.scalar(True), batch.num_rows)

    def visit_false(self) -> Mask:
        return lambda batch: pa.repeat(pa.scalar(False), batch.num_rows)

    def visit_not(self, child_result: Mask) -> Mask:
        return lambda batch: pc.invert(child_result(batch))

    def visit_and(self, left_result: Mask, right_result: Mask) -> Mask:
        return lambda batch: pc.and_kleene(left_result(batch), right_result(batch))

    def visit_or(self, left_result: Mask, right_result: Mask) -> Mask:
        return lambda batch: pc.or_kleene(left_result(batch), right_result(batch))


def _paths(struct: StructType, above: tuple[int, ...] = ()) -> dict[int, tuple[int, ...]]:
    paths: dict[int, tuple[int, ...]] = {}
    for position, field in enumerate(struct.fields):
        path = (*above, position)
        paths[field.field_id] = path
        if isinstance(field.field_type, StructType):
            paths.update(_paths(field.field_type, path))
    return paths


def _storage_type(term: Any) -> pa.DataType:
    kind = schema_to_pyarrow(term.ref().field.field_type)
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _scalar(value: Any, term: Any) -> pa.Scalar:
    return pa.scalar(value.bytes if isinstance(value, UUID) else value, type=_storage_type(term))


def _array(values: set[Any], term: Any) -> pa.Array:
    kind = _storage_type(term)
    plain = [v.bytes if isinstance(v, UUID) else v for v in values]
    if pa.types.is_floating(kind) and 0.0 in plain:
        plain += [0.0, -0.0]  # Arrow compares the bits of set members, and zero has two forms.
    return pa.array(plain, type=kind)
