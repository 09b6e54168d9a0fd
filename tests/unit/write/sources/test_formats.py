"""The registry of formats: a name shows its format, whatever its case and compression."""

from __future__ import annotations

import pytest

from icestream.write.sources.formats import (
    FILE_FORMATS,
    OUTPUT_FORMATS,
    SOURCE_FORMATS,
    compression_of,
    format_of,
    needs_spark,
    output_format_of,
)


@pytest.mark.parametrize(
    ("path", "format_", "codec"),
    [
        ("a.parquet", "parquet", None),
        ("s3://b/c/A.PQ", "parquet", None),
        ("a.csv.gz", "csv", "gzip"),
        ("a.NDJSON.ZST", "json", "zstd"),
        ("a.feather", "arrow", None),
        ("a.orc", "orc", None),
        ("a.avro", None, None),
        ("folder.csv/a", None, None),
        ("a", None, None),
    ],
)
def test_a_name_shows_format_and_compression(
    path: str, format_: str | None, codec: str | None
) -> None:
    assert format_of(path) == format_
    assert compression_of(path) == codec


def test_only_spark_reads_avro_and_only_scans_write_text() -> None:
    assert set(SOURCE_FORMATS) - set(FILE_FORMATS) == {"avro"}
    assert needs_spark("avro")
    assert not needs_spark("parquet")
    assert not needs_spark(None)
    assert set(OUTPUT_FORMATS) - set(SOURCE_FORMATS) == {"text"}
    assert output_format_of("rows.TXT") == "text"
    assert output_format_of("rows.orc") is None
