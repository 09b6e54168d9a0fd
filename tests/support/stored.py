"""What lies in a table's folders, and what the table refers to, found out the plain way."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from icestream.commit.in_flight import MARKER_PREFIX, MARKER_SUFFIX

_AVRO_SYNC_BYTES = 16


def folder_of(table: Table) -> Path:
    """The table's folder on the local disk."""
    return Path(table.location().removeprefix("file://"))


def stored_files(folder: Path) -> set[str]:
    """Every file below a folder."""
    return {str(path) for path in folder.rglob("*") if path.is_file()}


def referenced_files(table: Table) -> set[str]:
    """Every file that the table refers to, as PyIceberg reads it; local paths."""
    metadata, io = table.refresh().metadata, table.io
    found = {table.metadata_location}
    found |= {entry.metadata_file for entry in metadata.metadata_log}
    found |= {file.statistics_path for file in metadata.statistics}
    found |= {file.statistics_path for file in metadata.partition_statistics}
    for snapshot in metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(io):
            found.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
            found |= {entry.data_file.file_path for entry in entries}
    return {path.removeprefix("file://") for path in found}


def dead_pid() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        return process.pid


def leave_a_write(
    table: Table,
    *,
    files: int = 2,
    age_seconds: float = 0,
    marker_age_seconds: float | None = None,
    pid: int | None = None,
    host: str | None = None,
    folder: Path | None = None,
    metadata_folder: Path | None = None,
    table_uuid: str | None = None,
    table_location: str | None = None,
) -> tuple[str, list[Path], Path]:
    """Leave data files and a marker behind, as a killed write does.

    Args:
        table: The table.
        files: How many data files.
        age_seconds: How old they are.
        marker_age_seconds: How long ago the marker was renewed; as old as the files by default.
        pid: The process of the write; one that has ended by default.
        host: Its machine; this one by default.
        folder: Where the files go; the table's data folder by default.
        metadata_folder: Where the marker goes; the table's metadata folder by default.
        table_uuid: What the marker says of the table; the truth by default.
        table_location: Likewise.

    Returns:
        The write id, the data files, and the marker.
    """
    write_id = str(uuid.uuid4())
    folder = folder or folder_of(table) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    left = [folder / f"00000-0-{write_id}-{number:05d}.parquet" for number in range(files)]
    for path in left:
        path.write_bytes(b"PAR1 cut off")
        make_older(path, age_seconds)
    renewed = age_seconds if marker_age_seconds is None else marker_age_seconds
    facts: dict[str, Any] = {
        "write-id": write_id,
        "table-uuid": table_uuid or str(table.metadata.table_uuid),
        "table-location": table_location or table.location(),
        "operation": "append",
        "started-ms": int((time.time() - max(age_seconds, renewed)) * 1000),
        "renewed-ms": int((time.time() - renewed) * 1000),
        "host": host or socket.gethostname(),
        "pid": pid if pid is not None else dead_pid(),
    }
    metadata_folder = metadata_folder or folder_of(table) / "metadata"
    marker = metadata_folder / f"{MARKER_PREFIX}{write_id}{MARKER_SUFFIX}"
    marker.write_text(json.dumps(facts))
    make_older(marker, renewed)
    return write_id, left, marker


def make_older(path: Path, seconds: float) -> None:
    """Set a file's time of change back."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def without_records(avro: bytes) -> bytes:
    """An Avro file that was cut off behind its header, and so is a valid one without records."""
    sync = avro[-_AVRO_SYNC_BYTES:]  # They end the header, each block, and so the file.
    return avro[: avro.index(sync) + _AVRO_SYNC_BYTES]
