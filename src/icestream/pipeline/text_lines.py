"""Text files in blocks of whole lines.

A block that can't be read is cut in halves until the bad lines stand alone: nearly all blocks are
read at once, and of a bad line number and text are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from icestream.errors import MemoryBudgetError
from icestream.memory import DEFAULT_MEMORY, MemoryBudget, format_bytes, parse_bytes
from icestream.pipeline.bad_record import BadRecord, OnBad
from icestream.pipeline.file_store import FileStore
from icestream.pipeline.source_file import SourceFile
from icestream.redaction import redact

BLOCK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_ROW = re.compile(r"Row #\d+: | in row \d+")
_REASON_CHARACTERS = 300
LINE_COST = 4  # bytes held for each byte of a long line; writers refuse rows by the same rule
_MOST_COUNTED = 1 << 30

Parse = Callable[[bytes], pa.RecordBatch]
"""Reads whole lines, each of them one record; raises `pa.ArrowInvalid` where one is not."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some lines.

    Attributes:
        text: The lines, each with its end.
        line: The number of the first, from 0, in the part of the file that is read.
    """

    text: bytes
    line: int


def line_limit(memory_bytes: int) -> int:
    """The longest line that a load may have: it is held as text, as parsed, and as a row."""
    return max(memory_bytes // LINE_COST, 1)


MOST_LINE_BYTES = line_limit(parse_bytes(DEFAULT_MEMORY))


def blocks(
    file: SourceFile, store: FileStore, most_line_bytes: int = MOST_LINE_BYTES
) -> Iterator[Block]:
    """The lines that begin in a part of a file.

    Raises:
        MemoryBudgetError: If a line is longer than allowed; the rest of it is only counted.

    Memory: a block of 1 MB, or twice the longest line if that is longer.
    """
    whole = file.start == 0 and file.end is None
    opened = store.open_stream(file.path) if whole else store.open_file(file.path)
    with opened:
        if file.start:
            opened.seek(file.start - 1)
        # What is left to begin lines in; a line that begins there is read to its end.
        left = None if file.end is None else file.end - file.start
        carried = _Pieces()
        line, skipping = 0, file.start > 0
        first = not skipping
        if skipping:
            left = None if left is None else left + 1
        while left is None or left > 0 or carried:
            ended = left is not None and left <= 0
            read = opened.read(BLOCK_BYTES if left is None or ended else min(left, BLOCK_BYTES))
            if left is not None:
                left -= len(read)
            if not read:
                if carried:
                    yield Block(carried.join(), line)
                return
            if ended:
                read = read[: read.find(b"\n") + 1] or read
            if first:
                read, first = read.removeprefix(_BOM), False
            if skipping:
                _, found, read = read.partition(b"\n")
                if not found:
                    continue
                skipping = False
            cut = read.rfind(b"\n") + 1
            if cut:
                text = carried.join(read[:cut])
                yield Block(text, line)
                line += text.count(b"\n")
                del text
            carried.add(read[cut:])
            if carried.bytes > most_line_bytes:
                rest = _rest_of_line(opened)
                number = lines_before(file, store) + line + 1
                raise _too_long(file, number, carried.bytes + rest, most_line_bytes)


class _Pieces:
    """A line that goes on, in pieces: put together once, when its end is there."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.bytes = 0

    def __bool__(self) -> bool:
        return self.bytes > 0

    def add(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self.bytes += len(piece)

    def join(self, last: bytes = b"") -> bytes:
        """All of it, which is forgotten here."""
        joined = b"".join([*self._pieces, last]) if self._pieces else last
        self._pieces, self.bytes = [], 0
        return joined


def _rest_of_line(opened: pa.NativeFile) -> int:
    """How many more bytes a line has; no more than a gigabyte is looked through."""
    count = 0
    while count < _MOST_COUNTED and (read := opened.read(BLOCK_BYTES)):
        end = int(read.find(b"\n"))
        if end >= 0:
            return count + end
        count += len(read)
    return count


def _too_long(file: SourceFile, number: int, length: int, most_bytes: int) -> MemoryBudgetError:
    needed, limit = length * LINE_COST, most_bytes * LINE_COST
    return MemoryBudgetError(
        f"line {number} of {redact(file.path)!r} has {format_bytes(length)}, which takes "
        f"{format_bytes(needed)} to load, and the memory limit is {format_bytes(limit)}: raise "
        f"memory to {format_bytes(needed)} or more, or leave the line out",
        needed_bytes=needed,
        limit_bytes=limit,
    )


def lines_before(file: SourceFile, store: FileStore) -> int:
    """How many lines begin before a part of a file."""
    if not file.start:
        return 0
    count, left = 0, file.start - 1
    with store.open_file(file.path) as opened:
        while left > 0 and (read := opened.read(min(left, BLOCK_BYTES))):
            count += read.count(b"\n")
            left -= len(read)
    return count + 1


class LineReader:
    """Reads lines with a parser, and hands the bad ones over.

    Args:
        file: The file, or a part of it.
        store: How it is opened.
        parse: Reads whole lines.
        schema: What it makes of them.
        on_bad: Gets every line that can't be read, in order.
        most_line_bytes: How long a line may be.
        budget: What is charged while a block with a long line is parsed.
    """

    def __init__(
        self,
        file: SourceFile,
        store: FileStore,
        parse: Parse,
        schema: pa.Schema,
        on_bad: OnBad,
        most_line_bytes: int = MOST_LINE_BYTES,
        budget: MemoryBudget | None = None,
    ) -> None:
        self._most_line_bytes = most_line_bytes
        self._budget = budget
        self._file = file
        self._store = store
        self._parse = parse
        self._schema = schema
        self._on_bad = on_bad
        self._before: int | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for block in blocks(self._file, self._store, self._most_line_bytes):
            yield from self.read(block)
            del block

    def read(self, block: Block) -> Iterator[pa.RecordBatch]:
        """The rows of a block; an empty batch if all its lines are bad.

        So whoever collects bad lines has a turn after every block.
        """
        has_rows = False
        for batch in self._read(block):
            has_rows = True
            yield batch
            del batch
        if not has_rows:
            yield pa.RecordBatch.from_pylist([], schema=self._schema)

    def _read(self, block: Block) -> Iterator[pa.RecordBatch]:
        if not block.text.strip():
            return
        try:
            with self._charged(block):
                batch = self._parse(block.text)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
            reason = str(error)
        else:
            yield batch
            return
        if block.text.find(b"\n", 0, -1) < 0:
            self._tell(block, reason)
            return
        lines = _lines(block.text)
        middle = len(lines) // 2
        yield from self._read(Block(b"".join(lines[:middle]), block.line))
        yield from self._read(Block(b"".join(lines[middle:]), block.line + middle))

    @contextmanager
    def _charged(self, block: Block) -> Iterator[None]:
        """Charge a block that is larger than others. Waiting might be for rows of this reader."""
        if self._budget is None or len(block.text) <= 2 * BLOCK_BYTES:
            yield
            return
        lease = self._budget.force(len(block.text) * (LINE_COST - 1))
        try:
            yield
        finally:
            lease.release()

    def _tell(self, block: Block, reason: str) -> None:
        if self._before is None:
            self._before = lines_before(self._file, self._store)
        plain = " ".join(_ROW.sub("", reason).split())[:_REASON_CHARACTERS]
        record = block.text.decode("utf-8", "replace").rstrip("\r\n")
        self._on_bad(BadRecord(self._file.path, self._before + block.line + 1, record, plain))


def _lines(text: bytes) -> list[bytes]:
    """Lines as a newline ends them: `splitlines` cuts at a carriage return, too."""
    lines = [line + b"\n" for line in text.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def first_lines(
    file: SourceFile,
    store: FileStore,
    most_bytes: int = BLOCK_BYTES,
    most_line_bytes: int = MOST_LINE_BYTES,
) -> bytes:
    """Whole lines from the beginning of a file, about so many bytes; nothing if it is empty.

    Raises:
        MemoryBudgetError: If one of them is longer than allowed.
    """
    found, size = [], 0
    for block in blocks(SourceFile(file.path, file.format, file.bytes), store, most_line_bytes):
        cut = block.text.find(b"\n", max(most_bytes - size - 1, 0)) + 1
        if cut:
            found.append(block.text[:cut] if cut < len(block.text) else block.text)
            break
        found.append(block.text)
        size += len(block.text)
    return found[0] if len(found) == 1 else b"".join(found)
