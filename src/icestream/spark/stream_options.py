"""What `spark.readStream.format("icestream")` was asked for, beside what a batch read may be.

| option | meaning |
|---|---|
| `start` | `earliest` (default): all rows of now, then what is added; `latest`: what is added |
| `start-snapshot-id` | what was added after this snapshot |
| `start-timestamp` | what was added after: milliseconds, or such as `2026-01-31T12:00:00+00:00` |
| `skip-overwrite-snapshots` | `true`: pass over snapshots that overwrite rows; else errors |
| `skip-delete-snapshots` | `true`: pass over snapshots that delete rows; else errors |
| `max-files-per-micro-batch` | the most data files of a micro-batch; PySpark 4.2 and newer |
| `max-bytes-per-micro-batch` | the most bytes in storage of one (a file is never cut); likewise |

A new query starts so. A query that has a checkpoint goes on from there, whatever these say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any, Literal

from icestream.errors import InvalidArgumentError, UnsupportedFeatureError
from icestream.memory import parse_bytes
from icestream.spark.read_options import parse_flag, parse_moment, parse_number, parse_option

HAS_ADMISSION_CONTROL = find_spec("pyspark.sql.streaming.datasource") is not None

_LIMITS = ("max-files-per-micro-batch", "max-bytes-per-micro-batch")
_STARTS = ("start", "start-snapshot-id", "start-timestamp")
_OF_BATCHES = ("snapshot-id", "as-of-timestamp", "tag", "push-filters")


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream follows a table.

    Attributes:
        start: Where a new query starts, unless one of the next two says so.
        start_snapshot_id: After this snapshot.
        start_ms: After this moment, in milliseconds since 1970.
        skip_overwrites: Whether snapshots that overwrite are passed over.
        skip_deletes: Whether snapshots that delete are passed over.
        max_files: Of a micro-batch.
        max_bytes: Of a micro-batch.
    """

    start: Literal["earliest", "latest"] = "earliest"
    start_snapshot_id: int | None = None
    start_ms: int | None = None
    skip_overwrites: bool = False
    skip_deletes: bool = False
    max_files: int | None = None
    max_bytes: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StreamOptions:
        """The stream that the options describe; those of any read are passed over.

        Raises:
            InvalidArgumentError: If one does not fit; it is named.
            UnsupportedFeatureError: If this PySpark has no such limit.
        """
        given = {key.lower(): value for key, value in options.items()}
        if wrong := [key for key in _OF_BATCHES if key in given]:
            raise InvalidArgumentError(
                f"option {wrong[0]!r} is for spark.read: a stream follows a branch, and starts "
                f"where {', '.join(_STARTS[:-1])} or {_STARTS[-1]} says"
            )
        starts = [key for key in _STARTS if key in given]
        if len(starts) > 1:
            raise InvalidArgumentError(f"give one of {', '.join(starts)}, not {len(starts)}")
        limits = [key for key in _LIMITS if key in given]
        if limits and not HAS_ADMISSION_CONTROL:
            raise UnsupportedFeatureError(
                f"option {limits[0]!r} needs PySpark 4.2 or newer: before, Spark takes all that "
                "there is into a micro-batch. Leave it out, or upgrade PySpark"
            )
        values = {
            _NAMES[key]: parse_option(key, given[key], parse)
            for key, parse in _PARSERS.items()
            if key in given
        }
        return cls(**values)


def without_stream_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that any read may have."""
    return {key: value for key, value in options.items() if key.lower() not in _PARSERS}


def _start(text: str) -> str:
    named = text.strip().lower()
    if named not in ("earliest", "latest"):
        raise ValueError("give earliest or latest; or start-snapshot-id, or start-timestamp")
    return named


def _milliseconds(text: str) -> int:
    moment = parse_moment(text)
    if isinstance(moment, datetime):
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1000)
    return moment


def _count(text: str) -> int:
    number = parse_number(text)
    if number < 1:
        raise ValueError("give 1 or more")
    return number


_PARSERS: dict[str, Callable[[str], Any]] = {
    "start": _start,
    "start-snapshot-id": parse_number,
    "start-timestamp": _milliseconds,
    "skip-overwrite-snapshots": parse_flag,
    "skip-delete-snapshots": parse_flag,
    "max-files-per-micro-batch": _count,
    "max-bytes-per-micro-batch": lambda text: parse_bytes(text, name="max-bytes-per-micro-batch"),
}
_NAMES = {
    "start": "start",
    "start-snapshot-id": "start_snapshot_id",
    "start-timestamp": "start_ms",
    "skip-overwrite-snapshots": "skip_overwrites",
    "skip-delete-snapshots": "skip_deletes",
    "max-files-per-micro-batch": "max_files",
    "max-bytes-per-micro-batch": "max_bytes",
}
