"""Files of a source: found once each, with their formats, and cut only where lines are records."""

from __future__ import annotations

from pathlib import Path

import pytest

from icestream.errors import SourceError
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.write.sources.source_file import SourceFile, cut_files, find_files


def test_a_file_that_two_paths_name_is_found_once(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "notes.txt"):
        (tmp_path / name).write_text("id\n1\n")
    paths = [str(tmp_path / "*"), str(tmp_path / "a.csv")]
    found = find_files(SourceSpec.parse({"path": paths}), {})
    assert [Path(file.path).name for file in found.files] == ["a.csv", "b.csv"]
    assert found.bytes == 10


def test_options_with_a_dot_are_for_the_store_and_come_before_the_catalogs(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    options = {"delimiter": ";", "s3.region": "here"}
    source = SourceSpec.parse({"path": str(tmp_path / "a.csv"), "options": options})
    found = find_files(source, {"s3.region": "there", "s3.endpoint": "http://x"})
    assert found.options == {"delimiter": ";"}
    assert found.store.properties == {"s3.region": "here", "s3.endpoint": "http://x"}


def test_a_single_file_without_a_known_suffix_needs_a_format(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("id\n1\n")
    with pytest.raises(SourceError, match="does not show its format"):
        find_files(SourceSpec.parse(str(tmp_path / "rows")), {})
    source = SourceSpec.parse({"path": str(tmp_path / "rows"), "format": "csv"})
    assert find_files(source, {}).files[0].format == "csv"


def test_folders_become_columns_only_if_the_source_reads_them(tmp_path: Path) -> None:
    (tmp_path / "year=2025").mkdir()
    (tmp_path / "year=2025" / "a.csv").write_text("id\n1\n")
    for reads, expected in ((True, (("year", "2025"),)), (False, ())):
        source = SourceSpec.parse({"path": str(tmp_path), "hive_partitions": reads})
        assert find_files(source, {}).files[0].partitions == expected


def test_parts_cover_a_large_text_or_parquet_file_and_other_files_stay_whole() -> None:
    json = SourceFile("a.json", "json", 1_001)
    whole = [
        SourceFile("a.csv", "csv", 1_000),
        SourceFile("a.orc", "orc", 1_000),
        SourceFile("a.json.gz", "json", 1_000),
        SourceFile("b.json", "json", 199),
    ]
    parts = cut_files([json, *whole], target_bytes=100, cuts_csv=False)
    assert parts[10:] == whole
    assert [part.start for part in parts[:10]] == [0, *(part.end for part in parts[:9])]
    assert parts[9].end is None
    assert len(cut_files(whole[:1], target_bytes=100, cuts_csv=True)) == 10
    parquet = [SourceFile("a.parquet", "parquet", 1_000)]
    parts = cut_files(parquet, target_bytes=100, cuts_csv=False)
    assert [(part.start, part.end) for part in parts[:2]] == [(0, 100), (100, 200)]
    assert parts[-1].end is None
