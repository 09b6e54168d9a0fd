"""Names become tables, or errors that say what to do."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from icestream.catalogs.lookup import load_table
from icestream.errors import CatalogError, InvalidArgumentError

SCHEMA = Schema(NestedField(1, "id", LongType()))


def test_a_catalog_is_found_by_its_name_in_the_configuration(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_table("db.t", SCHEMA)
    configured = mock.patch(
        "pyiceberg.catalog._ENV_CONFIG.get_catalog_config",
        lambda name: {"uri": catalog.properties["uri"]} if name == "tests" else None,
    )
    with configured:
        table = load_table("db.t", "tests")
    assert table.name() == ("db", "t")
    table.catalog.close()


def test_a_loaded_table_is_taken_as_it_is(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", SCHEMA)
    assert load_table(table, None) is table
    with pytest.raises(InvalidArgumentError, match="leave catalog out"):
        load_table(table, catalog)


@pytest.mark.parametrize("name", ["db.missing", "nowhere.t"])
def test_an_unknown_table_is_named_with_its_catalog(catalog: SqlCatalog, name: str) -> None:
    with pytest.raises(CatalogError, match=rf"no table '{name}' in catalog 'tests' \(sqlite:"):
        load_table(name, catalog)


@pytest.mark.parametrize("name", ["t", "db.", ".t", ""])
def test_a_name_without_its_namespace_is_refused(catalog: SqlCatalog, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"as in 'db\.t'"):
        load_table(name, catalog)


def test_no_message_shows_the_password_of_a_catalog(catalog: SqlCatalog) -> None:
    catalog.properties["uri"] = "postgresql://me:hidden@host:5432/db?password=hidden"
    with pytest.raises(CatalogError, match=r"\(postgresql://host:5432/db\)") as caught:
        load_table("db.missing", catalog)
    assert "hidden" not in str(caught.value)


def test_a_catalog_that_is_not_configured_is_named_with_the_variable_to_set() -> None:
    with pytest.raises(CatalogError, match="PYICEBERG_CATALOG__NO_SUCH_CATALOG__URI"):
        load_table("db.t", "no_such_catalog")


def test_a_catalog_that_can_not_be_reached_is_a_catalog_error(tmp_path: Path) -> None:
    database = tmp_path / "gone" / "catalog.db"
    catalog = SqlCatalog("far", uri=f"sqlite:///{database}", init_catalog_tables="false")
    with pytest.raises(CatalogError, match="could not be loaded from catalog 'far'"):
        load_table("db.t", catalog)
    catalog.close()


@pytest.mark.parametrize(("table", "catalog"), [(7, None), ("db.t", 7)])
def test_other_things_are_refused(table: object, catalog: object) -> None:
    with pytest.raises(InvalidArgumentError, match="is a int"):
        load_table(table, catalog)  # type: ignore[arg-type]
