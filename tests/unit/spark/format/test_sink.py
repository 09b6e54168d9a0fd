"""Options of a write."""

from __future__ import annotations

import pytest

from icestream.errors import InvalidArgumentError
from icestream.spark.format.sink import SinkOptions, split_texts


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "needs a table: name it"),
        ({"path": "db.t", "colour": "red"}, "no option 'colour'"),
        ({"path": "db.t", "overwrite-where": "id > 1"}, r"mode\('overwrite'\)"),
        ({"path": "db.t", "overwrite-mode": "some"}, "'overwrite-mode' is 'some': give all or"),
        ({"path": "db.t", "create": "maybe"}, "'create' is 'maybe'"),
        ({"path": "db.t", "partition-by": "a"}, "create=True"),
        ({"path": "db.t", "memory": "lots"}, "not a size"),
    ],
)
def test_options_that_make_no_sense_are_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        SinkOptions.of(given, overwrite=False)


def test_texts_are_cut_at_commas_outside_of_parentheses() -> None:
    assert split_texts("day(ts), bucket(16, id),region") == ["day(ts)", "bucket(16, id)", "region"]
    assert split_texts(" ") == []
