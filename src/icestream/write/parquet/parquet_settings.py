"""The settings of Parquet files, from the table's properties."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import TableProperties
from pyiceberg.types import BinaryType, StringType

from icestream.catalogs.arrow_io import (
    StatisticsCollector,
    compute_statistics_plan,
    match_metrics_mode,
    parquet_path_to_id_mapping,
)
from icestream.errors import InvalidArgumentError, UnsupportedFeatureError
from icestream.write.parquet.dictionary_columns import dictionary_columns

_CODECS = {
    "uncompressed": "none",
    "none": "none",
    "snappy": "snappy",
    "gzip": "gzip",
    "zstd": "zstd",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "brotli": "brotli",
}
_MOST_GROUP_ROWS = 64 * 2**20  # PyArrow cuts longer row groups in two.
_PYARROW_PAGE_ROWS = 20_000
_LOOK_ROWS = 1024
_LOOK_TEXT_ROWS = 64
_BLOOM_ENABLED = TableProperties.PARQUET_BLOOM_FILTER_COLUMN_ENABLED_PREFIX + "."
_BLOOM_FPP = "write.parquet.bloom-filter-fpp.column."
_METRICS = TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX + "."
_BLOOM_FPP_DEFAULT = 0.01
_LEAST_BLOOM_BYTES = 32
_FOOTER_COLUMN_BYTES = 120
_TAIL_COLUMN_BYTES = 1000


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """A table's settings for Parquet files, with defaults.

    Attributes:
        target_file_bytes: Size of a full file in storage.
        row_group_bytes: Maximum Arrow bytes of a row group.
        row_group_rows: Maximum number of rows of a row group.
        page_bytes: Encoded bytes after which a page ends.
        page_rows: Maximum number of rows of a page.
        options: Further arguments of `pq.ParquetWriter`, the same for every file.
        bloom_filters: For each Parquet column path, the false-positive probability and the maximum
            size.
        statistics_plan: The metrics of each column, by field id.
        column_ids: The field id of each Parquet column path.
    """

    target_file_bytes: int
    row_group_bytes: int
    row_group_rows: int
    page_bytes: int
    page_rows: int
    options: Mapping[str, Any]
    bloom_filters: Mapping[str, tuple[float, int]]
    statistics_plan: dict[int, StatisticsCollector] = field(repr=False)
    column_ids: dict[str, int] = field(repr=False)

    @classmethod
    def of(cls, properties: Mapping[str, str], schema: Schema) -> ParquetSettings:
        """Read the properties that concern files of this schema.

        Args:
            properties: The table's properties.
            schema: The schema with the table's column names; files have sanitized ones.

        Raises:
            InvalidArgumentError: If a property has an invalid value; the message names it.
            UnsupportedFeatureError: If the table's file format is not Parquet.
        """
        file_format = properties.get(TableProperties.WRITE_FILE_FORMAT, "parquet")
        if file_format.lower() != "parquet":
            raise UnsupportedFeatureError(
                f"the table property {TableProperties.WRITE_FILE_FORMAT} is {file_format}: "
                "icestream writes Parquet; set the property to parquet"
            )
        names = TableProperties
        integer = partial(_integer, properties)
        rows = integer(names.PARQUET_ROW_GROUP_LIMIT, names.PARQUET_ROW_GROUP_LIMIT_DEFAULT)
        file_schema = sanitize_column_names(schema)
        column_ids = parquet_path_to_id_mapping(file_schema)
        return cls(
            target_file_bytes=integer(
                names.WRITE_TARGET_FILE_SIZE_BYTES, names.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT
            ),
            row_group_bytes=integer(
                names.PARQUET_ROW_GROUP_SIZE_BYTES, names.PARQUET_ROW_GROUP_SIZE_BYTES_DEFAULT
            ),
            row_group_rows=min(rows, _MOST_GROUP_ROWS),
            page_bytes=integer(
                names.PARQUET_PAGE_SIZE_BYTES, names.PARQUET_PAGE_SIZE_BYTES_DEFAULT
            ),
            page_rows=integer(names.PARQUET_PAGE_ROW_LIMIT, names.PARQUET_PAGE_ROW_LIMIT_DEFAULT),
            options=_writer_options(properties),
            bloom_filters=_bloom_filters(properties, schema, column_ids),
            statistics_plan=_statistics_plan(properties, schema, file_schema),
            column_ids=column_ids,
        )

    def writer_options(self, first_group: pa.Table) -> dict[str, Any]:
        """Arguments of `pq.ParquetWriter` for the file that begins with this row group."""
        options = {
            **self.options,
            "data_page_size": self.page_bytes,
            "write_batch_size": self._write_batch_rows(first_group),
            "use_dictionary": dictionary_columns(first_group, self.column_ids),
        }
        if self.page_rows != _PYARROW_PAGE_ROWS:
            options["max_rows_per_page"] = self.page_rows
        if self.bloom_filters:
            options["bloom_filter_options"] = {
                path: {"ndv": _distinct_values(first_group.num_rows, fpp, most_bytes), "fpp": fpp}
                for path, (fpp, most_bytes) in self.bloom_filters.items()
            }
        return options

    def _write_batch_rows(self, first_group: pa.Table) -> int:
        """Number of values after which the writer checks whether a page is full.

        PyIceberg checks after `page_rows`, 20,000. A page of that many long texts may take more
        bytes to encode than the row group itself. Checking often costs nothing measurable.
        """
        widest = max(column.nbytes for column in first_group.columns) // first_group.num_rows
        plan = self.statistics_plan.values()
        has_texts = any(isinstance(it.iceberg_type, (StringType, BinaryType)) for it in plan)
        most = min(self.page_rows, _LOOK_TEXT_ROWS if has_texts else _LOOK_ROWS)
        return int(max(1, min(most, self.page_bytes // max(1, widest))))

    def footer_bytes(self, *, group_rows: int) -> int:
        """Approximate bytes of a row group's metadata and Bloom filters at the end of its file."""
        return len(self.column_ids) * _FOOTER_COLUMN_BYTES + self._bloom_bytes(group_rows)

    def tail_bytes(self, *, group_rows: int) -> int:
        """Approximate bytes of a row group that stay in memory until its file is finished."""
        return len(self.column_ids) * _TAIL_COLUMN_BYTES + self._bloom_bytes(group_rows)

    def _bloom_bytes(self, group_rows: int) -> int:
        return sum(
            _bloom_bytes(_distinct_values(group_rows, fpp, most_bytes), fpp)
            for fpp, most_bytes in self.bloom_filters.values()
        )


def _writer_options(properties: Mapping[str, str]) -> dict[str, Any]:
    codec, level = _compression(properties)
    return {
        "compression": codec,
        "compression_level": level,
        "dictionary_pagesize_limit": _integer(
            properties,
            TableProperties.PARQUET_DICT_SIZE_BYTES,
            TableProperties.PARQUET_DICT_SIZE_BYTES_DEFAULT,
        ),
        "store_decimal_as_integer": True,
        "write_page_checksum": True,
    }


def _integer(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise InvalidArgumentError(f"table property {name} is {text!r}: it must be 1 or more")
    return value


def _compression(properties: Mapping[str, str]) -> tuple[str, int | None]:
    name = TableProperties.PARQUET_COMPRESSION
    text = properties.get(name, TableProperties.PARQUET_COMPRESSION_DEFAULT)
    codec = _CODECS.get(text.lower())
    if codec is None:
        raise InvalidArgumentError(
            f"table property {name} is {text!r}: choose one of {', '.join(_CODECS)}"
        )
    level_name = TableProperties.PARQUET_COMPRESSION_LEVEL
    level_text = properties.get(level_name)
    # The level is ignored if the codec has none, as in other engines.
    if level_text is None or codec == "none" or not pa.Codec.supports_compression_level(codec):
        return codec, None
    try:
        level = int(level_text)
    except ValueError as error:
        raise InvalidArgumentError(
            f"table property {level_name} is {level_text!r}: it must be a whole number"
        ) from error
    lowest = pa.Codec.minimum_compression_level(codec)
    highest = pa.Codec.maximum_compression_level(codec)
    if not lowest <= level <= highest:
        raise InvalidArgumentError(
            f"table property {level_name} is {level}: {codec} takes {lowest} to {highest}"
        )
    return codec, level


def _bloom_filters(
    properties: Mapping[str, str], schema: Schema, column_ids: Mapping[str, int]
) -> dict[str, tuple[float, int]]:
    most_bytes = _integer(
        properties,
        TableProperties.PARQUET_BLOOM_FILTER_MAX_BYTES,
        TableProperties.PARQUET_BLOOM_FILTER_MAX_BYTES_DEFAULT,
    )
    paths = {field_id: path for path, field_id in column_ids.items()}
    filters = {}
    for key, text in properties.items():
        if not key.startswith(_BLOOM_ENABLED) or not _boolean(key, text):
            continue
        name = key.removeprefix(_BLOOM_ENABLED)
        field_id = _field_id(schema, name)
        # The property of a column that was dropped or renamed is ignored.
        if field_id is not None and field_id in paths:
            filters[paths[field_id]] = (_probability(properties, _BLOOM_FPP + name), most_bytes)
    return filters


def _boolean(name: str, text: str) -> bool:
    value = {"true": True, "false": False}.get(text.lower())
    if value is None:
        raise InvalidArgumentError(f"table property {name} is {text!r}: it must be true or false")
    return value


def _probability(properties: Mapping[str, str], name: str) -> float:
    text = properties.get(name, str(_BLOOM_FPP_DEFAULT))
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1.0:
        raise InvalidArgumentError(f"table property {name} is {text!r}: it must be between 0 and 1")
    return value


def _distinct_values(group_rows: int, fpp: float, most_bytes: int) -> int:
    """The number of distinct values from which PyArrow computes the filter's size."""
    size = 2 ** int(math.log2(max(most_bytes, _LEAST_BLOOM_BYTES)))
    return max(1, min(group_rows, int(size * _values_per_byte(fpp))))


def _bloom_bytes(distinct_values: int, fpp: float) -> int:
    """The size of PyArrow's filter: the next power of two."""
    wanted = max(distinct_values / _values_per_byte(fpp), _LEAST_BLOOM_BYTES)
    return int(2 ** math.ceil(math.log2(wanted)))


def _values_per_byte(fpp: float) -> float:
    """Number of values per byte of a split-block Bloom filter (Parquet specification)."""
    return -math.log(1 - fpp**0.125)


def _statistics_plan(
    properties: Mapping[str, str], schema: Schema, file_schema: Schema
) -> dict[int, StatisticsCollector]:
    """The metrics of each column. Properties use the table's names, the plan the file's."""
    default = TableProperties.DEFAULT_WRITE_METRICS_MODE
    modes: dict[str, str] = {}
    for key, text in properties.items():
        if key != default and not key.startswith(_METRICS):
            continue
        try:
            match_metrics_mode(text)
        except ValueError as error:
            raise InvalidArgumentError(
                f"table property {key} is {text!r}: choose none, counts, full or truncate(n)"
            ) from error
        field_id = _field_id(schema, key.removeprefix(_METRICS))
        if key == default:
            modes[key] = text
        elif field_id is not None:
            modes[_METRICS + str(file_schema.find_column_name(field_id))] = text
    return compute_statistics_plan(file_schema, modes)


def _field_id(schema: Schema, name: str) -> int | None:
    try:
        return schema.find_field(name).field_id
    except ValueError:
        return None
