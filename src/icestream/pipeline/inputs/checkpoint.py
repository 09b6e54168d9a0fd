"""The checkpoint of an incremental load: a folder that ensures each file is loaded exactly once.

`done.jsonl` has a line for each loaded file, and for each table the last loaded snapshot.
`intent.json` exists while a load runs, and lists its files and the number that its load id
contains. After a kill, the next run loads the same files with the same load id, which does nothing
if the load was committed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from icestream.commit.outcome.load_id import batch_load_id
from icestream.errors import InvalidArgumentError, StreamError
from icestream.pipeline.inputs.load_input import LoadInputs
from icestream.pipeline.reports.state_folder import StateFolder, write_json
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.write.sources.source_file import SourceFile

_IDENTITY = "checkpoint.json"
_DONE = "done.jsonl"
_INTENT = "intent.json"
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Intent:
    """The inputs of a load that is about to run, or that was running when its process died.

    Attributes:
        number: The load's number in the checkpoint.
        files: For each source, the files to load; None for tables.
        snapshots: For each source, the first (exclusive) and last snapshot; None for files.
    """

    number: int
    files: tuple[tuple[SourceFile, ...] | None, ...]
    snapshots: tuple[tuple[int | None, int | None] | None, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing new."""
        is_new = any(files for files in self.files)
        return not is_new and not any(pair and pair[0] != pair[1] for pair in self.snapshots)

    def is_in(self, inputs: LoadInputs) -> bool:
        """Whether all its files still exist and are unchanged."""
        for each, files in zip(inputs.inputs, self.files, strict=True):
            there = {_key(file) for file in each.files.files} if each.files is not None else set()
            if not there.issuperset(_key(file) for file in files or ()):
                return False
        return True

    def narrowed(self, inputs: LoadInputs) -> LoadInputs:
        """The sources, reduced to the files and snapshots of this load."""
        taken = []
        for each, files, pair in zip(inputs.inputs, self.files, self.snapshots, strict=True):
            if files is not None and each.files is not None:
                taken.append(replace(each, files=replace(each.files, files=files)))
            elif pair is not None and each.point is not None:
                point = replace(each.point, since=pair[0], snapshot_id=pair[1], is_increment=True)
                taken.append(replace(each, point=point))
            else:
                taken.append(each)
        return LoadInputs(tuple(taken))


@dataclass(slots=True)
class Checkpoint:
    """The folder of an incremental load, locked while it is open.

    Attributes:
        folder: The folder.
        id: A unique id, which is part of the load ids.
        next_number: The number of the next load.
    """

    folder: Path
    id: str = ""
    next_number: int = 0
    _table_uuid: str | None = None
    _done: set[tuple[str, int, int | None]] = field(default_factory=set, repr=False)
    _snapshots: dict[str, int] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def open(
        cls, state: StateFolder | None, spec: LoadSpec, table_uuid: str | None
    ) -> Iterator[Checkpoint]:
        """Lock and read the checkpoint of a load. Create it if it does not exist.

        Raises:
            StreamError: If another process uses it, or it belongs to another load.
            InvalidArgumentError: If it can't be written.
        """
        folder = _folder(state, spec)
        new = [each for each in (folder, *folder.parents) if not each.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidArgumentError(
                f"the checkpoint can't be written to {folder} ({error.strerror}): give checkpoint= "
                "another folder"
            ) from error
        with open(folder / _LOCK, "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.path.samestat(os.fstat(lock.fileno()), (folder / _LOCK).stat()):
                    raise OSError("a load that failed has removed the checkpoint")
            except OSError:
                raise StreamError(
                    f"another load uses the checkpoint {folder}: wait for it, or give this load "
                    "its own checkpoint="
                ) from None
            checkpoint = cls(folder)
            try:
                checkpoint._read(spec, table_uuid)
                yield checkpoint
            except BaseException:
                if folder in new and checkpoint.pending() is None:
                    checkpoint._remove(new)
                raise

    @classmethod
    def look(cls, state: StateFolder | None, spec: LoadSpec, table_uuid: str | None) -> Checkpoint:
        """Read the checkpoint of a load, if it exists, without changing anything."""
        checkpoint = cls(_folder(state, spec))
        if (checkpoint.folder / _IDENTITY).exists():
            checkpoint._read(spec, table_uuid)
        return checkpoint

    def _remove(self, folders: Sequence[Path]) -> None:
        """Remove a new checkpoint that has recorded no file, and these folders, if empty."""
        if self._done or self._snapshots:
            return
        with contextlib.suppress(OSError):
            for name in (_DONE, _IDENTITY, _LOCK):
                (self.folder / name).unlink(missing_ok=True)
            for folder in folders:
                folder.rmdir()

    def load_id(self, number: int) -> str:
        """The load id for a number."""
        return batch_load_id(f"load-{self.id}", number)

    def pending(self) -> Intent | None:
        """The load that was running when its process died."""
        path = self.folder / _INTENT
        if not path.exists():
            return None
        document = json.loads(path.read_bytes())
        files = tuple(
            None if each is None else tuple(_source_file(file) for file in each)
            for each in document["files"]
        )
        snapshots = tuple(None if each is None else tuple(each) for each in document["snapshots"])
        return Intent(document["number"], files, snapshots)

    def new(self, inputs: LoadInputs) -> Intent:
        """The files and snapshots that were not loaded before."""
        files = tuple(
            None
            if each.files is None
            else tuple(file for file in each.files.files if _key(file) not in self._done)
            for each in inputs.inputs
        )
        snapshots = tuple(
            None
            if each.point is None
            else (self._snapshots.get(each.spec.text), each.point.snapshot_id)
            for each in inputs.inputs
        )
        return Intent(self.next_number, files, snapshots)

    def begin(self, intent: Intent) -> None:
        """Record a load that is about to run."""
        document = {
            "number": intent.number,
            "files": [None if f is None else [asdict(each) for each in f] for f in intent.files],
            "snapshots": intent.snapshots,
        }
        write_json(self.folder / _INTENT, document)

    def abandon(self, intent: Intent) -> None:
        """Abandon a load that was not committed. Its id is not used again."""
        self._append([{"load": intent.number}])
        (self.folder / _INTENT).unlink(missing_ok=True)

    def finish(self, intent: Intent, inputs: LoadInputs, table_uuid: str | None) -> None:
        """Record that a load is done."""
        lines: list[dict[str, Any]] = []
        for each, files, pair in zip(inputs.inputs, intent.files, intent.snapshots, strict=True):
            for file in files or ():
                lines.append(
                    {"path": file.path, "bytes": file.bytes, "modified_ns": file.modified_ns}
                )
            if pair is not None:
                lines.append({"table": each.spec.text, "snapshot_id": pair[1]})
        lines.append({"load": intent.number})
        self._append(lines)
        if self._table_uuid is None and table_uuid is not None:
            self._table_uuid = table_uuid
            identity = json.loads((self.folder / _IDENTITY).read_bytes())
            write_json(self.folder / _IDENTITY, {**identity, "table_uuid": table_uuid})
        (self.folder / _INTENT).unlink(missing_ok=True)

    def _read(self, spec: LoadSpec, table_uuid: str | None) -> None:
        path = self.folder / _IDENTITY
        load = {
            "into": spec.table_name,
            "branch": spec.branch or "main",
            "sources": [source.text for source in spec.sources],
        }
        if not path.exists():
            write_json(path, {"id": uuid.uuid4().hex[:12], **load, "table_uuid": table_uuid})
        identity = json.loads(path.read_bytes())
        self.id, self._table_uuid = identity["id"], identity["table_uuid"]
        for key, value in load.items():
            if identity[key] != value:
                raise StreamError(
                    f"the checkpoint {self.folder} belongs to another load: its {key} is "
                    f"{_text(identity[key])}, not {_text(value)}. Give this load its own "
                    "checkpoint="
                )
        if self._table_uuid is not None and self._table_uuid != table_uuid:
            raise StreamError(
                f"{spec.table_name} is not the table of the checkpoint {self.folder}: it was "
                "dropped or created again. Delete the checkpoint to load everything"
            )
        for line in _lines(self.folder / _DONE):
            with contextlib.suppress(ValueError):  # a kill cut it off, but its intent still exists
                self._take(json.loads(line))

    def _take(self, line: dict[str, Any]) -> None:
        if "path" in line:
            self._done.add((line["path"], line["bytes"], line["modified_ns"]))
        elif "table" in line:
            self._snapshots[line["table"]] = line["snapshot_id"]
        elif "load" in line:
            self.next_number = max(self.next_number, line["load"] + 1)

    def _append(self, lines: Sequence[dict[str, Any]]) -> None:
        """Store what was loaded, and remember it."""
        with open(self.folder / _DONE, "a+b") as file:
            if file.seek(0, os.SEEK_END) and not _ends_a_line(file):
                file.write(b"\n")  # a kill has cut off the previous line
            for line in lines:
                file.write(json.dumps(line).encode() + b"\n")  # ASCII, for any path
            file.flush()
            os.fsync(file.fileno())
        for line in lines:
            self._take(line)


def _folder(state: StateFolder | None, spec: LoadSpec) -> Path:
    if spec.checkpoint is not None:
        return Path(spec.checkpoint)
    return (state or StateFolder()).checkpoint(spec.name)


def _lines(path: Path) -> Iterator[bytes]:
    """Lines, split only at newlines. `str.splitlines` also splits at U+2028, as in some paths."""
    if path.exists():
        with open(path, "rb") as file:
            yield from file


def _ends_a_line(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def _source_file(document: dict[str, Any]) -> SourceFile:
    values = document.pop("partitions", ())  # missing in older versions
    return SourceFile(**document, partitions=tuple((name, raw) for name, raw in values))


def _key(file: SourceFile) -> tuple[str, int, int | None]:
    return file.path, file.bytes, file.modified_ns


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else repr(value)
