"""Position delete files: they delete rows of a data file without rewriting the file."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

from icestream.catalogs.credentials import create_output, expired_error, is_expired
from icestream.errors import IcestreamError, WriteError
from icestream.read.decode.footer import SealedOutput
from icestream.write.parquet.data_paths import DataPaths
from icestream.write.target import WriteTarget, delete_file

_PATH_ID, _POSITION_ID = 2147483546, 2147483545  # By the Iceberg specification.
_SCHEMA = pa.schema(
    [
        pa.field(
            "file_path",
            pa.dictionary(pa.int32(), pa.string()),  # In memory; a plain string in the file.
            nullable=False,
            metadata={b"PARQUET:field_id": str(_PATH_ID).encode()},
        ),
        pa.field("pos", pa.int64(), False, {b"PARQUET:field_id": str(_POSITION_ID).encode()}),
    ]
)
_GROUP_ROWS = 1 << 17
_BUFFER_BYTES = 1 << 18


class PositionDeletes:
    """Writes one delete file for each data file that loses rows.

    So readers open only the delete files of the data file they read, and two changes that delete
    from different files do not conflict.

    Memory: up to 131,072 positions of one file, and the pages of their row group.

    Args:
        target: The table.
    """

    def __init__(self, target: WriteTarget) -> None:
        self._files: list[DataFile] = []
        self._target = target
        self._paths = DataPaths(target)
        self._open: _OpenFile | None = None

    def add(self, data_file: DataFile, positions: npt.NDArray[np.int64]) -> None:
        """Delete rows of a file by ascending positions. Finish a file before the next one.

        Raises:
            WriteError: If storage refuses; then `abort`.
        """
        if not len(positions):
            return
        if self._open is not None and self._open.data_file.file_path != data_file.file_path:
            self._finish()
        if self._open is None:
            self._open = _OpenFile(self._paths.new_delete(), data_file, self._target)
        self._open.append(positions)

    def close(self) -> list[DataFile]:
        """Finish the last file, and return all files.

        Raises:
            WriteError: If storage refuses; then `abort`.
        """
        self._finish()
        return self._files

    def abort(self) -> None:
        """Delete every delete file."""
        if self._open is not None:
            self._open.let_go()
            delete_file(self._target.io, self._open.path)
            self._open = None
        for file in self._files:
            delete_file(self._target.io, file.file_path)
        self._files.clear()

    def _finish(self) -> None:
        if self._open is not None:
            self._files.append(self._open.close())
            self._open = None


@dataclass(slots=True)
class _OpenFile:
    """The delete file of one data file."""

    path: str
    data_file: DataFile
    target: WriteTarget
    rows: int = 0
    first: int = 0
    last: int = -1
    _waiting: list[npt.NDArray[np.int64]] = field(default_factory=list)
    _waiting_rows: int = 0
    _output: Any = None
    _writer: Any = None

    def append(self, positions: npt.NDArray[np.int64]) -> None:
        """Add positions after those before; write them once they fill a row group."""
        if not self.rows:
            self.first = int(positions[0])
        self.last = int(positions[-1])
        self.rows += len(positions)
        self._waiting.append(positions)
        self._waiting_rows += len(positions)
        if self._waiting_rows >= _GROUP_ROWS:
            self._write_waiting()

    def close(self) -> DataFile:
        """Finish the file and describe it."""
        self._write_waiting()
        try:
            with self._output.footer():
                self._writer.close()
            self._output.close()
        except Exception as error:
            raise self._error(error) from error
        path, value = self.data_file.file_path.encode(), struct.Struct("<q")
        counts = {_PATH_ID: self.rows, _POSITION_ID: self.rows}
        file = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=self.data_file.partition,
            record_count=self.rows,
            file_size_in_bytes=self._output.bytes_written,
            value_counts=counts,
            null_value_counts=dict.fromkeys(counts, 0),
            # The whole path, so that readers know the data file without opening this one.
            lower_bounds={_PATH_ID: path, _POSITION_ID: value.pack(self.first)},
            upper_bounds={_PATH_ID: path, _POSITION_ID: value.pack(self.last)},
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
        )
        file.spec_id = self.data_file.spec_id or 0
        return file

    def let_go(self) -> None:
        """Close the file without finishing it."""
        if self._writer is not None:
            self._writer.is_open = False
        if self._output is not None:
            with suppress(Exception):
                self._output.close()

    def _write_waiting(self) -> None:
        positions = np.concatenate([np.zeros(0, np.int64), *self._waiting])
        self._waiting.clear()
        self._waiting_rows = 0
        try:
            if self._writer is None:
                store = create_output(self.target.io, self.path)
                self._output = SealedOutput(store, _BUFFER_BYTES)
                self._writer = pq.ParquetWriter(
                    self._output.stream,
                    _SCHEMA,
                    compression="zstd",
                    use_dictionary=["file_path"],
                    store_schema=False,
                    write_page_checksum=True,
                )
            for start in range(0, len(positions), _GROUP_ROWS):
                self._write(positions[start : start + _GROUP_ROWS])
        except IcestreamError:
            raise
        except Exception as error:
            raise self._error(error) from error

    def _write(self, positions: npt.NDArray[np.int64]) -> None:
        name = pa.array([self.data_file.file_path])
        paths = pa.DictionaryArray.from_arrays(np.zeros(len(positions), np.int32), name)
        rows = pa.RecordBatch.from_arrays([paths, pa.array(positions)], schema=_SCHEMA)
        self._writer.write_batch(rows)

    def _error(self, error: Exception) -> IcestreamError:
        if is_expired(error, self.target.io):
            return expired_error(self.path, "the file was not complete")
        return WriteError(f"{self.path} could not be written: {error}", path=self.path)
