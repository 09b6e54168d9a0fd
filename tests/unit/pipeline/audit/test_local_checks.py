"""What tests find in this process."""

from __future__ import annotations

import builtins
import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.pipeline.audit.local_checks import run_local_checks
from icestream.pipeline.request.checks import Check, CheckResult
from tests.support.tables import make_catalog

_ROWS = pa.table(
    {
        "id": pa.array([1, 2, 2, 3, None, None, 4, 4, 4], pa.int64()),
        "country": ["DE", "FR", "FR", None, "NO", "DE", "SE", "SE", "DE"],
        "price": pa.array([Decimal("1.50")] * 8 + [Decimal("-2.00")], pa.decimal128(9, 2)),
        "day": [dt.date(2026, 11, 1 + n % 3) for n in range(9)],
        "who": [{"name": None if n == 2 else f"n{n % 8}", "age": n} for n in range(9)],
        "ok": [True] * 9,
    }
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """One row on main; nine more on the branch `audit`, in two files."""
    table = catalog.create_table("db.t", _ROWS.schema)
    start = ice.append(table, _ROWS.slice(0, 1)).snapshot_id
    assert start is not None
    table.manage_snapshots().create_branch(start, "audit").commit()
    ice.append(table, _ROWS.slice(1, 4), branch="audit")
    ice.append(table, _ROWS.slice(5), branch="audit")
    return table


def _run(table: Table, *written: Any, memory: str = "32MB") -> list[CheckResult]:
    return run_local_checks(
        [Check.parse(each) for each in written], table, branch="audit", memory=memory
    )


def _one(table: Table, written: Any) -> CheckResult:
    (result,) = _run(table, written)
    return result


@pytest.mark.parametrize(
    ("bounds", "passed"),
    [({"min": 9}, True), ({"min": 10}, False), ({"max": 9}, True), ({"min": 1, "max": 8}, False)],
)
def test_rows_are_counted_on_the_branch(table: Table, bounds: Any, passed: bool) -> None:
    result = _one(table, {"rows": bounds})
    assert (result.passed, result.failures) == (passed, 9)
    assert ("must be" in result.text or "may be" in result.text) != passed


def test_nulls_are_counted_by_column_and_in_structs(table: Table) -> None:
    assert _one(table, {"not_null": ["price", "who"]}).passed
    result = _one(table, {"not_null": ["id", "price", "country", "who.name"]})
    assert (result.passed, result.failures) == (False, 4)
    assert result.text == "there are nulls: 2 in 'id', 1 in 'country', 1 in 'who.name'"


def test_keys_that_are_there_twice_are_found_and_nulls_passed_over(table: Table) -> None:
    result = _one(table, {"unique": "id"})
    assert (result.passed, result.failures) == (False, 2)
    assert sorted(result.examples) == ["id = 2", "id = 4"]
    assert _one(table, {"unique": ["who.age"]}).passed
    assert _one(table, {"unique": ["id", "who.age"]}).passed
    pairs = _one(table, {"unique": ["id", "country"]})
    assert sorted(pairs.examples) == ["id = 2, country = 'FR'", "id = 4, country = 'SE'"]


def test_one_key_of_text_among_many_is_found_with_what_is_on_disk(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [*range(60_000), 31_234]
    rows = pa.table({"k": [f"key {number}" for number in numbers]})
    table = catalog.create_table("db.many", rows.schema)
    ice.append(table, rows)
    monkeypatch.setattr("icestream.operations.merge.intake.grouped_rows._MOST_BYTES", 100_000)
    check = Check.parse({"unique": ["k"]})
    (result,) = run_local_checks([check], table, branch="main", memory="16MB")
    assert (result.failures, result.examples) == (1, ("k = 'key 31234'",))


@pytest.mark.parametrize(
    ("column", "values", "failures"),
    [
        ("country", ["DE", "FR", "NO", "SE"], 0),
        ("country", ["DE", "FR"], 3),
        ("id", [1, 2, 3, 4], 0),
        ("id", ["1", 2], 4),
        ("price", [1.5, "-2.00"], 0),
        ("price", [1.5], 1),
        ("day", ["2026-11-01", "2026-11-02"], 3),
        ("ok", [True], 0),
        ("who.age", list(range(8)), 1),
    ],
)
def test_values_are_compared_as_the_column_has_them(
    table: Table, column: str, values: list[Any], failures: int
) -> None:
    result = _one(table, {"accepted_values": {"column": column, "values": values}})
    assert (result.passed, result.failures) == (not failures, failures)
    assert bool(result.examples) == bool(failures)


def test_sql_must_return_nothing_and_may_read_the_result_twice(table: Table) -> None:
    good, bad = _run(
        table,
        {"sql": "SELECT a.id FROM result a JOIN result b ON a.id = b.id WHERE a.price > 100;"},
        {"sql": "SELECT id, price FROM result WHERE price < 0 -- none", "name": "no debts"},
    )
    assert good.passed
    assert (bad.name, bad.failures) == ("no debts", 1)
    assert bad.examples == ("id = 4, price = Decimal('-2.00')",)


def test_sql_that_is_wrong_says_so(table: Table) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=r"'typo'.*can't be run"):
        _run(table, {"sql": "SELEKT", "name": "typo"})


def test_sql_without_duckdb_says_what_to_install(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name == "duckdb":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ice.MissingExtraError, match=r"icestream\[duckdb\]"):
        _run(table, {"sql": "SELECT 1"})


def test_results_come_in_the_order_of_the_tests(table: Table) -> None:
    written = [{"sql": "SELECT 1"}, {"rows": {"min": 1}}, {"unique": "id"}, {"sql": "SELECT 2"}]
    assert [result.kind for result in _run(table, *written)] == ["sql", "rows", "unique", "sql"]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"unique": ["idd"]}, "'idd'.*did you mean 'id'"),
        ({"not_null": ["who.nam"]}, "'who.nam'"),
        ({"unique": ["who"]}, r"who\.id"),
        ({"accepted_values": {"column": "id", "values": ["x"]}}, "can't be converted to its type"),
    ],
)
def test_columns_that_can_not_be_tested_are_refused(
    table: Table, written: Any, message: str
) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=message):
        _run(table, written)
