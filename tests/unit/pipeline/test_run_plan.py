"""The dry run of a pipeline."""

from __future__ import annotations

import json
import sys

import pytest

import icestream as ice
from tests.support.loads import ids, snapshots_of
from tests.unit.pipeline.shop import TESTED, Shop


def test_a_dry_run_touches_nothing(shop: Shop) -> None:
    table = shop.make("db.orders")
    shop.write(TESTED, orders=ids(2, 5))
    before = sorted(shop.folder.rglob("*"))
    plan = shop.run(dry_run=True)
    assert sorted(shop.folder.rglob("*")) == before
    assert plan.resumes is None
    (load,) = plan.loads
    assert (load.status, load.into, load.mode) == ("run", "db.orders", "append")
    assert load.tests == ("unique id", "rows max 100")
    assert load.plan is not None, load.reason
    json.dumps(plan.to_dict(), default=str)
    assert not snapshots_of(table)


def test_a_load_of_a_table_that_another_load_creates_is_planned_when_it_exists(shop: Shop) -> None:
    text = """
        defaults: {engine: local}
        loads:
          a: {source: a.parquet, into: db.a}
          b: {source: "table:db.a", into: db.b}
    """
    shop.write(text, a=ids(0, 3))
    first, second = shop.run(dry_run=True).loads
    assert (first.status, first.plan.rows) == ("run", 3)
    assert (second.status, second.after, second.plan) == ("run", ("a",), None)
    assert "db.a" in str(second.reason)


def test_inputs_that_were_loaded_are_planned_as_such_unless_again(shop: Shop) -> None:
    shop.write("loads: {a: {source: a.parquet, into: db.a, engine: local}}", a=ids(0, 3))
    shop.run()
    assert [load.status for load in shop.run(dry_run=True).loads] == ["already loaded"]
    assert [load.status for load in shop.run(dry_run=True, again=True).loads] == ["run"]


@pytest.mark.parametrize(
    ("package", "engine", "named"),
    [("duckdb", "local", "needs DuckDB"), ("pyspark", "spark", "needs PySpark")],
)
def test_a_package_that_a_transform_needs_is_missed_in_the_dry_run_too(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, package: str, engine: str, named: str
) -> None:
    text = """
        defaults: {engine: local}
        loads:
          a: {source: a.parquet, into: db.a}
          b: {source: "table:db.a", into: db.b, transform: SELECT id FROM source, engine: ENGINE}
    """
    shop.write(text.replace("ENGINE", engine), a=ids(0, 3))
    assert len(shop.run(dry_run=True).loads) == 2
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ice.MissingExtraError, match=named) as caught:
        shop.run(dry_run=True)
    assert caught.value.__notes__ == ["The load 'b' needs it"]
    assert [load.load for load in shop.run(dry_run=True, only=["a"]).loads] == ["a"]
