"""What an incremental load has done, in a folder: each file is loaded exactly once.

`done.jsonl` has a line for every file that was loaded, or for every snapshot of a table up to which
it was. `intent.json` is there while a load runs: it says which files it takes, and under which load
id. After a kill, the next run takes the same files under the same id, which does nothing if the
load had been committed.
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

from icestream.commit.load_id import batch_load_id
from icestream.errors import StreamError
from icestream.pipeline.load_input import LoadInput, LoadInputs
from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.source_file import SourceFile
from icestream.pipeline.state_folder import write_json

_IDENTITY = "checkpoint.json"
_DONE = "done.jsonl"
_INTENT = "intent.json"
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Intent:
    """A load that is about to run, or was when its process died.

    Attributes:
        number: The load's number in the checkpoint.
        files: For each source, the files that are taken; None for tables.
        snapshots: For each source, the snapshots between which a table is read; None for files.
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
        """Whether its files are there, as they were."""
        for each, files in zip(inputs.inputs, self.files, strict=True):
            there = {_key(file) for file in each.files.files} if each.files is not None else set()
            if not there.issuperset(_key(file) for file in files or ()):
                return False
        return True

    def narrowed(self, inputs: LoadInputs) -> LoadInputs:
        """The sources with what this load takes of them."""
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
        id: A name of its own, which load ids are made of.
        next_number: The number of the next load.
    """

    folder: Path
    id: str = ""
    next_number: int = 0
    _table_uuid: str | None = None
    _done: set[tuple[str, int, int | None]] = field(default_factory=set)
    _snapshots: dict[str, int] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def open(cls, folder: Path, spec: LoadSpec, table_uuid: str | None) -> Iterator[Checkpoint]:
        """Lock and read a checkpoint; it is made if it is not there.

        Raises:
            StreamError: If another process uses it, or it is another load's.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / _LOCK, "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StreamError(
                    f"another load uses the checkpoint {folder}: wait for it, or give this one a "
                    "checkpoint= of its own"
                ) from None
            checkpoint = cls(folder)
            checkpoint._read(spec, table_uuid)
            yield checkpoint

    @classmethod
    def look(cls, folder: Path, spec: LoadSpec, table_uuid: str | None) -> Checkpoint:
        """Read a checkpoint, if it is there, and touch nothing."""
        checkpoint = cls(folder)
        if (folder / _IDENTITY).exists():
            checkpoint._read(spec, table_uuid)
        return checkpoint

    def load_id(self, number: int) -> str:
        """The id of a load."""
        return batch_load_id(f"load-{self.id}", number)

    def pending(self) -> Intent | None:
        """The load that was running when its process died."""
        path = self.folder / _INTENT
        if not path.exists():
            return None
        told = json.loads(path.read_bytes())
        files = tuple(
            None if each is None else tuple(_source_file(file) for file in each)
            for each in told["files"]
        )
        snapshots = tuple(None if each is None else tuple(each) for each in told["snapshots"])
        return Intent(told["number"], files, snapshots)

    def new(self, inputs: LoadInputs) -> Intent:
        """What is new in the sources."""
        files = tuple(self._new_files(each) for each in inputs.inputs)
        snapshots = tuple(self._new_snapshots(each) for each in inputs.inputs)
        return Intent(self.next_number, files, snapshots)

    def begin(self, intent: Intent) -> None:
        """Write down what is about to be loaded."""
        document = {
            "number": intent.number,
            "files": [None if f is None else [asdict(each) for each in f] for f in intent.files],
            "snapshots": intent.snapshots,
        }
        write_json(self.folder / _INTENT, document)

    def abandon(self, intent: Intent) -> None:
        """Give a load up that has not been committed; its id is not used again."""
        line = {"load": intent.number}
        self._append([line])
        self._take(line)
        with contextlib.suppress(FileNotFoundError):
            (self.folder / _INTENT).unlink()

    def finish(self, intent: Intent, inputs: LoadInputs, table_uuid: str | None) -> None:
        """Write down that it is loaded."""
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
        for line in lines:
            self._take(line)
        if self._table_uuid is None and table_uuid is not None:
            self._table_uuid = table_uuid
            told = json.loads((self.folder / _IDENTITY).read_bytes())
            write_json(self.folder / _IDENTITY, {**told, "table_uuid": table_uuid})
        with contextlib.suppress(FileNotFoundError):
            (self.folder / _INTENT).unlink()

    def _new_files(self, each: LoadInput) -> tuple[SourceFile, ...] | None:
        if each.files is None:
            return None
        return tuple(f for f in each.files.files if _key(f) not in self._done)

    def _new_snapshots(self, each: LoadInput) -> tuple[int | None, int | None] | None:
        if each.point is None:
            return None
        return self._snapshots.get(each.spec.text), each.point.snapshot_id

    def _read(self, spec: LoadSpec, table_uuid: str | None) -> None:
        path = self.folder / _IDENTITY
        sources = [source.text for source in spec.sources]
        if not path.exists():
            told = {
                "id": uuid.uuid4().hex[:12],
                "into": spec.table_name,
                "branch": spec.branch or "main",
                "sources": sources,
                "table_uuid": table_uuid,
            }
            write_json(path, told)
        told = json.loads(path.read_bytes())
        self.id, self._table_uuid = told["id"], told["table_uuid"]
        asked = {"into": spec.table_name, "branch": spec.branch or "main", "sources": sources}
        for key, value in asked.items():
            if told[key] != value:
                raise StreamError(
                    f"the checkpoint {self.folder} is of another load: its {key} is "
                    f"{_text(told[key])}, and not {_text(value)}. Give this load a checkpoint= of "
                    "its own"
                )
        if self._table_uuid is not None and self._table_uuid != table_uuid:
            raise StreamError(
                f"{spec.table_name} is not the table that the checkpoint {self.folder} was made "
                "for: it was dropped, or created again. Delete the checkpoint to load everything"
            )
        for line in _lines(self.folder / _DONE):
            with contextlib.suppress(ValueError):  # cut off by a kill: its intent is still there
                self._take(json.loads(line))

    def _take(self, line: dict[str, Any]) -> None:
        if "path" in line:
            self._done.add((line["path"], line["bytes"], line["modified_ns"]))
        elif "table" in line:
            self._snapshots[line["table"]] = line["snapshot_id"]
        elif "load" in line:
            self.next_number = max(self.next_number, line["load"] + 1)

    def _append(self, lines: Sequence[dict[str, Any]]) -> None:
        path = self.folder / _DONE
        with open(path, "a+b") as file:
            if file.seek(0, os.SEEK_END) and not _ends_a_line(file):
                file.write(b"\n")  # the line before was cut off by a kill
            for line in lines:
                file.write(json.dumps(line).encode() + b"\n")  # ASCII, whatever the path
            file.flush()
            os.fsync(file.fileno())


def _lines(path: Path) -> Iterator[bytes]:
    """Lines that a newline ends: `str.splitlines` also cuts at U+2028, which paths may have."""
    if path.exists():
        with open(path, "rb") as file:
            yield from file


def _ends_a_line(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def _source_file(told: dict[str, Any]) -> SourceFile:
    values = told.pop("partitions", ())  # unknown to versions before
    return SourceFile(**told, partitions=tuple((name, raw) for name, raw in values))


def _key(file: SourceFile) -> tuple[str, int, int | None]:
    return file.path, file.bytes, file.modified_ns


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else repr(value)
