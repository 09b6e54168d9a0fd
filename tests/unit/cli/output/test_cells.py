"""Arrow values as JSON and as text."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from icestream.cli.output.cells import flat, flat_schema, json_rows, json_values, text_rows


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, None, -3], pa.int32()), "[1, null, -3]"),
        (pa.array([True, None]), "[true, null]"),
        (pa.array([1.0, 0.5, 1e300, -2.0, None]), "[1.0, 0.5, 1e+300, -2.0, null]"),
        (
            pa.array([float("nan"), float("inf"), float("-inf"), 2.0]),
            '["NaN", "Infinity", "-Infinity", 2.0]',
        ),
        (pa.array([1.5], pa.float32()), "[1.5]"),
        (pa.array(["plain", "ü", None]), '["plain", "ü", null]'),
        (pa.array(['a"b', "a\\b", "a\nb", "\x01"]), r'["a\"b", "a\\b", "a\nb", "\u0001"]'),
        (pa.array(["x"], pa.large_string()), '["x"]'),
        (pa.array([0], pa.timestamp("ns")), '["1970-01-01 00:00:00.000000000"]'),
        (pa.array([{"a": float("nan"), "b": b"x"}]), '[{"a": "NaN", "b": "eA=="}]'),
        (pa.array([None, None], pa.null()), "[null, null]"),
    ],
    ids=lambda case: str(case)[:40] if isinstance(case, str) else str(case.type),
)
def test_values_are_written_as_json_has_them(values: pa.Array, expected: str) -> None:
    assert f"[{', '.join(json_values(values).to_pylist())}]" == expected
    assert json.loads(expected) is not None


def test_rows_are_json_objects_with_all_columns() -> None:
    batch = pa.record_batch({"id": [1, 2], 'a "name"': ["x", None]})
    (rows,) = json_rows(batch)
    assert [json.loads(row) for row in rows.to_pylist()] == batch.to_pylist()
    assert list(json_rows(batch.select([]))) == []


def test_columns_that_csv_has_no_type_for_become_text() -> None:
    batch = pa.record_batch({"id": [1], "bytes": [b"x"], "list": [[1, 2]], "none": [None]})
    assert flat(batch).to_pylist() == [{"id": 1, "bytes": "eA==", "list": "[1, 2]", "none": None}]
    assert flat(batch).schema == flat_schema(batch.schema)


def test_a_cell_is_one_line_of_text() -> None:
    times = pa.array([0], pa.timestamp("ns"))
    batch = pa.record_batch({"a": ["two\nlines"], "b": [None], "c": [1.5], "d": times})
    assert list(text_rows(batch)) == [
        ["two\\nlines", "NULL", "1.5", "1970-01-01 00:00:00.000000000"]
    ]
