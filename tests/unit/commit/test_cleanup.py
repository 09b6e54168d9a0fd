"""Deleting files: what is gone counts as deleted, and what can't be deleted is returned."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from icestream.commit.cleanup import delete_files, missing_files


def _files(folder: Path, count: int) -> list[str]:
    paths = [folder / f"{number}.parquet" for number in range(count)]
    for path in paths:
        path.write_text("rows")
    return [str(path) for path in paths]


@pytest.mark.parametrize("count", [0, 1, 20])
def test_every_file_is_deleted(tmp_path: Path, count: int) -> None:
    assert delete_files(PyArrowFileIO(), _files(tmp_path, count)) == []
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_gone_or_named_twice_counts_as_deleted(tmp_path: Path) -> None:
    (path,) = _files(tmp_path, 1)
    assert delete_files(PyArrowFileIO(), [path, path, str(tmp_path / "gone")]) == []


def test_a_file_that_can_not_be_deleted_is_returned_and_the_others_are_deleted(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    assert delete_files(PyArrowFileIO(), [*_files(tmp_path, 3), str(folder)]) == [str(folder)]
    assert list(tmp_path.iterdir()) == [folder]


def test_missing_files_are_named_in_order(tmp_path: Path) -> None:
    first, second = _files(tmp_path, 2)
    gone, lost = str(tmp_path / "gone"), str(tmp_path / "lost")
    assert missing_files(PyArrowFileIO(), [lost, first, gone, second]) == [lost, gone]
