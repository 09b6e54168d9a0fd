"""Files as storage lists them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

import icestream as ice
from icestream.operations.upkeep.folder import Folder, is_hidden


@pytest.mark.parametrize("written", ["{}", "{}/", "file://{}", "file:{}", "file://{}/"])
def test_files_of_odd_names_are_listed_read_and_deleted(tmp_path: Path, written: str) -> None:
    names = ["a b", "a%20b", "a#b", "a?b=c", "ä", "sub/a:b"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    folder = Folder(PyArrowFileIO(), written.format(tmp_path))
    files = {file.relative: file for file in folder.files()}
    assert sorted(files) == sorted(names)
    for name, file in files.items():
        assert file.key == f"{tmp_path}/{name}"
        assert file.read(most_bytes=len(name.encode())).decode() == name
        with pytest.raises(ValueError, match="more than"):
            file.read(most_bytes=len(name.encode()) - 1)
        assert file.delete()
        assert not (tmp_path / name).exists()
        assert file.delete()  # gone is gone
    assert {file.name for file in folder.files(recursive=False)} == set()


def test_a_folder_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    assert list(Folder(PyArrowFileIO(), f"{tmp_path}/nothing").files()) == []


def test_a_store_that_pyarrow_does_not_know_is_an_error() -> None:
    with pytest.raises(ice.CatalogError, match="can't be listed"):
        Folder(PyArrowFileIO(), "unknown://bucket/table")


def test_a_folder_holds_what_is_below_it_and_not_what_begins_alike(tmp_path: Path) -> None:
    folder = Folder(PyArrowFileIO(), f"{tmp_path}/t")
    assert folder.holds(f"{tmp_path}/t/x")
    assert not folder.holds(f"{tmp_path}/table2/x")
    assert not folder.holds(f"{tmp_path}/t")


def test_hidden_is_what_starts_with_an_underscore_or_a_dot_but_for_partitions() -> None:
    assert is_hidden("_spark_metadata/0", ())
    assert is_hidden("data/.x.crc", ())
    assert is_hidden("data/_p=1/x", ())
    assert not is_hidden("data/_p=1/x", {"_p"})
    assert not is_hidden("data/x_y.z", ())
