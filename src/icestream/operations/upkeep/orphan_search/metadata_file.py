"""Reads a table's metadata file from storage, without the catalog."""

from __future__ import annotations

import gzip
import json
import re
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from pyiceberg.io import FileIO

from icestream.catalogs.credentials import renewing
from icestream.errors import MemoryBudgetError
from icestream.memory.budget import Lease, MemoryBudget, format_bytes, over_limit
from icestream.read.plan.manifests import FILE_COUNTS, has_count

_NAME = re.compile(r".*metadata\.json(\.(gz|zst|zstd|bz2|lz4|snappy))?", re.IGNORECASE | re.DOTALL)
_GZIP_MAGIC = b"\x1f\x8b"
_PARSED_FACTOR = 4  # the memory for reading a file, as a multiple of its text
_FOLDER_PROPERTIES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
_KEPT = frozenset(
    {
        *_FOLDER_PROPERTIES,
        *FILE_COUNTS,
        "current-snapshot-id",
        "location",
        "manifest-list",
        "manifests",
        "metadata-file",
        "metadata-log",
        "partition-statistics",
        "properties",
        "refs",
        "snapshot-id",
        "snapshots",
        "statistics",
        "statistics-path",
        "summary",
        "table-uuid",
    }
)
_NOTHING: dict[str, Any] = {}


def is_metadata_file(name: str) -> bool:
    """Whether a file has the name of a metadata file of some engine."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """The content of a metadata file.

    Attributes:
        path: The path of the file.
        table_uuid: The id of the table.
        location: The location of the table.
        log: Earlier metadata files of the table, oldest first.
        lists: The manifest lists of all snapshots.
        lists_with_files: The manifest lists of snapshots whose summary counts files.
        heads: The manifest lists of the current snapshot, of branches and of tags.
        manifests: Manifests that format version 1 names without a list.
        statistics: Statistics files.
        folders: Folders that the table's properties name.
    """

    path: str
    table_uuid: str
    location: str
    log: tuple[str, ...]
    lists: tuple[str, ...]
    lists_with_files: frozenset[str]
    heads: tuple[str, ...]
    manifests: tuple[str, ...]
    statistics: tuple[str, ...]
    folders: tuple[str, ...]

    @property
    def parent(self) -> str | None:
        """The previous metadata file; None for the first one of a table."""
        return self.log[-1] if self.log else None

    @property
    def written_folders(self) -> tuple[str, ...]:
        """Folders that the table writes to."""
        location = self.location.rstrip("/")
        return (f"{location}/data", f"{location}/metadata", *self.folders)

    def named(self) -> Iterator[str]:
        """Every file that the metadata file itself names."""
        yield self.path
        yield from self.log
        yield from self.lists
        yield from self.manifests
        yield from self.statistics


def read_metadata_file(io: FileIO, path: str, budget: MemoryBudget) -> MetadataFile:
    """Read a metadata file, compressed or not.

    Memory: about four times the file's text while it is read. A file that is too long for the limit
    is refused before it is read, or while it is decompressed.

    Raises:
        CredentialsExpiredError: If the store's credentials have expired, and there are no new ones.
        FileNotFoundError: If the file is gone.
        MemoryBudgetError: If the file is too large for the limit.
        OSError: If the store fails to return the file.
        ValueError: If the file is not a table's metadata.
    """
    lease = budget.force(0)
    try:
        content = renewing(io, lambda: _stored(io, path, budget, lease), path=path)
        if content.startswith(_GZIP_MAGIC):
            content = _decompressed(content, path, budget)
            lease.resize(len(content) * _PARSED_FACTOR)
        return _parsed(path, json.loads(content, object_pairs_hook=_kept))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is not a table's metadata: {type(error).__name__} {error}") from error
    finally:
        lease.release()


def _stored(io: FileIO, path: str, budget: MemoryBudget, lease: Lease) -> bytes:
    """The stored bytes of the file."""
    file = io.new_input(path)
    length = len(file)
    if length > _most_bytes(budget):
        raise _too_long(path, f"has {format_bytes(length)}", length, budget)
    lease.resize(length * _PARSED_FACTOR)
    with file.open() as stream:
        return bytes(stream.read(length))


def _decompressed(content: bytes, path: str, budget: MemoryBudget) -> bytes:
    """The text of a compressed file. Decompression stops at the limit."""
    most_bytes = _most_bytes(budget)
    try:
        with gzip.GzipFile(fileobj=BytesIO(content)) as stream:
            text = stream.read(most_bytes + 1)
    except EOFError as error:
        raise ValueError("it is truncated") from error
    except (OSError, zlib.error) as error:  # The bytes are in memory, so the store did not fail.
        raise ValueError(f"it can't be decompressed: {error}") from error
    if len(text) > most_bytes:
        has = f"has more than {format_bytes(most_bytes)} when decompressed"
        raise _too_long(path, has, len(text), budget)
    return text


def _most_bytes(budget: MemoryBudget) -> int:
    """The maximum size of a text within the limit."""
    return budget.limit_bytes // _PARSED_FACTOR


def _too_long(path: str, has: str, length: int, budget: MemoryBudget) -> MemoryBudgetError:
    needed = length * _PARSED_FACTOR
    return over_limit(
        f"{path} {has}, which takes about {_PARSED_FACTOR} times as much to read",
        needed_bytes=needed,
        limit_bytes=budget.limit_bytes,
        otherwise="delete the file if no table needs it",
    )


def _parsed(path: str, facts: dict[str, Any]) -> MetadataFile:
    snapshots = facts.get("snapshots") or []
    properties = facts.get("properties") or {}
    statistics = [*(facts.get("statistics") or []), *(facts.get("partition-statistics") or [])]
    table_uuid = str(uuid.UUID(facts["table-uuid"]))
    lists = {s["snapshot-id"]: str(s["manifest-list"]) for s in snapshots if "manifest-list" in s}
    refs = facts.get("refs") or {}
    heads = {facts.get("current-snapshot-id"), *(ref["snapshot-id"] for ref in refs.values())}
    return MetadataFile(
        path=path,
        table_uuid=table_uuid,
        location=str(facts["location"]),
        log=tuple(str(entry["metadata-file"]) for entry in facts.get("metadata-log") or []),
        lists=tuple(lists.values()),
        lists_with_files=frozenset(
            str(s["manifest-list"])
            for s in snapshots
            if "manifest-list" in s and has_count(s.get("summary") or {})
        ),
        heads=tuple(path for number, path in lists.items() if number in heads),
        manifests=tuple(str(path) for s in snapshots for path in s.get("manifests") or []),
        statistics=tuple(str(file["statistics-path"]) for file in statistics),
        folders=tuple(folders_in(properties)),
    )


def folders_in(properties: Mapping[str, str]) -> Iterator[str]:
    """The folders that a table's properties name."""
    return (str(properties[name]) for name in _FOLDER_PROPERTIES if properties.get(name))


def _kept(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object without unused parts, such as a table's schemas."""
    kept = {
        key: value
        for key, value in pairs
        if key in _KEPT or (isinstance(value, dict) and "snapshot-id" in value)  # a branch or tag
    }
    return kept or _NOTHING
