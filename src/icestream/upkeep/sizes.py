"""Which files are too small."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.schema import Schema

from icestream.memory import parse_bytes
from icestream.write.parquet_settings import ParquetSettings

_SMALL = 0.75


def target_bytes_of(
    properties: Mapping[str, str], schema: Schema, wanted: int | str | None = None
) -> int:
    """How large files are to be: what the caller wants, or else what the table's properties say.

    Raises:
        InvalidArgumentError: If that is no size.
    """
    if wanted is not None:
        return parse_bytes(wanted, name="target_file_bytes")
    return ParquetSettings.of(dict(properties), schema).target_file_bytes


def small_below(target_bytes: int) -> int:
    """The size below which a file is worth being merged with others."""
    return int(target_bytes * _SMALL)
