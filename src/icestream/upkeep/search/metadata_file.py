"""A table's metadata file that is found in storage, read without the catalog."""

from __future__ import annotations

import gzip
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.io import FileIO

from icestream.errors import MemoryBudgetError
from icestream.memory import MemoryBudget, format_bytes

_NAME = re.compile(r".*metadata\.json(\.(gz|zst|zstd|bz2|lz4|snappy))?", re.IGNORECASE | re.DOTALL)
_GZIP_MAGIC = b"\x1f\x8b"
_PARSED_FACTOR = 4  # what reading a file takes, as a multiple of its text
_FOLDER_PROPERTIES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
_KEPT = frozenset(
    {
        *_FOLDER_PROPERTIES,
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
        "table-uuid",
    }
)
_NOTHING: dict[str, Any] = {}


def is_metadata_file(name: str) -> bool:
    """Whether a file's name is one that engines give to a table's metadata."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """What a metadata file says of its table.

    Attributes:
        path: The file.
        table_uuid: The table.
        location: The table's location.
        log: Earlier metadata files of the table, oldest first.
        lists: The manifest lists of all snapshots.
        heads: Those of the current snapshot, and of branches and tags.
        manifests: Manifests that version 1 names without a list.
        statistics: Statistics files.
        folders: Folders that the table's properties name.
    """

    path: str
    table_uuid: str
    location: str
    log: tuple[str, ...]
    lists: tuple[str, ...]
    heads: tuple[str, ...]
    manifests: tuple[str, ...]
    statistics: tuple[str, ...]
    folders: tuple[str, ...]

    @property
    def parent(self) -> str | None:
        """The metadata file that this one was made from; None for a table's first."""
        return self.log[-1] if self.log else None

    @property
    def written_folders(self) -> tuple[str, ...]:
        """Folders that the table writes to."""
        location = self.location.rstrip("/")
        return (f"{location}/data", f"{location}/metadata", *self.folders)

    def named(self) -> Iterator[str]:
        """Every file that it names itself."""
        yield self.path
        yield from self.log
        yield from self.lists
        yield from self.manifests
        yield from self.statistics


def read_metadata_file(io: FileIO, path: str, budget: MemoryBudget) -> MetadataFile:
    """Read a metadata file, compressed or not.

    Memory: about four times the file's text, on lease while it is read.

    Raises:
        FileNotFoundError: If it is gone.
        MemoryBudgetError: If the file is too large for the limit.
        ValueError: If it is not a table's metadata.
    """
    with io.new_input(path).open() as stream:
        content = bytes(stream.read())
    if content.startswith(_GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except EOFError as error:
            raise ValueError("it is cut off") from error
    needed = len(content) * _PARSED_FACTOR
    if needed > budget.limit_bytes:
        raise MemoryBudgetError(
            f"{path} has {format_bytes(len(content))}, and takes about {format_bytes(needed)} to "
            f"read: more than the limit of {format_bytes(budget.limit_bytes)}. Raise memory",
            needed_bytes=needed,
            limit_bytes=budget.limit_bytes,
        )
    lease = budget.force(needed)
    try:
        return _parsed(path, json.loads(content, object_pairs_hook=_kept))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not a table's metadata: {type(error).__name__} {error}") from error
    finally:
        lease.release()


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
        heads=tuple(path for number, path in lists.items() if number in heads),
        manifests=tuple(str(path) for s in snapshots for path in s.get("manifests") or []),
        statistics=tuple(str(file["statistics-path"]) for file in statistics),
        folders=tuple(folders_in(properties)),
    )


def folders_in(properties: Mapping[str, str]) -> Iterator[str]:
    """Folders that a table writes to besides its location."""
    return (str(properties[name]) for name in _FOLDER_PROPERTIES if properties.get(name))


def _kept(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without what nobody asks for, such as a snapshot's summary."""
    kept = {
        key: value
        for key, value in pairs
        if key in _KEPT or (isinstance(value, dict) and "snapshot-id" in value)  # a branch or tag
    }
    return kept or _NOTHING
