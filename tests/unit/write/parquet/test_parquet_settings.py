"""Settings of Parquet files: what the table's properties say, in the files themselves."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import MetricModeTypes
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from icestream.errors import InvalidArgumentError, UnsupportedFeatureError
from icestream.write.parquet.parquet_settings import ParquetSettings

_SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "text", StringType()),
    NestedField(3, "a b", StringType()),
    NestedField(4, "s", StructType(NestedField(5, "x", LongType()))),
    NestedField(6, "l", ListType(7, LongType())),
)
_FLAT = Schema(NestedField(1, "n", LongType()), NestedField(2, "text", StringType()))


def _rows(count: int) -> pa.Table:
    return pa.table(
        {"n": np.arange(count) % 1000, "text": [f"text {i % 50}" for i in range(count)]}
    )


def _written(properties: dict[str, str], rows: pa.Table) -> pq.FileMetaData:
    options = ParquetSettings.of(properties, _FLAT).writer_options(rows)
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, rows.schema, **options) as writer:
        writer.write_table(rows)
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


def test_defaults_are_those_of_iceberg() -> None:
    settings = ParquetSettings.of({}, _SCHEMA)
    assert settings.target_file_bytes == 512 << 20
    assert settings.row_group_bytes == 128 << 20
    assert settings.row_group_rows == 1 << 20
    assert (settings.page_bytes, settings.page_rows) == (1 << 20, 20_000)
    options = ParquetSettings.of({}, _FLAT).writer_options(_rows(10))
    assert options["compression"] == "zstd"
    assert options["compression_level"] is None
    assert options["dictionary_pagesize_limit"] == 2 << 20
    assert options["store_decimal_as_integer"] is True
    assert "bloom_filter_options" not in options


def test_properties_replace_the_defaults() -> None:
    properties = {
        "write.target-file-size-bytes": "1000",
        "write.parquet.row-group-size-bytes": "2000",
        "write.parquet.row-group-limit": "30",
        "write.parquet.page-size-bytes": "4000",
        "write.parquet.page-row-limit": "50",
        "write.parquet.dict-size-bytes": "6000",
    }
    settings = ParquetSettings.of(properties, _FLAT)
    assert settings.target_file_bytes == 1000
    assert settings.row_group_bytes == 2000
    assert settings.row_group_rows == 30
    options = settings.writer_options(_rows(100))
    assert options["data_page_size"] == 4000
    assert options["max_rows_per_page"] == 50
    assert options["write_batch_size"] <= 50
    assert options["dictionary_pagesize_limit"] == 6000


@pytest.mark.parametrize(
    ("codec", "stored"),
    [
        ("uncompressed", "UNCOMPRESSED"),
        ("snappy", "SNAPPY"),
        ("gzip", "GZIP"),
        ("zstd", "ZSTD"),
        ("ZSTD", "ZSTD"),
        ("lz4", "LZ4"),
        ("brotli", "BROTLI"),
    ],
)
def test_every_codec_is_written(codec: str, stored: str) -> None:
    metadata = _written({"write.parquet.compression-codec": codec}, _rows(100))
    assert metadata.row_group(0).column(0).compression == stored


def test_a_higher_level_makes_smaller_files() -> None:
    rows = pa.table({"n": np.arange(300_000) ** 2 % 977, "text": ["abc"] * 300_000})
    sizes = [
        _written({"write.parquet.compression-level": level}, rows).row_group(0).column(0)
        for level in ("1", "19")
    ]
    assert sizes[1].total_compressed_size < sizes[0].total_compressed_size


@pytest.mark.parametrize("codec", ["snappy", "uncompressed"])
def test_a_level_is_left_alone_where_the_codec_has_none(codec: str) -> None:
    properties = {
        "write.parquet.compression-codec": codec,
        "write.parquet.compression-level": "3",
    }
    assert _written(properties, _rows(10)).num_rows == 10


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.target-file-size-bytes", "0"),
        ("write.target-file-size-bytes", "512MB"),
        ("write.parquet.row-group-size-bytes", "-1"),
        ("write.parquet.row-group-limit", "many"),
        ("write.parquet.page-size-bytes", "0"),
        ("write.parquet.page-row-limit", "0"),
        ("write.parquet.dict-size-bytes", ""),
        ("write.parquet.compression-codec", "lzma"),
        ("write.parquet.compression-level", "high"),
        ("write.parquet.compression-level", "99"),
        ("write.parquet.bloom-filter-max-bytes", "0"),
        ("write.parquet.bloom-filter-enabled.column.n", "yes"),
        ("write.metadata.metrics.default", "some"),
        ("write.metadata.metrics.column.n", "truncate(0)"),
    ],
)
def test_a_value_that_can_not_be_used_is_an_error_that_names_the_property(
    name: str, value: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=name):
        ParquetSettings.of({name: value}, _SCHEMA)


@pytest.mark.parametrize("value", ["0", "1", "low"])
def test_a_false_positive_probability_lies_between_0_and_1(value: str) -> None:
    properties = {
        "write.parquet.bloom-filter-enabled.column.n": "true",
        "write.parquet.bloom-filter-fpp.column.n": value,
    }
    with pytest.raises(InvalidArgumentError, match=r"bloom-filter-fpp\.column\.n"):
        ParquetSettings.of(properties, _SCHEMA)


def test_other_file_formats_are_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="orc"):
        ParquetSettings.of({"write.format.default": "orc"}, _SCHEMA)


def _bloom(properties: dict[str, str], rows: int) -> tuple[int, int]:
    """The bytes that the filter of column `n` takes in a file, and what was foretold."""
    sizes = []
    table = pa.table({"n": np.arange(rows), "text": ["text"] * rows})
    enabled = {"write.parquet.bloom-filter-enabled.column.n": "true", **properties}
    for props in ({}, enabled):
        options = ParquetSettings.of(props, _FLAT).writer_options(table)
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, table.schema, **options) as writer:
            writer.write_table(table)
        sizes.append(len(sink.getvalue()))
    settings = [ParquetSettings.of(props, _FLAT) for props in (enabled, {})]
    foretold = [it.footer_bytes(group_rows=rows) for it in settings]
    return sizes[1] - sizes[0], foretold[0] - foretold[1]


@pytest.mark.parametrize("rows", [10, 1_000, 100_000])
@pytest.mark.parametrize("fpp", ["0.1", "0.01"])
def test_a_bloom_filter_takes_the_bytes_that_were_foretold(rows: int, fpp: str) -> None:
    taken, foretold = _bloom({"write.parquet.bloom-filter-fpp.column.n": fpp}, rows)
    assert 0 <= taken - foretold < 100


def test_a_bloom_filter_is_no_larger_than_allowed() -> None:
    taken, _ = _bloom({"write.parquet.bloom-filter-max-bytes": "5000"}, 100_000)
    assert 4096 <= taken < 5000


def test_bloom_filters_are_for_columns_of_any_depth_by_the_tables_names() -> None:
    properties = {
        f"write.parquet.bloom-filter-enabled.column.{name}": value
        for name, value in [
            ("a b", "true"),
            ("s.x", "true"),
            ("l.element", "true"),
            ("text", "false"),
            ("gone", "true"),
        ]
    }
    settings = ParquetSettings.of(properties, _SCHEMA)
    assert set(settings.bloom_filters) == {"a_x20b", "s.x", "l.list.element"}


def _modes(properties: dict[str, str]) -> dict[int, Any]:
    plan = ParquetSettings.of(properties, _SCHEMA).statistics_plan
    return {field_id: (it.mode.type, it.mode.length) for field_id, it in plan.items()}


def test_metrics_modes_are_found_by_the_tables_column_names() -> None:
    modes = _modes(
        {
            "write.metadata.metrics.default": "none",
            "write.metadata.metrics.column.a b": "truncate(4)",
            "write.metadata.metrics.column.s.x": "counts",
            "write.metadata.metrics.column.gone": "full",
        }
    )
    none = (MetricModeTypes.NONE, None)
    assert modes == {
        1: none,
        2: none,
        3: (MetricModeTypes.TRUNCATE, 4),
        5: (MetricModeTypes.COUNTS, None),
        7: none,
    }


def test_long_values_have_the_writer_look_at_pages_more_often() -> None:
    settings = ParquetSettings.of({}, _FLAT)
    short = settings.writer_options(_rows(1_000))["write_batch_size"]
    texts = pa.table({"n": range(10), "text": ["x" * 200_000] * 10})
    long = settings.writer_options(texts)["write_batch_size"]
    assert long * 200_000 <= 2 * settings.page_bytes
    assert long < short <= 64
