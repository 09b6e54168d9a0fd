"""Paths that are the same however they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from icestream.operations.upkeep.path_keys import all_keys, path_key


@pytest.mark.parametrize(
    "location",
    [
        "/a/b/c.parquet",
        "file:/a/b/c.parquet",
        "file:///a/b/c.parquet",
        "file:////a/b//c.parquet",
        "FILE:///a/b/c.parquet",
        "//a/./b/x/../c.parquet",
        "s3://bucket/a/b/c.parquet",
        "s3a://bucket/a/b/c.parquet",
        "s3n://bucket/a//b/c.parquet",
        "s3://other-name-of-the-bucket/a/b/c.parquet",
        "gs://bucket/a/b/c.parquet",
        "hdfs://name-node:8020/a/b/c.parquet",
        "hdfs:///a/b/c.parquet",
        "abfss://container@account.dfs.core.windows.net/a/b/c.parquet",
    ],
)
def test_every_way_to_write_a_location_has_the_same_key(location: str) -> None:
    assert path_key(location) == "/a/b/c.parquet"


def test_a_host_in_a_local_location_is_a_folder_for_pyiceberg_and_nothing_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert path_key("file://localhost/a/c.parquet") == f"{tmp_path}/localhost/a/c.parquet"
    assert "/a/c.parquet" in all_keys("file://localhost/a/c.parquet")


@pytest.mark.parametrize("name", ["a b", "a%20b", "a+b", "a#b", "a?b=c", "ä", "a:b", "a=b"])
def test_odd_characters_are_part_of_the_path(name: str) -> None:
    assert path_key(f"s3://bucket/x/{name}") == f"/x/{name}"
    assert path_key(f"file:///x/{name}") == path_key(f"/x/{name}") == f"/x/{name}"


def test_relative_paths_are_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert path_key("tables/t/x") == f"{tmp_path}/tables/t/x"


def test_a_link_and_its_target_share_a_name(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("x")
    link.symlink_to(target)
    assert set(all_keys(str(target))) <= set(all_keys(str(link)))
    assert path_key(str(link)) != path_key(str(target))
