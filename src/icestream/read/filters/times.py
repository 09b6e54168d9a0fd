"""Dates and timestamps as people write them: `2024-01-31`, `2024-01-31 10:00`, with a zone."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

_DAY = r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
_ZONE = r"(?P<zone>Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?|[A-Za-z_]+(?:/[A-Za-z0-9_+-]+)+)"
_TEXT = re.compile(rf"\s*{_DAY}(?:(?:[T ]\s*){_CLOCK}(?:\s*{_ZONE})?)?\s*", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1)


def days_of(text: str) -> int | None:
    """Days since 1970; None if the text is not a date in years of four digits.

    Raises:
        ValueError: If the text has a time of day other than midnight, or the date does not exist.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    if match["hour"] and (match["zone"] or _micros_of_day(match)):
        raise ValueError("write a date without a time, such as '2024-01-31'")
    year, month, day = (int(match[part]) for part in ("year", "month", "day"))
    return date(year, month, day).toordinal() - date(1970, 1, 1).toordinal()


def micros_of(text: str, *, with_zone: bool) -> int | None:
    """Microseconds since 1970; None if the text is not a timestamp in years of four digits.

    Args:
        text: A date, or a date and a time. Without a zone, a column with a time zone reads it as
            UTC.
        with_zone: Whether the column has a time zone.

    Raises:
        ValueError: If the text has a zone and the column has none, or there is no such time.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    if match["zone"] and not with_zone:
        raise ValueError(f"the column has no time zone: leave {match['zone']!r} out")
    year, month, day = (int(match[part]) for part in ("year", "month", "day"))
    micros = _micros_of_day(match)
    moment = datetime(year, month, day) + timedelta(microseconds=micros)
    if with_zone and match["zone"]:
        offset = moment.replace(tzinfo=_zone(match["zone"])).utcoffset() or timedelta()
        return (moment - _EPOCH - offset) // timedelta(microseconds=1)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _micros_of_day(match: re.Match[str]) -> int:
    if not match["hour"]:
        return 0
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("there is no such time of day: hours end at 23, minutes and seconds at 59")
    digits = (match["fraction"] or "").rstrip("0")
    if len(digits) > 6:
        raise ValueError("write at most 6 digits of a second")
    return ((hour * 60 + minute) * 60 + second) * 10**6 + int(digits.ljust(6, "0"))


def _zone(name: str) -> tzinfo:
    if name.upper() in ("Z", "UTC", "GMT"):
        return UTC
    if name[0] in "+-":
        minutes = int(name[1:3]) * 60 + int(name[3:].lstrip(":") or 0)
        return timezone(timedelta(minutes=-minutes if name[0] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(
            f"there is no time zone {name!r}: write one such as +02:00 or Europe/Oslo"
        ) from error
