"""The local catalog, and lists of tables."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from icestream.catalogs.lookup import (
    is_configured,
    is_local,
    list_tables,
    load_table,
    local_folder,
    make_local_catalog,
    open_catalog,
)
from icestream.errors import CatalogError, InvalidArgumentError
from tests.support.catalogs import make_catalog

SCHEMA = Schema(NestedField(1, "id", LongType()))


@pytest.fixture(autouse=True)
def nothing_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("PYICEBERG_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    with closing(make_catalog(tmp_path)) as catalog:
        yield catalog


def test_a_local_catalog_is_made_only_when_asked_for(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"no catalog is configured, and .*icestream_warehouse"):
        open_catalog(None)
    assert list(tmp_path.iterdir()) == []
    with closing(make_local_catalog()) as made:
        made.create_namespace("db")
        made.create_table("db.t", SCHEMA)
    assert local_folder() == tmp_path / "icestream_warehouse"
    with closing(open_catalog(None)) as opened:
        table = load_table("db.t", opened)
    assert table.location() == f"file://{tmp_path}/icestream_warehouse/db/t"


def test_the_local_catalog_can_be_called_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CatalogError, match=r"no catalog 'local' is configured, and .*icestream_"):
        open_catalog("local")
    with closing(make_local_catalog()) as made:
        made.create_namespace("db")
    monkeypatch.setenv("PYICEBERG_CATALOG__OTHER__URI", f"sqlite:///{tmp_path}/other.db")
    with closing(open_catalog("local")) as opened:
        assert list_tables(opened) == {"db": []}
    assert is_local("local")
    monkeypatch.setenv("PYICEBERG_CATALOG__LOCAL__URI", f"sqlite:///{tmp_path}/other.db")
    assert not is_local("local"), "the configuration has one of that name"


def test_making_it_again_opens_what_is_there(tmp_path: Path) -> None:
    with closing(make_local_catalog(tmp_path)) as made:
        made.create_namespace("db")
    with closing(make_local_catalog(tmp_path)) as again:
        assert list_tables(again) == {"db": []}


def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "icestream_warehouse").write_text("a file")
    with pytest.raises(CatalogError, match="change to a folder that is writable"):
        make_local_catalog(tmp_path)


def test_a_damaged_local_catalog_is_named(tmp_path: Path) -> None:
    folder = local_folder()
    folder.mkdir()
    (folder / "catalog.db").write_text("no database, but long enough to be looked at" * 100)
    with pytest.raises(CatalogError, match=r"local catalog in .* could not be opened"):
        open_catalog(None)


def test_what_is_configured_goes_before_the_local_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_local_catalog().close()
    assert not is_configured()
    monkeypatch.setenv("PYICEBERG_CATALOG__FAR__URI", "sqlite:////nowhere/catalog.db")
    assert is_configured()
    with (
        mock.patch("icestream.catalogs.lookup.list_catalogs", return_value=["far"]),
        pytest.raises(CatalogError, match=r"default catalog could not be opened.*\(far\)"),
    ):
        open_catalog(None)


def test_tables_of_nested_namespaces_are_listed(catalog: SqlCatalog) -> None:
    catalog.create_namespace("db.inner")
    catalog.create_table("db.t", SCHEMA)
    catalog.create_table("db.inner.u", SCHEMA)
    assert list_tables(catalog) == {"db": ["db.t"], "db.inner": ["db.inner.u"]}


def test_a_catalog_that_does_not_answer_is_named_without_its_password(catalog: SqlCatalog) -> None:
    catalog.properties["uri"] = "postgresql://me:hidden@host/db"
    with (
        mock.patch.object(catalog, "list_namespaces", side_effect=OSError("gone")),
        pytest.raises(
            CatalogError, match=r"\(postgresql://host/db\) could not be listed"
        ) as caught,
    ):
        list_tables(catalog)
    assert "hidden" not in str(caught.value)


def test_a_catalog_that_can_not_be_opened_shows_no_password() -> None:
    # SQLAlchemy refuses it, and says all of it.
    uri = "sqlite://host/db?password=hush it&odd=x"
    with pytest.raises(CatalogError, match="'far' could not be opened") as caught:
        open_catalog("far", {"type": "sql", "uri": uri})
    shown = "".join(traceback.format_exception(caught.value))
    assert "hush" not in shown
    assert "sqlite://host/db" in shown


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


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("db.order", r"no table 'db\.order' in .*: did you mean 'db\.orders'"),
        ("bd.orders", r"no table 'bd\.orders' in .*: did you mean 'db\.orders'"),
        ("db.ordersx", r"did you mean 'db\.orders' or 'db\.orders_old'\?$"),
        ("db.customers", r"check the name, or pass catalog= the name of another catalog$"),
    ],
)
def test_a_table_with_a_similar_name_is_suggested(
    catalog: SqlCatalog, name: str, hint: str
) -> None:
    catalog.create_table("db.orders", SCHEMA)
    catalog.create_table("db.orders_old", SCHEMA)
    with pytest.raises(CatalogError, match=hint):
        load_table(name, catalog)


def test_a_name_without_a_namespace_is_completed(catalog: SqlCatalog) -> None:
    catalog.create_table("db.orders", SCHEMA)
    with pytest.raises(InvalidArgumentError, match=r"'orders' is not a .* as in 'db\.orders'$"):
        load_table("orders", catalog)
    with pytest.raises(InvalidArgumentError, match=r"'x' is not a table name: .* as in 'db\.t'$"):
        load_table("x", "no such catalog")


def test_a_catalog_that_does_not_list_tables_gives_no_hint(catalog: SqlCatalog) -> None:
    with (
        mock.patch.object(catalog, "list_namespaces", side_effect=NotImplementedError),
        pytest.raises(CatalogError, match="check the name"),
    ):
        load_table("db.order", catalog)


_WITHOUT_PANDAS = """
import sys
from icestream.catalogs.lookup import load_table
load_table("db.t", "local")
assert "pyarrow" in sys.modules
assert "pandas" not in sys.modules
"""


def test_a_table_is_loaded_by_its_name_without_pandas(tmp_path: Path) -> None:
    with closing(make_local_catalog()) as catalog:  # type: ignore[type-var]
        catalog.create_namespace("db")
        catalog.create_table("db.t", SCHEMA)
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PANDAS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
