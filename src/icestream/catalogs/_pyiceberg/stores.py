"""Stores: streams without a second buffer, and file systems with new credentials."""

from __future__ import annotations

import threading
from functools import lru_cache

from pyiceberg.io import FileIO, OutputFile

from icestream.catalogs.arrow_io import PyArrowFile, PyArrowFileIO


def unbuffered_output(io: FileIO, location: str) -> OutputFile:
    """A file to write, without PyIceberg's buffer in front of the store's stream.

    Flushing that buffer does not flush the store's stream.
    """
    output = io.new_output(location)
    if isinstance(output, PyArrowFile):
        output._buffer_size = 0
    return output


def forget_file_systems(io: FileIO) -> None:
    """Make file access create its file systems again, with its current properties."""
    if isinstance(io, PyArrowFileIO):
        io.fs_by_scheme = lru_cache(io._initialize_fs)
    elif hasattr(io, "_thread_locals"):
        io._thread_locals = threading.local()  # fsspec
