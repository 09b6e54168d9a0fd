"""Any ADBC driver as a source, here that of SQLite."""

from __future__ import annotations

import sqlite3
import traceback
from pathlib import Path

import pytest

from icestream.errors import InvalidArgumentError, MissingExtraError, SourceError
from icestream.pipeline.inputs.adbc_source import adbc_schema, open_adbc
from icestream.pipeline.request.source_spec import SourceSpec


@pytest.fixture
def path(tmp_path: Path) -> Path:
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute('CREATE TABLE "my table" (id INTEGER, name TEXT)')
    connection.execute("INSERT INTO 'my table' VALUES (1, 'a'), (2, NULL)")
    connection.commit()
    connection.close()
    return tmp_path / "x.db"


def test_a_table_and_a_query_are_streams(path: Path) -> None:
    source = SourceSpec.parse(f"adbc:sqlite:{path}?table=my table")
    assert adbc_schema(source).names == ["id", "name"]
    with open_adbc(source) as stream:
        rows = [row for batch in stream for row in batch.to_pylist()]
    assert rows == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    query = {"database": f"adbc:sqlite:{path}", "query": "SELECT sum(id) AS s FROM [my table]"}
    with open_adbc(SourceSpec.parse(query)) as stream:
        assert [batch.to_pylist() for batch in stream] == [[{"s": 3}]]


def test_a_driver_that_is_missing_is_named_with_its_package() -> None:
    source = SourceSpec.parse("adbc:no_such:host/db?table=t")
    with pytest.raises(MissingExtraError, match="pip install adbc-driver-no-such"):
        adbc_schema(source)


def test_an_error_of_the_driver_shows_no_password(path: Path) -> None:
    source = SourceSpec.parse(f"adbc:sqlite:{path}?table=t&password=hush-4711")
    with pytest.raises(InvalidArgumentError, match="takes no options: leave out 'password'"):
        adbc_schema(source)
    source = SourceSpec.parse(f"adbc:sqlite:{path}?table=nope&token=hush-4711")
    with pytest.raises(SourceError, match="can't be read") as caught:
        adbc_schema(source)
    assert "hush-4711" not in "".join(traceback.format_exception(caught.value))
