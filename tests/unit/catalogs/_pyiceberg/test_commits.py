"""Commits and schema updates, and Ctrl-C while PyIceberg writes JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pydantic import BaseModel, model_serializer
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, StructType

import icestream as ice
from icestream.catalogs._pyiceberg import commits
from icestream.catalogs._pyiceberg.commits import interrupts
from tests.support.stored import folder_of, referenced_files, stored_files
from tests.support.tables import make_catalog

_ROWS = pa.table({"id": [1, 2, 3]})
_REASONS = {"Ctrl-C": KeyboardInterrupt, "SIGTERM": SystemExit, "a defect": RuntimeError}


class _Stopped(BaseModel):
    """A model whose serializer is stopped."""

    by: str

    @model_serializer
    def stop(self) -> dict[str, Any]:
        raise _REASONS[self.by]


@pytest.mark.parametrize("written", [Schema, TableMetadataV2], ids=["a manifest", "the metadata"])
def test_it_stays_an_interrupt_and_nothing_is_left(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, written: type
) -> None:
    table = catalog.create_table("db.t", _ROWS.schema)
    before = stored_files(folder_of(table))
    with monkeypatch.context() as patched:
        patched.setattr(
            written, "model_dump_json", lambda *_, **__: _Stopped(by="Ctrl-C").model_dump_json()
        )
        with pytest.raises(KeyboardInterrupt):
            ice.append(table, _ROWS)
    left = stored_files(folder_of(table)) - before
    # PyIceberg opens the next version's file before it writes to it; `orphans` finds that.
    assert not [path for path in left if not path.endswith(".metadata.json")]
    assert table.refresh().current_snapshot() is None
    ice.append(table, _ROWS)
    assert table.refresh().scan().to_arrow().num_rows == 3
    ice.orphans(table, older_than=0, delete=True, only_catalog=True)
    assert stored_files(folder_of(table)) == referenced_files(table)


@pytest.mark.parametrize(
    ("by", "raised"),
    [("Ctrl-C", KeyboardInterrupt), ("SIGTERM", SystemExit), ("a defect", ValueError)],
)
@pytest.mark.parametrize("way", ["model_dump", "model_dump_json"])
def test_errors_that_are_none_stay_what_they_are(
    by: str, raised: type[BaseException], way: str
) -> None:
    with pytest.raises(raised), interrupts():
        getattr(_Stopped(by=by), way)()


_SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "d", DoubleType()),
    NestedField(4, "nothing", LongType()),
    NestedField(5, "unknown", LongType()),
)


# `_apply` of `UpdateSchema`, by `evolved_schema`


def test_a_schema_is_evolved_without_a_catalog_as_a_real_update_would(tmp_path: Path) -> None:
    catalog: SqlCatalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", _SCHEMA)

    def change(update: UpdateSchema) -> None:
        update.add_column("new", StructType(NestedField(1, "x", LongType())))
        update.make_column_optional("n")

    planned = commits.evolved_schema(table.metadata, table.schema(), [change])
    with table.update_schema() as update:
        change(update)
    assert (planned.schema_id, planned.fields) == (table.schema().schema_id, table.schema().fields)
    further = commits.evolved_schema(
        table.metadata, planned, [lambda update: update.add_column("more", LongType())]
    )
    assert (further.schema_id, further.highest_field_id) == (2, planned.highest_field_id + 1)
    catalog.close()


# `_do_commit` of `Table`, by `commit_to_catalog`


def test_a_commit_is_sent_once_and_the_table_object_knows_it(tmp_path: Path) -> None:
    catalog: SqlCatalog = make_catalog(tmp_path)
    properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    table = catalog.create_table("db.t", _SCHEMA, properties=properties)
    for number in range(4):
        updates = (SetPropertiesUpdate(updates={"n": str(number)}),)
        commits.commit_to_catalog(table, updates, ())
        assert table.properties["n"] == str(number)
        assert table.metadata_location == catalog.load_table("db.t").metadata_location
    # Old metadata is deleted, as the table asks for: two are left.
    folder = Path(table.metadata_location.removeprefix("file://")).parent
    assert len(list(folder.glob("*.metadata.json"))) == 2
    failing = mock.patch.object(catalog, "commit_table", side_effect=CommitFailedException("no"))
    with failing as commit, pytest.raises(CommitFailedException):
        commits.commit_to_catalog(table, updates, ())
    assert commit.call_count == 1
    catalog.close()


def test_schema_updates_are_those_that_pyiceberg_commits(catalog: Catalog) -> None:
    table = catalog.create_table("db.t", _ROWS.schema)
    add = [lambda update: update.add_column("name", StringType())]
    schema, updates, requirements = commits.schema_updates(table, add)
    assert schema.column_names == ["id", "name"]
    commits.commit_to_catalog(table, updates, requirements)
    assert table.refresh().schema() == schema
    with pytest.raises(ValueError, match="name"):
        commits.schema_updates(table, add)
