"""Text files in blocks of whole lines.

A block that can't be read is cut in halves until the bad lines stand alone: nearly all blocks are
read at once, and of a bad line number and text are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from icestream.pipeline.bad_record import BadRecord, OnBad
from icestream.pipeline.file_store import FileStore
from icestream.pipeline.source_file import SourceFile

BLOCK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_ROW = re.compile(r"Row #\d+: | in row \d+")
_REASON_CHARACTERS = 300

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


def blocks(file: SourceFile, store: FileStore) -> Iterator[Block]:
    """The lines that begin in a part of a file.

    Memory: a block of 1 MB, or the longest line if that is longer.
    """
    whole = file.start == 0 and file.end is None
    opened = store.open_stream(file.path) if whole else store.open_file(file.path)
    with opened:
        if file.start:
            opened.seek(file.start - 1)
        # What is left to begin lines in; a line that begins there is read to its end.
        left = None if file.end is None else file.end - file.start
        carried, line, skipping = b"", 0, file.start > 0
        if skipping:
            left = None if left is None else left + 1
        while left is None or left > 0 or carried:
            ended = left is not None and left <= 0
            read = opened.read(BLOCK_BYTES if left is None or ended else min(left, BLOCK_BYTES))
            if left is not None:
                left -= len(read)
            if ended and read:
                read = read[: read.find(b"\n") + 1] or read
            text = carried + read
            if file.start == 0 and line == 0:
                text = text.removeprefix(_BOM)
            if skipping:
                _, found, text = text.partition(b"\n")
                skipping = not found
                if skipping:
                    if not read:
                        return
                    continue
            if not read:
                if text:
                    yield Block(text, line)
                return
            cut = text.rfind(b"\n") + 1
            carried = text[cut:]
            if cut:
                yield Block(text[:cut], line)
                line += text.count(b"\n", 0, cut)


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
    """

    def __init__(
        self, file: SourceFile, store: FileStore, parse: Parse, schema: pa.Schema, on_bad: OnBad
    ) -> None:
        self._file = file
        self._store = store
        self._parse = parse
        self._schema = schema
        self._on_bad = on_bad
        self._before: int | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for block in blocks(self._file, self._store):
            yield from self.read(block)

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
            batch = self._parse(block.text)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
            reason = str(error)
        else:
            yield batch
            return
        lines = _lines(block.text)
        if len(lines) == 1:
            self._tell(block, reason)
            return
        middle = len(lines) // 2
        yield from self._read(Block(b"".join(lines[:middle]), block.line))
        yield from self._read(Block(b"".join(lines[middle:]), block.line + middle))

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


def first_lines(file: SourceFile, store: FileStore, most_bytes: int = BLOCK_BYTES) -> bytes:
    """Whole lines from the beginning of a file, about so many bytes; nothing if it is empty."""
    text = b""
    for block in blocks(SourceFile(file.path, file.format, file.bytes), store):
        text += block.text
        if (cut := text.find(b"\n", most_bytes - 1) + 1) > 0:
            return text[:cut]
    return text
