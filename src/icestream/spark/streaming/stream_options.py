"""The options of `spark.readStream.format("icestream")`, in addition to those of a batch read.

| option | meaning |
|---|---|
| `start` | `earliest` (default): existing rows, then added rows; `latest`: only added rows |
| `start-snapshot-id` | rows added after this snapshot |
| `start-timestamp` | rows added after this time: milliseconds, or `2026-01-31T12:00:00+00:00` |
| `skip-overwrite-snapshots` | `true`: skip snapshots that overwrite rows; by default an error |
| `skip-delete-snapshots` | `true`: skip snapshots that delete rows; by default an error |
| `max-files-per-micro-batch` | maximum number of data files (PySpark 4.2 and newer) |
| `max-bytes-per-micro-batch` | maximum size in storage (PySpark 4.2 and newer), in whole files |

The start options apply only to a new query. A query with a checkpoint continues from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal

from icestream.errors import InvalidArgumentError, UnsupportedFeatureError
from icestream.memory.budget import parse_bytes
from icestream.spark.format.read_options import parse_flag, parse_moment, parse_number, parse_option

HAS_ADMISSION_CONTROL = find_spec("pyspark.sql.streaming.datasource") is not None

_LIMITS = ("max-files-per-micro-batch", "max-bytes-per-micro-batch")
_STARTS = ("start", "start-snapshot-id", "start-timestamp")
_OF_BATCHES = ("snapshot-id", "as-of-timestamp", "tag", "push-filters", "read-latest")


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream follows a table.

    Attributes:
        start: Where a new query starts, unless one of the next two attributes is set.
        start_snapshot_id: Start after this snapshot.
        start_ms: Start after this time, in milliseconds since 1970.
        skip_overwrites: Whether to skip snapshots that overwrite rows.
        skip_deletes: Whether to skip snapshots that delete rows.
        max_files: Maximum number of files in a micro-batch.
        max_bytes: Maximum size of a micro-batch in storage.
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
        """Parse the options of a stream. General read options are ignored.

        Raises:
            InvalidArgumentError: If an option is invalid.
            UnsupportedFeatureError: If this version of PySpark does not support a limit.
        """
        given = {key.lower(): value for key, value in options.items()}
        if wrong := [key for key in _OF_BATCHES if key in given]:
            raise InvalidArgumentError(
                f"option {wrong[0]!r} is for spark.read: a stream follows a branch. Set its start "
                f"with {', '.join(_STARTS[:-1])} or {_STARTS[-1]}"
            )
        starts = [key for key in _STARTS if key in given]
        if len(starts) > 1:
            raise InvalidArgumentError(f"give one of {', '.join(starts)}, not {len(starts)}")
        limits = [key for key in _LIMITS if key in given]
        if limits and not HAS_ADMISSION_CONTROL:
            raise UnsupportedFeatureError(
                f"option {limits[0]!r} needs PySpark 4.2 or newer: older versions put all new rows "
                "into one micro-batch. Leave the option out, or upgrade PySpark"
            )
        values = {
            name: parse_option(key, given[key], parse)
            for key, (name, parse) in _PARSERS.items()
            if key in given
        }
        return cls(**values)


def without_stream_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that are not specific to streams."""
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


_PARSERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "start": ("start", _start),
    "start-snapshot-id": ("start_snapshot_id", parse_number),
    "start-timestamp": ("start_ms", _milliseconds),
    "skip-overwrite-snapshots": ("skip_overwrites", parse_flag),
    "skip-delete-snapshots": ("skip_deletes", parse_flag),
    "max-files-per-micro-batch": ("max_files", _count),
    "max-bytes-per-micro-batch": ("max_bytes", partial(parse_bytes, name=_LIMITS[1])),
}
