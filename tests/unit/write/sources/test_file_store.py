"""Files on a disk: found by path, glob or folder, and opened whatever their names are."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from icestream.errors import SourceError
from icestream.write.sources.file_store import FileStore, is_hidden, shown_path


def _names(folder: Path, pattern: str) -> list[str]:
    found = FileStore().find(str(folder / pattern))
    return [os.path.relpath(each.path, folder) for each in found]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.csv", "b1.csv", "_x.csv", ".y.csv", "sub/c.csv", "sub/_tmp/d.csv", "_k=1/e"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("id\n")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", ["_k=1/e", "a.csv", "b1.csv", "sub/c.csv"]),
        ("*.csv", [".y.csv", "_x.csv", "a.csv", "b1.csv"]),
        ("?.csv", ["a.csv"]),
        ("b[0-9].csv", ["b1.csv"]),
        ("[!_.b]*.csv", ["a.csv"]),
        ("*/*.csv", ["sub/c.csv"]),
        ("**/[cd].csv", ["sub/_tmp/d.csv", "sub/c.csv"]),
        ("a.csv", ["a.csv"]),
    ],
)
def test_globs_and_folders_find_their_files(
    folder: Path, pattern: str, expected: list[str]
) -> None:
    assert _names(folder, pattern) == expected


def test_a_name_that_exists_is_not_a_glob(tmp_path: Path) -> None:
    (tmp_path / "a[1].csv").write_text("id\n")
    (tmp_path / "a1.csv").write_text("id\n")
    assert _names(tmp_path, "a[1].csv") == ["a[1].csv"]


def test_no_file_is_an_error_unless_none_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no file is at"):
        FileStore().find(str(tmp_path / "*.csv"))
    assert FileStore().find(str(tmp_path / "*.csv"), may_be_empty=True) == []


def test_names_that_are_not_utf8_are_listed_and_read(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.csv.gz")
    (tmp_path / name).write_bytes(gzip.compress(b"id\n"))
    (each,) = FileStore().find(str(tmp_path))
    with FileStore().open_stream(each.path) as stream:
        assert stream.read() == b"id\n"
    with FileStore().open_file(each.path) as file:
        assert file.read()[:2] == b"\x1f\x8b"
    assert shown_path(each.path).endswith("\\xff.csv.gz")


def test_an_error_names_the_path_and_hides_secrets(tmp_path: Path) -> None:
    store = FileStore({"s3.secret-access-key": "hunter2hunter2"})
    with pytest.raises(SourceError, match=r"gone\.csv' can't be opened") as caught:
        store.open_file(str(tmp_path / "hunter2hunter2" / "gone.csv"))
    assert str(caught.value).endswith(". Check the path"), "no advice about object stores"
    assert "hunter2" not in str(caught.value).split("can't be opened")[1]
    assert "hunter2" not in repr(store)


def test_a_folder_that_is_a_column_is_not_hidden() -> None:
    assert is_hidden(["_year", "a.csv"])
    assert is_hidden(["a", ".b"])
    assert not is_hidden(["_year=2025", "a_b.csv"])
