"""A bad line as an error, and as a row of the quarantine table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from icestream.errors import (
    SourceError,
)
from icestream.write.sources.bad_record import QUARANTINE_SCHEMA, BadRecord, refuse
from icestream.write.sources.file_columns import KnownTypes
from tests.support.source_rows import rows_of


def test_a_bad_line_is_an_error_that_says_which(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,price\n1,2.5\n2,cheap\n")
    with pytest.raises(SourceError, match=r"a\.csv', line 3, .*'cheap'.*quarantine"):
        rows_of(path, known=KnownTypes(given=pa.schema([("price", pa.float64())])))


def test_a_long_line_is_shown_in_part() -> None:
    with pytest.raises(SourceError) as caught:
        refuse(BadRecord("a.csv", 3, "x" * 1_000, "too few columns"))
    assert "'a.csv', line 3, can't be read: too few columns" in str(caught.value)
    assert "x" * 200 + "..." in str(caught.value)
    assert "x" * 201 not in str(caught.value)


def test_the_quarantine_table_has_a_column_for_each_part_of_a_bad_record() -> None:
    assert set(BadRecord.__slots__) <= set(QUARANTINE_SCHEMA.names)
