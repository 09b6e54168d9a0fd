from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from icestream.read.filters.times import days_of, micros_of

_NOON = int(datetime(2024, 1, 31, 12, tzinfo=UTC).timestamp()) * 10**6


@pytest.mark.parametrize("text", ["2024-01-31", "2024-1-31", " 2024-01-31 ", "2024-01-31 00:00"])
def test_a_date_is_read(text: str) -> None:
    assert days_of(text) == (date(2024, 1, 31) - date(1970, 1, 1)).days


@pytest.mark.parametrize(
    "text", ["2024-02-30", "2024-13-01", "2024-01-31 10:00", "2024-01-31 0:00Z"]
)
def test_a_date_that_does_not_exist_or_has_a_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"day is out of range|month must be|without a time"):
        days_of(text)


@pytest.mark.parametrize(
    ("text", "zoned", "micros"),
    [
        ("2024-01-31 12:00", False, _NOON),
        ("2024-01-31T12:00:00", False, _NOON),
        ("2024-01-31t12:00:01.5", False, _NOON + 1_500_000),
        ("2024-01-31 12:00:00,000001000", False, _NOON + 1),
        ("2024-01-31", False, _NOON - 12 * 3_600 * 10**6),
        ("2024-01-31 12:00", True, _NOON),  # without a zone, UTC
        ("2024-01-31 12:00Z", True, _NOON),
        ("2024-01-31 12:00 utc", True, _NOON),
        ("2024-01-31 14:00:00+02:00", True, _NOON),
        ("2024-01-31 14:00 +0200", True, _NOON),
        ("2024-01-31 08:30-03:30", True, _NOON),
        ("2024-01-31 13:00 Europe/Oslo", True, _NOON),
        ("1969-12-31 23:59:59.999999", False, -1),
    ],
)
def test_a_timestamp_is_read(text: str, zoned: bool, micros: int) -> None:
    assert micros_of(text, with_zone=zoned) == micros


@pytest.mark.parametrize(
    ("text", "zoned", "message"),
    [
        ("2024-01-31 12:00+02:00", False, "has no time zone: leave '\\+02:00' out"),
        ("2024-01-31 24:00", True, "no such time of day"),
        ("2024-01-31 12:00:00.1234567", True, "at most 6 digits"),
        ("2024-01-31 12:00 Europe/Olso", True, "no time zone 'Europe/Olso'"),
    ],
)
def test_a_timestamp_that_a_column_can_not_store_is_refused(
    text: str, zoned: bool, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        micros_of(text, with_zone=zoned)


@pytest.mark.parametrize("text", ["soon", "31.01.2024", "01/31/2024", "", "10:00"])
def test_other_text_is_left_to_pyiceberg(text: str) -> None:
    assert days_of(text) is None
    assert micros_of(text, with_zone=True) is None
