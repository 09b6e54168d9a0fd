"""Streams without a second buffer, and file systems with new credentials."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from icestream.catalogs._pyiceberg import stores

# `_buffer_size`, by `unbuffered_output`


def test_an_unbuffered_output_is_in_the_file_at_once(tmp_path: Path) -> None:
    with stores.unbuffered_output(PyArrowFileIO(), f"file://{tmp_path}/x").create() as stream:
        stream.write(b"abc")
        assert (tmp_path / "x").read_bytes() == b"abc"
    with PyArrowFileIO().new_output(f"file://{tmp_path}/y").create() as stream:
        stream.write(b"abc")
        assert (tmp_path / "y").read_bytes() == b""


# `_initialize_fs` and `_thread_locals`, by `forget_file_systems`


def test_file_access_makes_its_file_systems_by_its_properties_and_keeps_them() -> None:
    io = PyArrowFileIO({"s3.region": "eu", "s3.access-key-id": "a", "s3.secret-access-key": "b"})
    before = io.fs_by_scheme("s3", "bucket")
    io.properties = {**io.properties, "s3.access-key-id": "c"}
    assert io.fs_by_scheme("s3", "bucket") is before
    stores.forget_file_systems(io)
    assert io.fs_by_scheme("s3", "bucket") is not before
    assert not io.fs_by_scheme("s3", "bucket").equals(before)
    local = FsspecFileIO({})
    kept = local._thread_locals
    local.get_fs("file")
    assert hasattr(kept, "get_fs_cached")
    stores.forget_file_systems(local)
    assert not hasattr(local._thread_locals, "get_fs_cached")
