"""One schema for many files, casts of text, and errors that name the file."""

from __future__ import annotations

import datetime as dt
import errno

import pyarrow as pa
import pytest

from icestream.errors import SchemaMismatchError, SourceError
from icestream.write.sources.batch_columns import cast_text, fit_batch, one_schema, read_errors


def test_columns_are_united_by_name_in_the_wider_type() -> None:
    first = pa.schema([("id", pa.int32()), ("a", pa.null())])
    second = pa.schema([("id", pa.int64()), ("a", pa.string())])
    assert one_schema([first, second], "columns") == second
    with pytest.raises(SchemaMismatchError, match="columns do not go together"):
        one_schema([pa.schema([("id", pa.list_(pa.int32()))]), second], "columns")


def test_a_batch_gets_the_columns_of_the_schema() -> None:
    batch = pa.record_batch({"b": ["x"], "a": pa.array([1], pa.int32())})
    schema = pa.schema([("a", pa.int64()), ("new", pa.string()), ("b", pa.string())])
    fitted = fit_batch(batch, schema)
    assert fitted.schema == schema
    assert fitted.to_pylist() == [{"a": 1, "new": None, "b": "x"}]


def test_text_is_cast_to_times_of_day() -> None:
    assert cast_text(pa.array(["01:02:03"]), pa.time64("us"))[0].as_py() == dt.time(1, 2, 3)


@pytest.mark.parametrize(
    ("path", "error", "advice"),
    [
        ("x.csv", PermissionError(errno.EACCES, "Permission denied"), "the right to read it"),
        ("x.csv", OSError(errno.EIO, "broken"), "Fix or exclude the file"),
        ("x.csv.gz", OSError("incorrect header check"), "not compressed with gzip"),
    ],
)
def test_an_error_of_a_file_names_it_and_says_what_to_do(
    path: str, error: OSError, advice: str
) -> None:
    with pytest.raises(SourceError, match=f"'{path}' can't be read: .*{advice}"), read_errors(path):
        raise error
