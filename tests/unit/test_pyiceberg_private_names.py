"""The private names of PyIceberg that we use: what they do, and that one module alone has them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    In,
    IsNaN,
    IsNull,
    LessThan,
    Not,
    NotEqualTo,
    NotNull,
    StartsWith,
)
from pyiceberg.schema import Schema
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, StructType

import icestream
from icestream import _pyiceberg
from tests.support.delete_files import commit_equality_deletes, commit_position_deletes
from tests.support.tables import add_parquet_file, data_file_paths, make_catalog

_SOURCE = Path(icestream.__file__).parent
_MODULES = sorted(_SOURCE.rglob("*.py"))

# `_InclusiveMetricsEvaluator`, by `metrics_evaluator`


@dataclass
class _Metrics:
    """Field 1: longs 10 to 20. Field 2: strings "b" to "d", two null. Field 3: three NaN."""

    record_count: int = 5
    value_counts: dict[int, int] = field(default_factory=lambda: {1: 5, 2: 5, 3: 5, 4: 5})
    null_value_counts: dict[int, int] = field(default_factory=lambda: {1: 0, 2: 2, 3: 0, 4: 5})
    nan_value_counts: dict[int, int] = field(default_factory=lambda: {3: 0})
    lower_bounds: dict[int, bytes] = field(
        default_factory=lambda: {1: to_bytes(LongType(), 10), 2: b"b"}
    )
    upper_bounds: dict[int, bytes] = field(
        default_factory=lambda: {1: to_bytes(LongType(), 20), 2: b"d"}
    )


_SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "d", DoubleType()),
    NestedField(4, "nothing", LongType()),
    NestedField(5, "unknown", LongType()),
)


@pytest.mark.parametrize(
    ("where", "might_match"),
    [
        (EqualTo("n", 15), True),
        (EqualTo("n", 9), False),
        (GreaterThan("n", 20), False),
        (LessThan("n", 11), True),
        (In("n", [1, 2, 3]), False),
        (In("n", [1, 12]), True),
        (Not(LessThan("n", 21)), False),
        (NotEqualTo("n", 15), True),
        (IsNull("n"), False),
        (IsNull("s"), True),
        (NotNull("nothing"), False),
        (IsNaN("d"), False),
        (StartsWith("s", "c"), True),
        (StartsWith("s", "x"), False),
        (And(EqualTo("n", 15), StartsWith("s", "x")), False),
        (EqualTo("unknown", 5), True),
        (IsNull("unknown"), True),
    ],
    ids=str,
)
def test_the_metrics_evaluator_takes_our_row_groups_and_rules_them_out(
    where: BooleanExpression, might_match: bool
) -> None:
    test = _pyiceberg.metrics_evaluator(_SCHEMA, where, True)
    assert test(_Metrics()) is might_match


def test_the_metrics_evaluator_matches_names_by_case_as_told() -> None:
    where = EqualTo("N", 9)
    assert _pyiceberg.metrics_evaluator(_SCHEMA, where, False)(_Metrics()) is False
    with pytest.raises(ValueError, match="Could not find field"):
        _pyiceberg.metrics_evaluator(_SCHEMA, where, True)


def test_the_metrics_evaluator_keeps_no_state_between_row_groups() -> None:
    """Worker threads share one."""
    test = _pyiceberg.metrics_evaluator(_SCHEMA, EqualTo("n", 15), True)
    other = _Metrics(lower_bounds={1: to_bytes(LongType(), 16)})
    assert [test(_Metrics()), test(other), test(_Metrics())] == [True, False, True]
    assert test(_Metrics(record_count=0)) is False


# `equality_delete_paths`


def test_equality_delete_files_are_found_among_other_files(tmp_path: Path) -> None:
    catalog: SqlCatalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    add_parquet_file(table, pa.table({"id": [1, 2, 3]}))
    commit_position_deletes(table, {data_file_paths(table)[0]: [0]})
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert _pyiceberg.equality_delete_paths(snapshot, table.io) == []
    paths = {commit_equality_deletes(table, ["id"], [{"id": n}]) for n in (1, 2)}
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert set(_pyiceberg.equality_delete_paths(snapshot, table.io)) == paths
    catalog.close()


# `_apply` of `UpdateSchema`, by `evolved_schema`


def test_a_schema_is_evolved_without_a_catalog_as_a_real_update_would(tmp_path: Path) -> None:
    catalog: SqlCatalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", _SCHEMA)

    def change(update: UpdateSchema) -> None:
        update.add_column("new", StructType(NestedField(1, "x", LongType())))
        update.make_column_optional("n")

    planned = _pyiceberg.evolved_schema(table.metadata, table.schema(), [change])
    with table.update_schema() as update:
        change(update)
    assert (planned.schema_id, planned.fields) == (table.schema().schema_id, table.schema().fields)
    further = _pyiceberg.evolved_schema(
        table.metadata, planned, [lambda update: update.add_column("more", LongType())]
    )
    assert (further.schema_id, further.highest_field_id) == (2, planned.highest_field_id + 1)
    catalog.close()


# One module alone


def _is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def _private_uses(source: str) -> list[str]:
    """Private names imported from PyIceberg, and private attributes of what came from it."""
    tree = ast.parse(source)
    found: list[str] = []
    ours: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pyiceberg":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.extend(name for name in names if _is_private(name))
            ours.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names if a.name.split(".")[0] == "pyiceberg"]
            found.extend(name for name in names if _is_private(name))
            ours.update("pyiceberg" for _ in names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            root: ast.expr = node.value
            while isinstance(root, (ast.Attribute, ast.Call, ast.Subscript)):
                root = root.func if isinstance(root, ast.Call) else root.value
            if isinstance(root, ast.Name) and root.id in ours:
                found.append(ast.unparse(node))
    return found


def _private_attributes_of_others(source: str) -> list[str]:
    """Private attributes of anything but `self`, `cls` and the module's own classes."""
    tree = ast.parse(source)
    defined = {
        target.attr
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute)
    }
    defined |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and _is_private(node.attr)
        and node.attr not in defined
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]


def test_the_search_finds_private_names_however_they_are_reached() -> None:
    assert _private_uses("from pyiceberg.io.pyarrow import _x, y") == ["pyiceberg.io.pyarrow._x"]
    assert _private_uses("from pyiceberg._hidden import y") == ["pyiceberg._hidden.y"]
    assert _private_uses("import pyiceberg._hidden") == ["pyiceberg._hidden"]
    assert _private_uses("import pyiceberg.io\npyiceberg.io._x") == ["pyiceberg.io._x"]
    assert _private_uses("from pyiceberg.table import T\nT(1)._y") == ["T(1)._y"]
    assert _private_uses("from pyiceberg.table import T as U\nU.a[0]._y") == ["U.a[0]._y"]
    assert _private_uses("from pyiceberg.table import T\nT.__name__; self._y") == []
    assert _private_attributes_of_others("def f(table):\n    return table._metadata") == [
        "table._metadata"
    ]
    assert _private_attributes_of_others("self._a = 1\nother._a") == []


@pytest.mark.parametrize("module", _MODULES, ids=lambda path: str(path.relative_to(_SOURCE)))
def test_no_other_module_touches_private_names_of_pyiceberg(module: Path) -> None:
    if module.name == "_pyiceberg.py" and module.parent == _SOURCE:
        assert _private_uses(module.read_text()) != []
        return
    source = module.read_text()
    assert _private_uses(source) == []
    assert _private_attributes_of_others(source) == []


def test_every_private_name_that_is_used_is_tested_here() -> None:
    used = _private_uses((_SOURCE / "_pyiceberg.py").read_text())
    here = Path(__file__).read_text()
    assert used
    for name in used:
        assert f"`{name.rsplit('.', 1)[-1]}`" in here
